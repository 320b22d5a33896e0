-- A hostile search_path: every operator and every function of pg_catalog and unsafemv with plain argument types is shadowed by
-- one that raises "captured", every relation and type of interest by a temporary one, and both stand in front.
-- Nothing of the extension notices: the story tells what it tells otherwise.  Report 53, scenario 233.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_hostile;
RESET client_min_messages;
SELECT unsafemv.grant_access('regress_hostile', 'admin');
\set ECHO none
\i test/sql/every_call.inc
\set ECHO all
CREATE SCHEMA objects;
CREATE SCHEMA trap;
GRANT ALL ON SCHEMA every, objects, trap TO regress_hostile;
SET ROLE regress_hostile;
DO $$
DECLARE
    plain oid[] := ARRAY(SELECT t.oid FROM pg_type t WHERE t.typnamespace = 'pg_catalog'::regnamespace
        AND t.typname IN ('text', 'name', 'varchar', 'jsonb', 'json', 'int2', 'int4', 'int8', 'bool', 'timestamptz', 'interval', 'float8', 'numeric', 'bytea', 'oid', 'char', '_text', '_int8', '_bool', '_jsonb', '_timestamptz', '_float8', 'regclass', 'regrole', 'regnamespace'))
        || 'unsafemv.suid'::regtype::oid || 'unsafemv.suid[]'::regtype::oid;
    o record;
    made int := 0;
BEGIN
    FOR o IN SELECT p.oid, p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, p.prorettype::regtype::text AS result, p.proretset
        FROM pg_proc p WHERE p.pronamespace IN ('pg_catalog'::regnamespace, 'unsafemv'::regnamespace) AND p.prokind = 'f' AND p.provariadic = 0 AND p.proargtypes::oid[] <@ plain AND p.prorettype = ANY (plain)
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''captured: %s''; END $f$',
                o.proname, o.arguments, CASE WHEN o.proretset THEN 'SETOF' ELSE '' END, o.result, o.proname);
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN NULL;        -- two with the same arguments
        END;
    END LOOP;
    FOR o IN SELECT p.oprname, p.oprleft::regtype::text AS l, p.oprright::regtype::text AS r, p.oprresult::regtype::text AS result, row_number() OVER () AS n
        FROM pg_operator p WHERE p.oprnamespace IN ('pg_catalog'::regnamespace, 'unsafemv'::regnamespace) AND p.oprkind = 'b' AND p.oprleft = ANY (plain) AND p.oprright = ANY (plain) AND p.oprresult = ANY (plain)
    LOOP
        EXECUTE format('CREATE FUNCTION trap."operator %s"(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''captured: operator %s''; END $f$', o.n, o.l, o.r, o.result, replace(o.oprname, '%', '%%'));
        EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap."operator %s")', o.oprname, o.l, o.r, o.n);
        made := made + 1;
    END LOOP;
    -- what is polymorphic, or an aggregate, with the types it is used with
    FOR o IN SELECT format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''captured: %1$s''; END $f$', f, a, t) AS command
        FROM (SELECT 'unnest' AS f, e || '[]' AS a, 'SETOF ' || e AS t FROM unnest(ARRAY['text', 'bigint', 'boolean', 'jsonb', 'timestamptz', 'unsafemv.suid', 'double precision']) e
            UNION ALL SELECT 'to_jsonb', e, 'jsonb' FROM unnest(ARRAY['text', 'bigint', 'double precision']) e
            UNION ALL SELECT 'jsonb_build_array', a, 'jsonb' FROM unnest(ARRAY['text, text, text', 'text, text, bigint', 'text, text, double precision', 'jsonb, jsonb, jsonb']) a
            UNION ALL SELECT 'jsonb_build_object', a, 'jsonb' FROM unnest(ARRAY['text, text', 'text, jsonb', 'text, bigint']) a
            UNION ALL SELECT 'array_length', a, 'integer' FROM unnest(ARRAY['text[], integer', 'bigint[], integer']) a
            UNION ALL SELECT 'format', a, 'text' FROM unnest(ARRAY['text, text', 'text, bigint, bigint', 'text, text, jsonb, text', 'text, text, text']) a
            UNION ALL SELECT 'jsonb_to_record', 'jsonb', 'jsonb') x
    LOOP
        EXECUTE o.command;
        made := made + 1;
    END LOOP;
    FOR o IN SELECT DISTINCT a, s FROM unnest(ARRAY['text', 'bigint', 'jsonb', 'timestamptz', 'boolean', 'unsafemv.suid', 'integer']) s, unnest(ARRAY['max', 'min', 'count', 'array_agg', 'jsonb_agg']) a LOOP
        IF o.a = 'max' THEN
            EXECUTE format('CREATE FUNCTION trap.step(%1$s, %1$s) RETURNS %1$s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''captured: an aggregate''; END $f$', o.s);
        END IF;
    END LOOP;
    FOR o IN SELECT DISTINCT a, s FROM unnest(ARRAY['text', 'bigint', 'jsonb', 'timestamptz', 'boolean', 'unsafemv.suid', 'integer']) s, unnest(ARRAY['max', 'min', 'count', 'array_agg', 'jsonb_agg']) a LOOP
        EXECUTE format('CREATE AGGREGATE trap.%I(%s) (SFUNC = trap.step, STYPE = %s)', o.a, o.s, o.s);
        made := made + 1;
    END LOOP;
    CREATE FUNCTION trap.step(bigint) RETURNS bigint LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION 'captured: count'; END $f$;
    CREATE AGGREGATE trap.count(*) (SFUNC = trap.step, STYPE = bigint, INITCOND = '0');
    IF made < 1000 THEN
        RAISE EXCEPTION 'only % traps', made;
    END IF;
    FOR o IN SELECT DISTINCT relname FROM pg_class WHERE relkind IN ('r', 'v') AND (relnamespace = 'unsafemv'::regnamespace
        OR relname IN ('pg_locks', 'pg_prepared_xacts', 'pg_stat_activity', 'pg_database', 'pg_class', 'pg_type', 'pg_proc', 'pg_namespace')) LOOP
        EXECUTE format('CREATE TEMP TABLE %I ()', o.relname);
    END LOOP;
