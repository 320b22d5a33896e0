-- Mutation plans: what is accepted, what is refused, the limits, and values.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA mutation_test;
RESET client_min_messages;
SET search_path = mutation_test, unsafemv;

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


-- code, JSON path and text of the error a statement raises
CREATE FUNCTION provoke(statement text, OUT code text, OUT message text, OUT detail text) LANGUAGE plpgsql AS $$
DECLARE
    number text;
BEGIN
    EXECUTE statement;
    code := 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, code = CONSTRAINT_NAME, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    IF code = '' THEN code := number; END IF;
END $$;
-- both lanes take a plan, or both refuse it with the same code and path, writing nothing
CREATE FUNCTION verdict(view text, plan text, OUT code text, OUT path text, OUT both_lanes boolean) LANGUAGE plpgsql AS $$
DECLARE
    unsafe record;
    safe record;
    before text := state();
BEGIN
    SELECT * INTO unsafe FROM provoke(format('SELECT unsafemv.apply(''plan'', %L, ''e9'', s(9), %L)', view, plan));
    SELECT * INTO safe FROM provoke(format('SELECT unsafemv.apply_safe(''plan'', %L, NULL, s(9), %L, ''e9'')', view, plan));
    code := unsafe.code;
    path := substring(unsafe.detail FROM 'path (.*)\.$');
    both_lanes := safe.code = unsafe.code AND safe.detail IS NOT DISTINCT FROM unsafe.detail AND state() = before;
