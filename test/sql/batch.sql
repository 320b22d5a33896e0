-- Batches: the same as one apply per event in that order, row for row.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA batch_test;
RESET client_min_messages;
SET search_path = batch_test, unsafemv;

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


CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'batch' AND view_id = view $$;
CREATE FUNCTION event(event text, n bigint, plan jsonb, expected bigint = NULL) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('eventId', event, 'suid', s(n)::text, 'expectedRowVersion', expected)) || jsonb_build_object('mutations', plan)
$$;
CREATE FUNCTION up(key text, value jsonb, version bigint = 1) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', value, 'rowVersion', version))) $$;
CREATE FUNCTION patch(key text, patch jsonb, kind text = 'json_patch', version bigint = 1) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowPatches', jsonb_build_array(jsonb_build_object('kind', kind, 'rowKey', key, 'patch', patch, 'rowVersion', version))) $$;
CREATE FUNCTION del(key text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowDeletes', jsonb_build_array(key)) $$;

-- what apply answers, event by event, an error being an answer
CREATE FUNCTION one_by_one(view text, events jsonb, record boolean = true)
RETURNS TABLE ("position" int, event_id text, outcome text, duplicate boolean, error_code text) LANGUAGE plpgsql AS $$
DECLARE
    e jsonb;
BEGIN
    FOR "position", e IN SELECT n, x FROM jsonb_array_elements(events) WITH ORDINALITY AS t (x, n) LOOP
        event_id := nullif(e ->> 'eventId', '');
        outcome := NULL;
        duplicate := NULL;
        error_code := NULL;
        BEGIN
            SELECT a.outcome, a.duplicate INTO outcome, duplicate FROM unsafemv.apply('batch', view, e ->> 'eventId', (e ->> 'suid')::suid, e -> 'mutations',
                expected_row_version => (e ->> 'expectedRowVersion')::bigint, record_arrival => record) a;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS error_code = CONSTRAINT_NAME;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
-- all that a view consists of, but for its number and times
CREATE FUNCTION contents(view text) RETURNS TABLE (relation text, content jsonb) LANGUAGE sql AS $$
    SELECT 'unsafe_rows', to_jsonb(t) - 'view_no' FROM unsafemv.unsafe_rows t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'unsafe_index_entries', to_jsonb(t) - 'view_no' FROM unsafemv.unsafe_index_entries t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'receipts', to_jsonb(t) - 'view_no' - 'observed_at' FROM unsafemv.receipts t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'markers', to_jsonb(t) - 'view_no' FROM unsafemv.markers t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'rows', to_jsonb(t) - 'view_no' FROM unsafemv.rows t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'index_entries', to_jsonb(t) - 'view_no' FROM unsafemv.index_entries t WHERE service_id = 'batch' AND view_no = no(view)
    UNION ALL SELECT 'generations', to_jsonb(t) - 'view_no' - 'created_at' - 'updated_at' FROM unsafemv.generations t WHERE service_id = 'batch' AND view_no = no(view)
$$;
CREATE FUNCTION differing(a text, b text) RETURNS TABLE (only_in text, relation text, content jsonb) LANGUAGE sql AS $$
    (SELECT a, * FROM contents(a) EXCEPT ALL SELECT a, * FROM contents(b)) UNION ALL (SELECT b, * FROM contents(b) EXCEPT ALL SELECT b, * FROM contents(a))
$$;
CREATE TEMP TABLE answers (way text, "position" int, event_id text, outcome text, duplicate boolean, error_code text);
-- applies events to view a one by one and to view b at once; what differs in the answers
CREATE FUNCTION compare(a text, b text, events jsonb, record boolean = true) RETURNS TABLE (way text, "position" int, event_id text, outcome text, duplicate boolean, error_code text) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE answers;
    INSERT INTO answers SELECT 'one', * FROM one_by_one(a, events, record);
    INSERT INTO answers SELECT 'all', * FROM unsafemv.apply_batch('batch', b, events, record_arrival => record, on_error => 'report');
    RETURN QUERY SELECT min(x.way), x."position", x.event_id, x.outcome, x.duplicate, x.error_code FROM answers x GROUP BY 2, 3, 4, 5, 6 HAVING count(*) <> 2 ORDER BY 2, 1;
END $$;

-- the answers, one row per event in the order given
SELECT unsafemv.create_view('batch', 'plain');
SELECT * FROM unsafemv.apply_batch('batch', 'plain', jsonb_build_array(event('e3', 3, up('k', '3')), event('e1', 1, up('k', '1')), event('e3', 3, up('k', '3')), event('e2', 2, patch('j', '{}')),
    event('e4', 4, del('i')), event('e5', 5, '{}'), event('e6', 6, patch('k', '{"a":6}'), 1), event('e2', 2, '{}')));
-- nothing to do
SELECT * FROM unsafemv.apply_batch('batch', 'plain', '[]');
SELECT * FROM unsafemv.apply_batch('batch', 'plain', '[]', on_error => 'report');
SELECT refused($$SELECT unsafemv.apply_batch('batch', 'nothing', '[]')$$) AS unknown_view, refused($$SELECT unsafemv.apply_batch('batch', 'plain', '{}')$$) AS no_array, refused($$SELECT unsafemv.apply_batch('batch', 'plain', '1')$$) AS scalar,
    refused($$SELECT unsafemv.apply_batch('batch', 'plain', '[]', on_error => 'ignore')$$) AS on_error, refused($$SELECT unsafemv.apply_batch('batch', 'plain', '[[]]')$$) AS event;
-- by default the first bad event ends it all
SELECT refused($$SELECT unsafemv.apply_batch('batch', 'plain', jsonb_build_array(event('e7', 7, up('k', '7')), event('e7', 8, up('k', '8'))))$$) AS contradiction,
    refused($$SELECT unsafemv.apply_batch('batch', 'plain', jsonb_build_array(event('e7', 7, up('k', '7')), event('e8', 8, '{"rowUpsert":[]}')))$$) AS plan,
    refused($$SELECT unsafemv.apply_batch('batch', 'plain', jsonb_build_array(event('e7', 7, up('k', '7')), event('e8', 8, up('k', '8'), 99)))$$) AS row_version;

-- report: a bad event leaves no trace, the others apply; events that contradict each other, within the batch
SELECT unsafemv.create_view('batch', name) FROM unnest(ARRAY['report one', 'report all']) AS name;
CREATE TEMP TABLE mixed AS SELECT jsonb_build_array(
    event('e1', 1, up('k', '1')),
    event('e1', 2, up('k', '2')),
    event('x', 1, up('k', '0')),
    event('e1', 1, up('k', '1')),
    event('e3', 3, '{"rowUpsert":[]}'),
    event('e3', 4, up('j', '4')),
    event('e5', 3, up('i', '3')),
    event('e6', 6, up('k', '6'), 99),
    event('e7', 6, up('k', '7')),
    event('e6', 8, up('k', '8')),
    event('e9', 9, up('k', '9'), 99),
    event('e9', 9, up('k', '9')),
    event('', 10, '{}'),
    '{"suid":"000000000000000000000000000010","mutations":{}}'::jsonb,
    '{"eventId":"e10","mutations":{}}'::jsonb,
    '{"eventId":"e10","suid":"10","mutations":{}}'::jsonb,
    '{"eventId":"e10","suid":"000000000000000000000000000010"}'::jsonb,
    event('e11', 11, patch('k', '[]')),
    event('e12', 12, up(repeat('k', 1025), '1'))) AS events;
SELECT * FROM compare('report one', 'report all', (SELECT events FROM mixed));
SELECT "position", event_id, outcome, duplicate, error_code FROM answers WHERE way = 'all' ORDER BY 1;
SELECT count(*) AS differences FROM differing('report one', 'report all');
SELECT event_id, short(suid::text), outcome FROM unsafemv.receipts WHERE service_id = 'batch' AND view_no = no('report all') ORDER BY suid;

-- random streams: any order, redelivery, contradictions, bad events, a head that moves
CREATE FUNCTION pick(variadic list text[]) RETURNS text LANGUAGE sql AS $$ SELECT list[1 + floor(random() * cardinality(list))] $$;
CREATE FUNCTION random_key() RETURNS text LANGUAGE sql AS $$ SELECT 'k' || floor(random() * 12) $$;
CREATE FUNCTION random_plan(keys int = 2) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb := '{"rowUpserts":[],"rowPatches":[],"rowDeletes":[],"indexEntries":[]}';
    key text;
    kind text;
BEGIN
    IF random() < 0.03 THEN RETURN '{}'; END IF;
    FOR i IN 1 .. 1 + floor(random() * keys) LOOP
        key := random_key();
        kind := pick('upsert', 'upsert', 'delete', 'patch', 'patch', 'patch', 'add', 'append', 'create');
        IF kind IN ('upsert') THEN
            plan := jsonb_set(plan, '{rowUpserts,100}', jsonb_build_object('rowKey', key, 'rowVersion', floor(random() * 3)::int, 'value', jsonb_build_object('n', floor(random() * 9)::int, 'status', pick('a', 'b'))), true);
        ELSIF kind = 'delete' THEN
            plan := jsonb_set(plan, '{rowDeletes,100}', to_jsonb(key), true);
        ELSE
            plan := jsonb_set(plan, '{rowPatches,100}', jsonb_build_object('rowKey', key, 'rowVersion', floor(random() * 3)::int, 'create', kind = 'create',
                'kind', CASE WHEN kind IN ('patch', 'create') THEN 'json_patch' ELSE kind END,
                'patch', CASE WHEN kind = 'add' THEN jsonb_build_object('n', floor(random() * 9)::int) WHEN kind = 'append' THEN jsonb_build_object('list', floor(random() * 9)::int)
                    ELSE jsonb_build_object('f' || floor(random() * 4)::int, CASE WHEN random() < 0.2 THEN NULL ELSE floor(random() * 9)::int END) END), true);
        END IF;
        IF random() < 0.3 THEN
            plan := jsonb_set(plan, '{indexEntries,100}', jsonb_build_object('rowKey', key, 'indexId', 'status', 'valueType', 'text', 'value', pick('x', 'y')), true);
        END IF;
    END LOOP;
    RETURN plan;
END $$;
CREATE FUNCTION random_events(first int, count int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    events jsonb[] := '{}';
    e jsonb;
    old jsonb;
BEGIN
    FOR i IN first .. first + count - 1 LOOP
        e := event('e' || i, 10 * (i + floor(random() * 40)::int), random_plan(), CASE WHEN random() < 0.05 THEN floor(random() * 3)::int END);
        IF cardinality(events) > 0 AND random() < 0.15 THEN
            old := events[1 + floor(random() * cardinality(events))];
            CASE floor(random() * 5)
                WHEN 0 THEN e := e || jsonb_build_object('suid', old -> 'suid');
                WHEN 1 THEN e := e || jsonb_build_object('eventId', old -> 'eventId');
                ELSE e := old;
            END CASE;
        END IF;
        IF random() < 0.04 THEN
            e := CASE floor(random() * 5) WHEN 0 THEN e - 'suid' WHEN 1 THEN e - 'mutations' WHEN 2 THEN e || '{"suid":"7"}' WHEN 3 THEN e || '{"mutations":{"rowDeletes":[""]}}' ELSE e || '{"mutations":{"rowPatch":[]}}' END;
        END IF;
        events := events || e;
    END LOOP;
    RETURN to_jsonb(events);
END $$;
-- moves the heads of both views to a SUID, over safe rows, past events that are still to come
CREATE FUNCTION move_head(views text[], n bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    plan jsonb := up(random_key(), jsonb_build_object('n', 100, 'safe', n), 1) || del(random_key());
    view text;
BEGIN
    FOREACH view IN ARRAY views LOOP
        PERFORM unsafemv.apply_safe('batch', view, (SELECT safe_contiguous_head::suid FROM unsafemv.read_meta('batch', view)), s(n), plan, 'safe' || n);
    END LOOP;
END $$;
CREATE TEMP TABLE runs (run serial, base text, indexes jsonb, record boolean);
INSERT INTO runs (base, indexes, record)
SELECT base, indexes, record FROM (VALUES ('composed'), ('unsafe')) AS b (base), (VALUES ('[]'::jsonb), ('[{"id":"n","type":"integer","path":"n"},{"id":"status","type":"text","path":"status"}]')) AS i (indexes), (VALUES (true), (false)) AS r (record)
ORDER BY 1, 2, 3;
CREATE TEMP TABLE sizes (step serial, size int);
INSERT INTO sizes (size) VALUES (1), (2), (3), (40), (1), (150), (7), (500), (1), (1000);
CREATE TEMP TABLE results (run int, step int, size int, answers bigint, contents bigint, outcomes text[]);
CREATE PROCEDURE run_streams() LANGUAGE plpgsql AS $$
DECLARE
    r record;
    z record;
    a text;
    b text;
    first int;
    events jsonb;
    different bigint;
BEGIN
    FOR r IN SELECT * FROM runs ORDER BY run LOOP
        PERFORM setseed(r.run / 100.0);
        a := 'one ' || r.run;
        b := 'all ' || r.run;
        PERFORM unsafemv.create_view('batch', name, base => r.base, indexes => r.indexes) FROM unnest(ARRAY[a, b]) AS name;
        first := 1;
        FOR z IN SELECT * FROM sizes ORDER BY step LOOP
            events := random_events(first, z.size);
            SELECT count(*) INTO different FROM compare(a, b, events, r.record);
            INSERT INTO results SELECT r.run, z.step, z.size, different, (SELECT count(*) FROM differing(a, b)),
                (SELECT array_agg(DISTINCT coalesce(outcome || CASE WHEN duplicate THEN '+' ELSE '' END, error_code)) FROM answers);
            first := first + z.size;
            IF z.step IN (3, 5, 7, 9) THEN
                PERFORM move_head(ARRAY[a, b], 10 * (first + 20) + 5);
                UPDATE results SET contents = contents + (SELECT count(*) FROM differing(a, b)) WHERE run = r.run AND step = z.step;
            END IF;
        END LOOP;
    END LOOP;
END $$;
CALL run_streams();
-- no answer and no row differs; a seed is the run's number by 100
SELECT * FROM results WHERE answers > 0 OR contents > 0 ORDER BY run, step;
SELECT run, base, indexes <> '[]' AS declared, record, (SELECT sum(size) FROM results q WHERE q.run = r.run) AS events,
    (SELECT array_agg(o) FROM results q, unnest(outcomes) o WHERE q.run = r.run) @> (ARRAY['applied', 'older', 'patch-not-found', 'delete-without-row', 'no-change', 'no-change+', 'UNSAFE_ROW_CAS_MISMATCH',
        'UNSAFE_SUID_CONTRADICTION', 'MV_PLAN_INVALID', 'MV_ROW_KEY_REQUIRED', 'MV_VALUE_INVALID', 'SUID_INVALID'] || CASE WHEN record THEN ARRAY['behind-frontier', 'behind-frontier+'] ELSE ARRAY['UNSAFE_SAFE_AHEAD'] END) AS all_outcomes
FROM runs r ORDER BY run;

-- one hot key: the cap of kept patches falls where it falls one by one
SELECT unsafemv.create_view('batch', name) FROM unnest(ARRAY['hot one', 'hot all']) AS name;
SELECT setseed(0.5);
CREATE TEMP TABLE hot AS SELECT i, event('h' || i, 10 * i, CASE WHEN i = 1 THEN up('hot', '{"n":0}') ELSE patch('hot', jsonb_build_object('n', 1), 'add') END) AS event, random() AS place FROM generate_series(1, 900) i;
SELECT count(*) AS answers FROM compare('hot one', 'hot all', (SELECT jsonb_agg(event ORDER BY place) FROM hot WHERE i <= 255));
SELECT count(*) AS contents FROM differing('hot one', 'hot all');
SELECT count(*) AS answers FROM compare('hot one', 'hot all', (SELECT jsonb_agg(event ORDER BY i) FROM hot WHERE i BETWEEN 256 AND 257));
SELECT count(*) AS contents FROM differing('hot one', 'hot all');
SELECT count(*) AS answers FROM compare('hot one', 'hot all', (SELECT jsonb_agg(event ORDER BY place) FROM hot WHERE i BETWEEN 250 AND 900));
SELECT count(*) AS contents FROM differing('hot one', 'hot all');
SELECT (value ->> 'n')::int = (SELECT count(*) - 1 FROM unsafemv.receipts WHERE service_id = 'batch' AND view_no = no('hot all') AND outcome IN ('applied', 'patch-not-found')) AS every_patch_taken_in_counts
FROM unsafemv.read_rows('batch', 'hot all');

-- an event that comes again in its batch with another plan is a duplicate: nothing of that plan is written
SELECT unsafemv.create_view('batch', 'twice ' || base, base => base) FROM unnest(ARRAY['composed', 'unsafe']) AS base;
SELECT v.view_id, m.mode, r.event_id, r.outcome, r.duplicate FROM unsafemv.views v, (VALUES (10, 'raise'), (20, 'report')) AS m(n, mode),
    unsafemv.apply_batch('batch', v.view_id, jsonb_build_array(event('t' || n, n, up('a', '1')), event('t' || n, n, up('b', '2')),
        event('n' || n, n + 1, '{}'), event('n' || n, n + 1, up('c', '3'))), on_error => mode) r
WHERE v.view_id LIKE 'twice%' ORDER BY v.view_id, n, r.position;
SELECT v.view_id, array_agg(r.row_key || '@' || r.value ORDER BY r.row_key) FROM unsafemv.views v, unsafemv.read_rows('batch', v.view_id) r WHERE v.view_id LIKE 'twice%' GROUP BY 1 ORDER BY 1;

-- the limit: 100,000 events, each with its answer
SELECT refused($$SELECT unsafemv.apply_batch('batch', 'plain', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 100001)))$$),
    refused($$SELECT unsafemv.apply_batch('batch', 'plain', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 100001)), on_error => 'report')$$);
SELECT count(*), min(r.position), max(r.position), min(error_code), max(error_code) FROM unsafemv.apply_batch('batch', 'plain', (SELECT jsonb_agg('{}'::jsonb) FROM generate_series(1, 100000)), on_error => 'report') r;

SELECT count(*) AS violations FROM unsafemv.check('batch');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'batch';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA batch_test CASCADE;
