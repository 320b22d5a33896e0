-- The safe lane: ordered folds, what they settle, and what they refuse.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA safe_test;
RESET client_min_messages;
SET search_path = safe_test, unsafemv;

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


-- what a view of service safe shows and holds, each as one line
CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'safe' AND view_id = view $$;
CREATE FUNCTION shown(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s v%s %s', row_key, short(source_suid), row_version, value), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page('safe', view, NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s=%s->%s', index_id, value, row_key), ', ' ORDER BY index_id COLLATE "C", value COLLATE "C", row_key COLLATE "C"), '-')
    FROM unsafemv.read_index_entries('safe', view, NULL, NULL, consistency => entries.consistency)
$$;
CREATE FUNCTION receipts(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', event_id, short(suid::text), outcome, CASE WHEN settled THEN ' settled' END), ', ' ORDER BY suid, event_id), '-')
    FROM unsafemv.receipts WHERE service_id = 'safe' AND view_no = no(view)
$$;
CREATE FUNCTION markers(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s %s', event_id, short(suid::text), row_key, reason), ', ' ORDER BY suid, event_id, row_key), '-')
    FROM unsafemv.markers WHERE service_id = 'safe' AND view_no = no(view)
$$;
-- what a kick would be for: the greatest unsettled SUID
CREATE FUNCTION target(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(short(max(suid)::text), '-') FROM unsafemv.receipts WHERE service_id = 'safe' AND view_no = no(view) AND NOT settled
$$;
CREATE FUNCTION head(view text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(short(safe_contiguous_head), '-') FROM unsafemv.read_meta('safe', view) $$;

-- plans
CREATE FUNCTION up(key text, value jsonb, version bigint = 1) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', value, 'rowVersion', version))) $$;
CREATE FUNCTION patch(key text, patch jsonb, version bigint = 1, "create" boolean = false, kind text = 'json_patch') RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowPatches', jsonb_build_array(jsonb_build_object('kind', kind, 'rowKey', key, 'patch', patch, 'rowVersion', version, 'create', "create"))) $$;
CREATE FUNCTION del(key text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowDeletes', jsonb_build_array(key)) $$;
CREATE FUNCTION entry(key text, index text, value text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', key, 'indexId', index, 'valueType', 'text', 'value', value))) $$;
-- an unsafe apply and a safe step; events are named by their SUID where nothing else is said
CREATE FUNCTION put(view text, n bigint, plan jsonb, event text = NULL, expected bigint = NULL, safe_head bigint = NULL, record boolean = true)
RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END
    FROM unsafemv.apply('safe', view, coalesce(event, 'e' || n), s(n), plan, expected_row_version => expected, safe_head => s(put.safe_head), record_arrival => record)
$$;
CREATE FUNCTION step(view text, n bigint, plan jsonb, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT format('head %s: %s upserts, %s patches, %s deletes', short(last_suid), row_upserts, row_patches, row_deletes)
    FROM unsafemv.apply_safe('safe', view, (SELECT safe_contiguous_head::suid FROM unsafemv.read_meta('safe', view)), s(n), plan, coalesce(event, 'e' || n))
$$;

CREATE FUNCTION instance(view text, generation bigint = 0) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s head %s floor %s rows %s history %s%s', i.generation, i.status, coalesce(short(i.last_suid), '-'), coalesce(short(i.receipt_floor), '-'),
        i.row_count, i.history_count, coalesce(' rebuild required by ' || i.behind_frontier_event_id || '@' || short(i.behind_frontier_suid), CASE WHEN i.rebuild_required THEN ' rebuild required' END))
    FROM unsafemv.read_instance('safe', view, instance.generation) i
$$;
CREATE FUNCTION findings(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s %s@%s', kind, event_id, short(suid::text)), ', ' ORDER BY suid), '-') FROM unsafemv.findings WHERE service_id = 'safe' AND view_no = no(view) AND resolved_at IS NULL
$$;

-- scenario 21: rows, entries and head are visible together
SELECT unsafemv.create_view('safe', 's21');
SELECT step('s21', 1, up('a', '1') || entry('a', 'i', 'one')), step('s21', 2, up('b', '{"x":2}', 7) || entry('b', 'i', 'two'));
SELECT shown('s21', 'safe'), entries('s21', 'safe'), receipts('s21'), instance('s21');
SELECT count(DISTINCT x) AS transactions FROM (SELECT xmin::text FROM unsafemv.rows WHERE service_id = 'safe' AND row_key = 'b' UNION ALL SELECT xmin::text FROM unsafemv.index_entries WHERE service_id = 'safe' AND row_key = 'b'
    UNION ALL SELECT xmin::text FROM unsafemv.generations WHERE service_id = 'safe' UNION ALL SELECT xmin::text FROM unsafemv.receipts WHERE service_id = 'safe' AND event_id = 'e2') AS t (x);
SELECT a.last_suid, row_upserts, row_patches, row_deletes, index_entries FROM unsafemv.apply_safe('safe', 's21', s(2), s(3),
    '{"rowUpserts":[{"rowKey":"c","value":1},{"rowKey":"d","value":1}],"rowPatches":[{"kind":"json_patch","rowKey":"c","patch":{}},{"kind":"json_patch","rowKey":"a","patch":{}},{"kind":"json_patch","rowKey":"d","patch":{}}],
      "rowDeletes":["b"],"indexEntries":[{"rowKey":"c","indexId":"n","valueType":"integer","value":4},{"rowKey":"c","indexId":"r","valueType":"real","value":0.5}]}', 'e3') a;
SELECT shown('s21', 'safe'), entries('s21', 'safe'), instance('s21');

-- scenario 22: a stale expected_last_suid is refused, and nothing changes
-- scenario 23: NULL stands for no head, and for nothing else
SELECT unsafemv.create_view('safe', 's22');
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's22', s(1), s(2), up('k', '1'), 'e2')$$) AS one_for_null;
SELECT step('s22', 1, up('k', '1'));
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's22', s(0), s(2), up('k', '2') || entry('k', 'i', '2'), 'e2')$$) AS stale,
    refused($$SELECT unsafemv.apply_safe('safe', 's22', NULL, s(2), up('k', '2'), 'e2')$$) AS null_for_one,
    refused($$SELECT unsafemv.apply_safe('safe', 's22', s(2), s(3), up('k', '2'), 'e3')$$) AS ahead,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's22', s(2), '[]')$$) AS batch,
    (SELECT retryable FROM unsafemv.errors WHERE code = 'MV_CAS_MISMATCH') AS retryable;
SELECT shown('s22', 'safe'), entries('s22', 'safe'), receipts('s22'), instance('s22');

-- scenario 25: a patch with an entry merges and replaces the entries; the index finds the row
SELECT unsafemv.create_view('safe', 's25');
SELECT step('s25', 1, up('r', '{"status":"reserved","value":"old"}') || entry('r', 'status', 'reserved')),
    step('s25', 2, '{"rowPatches":[{"kind":"json_patch","rowKey":"r","patch":{"status":"cancelled"},"rowVersion":2,"indexEntries":[{"indexId":"status","valueType":"text","value":"cancelled"}]}]}');
SELECT shown('s25', 'safe'), entries('s25', 'safe'), (SELECT row_key FROM unsafemv.query_rows('safe', 's25', 'status', 'text', 'cancelled', consistency => 'safe')) AS found,
    (SELECT count(*) FROM unsafemv.query_rows('safe', 's25', 'status', 'text', 'reserved', consistency => 'safe')) AS stale;

-- scenario 26: without entries the old ones stay; an empty list is none
SELECT step('s25', 3, patch('r', '{"note":1}')), step('s25', 4, '{"rowPatches":[{"kind":"json_patch","rowKey":"r","patch":{"note":null},"indexEntries":[]}]}');
SELECT shown('s25', 'safe'), entries('s25', 'safe');

-- scenario 27: a patch of a missing row stops the step, and the batch as a whole
SELECT refused($$SELECT step('s25', 5, patch('missing', '{}'))$$) AS patch,
    refused($$SELECT step('s25', 5, up('x', '1') || patch('missing', '{}') || entry('x', 'i', '1'))$$) AS among_others,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's25', s(4), jsonb_build_array(jsonb_build_object('eventId', 'e5', 'suid', s(5)::text, 'mutations', up('x', '1')),
        jsonb_build_object('eventId', 'e6', 'suid', s(6)::text, 'mutations', del('r')), jsonb_build_object('eventId', 'e7', 'suid', s(7)::text, 'mutations', patch('r', '{}'))))$$) AS batch;