END $$;
CREATE FUNCTION up(key text, value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', value))) $$;
-- n bytes that no compression makes smaller
CREATE FUNCTION junk(n int) RETURNS text LANGUAGE sql VOLATILE AS
$$ SELECT string_agg(chr(33 + (random() * 93)::int), '') FROM generate_series(1, n) $$;
CREATE FUNCTION rows(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s@%s v%s %s', row_key, short(source_suid), row_version, value), ', ' ORDER BY row_key COLLATE "C")
    FROM unsafemv.query_composed_page('plan', view, NULL, consistency => rows.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s=%s(%s)->%s', index_id, value, value_type, row_key), ', ')
    FROM unsafemv.read_index_entries('plan', view, NULL, NULL, consistency => entries.consistency)
$$;

SELECT unsafemv.create_view('plan', 'free');
SELECT unsafemv.create_view('plan', 'declared', indexes => '[{"id":"status","type":"text","path":"status"},
    {"id":"count","type":"integer","path":"n.count"},{"id":"price","type":"real","path":"price"}]');

-- scenario 6: a bad suid, safe_head or sourceSuid is an error, and nothing is written
SELECT refused($$SELECT unsafemv.apply('plan', 'free', 'e', '1', '{}')$$) AS suid,
       refused($$SELECT unsafemv.apply('plan', 'free', 'e', '', '{}')$$) AS empty,
       refused($$SELECT unsafemv.apply('plan', 'free', 'e', NULL, '{}')$$) AS nothing,
       refused($$SELECT unsafemv.apply('plan', 'free', 'e', s(1), '{}', safe_head => '00000000000000000000000000000x')$$) AS safe_head,
       refused($$SELECT unsafemv.apply('plan', 'free', 'e', '315537897600000000000000000000', '{}')$$) AS ticks;
SELECT v.* FROM (VALUES
    (1, '{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":"9"}]}'),
    (2, '{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":9}]}'),
    (3, '{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":""}]}'),
    (4, '{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":"315537897600000000000000000000"}]}'),
    (5, '{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":"000000000000000000000000000008"}]}'),
    (6, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"sourceSuid":"000000000000000000000000000010"}]}')
) AS c (n, plan), LATERAL (SELECT n, code, both_lanes FROM verdict('free', plan)) v ORDER BY n;
SELECT safe_contiguous_head, unsafe_observed_max_suid, rebuild_required FROM unsafemv.read_meta('plan', 'free');

-- every other rule a plan can break: the code, and where
SELECT v.n, v.code, v.path, v.both_lanes FROM (VALUES
    (1, '[]'),
    (2, '7'),
    (3, 'null'),
    (4, '{"rowUpsert":[]}'),
    (5, '{"rowUpserts":[],"Deletes":[]}'),
    (6, '{"rowUpserts":{}}'),
    (7, '{"indexEntries":"k"}'),
    (8, '{"rowUpserts":[],"upserts":[]}'),
    (9, '{"rowPatches":[],"patches":[]}'),
    (10, '{"deletes":[],"rowDeletes":[]}'),
    (11, '{"rowUpserts":["k"]}'),
    (12, '{"rowUpserts":[{"rowKey":"a","value":1},{"rowKey":"k","value":1,"version":1}]}'),
    (13, '{"rowUpserts":[{"value":1}]}'),
    (14, '{"rowUpserts":[{"rowKey":"","value":1}]}'),
    (15, '{"rowUpserts":[{"rowKey":null,"value":1}]}'),
    (16, '{"rowUpserts":[{"rowKey":1,"value":1}]}'),
    (17, '{"rowUpserts":[{"rowKey":"k"}]}'),
    (18, '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":-1}]}'),
    (19, '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":1.5}]}'),
    (20, '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":9223372036854775808}]}'),
    (21, '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":"1"}]}'),
    (22, '{"rowUpserts":[{"rowKey":"k","value":1,"rowVersion":1e131071}]}'),
    (23, '{"rowPatches":[1]}'),
    (24, '{"rowPatches":[{"rowKey":"k","patch":{}}]}'),
    (25, '{"rowPatches":[{"kind":"merge","rowKey":"k","patch":{}}]}'),
    (26, '{"rowPatches":[{"kind":1,"rowKey":"k","patch":{}}]}'),
    (27, '{"rowPatches":[{"kind":"json_patch","patch":{}}]}'),
    (28, '{"rowPatches":[{"kind":"json_patch","rowKey":"","patch":{}}]}'),
    (29, '{"rowPatches":[{"kind":"json_patch","rowKey":"k"}]}'),
    (30, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":[]}]}'),
    (31, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":null}]}'),
    (32, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":"x"}]}'),
    (33, '{"rowPatches":[{"kind":"append","rowKey":"k","patch":[1]}]}'),
    (34, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"value":{}}]}'),
    (35, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"create":1}]}'),
    (36, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"rowVersion":-9}]}'),
    (37, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"indexEntries":{}}]}'),
    (38, '{"rowPatches":[{"kind":"json_patch","rowKey":"a","patch":{}},{"kind":"add","rowKey":"k","patch":{"a":1,"b":{"c":"1"}}}]}'),
    (39, '{"rowPatches":[{"kind":"min","rowKey":"k","patch":{"a":null}}]}'),
    (40, '{"rowPatches":[{"kind":"max","rowKey":"k","patch":{"a":[1]}}]}'),
    (41, '{"rowDeletes":[1]}'),
    (42, '{"rowDeletes":[""]}'),
    (43, '{"rowDeletes":["a",{}]}'),
    (44, '{"rowDeletes":[{"rowKey":""}]}'),
    (45, '{"rowDeletes":[{"key":"k"}]}'),
    (46, '{"rowDeletes":["k"],"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{}}]}'),
    (47, '{"indexEntries":[1]}'),
    (48, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"indexId":"i","valueType":"text","value":"x"}]}'),
    (49, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","valueType":"text","value":"x"}]}'),
    (50, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"","valueType":"text","value":"x"}]}'),
    (51, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","value":"x"}]}'),
    (52, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"numeric","value":1}]}'),
    (53, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"text"}]}'),
    (54, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"text","value":"x","path":"y"}]}'),
    (55, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"text","value":1}]}'),
    (56, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"integer","value":"1"}]}'),
    (57, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"integer","value":1.5}]}'),
    (58, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"integer","value":9223372036854775808}]}'),
    (59, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"real","value":1e400}]}'),
    (60, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"real","value":"NaN"}]}'),
    (61, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"real","value":true}]}'),
    (62, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"j","indexId":"i","valueType":"text","value":"x"}]}'),
    (63, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexDeletes":[{"rowKey":"j"}]}'),
    (64, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexDeletes":[{}]}'),
    (65, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexDeletes":["k"]}'),
    (66, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexDeletes":[{"rowKey":"k","indexId":1}]}'),
    (67, '{"rowUpserts":[{"rowKey":"k","value":1}],"indexDeletes":[{"rowKey":"k","valueType":"text"}]}'),
    (68, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"text","value":"x"},{"rowKey":"j","indexId":"i","valueType":"text","value":"x"}]}]}'),
    (69, '{"rowPatches":[{"kind":"json_patch","rowKey":"k","patch":{},"indexEntries":[{"indexId":"i","valueType":"integer","value":0.5}]}]}')
) AS c (n, plan), LATERAL (SELECT n, (verdict('free', plan)).*) v ORDER BY n;
-- the text names what is unknown
SELECT message FROM provoke($$SELECT unsafemv.apply('plan', 'free', 'e', s(9), '{"rowUpsert":[]}')$$);
SELECT message FROM provoke($$SELECT unsafemv.apply('plan', 'free', 'e', s(9), '{"upserts":[{"rowKey":"k","value":1,"version":1}]}')$$);
-- and the batch, the event's place in it
SELECT code, substring(detail FROM 'path (.*)\.$') AS path
FROM provoke($$SELECT unsafemv.apply_batch('plan', 'free', '[{"eventId":"a","suid":"000000000000000000000000000001","mutations":{}},
    {"eventId":"b","suid":"000000000000000000000000000002","mutations":{"upserts":[{"rowKey":"k"}]}}]')$$);
SELECT code, substring(detail FROM 'path (.*)\.$') AS path
FROM provoke($$SELECT unsafemv.apply_safe_batch('plan', 'free', NULL, '[{"eventId":"a","suid":"000000000000000000000000000001","mutations":{}},
    {"eventId":"b","suid":"000000000000000000000000000002","mutations":{"patches":[{"kind":"add","rowKey":"k","patch":{"a":""}}]}}]')$$);
-- which event of a batch it is can be read from every error
SELECT n, code, detail ~ '"b"|\$\[1\]' AS named
FROM (VALUES
    (1, '{"eventId":"b","suid":"2","mutations":{}}'),
    (2, '{"eventId":"b","suid":2,"mutations":{}}'),
    (3, '{"eventId":"b","suid":"999999999999999999999999999999","mutations":{}}'),
    (4, '{"eventId":"b","suid":null,"mutations":{}}'),
    (5, '{"eventId":"b","suid":"000000000000000000000000000002"}'),
    (6, '{"suid":"000000000000000000000000000002","mutations":{}}'),
    (7, '{"eventId":"","suid":"000000000000000000000000000002","mutations":{}}'),
    (8, '{"eventId":7,"suid":"000000000000000000000000000002","mutations":{}}'),
    (9, '{"eventId":"b","suid":"000000000000000000000000000002","mutations":{},"expectedVersion":1}'),
    (10, '{"eventId":"b","suid":"000000000000000000000000000002","mutations":{},"expectedRowVersion":-1}'),
    (11, '{"eventId":"b","suid":"000000000000000000000000000002","mutations":{"rowDeletes":["' || repeat('k', 1025) || '"]}}'),
    (12, '{"eventId":"b","suid":"000000000000000000000000000002","mutations":{"rowUpserts":[{"rowKey":"k","value":1,"sourceSuid":"2"}]}}'),
    (13, '{"eventId":"b","suid":"000000000000000000000000000001","mutations":{}}'),
    (14, '7')
) AS c (n, event), LATERAL provoke(format('SELECT unsafemv.apply_batch(''plan'', ''free'', %L)',
    '[{"eventId":"a","suid":"000000000000000000000000000001","mutations":{}},' || event || ']'))
ORDER BY n;
\set VERBOSITY sqlstate
SELECT unsafemv.apply('plan', 'free', 'e', s(9), '{"rowUpserts":[{"rowKey":"k"}]}');
SELECT unsafemv.apply('plan', 'free', 'e', s(9), NULL);
\set VERBOSITY default

-- scenario 7: without rowVersion and sourceSuid the version is 1 and the SUID the event's; one entry per declared index
SELECT unsafemv.apply('plan', 'declared', 'e1', s(1), up('k', '{"status":"open","n":{"count":7},"price":2.50}'));
SELECT rows('declared'), entries('declared');
-- a derived value that does not fit its type is no entry, and no error
SELECT unsafemv.apply('plan', 'declared', 'e2', s(2), up('l', '{"status":1,"n":{"count":7.5},"price":"2"}'));
SELECT unsafemv.apply('plan', 'declared', 'e3', s(3), up('m', jsonb_build_object('status', repeat('x', 1025), 'n', 3, 'price', 1e400)));
SELECT unsafemv.apply('plan', 'declared', 'e4', s(4), up('n', '[{"status":"open"}]'));
SELECT unsafemv.apply('plan', 'declared', 'e5', s(5), up('o', '{"n":{"count":9223372036854775808},"price":-0.0}'));
SELECT unsafemv.apply('plan', 'declared', 'e6', s(6), up('p', 'null'));
SELECT entries('declared');

-- scenario 8: entries against declarations
SELECT v.n, v.code, v.path, v.both_lanes FROM (VALUES
    (1, '{"upserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"count","valueType":"integer","value":1.5}]}'),
    (2, '{"upserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"count","valueType":"integer","value":-9223372036854775809}]}'),
    (3, '{"upserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"colour","valueType":"text","value":"red"}]}'),
    (4, '{"upserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"count","valueType":"text","value":"1"}]}'),
    (5, '{"upserts":[{"rowKey":"k","value":{}}],"indexEntries":[{"rowKey":"k","indexId":"Count","valueType":"integer","value":1}]}')
) AS c (n, plan), LATERAL (SELECT n, (verdict('declared', plan)).*) v ORDER BY n;
SELECT refused($$SELECT unsafemv.create_view('plan', 'twice', indexes => '[{"id":"a","type":"text","path":"a"},{"id":"a","type":"text","path":"a"}]')$$);
SELECT unsafemv.apply('plan', 'declared', 'e7', s(7), '{"upserts":[{"rowKey":"q","value":{"n":{"count":1}}}],"indexEntries":[{"rowKey":"q","indexId":"count","valueType":"integer","value":2},{"rowKey":"q","indexId":"count","valueType":"integer","value":1}]}');
SELECT value, row_key FROM unsafemv.read_index_entries('plan', 'declared', 'count');

-- scenario 9: a patch with its entries typed; short and long names alike
SELECT unsafemv.create_view('plan', 'patches');
SELECT unsafemv.apply('plan', 'patches', 'e1', s(1), '{"upserts":[{"rowKey":"k","value":{"a":1},"rowVersion":4}],"indexEntries":[{"rowKey":"k","indexId":"old","valueType":"text","value":"x"}]}');
SELECT unsafemv.apply('plan', 'patches', 'e2', s(2), '{"patches":[{"kind":"json_patch","rowKey":"k","patch":{"b":2},"rowVersion":5,"sourceSuid":"000000000000000000000000000002","indexEntries":[
    {"indexId":"t","valueType":"text","value":"x"},{"indexId":"i","valueType":"integer","value":10},{"rowKey":"k","indexId":"r","valueType":"real","value":-0.0},{"indexId":"i","valueType":"integer","value":9}]}]}');
