-- Rights: what a reader, a writer, an administrator and everybody else can use; what nobody gains by them.
-- Scenario 233, reports 53 and 54.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_nobody;
CREATE ROLE "regress ""reader""; --";
CREATE ROLE regress_writer;
CREATE ROLE regress_admin;
CREATE ROLE regress_secret;
RESET client_min_messages;

-- arguments
SELECT unsafemv.grant_access(NULL, 'reader');
SELECT unsafemv.grant_access('regress_nobody', NULL);
SELECT unsafemv.grant_access('regress_nobody', 'Reader');
SELECT unsafemv.grant_access('regress_missing', 'reader');
-- nobody is everybody
SELECT unsafemv.grant_access('public', 'reader');
SELECT unsafemv.grant_access('PUBLIC', 'reader');
SELECT unsafemv.grant_access('current_user', 'reader');
SELECT unsafemv.grant_access('', 'reader');
-- twice is as good as once
SELECT unsafemv.grant_access('regress "reader"; --', 'reader'), unsafemv.grant_access('regress_writer', 'writer'), unsafemv.grant_access('regress_admin', 'admin');
SELECT unsafemv.grant_access('regress_admin', 'admin');

-- who may call what
CREATE TEMP VIEW access AS
SELECT p.oid, p.proname, CASE
    WHEN EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0) THEN 'everybody'
    WHEN has_function_privilege('regress "reader"; --', p.oid, 'EXECUTE') THEN 'reader'
    WHEN has_function_privilege('regress_writer', p.oid, 'EXECUTE') THEN 'writer'
    WHEN has_function_privilege('regress_admin', p.oid, 'EXECUTE') THEN 'admin' ELSE 'owner' END AS least
FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'unsafemv';
SELECT least, string_agg(proname, ' ' ORDER BY proname) AS functions FROM access GROUP BY 1 ORDER BY least <> 'everybody', least <> 'reader', least <> 'writer', least <> 'admin';
-- a level includes the ones before
SELECT a.proname FROM access a WHERE least = 'reader' AND NOT (has_function_privilege('regress_writer', oid, 'EXECUTE') AND has_function_privilege('regress_admin', oid, 'EXECUTE'))
    OR least = 'writer' AND NOT has_function_privilege('regress_admin', oid, 'EXECUTE');
-- and which tables they may write; nothing may be owned, truncated or referenced, and nothing granted on
SELECT c.relname, r.role, string_agg(p.privilege, ' ' ORDER BY p.privilege) AS may,
    (SELECT string_agg(a.attname, ' ' ORDER BY a.attname) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND has_column_privilege(r.role, c.oid, a.attnum, 'UPDATE') AND NOT has_table_privilege(r.role, c.oid, 'UPDATE')) AS updates
FROM pg_class c CROSS JOIN unnest(ARRAY['regress_nobody', 'regress "reader"; --', 'regress_writer', 'regress_admin']) r(role)
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER', 'SELECT WITH GRANT OPTION', 'UPDATE WITH GRANT OPTION']) p(privilege)
WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND has_table_privilege(r.role, c.oid, p.privilege)
GROUP BY c.oid, c.relname, r.role HAVING r.role <> 'regress "reader"; --' OR string_agg(p.privilege, ' ') <> 'SELECT' ORDER BY 2, 1;
SELECT count(*) AS not_readable FROM pg_class c WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'v') AND NOT has_table_privilege('regress "reader"; --', c.oid, 'SELECT');
-- nothing of the extension is everybody's but the type, in whatever catalogue
SELECT 'schema' AS what, n.nspname::text AS name FROM pg_namespace n CROSS JOIN aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a WHERE n.nspname = 'unsafemv' AND a.grantee = 0
UNION ALL SELECT 'relation', c.relname FROM pg_class c CROSS JOIN aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))) a WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'v', 'm', 'S', 'f', 'p') AND a.grantee = 0
UNION ALL SELECT 'column', c.relname || '.' || t.attname FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid CROSS JOIN aclexplode(t.attacl) a WHERE c.relnamespace = 'unsafemv'::regnamespace AND a.grantee = 0
UNION ALL SELECT 'routine of another kind', p.proname FROM pg_proc p JOIN access a ON a.oid = p.oid WHERE a.least = 'everybody' AND p.proname !~ '^(suid|generate_suid$|min$|max$)'
UNION ALL SELECT 'definer', p.proname FROM pg_proc p JOIN access a ON a.oid = p.oid WHERE p.prosecdef
UNION ALL SELECT 'leakproof', p.proname FROM pg_proc p JOIN access a ON a.oid = p.oid WHERE p.proleakproof AND p.proname !~ '^suid_(lt|le|eq|ge|gt|ne|cmp|hash|hash_extended)$';
SELECT count(*) AS untrusted_languages_or_casts FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'unsafemv'
WHERE d.deptype = 'e' AND d.classid IN ('pg_language'::regclass, 'pg_event_trigger'::regclass, 'pg_foreign_data_wrapper'::regclass, 'pg_foreign_server'::regclass, 'pg_policy'::regclass);
-- every function that works on a service is in the story that other tests go through
\set ECHO none
\i test/sql/every_call.inc
\set ECHO all
SELECT a.proname AS not_in_the_story FROM access a WHERE least <> 'everybody' AND NOT EXISTS (
    SELECT FROM every.calls('s', ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'o') c WHERE c.statement ~ ('unsafemv\.' || a.proname || '\(')) ORDER BY 1;
