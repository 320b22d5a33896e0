-- What the extension's functions did not write: jsonb of kept events and entries, rows, digests and counters that whoever may write
-- the tables has made up.  Every function that meets it answers or raises; nothing crashes, and nothing of it is taken for data.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA corrupted_test;
RESET client_min_messages;
SET search_path = corrupted_test, pg_catalog;

CREATE FUNCTION s(n bigint) RETURNS unsafemv.suid LANGUAGE sql IMMUTABLE AS $$ SELECT pg_catalog.lpad(n::text, 30, '0')::unsafemv.suid $$;
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; word text;
BEGIN
    EXECUTE statement;
    RETURN 'answered';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), state);
END $$;

-- kept events that are none
CREATE TABLE kept (n int, kept jsonb);
INSERT INTO kept VALUES
    (1, '5'), (2, 'null'), (3, '"text"'), (4, '{}'), (5, '[[1]]'), (6, '[{}]'), (7, '[1]'), (8, '[null]'), (9, '[]'),
    (10, '[{"suid": 5, "ops": []}]'), (11, '[{"suid": null, "ops": []}]'), (12, '[{"suid": true, "ops": []}]'), (13, '[{"suid": {"a": "bcd"}, "ops": []}]'),
    (14, '[{"suid": "000000000000000000000000000002"}]'), (15, '[{"suid": "000000000000000000000000000002", "ops": 5}]'),
    (16, '[{"suid": "000000000000000000000000000002", "ops": {}}]'), (17, '[{"suid": "000000000000000000000000000002", "ops": [5]}]'),
    (18, '[{"suid": "000000000000000000000000000002", "ops": [[]]}]'), (19, '[{"suid": "000000000000000000000000000002", "ops": [{}]}]'),
    (20, '[{"suid": "no SUID", "ops": []}]'),
    (21, '[{"suid": "000000000000000000000000000003", "ops": []}, {"suid": "000000000000000000000000000002", "ops": []}]'),
    (22, '[{"suid": "000000000000000000000000000002", "ops": []}]');
INSERT INTO kept SELECT 100 + row_number() OVER (), jsonb_build_array(jsonb_build_object('suid', s(2), 'ops', jsonb_build_array(op))) FROM unnest(ARRAY[
    '{"do": 5}', '{"do": null}', '{"do": "destroy"}', '{"do": ["upsert"]}', '{"do": "upsert"}', '{"do": "upsert", "value": 1}', '{"do": "upsert", "version": 1}',
    '{"do": "upsert", "version": "1", "value": 1}', '{"do": "upsert", "version": 1.5, "value": 1}', '{"do": "upsert", "version": 1e30, "value": 1}', '{"do": "upsert", "version": [1], "value": 1}',
    '{"do": "patch", "create": true}', '{"do": "patch", "version": 1, "value": {}}', '{"do": "patch", "version": 1, "value": {}, "kind": 5}', '{"do": "patch", "version": 1, "value": {}, "kind": "divide"}',
    '{"do": "patch", "version": 1, "value": {"a": "text"}, "kind": "add", "create": true}', '{"do": "patch", "version": 1, "value": [1], "kind": "min", "create": true}', '{"do": "patch", "version": 1, "value": 1, "kind": "union", "create": true}',
    '{"do": "patch", "version": 1, "value": 1, "kind": "json_patch", "create": true}',
    '{"do": "unindex", "indexId": 5}', '{"do": "unindex"}', '{"do": "index"}', '{"do": "index", "entries": 5}', '{"do": "index", "entries": {}}', '{"do": "index", "entries": [5]}', '{"do": "index", "entries": [[]]}',
    '{"do": "index", "entries": [["i"]]}', '{"do": "index", "entries": [["i", "text"]]}', '{"do": "index", "entries": [["i", "text", 5]]}', '{"do": "index", "entries": [["i", 5, "v"]]}', '{"do": "index", "entries": [["i", "blob", "v"]]}',
    '{"do": "index", "entries": [[5, "text", "v"]]}', '{"do": "index", "entries": [["i", "integer", "v"]]}', '{"do": "index", "entries": [["i", "integer", 1e30]]}', '{"do": "index", "entries": [["i", "real", 1e400]]}', '{"do": "index", "entries": [["i", "real", null]]}',
    '{"do": "index", "entries": [["i", {"text": 1}, "v"]]}', '{"do": "delete"}']::jsonb[]) op;
-- entries that are none
CREATE TABLE entries (n int, entries jsonb);
INSERT INTO entries SELECT row_number() OVER (), e FROM unnest(ARRAY['5', 'null', '{}', '[5]', '[[]]', '[["i"]]', '[["i", "text"]]', '[["i", "text", 5]]', '[[5, "text", "v"]]', '[["i", "integer", "v"]]', '[["i", "text", {"a": 1}]]',
    '[["i", "text", "v", 1, 2]]', '[["i", "text", "v"]]']::jsonb[]) e;