SELECT step('s25', 5, patch('made', '{"a":{"b":null}}', "create" => true));
SELECT shown('s25', 'safe'), instance('s25');

-- scenario 28: a stale checkpoint comes before a missing row
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's25', s(4), s(6), patch('r', '{}'), 'e6')$$) AS patch, refused($$SELECT unsafemv.apply_safe('safe', 's25', s(4), s(6), patch('missing', '{}'), 'e6')$$) AS missing;

-- scenario 29: an upsert replaces all entries of the key
SELECT unsafemv.create_view('safe', 's29');
SELECT step('s29', 1, '{"rowUpserts":[{"rowKey":"k","value":1},{"rowKey":"j","value":1}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"1"},{"rowKey":"k","indexId":"a","valueType":"text","value":"2"},{"rowKey":"k","indexId":"b","valueType":"text","value":"1"},{"rowKey":"j","indexId":"a","valueType":"text","value":"1"}]}'),
    step('s29', 2, up('k', '2') || entry('k', 'a', '2'));
SELECT entries('s29', 'safe');
SELECT step('s29', 3, up('k', '3'));
SELECT entries('s29', 'safe');

-- scenario 30: delete and upsert of one key leave the upsert; a delete of an absent row is fine
SELECT step('s29', 4, up('k', '{"a":4}') || del('k') || entry('k', 'a', '4')), step('s29', 5, del('nothing')), step('s29', 6, del('j'));
SELECT shown('s29', 'safe'), entries('s29', 'safe'), instance('s29');
-- the same plan in the unsafe lane, where it never counts as a delete without a row
SELECT put('s29', 7, up('new', '7') || del('new')), put('s29', 8, up('k', '8') || del('k'));
SELECT shown('s29'), markers('s29');

