-- Views and generations: creating, changing, dropping, looking up.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA instance_test;
RESET client_min_messages;
SET search_path = instance_test, unsafemv;

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

-- a generation in short
CREATE FUNCTION instance(service text, view text, number bigint) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s v%s head %s floor %s rows %s%s', i.generation, i.status, i.definition_version,
        coalesce(short(i.last_suid), '-'), coalesce(short(i.receipt_floor), '-'), i.row_count,
        CASE WHEN i.rebuild_required THEN ' rebuild required' ELSE '' END)
    FROM unsafemv.read_instance(service, view, number) i
$$;

-- scenario 12: a new view has generation 0, active, with no head; a second creation is refused and changes nothing
SELECT unsafemv.create_view('inst', 'orders');
SELECT instance('inst', 'orders', 0);
SELECT rebuild_required, behind_frontier_event_id, behind_frontier_suid, history_count, history_digest,
       rebuilt_source_event_count, rebuilt_source_max_suid, rebuilt_source_history_digest, rebuilt_at,
       created_at <= clock_timestamp() AS created, updated_at <= clock_timestamp() AS updated
FROM unsafemv.read_instance('inst', 'orders', 0);
SELECT view_no, active_generation, base, indexes, receipt_retention
FROM unsafemv.views WHERE service_id = 'inst' AND view_id = 'orders';
SELECT refused($$SELECT unsafemv.create_view('inst', 'orders')$$);
SELECT refused($$SELECT unsafemv.create_view('inst', 'orders', definition_version => 2, base => 'unsafe')$$);
-- the same name in another service is another view
SELECT unsafemv.create_view('inst2', 'orders', definition_version => 3, base => 'unsafe', receipt_retention => '2 hours');
SELECT instance('inst', 'orders', 0), instance('inst2', 'orders', 0);
SELECT view_no, base, receipt_retention FROM unsafemv.views WHERE service_id = 'inst2' AND view_id = 'orders';

-- scenario 13: a negative generation is refused; a given head is the head, and the receipt floor
SELECT refused($$SELECT unsafemv.create_view('inst', 'negative', generation => -1)$$);
SELECT unsafemv.create_view('inst', 'seeded', last_suid => s(7));
SELECT instance('inst', 'seeded', 0);

-- scenario 14: one active generation per view
SELECT refused($$SELECT unsafemv.create_view('inst', 'orders', generation => 3)$$);
SELECT unsafemv.create_view('inst', 'third', generation => 3, definition_version => 5);
SELECT instance('inst', 'third', 3);
SELECT refused($$INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status)
    SELECT service_id, view_no, 4, 5, 'active' FROM unsafemv.views WHERE service_id = 'inst' AND view_id = 'third'$$) AS unique_violation;

-- view numbers are small, one service's own
SELECT service_id, view_id, view_no FROM unsafemv.views WHERE service_id LIKE 'inst%' ORDER BY 1, 3;

