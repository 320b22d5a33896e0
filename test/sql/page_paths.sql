-- Pages are read by index scans of the extension's own or, where a role has row level
-- security, by statements: both give the same, whatever lies in the lanes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA paths_test;
RESET client_min_messages;
SET search_path = paths_test, pg_catalog;

-- 400 events on 60 keys: upserts, deletes, patches of several kinds, one in ten older
SELECT unsafemv.create_view('paths', 'v', indexes => '[{"id": "n", "type": "integer", "path": "n"}]');
CREATE FUNCTION events(first int, last int) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', unsafemv.suid_from_position(n)::text, 'mutations', CASE
        WHEN n % 7 = 0 THEN jsonb_build_object('deletes', jsonb_build_array(key))
        WHEN n % 3 = 0 THEN jsonb_build_object('upserts', jsonb_build_array(
            jsonb_build_object('rowKey', key, 'value', jsonb_build_object('n', n)),
            jsonb_build_object('rowKey', key || '-twin', 'value', jsonb_build_object('twin', n))))
        WHEN n % 2 = 0 THEN jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'rowKey', key,
            'patch', '{"sum": 1}'::jsonb, 'create', n % 4 = 0)))
        ELSE jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'json_patch', 'rowKey', key,
            'patch', jsonb_build_object('p' || n % 5, n), 'create', true))) END) ORDER BY (n + n % 10 * 3))
    FROM (SELECT n, 'k' || lpad((n * 37 % 60)::text, 3, '0') AS key FROM generate_series(first, last) n) k $$;
-- what the safe lane folds has no patch of an absent row
CREATE FUNCTION folded(first int, last int) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_agg(jsonb_set(e, '{mutations}', replace((e -> 'mutations')::text, '"create": false', '"create": true')::jsonb) ORDER BY e ->> 'suid')
    FROM jsonb_array_elements(events(first, last)) e $$;

CREATE ROLE paths_test_reader;
GRANT USAGE ON SCHEMA unsafemv, paths_test TO paths_test_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA unsafemv TO paths_test_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unsafemv TO paths_test_reader;
CREATE TABLE pages (statements boolean, moment text, arguments text, page text);
GRANT ALL ON pages TO paths_test_reader;
GRANT CREATE ON SCHEMA paths_test TO paths_test_reader;

-- pages of all kinds, and behind every fifth row
CREATE PROCEDURE read_all(moment text, statements boolean) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO paths_test.pages
    SELECT statements, moment, concat_ws(',', l.l, o.o, d.d, t.t, c.c), (
        SELECT string_agg(p::text, ' ') FROM unsafemv.query_composed_page('paths', 'v', l.l, o.o, d.d, NULL, NULL, t.t, c.c) p)
    FROM (VALUES (0), (1), (7), (1000), (NULL)) l (l), (VALUES (0), (5), (40), (1000)) o (o), (VALUES (false), (true)) d (d),
        (VALUES (false), (true)) t (t), (VALUES ('composed'), ('safe')) c (c);
    INSERT INTO paths_test.pages
    SELECT statements, moment, concat_ws(',', r.source_suid, r.row_key, d.d, c.c), (
        SELECT string_agg(p::text, ' ') FROM unsafemv.query_composed_page('paths', 'v', 9, 1, d.d, r.source_suid, r.row_key, true, c.c) p)
    FROM (SELECT q.*, row_number() OVER () AS n FROM unsafemv.query_composed_page('paths', 'v', NULL) q) r,
        (VALUES (false), (true)) d (d), (VALUES ('composed'), ('safe')) c (c) WHERE r.n % 5 = 0;
    INSERT INTO paths_test.pages
    SELECT statements, moment, 'json ' || coalesce(l.l::text, 'all') || c.c, unsafemv.composed_page('paths', 'v', l.l, 3, consistency => c.c)::text
    FROM (VALUES (0), (5), (NULL)) l (l), (VALUES ('composed'), ('safe')) c (c);
END $$;
CREATE PROCEDURE row_level_security(VARIADIC commands text[]) LANGUAGE plpgsql AS $$
DECLARE t text; command text;
BEGIN
    FOREACH t IN ARRAY ARRAY['views', 'generations', 'rows', 'unsafe_rows', 'receipts', 'findings'] LOOP
        FOREACH command IN ARRAY commands LOOP
            EXECUTE format(command, t);
        END LOOP;
    END LOOP;
END $$;
CALL row_level_security('CREATE POLICY paths_test ON unsafemv.%I USING (true)');
CREATE PROCEDURE read_both(moment text) LANGUAGE plpgsql AS $$
BEGIN
    CALL paths_test.read_all(moment, false);
    CALL paths_test.row_level_security('ALTER TABLE unsafemv.%I ENABLE ROW LEVEL SECURITY');
    SET LOCAL ROLE paths_test_reader;
    CALL paths_test.read_all(moment, true);
    RESET ROLE;
    CALL paths_test.row_level_security('ALTER TABLE unsafemv.%I DISABLE ROW LEVEL SECURITY');