SELECT rows('patches'), entries('patches');
SELECT unsafemv.apply('plan', 'patches', 'e3', s(3), '{"patches":[{"kind":"json_patch","rowKey":"k","patch":{"b":null},"indexEntries":[]}]}');
SELECT rows('patches'), entries('patches');

-- scenario 10: a delete listed twice is one; a null value of an entry is no entry
SELECT unsafemv.apply('plan', 'patches', 'e4', s(4), '{"upserts":[{"rowKey":"l","value":1}],"indexEntries":[{"rowKey":"l","indexId":"i","valueType":"integer","value":null},{"rowKey":"l","indexId":"i","valueType":"integer","value":4}]}');
SELECT entries('patches');
SELECT row_upserts, row_patches, row_deletes FROM unsafemv.apply_safe('plan', 'patches', NULL, s(1), '{"deletes":["k",{"rowKey":"k"},"k","l"]}', 'e1');
SELECT unsafemv.create_view('plan', 'deletes');
SELECT unsafemv.apply('plan', 'deletes', 'e1', s(1), up('k', '1'));
SELECT unsafemv.apply('plan', 'deletes', 'e2', s(2), '{"rowDeletes":["k",{"rowKey":"k"}]}');
SELECT rows('deletes'), (SELECT count(*) FROM unsafemv.markers m JOIN unsafemv.views v USING (service_id, view_no) WHERE (service_id, view_id) = ('plan', 'deletes')) AS markers;

