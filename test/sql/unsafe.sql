-- The unsafe lane: outcomes, their effects, and what readers see at once.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA unsafe_test;
RESET client_min_messages;
SET search_path = unsafe_test, unsafemv;

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


-- what a view of service unsafe shows and holds, each as one line
CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'unsafe' AND view_id = view $$;
CREATE FUNCTION shown(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s v%s %s', row_key, short(source_suid), row_version, value), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page('unsafe', view, NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s=%s->%s', index_id, value, row_key), ', ' ORDER BY index_id COLLATE "C", value COLLATE "C", row_key COLLATE "C"), '-')
    FROM unsafemv.read_index_entries('unsafe', view, NULL, NULL, consistency => entries.consistency)
$$;
CREATE FUNCTION receipts(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', event_id, short(suid::text), outcome, CASE WHEN settled THEN ' settled' END), ', ' ORDER BY suid, event_id), '-')
    FROM unsafemv.receipts WHERE service_id = 'unsafe' AND view_no = no(view)
$$;
CREATE FUNCTION markers(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s %s', event_id, short(suid::text), row_key, reason), ', ' ORDER BY suid, event_id, row_key), '-')
    FROM unsafemv.markers WHERE service_id = 'unsafe' AND view_no = no(view)
$$;
-- what a kick would be for: the greatest unsettled SUID
CREATE FUNCTION target(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(short(max(suid)::text), '-') FROM unsafemv.receipts WHERE service_id = 'unsafe' AND view_no = no(view) AND NOT settled
$$;
CREATE FUNCTION head(view text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(short(safe_contiguous_head), '-') FROM unsafemv.read_meta('unsafe', view) $$;

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
    FROM unsafemv.apply('unsafe', view, coalesce(event, 'e' || n), s(n), plan, expected_row_version => expected, safe_head => s(put.safe_head), record_arrival => record)
$$;
CREATE FUNCTION step(view text, n bigint, plan jsonb, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT format('head %s: %s upserts, %s patches, %s deletes', short(last_suid), row_upserts, row_patches, row_deletes)
    FROM unsafemv.apply_safe('unsafe', view, (SELECT safe_contiguous_head::suid FROM unsafemv.read_meta('unsafe', view)), s(n), plan, coalesce(event, 'e' || n))
$$;

-- views c... have base composed, views u... base unsafe
CREATE FUNCTION views(variadic names text[]) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(unsafemv.create_view('unsafe', name, base => CASE WHEN name LIKE 'u%' THEN 'unsafe' ELSE 'composed' END)) FROM unnest(names) AS name
$$;

-- scenario 43: a fresh upsert is applied: row, entry and receipt in one commit, and the view has work up to it
SELECT views('c43', 'u43');
SELECT v, put(v, 5, up('k', '{"a":1}') || entry('k', 'i', 'x')) FROM unnest(ARRAY['c43', 'u43']) v;
SELECT v, shown(v), entries(v), receipts(v), markers(v), target(v) FROM unnest(ARRAY['c43', 'u43']) v;
SELECT v, (SELECT xmin FROM unsafemv.unsafe_rows WHERE service_id = 'unsafe' AND view_no = no(v))
    = (SELECT xmin FROM unsafemv.receipts WHERE service_id = 'unsafe' AND view_no = no(v)) AS one_commit FROM unnest(ARRAY['c43', 'u43']) v;

-- scenario 44: the same event again is a duplicate; so is the same event with another plan
SELECT v, put(v, 5, up('k', '{"a":1}') || entry('k', 'i', 'x')), put(v, 5, up('k', '{"a":2}')), put(v, 5, del('k'), expected => 77) FROM unnest(ARRAY['c43', 'u43']) v;
SELECT v, shown(v), entries(v), receipts(v), markers(v), (SELECT total_count FROM unsafemv.query_composed_page('unsafe', v)) AS total FROM unnest(ARRAY['c43', 'u43']) v;

-- scenario 45: an older upsert changes nothing but is received
SELECT views('c45', 'u45');
SELECT v, put(v, 9, up('k', '{"a":9}', 2)), put(v, 1, up('k', '{"a":1}')) FROM unnest(ARRAY['c45', 'u45']) v;
SELECT v, shown(v), receipts(v), markers(v), target(v) FROM unnest(ARRAY['c45', 'u45']) v;

-- scenario 46: a patch of an unknown key leaves nothing to see; a create that is older and comes later shows the patched row
SELECT views('c46', 'u46');
SELECT v, put(v, 5, patch('k', '{"b":5}', 6)) FROM unnest(ARRAY['c46', 'u46']) v;
SELECT v, shown(v), receipts(v), markers(v) FROM unnest(ARRAY['c46', 'u46']) v;
SELECT put('c46', 3, up('k', '{"a":3,"b":3}', 4));
SELECT shown('c46'), receipts('c46'), markers('c46');
-- base unsafe remembers no patch
SELECT put('u46', 3, up('k', '{"a":3,"b":3}', 4));
SELECT shown('u46'), receipts('u46'), markers('u46');
-- with create there is nothing to miss
SELECT v, put(v, 6, patch('new', '{"a":{"b":null}}', "create" => true)) FROM unnest(ARRAY['c46', 'u46']) v;
SELECT v, shown(v) FROM unnest(ARRAY['c46', 'u46']) v;

-- scenario 47: a delete of an unknown key is remembered; a plan without row mutation is no change
SELECT views('c47', 'u47');
SELECT v, put(v, 5, del('k')) FROM unnest(ARRAY['c47', 'u47']) v;
SELECT v, shown(v), receipts(v), markers(v) FROM unnest(ARRAY['c47', 'u47']) v;
SELECT v, put(v, 3, up('k', '{"a":3}')) FROM unnest(ARRAY['c47', 'u47']) v;
SELECT v, shown(v), receipts(v), markers(v) FROM unnest(ARRAY['c47', 'u47']) v;
SELECT v, put(v, 7, '{}'), put(v, 8, '{"rowUpserts":[],"rowDeletes":[],"indexEntries":[]}') FROM unnest(ARRAY['c47', 'u47']) v;
SELECT v, shown(v), receipts(v), markers(v), target(v) FROM unnest(ARRAY['c47', 'u47']) v;

-- scenario 48: row CAS, judged on the visible row, even of an event that is older; nothing is written
SELECT views('c48', 'u48');
SELECT v, put(v, 4, up('k', '{"a":4}', 1)) FROM unnest(ARRAY['c48', 'u48']) v;
SELECT v, refused(format('SELECT put(%L, 5, up(''k'', ''{}''), expected => 99)', v)) AS newer,
    refused(format('SELECT put(%L, 3, up(''k'', ''{}''), expected => 99)', v)) AS older,
    refused(format('SELECT put(%L, 5, up(''new'', ''{}'') || del(''k''), expected => 99)', v)) AS one_of_two,
    refused(format('SELECT put(%L, 5, patch(''k'', ''{}''), expected => 0)', v)) AS patch,
    refused(format('SELECT put(%L, 5, up(''k'', ''{}''), expected => -1)', v)) AS negative,
    (SELECT retryable FROM unsafemv.errors WHERE code = 'UNSAFE_ROW_CAS_MISMATCH') AS retryable
FROM unnest(ARRAY['c48', 'u48']) v;
SELECT v, shown(v), receipts(v), markers(v), (SELECT count(*) FROM unsafemv.unsafe_rows WHERE service_id = 'unsafe' AND view_no = no(v)) AS tentative FROM unnest(ARRAY['c48', 'u48']) v;
SELECT v, put(v, 5, up('k', '{"a":5}', 2), expected => 1), put(v, 6, '{}', expected => 3) FROM unnest(ARRAY['c48', 'u48']) v;
-- a safe row is a base row only under base composed
SELECT v, step(v, 4, up('k', '{"a":4}', 1)), step(v, 5, up('k', '{"a":5}', 2)), step(v, 6, '{}') FROM unnest(ARRAY['c48', 'u48']) v;
SELECT refused($$SELECT put('c48', 7, up('k', '{}'), expected => 1)$$) AS composed, put('u48', 7, up('k', '{"a":7}'), expected => 1) AS unsafe;
SELECT put('c48', 7, up('k', '{"a":7}'), expected => 2);

-- scenario 49: absent rows pass, hidden ones too
SELECT views('c49', 'u49');
SELECT v, put(v, 1, up('k', '{}'), expected => 7), put(v, 2, del('k'), expected => 1), put(v, 3, up('k', '{"a":3}'), expected => 7) FROM unnest(ARRAY['c49', 'u49']) v;
SELECT v, shown(v) FROM unnest(ARRAY['c49', 'u49']) v;

-- scenario 50: an event at the head that no receipt knows is refused, or recorded as late, which closes the reads
SELECT views('c50', 'u50');
SELECT v, step(v, 5, up('k', '{"a":5}'), 'known') FROM unnest(ARRAY['c50', 'u50']) v;
SELECT v, refused(format('SELECT put(%L, 5, up(''k'', ''{"a":0}''), record => false)', v)) AS refused, shown(v), receipts(v) FROM unnest(ARRAY['c50', 'u50']) v;
SELECT v, put(v, 5, up('k', '{"a":0}')) FROM unnest(ARRAY['c50', 'u50']) v;
SELECT v, receipts(v), markers(v), refused(format('SELECT shown(%L)', v)) AS composed, refused(format('SELECT shown(%L, ''safe'')', v)) AS safe FROM unnest(ARRAY['c50', 'u50']) v;
SELECT v, put(v, 5, up('k', '{"a":0}')), put(v, 5, up('k', '{"a":0}'), record => false), put(v, 6, up('k', '{"a":6}')) FROM unnest(ARRAY['c50', 'u50']) v;
SELECT v, receipts(v), (SELECT rebuild_required FROM unsafemv.read_meta('unsafe', v)) AS closed, (SELECT rebuild_required FROM unsafemv.read_active('unsafe', v)) AS for_good FROM unnest(ARRAY['c50', 'u50']) v;

-- scenario 51: two events with one SUID contradict each other, whether or not they say the same
SELECT views('c51', 'u51');
SELECT v, put(v, 5, up('k', '"A"')) FROM unnest(ARRAY['c51', 'u51']) v;
SELECT v, refused(format('SELECT put(%L, 5, up(''k'', ''"B"''), ''other'')', v)) AS another, refused(format('SELECT put(%L, 5, up(''k'', ''"A"''), ''other'')', v)) AS the_same,
    refused(format('SELECT put(%L, 5, ''{}'', ''other'')', v)) AS nothing, refused(format('SELECT put(%L, 5, up(''j'', ''1''), ''other'', expected => 9)', v)) AS elsewhere
FROM unnest(ARRAY['c51', 'u51']) v;
SELECT v, shown(v), receipts(v) FROM unnest(ARRAY['c51', 'u51']) v;

-- scenario 52: so does one event with two SUIDs
SELECT v, refused(format('SELECT put(%L, 6, up(''k'', ''"A"''), ''e5'')', v)) AS upsert, refused(format('SELECT put(%L, 6, ''{}'', ''e5'')', v)) AS nothing,
    refused(format('SELECT put(%L, 4, patch(''k'', ''{}'') || del(''j''), ''e5'')', v)) AS others FROM unnest(ARRAY['c51', 'u51']) v;
-- contradiction comes before late, and late before row CAS
SELECT v, step(v, 5, up('k', '"A"'), 'e5'), refused(format('SELECT put(%L, 4, ''{}'', ''e5'')', v)) AS contradiction,
    refused(format('SELECT put(%L, 3, up(''k'', ''1''), expected => 99, record => false)', v)) AS late, put(v, 2, up('k', '1'), expected => 99) AS recorded
FROM unnest(ARRAY['c51', 'u51']) v;
SELECT v, receipts(v) FROM unnest(ARRAY['c51', 'u51']) v;

-- scenario 55: a plan of two keys, one of which is newer already
SELECT views('c55', 'u55');
SELECT v, put(v, 9, up('k', '"nine"')), put(v, 6, up('k', '"six"') || jsonb_build_object('rowPatches', '[]'::jsonb)) FROM unnest(ARRAY['c55', 'u55']) v;
SELECT v, put(v, 7, '{"rowUpserts":[{"rowKey":"k","value":"seven"},{"rowKey":"j","value":"seven"}]}') FROM unnest(ARRAY['c55', 'u55']) v;
SELECT v, shown(v), markers(v) FROM unnest(ARRAY['c55', 'u55']) v;
-- every operation takes its place whatever the plan's outcome, but with base unsafe only an applied plan changes rows
SELECT v, put(v, 10, patch('absent', '{"a":1}') || up('x', '"ten"')), put(v, 11, del('gone') || up('y', '"eleven"')), put(v, 12, patch('absent', '{"b":1}') || del('gone2')) FROM unnest(ARRAY['c55', 'u55']) v;
SELECT v, shown(v), receipts(v) FROM unnest(ARRAY['c55', 'u55']) v;
SELECT v, markers(v) FROM unnest(ARRAY['c55', 'u55']) v;
-- a superseded operation counts for no other outcome
SELECT put('c55', 8, patch('k', '{}') || del('absent2')), put('c55', 5, del('k') || up('z', '"five"'));
SELECT shown('c55'), receipts('c55');

-- scenario 56: an event both older and late is late
SELECT views('c56', 'u56');
SELECT v, put(v, 9, up('k', '"nine"')), step(v, 5, '{}', 'e5'), put(v, 4, up('k', '"four"')) FROM unnest(ARRAY['c56', 'u56']) v;
SELECT v, receipts(v), markers(v) FROM unnest(ARRAY['c56', 'u56']) v;

-- scenario 58: a patch of a tentative row merges, gives version and source, and ends a tombstone where it creates
SELECT views('c58', 'u58');
SELECT v, put(v, 1, up('k', '{"a":1,"b":1}', 3)), put(v, 2, patch('k', '{"b":2,"c":{"d":null}}', 8)) FROM unnest(ARRAY['c58', 'u58']) v;
SELECT v, shown(v) FROM unnest(ARRAY['c58', 'u58']) v;
SELECT v, put(v, 3, del('k')), put(v, 4, patch('k', '{"e":4}', 2, true)) FROM unnest(ARRAY['c58', 'u58']) v;
SELECT v, shown(v), (SELECT tombstone FROM unsafemv.unsafe_rows WHERE service_id = 'unsafe' AND view_no = no(v)) AS tombstone FROM unnest(ARRAY['c58', 'u58']) v;

-- scenario 59: a patch with entries replaces the key's entries, one without leaves them
SELECT views('c59', 'u59');
SELECT v, put(v, 1, '{"rowUpserts":[{"rowKey":"k","value":{}},{"rowKey":"j","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"1"},{"rowKey":"k","indexId":"b","valueType":"text","value":"1"},{"rowKey":"j","indexId":"a","valueType":"text","value":"1"}]}'),
    put(v, 2, '{"rowPatches":[{"kind":"json_patch","rowKey":"j","patch":{}},{"kind":"json_patch","rowKey":"k","patch":{},"indexEntries":[{"indexId":"a","valueType":"text","value":"2"}]}]}') FROM unnest(ARRAY['c59', 'u59']) v;
SELECT v, entries(v) FROM unnest(ARRAY['c59', 'u59']) v;
-- an upsert replaces all; a delete takes them along
SELECT v, put(v, 3, up('k', '{}') || entry('k', 'c', '3')), put(v, 4, del('j')) FROM unnest(ARRAY['c59', 'u59']) v;
SELECT v, entries(v) FROM unnest(ARRAY['c59', 'u59']) v;

-- scenario 60: indexDeletes, of one index and of all, come before entries
SELECT v, put(v, 5, '{"rowUpserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"5"},{"rowKey":"k","indexId":"a","valueType":"text","value":"6"},{"rowKey":"k","indexId":"b","valueType":"text","value":"5"}]}'),
    put(v, 6, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{}}],"indexEntries":[{"rowKey":"k","indexId":"a","valueType":"text","value":"7"}],"indexDeletes":[{"rowKey":"k","indexId":"a"}]}') FROM unnest(ARRAY['c59', 'u59']) v;
SELECT v, entries(v) FROM unnest(ARRAY['c59', 'u59']) v;
SELECT v, put(v, 7, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{}}],"indexDeletes":[{"rowKey":"k"}]}') FROM unnest(ARRAY['c59', 'u59']) v;
SELECT v, entries(v), shown(v) FROM unnest(ARRAY['c59', 'u59']) v;

-- scenario 61: a patch of a row that only the safe lane has
SELECT views('c61', 'u61');
SELECT v, step(v, 1, up('k', '{"a":1}', 4) || entry('k', 'i', 'safe')), put(v, 2, patch('k', '{"b":2}', 5)) FROM unnest(ARRAY['c61', 'u61']) v;
SELECT v, shown(v), entries(v), shown(v, 'safe') AS safe, markers(v) FROM unnest(ARRAY['c61', 'u61']) v;

-- scenario 62: a delete of one
SELECT views('c62', 'u62');
SELECT v, step(v, 1, up('k', '{"a":1}') || entry('k', 'i', 'safe')), put(v, 2, del('k')) FROM unnest(ARRAY['c62', 'u62']) v;
SELECT shown('c62'), entries('c62'), shown('c62', 'safe') AS safe, markers('c62');
SELECT receipts('u62'), markers('u62');

-- scenario 63: a delete over both lanes hides the key
SELECT views('c63', 'u63');
SELECT v, step(v, 2, up('k', '2')), put(v, 4, up('k', '4')), shown(v), put(v, 6, del('k')) FROM unnest(ARRAY['c63', 'u63']) v;
SELECT v, shown(v), (SELECT unsafemv.composed_page('unsafe', v) -> 'totalCount') AS total, shown(v, 'safe') AS safe FROM unnest(ARRAY['c63', 'u63']) v;

-- scenario 64: create, delete, and an update that comes late: the key stays deleted
SELECT views('c64', 'u64');
SELECT v, put(v, 1, up('k', '1')), put(v, 5, del('k')), put(v, 3, up('k', '3')), shown(v), markers(v) FROM unnest(ARRAY['c64', 'u64']) v;
SELECT v, put(v, 4, patch('k', '{"a":4}', "create" => true)), put(v, 2, del('k')), shown(v) FROM unnest(ARRAY['c64', 'u64']) v;

-- scenario 70: the stored head decides; a greater safe_head is the caller's own guard
SELECT views('c70', 'u70');
SELECT v, step(v, 8, '{}'), put(v, 10, up('k', '10'), safe_head => 2) FROM unnest(ARRAY['c70', 'u70']) v;
SELECT v, refused(format('SELECT put(%L, 12, up(''k'', ''12''), safe_head => 20)', v)) AS greater, refused(format('SELECT put(%L, 12, up(''k'', ''12''), safe_head => 12)', v)) AS equal, shown(v), receipts(v) FROM unnest(ARRAY['c70', 'u70']) v;
SELECT v, put(v, 10, up('k', '10'), safe_head => 20) AS known, put(v, 3, up('k', '3'), safe_head => 2) AS late, refused(format('SELECT shown(%L)', v)) FROM unnest(ARRAY['c70', 'u70']) v;

-- scenario 255: late by the stored head, whatever the caller's
SELECT views('c255', 'u255');
SELECT v, step(v, 8, '{}'), put(v, 3, up('k', '3'), safe_head => 8), refused(format('SELECT shown(%L)', v)) FROM unnest(ARRAY['c255', 'u255']) v;

-- scenario 72: an unknown generation and an inactive one, for every shape of plan; the guards that fit pass
SELECT views('c72', 'u72');
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status, last_suid)
SELECT service_id, view_no, g, 1, status, NULL FROM unsafemv.views, (VALUES (1, 'retired'), (2, 'candidate'), (3, 'dropping')) AS x (g, status) WHERE service_id = 'unsafe' AND view_id IN ('c72', 'u72');
SELECT v, n, refused(format('SELECT unsafemv.apply(''unsafe'', %L, ''e'', s(1), %L, generation => 9)', v, plan)) AS unknown,
    refused(format('SELECT unsafemv.apply(''unsafe'', %L, ''e'', s(1), %L, generation => 1)', v, plan)) AS retired,
    refused(format('SELECT unsafemv.apply(''unsafe'', %L, ''e'', s(1), %L, generation => 2)', v, plan)) AS candidate,
    refused(format('SELECT unsafemv.apply(''unsafe'', %L, ''e'', s(1), %L, generation => 3)', v, plan)) AS dropping,
    refused(format('SELECT unsafemv.apply(''unsafe'', %L, ''e'', s(1), %L, definition_version => 2)', v, plan)) AS definition