-- scenario 19: any function on an unknown view, and on a view of another service
CREATE TEMP TABLE calls (n int, statement text);
INSERT INTO calls VALUES
    (1, $$unsafemv.alter_view(S, V, '1 hour')$$),
    (2, $$unsafemv.drop_view(S, V)$$),
    (3, $$unsafemv.read_instance(S, V, 0)$$),
    (4, $$unsafemv.read_active(S, V)$$),
    (5, $$unsafemv.apply(S, V, 'e', s(1), '{}')$$),
    (6, $$unsafemv.apply_batch(S, V, '[]')$$),
    (7, $$unsafemv.apply_batch(S, V, '[]', on_error => 'report')$$),
    (8, $$unsafemv.apply_safe(S, V, NULL, s(1), '{}', 'e')$$),
    (9, $$unsafemv.apply_safe_batch(S, V, NULL, '[]')$$),
    (10, $$unsafemv.observe_arrival(S, V, 'e', s(1))$$),
    (11, $$unsafemv.observe_safe_receipt(S, V, 'e', s(1))$$),
    (12, $$unsafemv.read_meta(S, V)$$),
    (13, $$unsafemv.has_target_receipt(S, V, 'e', s(1))$$),
    (14, $$unsafemv.query_composed_page(S, V)$$),
    (15, $$unsafemv.query_composed_page(S, V, consistency => 'safe')$$),
    (16, $$unsafemv.composed_page(S, V)$$),
    (17, $$unsafemv.query_rows(S, V, 'i', 'text')$$),
    (18, $$unsafemv.read_rows(S, V)$$),
    (19, $$unsafemv.read_index_entries(S, V)$$),
    (20, $$unsafemv.create_typed_view(S, V, 'instance_test.typed', 'id text')$$),
    (21, $$unsafemv.require_open_gate(S, V)$$),
    (22, $$unsafemv.begin_rebuild(S, V, 1)$$),
    (23, $$unsafemv.next_generation(S, V)$$),
    (24, $$unsafemv.mark_generation_rebuilt(S, V, 1, 0, NULL, NULL)$$),
    (25, $$unsafemv.mark_generation_rebuilt(S, V, 1, 1, s(1), sha256(''))$$),
    (26, $$unsafemv.promote_generation(S, V, 1, 0)$$),
    (27, $$unsafemv.reopen_generation(S, V, 1)$$),
    (28, $$unsafemv.drop_generation(S, V, 1)$$),
    (29, $$unsafemv.dismiss_event(S, V, 'e', s(1), 'reason')$$),
    (30, $$unsafemv.record_checkpoint_ahead(S, V, s(1))$$),
    (31, $$unsafemv.record_ordering_quarantine(S, V, 'e', s(1))$$),
    (32, $$unsafemv.record_unsafe_failure(S, V, 'e', s(1), 'error')$$),
    (33, $$unsafemv.resolve_finding(S, V, 'poison-event')$$),
    (34, $$unsafemv.read_findings(S, V)$$),
    (35, $$unsafemv.acquire_kick(S, V, 'owner', '1 minute')$$),
    (36, $$unsafemv.renew_kick(S, V, 'owner', 1, '1 minute')$$),
    (37, $$unsafemv.finish_kick(S, V, 'owner', NULL, 1)$$),
    (38, $$unsafemv.read_wait_state(S, V, 'e', s(1))$$),
    (39, $$unsafemv.wait_for(S, V, 'e', s(1), '0 s')$$),
    (40, $$unsafemv.garbage_collect(S, V, 0, 1, 'k', 1, s(1), s(1))$$),
    (41, $$unsafemv.garbage_collect(S, V, 0, 1, 'k', 1, s(1), s(1), strict => true)$$),
    (42, $$unsafemv.collect_eligible(S, V, 0, 1, s(1))$$),
    (43, $$unsafemv.attach_projection(S, V, 'nothing', 'nothing')$$),
    (44, $$unsafemv.detach_projection(S, V)$$),
    (45, $$unsafemv.skip_event(S, V, 'e', 'reason')$$),
    (46, $$unsafemv.retry_event(S, V, 'e')$$);
-- those there are; procedures that commit cannot be called from here
CREATE FUNCTION called(statement text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT substring(statement FROM 'unsafemv\.(\w+)') $$;
CREATE TEMP VIEW known_calls AS SELECT * FROM calls WHERE EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'unsafemv'::regnamespace AND proname = called(statement));
SELECT proname AS not_called FROM pg_proc WHERE pronamespace = 'unsafemv'::regnamespace AND prokind = 'f' AND proname <> 'create_view'
    AND proargnames[1:pronargs] @> ARRAY['service_id', 'view_id'] AND proname NOT IN (SELECT called(statement) FROM calls) ORDER BY 1;
