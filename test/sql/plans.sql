-- Plan shape of the reads: what a page touches does not depend on the number of
-- safe rows, and no read scans a table, whatever the statistics were when its
-- plan was made.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA plans_test;
RESET client_min_messages;
SET search_path = plans_test, pg_catalog;

CREATE FUNCTION s(n bigint) RETURNS unsafemv.suid LANGUAGE sql IMMUTABLE AS
$$ SELECT pg_catalog.lpad(n::text, 30, '0')::unsafemv.suid $$;

INSERT INTO unsafemv.services VALUES ('plans', 1);
INSERT INTO unsafemv.views (service_id, view_id, view_no, active_generation, last_generation, base, indexes, receipt_retention)
VALUES ('plans', 'v', 1, 0, 0, 'composed', '[]', '1 day');
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status, last_suid)
VALUES ('plans', 1, 0, 1, 'active', s(1000000));

-- safe rows up to "last"; an entry and a receipt each
CREATE PROCEDURE fill(first bigint, last bigint) LANGUAGE sql AS $$
    INSERT INTO unsafemv.rows (service_id, view_no, generation, row_key, source_suid, row_version, value)
    SELECT 'plans', 1, 0, 'k' || lpad(n::text, 8, '0'), s(n), 1, jsonb_build_object('n', n) FROM generate_series(first, last) n;
    INSERT INTO unsafemv.index_entries (service_id, view_no, generation, row_key, index_id, value_type, integer_value, derived)
    SELECT 'plans', 1, 0, 'k' || lpad(n::text, 8, '0'), 'i', 'integer', n % 100, false FROM generate_series(first, last) n;
    INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at)
    SELECT 'plans', 1, 0, 'e' || n, s(n), 'applied', true, now() FROM generate_series(first, last) n;
    UPDATE unsafemv.generations SET row_count = last WHERE service_id = 'plans';
$$;

CREATE TABLE reads (n int, name text, statement text);
INSERT INTO reads VALUES
    (1, 'page', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, with_total => false)$$),
    (2, 'page, newest first', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, descending => true, with_total => false)$$),
    (3, 'page with total', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50)$$),
    (4, 'page behind a cursor', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, with_total => false, after_suid => plans_test.s(500), after_key => 'k00000500')$$),
    (5, 'page behind a cursor, newest first', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, descending => true, with_total => false, after_suid => plans_test.s(900), after_key => 'k00000900')$$),
    (6, 'safe page', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, with_total => false, consistency => 'safe')$$),
    (7, 'page over both lanes', $$unsafemv.query_composed_page('plans', 'v', "limit" => 50, "offset" => 180, descending => true, with_total => false)$$),
    (8, 'composed_page', $$unsafemv.composed_page('plans', 'v', "limit" => 50)$$),
    (9, 'read_rows', $$unsafemv.read_rows('plans', 'v', "limit" => 50, after_key => 'k00000300')$$),
    (10, 'read_rows by key', $$unsafemv.read_rows('plans', 'v', ARRAY['k00000007', 't00000001', 'k00000950', 'none'])$$),
    (11, 'query_rows', $$unsafemv.query_rows('plans', 'v', 'i', 'integer', from_value => '40', "limit" => 50)$$),
    (12, 'read_index_entries', $$unsafemv.read_index_entries('plans', 'v', 'i', "limit" => 50)$$),
    (13, 'current_rows by key', $$unsafemv.current_rows WHERE service_id = 'plans' AND view_id = 'v' AND row_key = 'k00000007'$$);