-- scenario 11: merge patches, in both lanes
-- report 39: nulls and arrays in merge patches
CREATE TEMP TABLE merges (n int, target jsonb, patch jsonb, expected jsonb);
INSERT INTO merges VALUES
    (1, '{"a":1,"b":{"c":1}}', '{"a":null,"b":{"d":2}}', '{"b":{"c":1,"d":2}}'),
    (2, '[1]', '{"a":1}', '{"a":1}'),
    (3, '{"a":{"b":[1,null]}}', '{}', '{"a":{"b":[1,null]}}'),
    (4, '{}', '{"a":{"b":null}}', '{"a":{}}'),
    (5, '{"a":1}', '{"a":[null,1]}', '{"a":[null,1]}'),
    (6, '{"a":1}', '{"a":null}', '{}'),
    (7, 'null', '{"a":{"b":{"c":null}}}', '{"a":{"b":{}}}'),
    (8, '{"a":null,"b":1}', '{"b":2}', '{"a":null,"b":2}');
SELECT unsafemv.create_view('plan', 'merge');
SELECT count(unsafemv.apply('plan', 'merge', 'e1', s(1), (SELECT jsonb_build_object('upserts', jsonb_agg(jsonb_build_object('rowKey', n::text, 'value', target))) FROM merges)));
SELECT count(unsafemv.apply('plan', 'merge', 'e2', s(2), (SELECT jsonb_build_object('patches', jsonb_agg(jsonb_build_object('kind', 'json_patch', 'rowKey', n::text, 'patch', patch))) FROM merges)));
SELECT n, unsafemv.jsonb_merge_patch(target, patch) = expected AS function, value = expected AS unsafe_lane
FROM merges LEFT JOIN unsafemv.read_rows('plan', 'merge') r ON r.row_key = n::text ORDER BY n;
SELECT count(unsafemv.apply_safe('plan', 'merge', NULL, s(1), (SELECT jsonb_build_object('upserts', jsonb_agg(jsonb_build_object('rowKey', n::text, 'value', target))) FROM merges), 'e1'));
SELECT count(unsafemv.apply_safe('plan', 'merge', s(1), s(2), (SELECT jsonb_build_object('patches', jsonb_agg(jsonb_build_object('kind', 'json_patch', 'rowKey', n::text, 'patch', patch))) FROM merges), 'e2'));
SELECT n, value = expected AS safe_lane
FROM merges LEFT JOIN unsafemv.read_rows('plan', 'merge', consistency => 'safe') r ON r.row_key = n::text ORDER BY n;
-- two patches are two patches: the first removes what the second starts from
SELECT unsafemv.apply('plan', 'merge', 'e3', s(3), up('x', '{"a":{"y":2}}'));
SELECT unsafemv.apply('plan', 'merge', 'e4', s(4), '{"patches":[{"kind":"json_patch","rowKey":"x","patch":{"a":null}},{"kind":"json_patch","rowKey":"x","patch":{"a":{"x":1}}}]}');
SELECT value FROM unsafemv.read_rows('plan', 'merge', ARRAY['x']);
-- a real null is stored by an upsert
SELECT unsafemv.apply('plan', 'merge', 'e5', s(5), up('x', '{"a":null}'));
SELECT value FROM unsafemv.read_rows('plan', 'merge', ARRAY['x']);

