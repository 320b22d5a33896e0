-- Plan safety: what a call touches does not depend on how much the view holds,
-- whether the plans were made while the tables were empty and unknown, or from
-- the statistics of full tables; for both lanes, collection and pages.  In a
-- database of its own, where nothing has been analysed before, and without
-- autovacuum, which would do it at any moment.
SET client_min_messages = warning;
SELECT current_database() AS database \gset
CREATE DATABASE plan_safety;
\c plan_safety
SET client_min_messages = warning;
CREATE EXTENSION unsafemv;
CREATE SCHEMA ps;
SET search_path = ps, pg_catalog;
DO $$
DECLARE t name;
BEGIN
    FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE unsafemv.%I SET (autovacuum_enabled = off)', t);
    END LOOP;
END $$;

CREATE FUNCTION s(n numeric) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT lpad(n::text, 30, '0') $$;
CREATE FUNCTION k(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'k' || lpad((n * 7919 % 4000)::text, 8, '0') $$;

-- 20,000 deliveries: upserts of one key and of two with an entry, patches,
-- deletes, redeliveries, and events older than what is there
CREATE TABLE deliveries (n bigint PRIMARY KEY, event_id text NOT NULL, suid text NOT NULL, plan jsonb NOT NULL);
INSERT INTO deliveries
SELECT d.n, 'e' || e.event, s(CASE WHEN d.n % 20 = 14 THEN (d.n - 4) * 10 - 1 ELSE e.event * 10 END),
    CASE WHEN e.event % 10 IN (0, 1, 2, 4) THEN jsonb_build_object(
        'upserts', jsonb_build_array(jsonb_build_object('rowKey', k(e.source), 'value', jsonb_build_object('n', e.event))),
        'indexEntries', jsonb_build_array(jsonb_build_object('indexId', 'i', 'valueType', 'integer', 'value', e.event % 100, 'rowKey', k(e.source))))
    WHEN e.event % 10 = 3 THEN jsonb_build_object('upserts', jsonb_build_array(
        jsonb_build_object('rowKey', k(e.event), 'value', jsonb_build_object('n', e.event)),
        jsonb_build_object('rowKey', k(e.event + 1), 'value', jsonb_build_object('n', e.event))))
    WHEN e.event % 10 = 8 THEN jsonb_build_object('deletes', jsonb_build_array(k(e.event - 5)))
    ELSE jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'rowKey', k(e.event),
        'patch', '{"sum": 1}'::jsonb, 'create', true))) END
FROM generate_series(1, 20000) d(n),
    LATERAL (SELECT CASE WHEN d.n % 10 = 9 THEN d.n - 2 ELSE d.n END AS event, CASE WHEN d.n % 20 = 14 THEN d.n - 4 ELSE d.n END AS source) e;
-- each event once, in order
CREATE TABLE events AS SELECT row_number() OVER (ORDER BY suid COLLATE "C") AS place, event_id, suid, plan, min(n) AS n
    FROM deliveries GROUP BY event_id, suid, plan;
ALTER TABLE events ADD PRIMARY KEY (place);
ANALYZE deliveries, events;

-- a call a delivery (size 0), or batches; a transaction each
CREATE PROCEDURE deliver(view text, first bigint, last bigint, size int) LANGUAGE plpgsql AS $$
DECLARE d record; answer text;
BEGIN
    IF size = 0 THEN
        FOR d IN SELECT * FROM deliveries WHERE n BETWEEN first AND last ORDER BY n LOOP
            answer := (unsafemv.apply('s', view, d.event_id, d.suid, d.plan)).outcome;
            COMMIT;
        END LOOP;
    ELSE
        FOR d IN SELECT jsonb_agg(jsonb_build_object('eventId', event_id, 'suid', suid, 'mutations', plan) ORDER BY n) AS b
                 FROM deliveries WHERE n BETWEEN first AND last GROUP BY (n - first) / size ORDER BY (n - first) / size LOOP
            PERFORM FROM unsafemv.apply_batch('s', view, d.b);
            COMMIT;
        END LOOP;
    END IF;
END $$;