-- pages of the buffer cache that the second run of a statement touches
CREATE FUNCTION buffers(statement text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    FOR i IN 1..2 LOOP
        EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM ' || statement INTO plan;
    END LOOP;
    RETURN (plan -> 0 -> 'Plan' ->> 'Shared Hit Blocks')::bigint + (plan -> 0 -> 'Plan' ->> 'Shared Read Blocks')::bigint;
END $$;
CREATE FUNCTION scans() RETURNS bigint LANGUAGE sql AS $$
    SELECT sum(seq_scan) FROM pg_stat_xact_user_tables
    WHERE schemaname = 'unsafemv' AND relname IN ('rows', 'unsafe_rows', 'index_entries', 'receipts', 'findings')
$$;
CREATE TABLE measured (round text, n int, buffers bigint, scans bigint);
CREATE PROCEDURE measure(round text) LANGUAGE plpgsql AS $$
DECLARE r record; before bigint;
BEGIN
    FOR r IN SELECT * FROM reads ORDER BY n LOOP
        before := scans();
        INSERT INTO measured VALUES (round, r.n, buffers(r.statement), 0);
        UPDATE measured m SET scans = scans() - before WHERE m.round = measure.round AND m.n = r.n;
    END LOOP;
END $$;

-- every plan is made while the tables are empty, and kept
CALL measure('empty');
CALL fill(1, 1000);
INSERT INTO unsafemv.unsafe_rows (service_id, view_no, generation, row_key, source_suid, row_version, value, tombstone, entries)
SELECT 'plans', 1, 0, CASE WHEN n <= 100 THEN 't' ELSE 'k' END || lpad(n::text, 8, '0'), s(2000000 + n), 1, '{}', false, '[["i", "integer", 50]]'
FROM generate_series(1, 200) n;
CALL measure('1,000 rows');

-- scenario 248: with row level security by service, statements read what index scans
-- of the extension's own read otherwise (twice: small and large)
CREATE ROLE plans_test_reader;
GRANT USAGE ON SCHEMA unsafemv, plans_test TO plans_test_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA unsafemv TO plans_test_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unsafemv TO plans_test_reader;
GRANT ALL ON ALL TABLES IN SCHEMA plans_test TO plans_test_reader;
CREATE PROCEDURE row_level_security(VARIADIC commands text[]) LANGUAGE plpgsql AS $$
DECLARE t text; command text;
BEGIN
    FOREACH t IN ARRAY ARRAY['rows', 'unsafe_rows', 'index_entries'] LOOP
        FOREACH command IN ARRAY commands LOOP
            EXECUTE format(command, t);
        END LOOP;
    END LOOP;
END $$;
CALL row_level_security('ALTER TABLE unsafemv.%I ENABLE ROW LEVEL SECURITY',
    'CREATE POLICY plans_test ON unsafemv.%I USING (service_id = pg_catalog.current_setting(''plans_test.service''))');
SET plans_test.service = 'plans';
SET ROLE plans_test_reader;
CALL measure('row level security, 1,000 rows');
RESET ROLE;
CALL row_level_security('DROP POLICY plans_test ON unsafemv.%I', 'ALTER TABLE unsafemv.%I DISABLE ROW LEVEL SECURITY');

CALL fill(1001, 100000);
CALL measure('100,000 rows');

-- and again with new plans, made from statistics
ANALYZE unsafemv.rows, unsafemv.unsafe_rows, unsafemv.index_entries, unsafemv.receipts;
CALL measure('analysed');

CALL row_level_security('ALTER TABLE unsafemv.%I ENABLE ROW LEVEL SECURITY',
    'CREATE POLICY plans_test ON unsafemv.%I USING (service_id = pg_catalog.current_setting(''plans_test.service''))');
SET plans_test.service = 'plans';
SET ROLE plans_test_reader;
CALL measure('row level security');
SELECT count(*), min(total_count) FROM unsafemv.query_composed_page('plans', 'v');
SET plans_test.service = 'another';
SELECT count(*) FROM unsafemv.query_composed_page('plans', 'v');
SELECT unsafemv.composed_page('plans', 'v') -> 'totalCount' AS total;
RESET ROLE;
CALL row_level_security('DROP POLICY plans_test ON unsafemv.%I', 'ALTER TABLE unsafemv.%I DISABLE ROW LEVEL SECURITY');
DROP OWNED BY plans_test_reader;
DROP ROLE plans_test_reader;

-- Within 1.2 of what 1,000 rows cost, besides one level the indexes grew by for each
-- look-up (with row level security the total is counted).  current_rows is planned by
-- the caller's planner, which needs statistics, and may well scan a small table of
-- tentative rows; its buffers tell.
SELECT r.name,
    coalesce(string_agg(m.round || ': ' || m.buffers || ' not ' || b.buffers, ', ' ORDER BY m.round) FILTER (WHERE m.round NOT IN ('empty', 'row level security, 1,000 rows')
        AND m.buffers > 1.2 * b.buffers + r.lookups
        AND NOT (m.round = 'row level security' AND r.n IN (3, 8))
        AND NOT (m.round <> 'analysed' AND r.n = 13)), 'constant') AS buffers,
    coalesce(string_agg(m.round, ', ' ORDER BY m.round) FILTER (WHERE m.scans > 0 AND r.n <> 13), 'none') AS "sequential scans"
FROM (SELECT *, CASE WHEN n IN (3, 8) THEN 200 WHEN n = 11 THEN 50 WHEN n = 13 THEN 10 ELSE 4 END AS lookups FROM reads) r
JOIN measured m USING (n)
JOIN measured b ON b.n = r.n AND b.round = CASE m.round WHEN 'row level security' THEN 'row level security, 1,000 rows' ELSE '1,000 rows' END
GROUP BY r.n, r.name ORDER BY r.n;

SET client_min_messages = warning;
DROP SCHEMA plans_test CASCADE;
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['services', 'views', 'generations', 'rows', 'unsafe_rows', 'index_entries', 'receipts'] LOOP
        EXECUTE format('DELETE FROM unsafemv.%I WHERE service_id = ''plans''', t);
    END LOOP;
END $$;