FROM unnest(ARRAY['c72', 'u72']) v, (VALUES (1, '{}'), (2, up('k', '1')::text), (3, patch('k', '{}')::text), (4, del('k')::text), (5, (up('k', '1') || patch('j', '{}') || del('l'))::text)) AS p (n, plan)
ORDER BY v, n;
SELECT refused($$SELECT unsafemv.apply_batch('unsafe', 'c72', '[]', generation => 9)$$), refused($$SELECT unsafemv.apply_batch('unsafe', 'c72', '[]', generation => 1, on_error => 'report')$$),
    refused($$SELECT unsafemv.apply_batch('unsafe', 'c72', '[]', definition_version => 2)$$);
SELECT * FROM unsafemv.apply('unsafe', 'c72', 'e', s(1), '{}', generation => 0, definition_version => 1);

-- scenario 90: a receipt is found by exactly its event and SUID, whatever its outcome and generation
SELECT views('c90');
SELECT put('c90', 1, up('k', '1')), put('c90', 2, '{}'), put('c90', 3, patch('j', '{}')), put('c90', 4, del('j2')), put('c90', 5, up('l', '5')), put('c90', 1, '{}');
SELECT e, n, unsafemv.has_target_receipt('unsafe', 'c90', 'e' || e, s(n)) FROM generate_series(1, 5) e, generate_series(1, 2) n ORDER BY 1, 2;
SELECT bool_and(unsafemv.has_target_receipt('unsafe', 'c90', 'e' || e, s(e))) AS each FROM generate_series(1, 5) e;