-- scenario 31: index deletes of one index and of all come before the plan's entries
SELECT unsafemv.create_view('safe', 's31');
SELECT step('s31', 1, '{"rowUpserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"1"},{"rowKey":"k","indexId":"a","valueType":"integer","value":1},{"rowKey":"k","indexId":"b","valueType":"text","value":"1"}]}'),
    step('s31', 2, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{}}],"indexDeletes":[{"rowKey":"k","indexId":"a"}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"2"}]}');
SELECT entries('s31', 'safe');
SELECT step('s31', 3, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{}}],"indexDeletes":[{"rowKey":"k"}],"indexEntries":[{"rowKey":"k","indexId":"c","valueType":"text","value":"3"}]}');
SELECT entries('s31', 'safe');

-- scenario 32: upsert and patch of one new key in one plan give the patched upsert, in both lanes
SELECT unsafemv.create_view('safe', 's32');
SELECT put('s32', 1, patch('k', '{"b":2}', 3) || up('k', '{"a":1,"b":1}', 2)), shown('s32'), step('s32', 1, patch('k', '{"b":2}', 3) || up('k', '{"a":1,"b":1}', 2));
SELECT shown('s32', 'safe'), shown('s32'), receipts('s32'), (SELECT count(*) FROM unsafemv.unsafe_rows WHERE service_id = 'safe' AND view_no = no('s32')) AS tentative;