END $$;

CREATE VIEW read AS
SELECT moment, count(*) > 100 AS many, count(DISTINCT page) > 20 AS different FROM pages WHERE NOT statements GROUP BY moment ORDER BY moment;
CREATE VIEW differences AS
SELECT a.moment, a.arguments, a.page AS index_scans, b.page AS statements
FROM (SELECT * FROM pages WHERE NOT statements) a FULL JOIN (SELECT * FROM pages WHERE statements) b USING (moment, arguments)
WHERE a.page IS DISTINCT FROM b.page OR a.statements IS NULL OR b.statements IS NULL ORDER BY 1, 2;

CALL read_both('empty');
DO $$ BEGIN PERFORM unsafemv.apply_batch('paths', 'v', paths_test.events(1, 250)); END $$;
CALL read_both('tentative only');
SELECT row_upserts > 0 AS folded FROM unsafemv.apply_safe_batch('paths', 'v', NULL, folded(1, 150));
DO $$ BEGIN PERFORM unsafemv.apply_batch('paths', 'v', paths_test.events(251, 400)); END $$;
CALL read_both('both lanes');
-- rows that a step had to skip: the head and the safe rows moved, the tentative rows did not
BEGIN;
UPDATE unsafemv.generations SET last_suid = unsafemv.suid_from_position(200) WHERE service_id = 'paths';
UPDATE unsafemv.receipts SET settled = true WHERE service_id = 'paths' AND suid OPERATOR(unsafemv.<=) unsafemv.suid_from_position(200);
UPDATE unsafemv.rows SET source_suid = unsafemv.suid_from_position(200), value = value || '{"moved": true}' WHERE service_id = 'paths' AND row_key LIKE '%1%';
DELETE FROM unsafemv.rows WHERE service_id = 'paths' AND row_key LIKE '%3%';
UPDATE unsafemv.generations g SET row_count = (SELECT count(*) FROM unsafemv.rows r WHERE r.service_id = g.service_id) WHERE g.service_id = 'paths';
SELECT count(*) > 10 AS many_are_stale FROM unsafemv.tentative_rows WHERE service_id = 'paths' AND refolded;
CALL read_both('stale');
SELECT * FROM read;
SELECT * FROM differences;
ROLLBACK;
SELECT row_upserts > 0 AS folded FROM unsafemv.apply_safe_batch('paths', 'v', unsafemv.suid_from_position(150), folded(151, 400));
CALL read_both('safe only');

SELECT * FROM read;
SELECT * FROM differences;

-- an index that is not what its name promises is left to the planner
SELECT count(*) AS before FROM unsafemv.query_composed_page('paths', 'v', NULL);
BEGIN;
DROP INDEX unsafemv.rows_suid_idx;
CREATE INDEX rows_suid_idx ON unsafemv.rows (service_id, view_no, generation, source_suid, row_key) WHERE row_version > 10;
SELECT count(*) AS partial FROM unsafemv.query_composed_page('paths', 'v', NULL);
DROP INDEX unsafemv.rows_suid_idx;
CREATE INDEX rows_suid_idx ON unsafemv.rows (service_id, view_no, generation, source_suid DESC, row_key);
SELECT array_agg(row_key) AS descending FROM unsafemv.query_composed_page('paths', 'v', 3);
DROP INDEX unsafemv.rows_suid_idx;
CREATE INDEX rows_suid_idx ON unsafemv.rows (row_version);
SELECT array_agg(row_key) AS another FROM unsafemv.query_composed_page('paths', 'v', 3);
DROP INDEX unsafemv.rows_suid_idx;
SELECT array_agg(row_key) AS none FROM unsafemv.query_composed_page('paths', 'v', 3);
ROLLBACK;
SELECT array_agg(row_key) AS after FROM unsafemv.query_composed_page('paths', 'v', 3);

-- a role without a right gets the executor's own error
REVOKE SELECT ON unsafemv.unsafe_rows FROM paths_test_reader;
SET ROLE paths_test_reader;
\set VERBOSITY terse
SELECT * FROM unsafemv.query_composed_page('paths', 'v');
\set VERBOSITY default
RESET ROLE;

SET client_min_messages = warning;
CALL row_level_security('DROP POLICY paths_test ON unsafemv.%I');
SELECT unsafemv.drop_view('paths', 'v');
DROP OWNED BY paths_test_reader;
DROP ROLE paths_test_reader;
DROP SCHEMA paths_test CASCADE;