-- report 13: one key or one event twice in a batch
SELECT unsafemv.create_view('plan', 'twice');
CREATE FUNCTION events(variadic list text[]) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_agg(jsonb_build_object('eventId', split_part(e, ' ', 1), 'suid', s(split_part(e, ' ', 2)::bigint)::text,
        'mutations', up(split_part(e, ' ', 3), to_jsonb(split_part(e, ' ', 1)))) ORDER BY n)
    FROM unnest(list) WITH ORDINALITY AS t (e, n)
$$;
SELECT * FROM unsafemv.apply_batch('plan', 'twice', events('e1 1 k', 'e1 1 k'));
SELECT * FROM unsafemv.apply_batch('plan', 'twice', events('e2 2 k', 'e3 3 k'));
SELECT * FROM unsafemv.apply_batch('plan', 'twice', events('e5 5 k', 'e4 4 k'));
SELECT rows('twice');

-- report 37: text PostgreSQL cannot hold is refused before anything happens, alike in both lanes
SELECT n, refused(format('SELECT unsafemv.apply(''plan'', ''twice'', ''e9'', s(9), %L)', plan)) AS unsafe,
       refused(format('SELECT unsafemv.apply_safe(''plan'', ''twice'', NULL, s(9), %L, ''e9'')', plan)) AS safe,
       refused(format('SELECT unsafemv.apply_batch(''plan'', ''twice'', %L, on_error => ''report'')',
           '[{"eventId":"a","suid":"000000000000000000000000000007","mutations":{}},{"eventId":"b","suid":"000000000000000000000000000008","mutations":' || plan || '}]')) AS batch
FROM (VALUES
    (1, '{"upserts":[{"rowKey":"k","value":"\u0000"}]}'),
    (2, '{"upserts":[{"rowKey":"k","value":"\ud83d"}]}'),
    (3, '{"upserts":[{"rowKey":"k\u0000","value":1}]}')) AS c (n, plan) ORDER BY n;

-- report 38: every digit survives; numbers that JavaScript would round come as text
SELECT unsafemv.create_view('plan', 'digits');
SELECT unsafemv.apply('plan', 'digits', 'e1', unsafemv.suid_from_position(9007199254740993), '{"upserts":[{"rowKey":"k","value":{"id":1533947986218845197,"d":0.10},"rowVersion":9007199254740993}]}');
SELECT unsafemv.apply('plan', 'digits', 'e2', unsafemv.suid_from_position(9007199254740994), '{"patches":[{"kind":"json_patch","rowKey":"k","patch":{"x":1533947986218845199},"rowVersion":9007199254740995}]}');
SELECT value, row_version, pg_typeof(row_version), source_suid, pg_typeof(source_suid), pg_typeof(total_count)
FROM unsafemv.query_composed_page('plan', 'digits');
SELECT jsonb_typeof(page #> '{rows,0,rowVersion}') AS version, page #>> '{rows,0,rowVersion}' AS digits, page #> '{rows,0,sourceSuid}' AS suid, page -> 'readHead' AS head
FROM unsafemv.composed_page('plan', 'digits') page;

-- report 41: numbers short to write and long to store
SELECT unsafemv.create_view('plan', 'large');
SELECT unsafemv.apply('plan', 'large', 'e1', s(1), '{"upserts":[{"rowKey":"k","value":{"n":9e131071}}]}');
SELECT unsafemv.apply('plan', 'large', 'e2', s(2), '{"patches":[{"kind":"add","rowKey":"k","patch":{"n":9e131071,"m":1}}]}');
SELECT value -> 'n' = '9e131071' AS left_as_it_was, value -> 'm' AS m FROM unsafemv.read_rows('plan', 'large');
SELECT refused($$SELECT unsafemv.apply('plan', 'large', 'e3', s(3), '{"upserts":[{"rowKey":"k","value":{"n":1e131072}}]}')$$);
SELECT v.n, v.code, v.path, v.both_lanes FROM (VALUES
    (1, '{"upserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"integer","value":1e131071}]}'),
    (2, '{"upserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"real","value":1e131071}]}')
) AS c (n, plan), LATERAL (SELECT n, (verdict('free', plan)).*) v ORDER BY n;
SELECT refused($$SELECT unsafemv.apply_batch('plan', 'large', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 100001)), on_error => 'report')$$),
       refused($$SELECT unsafemv.apply_safe_batch('plan', 'large', NULL, (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 100001)))$$);