-- scenario 33: the same entry twice in a plan is one
SELECT unsafemv.create_view('safe', 's33');
CREATE FUNCTION same_twice() RETURNS jsonb LANGUAGE sql AS $$ SELECT up('k', '1') || jsonb_build_object('indexEntries', (SELECT jsonb_agg(x) FROM (SELECT entry('k', 'i', 'x') #> '{indexEntries,0}' FROM generate_series(1, 2)) AS t (x))) $$;
SELECT put('s33', 1, same_twice()), entries('s33'), step('s33', 1, same_twice()), entries('s33', 'safe');

-- scenario 35: SUIDs strictly increase from the head
SELECT unsafemv.create_view('safe', 's35');
SELECT step('s35', 5, up('k', '5'));
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's35', s(5), s(5), '{}', 'other')$$) AS equal,
    refused($$SELECT unsafemv.apply_safe('safe', 's35', s(5), s(5), up('k', '5'), 'e5')$$) AS again,
    refused($$SELECT unsafemv.apply_safe('safe', 's35', s(5), s(4), up('k', '4'), 'e4')$$) AS below,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's35', s(5), '[{"eventId":"e7","suid":"000000000000000000000000000007","mutations":{}},{"eventId":"e6","suid":"000000000000000000000000000006","mutations":{}}]')$$) AS backwards,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's35', s(5), '[{"eventId":"e7","suid":"000000000000000000000000000007","mutations":{}},{"eventId":"e8","suid":"000000000000000000000000000007","mutations":{}}]')$$) AS twice;
-- and an event has one SUID
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's35', s(5), s(6), '{}', 'e5')$$) AS known,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's35', s(5), '[{"eventId":"e7","suid":"000000000000000000000000000007","mutations":{}},{"eventId":"e7","suid":"000000000000000000000000000008","mutations":{}}]')$$) AS in_batch;
SELECT put('s35', 9, up('k', '9'));
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's35', s(5), s(8), '{}', 'e9')$$) AS unsettled;
SELECT instance('s35'), shown('s35'), receipts('s35');

-- scenario 36: generations that are not written any more, and other definitions
SELECT unsafemv.create_view('safe', 's36', definition_version => 2);
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status)
SELECT 'safe', no('s36'), g, 3, status FROM (VALUES (1, 'retired'), (2, 'dropping'), (3, 'candidate')) AS x (g, status);
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's36', NULL, s(1), up('k', '1'), 'e1', generation => 1)$$) AS retired,
    refused($$SELECT unsafemv.apply_safe('safe', 's36', NULL, s(1), up('k', '1'), 'e1', generation => 2)$$) AS dropping,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 's36', NULL, '[]', generation => 1)$$) AS batch,
    refused($$SELECT unsafemv.apply_safe('safe', 's36', NULL, s(1), up('k', '1'), 'e1', definition_version => 3)$$) AS other_definition,
    refused($$SELECT unsafemv.apply_safe('safe', 's36', NULL, s(1), up('k', '1'), 'e1', generation => 3, definition_version => 2)$$) AS of_candidate;
-- a candidate is written by itself
SELECT short(a.last_suid) FROM unsafemv.apply_safe('safe', 's36', NULL, s(4), up('k', '4'), 'e4', 3, 3) a;
SELECT instance('s36'), instance('s36', 3), shown('s36'), (SELECT count(*) FROM unsafemv.rows WHERE service_id = 'safe' AND view_no = no('s36') AND generation = 3) AS in_candidate;

-- scenario 38: a step voids a rebuild proof
UPDATE unsafemv.generations SET rebuilt_source_event_count = 1, rebuilt_source_max_suid = s(4), rebuilt_source_history_digest = history_digest, rebuilt_at = now() WHERE service_id = 'safe' AND view_no = no('s36') AND generation = 3;
SELECT rebuilt_source_event_count, short(rebuilt_source_max_suid), rebuilt_source_history_digest = history_digest AS digest, rebuilt_at IS NOT NULL AS at FROM unsafemv.read_instance('safe', 's36', 3);
SELECT refused($$SELECT unsafemv.apply_safe('safe', 's36', s(3), s(5), '{}', 'e5', 3)$$);
SELECT rebuilt_source_event_count FROM unsafemv.read_instance('safe', 's36', 3);
SELECT short(a.last_suid) FROM unsafemv.apply_safe('safe', 's36', s(4), s(5), '{}', 'e5', 3) a;
SELECT rebuilt_source_event_count, rebuilt_source_max_suid, rebuilt_source_history_digest, rebuilt_at FROM unsafemv.read_instance('safe', 's36', 3);