SELECT n, refused('SELECT ' || replace(replace(statement, 'S,', '''inst'','), 'V', '''unknown''')) AS unknown_view,
       refused('SELECT ' || replace(replace(statement, 'S,', '''inst2'','), 'V', '''third''')) AS unknown_in_this_service,
       refused('SELECT ' || replace(replace(statement, 'S,', '''nobody'','), 'V', '''orders''')) AS unknown_service
FROM calls WHERE n <= 21 ORDER BY n;
SELECT c.n, r.code, c.statement FROM known_calls c, (VALUES ('inst', 'unknown'), ('inst2', 'third'), ('nobody', 'orders')) AS v (service, view),
    LATERAL refused('SELECT ' || replace(replace(statement, 'S,', quote_literal(service) || ','), 'V', quote_literal(view))) AS r (code)
WHERE r.code <> 'MV_VIEW_MISSING' ORDER BY 1, 2;

-- and with NULL or nothing where a service or view is required
SELECT c.n, r.code, v.service, v.view, c.statement FROM known_calls c, (VALUES (NULL, 'orders'), ('inst', NULL), ('', 'orders'), ('inst', ''), (NULL, NULL)) AS v (service, view),
    LATERAL refused('SELECT ' || replace(replace(statement, 'S,', quote_nullable(service) || ','), 'V', quote_nullable(view))) AS r (code)
WHERE r.code <> 'MV_VALUE_INVALID' ORDER BY 1, 2, 3, 4;

-- scenario 24: an unknown generation, and an unknown view
SELECT refused($$SELECT unsafemv.apply_safe('inst', 'orders', NULL, s(1), '{}', 'e', generation => 9)$$),
       refused($$SELECT unsafemv.apply_safe_batch('inst', 'orders', NULL, '[]', generation => 9)$$),
       refused($$SELECT unsafemv.apply_safe('inst', 'nothing', NULL, s(1), '{}', 'e', generation => 9)$$);
SELECT refused($$SELECT unsafemv.apply_safe('inst', 'orders', NULL, s(1), '{}', 'e', generation => -1)$$),
       refused($$SELECT unsafemv.apply('inst', 'orders', 'e', s(1), '{}', generation => -1)$$);

-- create_view with bad input
SELECT n, refused('SELECT unsafemv.create_view(' || arguments || ')') AS code, arguments
FROM (VALUES
    (1, $$'inst', 'bad', definition_version => 0$$),
    (2, $$'inst', 'bad', definition_version => -1$$),
    (3, $$'inst', 'bad', definition_version => NULL$$),
    (4, $$'inst', 'bad', generation => NULL$$),
    (5, $$'inst', 'bad', indexes => NULL$$),
    (6, $$'inst', 'bad', base => NULL$$),
    (7, $$'inst', 'bad', base => 'Composed'$$),
    (8, $$'inst', 'bad', receipt_retention => NULL$$),
    (9, $$'inst', 'bad', receipt_retention => '-1 second'$$),
    (10, $$'inst', 'bad', last_suid => ''$$),
    (11, $$'inst', 'bad', last_suid => '999999999999999999999999999999'$$),
    (12, $$repeat('x', 256), 'bad'$$),
    (13, $$'inst', repeat('x', 256)$$),
    (14, $$'inst', repeat('x', 100000)$$),
    (15, $$'inst', 'bad', indexes => '{}'$$),
    (16, $$'inst', 'bad', indexes => '1'$$),
    (17, $$'inst', 'bad', indexes => '["status"]'$$),
    (18, $$'inst', 'bad', indexes => '[{"id":"a","type":"text"}]'$$),
    (19, $$'inst', 'bad', indexes => '[{"id":"a","path":"a"}]'$$),
    (20, $$'inst', 'bad', indexes => '[{"type":"text","path":"a"}]'$$),
    (21, $$'inst', 'bad', indexes => '[{"id":"a","type":"numeric","path":"a"}]'$$),
    (22, $$'inst', 'bad', indexes => '[{"id":"","type":"text","path":"a"}]'$$),
    (23, $$'inst', 'bad', indexes => '[{"id":1,"type":"text","path":"a"}]'$$),
    (24, $$'inst', 'bad', indexes => '[{"id":"a","type":"text","path":"a","unique":true}]'$$),
    (25, $$'inst', 'bad', indexes => '[{"id":"a","type":"text","path":"a"},{"id":"a","type":"integer","path":"b"}]'$$),
    (26, $$'inst', 'bad', indexes => jsonb_build_array(jsonb_build_object('id', repeat('i', 64), 'type', 'text', 'path', 'a'))$$),
    (27, $$'inst', 'bad', indexes => (SELECT jsonb_agg(jsonb_build_object('id', 'i' || n, 'type', 'text', 'path', 'a')) FROM generate_series(1, 257) n)$$),
    (28, $$'inst', 'bad', indexes => (SELECT jsonb_agg(jsonb_build_object('id', 'i' || n, 'type', 'text', 'path', 'a')) FROM generate_series(1, 60000) n)$$)
) AS c (n, arguments) ORDER BY n;
SELECT unsafemv.create_view('inst', 'bad', indexes => (SELECT jsonb_agg(jsonb_build_object('id', 'i' || n, 'type', 'text', 'path', 'a')) FROM generate_series(1, 257) n));
-- the most indexes; each takes its entry
SELECT unsafemv.create_view('inst3', 'most', indexes => (SELECT jsonb_agg(jsonb_build_object('id', 'i' || n, 'type', 'text', 'path', 'a')) FROM generate_series(1, 256) n));
SELECT outcome FROM unsafemv.apply('inst3', 'most', 'e1', s(1), '{"rowUpserts":[{"rowKey":"a","value":{"a":"x"}}]}');
SELECT index_entries FROM unsafemv.apply_safe('inst3', 'most', NULL, s(1), '{"rowUpserts":[{"rowKey":"a","value":{"a":"x"}}]}', 'e1');
-- the greatest numbers
SELECT unsafemv.create_view('inst', 'greatest', definition_version => 9223372036854775807,
    generation => 9223372036854775807, last_suid => '315537897599999999999999999999',
    receipt_retention => '0 seconds',
    indexes => jsonb_build_array(jsonb_build_object('id', repeat('i', 63), 'type', 'text', 'path', 'a.b.c')));
SELECT instance('inst', 'greatest', 9223372036854775807);
SELECT refused($$SELECT unsafemv.create_view('inst', 'bad', generation => 9223372036854775808)$$) AS no_such_function;
SELECT count(*) FROM unsafemv.views WHERE view_id = 'bad';

-- alter_view: the retention, and nothing else
SELECT unsafemv.alter_view('inst', 'orders', '3 hours');
SELECT receipt_retention FROM unsafemv.views WHERE service_id = 'inst' AND view_id = 'orders';
SELECT refused($$SELECT unsafemv.alter_view('inst', 'orders', NULL)$$),
       refused($$SELECT unsafemv.alter_view('inst', 'orders', '-1 second')$$);
SELECT instance('inst', 'orders', 0);

-- read_instance and read_active
SELECT refused($$SELECT unsafemv.read_instance('inst', 'orders', -1)$$),
       refused($$SELECT unsafemv.read_instance('inst', 'orders', 1)$$),
       refused($$SELECT unsafemv.read_instance('inst', 'orders', NULL)$$);
SELECT a IS NOT DISTINCT FROM i AS same
FROM unsafemv.read_active('inst', 'orders') a, unsafemv.read_instance('inst', 'orders', 0) i;
SELECT generation FROM unsafemv.read_active('inst', 'greatest');
-- an older generation can be read, and is not the active one
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status, last_suid)
SELECT service_id, view_no, 1, 5, 'retired', s(4) FROM unsafemv.views WHERE service_id = 'inst' AND view_id = 'third';
SELECT instance('inst', 'third', 1), (SELECT generation FROM unsafemv.read_active('inst', 'third')) AS active;

-- drop_view, in bounded calls: from the first on nothing is active, and the rest of the service stays
SELECT outcome FROM unsafemv.apply('inst', 'third', 'e5', s(5), '{"rowUpserts":[{"rowKey":"a","value":{}},{"rowKey":"b","value":{}}]}');
SELECT row_upserts FROM unsafemv.apply_safe('inst', 'third', NULL, s(1), '{"rowUpserts":[{"rowKey":"c","value":{}}],"indexEntries":[{"rowKey":"c","indexId":"i","valueType":"integer","value":1}]}', 'e1');
SELECT outcome FROM unsafemv.apply('inst', 'third', 'e6', s(6), '{}');
SELECT outcome FROM unsafemv.apply('inst', 'orders', 'e5', s(5), '{"rowUpserts":[{"rowKey":"a","value":{}}]}');
SELECT refused($$SELECT unsafemv.drop_view('inst', 'third', -1)$$);
BEGIN ISOLATION LEVEL REPEATABLE READ;
\set VERBOSITY sqlstate
SELECT unsafemv.drop_view('inst', 'third');
\set VERBOSITY default
ROLLBACK;
-- two tentative rows, one marker, three receipts, one entry, one safe row
SELECT unsafemv.drop_view('inst', 'third', 0) AS remaining;
SELECT instance('inst', 'third', 3) AS shown_while_dropping;
SELECT unsafemv.drop_view('inst', 'third', 3) AS remaining;
SELECT refused($$SELECT unsafemv.read_active('inst', 'third')$$) AS read_active,
       refused($$SELECT unsafemv.apply('inst', 'third', 'e7', s(7), '{}')$$) AS apply,
       refused($$SELECT unsafemv.apply('inst', 'third', 'e7', s(7), '{}', generation => 3)$$) AS apply_3,
       refused($$SELECT unsafemv.apply_safe('inst', 'third', s(1), s(7), '{}', 'e7')$$) AS apply_safe,
       refused($$SELECT unsafemv.apply_safe('inst', 'third', s(1), s(7), '{}', 'e7', generation => 3)$$) AS apply_safe_3,
       refused($$SELECT unsafemv.query_composed_page('inst', 'third')$$) AS page,
       refused($$SELECT unsafemv.create_view('inst', 'third')$$) AS create_view;
SELECT unsafemv.drop_view('inst', 'third', 4) AS remaining;
SELECT unsafemv.drop_view('inst', 'third', 4) AS remaining;
SELECT refused($$SELECT unsafemv.drop_view('inst', 'third')$$) AS gone,
       refused($$SELECT unsafemv.read_active('inst', 'third')$$) AS read_active;
SELECT instance('inst', 'orders', 0), (SELECT count(*) FROM unsafemv.query_composed_page('inst', 'orders')) AS rows;
-- nothing of it is left in any table
CREATE FUNCTION leftovers(service text) RETURNS TABLE (relation text, view_no bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR relation IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'view_no'
        WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind = 'r' ORDER BY 1
    LOOP
        FOR view_no IN EXECUTE format('SELECT DISTINCT t.view_no FROM unsafemv.%I t WHERE t.service_id = $1 AND NOT EXISTS (
            SELECT FROM unsafemv.views v WHERE v.service_id = $1 AND v.view_no = t.view_no) ORDER BY 1', relation) USING service
        LOOP
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;
SELECT * FROM leftovers('inst');
-- created anew, it has a number nobody had
SELECT unsafemv.create_view('inst', 'third');
SELECT view_no = 5 AS new_number FROM unsafemv.views WHERE service_id = 'inst' AND view_id = 'third';
SELECT instance('inst', 'third', 0), (SELECT count(*) FROM unsafemv.query_composed_page('inst', 'third')) AS rows;

SELECT * FROM unsafemv.check('inst');
SELECT * FROM unsafemv.check('inst2');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id LIKE 'inst%';
SELECT * FROM leftovers('inst');
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA instance_test CASCADE;