-- the same in the safe lane
CREATE PROCEDURE fold(view text, first bigint, last bigint, size int) LANGUAGE plpgsql AS $$
DECLARE d record; head text := (SELECT last_suid FROM unsafemv.read_active('s', view));
BEGIN
    IF size = 0 THEN
        FOR d IN SELECT * FROM events WHERE place BETWEEN first AND last ORDER BY place LOOP
            PERFORM FROM unsafemv.apply_safe('s', view, head, d.suid, d.plan, d.event_id);
            COMMIT;
            head := d.suid;
        END LOOP;
    ELSE
        FOR d IN SELECT jsonb_agg(jsonb_build_object('eventId', event_id, 'suid', suid, 'mutations', plan) ORDER BY place) AS b, max(suid) AS suid
                 FROM events WHERE place BETWEEN first AND last GROUP BY (place - first) / size ORDER BY (place - first) / size LOOP
            PERFORM FROM unsafemv.apply_safe_batch('s', view, head, d.b);
            COMMIT;
            head := d.suid;
        END LOOP;
    END IF;
END $$;

-- Blocks of the extension's tables and indexes that this session has touched
-- since it last reported to the statistics, which it does between two commands
-- only; and sequential scans of these tables.
CREATE TABLE relations AS
    SELECT c.oid FROM pg_class c WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind IN ('r', 'i')
    UNION ALL SELECT t.oid FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.relnamespace = 'unsafemv'::regnamespace
    UNION ALL SELECT i.indexrelid FROM pg_class c JOIN pg_index i ON i.indrelid = c.reltoastrelid WHERE c.relnamespace = 'unsafemv'::regnamespace;
CREATE FUNCTION touched() RETURNS bigint LANGUAGE sql AS $$ SELECT sum(pg_stat_get_xact_blocks_fetched(oid)) FROM relations $$;
CREATE FUNCTION scans() RETURNS bigint LANGUAGE sql AS $$
    SELECT sum(seq_scan) FROM pg_stat_xact_user_tables WHERE schemaname = 'unsafemv'
$$;
CREATE TABLE measured (number int GENERATED ALWAYS AS IDENTITY, round text, what text, part int, units bigint, blocks bigint, scans bigint);
CREATE PROCEDURE note(round text, what text, part int, units bigint, blocks_before bigint, scans_before bigint) LANGUAGE sql AS $$
    INSERT INTO measured (round, what, part, units, blocks, scans)
    VALUES (round, what, part, units, touched() - blocks_before, scans() - scans_before)
$$;
-- one statement
CREATE PROCEDURE measure(round text, what text, part int, units bigint, statement text) LANGUAGE plpgsql AS $$
DECLARE blocks bigint := touched(); scanned bigint := scans(); result record;
BEGIN
    EXECUTE statement INTO result;
    CALL note(round, what, part, units, blocks, scanned);
    COMMIT;
END $$;

CREATE TABLE ways (n int, view text, size int, call text);
INSERT INTO ways VALUES (0, 'v0', 0, ''), (1, 'v1', 1, '_batch of 1'), (2, 'v10', 10, '_batch of 10'),
    (3, 'v100', 100, '_batch of 100'), (4, 'v1000', 1000, '_batch of 1000'), (5, 'v10000', 10000, '_batch of 10000');
SELECT count(unsafemv.create_view('s', view)) FROM ways;
SELECT unsafemv.create_view('s', 'observed');
SELECT unsafemv.create_view('s', 'pages');

-- of the second call: the first one may have to skip versions that are gone
CREATE PROCEDURE read(round text, what text, part int, units bigint, statement text) LANGUAGE plpgsql AS $$
DECLARE result record;
BEGIN
    EXECUTE statement INTO result;
    CALL measure(round, what, part, units, statement);
END $$;
CREATE PROCEDURE read_pages(round text, part int) LANGUAGE plpgsql AS $$
DECLARE page text := 'SELECT count(*) FROM unsafemv.query_composed_page(''s'', ''pages'', "limit" => 50, with_total => ';
BEGIN
    CALL read(round, 'page', part, 1, page || 'false)');
    CALL read(round, 'page, newest first', part, 1, page || 'false, descending => true)');
    CALL read(round, 'page behind a cursor', part, 1, page || format('false, after_suid => %L, after_key => ''k'')', s(300)));
    CALL read(round, 'page with total', part, 1, page || 'true)');
    CALL read(round, 'composed_page', part, 1, 'SELECT unsafemv.composed_page(''s'', ''pages'', "limit" => 50, with_total => false)');
    CALL read(round, 'read_rows', part, 1, 'SELECT count(*) FROM unsafemv.read_rows(''s'', ''pages'', "limit" => 50)');
    CALL read(round, 'read_rows of four keys', part, 1, 'SELECT count(*) FROM unsafemv.read_rows(''s'', ''pages'', ARRAY[''p7'', ''p8'', ''t9'', ''none''])');
    CALL read(round, 'query_rows', part, 1, 'SELECT count(*) FROM unsafemv.query_rows(''s'', ''pages'', ''i'', ''integer'', from_value => ''40'', "limit" => 50)');
    CALL read(round, 'read_index_entries', part, 1, 'SELECT count(*) FROM unsafemv.read_index_entries(''s'', ''pages'', ''i'', "limit" => 50)');
    CALL read(round, 'read_meta', part, 1, 'SELECT count(*) FROM unsafemv.read_meta(''s'', ''pages'')');