-- scenario 42: what a cancellation keeps is the same in a rebuilt candidate (promotion apart)
SELECT unsafemv.create_view('safe', 's42', indexes => '[{"id":"room","type":"text","path":"roomId"}]');
CREATE TEMP TABLE bookings AS SELECT jsonb_build_array(
    jsonb_build_object('eventId', 'e1', 'suid', s(1)::text, 'mutations', up('booking', '{"roomId":"101","status":"reserved"}')),
    jsonb_build_object('eventId', 'e2', 'suid', s(2)::text, 'mutations', patch('booking', '{"status":"cancelled"}', 2))) AS events;
SELECT count(*) FROM bookings, unsafemv.apply_batch('safe', 's42', events);
SELECT short(a.last_suid), row_upserts, row_patches FROM bookings, unsafemv.apply_safe_batch('safe', 's42', NULL, events) a;
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status) VALUES ('safe', no('s42'), 1, 1, 'candidate');
SELECT short(a.last_suid), row_upserts, row_patches FROM bookings, unsafemv.apply_safe_batch('safe', 's42', NULL, events, 1) a;
SELECT shown('s42', 'safe'), entries('s42', 'safe');
SELECT count(*) AS generations, count(DISTINCT (row_key, value, row_version, source_suid::text)) AS contents FROM unsafemv.rows WHERE service_id = 'safe' AND view_no = no('s42');
SELECT count(*) AS generations, count(DISTINCT (row_key, index_id, text_value)) AS contents FROM unsafemv.index_entries WHERE service_id = 'safe' AND view_no = no('s42');
SELECT generation, receipts.event_id, settled FROM unsafemv.receipts WHERE service_id = 'safe' AND view_no = no('s42') ORDER BY 1, 2;
SELECT (SELECT history_digest FROM unsafemv.read_instance('safe', 's42', 0)) = (SELECT history_digest FROM unsafemv.read_instance('safe', 's42', 1)) AS same_history;

-- settling: receipts of folded events are settled, their markers go, tentative rows go or are refolded
SELECT unsafemv.create_view('safe', 'settle');
SELECT put('settle', 1, up('k', '{"n":1}')), put('settle', 2, patch('j', '{"j":2}')), put('settle', 4, patch('k', '{"x":4}')), put('settle', 5, up('l', '5'));
SELECT shown('settle'), markers('settle'), receipts('settle');
SELECT step('settle', 1, up('k', '{"n":10,"other":true}'));
-- what the safe lane folded differs from what was delivered: the patch above it works on that
SELECT shown('settle'), shown('settle', 'safe') AS safe, receipts('settle');
SELECT step('settle', 2, patch('j', '{"j":2}', "create" => true)), step('settle', 4, patch('k', '{"x":4}')), step('settle', 5, up('l', '5')), step('settle', 6, up('m', '6'));
SELECT shown('settle') = shown('settle', 'safe') AS converged, shown('settle'), markers('settle'), receipts('settle'), (SELECT count(*) FROM unsafemv.unsafe_rows WHERE service_id = 'safe' AND view_no = no('settle')) AS tentative;

-- passed over: an unsettled event at or below the new head closes the view for good, the smallest is named
SELECT unsafemv.create_view('safe', 'passed');
SELECT put('passed', 3, up('k', '3')), put('passed', 2, up('j', '2')), put('passed', 1, '{}'), step('passed', 4, up('l', '4'));
SELECT instance('passed'), findings('passed'), receipts('passed'), markers('passed');
SELECT refused($$SELECT shown('passed')$$) AS composed, refused($$SELECT shown('passed', 'safe')$$) AS safe;
SELECT step('passed', 5, up('l', '5'));
SELECT instance('passed'), findings('passed');
-- no change is passed over without harm, also by a step without events
SELECT unsafemv.create_view('safe', 'harmless');
SELECT step('harmless', 5, '{}', 'e5'), put('harmless', 7, '{}'), step('harmless', 8, '{}', 'e8');
SELECT instance('harmless'), findings('harmless'), receipts('harmless'), markers('harmless');
INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at) VALUES ('safe', no('harmless'), 0, 'e6', s(6), 'no-change', false, now());
SELECT short(a.last_suid), row_upserts, row_patches, row_deletes, index_entries FROM unsafemv.apply_safe_batch('safe', 'harmless', s(8), '[]') a;
SELECT instance('harmless'), receipts('harmless');
SELECT put('harmless', 4, up('k', '4')), refused($$SELECT shown('harmless')$$);
SELECT short(a.last_suid) FROM unsafemv.apply_safe_batch('safe', 'harmless', s(8), '[]') a;
SELECT instance('harmless'), findings('harmless');
SELECT unsafemv.create_view('safe', 'empty');
SELECT a.last_suid IS NULL AS still_null, row_upserts FROM unsafemv.apply_safe_batch('safe', 'empty', NULL, '[]') a;