-- scenario 240: whatever the order of arrival, the visible state is what the SUIDs' order gives, before any safe step
CREATE FUNCTION orders(prefix text, plans jsonb[]) RETURNS TABLE (arrival text, outcomes text, state text, by_key text) LANGUAGE plpgsql AS $$
DECLARE
    a int; b int; c int; view text;
BEGIN
    FOR a, b, c IN SELECT x, y, 6 - x - y FROM generate_series(1, 3) x, generate_series(1, 3) y WHERE x <> y ORDER BY 1, 2 LOOP
        arrival := a || ' ' || b || ' ' || c;
        view := prefix || a || b || c;
        PERFORM unsafemv.create_view('unsafe', view);
        outcomes := put(view, a, plans[a]) || ', ' || put(view, b, plans[b]) || ', ' || put(view, c, plans[c]);
        state := shown(view);
        by_key := entries(view);
        RETURN NEXT;
        IF a = 1 AND b = 2 THEN
            PERFORM unsafemv.drop_view('unsafe', view);
        END IF;
    END LOOP;
END $$;
SELECT * FROM orders('c240a', ARRAY[up('k', '{"a":1}', 11) || entry('k', 'i', '1'), patch('k', '{"b":2}', 12), del('k')]);
SELECT * FROM orders('c240b', ARRAY[up('k', '{"a":1}', 11) || entry('k', 'i', '1'), del('k'), up('k', '{"c":3}', 13) || entry('k', 'i', '3')]);
-- and of patches that do not commute
SELECT * FROM orders('c240c', ARRAY[patch('k', '{"n":5,"a":1}', 11, true), patch('k', '{"n":10}', 12, true, 'max'), patch('k', '{"n":-1}', 13, true, 'add')]);
SELECT * FROM orders('c240d', ARRAY[up('k', '{"n":[1]}', 11), patch('k', '{"n":[2,1]}', 12, false, 'append'), patch('k', '{"n":[1,3]}', 13, false, 'union')]);