END $$;
CREATE TABLE every.story AS SELECT * FROM every.calls('hostile path', ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'objects');
\t on
\pset format unaligned
\set VERBOSITY terse
SELECT every.objects('objects') \gexec
CREATE DOMAIN pg_temp.suid AS integer;
CREATE DOMAIN pg_temp.jsonb AS pg_catalog.int4;
CREATE DOMAIN pg_temp.bigint AS pg_catalog.int4;
CREATE DOMAIN pg_temp.text AS pg_catalog.int4;
SET search_path = pg_temp, trap, pg_catalog;
-- the traps are set
SELECT 'a'::pg_catalog.text = 'b'::pg_catalog.text;
SELECT length('a'::pg_catalog.text);
SELECT count(*) FROM unsafemv.errors;
SELECT 'x'::text;
SELECT * FROM pg_locks;
\o hostile.captured
\set ECHO none
SELECT statement FROM every.story ORDER BY place \gexec
\o
\set ECHO all
RESET search_path;
TRUNCATE objects."ev%ent"";s";
-- nothing differs from what a session without traps is told
\c -
SET ROLE regress_hostile;
\o hostile.plain
\set ECHO none
SELECT statement FROM every.story ORDER BY place \gexec
\o
\set ECHO all
\! diff hostile.plain hostile.captured && wc -l < hostile.captured | tr -d ' ' && rm -f hostile.plain hostile.captured
\t off
RESET ROLE;
SET client_min_messages = warning;
DROP OWNED BY regress_hostile;
DROP SCHEMA every, objects, trap CASCADE;
DROP ROLE regress_hostile;