-- refold, which every reader of the SQL views may call
SELECT said(format('SELECT unsafemv.refold(%L, s(1), NULL, NULL, NULL, NULL, ''[]'')', kept)) AS said, count(*), string_agg(n::text, ' ' ORDER BY n) AS kept FROM kept GROUP BY 1 ORDER BY 1;
SELECT said(format('SELECT unsafemv.refold(''[{"suid": "000000000000000000000000000002", "ops": [{"do": "patch", "kind": "json_patch", "version": 1, "value": {}}]}]'', s(1), ''{}'', 1, s(1), %L, ''[]'')', entries)) AS said,
    count(*), string_agg(n::text, ' ' ORDER BY n) AS entries FROM entries GROUP BY 1 ORDER BY 1;
SELECT said(format('SELECT unsafemv.refold(%s)', arguments)) AS said, arguments FROM unnest(ARRAY[
    $$NULL, s(1), NULL, NULL, NULL, NULL, '[]'$$,
    $$'[{"suid": "000000000000000000000000000002", "ops": [{"do": "delete"}]}]', s(1), NULL, 1, s(1), NULL, '[]'$$,
    $$'[{"suid": "000000000000000000000000000002", "ops": [{"do": "delete"}]}]', s(1), '{}', NULL, s(1), NULL, '[]'$$,
    $$'[{"suid": "000000000000000000000000000002", "ops": [{"do": "delete"}]}]', NULL, NULL, NULL, NULL, NULL, NULL$$,
    $$'[{"suid": "000000000000000000000000000002", "ops": [{"do": "delete"}]}]', NULL, NULL, NULL, NULL, NULL, '{"a": 1}'$$,
    $$'[{"suid": "000000000000000000000000000002", "ops": [{"do": "delete"}]}]', s(5), NULL, NULL, NULL, NULL, '[]'$$]) arguments;

