-- Row level security by service, through every function: a role that may see one service is told the same of
-- another one as of one that is not there.  Scenario 248, report 54.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_ours;
CREATE ROLE regress_theirs;
RESET client_min_messages;
SELECT unsafemv.grant_access('regress_ours', 'admin'), unsafemv.grant_access('regress_theirs', 'admin');
\set ECHO none
\i test/sql/every_call.inc
\set ECHO all
CREATE SCHEMA objects;
GRANT ALL ON SCHEMA every, objects TO regress_ours, regress_theirs;
SET ROLE regress_ours;
\t on
\pset format unaligned
\set VERBOSITY terse
SELECT every.objects('objects') \gexec
CREATE TABLE every.story AS SELECT * FROM every.calls('ours', ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'objects');
\o row_security.without
\set ECHO none
SELECT statement FROM every.story ORDER BY place \gexec
\o
\set ECHO all
TRUNCATE objects."ev%ent"";s";
RESET ROLE;

-- the script of the README, with a setting
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE unsafemv.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON unsafemv.%I USING (service_id = current_setting(''app.service'', true))', name);
    END LOOP;
END $$;
SET ROLE regress_ours;
SET app.service = 'ours';
\o row_security.with
\set ECHO none
SELECT statement FROM every.story ORDER BY place \gexec
\o
\set ECHO all
-- one's own service: nothing differs
\! diff row_security.without row_security.with && wc -l < row_security.with | tr -d ' ' && rm -f row_security.without row_security.with