-- arrivedAt: an event that arrived longer ago than the retention gets no receipt, the floor rises instead
SELECT unsafemv.create_view('safe', 'floor', receipt_retention => '1 hour');
CREATE FUNCTION old_event(n bigint, age interval, plan jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', plan, 'arrivedAt', clock_timestamp() - age)
$$;
SELECT put('floor', 1, up('k', '1'));
SELECT short(a.last_suid), row_upserts FROM unsafemv.apply_safe_batch('safe', 'floor', NULL, jsonb_build_array(old_event(1, '2 hours', up('k', '1')), old_event(2, '2 hours', up('j', '2')), old_event(3, '1 minute', up('l', '3')))) a;
SELECT instance('floor'), receipts('floor'), shown('floor');
SELECT put('floor', 1, up('k', '1')) AS known, refused($$SELECT put('floor', 2, up('j', '2'))$$) AS collected, put('floor', 3, up('l', '3')) AS receipted, shown('floor');
-- a recent event below an old one keeps its receipt
SELECT short(a.last_suid) FROM unsafemv.apply_safe_batch('safe', 'floor', s(3), jsonb_build_array(old_event(4, '0', up('m', '4')), old_event(5, '1 day', up('n', '5')))) a;
SELECT instance('floor'), receipts('floor');
SELECT put('floor', 4, '{}') AS known, refused($$SELECT put('floor', 5, '{}')$$) AS collected;
SELECT observed_at < clock_timestamp() - interval '50 seconds' AS as_arrived FROM unsafemv.receipts WHERE service_id = 'safe' AND view_no = no('floor') AND event_id = 'e3';
-- apply_safe says nothing of an arrival: its event has just arrived
SELECT step('floor', 6, '{}'), put('floor', 6, '{}');
-- a contradiction is found without a receipt to be written, too
SELECT put('floor', 9, up('k', '9'));
SELECT refused($$SELECT unsafemv.apply_safe_batch('safe', 'floor', s(6), jsonb_build_array(old_event(9, '2 hours', '{}') || '{"suid":"000000000000000000000000000008"}'))$$) AS contradiction,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 'floor', s(6), jsonb_build_array(old_event(9, '2 hours', '{}') || '{"arrivedAt":7}'))$$) AS not_a_time,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 'floor', s(6), jsonb_build_array(old_event(9, '2 hours', '{}') || '{"arrivedAt":"soon"}'))$$) AS no_timestamp,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 'floor', s(6), jsonb_build_array(old_event(9, '2 hours', '{}') || '{"arrivedAt":"infinity"}'))$$) AS infinite,
    refused($$SELECT unsafemv.apply_safe_batch('safe', 'floor', s(6), jsonb_build_array(old_event(9, '2 hours', '{}') || '{"expectedRowVersion":1}'))$$) AS unknown_member;

-- a candidate settles what the active generation has receipts of, however long ago it arrived
SELECT unsafemv.create_view('safe', 'candidate', receipt_retention => '1 hour');
SELECT put('candidate', 1, up('k', '1'));
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status) VALUES ('safe', no('candidate'), 1, 1, 'candidate');
SELECT short(a.last_suid) FROM unsafemv.apply_safe_batch('safe', 'candidate', NULL, jsonb_build_array(old_event(1, '2 hours', up('k', '1')), old_event(2, '2 hours', up('j', '2'))), 1) a;
SELECT generation, string_agg(event_id || CASE WHEN settled THEN ' settled' ELSE '' END, ', ' ORDER BY suid) AS receipts FROM unsafemv.receipts WHERE service_id = 'safe' AND view_no = no('candidate') GROUP BY 1 ORDER BY 1;
SELECT instance('candidate'), instance('candidate', 1);