-- a view with a row of every kind, and everything that reads or writes it
CREATE FUNCTION made(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM unsafemv.create_view('corrupted', name, indexes => '[{"id": "d", "type": "integer", "path": "n"}]');
    PERFORM unsafemv.apply_safe('corrupted', name, NULL, s(1), '{"upserts": [{"rowKey": "k", "value": {"n": 1}}, {"rowKey": "safe", "value": {"n": 1}}]}', 'e1');
    PERFORM unsafemv.apply('corrupted', name, 'e5', s(5), '{"patches": [{"kind": "add", "rowKey": "k", "patch": {"n": 1}}], "upserts": [{"rowKey": "u", "value": {"n": 2}}]}');
END $$;
CREATE TABLE calls (call text);
INSERT INTO calls VALUES
    ($$SELECT count(*) FROM unsafemv.query_composed_page('corrupted', %1$L)$$),
    ($$SELECT unsafemv.composed_page('corrupted', %1$L, descending => true)$$),
    ($$SELECT count(*) FROM unsafemv.query_composed_page('corrupted', %1$L, consistency => 'safe')$$),
    ($$SELECT count(*) FROM unsafemv.query_rows('corrupted', %1$L, 'd', 'integer')$$),
    ($$SELECT count(*) FROM unsafemv.read_rows('corrupted', %1$L)$$),
    ($$SELECT count(*), max(value::text) FROM unsafemv.current_rows WHERE service_id = 'corrupted' AND view_id = %1$L$$),
    ($$SELECT count(*) FROM unsafemv.read_index_entries('corrupted', %1$L)$$),
    ($$SELECT count(*) FROM unsafemv.status WHERE view_id = %1$L$$),
    ($$SELECT count(*) FROM unsafemv.check('corrupted')$$),
    ($$SELECT unsafemv.apply('corrupted', %1$L, 'e6', s(6), '{"patches": [{"kind": "add", "rowKey": "k", "patch": {"n": 1}}, {"kind": "add", "rowKey": "u", "patch": {"n": 1}}, {"kind": "add", "rowKey": "safe", "patch": {"n": 1}}]}')$$),
    ($$SELECT unsafemv.apply('corrupted', %1$L, 'e3', s(3), '{"patches": [{"kind": "add", "rowKey": "k", "patch": {"n": 1}}, {"kind": "add", "rowKey": "u", "patch": {"n": 1}}]}')$$),
    ($$SELECT unsafemv.apply_safe('corrupted', %1$L, s(1), s(2), '{"patches": [{"kind": "add", "rowKey": "k", "patch": {"n": 1}}], "upserts": [{"rowKey": "new", "value": 1}]}', 'e2')$$),
    ($$SELECT unsafemv.collect_eligible('corrupted', %1$L, 0, 1, s(1))$$),
    ($$SELECT unsafemv.begin_rebuild('corrupted', %1$L, 2), unsafemv.apply_safe('corrupted', %1$L, NULL, s(1), '{"upserts": [{"rowKey": "k", "value": {"n": 1}}]}', 'e1', generation => 1),
        unsafemv.promote_generation('corrupted', %1$L, 1, 0)$$),
    ($$SELECT unsafemv.drop_view('corrupted', %1$L)$$);
-- Each call in turn on a view that was spoiled, and undone: what the calls said, each once.
CREATE FUNCTION spoiled(spoil text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    call text;
    answer text;
    answers text[] := '{}';
BEGIN
    FOR call IN SELECT c.call FROM calls c LOOP
        BEGIN
            EXECUTE spoil;
            answer := said(format(call, 'v'));
            RAISE EXCEPTION USING ERRCODE = 'UUUUU';
        EXCEPTION WHEN SQLSTATE 'UUUUU' THEN NULL;
        END;
        answers := answers || answer;
    END LOOP;
    RETURN (SELECT string_agg(a, ' ' ORDER BY a COLLATE "C") FROM (SELECT DISTINCT unnest(answers)) x (a));
END $$;
SELECT made('v');
SELECT spoiled('SELECT 1') AS unspoiled;
SELECT spoiled(format('UPDATE unsafemv.unsafe_rows SET kept = %L, base_suid = s(1) WHERE service_id = ''corrupted'' AND row_key = ''k''', kept)) AS said, count(*), string_agg(n::text, ' ' ORDER BY n) AS kept FROM kept GROUP BY 1 ORDER BY 1;
SELECT spoiled(format('UPDATE unsafemv.unsafe_rows SET kept = %L, base_suid = NULL, source_suid = s(9) WHERE service_id = ''corrupted''', kept)) AS said, count(*), string_agg(n::text, ' ' ORDER BY n) AS kept FROM kept GROUP BY 1 ORDER BY 1;
SELECT spoiled(format('UPDATE unsafemv.unsafe_rows SET entries = %L WHERE service_id = ''corrupted''', entries)) AS said, count(*), string_agg(n::text, ' ' ORDER BY n) AS entries FROM entries GROUP BY 1 ORDER BY 1;
SELECT spoiled(format(spoil, 'service_id = ''corrupted''')) AS said, spoil FROM unnest(ARRAY[
    'UPDATE unsafemv.unsafe_rows SET tombstone = false, value = NULL, entries = NULL WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET tombstone = false, value = NULL, kept = NULL WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET tombstone = true WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET tombstone = NULL WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET tombstone = NULL, value = NULL WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET base_suid = NULL WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET base_suid = s(99) WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET source_suid = s(1) WHERE %s',
    'UPDATE unsafemv.unsafe_rows SET row_version = -9223372036854775808 WHERE %s',
    'UPDATE unsafemv.rows SET source_suid = s(99) WHERE %s',
    'UPDATE unsafemv.rows SET value = ''5'', row_version = 9223372036854775807 WHERE %s',
    'DELETE FROM unsafemv.rows WHERE %s',
    'DELETE FROM unsafemv.unsafe_rows WHERE %s',
    'DELETE FROM unsafemv.receipts WHERE %s',
    'DELETE FROM unsafemv.generations WHERE %s',
    'DELETE FROM unsafemv.index_entries WHERE %s',
    'UPDATE unsafemv.receipts SET outcome = ''no outcome'', suid = s(1) WHERE %s',
    'UPDATE unsafemv.receipts SET settled = true WHERE %s',
    'UPDATE unsafemv.generations SET history_digest = '''' WHERE %s',
    'UPDATE unsafemv.generations SET history_digest = ''\x00'' WHERE %s',
    'UPDATE unsafemv.generations SET history_digest = NULL WHERE %s',
    'UPDATE unsafemv.generations SET history_digest = decode(repeat(''00'', 1000), ''hex'') WHERE %s',
    'UPDATE unsafemv.generations SET last_suid = NULL WHERE %s',
    'UPDATE unsafemv.generations SET last_suid = s(99) WHERE %s',
    'UPDATE unsafemv.generations SET row_count = -5, history_count = -5 WHERE %s',
    'UPDATE unsafemv.generations SET row_count = 9223372036854775807 WHERE %s',
    'UPDATE unsafemv.generations SET history_count = 9223372036854775807 WHERE %s',
    'UPDATE unsafemv.views SET indexes = ''5'' WHERE %s',
    'UPDATE unsafemv.views SET indexes = ''[{}]'' WHERE %s',
    'UPDATE unsafemv.views SET indexes = ''null'' WHERE %s',
    'UPDATE unsafemv.views SET active_generation = 77 WHERE %s',
    'UPDATE unsafemv.views SET active_generation = NULL WHERE %s',
    'UPDATE unsafemv.views SET view_no = 9223372036854775807 WHERE %s',
    'UPDATE unsafemv.views SET last_generation = 9223372036854775807 WHERE %s',
    'UPDATE unsafemv.services SET last_view_no = 9223372036854775807 WHERE %s']) WITH ORDINALITY AS spoils (spoil, n) ORDER BY n;
-- The view is as it was.
SELECT row_key, value, unsafe FROM unsafemv.query_composed_page('corrupted', 'v');
SELECT * FROM unsafemv.check('corrupted');

SELECT unsafemv.drop_view('corrupted', 'v');
SET client_min_messages = warning;
DROP SCHEMA corrupted_test CASCADE;
DELETE FROM unsafemv.services WHERE service_id = 'corrupted';