-- another service with everything in it: rows of both lanes, a lease, findings, a closed gate, a candidate, a projection
SET ROLE regress_theirs;
SET app.service = 'theirs';
CREATE TABLE objects.events (service_id text, event_id text, suid unsafemv.suid, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON objects.events (service_id, suid);
CREATE INDEX ON objects.events (service_id, arrived_at);
GRANT SELECT, INSERT ON objects.events TO regress_ours;
INSERT INTO objects.events SELECT s, 'e' || n, every.pos(n), '{"upserts": [{"rowKey": "secret", "value": {"n": "secret"}}]}' FROM unnest(ARRAY['ours', 'theirs']) s, generate_series(1, 3) n;
CREATE FUNCTION objects.plan(event jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT event';
SELECT count(unsafemv.create_view('theirs', v, indexes => '[{"id": "i", "type": "text", "path": "n"}]')) FROM unnest(ARRAY['v1', 'v2', 'v3']) v;
SELECT count(*) FROM unnest(ARRAY['v1', 'v2', 'v3']) v, unsafemv.apply('theirs', v, 'e1', every.pos(1), '{"upserts": [{"rowKey": "secret", "value": {"n": "secret"}}]}') a;
SELECT count(*) FROM unsafemv.apply_safe('theirs', 'v1', NULL, every.pos(1), '{"upserts": [{"rowKey": "secret", "value": {"n": "secret"}}]}', 'e1');
SELECT outcome FROM unsafemv.apply('theirs', 'v1', 'e2', every.pos(2), '{"patches": [{"kind": "add", "rowKey": "secret", "patch": {"m": 1}}]}');
SELECT unsafemv.begin_rebuild('theirs', 'v1', 2), unsafemv.attach_projection('theirs', 'v3', 'objects.events', 'objects.plan'), unsafemv.observe_lag('theirs', '1 s') > '0';
SELECT count(*) FROM unsafemv.acquire_kick('theirs', 'v2', 'secret', '1 h');
SELECT unsafemv.record_checkpoint_ahead('theirs', 'v2', NULL), unsafemv.record_unsafe_failure('theirs', 'v1', 'e7', every.pos(7), 'secret');
CALL unsafemv.rebuild('theirs', 'v3', 2);
SELECT unsafemv.create_typed_view('theirs', 'v1', 'objects.typed', 'n text');
GRANT SELECT ON objects.typed TO regress_ours;

-- every function, of them and of nobody: the same words
SET ROLE regress_ours;
SET app.service = 'ours';
\set VERBOSITY default
CREATE FUNCTION every.told(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
    detail text;
    hint text;
    context text;
    result text;
BEGIN
    IF statement ~ '^SELECT' THEN
        EXECUTE format('SELECT string_agg(x::text, '' '') FROM (%s) x', statement) INTO result;
    ELSE
        EXECUTE statement;
    END IF;
    RETURN concat_ws('; ', 'accepted', result);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws('; ', SQLSTATE, nullif(word, ''), SQLERRM, nullif(detail, ''), nullif(hint, ''));
END $$;
CREATE FUNCTION every.of(service text) RETURNS TABLE (place bigint, statement text, told text) LANGUAGE sql AS $$
SELECT c.place, c.statement, replace(every.told(c.statement), service, 'SERVICE')
FROM every.calls(service, ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'objects') c WHERE c.statement !~ '^CALL|^INSERT|^DROP|"ty''ped' $$;
SELECT * FROM every.of('theirs') t FULL JOIN every.of('absent') a USING (place) WHERE t.told IS DISTINCT FROM a.told;
SELECT told, count(*) FROM every.of('theirs') t GROUP BY 1 ORDER BY count(*) DESC, told COLLATE "C";
-- what commits
CALL unsafemv.wait_until('theirs', 'v1', 'e1', every.pos(1), '0');
CALL unsafemv.wait_until('absent', 'v1', 'e1', every.pos(1), '0');
CALL unsafemv.follow('theirs', 'v3');
CALL unsafemv.follow('absent', 'v3');
CALL unsafemv.rebuild('theirs', 'v3', 2);
CALL unsafemv.rebuild('absent', 'v3', 2);
CALL unsafemv.rebuild_and_promote('theirs', 'v3', 2);
CALL unsafemv.rebuild_and_promote('absent', 'v3', 2);
SELECT unsafemv.create_typed_view('theirs', 'v1', 'objects.mine', 'n text');
SELECT unsafemv.create_typed_view('absent', 'v1', 'objects.mine', 'n text');
-- work of any service is one's own
SELECT * FROM unsafemv.next_kick('me', '1 h'), unsafemv.worker_kick('me', '1 h');
SELECT * FROM unsafemv.check();
-- the tables and SQL views, read and written without a function
SELECT every.told('SELECT count(*) FROM unsafemv.' || relname) AS told, string_agg(relname, ' ' ORDER BY relname) FILTER (WHERE relname IN ('lags', 'services')) AS ours FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind IN ('r', 'v') AND relname <> 'errors' GROUP BY 1 ORDER BY 1;
SELECT DISTINCT service_id FROM unsafemv.lags NATURAL JOIN unsafemv.services;
SELECT every.told(format('INSERT INTO unsafemv.%I (service_id) VALUES (''theirs'')', relname)) ~ '^42501; new row violates row-level security policy' AS refused
FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' GROUP BY 1;
WITH u AS (UPDATE unsafemv.rows SET value = '0' RETURNING 1), d AS (DELETE FROM unsafemv.receipts RETURNING 1) SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM d);
SELECT * FROM objects.typed;

-- one's own beside theirs: own rows, own totals, in both lanes
SELECT unsafemv.create_view('ours', 'v1', indexes => '[{"id": "i", "type": "text", "path": "n"}]');
SELECT outcome FROM unsafemv.apply('ours', 'v1', 'e1', every.pos(1), '{"upserts": [{"rowKey": "own", "value": {"n": "own"}}]}');
SELECT row_upserts FROM unsafemv.apply_safe('ours', 'v1', NULL, every.pos(1), '{"upserts": [{"rowKey": "own", "value": {"n": "own"}}]}', 'e1');
SELECT outcome FROM unsafemv.apply('ours', 'v1', 'e2', every.pos(2), '{"patches": [{"kind": "add", "rowKey": "own", "patch": {"m": 1}}], "upserts": [{"rowKey": "other", "value": 2}]}');
SELECT row_key, unsafe, total_count FROM unsafemv.query_composed_page('ours', 'v1');
SELECT row_key, unsafe, total_count FROM unsafemv.query_composed_page('ours', 'v1', consistency => 'safe');
SELECT service_id, view_id, tentative_rows, unsettled, gate FROM unsafemv.status;
SELECT service_id, row_key FROM unsafemv.current_rows ORDER BY row_key;

-- functions and operators that tell what they see, cheaper than anything else, and what fails on a value
CREATE TABLE every.seen (what text);
CREATE FUNCTION every.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN INSERT INTO every.seen VALUES ($1); RETURN true; END $$;
CREATE FUNCTION every.leaks(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN INSERT INTO every.seen VALUES ($1); RETURN true; END $$;
CREATE OPERATOR every.### (LEFTARG = text, RIGHTARG = text, FUNCTION = every.leaks, RESTRICT = eqsel);
SELECT count(*) > 10 AS relations, sum((every.told(format('SELECT count(*) FROM unsafemv.%I x WHERE every.leak(x::text) AND x::text OPERATOR(every.###) ''''', relname)) ~ '^accepted')::int) = count(*) AS all_read
FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind IN ('r', 'v') AND relname <> 'errors';
SELECT count(*) FROM objects.typed t WHERE every.leak(t::text);
SELECT count(*) FROM unsafemv.current_rows r JOIN unsafemv.rows s ON every.leaks(r.value::text, s.value::text) WHERE r.value::text OPERATOR(every.###) s.row_key AND every.leak(r.service_id || s.service_id);
SELECT count(*) > 20 AS saw, count(*) FILTER (WHERE what ~ 'theirs|secret') AS of_theirs FROM every.seen;
SELECT row_key FROM unsafemv.current_rows WHERE service_id = 'theirs' AND (value ->> 'n')::integer > 0;
SELECT count(*) FROM unsafemv.current_rows WHERE view_id = 'v1' AND CASE WHEN service_id = 'theirs' THEN 1 / (length(value ->> 'n') - 6) END = 1;
-- without policies a query is refused, not answered in part
SET row_security = off;
SELECT substring(every.told(c) FROM '^\d+; query would be affected by row-level security') AS told FROM unnest(ARRAY[
    'SELECT count(*) FROM unsafemv.query_composed_page(''ours'', ''v1'')', 'SELECT count(*) FROM unsafemv.current_rows', 'SELECT outcome FROM unsafemv.apply(''ours'', ''v1'', ''e3'', every.pos(3), ''{}'')']) c;
RESET row_security;

-- theirs is as it was
SET ROLE regress_theirs;
SET app.service = 'theirs';
SELECT view_id, generation, tentative_rows, gate, findings, lease_owner FROM unsafemv.status ORDER BY view_id;
SELECT row_key, value FROM unsafemv.read_rows('theirs', 'v1');
SELECT unsafemv.drop_view('theirs', v) FROM unnest(ARRAY['v1', 'v2', 'v3']) v;
SET app.service = 'ours';
SELECT unsafemv.drop_view('ours', 'v1');
RESET ROLE;

-- policies by role, and two roles in one session: plans and cached views are each role's own
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('DROP POLICY tenant ON unsafemv.%I', name);
        EXECUTE format('CREATE POLICY tenant ON unsafemv.%I USING (service_id = current_user)', name);
    END LOOP;
END $$;
SET ROLE regress_ours;
SELECT unsafemv.create_view('regress_ours', 'v');
SELECT outcome FROM unsafemv.apply('regress_ours', 'v', 'e1', every.pos(1), '{"upserts": [{"rowKey": "a", "value": 1}]}');
SELECT total_count FROM unsafemv.query_composed_page('regress_ours', 'v');
SET ROLE regress_theirs;
SELECT outcome FROM unsafemv.apply('regress_ours', 'v', 'e2', every.pos(2), '{"upserts": [{"rowKey": "b", "value": 1}]}');
SELECT total_count FROM unsafemv.query_composed_page('regress_ours', 'v');
SELECT unsafemv.create_view('regress_theirs', 'v');
SELECT outcome FROM unsafemv.apply('regress_theirs', 'v', 'e2', every.pos(2), '{"upserts": [{"rowKey": "b", "value": 1}]}');
SET ROLE regress_ours;
SELECT outcome FROM unsafemv.apply('regress_theirs', 'v', 'e3', every.pos(3), '{}');
SELECT service_id, row_key FROM unsafemv.current_rows;
-- each role has plans of its own: one of another role would be planned anew, as the session's settings have it
SELECT pg_stat_force_next_flush();
BEGIN;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_indexonlyscan = off;
SET LOCAL enable_bitmapscan = off;
SELECT outcome FROM unsafemv.apply('regress_ours', 'v', 'e4', every.pos(4), '{"upserts": [{"rowKey": "c", "value": 1}]}');
SET LOCAL ROLE regress_theirs;
SELECT outcome FROM unsafemv.apply('regress_theirs', 'v', 'e4', every.pos(4), '{"upserts": [{"rowKey": "c", "value": 1}]}');
SET LOCAL ROLE regress_ours;
SELECT outcome FROM unsafemv.apply('regress_ours', 'v', 'e5', every.pos(5), '{"upserts": [{"rowKey": "d", "value": 1}]}');
SELECT relname AS scanned FROM pg_stat_xact_all_tables WHERE schemaname = 'unsafemv' AND seq_scan > 0 ORDER BY 1;
COMMIT;
RESET ROLE;
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('DROP POLICY tenant ON unsafemv.%I', name);
        EXECUTE format('ALTER TABLE unsafemv.%I DISABLE ROW LEVEL SECURITY', name);
    END LOOP;
END $$;
SELECT unsafemv.drop_view('regress_ours', 'v'), unsafemv.drop_view('regress_theirs', 'v');
SELECT * FROM unsafemv.check('ours') UNION ALL SELECT * FROM unsafemv.check('theirs');
SET client_min_messages = warning;
DROP OWNED BY regress_ours, regress_theirs;
DROP SCHEMA every, objects CASCADE;
DROP ROLE regress_ours, regress_theirs;