-- the history digest is a SHA-256 chain over SUIDs and event ids
CREATE FUNCTION chain(variadic events text[]) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    digest bytea;
    event text;
BEGIN
    FOREACH event IN ARRAY events LOOP
        digest := sha256(coalesce(digest, '') || convert_to(s(split_part(event, '@', 2)::bigint)::text || split_part(event, '@', 1), 'UTF8'));
    END LOOP;
    RETURN digest;
END $$;
SELECT unsafemv.history_digest(NULL, 'e1', s(1)) = chain('e1@1') AS first,
    unsafemv.history_digest(unsafemv.history_digest(NULL, 'e1', s(1)), U&'\00e92', s(2)) = chain('e1@1', U&'\00e92@2') AS second;
SELECT history_digest = chain('e1@1', 'e2@2', 'e3@3') AS single_steps, history_count FROM unsafemv.read_active('safe', 's21');
SELECT history_digest = chain('e1@1', 'e2@2', 'e3@3', 'e4@4', 'e5@5', 'e6@6') AS batches, history_count FROM unsafemv.read_active('safe', 'floor');
SELECT history_digest = chain('e5@5', 'e8@8') AS without_empty_steps, history_count FROM unsafemv.read_active('safe', 'harmless');
SELECT refused($$SELECT unsafemv.history_digest('\x00', 'e1', s(1))$$), refused($$SELECT unsafemv.history_digest(NULL, NULL, s(1))$$), refused($$SELECT unsafemv.history_digest(NULL, 'e1', NULL)$$);

-- one batch and single steps give the same rows, entries, receipts, counts and history
SELECT setseed(0.7);
SELECT unsafemv.create_view('safe', name, indexes => '[{"id":"n","type":"integer","path":"n"}]') FROM unnest(ARRAY['one', 'all']) AS name;
CREATE TEMP TABLE stream AS SELECT i, CASE (random() * 5)::int WHEN 0 THEN del('k' || (random() * 9)::int) WHEN 1 THEN '{}'
    WHEN 2 THEN up('k' || (random() * 9)::int, jsonb_build_object('n', (random() * 9)::int), (random() * 9)::int)
    WHEN 3 THEN patch('k' || (random() * 9)::int, '{"n":1}', (random() * 9)::int, true, 'add')
    ELSE patch('k' || (random() * 9)::int, jsonb_build_object('m' || (random() * 3)::int, i), 1, true) || up('x' || (random() * 9)::int, 'true') END AS plan
FROM generate_series(1, 400) i;
SELECT count(step('one', i, plan)) FROM (SELECT * FROM stream ORDER BY i) x;
SELECT sum(a.row_upserts + a.row_patches + a.row_deletes) = (SELECT sum(coalesce(jsonb_array_length(plan -> 'rowUpserts'), 0) + coalesce(jsonb_array_length(plan -> 'rowPatches'), 0) + coalesce(jsonb_array_length(plan -> 'rowDeletes'), 0)) FROM stream) AS counted
FROM (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || i, 'suid', s(i)::text, 'mutations', plan) ORDER BY i) AS events FROM stream) e, LATERAL unsafemv.apply_safe_batch('safe', 'all', NULL, e.events) a;
SELECT shown('one', 'safe') = shown('all', 'safe') AS rows, entries('one', 'safe') = entries('all', 'safe') AS entries, receipts('one') = receipts('all') AS receipts, instance('one') = instance('all') AS instance,
    (SELECT history_digest FROM unsafemv.read_active('safe', 'one')) = (SELECT history_digest FROM unsafemv.read_active('safe', 'all')) AS history, length(shown('one')) > 100 AS something;

SELECT * FROM unsafemv.check('safe');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'safe';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA safe_test CASCADE;