-- nesting: 1,000 levels are stored, patched and read, 1,001 refused
CREATE FUNCTION nested(depth int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('{"a":', depth) || '1' || repeat('}', depth))::jsonb $$;
SELECT unsafemv.apply('plan', 'large', 'e4', s(4), up('n', nested(1000)));
SELECT unsafemv.apply('plan', 'large', 'e5', s(5), jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'json_patch', 'rowKey', 'n', 'patch', nested(1000)))));
SELECT value = nested(1000) AS stored FROM unsafemv.read_rows('plan', 'large', ARRAY['n']);
SELECT (verdict('large', up('n', nested(1001))::text)).*;
SELECT (verdict('large', up('n', (repeat('[', 1001) || repeat(']', 1001))::jsonb)::text)).*;
SELECT (verdict('large', jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'json_patch', 'rowKey', 'n', 'patch', nested(1001))))::text)).*;
-- index entries of one row: 1,000 in one plan, listed or in patches; those of other rows, and nulls, do not count
SELECT unsafemv.create_view('plan', 'entries');
CREATE FUNCTION entries(lowest int, highest int, key text = NULL) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('rowKey', key, 'indexId', 'i', 'valueType', 'integer')) || jsonb_build_object('value', nullif(n, 0))) FROM generate_series(lowest, highest) n $$;
CREATE FUNCTION with_entries(listed jsonb, patched jsonb = '[]', again jsonb = '[]') RETURNS text LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', '[{"rowKey": "a", "value": {}}, {"rowKey": "b", "value": {}}]'::jsonb, 'indexEntries', listed, 'patches', jsonb_build_array(
        jsonb_build_object('kind', 'json_patch', 'rowKey', 'a', 'patch', '{}'::jsonb, 'indexEntries', patched),
        jsonb_build_object('kind', 'json_patch', 'rowKey', 'a', 'patch', '{}'::jsonb, 'indexEntries', again)))::text $$;
SELECT n, v.* FROM (VALUES
    (1, with_entries(entries(1, 1001, 'a'))),
    (2, with_entries('[]', entries(1, 1001))),
    (3, with_entries(entries(1, 400, 'a'), entries(401, 1001))),
    (4, with_entries('[]', entries(1, 501), entries(1, 500))),
    (5, with_entries(entries(1, 1, 'a') || entries(1, 1001, 'b'))),
    (6, jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'rowKey', repeat('k', 1024), 'patch', '{}'::jsonb, 'indexEntries', entries(1, 100000))))::text)
) AS c (n, plan), LATERAL verdict('entries', plan) v ORDER BY n;
SELECT message, detail FROM provoke(format('SELECT unsafemv.apply(''plan'', ''entries'', ''e1'', s(1), %L)', with_entries(entries(1, 1001, 'a'))));
SELECT error_code FROM unsafemv.apply_batch('plan', 'entries', jsonb_build_array(jsonb_build_object('eventId', 'e1', 'suid', s(1), 'mutations', with_entries(entries(1, 1001, 'a'))::jsonb)), on_error => 'report');
SELECT outcome FROM unsafemv.apply('plan', 'entries', 'e1', s(1), with_entries(entries(1, 1000, 'b'), entries(0, 1000))::jsonb);
SELECT index_entries FROM unsafemv.apply_safe('plan', 'entries', NULL, s(1), with_entries(entries(1, 1000, 'b'), entries(0, 1000))::jsonb, 'e1');

-- report 43: one limit in bytes, whatever compression makes of a key
-- scenario 243: the largest names there can be, none of which compresses, at once
SELECT setseed(0.243);
CREATE TEMP TABLE longest AS SELECT junk(255) AS service, junk(255) AS view, junk(1024) AS key, junk(1024) AS key2,
    junk(1024) AS event, junk(63) AS index, junk(1024) AS value;
SELECT unsafemv.create_view(service, view) FROM longest;
CREATE FUNCTION long_plan(extra text = '') RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', jsonb_build_object('v', value)),
            jsonb_build_object('rowKey', key2, 'value', 1)),
        'indexEntries', jsonb_build_array(jsonb_build_object('rowKey', key, 'indexId', index, 'valueType', 'text', 'value', value)))
    FROM longest
$$;
CREATE FUNCTION long_found(consistency text, OUT page bigint, OUT json_page int, OUT index_equal bigint, OUT index_range bigint,
    OUT rows_by_key bigint, OUT entries bigint, OUT current bigint, OUT continued bigint, OUT behind bigint) LANGUAGE sql AS $$
    SELECT (SELECT count(*) FROM unsafemv.query_composed_page(service, view, consistency => $1) p WHERE p.row_key IN (key, key2)),
        jsonb_array_length(unsafemv.composed_page(service, view, consistency => $1) -> 'rows'),
        (SELECT count(*) FROM unsafemv.query_rows(service, view, index, 'text', longest.value, consistency => $1) q WHERE q.row_key = key AND q.index_value = longest.value),
        (SELECT count(*) FROM unsafemv.query_rows(service, view, index, 'text', from_value => longest.value, to_value => longest.value, consistency => $1) q WHERE q.row_key = key),
        (SELECT count(*) FROM unsafemv.read_rows(service, view, ARRAY[key, key2], consistency => $1)),
        (SELECT count(*) FROM unsafemv.read_index_entries(service, view, index, consistency => $1) e WHERE e.value = longest.value),
        (SELECT count(*) FROM unsafemv.current_rows c WHERE (c.service_id, c.view_id) = (service, view) AND c.row_key = key),
        (SELECT count(*) FROM unsafemv.query_composed_page(service, view, after_suid => s(1), after_key => least(key COLLATE "C", key2 COLLATE "C"), consistency => $1)),
        (SELECT count(*) FROM unsafemv.query_composed_page(service, view, after_suid => s(1), after_key => greatest(key COLLATE "C", key2 COLLATE "C"), consistency => $1))
    FROM longest