GRANT USAGE ON SCHEMA every TO PUBLIC;

-- what the levels may not is 42501, of the schema or of the function
CREATE FUNCTION every.said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;
CREATE VIEW every.calling AS SELECT substring(statement FROM 'unsafemv\.(\w+)\(') AS function, statement FROM every.calls('nobody''s', ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'o') WHERE statement ~ 'unsafemv\.\w+\(';
GRANT SELECT ON every.calling TO PUBLIC;
SET ROLE regress_nobody;
SELECT every.said(statement), count(*) FROM every.calling GROUP BY 1;
SELECT every.said('SELECT * FROM unsafemv.' || n) AS said, count(*) FROM unnest(ARRAY['current_rows', 'status', 'rows', 'errors', 'progress', 'findings']) n GROUP BY 1;
SET ROLE "regress ""reader""; --";
SELECT every.said(statement), string_agg(DISTINCT function, ' ' ORDER BY function) AS functions FROM every.calling GROUP BY 1 ORDER BY 1;
SET ROLE regress_writer;
SELECT every.said(statement), string_agg(DISTINCT function, ' ' ORDER BY function) AS functions FROM every.calling GROUP BY 1 ORDER BY 1;
-- only the owner grants
SET ROLE regress_admin;
SELECT unsafemv.grant_access('regress_nobody', 'reader');
RESET ROLE;
GRANT EXECUTE ON FUNCTION unsafemv.grant_access TO regress_admin;
SET ROLE regress_admin;
SELECT unsafemv.grant_access('regress_nobody', 'reader');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION unsafemv.grant_access FROM regress_admin;
SELECT has_schema_privilege('regress_nobody', 'unsafemv', 'USAGE');
-- and what was granted can be taken back
SELECT unsafemv.grant_access('regress_nobody', 'admin');
REVOKE ALL ON ALL TABLES IN SCHEMA unsafemv FROM regress_nobody;
REVOKE ALL ON ALL ROUTINES IN SCHEMA unsafemv FROM regress_nobody;
REVOKE ALL ON SCHEMA unsafemv FROM regress_nobody;
SELECT count(*) AS left_behind FROM pg_shdepend WHERE refclassid = 'pg_authid'::regclass AND refobjid = 'regress_nobody'::regrole AND deptype = 'a';

