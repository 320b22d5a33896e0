-- Errors: the catalogue, and every code in it provoked, writing nothing.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA errors_test;
RESET client_min_messages;
SET search_path = errors_test, unsafemv;

CREATE FUNCTION s(n bigint) RETURNS suid LANGUAGE sql IMMUTABLE AS
$$ SELECT lpad(n::text, 30, '0')::suid $$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;

-- everything the extension's tables hold, as one digest
CREATE FUNCTION state() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    name text;
    part text;
    whole text := '';
BEGIN
    FOR name IN
        SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind = 'r'
        ORDER BY c.relname
    LOOP
        EXECUTE format('SELECT count(*) || md5(coalesce(string_agg(t::text, E''\n'' ORDER BY t::text COLLATE "C"), '''')) FROM unsafemv.%I t', name)
            INTO part;
        whole := whole || part;
    END LOOP;
    RETURN md5(whole);
END $$;

-- the code a statement is refused with; says so if anything was written
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before text := state();
    number text;
    word text;
BEGIN
    EXECUTE statement;
    RAISE EXCEPTION USING ERRCODE = 'P0001', CONSTRAINT = 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, word = CONSTRAINT_NAME;
    IF word = '' THEN word := number;
    ELSIF number = 'P0001' THEN NULL;
    ELSIF number IS DISTINCT FROM (SELECT e.sqlstate FROM unsafemv.errors e WHERE e.code = word) THEN
        word := word || ' WITH SQLSTATE ' || number;
    END IF;
    RETURN word || CASE WHEN state() <> before THEN ' BUT WROTE' ELSE '' END;
END $$;


-- the catalogue
SELECT code, sqlstate, retryable FROM unsafemv.errors ORDER BY sqlstate;
SELECT count(*) = count(DISTINCT code) AND count(*) = count(DISTINCT sqlstate) AND bool_and(sqlstate ~ '^UM[0-9]{3}$') AND bool_and(code ~ '^(MV|UNSAFE|SUID)_[A-Z_]+$') AND bool_and(length(meaning) > 5) AS well_formed FROM unsafemv.errors;

-- views to fail on: open, over safe rows and a floor; closed; and with findings
SELECT unsafemv.create_view('errors', name, indexes => CASE name WHEN 'declared' THEN '[{"id":"n","type":"integer","path":"n"}]'::jsonb ELSE '[]' END)
FROM unnest(ARRAY['open', 'closed', 'declared', 'ahead', 'quarantined', 'busy', 'dropping']) AS name;
SELECT outcome FROM unsafemv.apply('errors', 'open', 'e20', s(20), '{"rowUpserts":[{"rowKey":"k","value":{},"rowVersion":1}]}');
SELECT row_upserts FROM unsafemv.apply_safe('errors', 'open', NULL, s(8), '{"rowUpserts":[{"rowKey":"safe","value":{}}]}', 'e8');
UPDATE unsafemv.generations g SET receipt_floor = s(3) FROM unsafemv.views v WHERE (v.service_id, v.view_no) = (g.service_id, g.view_no) AND (v.service_id, v.view_id) = ('errors', 'open');
SELECT row_upserts FROM unsafemv.apply_safe('errors', 'closed', NULL, s(8), '{}', 'e8');
SELECT outcome FROM unsafemv.apply('errors', 'closed', 'e1', s(1), '{}');
SELECT outcome FROM unsafemv.apply('errors', 'busy', 'e1', s(1), '{}');
INSERT INTO unsafemv.findings (service_id, view_no, generation, kind) SELECT service_id, view_no, 0, CASE view_id WHEN 'ahead' THEN 'checkpoint-ahead' ELSE 'ordering-quarantine' END FROM unsafemv.views WHERE service_id = 'errors' AND view_id IN ('ahead', 'quarantined');
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status) SELECT service_id, view_no, 1, 1, 'retired' FROM unsafemv.views WHERE service_id = 'errors' AND view_id = 'open';
SELECT outcome FROM unsafemv.apply('errors', 'dropping', 'e1', s(1), '{}');
SELECT unsafemv.drop_view('errors', 'dropping', 0);
-- somebody holds on to a view
SET unsafemv.promotion_timeout = '10ms';
BEGIN;
SELECT outcome FROM unsafemv.apply('errors', 'busy', 'e2', s(2), '{}');
PREPARE TRANSACTION 'unsafemv errors';

CREATE TABLE provocations (n serial, code text, statement text);
INSERT INTO provocations (code, statement) VALUES
    ('UNSAFE_ROW_CAS_MISMATCH', $$SELECT unsafemv.apply('errors', 'open', 'e21', s(21), '{"rowDeletes":["k"]}', expected_row_version => 2)$$),
    ('UNSAFE_SUID_CONTRADICTION', $$SELECT unsafemv.apply('errors', 'open', 'e20', s(21), '{}')$$),
    ('UNSAFE_SUID_CONTRADICTION', $$SELECT unsafemv.apply_safe('errors', 'open', s(8), s(21), '{}', 'e20')$$),
    ('UNSAFE_SUID_CONTRADICTION', $$SELECT unsafemv.observe_arrival('errors', 'open', 'other', s(20))$$),
    ('UNSAFE_SAFE_AHEAD', $$SELECT unsafemv.apply('errors', 'open', 'e5', s(5), '{}', record_arrival => false)$$),
    ('UNSAFE_SAFE_AHEAD', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{}', safe_head => s(30))$$),
    ('UNSAFE_BEHIND_FRONTIER', $$SELECT unsafemv.query_composed_page('errors', 'closed')$$ ),
    ('UNSAFE_BEHIND_FRONTIER', $$SELECT unsafemv.composed_page('errors', 'closed', consistency => 'safe')$$),
    ('UNSAFE_BEHIND_FRONTIER', $$SELECT unsafemv.observe_safe_receipt('errors', 'closed', 'late', s(2))$$),
    ('UNSAFE_RECEIPT_MISSING', $$SELECT unsafemv.observe_safe_receipt('errors', 'closed', 'e9', s(9))$$),
    ('UNSAFE_RECEIPT_EXPIRED', $$SELECT unsafemv.apply('errors', 'open', 'e3', s(3), '{}')$$),
    ('UNSAFE_RECEIPT_EXPIRED', $$SELECT unsafemv.observe_arrival('errors', 'open', 'e3', s(3))$$),
    ('MV_VIEW_MISSING', $$SELECT unsafemv.apply('errors', 'nothing', 'e', s(1), '{}')$$),
    ('MV_VIEW_MISSING', $$SELECT unsafemv.query_composed_page('errors', 'nothing')$$),
    ('MV_INSTANCE_EXISTS', $$SELECT unsafemv.create_view('errors', 'open')$$),
    ('MV_INSTANCE_MISSING', $$SELECT unsafemv.read_instance('errors', 'open', 9)$$),
    ('MV_INSTANCE_MISSING', $$SELECT unsafemv.read_active('errors', 'dropping')$$),
    ('MV_INSTANCE_MISSING', $$SELECT unsafemv.query_composed_page('errors', 'dropping')$$),
    ('MV_GENERATION_INVALID', $$SELECT unsafemv.create_view('errors', 'new', generation => -1)$$),
    ('MV_GENERATION_INVALID', $$SELECT unsafemv.apply_safe('errors', 'open', NULL, s(9), '{}', 'e9', 1)$$),
    ('MV_GENERATION_INVALID', $$SELECT unsafemv.apply('errors', 'open', 'e9', s(9), '{}', 1)$$),
    ('MV_DEFINITION_MISMATCH', $$SELECT unsafemv.apply('errors', 'open', 'e9', s(9), '{}', definition_version => 2)$$),
    ('MV_DEFINITION_MISMATCH', $$SELECT unsafemv.apply_safe('errors', 'open', s(8), s(9), '{}', 'e9', definition_version => 2)$$),
    ('MV_CAS_MISMATCH', $$SELECT unsafemv.apply_safe('errors', 'open', s(7), s(9), '{}', 'e9')$$),
    ('MV_ORDER_VIOLATION', $$SELECT unsafemv.apply_safe('errors', 'open', s(8), s(8), '{}', 'e9')$$),
    ('MV_PATCH_ROW_MISSING', $$SELECT unsafemv.apply_safe('errors', 'open', s(8), s(9), '{"rowPatches":[{"kind":"json_patch","rowKey":"j","patch":{}}]}', 'e9')$$),
    ('MV_CHECKPOINT_AHEAD', $$SELECT unsafemv.query_composed_page('errors', 'ahead')$$),
    ('MV_CHECKPOINT_AHEAD', $$SELECT unsafemv.read_rows('errors', 'ahead', consistency => 'safe')$$),
    ('MV_ORDERING_QUARANTINED', $$SELECT unsafemv.query_composed_page('errors', 'quarantined', consistency => 'safe')$$),
    ('MV_PROMOTION_BUSY', $$SELECT unsafemv.drop_view('errors', 'busy')$$),
    ('MV_SAFE_LANE_IN_USE', $$SELECT unsafemv.observe_safe_receipt('errors', 'open', 'e20', s(20))$$),
    ('MV_VALUE_INVALID', $$SELECT unsafemv.query_composed_page('errors', 'open', -1)$$),
    ('MV_VALUE_INVALID', $$SELECT unsafemv.apply('errors', NULL, 'e', s(1), '{}')$$),
    ('MV_VALUE_INVALID', $$SELECT unsafemv.jsonb_apply_patch(NULL, '{}', '{}')$$),
    ('MV_PLAN_INVALID', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"rowUpsert":[]}')$$),
    ('MV_PLAN_INVALID', $$SELECT unsafemv.jsonb_apply_patch('add', '{}', '{"a":""}')$$),
    ('MV_ROW_KEY_REQUIRED', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"rowDeletes":[""]}')$$),
    ('MV_ROW_VERSION_INVALID', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":0.5}]}')$$),
    ('MV_PATCH_OBJECT_REQUIRED', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":[]}]}')$$),
    ('MV_PATCH_OBJECT_REQUIRED', $$SELECT unsafemv.jsonb_apply_patch('add', '{}', '1')$$),
    ('MV_PATCH_KIND_INVALID', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"rowPatches":[{"kind":"","rowKey":"k","patch":{}}]}')$$),
    ('MV_PATCH_KIND_INVALID', $$SELECT unsafemv.jsonb_apply_patch('sub', '{}', '{}')$$),
    ('MV_INDEX_DUPLICATE', $$SELECT unsafemv.create_view('errors', 'new', indexes => '[{"id":"a","type":"text","path":"a"},{"id":"a","type":"text","path":"b"}]')$$),
    ('MV_INDEX_UNDECLARED', $$SELECT unsafemv.apply('errors', 'declared', 'e30', s(30), '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"m","valueType":"integer","value":1}]}')$$),
    ('MV_INDEX_UNDECLARED', $$SELECT unsafemv.query_rows('errors', 'declared', 'm', 'integer')$$),
    ('MV_INDEX_UNDECLARED', $$SELECT unsafemv.read_index_entries('errors', 'declared', 'm')$$),
    ('MV_INDEX_VALUE_TYPE_MISMATCH', $$SELECT unsafemv.apply('errors', 'declared', 'e30', s(30), '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"n","valueType":"real","value":1}]}')$$),
    ('MV_INDEX_VALUE_TYPE_MISMATCH', $$SELECT unsafemv.query_rows('errors', 'declared', 'n', 'text')$$),
    ('MV_INDEX_VALUE_INVALID', $$SELECT unsafemv.apply('errors', 'declared', 'e30', s(30), '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"n","valueType":"integer","value":"1"}]}')$$),
    ('MV_INDEX_VALUE_INVALID', $$SELECT unsafemv.query_rows('errors', 'declared', 'n', 'integer', '1.5')$$),
    ('MV_INDEX_ROW_KEY_MISMATCH', $$SELECT unsafemv.apply('errors', 'open', 'e30', s(30), '{"indexDeletes":[{"rowKey":"k"}]}')$$),
    ('MV_LIMIT_EXCEEDED', $$SELECT unsafemv.apply('errors', 'open', repeat('e', 1025), s(30), '{}')$$),
    ('SUID_INVALID', $$SELECT '1'::unsafemv.suid$$),
    ('SUID_INVALID', $$SELECT unsafemv.apply('errors', 'open', 'e30', '1'::text, '{}')$$),
    ('SUID_TICKS_INVALID', $$SELECT '315537897600000000000000000000'::unsafemv.suid$$),
    ('SUID_SUFFIX_INVALID', $$SELECT unsafemv.suid_from_timestamp('2026-01-01', 100000000000)$$),
    ('SUID_SUFFIX_INVALID', $$SELECT unsafemv.suid_from_timestamp('2026-01-01', -1)$$);
SELECT outcome FROM unsafemv.apply('errors', 'closed', 'late', s(2), '{}');

-- what functions raise that came, or will come, later: provoked as soon as they are there
CREATE TABLE later (n serial, code text, function text, statement text);
INSERT INTO later (code, function, statement) VALUES
    ('UNSAFE_KICK_LEASE_HELD', 'acquire_kick', $$DO 'BEGIN PERFORM unsafemv.acquire_kick(''errors'', ''open'', ''one'', ''1 hour''); PERFORM unsafemv.acquire_kick(''errors'', ''open'', ''two'', ''1 hour''); END'$$),
    ('UNSAFE_KICK_LEASE_LOST', 'renew_kick', $$SELECT unsafemv.renew_kick('errors', 'open', 'one', 1, '1 hour')$$),
    ('UNSAFE_GC_GUARD_FAILED', 'garbage_collect', $$SELECT unsafemv.garbage_collect('errors', 'open', 0, 1, 'k', 1, s(20), s(20), strict => true)$$),
    ('MV_PROMOTION_CAS_MISMATCH', 'promote_generation', $$SELECT unsafemv.promote_generation('errors', 'open', 2, 99)$$),
    ('MV_PROMOTION_CAS_MISMATCH', 'promote_generation', $$SELECT unsafemv.promote_generation('errors', 'open', 1, 0)$$),
    ('MV_PROMOTION_BEHIND', 'promote_generation', $$SELECT unsafemv.promote_generation('errors', 'open', 2, 0)$$),
    ('MV_REBUILD_NOT_VERIFIED', 'mark_generation_rebuilt', $$SELECT unsafemv.mark_generation_rebuilt('errors', 'open', 2, 5, s(9), sha256(''))$$),
    -- by procedures that commit, which cannot be called from here
    ('MV_REBUILD_RUNNING', 'rebuild', NULL),
    ('MV_PROJECTION_MISSING', 'alter_view', $$SELECT unsafemv.alter_view('errors', 'open', window_floor => '1 s')$$),
    ('MV_PLAN_FUNCTION_FAILED', 'follow', NULL);
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status) SELECT service_id, view_no, 2, 1, 'candidate' FROM unsafemv.views WHERE service_id = 'errors' AND view_id = 'open';
CREATE TEMP VIEW here AS SELECT l.* FROM later l WHERE EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'unsafemv'::regnamespace AND p.proname = l.function);

-- what is provoked is what was meant, with the table's SQLSTATE, and writes nothing
CREATE TEMP VIEW present AS SELECT n, code, statement FROM provocations UNION ALL SELECT 1000 + n, code, statement FROM here WHERE statement IS NOT NULL;
SELECT n, code, refused(statement) AS provoked, statement FROM present WHERE refused(statement) <> code ORDER BY n;
CREATE TABLE provoked (n int, code text, sqlstate text, message text, detail text, hint text);
DO $$
DECLARE
    p record;
    e provoked;
BEGIN
    FOR p IN SELECT * FROM present ORDER BY n LOOP
        BEGIN
            EXECUTE p.statement;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS e.code = CONSTRAINT_NAME, e.sqlstate = RETURNED_SQLSTATE, e.message = MESSAGE_TEXT, e.detail = PG_EXCEPTION_DETAIL, e.hint = PG_EXCEPTION_HINT;
            e.n := p.n;
            INSERT INTO provoked SELECT e.*;
        END;
    END LOOP;
END $$;
SELECT p.n, p.code, p.sqlstate FROM provoked p WHERE NOT EXISTS (SELECT FROM unsafemv.errors e WHERE (e.code, e.sqlstate) = (p.code, p.sqlstate)) ORDER BY n;

DELETE FROM later WHERE code IN (SELECT code FROM provoked);
-- those of procedures that commit; tests follow, deliver and rebuild provoke them
SELECT code, function FROM here ORDER BY 1;
-- in the catalogue and not provoked, nor to come; provoked, and not to come any more; to come, and not in the catalogue
SELECT code AS not_provoked FROM unsafemv.errors WHERE code <> 'UNSAFE_DUPLICATE_RACE' AND code NOT IN (SELECT code FROM provoked) AND code NOT IN (SELECT code FROM later) ORDER BY 1;
SELECT code AS here_already FROM later WHERE code IN (SELECT code FROM provoked) ORDER BY 1;
SELECT code AS unknown FROM later WHERE code NOT IN (SELECT code FROM unsafemv.errors) ORDER BY 1;

-- style: no capital first (but for SUID and JSON), no full stop; details and hints are sentences
SELECT n, message FROM provoked WHERE message !~ '^([a-z]|SUID|JSON|\$)' OR message ~ '[.!]$' OR message ~ '\n' ORDER BY n;
SELECT n, detail, hint FROM provoked WHERE (detail <> '' AND detail !~ '\.$') OR (hint <> '' AND hint !~ '\.$') ORDER BY n;
-- the detail names service and view where a view is at stake, and what the caller does next is said
SELECT n, code, detail FROM provoked WHERE code ~ '^UNSAFE|^MV_(VIEW|INSTANCE|GENERATION|DEFINITION|CAS|ORDER|PATCH_ROW|CHECKPOINT|PROMOTION|SAFE)' AND NOT (detail ~ '"errors"' AND detail ~ '"(open|closed|declared|ahead|quarantined|busy|dropping|nothing|new)"') ORDER BY n;
SELECT n, code FROM provoked WHERE code ~ '^UNSAFE|^MV_(VIEW|CAS|ORDER|PATCH_ROW|CHECKPOINT|PROMOTION|SAFE)' AND hint = '' ORDER BY n;
-- who is in the way of a drop is named
SELECT detail ~ 'unsafemv errors' AS prepared_transaction_named FROM provoked WHERE code = 'MV_PROMOTION_BUSY';

-- each as a client sees it
\set VERBOSITY sqlstate
SELECT statement FROM provocations ORDER BY n \gexec
\set VERBOSITY default

ROLLBACK PREPARED 'unsafemv errors';
RESET unsafemv.promotion_timeout;
SELECT unsafemv.drop_view('errors', 'busy');
-- closed reads: every function refuses, and the SQL view of it; others go on
SELECT refused($$SELECT unsafemv.query_rows('errors', 'closed', 'i', 'text')$$), refused($$SELECT unsafemv.read_rows('errors', 'closed')$$), refused($$SELECT unsafemv.read_index_entries('errors', 'closed')$$),
    refused($$SELECT unsafemv.composed_page('errors', 'closed')$$), refused($$SELECT * FROM unsafemv.current_rows WHERE service_id = 'errors' AND view_id = 'closed'$$),
    refused($$SELECT * FROM unsafemv.current_rows WHERE service_id = 'errors' AND view_id = 'open'$$);

SELECT * FROM unsafemv.check('errors');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'errors';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA errors_test CASCADE;