-- scenario 250: 257 patches of one key: the oldest half becomes one operation, and the row is what it was
SELECT views('c250');
SELECT put('c250', 5, up('k', '{"n":0}')), put('c250', 6, up('j', '{"n":0}'));
SELECT put('c250', 10 * i, jsonb_build_object('rowPatches', jsonb_build_array(
        jsonb_build_object('kind', 'add', 'rowKey', 'k', 'patch', '{"n":1}'::jsonb), jsonb_build_object('kind', 'json_patch', 'rowKey', 'k', 'patch', jsonb_build_object('f' || i, i))))) AS outcome, count(*)
FROM generate_series(1, 300) i GROUP BY 1;
SELECT value -> 'n' AS n, (SELECT count(*) FROM jsonb_object_keys(value)) AS members, value -> 'f1' AS first, value -> 'f300' AS last, short(source_suid)
FROM unsafemv.read_rows('unsafe', 'c250', ARRAY['k']);
SELECT jsonb_array_length(kept) BETWEEN 128 AND 256 AS capped, octet_length(kept::text) > 1000 AS keeps FROM unsafemv.unsafe_rows WHERE service_id = 'unsafe' AND view_no = no('c250') AND row_key = 'k';
SELECT put('c250', 15, patch('k', '{"late":15}')) AS folded_away, put('c250', 2995, patch('k', '{"late":2995}')) AS in_place;
SELECT value -> 'n' AS n, value -> 'late' AS late FROM unsafemv.read_rows('unsafe', 'c250', ARRAY['k']);
SELECT markers('c250');
-- the safe lane, some events behind, changes nothing of what is seen
SELECT count(*) FROM (SELECT step('c250', 5, up('k', '{"n":0}')), step('c250', 6, up('j', '{"n":0}')), step('c250', 10, patch('k', '{"n":1}', kind => 'add'), 'e10')) x;
SELECT value -> 'n' AS n, value -> 'late' AS late FROM unsafemv.read_rows('unsafe', 'c250', ARRAY['k']);
-- so it is for bytes: 256 kB of patches
SELECT put('c250', 4000 + i, patch('j', jsonb_build_object('f' || i, repeat(chr(96 + i), 50000)))) AS outcome, count(*) FROM generate_series(1, 20) i GROUP BY 1;
SELECT (SELECT count(*) FROM jsonb_object_keys(value)) AS members, length(value ->> 'f1') AS first, length(value ->> 'f20') AS last FROM unsafemv.read_rows('unsafe', 'c250', ARRAY['j']);
SELECT put('c250', 3999, patch('j', '{"late":1}'));

SELECT * FROM unsafemv.check('unsafe');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'unsafe';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA unsafe_test CASCADE;