-- nobody makes code run as somebody else by writing the table of projections
CREATE SCHEMA regress_work;
GRANT ALL ON SCHEMA regress_work TO regress_secret, regress_admin, regress_writer;
SET ROLE regress_secret;
CREATE TABLE regress_work.secrets (secret text);
INSERT INTO regress_work.secrets VALUES ('deep');
RESET ROLE;
SET ROLE regress_admin;
CREATE TABLE regress_work.events (service_id text, event_id text, suid unsafemv.suid, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON regress_work.events (service_id, suid);
CREATE INDEX ON regress_work.events (service_id, arrived_at);
GRANT SELECT ON regress_work.events TO regress_secret;
CREATE FUNCTION regress_work.steal(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', current_user, 'value', (SELECT secret FROM regress_work.secrets)))) $$;
SELECT unsafemv.create_view('security', 'v'), unsafemv.attach_projection('security', 'v', 'regress_work.events', 'regress_work.steal');
INSERT INTO regress_work.events VALUES ('security', 'e1', unsafemv.suid_from_position(1), '{}');
UPDATE unsafemv.projections SET attached_role = 'regress_secret';
UPDATE unsafemv.projections SET attached_role = 'regress_missing';
UPDATE unsafemv.projections SET source = 'regress_work.secrets', attached_role = 'postgres';
INSERT INTO unsafemv.projections (service_id, view_no, source, plan_function, attached_role) VALUES ('security', 99, 'regress_work.events', 'regress_work.steal', 'regress_secret')
    ON CONFLICT DO NOTHING;
CALL unsafemv.follow('security', 'v') \gset
\echo :folded :stop
SELECT detail ->> 'error' AS error FROM unsafemv.read_findings('security', 'v');
-- nor by taking over what somebody else attached
RESET ROLE;
GRANT regress_writer TO regress_secret;
SELECT unsafemv.grant_access('regress_secret', 'admin');
SET ROLE regress_secret;
CREATE FUNCTION regress_work.honest(event jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
SELECT unsafemv.create_view('security', 'w'), unsafemv.attach_projection('security', 'w', 'regress_work.events', 'regress_work.honest');
SET ROLE regress_admin;
UPDATE unsafemv.projections SET view_no = view_no + 100, source = 'regress_work.events' WHERE attached_role = 'regress_secret';
UPDATE unsafemv.projections SET plan_function = 'regress_work.steal' WHERE attached_role = 'regress_secret';
-- a writer has no right on these columns at all, but notes its passes
SET ROLE regress_writer;
UPDATE unsafemv.projections SET plan_function = 'regress_work.steal';
UPDATE unsafemv.projections SET attached_role = 'regress_writer';
UPDATE unsafemv.projections SET attempts = attempts;
CALL unsafemv.follow('security', 'v') \gset
\echo :folded :stop
-- what one role of a session may know of a view is not remembered for the next
RESET ROLE;
SELECT unsafemv.create_view('cached', 'v'), unsafemv.grant_access('regress_nobody', 'writer');
REVOKE SELECT ON unsafemv.views FROM regress_nobody;
SET ROLE regress_writer;
SELECT outcome FROM unsafemv.apply('cached', 'v', 'e1', unsafemv.suid_from_position(1), '{}');
SET ROLE regress_nobody;
\set VERBOSITY terse
SELECT outcome FROM unsafemv.apply('cached', 'v', 'e2', unsafemv.suid_from_position(2), '{}');
\set VERBOSITY default
RESET ROLE;
SELECT unsafemv.drop_view('cached', 'v');
-- one's own role, or that of a member, is fine
SET ROLE regress_secret;
UPDATE unsafemv.projections SET attached_role = 'regress_writer' WHERE attached_role = 'regress_secret';
SELECT attached_role FROM unsafemv.projections WHERE source = 'regress_work.events' ORDER BY 1;
-- nor by leaving behind what would run later, as the caller: a deferred trigger, a held cursor, a temporary table
SET ROLE regress_admin;
CREATE TABLE regress_work.bait (n int);
CREATE TABLE regress_work.caught (by_role name);
CREATE FUNCTION regress_work.spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_work.caught VALUES (current_user); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER spring AFTER INSERT ON regress_work.bait DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION regress_work.spring();
CREATE FUNCTION regress_work.spring_now() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO regress_work.caught VALUES (current_user); RETURN 1; END $$;
CREATE FUNCTION regress_work.leave(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE event ->> 'do';
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'do', 'value', 1)));
END $$;
CREATE FUNCTION regress_work.leave_keys(event jsonb) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN EXECUTE event ->> 'do'; RETURN '{}'; END $$;
CREATE FUNCTION regress_work.keyed(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '{}'::jsonb $$;
SELECT unsafemv.create_view('later', v), unsafemv.attach_projection('later', v, 'regress_work.events', 'regress_work.leave') FROM unnest(ARRAY['follow', 'deliver']) v;
SELECT unsafemv.create_view('later', 'keys'), unsafemv.attach_projection('later', 'keys', 'regress_work.events', 'regress_work.keyed', 'regress_work.leave_keys');
INSERT INTO regress_work.events VALUES ('later', 'e1', unsafemv.suid_from_position(1), '{"do": "INSERT INTO regress_work.bait VALUES (1)"}');
RESET ROLE;
CALL unsafemv.follow('later', 'follow') \gset
\echo :folded :stop
CALL unsafemv.follow('later', 'keys') \gset
\echo :folded :stop
CALL unsafemv.rebuild_and_promote('later', 'follow', 1) \gset
\echo :stop
SELECT view_id, f.generation, f.detail ->> 'error' AS error FROM unsafemv.findings f JOIN unsafemv.views USING (service_id, view_no) WHERE service_id = 'later' ORDER BY 1, 2;
-- the trigger, under both policies
CREATE TRIGGER deliver AFTER INSERT ON regress_work.events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=record', 'on_error.follow=raise');
\set VERBOSITY terse
INSERT INTO regress_work.events VALUES ('later', 'e2', unsafemv.suid_from_position(2), '{"do": "INSERT INTO regress_work.bait VALUES (2)"}');
\set VERBOSITY default
SELECT unsafemv.detach_projection('later', 'follow');
INSERT INTO regress_work.events VALUES ('later', 'e3', unsafemv.suid_from_position(3), '{"do": "INSERT INTO regress_work.bait VALUES (3)"}'),
    ('later', 'e4', unsafemv.suid_from_position(4), '{"do": "DECLARE held CURSOR WITH HOLD FOR SELECT regress_work.spring_now()"}'), ('later', 'e5', unsafemv.suid_from_position(5), '{"do": "CREATE TEMP TABLE pg_class (oid oid)"}');
SELECT view_id, event_id, detail ->> 'error' AS error FROM unsafemv.findings JOIN unsafemv.views USING (service_id, view_no) WHERE service_id = 'later' AND kind = 'unsafe-failure' ORDER BY 1, 2;
DROP TRIGGER deliver ON regress_work.events;
-- the replay of a promotion
SELECT unsafemv.create_view('replayed', 'v');
SELECT outcome FROM unsafemv.apply('replayed', 'v', 'e1', unsafemv.suid_from_position(1), '{"upserts": [{"rowKey": "k", "value": 1}]}');
INSERT INTO regress_work.events VALUES ('replayed', 'e1', unsafemv.suid_from_position(1), '{"do": "INSERT INTO regress_work.bait VALUES (4)"}', clock_timestamp());
SET ROLE regress_admin;
SELECT unsafemv.attach_projection('replayed', 'v', 'regress_work.events', 'regress_work.leave'), unsafemv.begin_rebuild('replayed', 'v', 2);
RESET ROLE;
SELECT * FROM unsafemv.promote_generation('replayed', 'v', 1, 0);
SELECT (SELECT count(*) FROM regress_work.caught) AS caught, (SELECT count(*) FROM regress_work.bait) AS bait, (SELECT count(*) FROM pg_cursors WHERE is_holdable) AS held, to_regclass('pg_temp.pg_class') AS temporary;
SET ROLE regress_admin;
SELECT unsafemv.attach_projection('security', 'v', 'regress_work.events', 'regress_work.steal');
SELECT unsafemv.drop_view('security', 'v'), unsafemv.drop_view('security', 'w');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id IN ('later', 'replayed');
RESET ROLE;
SELECT * FROM unsafemv.check('security');
SET client_min_messages = warning;
DROP SCHEMA regress_work, every CASCADE;
RESET client_min_messages;

-- a schema that was there before: not with another's owner, not with functions in it (report 53: unsafemv.page)
CREATE DATABASE regress_unsafemv_security;
\set VERBOSITY terse
\c regress_unsafemv_security
GRANT CREATE ON DATABASE regress_unsafemv_security TO regress_nobody;
SET ROLE regress_nobody;
CREATE SCHEMA unsafemv;
RESET ROLE;
CREATE EXTENSION unsafemv;
SET ROLE regress_nobody;
CREATE FUNCTION unsafemv.to_jsonb(bigint) RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb';
RESET ROLE;
ALTER SCHEMA unsafemv OWNER TO CURRENT_USER;
CREATE EXTENSION unsafemv;
DROP FUNCTION unsafemv.to_jsonb(bigint);
CREATE OPERATOR unsafemv.<= (LEFTARG = text, RIGHTARG = text, FUNCTION = text_le);
CREATE EXTENSION unsafemv;
DROP OPERATOR unsafemv.<= (text, text);
CREATE EXTENSION unsafemv WITH SCHEMA public;
-- nor one in which others may create, whoever gave them the right
GRANT USAGE, CREATE ON SCHEMA unsafemv TO regress_nobody;
CREATE EXTENSION unsafemv;
CREATE EXTENSION unsafemv WITH SCHEMA unsafemv;
REVOKE CREATE ON SCHEMA unsafemv FROM regress_nobody;
GRANT CREATE ON SCHEMA unsafemv TO PUBLIC;
CREATE EXTENSION unsafemv;
DROP SCHEMA unsafemv;
ALTER DEFAULT PRIVILEGES GRANT CREATE ON SCHEMAS TO regress_nobody;
CREATE EXTENSION unsafemv;
ALTER DEFAULT PRIVILEGES REVOKE CREATE ON SCHEMAS FROM regress_nobody;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO regress_nobody;
CREATE SCHEMA unsafemv;
-- a superuser's right gives nothing new
ALTER ROLE regress_secret SUPERUSER;
GRANT CREATE ON SCHEMA unsafemv TO regress_secret, CURRENT_USER;
CREATE EXTENSION unsafemv;
SELECT count(*) FROM unsafemv.status;
ALTER ROLE regress_secret NOSUPERUSER;
\c regression
DROP DATABASE regress_unsafemv_security;
DROP OWNED BY regress_nobody, "regress ""reader""; --", regress_writer, regress_admin, regress_secret;
DROP ROLE regress_nobody, "regress ""reader""; --", regress_writer, regress_admin, regress_secret;