END $$;
-- upserts of new keys, for either lane
CREATE FUNCTION plain_events(prefix text, first bigint, last bigint) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_agg(jsonb_build_object('eventId', prefix || i, 'suid', s(i), 'mutations', jsonb_build_object(
        'upserts', jsonb_build_array(jsonb_build_object('rowKey', prefix || i, 'value', i)),
        'indexEntries', jsonb_build_array(jsonb_build_object('indexId', 'i', 'valueType', 'integer', 'value', i % 100, 'rowKey', prefix || i)))) ORDER BY i)
    FROM generate_series(first, last) i
$$;

-- deliver 10,000 and fold them, for each way and size of call; pages at 1,000 rows
-- and at 10,000; collect
CREATE PROCEDURE run(round text, first bigint) LANGUAGE plpgsql AS $$
DECLARE
    w record; step int; last bigint; least_place bigint; greatest_place bigint; head text; before bigint;
    blocks bigint; scanned bigint; rows int; base bigint := 2 * first;
BEGIN
    FOR w IN SELECT * FROM ways ORDER BY n LOOP
        step := greatest(1000, w.size);
        FOR part IN 0..10000 / step - 1 LOOP
            blocks := touched();
            scanned := scans();
            CALL deliver(w.view, first + part * step, first + (part + 1) * step - 1, w.size);
            CALL note(round, 'apply' || w.call, part, step, blocks, scanned);
        END LOOP;
        SELECT min(place), max(place) INTO least_place, greatest_place FROM events WHERE n BETWEEN first AND first + 9999;
        FOR part IN 0..(greatest_place - least_place) / step LOOP
            last := least(greatest_place, least_place + (part + 1) * step - 1);
            blocks := touched();
            scanned := scans();
            -- a call an event only for the first 2,000, which takes long enough
            CALL fold(w.view, least_place + part * step, last, CASE WHEN part > 1 AND w.size < 10 THEN 500 ELSE w.size END);
            IF part < 2 OR w.size >= 10 THEN
                CALL note(round, 'apply_safe' || w.call, part, last - (least_place + part * step) + 1, blocks, scanned);
            END IF;
        END LOOP;
    END LOOP;

    FOR part IN 0..1 LOOP
        rows := CASE part WHEN 0 THEN 1000 ELSE 10000 END;
        head := (SELECT last_suid FROM unsafemv.read_active('s', 'pages'));
        PERFORM FROM unsafemv.apply_safe_batch('s', 'pages', head, plain_events('p', base + CASE part WHEN 0 THEN 0 ELSE 1000 END, base + rows - 1));
        IF part = 0 THEN
            PERFORM FROM unsafemv.apply_batch('s', 'pages', plain_events('t', base + 10000, base + 10099));
        END IF;
        COMMIT;
        CALL read_pages(round, part);
    END LOOP;
    PERFORM FROM unsafemv.apply_safe_batch('s', 'pages', s(base + 9999), plain_events('t', base + 10000, base + 10099));

    -- receipts of folded events, 1,000 and 100 a call
    PERFORM unsafemv.alter_view('s', 'v100', receipt_retention => '0');
    head := (SELECT last_suid FROM unsafemv.read_active('s', 'v100'));
    FOR part IN 0..9 LOOP
        rows := CASE WHEN part < 5 THEN 1000 ELSE 100 END;
        before := (SELECT count(*) FROM unsafemv.receipts WHERE service_id = 's');
        CALL measure(round, 'collect_eligible, a receipt', part, rows,
            format('SELECT unsafemv.collect_eligible(''s'', ''v100'', 0, 1, %L, %s)', head, rows));
        IF before - (SELECT count(*) FROM unsafemv.receipts WHERE service_id = 's') <> rows THEN
            RAISE EXCEPTION 'receipts were not collected';
        END IF;
    END LOOP;

    -- tentative rows that the safe lane did not touch, because it works elsewhere
    PERFORM FROM unsafemv.apply_batch('s', 'observed', plain_events('o', first, first + 4999));
    COMMIT;
    FOR part IN 0..49 LOOP
        CALL measure(round, 'observe_safe_receipt', part, 100,
            format('SELECT count(unsafemv.observe_safe_receipt(''s'', ''observed'', ''o'' || i, s(i))) FROM generate_series(%s, %s) i',
            first + part * 100, first + part * 100 + 99));
    END LOOP;
    head := s(first + 4999);
    FOR part IN 0..4 LOOP
        CALL measure(round, 'garbage_collect', part, 100,
            format('SELECT 1 / (count(*) = 100)::int FROM generate_series(%s, %s) i WHERE unsafemv.garbage_collect(''s'', ''observed'', 0, 1, ''o'' || i, 1, s(i), %L)',
            first + part * 100, first + part * 100 + 99, head));
    END LOOP;
    FOR part IN 0..8 LOOP
        rows := CASE WHEN part < 4 THEN 1000 ELSE 100 END;
        CALL measure(round, 'collect_eligible, a row', part, rows,
            format('SELECT 1 / (unsafemv.collect_eligible(''s'', ''observed'', 0, 1, %L, %s) = %2$s)::int', head, rows));
    END LOOP;
