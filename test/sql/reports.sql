-- What people report of systems of this kind, where no other test has the scenario: test by number.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_reports;
CREATE SCHEMA reports;
RESET client_min_messages;
SELECT unsafemv.grant_access('regress_reports', 'admin');
GRANT ALL ON SCHEMA reports TO regress_reports;
SET search_path = reports, public;
SET ROLE regress_reports;
CREATE FUNCTION pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);
CREATE FUNCTION upsert(k text, n bigint) RETURNS jsonb IMMUTABLE
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', k, 'value', n)));
CREATE FUNCTION add(k text, n bigint) RETURNS jsonb IMMUTABLE
    RETURN jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'create', true, 'rowKey', k, 'patch', jsonb_build_object('n', n))));
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
    result text;
BEGIN
    EXECUTE statement INTO result;
    RETURN result;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;

-- report 8: two views of one stream have heads of their own; each shows and keeps what it needs
SELECT unsafemv.create_view('r8', 'v1'), unsafemv.create_view('r8', 'v2');
SELECT count(*) FROM unnest(ARRAY['v1', 'v2']) v, unsafemv.apply('r8', v, 'e70', pos(70), upsert('k', 70));
SELECT v, unsafemv.suid_ticks(s.last_suid) AS head FROM (VALUES ('v1', 100), ('v2', 40)) AS x(v, head), unsafemv.apply_safe_batch('r8', v, NULL,
    (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', pos(n)::text, 'mutations', upsert(CASE n WHEN 70 THEN 'k' ELSE 'o' END, n)) ORDER BY n) FROM generate_series(10, x.head, 10) n)) s ORDER BY v;
SELECT v, row_key, value, unsafe FROM unnest(ARRAY['v1', 'v2']) v, unsafemv.query_composed_page('r8', v) ORDER BY v, row_key;
SELECT unsafemv.collect_eligible('r8', 'v1', 0, 1, pos(100)), unsafemv.collect_eligible('r8', 'v2', 0, 1, pos(100));
SELECT v, row_key, value, unsafe FROM unnest(ARRAY['v1', 'v2']) v, unsafemv.query_composed_page('r8', v) ORDER BY v, row_key;

-- report 10: purged receipts let no redelivery in: in front of the head and behind it, during a rebuild, and after
SELECT unsafemv.create_view('r10', 'v', receipt_retention => '0');
SELECT outcome FROM unsafemv.apply('r10', 'v', 'e1', pos(1), add('k', 1));
SELECT row_patches FROM unsafemv.apply_safe('r10', 'v', NULL, pos(1), add('k', 1), 'e1');
SELECT row_patches FROM unsafemv.apply_safe('r10', 'v', pos(1), pos(2), add('k', 1), 'e2');
SELECT outcome FROM unsafemv.apply('r10', 'v', 'e9', pos(9), add('k', 1));
SELECT unsafemv.collect_eligible('r10', 'v', 0, 1, pos(2)) AS tentative, unsafemv.has_target_receipt('r10', 'v', 'e1', pos(1)) AS has;
SELECT said($$SELECT outcome FROM unsafemv.apply('r10', 'v', 'e1', pos(1), add('k', 1))$$) AS behind, said($$SELECT outcome FROM unsafemv.apply('r10', 'v', 'e9', pos(9), add('k', 1))$$) AS in_front;
SELECT row_key, value FROM unsafemv.query_composed_page('r10', 'v');
SELECT unsafemv.begin_rebuild('r10', 'v', 1);
SELECT said($$SELECT outcome FROM unsafemv.apply('r10', 'v', 'e1', pos(1), add('k', 1))$$) AS behind;
SELECT row_patches FROM unsafemv.apply_safe_batch('r10', 'v', NULL, (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', pos(n)::text, 'mutations', add('k', 1), 'arrivedAt', now() - interval '2 days') ORDER BY n) FROM generate_series(1, 2) n), 1);
SELECT generation, carried FROM unsafemv.promote_generation('r10', 'v', 1, 0);
SELECT said($$SELECT outcome FROM unsafemv.apply('r10', 'v', 'e1', pos(1), add('k', 1))$$) AS behind, said($$SELECT outcome FROM unsafemv.apply('r10', 'v', 'e9', pos(9), add('k', 1))$$) AS in_front;
SELECT row_key, value FROM unsafemv.query_composed_page('r10', 'v');

-- report 12: one event in two views, in a second generation and in both lanes: once in each
SELECT unsafemv.create_view('r12', 'a'), unsafemv.create_view('r12', 'b');
SELECT v, a.* FROM unnest(ARRAY['a', 'b', 'a']) WITH ORDINALITY AS x(v, n), LATERAL (SELECT outcome, duplicate FROM unsafemv.apply('r12', x.v, 'e1', pos(1), add('k', 1)) WHERE n > 0) a;
SELECT unsafemv.begin_rebuild('r12', 'a', 2);
SELECT g, s.row_patches FROM unnest(ARRAY[0, 1]) g, unsafemv.apply_safe('r12', 'a', NULL, pos(1), add('k', 1), 'e1', g) s;
SELECT said($$SELECT last_suid FROM unsafemv.apply_safe('r12', 'a', pos(1), pos(1), add('k', 1), 'e1')$$) AS again;
SELECT v, value, unsafe FROM unnest(ARRAY['a', 'b']) v, unsafemv.query_composed_page('r12', v);
SELECT generation FROM unsafemv.promote_generation('r12', 'a', 1, 0);
SELECT outcome, duplicate, value FROM unsafemv.apply('r12', 'a', 'e1', pos(1), add('k', 1)), unsafemv.query_composed_page('r12', 'a');

-- report 37: json takes what jsonb refuses.  In a source that casts, the event is named, the others go on, and an
-- operator can skip it; the trigger has the same verdict
CREATE TABLE texts (service_id text, event_id text, suid unsafemv.suid, event json, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON texts (service_id, suid);
CREATE INDEX ON texts (service_id, arrived_at);
CREATE VIEW casts AS SELECT service_id, event_id, suid, event::jsonb AS event, arrived_at FROM texts;
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT event';
SELECT unsafemv.create_view('r37', 'v'), unsafemv.attach_projection('r37', 'v', 'casts', 'plan');
CREATE TRIGGER deliver AFTER INSERT ON texts REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
CREATE FUNCTION inserting(event text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    context text;
BEGIN
    INSERT INTO texts VALUES ('r37', 'e1', pos(1), event::json);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws(', ', SQLSTATE, substring(context FROM 'delivering[^\n]*'));
END $$;
SELECT inserting('{"upserts": [{"rowKey": "a", "value": "\u0000"}]}');
SELECT inserting('{"upserts": [{"rowKey": "\ud83d", "value": 1}]}');
DROP TRIGGER deliver ON texts;
CREATE TRIGGER deliver AFTER INSERT ON texts REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=record');
INSERT INTO texts SELECT 'r37', 'e' || n, pos(n), (CASE n WHEN 5 THEN '{"upserts": [{"rowKey": "a", "value": "\u0000"}]}' WHEN 6 THEN '{"upserts": [{"rowKey": "\ud83d", "value": 1}]}'
    ELSE '{"upserts": [{"rowKey": "k' || n || '", "value": 1}]}' END)::json FROM generate_series(1, 9) n;
SELECT kind, event_id, detail ->> 'error' AS error FROM unsafemv.read_findings('r37', 'v') ORDER BY 1, 2;
SELECT count(*) AS visible FROM unsafemv.query_composed_page('r37', 'v');
CALL unsafemv.follow('r37', 'v') \gset
SELECT :folded AS folded, unsafemv.suid_ticks(:'head') AS head, :'stop' AS stop, :'deadline'::timestamptz > clock_timestamp() AS pauses;
SELECT kind, event_id, detail ->> 'code' AS code, attempts FROM unsafemv.read_findings('r37', 'v') ORDER BY 1, 2;
SELECT unsafemv.skip_event('r37', 'v', e, 'cannot be stored') FROM unnest(ARRAY['e5', 'e6']) e;
CALL unsafemv.follow('r37', 'v', chunk => 2);
SELECT string_agg(row_key, ' ' ORDER BY row_key) AS rows FROM unsafemv.query_composed_page('r37', 'v');
-- in a rebuild too
CALL unsafemv.rebuild_and_promote('r37', 'v', 2);
SELECT string_agg(row_key, ' ' ORDER BY row_key) AS rows FROM unsafemv.query_composed_page('r37', 'v');

-- report 47: a source whose collation takes other names for equal: services and event types are bytes all the same
CREATE COLLATION deaf (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE deaf (service_id text COLLATE deaf, event_id text COLLATE deaf, suid unsafemv.suid, event_type text COLLATE deaf, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON deaf (service_id, suid);
CREATE INDEX ON deaf (service_id, arrived_at);
SELECT unsafemv.create_view('r47', 'v'), unsafemv.create_view('R47', 'v'), unsafemv.attach_projection('r47', 'v', 'deaf', 'plan', event_types => '{a}'), unsafemv.attach_projection('R47', 'v', 'deaf', 'plan');
CREATE TRIGGER deliver AFTER INSERT ON deaf REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
INSERT INTO deaf SELECT s, s || t, pos(n), t, upsert(s || t, n) FROM (VALUES ('r47', 'a', 1), ('R47', 'a', 2), ('r47', 'A', 3), ('R47', 'A', 4)) AS x(s, t, n);
SELECT s, row_key, unsafe FROM unnest(ARRAY['r47', 'R47']) s, unsafemv.query_composed_page(s, 'v') ORDER BY 1, 2;
CALL unsafemv.follow('r47', 'v');
CALL unsafemv.follow('R47', 'v');
SELECT s, row_key, unsafe FROM unnest(ARRAY['r47', 'R47']) s, unsafemv.query_composed_page(s, 'v') ORDER BY 1, 2;
INSERT INTO deaf VALUES ('r47', 'late', pos(0), 'A', '{}'), ('R47', 'late', pos(5), 'a', '{}');
CALL unsafemv.follow('r47', 'v');
CALL unsafemv.rebuild_and_promote('r47', 'v', 2);
SELECT row_key FROM unsafemv.query_composed_page('r47', 'v');

-- report 52: nothing stored is a transaction id, or compared with one
SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
    AND a.atttypid IN ('xid'::regtype, 'xid8'::regtype, 'cid'::regtype, 'pg_snapshot'::regtype, 'txid_snapshot'::regtype, 'pg_lsn'::regtype, 'tid'::regtype);

-- report 55: a read-only transaction gets every read, and every write is refused by its code
SET default_transaction_read_only = on;
SELECT count(*) FROM unsafemv.query_composed_page('r8', 'v1'), unsafemv.composed_page('r8', 'v1'), unsafemv.read_rows('r8', 'v1'), unsafemv.read_index_entries('r8', 'v1'), unsafemv.read_meta('r8', 'v1'),
    unsafemv.read_active('r8', 'v1'), unsafemv.read_wait_state('r8', 'v1', 'e70', pos(70)), unsafemv.wait_for('r8', 'v1', 'e70', pos(70), '0') w;
SELECT unsafemv.composed_page('r8', 'v2', 1) ->> 'readHead' AS shows, unsafemv.wait_for('r8', 'v2', 'not yet', pos(200), '0') AS behind;
CALL unsafemv.wait_until('r8', 'v1', 'e70', pos(70));
SELECT (SELECT count(*) FROM unsafemv.status WHERE service_id = 'r8') AS status, (SELECT count(*) FROM unsafemv.current_rows WHERE service_id = 'r8') AS rows, (SELECT count(*) FROM unsafemv.check('r8')) AS wrong, (SELECT count(*) FROM unsafemv.read_findings('r8', 'v1')) AS findings;
SELECT said('SELECT ' || f) AS said, count(*) FROM unnest(ARRAY['unsafemv.apply(''r8'', ''v1'', ''e200'', pos(200), ''{}'')', 'unsafemv.apply_safe_batch(''r8'', ''v1'', pos(100), ''[]'')',
    'unsafemv.create_view(''r8'', ''v9'')', 'unsafemv.drop_view(''r8'', ''v1'')', 'unsafemv.begin_rebuild(''r8'', ''v1'', 1)', 'unsafemv.acquire_kick(''r8'', ''v2'', ''me'', ''1 h'')', 'unsafemv.observe_lag(''r8'', ''1 s'')']) f GROUP BY 1;
RESET default_transaction_read_only;

-- report 59: untyped strings, strings typed as text, and names work alike; nothing returns void
SELECT unsafemv.create_view('r59', 'v');
PREPARE typed(text, text, text, text, text) AS SELECT outcome, duplicate FROM unsafemv.apply($1, $2, $3, $4, $5::jsonb);
EXECUTE typed('r59', 'v', 'e1', '000000000000000000100000000000', '{"upserts": [{"rowKey": "k", "value": {"n": 9007199254740993}}]}');
PREPARE untyped AS SELECT outcome, duplicate FROM unsafemv.apply($1, $2, $3, $4, $5);
EXECUTE untyped('r59', 'v', 'e1', '000000000000000000100000000000', '{}');
PREPARE varying(varchar, varchar, varchar) AS SELECT unsafemv.has_target_receipt($1, 'v', $2, $3);
EXECUTE varying('r59', 'e1', '000000000000000000100000000000');
PREPARE numbers(text, int, int) AS SELECT value, row_version, source_suid, total_count FROM unsafemv.query_composed_page($1, 'v', "limit" => $2, "offset" => $3);
EXECUTE numbers('r59', 10, 0);
DEALLOCATE ALL;
SELECT count(*) AS overloaded FROM (SELECT proname FROM pg_proc WHERE pronamespace = 'unsafemv'::regnamespace GROUP BY 1 HAVING count(*) > 1) x;
SELECT count(*) AS not_of_the_extension FROM pg_class c WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND NOT EXISTS (
    SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'unsafemv' WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e');

-- report 60: a transaction is one transaction id, however many events and no notification; nothing shared by the view is written
SELECT unsafemv.create_view('r60', 'v');
SELECT xmin AS before FROM unsafemv.generations WHERE service_id = 'r60' \gset
SELECT count(*) FROM unsafemv.apply_batch('r60', 'v', (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', pos(n)::text, 'mutations', add('k' || n % 50, 1))) FROM generate_series(1, 5000) n));
BEGIN;
SELECT count(*) FROM generate_series(5001, 5200) n, unsafemv.apply('r60', 'v', 'e' || n, pos(n), add('k' || n % 50, 1));
COMMIT;
SELECT count(DISTINCT xmin::text) AS transaction_ids, count(*) AS receipts, pg_notification_queue_usage() AS notified FROM unsafemv.receipts WHERE service_id = 'r60';
SELECT (SELECT count(*) FROM unsafemv.kicks WHERE service_id = 'r60') AS kicks, xmin = :'before' AS generation_unwritten FROM unsafemv.generations WHERE service_id = 'r60';
-- a view that wants 10 of 3,000 events: a pass folds these and is caught up
CREATE TABLE sparse (service_id text, event_id text, suid unsafemv.suid, event_type text, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON sparse (service_id, suid);
CREATE INDEX ON sparse (service_id, arrived_at);
INSERT INTO sparse SELECT 'r60', 'e' || n, pos(n), CASE WHEN n % 300 = 0 THEN 'wanted' ELSE 'other' END, upsert('k' || n, n) FROM generate_series(1, 3000) n;
SELECT unsafemv.create_view('r60', 'sparse'), unsafemv.attach_projection('r60', 'sparse', 'sparse', 'plan', event_types => '{wanted}');
CALL unsafemv.follow('r60', 'sparse');
CALL unsafemv.follow('r60', 'sparse');

SELECT service_id, view_id, invariant, detail FROM unsafemv.check() WHERE service_id ~* '^r[0-9]+$';
SELECT count(unsafemv.drop_view(service_id, view_id)) FROM unsafemv.views WHERE service_id ~* '^r[0-9]+$';
RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA reports CASCADE;
DROP OWNED BY regress_reports;
DROP ROLE regress_reports;