$$;
SELECT a.* FROM longest, LATERAL unsafemv.apply(service, view, event, s(1), long_plan()) a;
SELECT (long_found('composed')).*;
SELECT unsafemv.has_target_receipt(service, view, event, s(1)), unsafemv.observe_arrival(service, view, event, s(1)) FROM longest;
SELECT a.* FROM longest, LATERAL unsafemv.apply(service, view, event, s(1), long_plan()) a;
-- a marker has the longest event and key, too
SELECT a.* FROM longest, LATERAL unsafemv.apply(service, view, reverse(event), s(2), jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'json_patch', 'rowKey', reverse(key), 'patch', '{}'::jsonb)))) a;
SELECT count(*) AS markers FROM unsafemv.markers, longest WHERE service_id = service AND row_key = reverse(key) AND event_id = reverse(event);
SELECT row_upserts, index_entries FROM longest, LATERAL unsafemv.apply_safe(service, view, NULL, s(1), long_plan(), event) a;
SELECT (long_found('safe')).*;
SELECT (long_found('composed')).*;
-- one passed over: a finding holds the longest event
SELECT a.last_suid IS NOT NULL AS ok FROM longest, LATERAL unsafemv.apply_safe(service, view, s(1), s(3), '{}', reverse(value)) a;
SELECT kind, octet_length(event_id) FROM unsafemv.findings, longest WHERE service_id = service;
SELECT invariant, detail FROM longest, LATERAL unsafemv.check(service);
SELECT unsafemv.drop_view(service, view) FROM longest;
-- one byte more of each; a character of two bytes counts as two
SELECT n, refused(statement) AS code FROM longest, LATERAL (VALUES
    (1, format('SELECT unsafemv.create_view(%L, %L)', service || 'x', view)),
    (2, format('SELECT unsafemv.create_view(%L, %L)', service, view || 'x')),
    (3, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', event || 'x', '{}')),
    (4, format('SELECT unsafemv.apply_safe(%L, %L, NULL, s(9), %L, %L)', 'plan', 'free', '{}', event || 'x')),
    (5, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', up(key || 'x', '1'))),
    (6, format('SELECT unsafemv.apply_safe(%L, %L, NULL, s(9), %L, %L)', 'plan', 'free', up(key || 'x', '1'), 'e')),
    (7, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', jsonb_build_object('deletes', jsonb_build_array(key || 'x')))),
    (8, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', up('k', '1') || jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'indexId', index || 'x', 'valueType', 'text', 'value', value))))),
    (9, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', up('k', '1') || jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'indexId', index, 'valueType', 'text', 'value', value || 'x'))))),
    (10, format('SELECT unsafemv.apply_safe(%L, %L, NULL, s(9), %L, %L)', 'plan', 'free', up('k', '1') || jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'indexId', index, 'valueType', 'text', 'value', value || 'x'))), 'e')),
    (11, format('SELECT unsafemv.observe_arrival(%L, %L, %L, s(9))', 'plan', 'free', event || 'x')),
    (12, format('SELECT unsafemv.has_target_receipt(%L, %L, %L, s(9))', 'plan', 'free', event || 'x')),
    (13, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', up(repeat(U&'\00e9', 512) || 'x', '1'))),
    (14, format('SELECT unsafemv.apply(%L, %L, %L, s(9), %L)', 'plan', 'free', 'e', up(repeat('x', 100000), '1')))
) AS c (n, statement) ORDER BY n;
-- the error shows how the offending key begins, in whole characters
SELECT message, position('eeee' in message) > 0 AND octet_length(message) < 200 AS begins
FROM provoke(format('SELECT unsafemv.apply(''plan'', ''free'', %L, s(9), ''{}'')', repeat('e', 1025)));
SELECT octet_length(message) < 200 AND message ~ U&'\00e9\00e9' AS begins
FROM provoke(format('SELECT unsafemv.apply(''plan'', ''free'', ''e'', s(9), %L)', up('x' || repeat(U&'\00e9', 512), '1')));

-- report 44: byte order wherever text is kept or indexed
SELECT c.relname, a.attname, co.collname
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation co ON co.oid = a.attcollation
WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attcollation <> 0 AND co.collname IS DISTINCT FROM 'C'
ORDER BY 1, 2;
SELECT count(*) > 20 AS looked_at
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'i') AND a.attcollation = 'pg_catalog."C"'::regcollation;

-- report 45: eight bytes all the way
SELECT unsafemv.create_view('plan', 'eight', definition_version => 2147483648, generation => 2147483648);
SELECT unsafemv.apply('plan', 'eight', 'e1', unsafemv.suid_from_position(2147483647), '{"upserts":[{"rowKey":"k","value":1,"rowVersion":2147483648}]}', generation => 2147483648, definition_version => 2147483648);
SELECT unsafemv.apply('plan', 'eight', 'e2', unsafemv.suid_from_position(2147483648), '{"upserts":[{"rowKey":"k","value":1,"rowVersion":9223372036854775807}],"indexEntries":[{"rowKey":"k","indexId":"i","valueType":"integer","value":9223372036854775807}]}', expected_row_version => 2147483648);
SELECT row_key, row_version, source_suid FROM unsafemv.query_composed_page('plan', 'eight', 9223372036854775807);
SELECT count(*) FROM unsafemv.query_composed_page('plan', 'eight', 9223372036854775807, 9223372036854775807);
SELECT index_value, row_version FROM unsafemv.query_rows('plan', 'eight', 'i', 'integer', '9223372036854775807');
SELECT refused($$SELECT unsafemv.query_rows('plan', 'eight', 'i', 'integer', '9223372036854775808')$$) AS index_value,
       refused($$SELECT unsafemv.query_composed_page('plan', 'eight', ('9223372036854775807'::numeric + 1)::bigint)$$) AS page_limit,
       refused($$SELECT unsafemv.suid_from_position(('9223372036854775807'::numeric + 1)::bigint)$$) AS position,
       refused($$SELECT unsafemv.suid_from_position(-1)$$) AS negative;
SELECT a.last_suid, pg_typeof(row_upserts), pg_typeof(row_patches), pg_typeof(row_deletes), pg_typeof(index_entries)
FROM unsafemv.apply_safe('plan', 'eight', NULL, unsafemv.suid_from_position(2147483647), '{"upserts":[{"rowKey":"k","value":1,"rowVersion":9223372036854775807}]}', 'e1', 2147483648, 2147483648) a;
SELECT generation, definition_version, row_count, pg_typeof(row_count) FROM unsafemv.read_active('plan', 'eight');
-- counters end where bigint does: the step is refused, nothing wraps
CREATE FUNCTION counted(rows bigint, events bigint, plan jsonb) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE unsafemv.generations g SET row_count = rows, history_count = events FROM unsafemv.views v WHERE (g.service_id, g.view_no) = (v.service_id, v.view_no) AND v.service_id = 'plan' AND view_id = 'eight';
    RETURN refused(format('SELECT unsafemv.apply_safe(''plan'', ''eight'', unsafemv.suid_from_position(2147483647), unsafemv.suid_from_position(2147483649), %L, ''e3'')', plan));
END $$;
SELECT counted(9223372036854775807, 1, up('new', '1')) AS row_count, counted(1, 9223372036854775807, '{}') AS history_count, counted('-9223372036854775808', 1, '{"deletes": ["k"]}') AS least;
SELECT counted(9223372036854775806, 9223372036854775806, up('new', '1')) AS last_one, counted(1, 1, '{}') AS as_before;
SELECT row_count, history_count FROM unsafemv.read_active('plan', 'eight');

-- report 47: keys are bytes
SELECT unsafemv.create_view('plan', 'bytes');
SELECT unsafemv.apply('plan', 'bytes', 'e1', s(1), jsonb_build_object('upserts', (SELECT jsonb_agg(jsonb_build_object('rowKey', k, 'value', k))
    FROM unnest(ARRAY['k', 'K', 'k ', ' k', U&'\00e9', U&'e\0301', 'E']) k)));
SELECT encode(convert_to(row_key, 'UTF8'), 'hex') AS key, to_jsonb(row_key) = value AS own_value FROM unsafemv.read_rows('plan', 'bytes');
SELECT unsafemv.apply('plan', 'bytes', 'e1 ', s(2), '{"deletes":["K"]}');
SELECT count(*) FROM unsafemv.read_rows('plan', 'bytes');
SELECT count(*) FROM unsafemv.read_rows('plan', 'bytes', ARRAY['K', 'k', U&'\00e9']);
SELECT refused($$SELECT unsafemv.apply('plan', 'bytes', NULL, s(3), '{}')$$) AS event_null,
       refused($$SELECT unsafemv.apply('plan', 'bytes', '', s(3), '{}')$$) AS event_empty,
       refused($$SELECT unsafemv.apply('plan', 'bytes', 'e3', s(3), NULL)$$) AS plan_null,
       refused($$SELECT unsafemv.apply('plan', 'bytes', 'e3', s(3), '{}', record_arrival => NULL)$$) AS record_null,
       refused($$SELECT unsafemv.apply_batch('plan', 'bytes', NULL)$$) AS batch_null,
       refused($$SELECT unsafemv.apply_batch('plan', 'bytes', '[]', on_error => NULL)$$) AS on_error_null;
SELECT refused($$SELECT unsafemv.apply_safe('plan', 'bytes', NULL, NULL, '{}', 'e3')$$) AS last_suid_null,
       refused($$SELECT unsafemv.apply_safe('plan', 'bytes', NULL, s(3), NULL, 'e3')$$) AS plan_null,
       refused($$SELECT unsafemv.apply_safe('plan', 'bytes', NULL, s(3), '{}', NULL)$$) AS event_null,
       refused($$SELECT unsafemv.apply_safe('plan', 'bytes', NULL, s(3), '{}', '')$$) AS event_empty,
       refused($$SELECT unsafemv.apply_safe_batch('plan', 'bytes', NULL, NULL)$$) AS batch_null,
       refused($$SELECT unsafemv.has_target_receipt('plan', 'bytes', NULL, s(1))$$) AS event_null,
       refused($$SELECT unsafemv.has_target_receipt('plan', 'bytes', 'e', NULL)$$) AS suid_null;

SELECT * FROM unsafemv.check('plan');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'plan';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA mutation_test CASCADE;