END $$;

CALL run('never analysed', 1);
VACUUM ANALYZE;
CALL run('analysed', 10001);

-- Blocks an event, a row or a call may touch: about twice what it is, while a scan of
-- a table, or of a whole view by the wrong index, is hundreds.  An event of the safe
-- lane, and whatever asks whether reads are open, also passes the index entries of
-- receipts settled since the last vacuum.
CREATE TABLE ceilings (n int, pattern text, most numeric, grows boolean);
INSERT INTO ceilings VALUES
    (1, 'apply', 45, false), (2, 'apply\_batch%', 45, false),
    (3, 'apply\_safe', 150, true), (4, 'apply\_safe\_batch of 1', 150, true), (5, 'apply\_safe\_batch of 1_%', 90, true),
    (6, 'observe\_safe\_receipt', 220, true), (7, 'garbage\_collect', 180, true),
    (8, 'collect\_eligible, a receipt', 25, true), (9, 'collect\_eligible, a row', 15, true),
    (10, 'page', 350, false), (11, 'page, newest first', 90, false), (12, 'page behind a cursor', 350, false),
    (13, 'page with total', 1000, false), (14, 'composed\_page', 350, false), (15, 'read\_rows', 350, false),
    (16, 'read\_rows of four keys', 80, false), (17, 'query\_rows', 800, false), (18, 'read\_index\_entries', 500, false),
    (19, 'read\_meta', 40, false);

SELECT m.what, string_agg(DISTINCT m.round, ', ' ORDER BY m.round DESC) AS rounds, c.most AS "at most",
    coalesce(string_agg(format('%s, part %s: %s', m.round, m.part, round(m.blocks::numeric / m.units, 1)), '; ' ORDER BY m.number)
        FILTER (WHERE m.blocks::numeric / m.units > c.most), 'within') AS blocks,
    coalesce(string_agg(format('%s, part %s: %s after %s', m.round, m.part, round(m.blocks::numeric / m.units, 1), round(m.first, 1)), '; ' ORDER BY m.number)
        FILTER (WHERE NOT c.grows AND m.blocks::numeric / m.units > 1.3 * m.first + 5), 'none') AS growth,
    coalesce(string_agg(format('%s, part %s: %s', m.round, m.part, m.scans), '; ' ORDER BY m.number) FILTER (WHERE m.scans <> 0), 'none') AS "sequential scans"
FROM (SELECT *, first_value(blocks::numeric / units) OVER (PARTITION BY round, what ORDER BY part) AS first FROM measured) m
LEFT JOIN ceilings c ON m.what LIKE c.pattern
GROUP BY c.n, m.what, c.most ORDER BY c.n, length(m.what);
SELECT count(*) AS violations FROM unsafemv.check();
\c :database
SET client_min_messages = warning;
DROP DATABASE plan_safety;
