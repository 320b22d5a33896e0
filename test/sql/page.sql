-- Reads: gate, composed pages, rows by key and by index, SQL views.  The tables
-- are filled by hand, so that each case shows exactly what it is about.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA page_test;
RESET client_min_messages;
SET search_path = page_test, pg_catalog;

CREATE FUNCTION s(n bigint) RETURNS unsafemv.suid LANGUAGE sql IMMUTABLE AS
$$ SELECT pg_catalog.lpad(n::text, 30, '0')::unsafemv.suid $$;

-- a view with one active generation; every view has its own number
CREATE PROCEDURE new_view(name text, head bigint, indexes jsonb = '[]') LANGUAGE plpgsql AS $$
DECLARE no bigint;
BEGIN
    INSERT INTO unsafemv.services VALUES ('page', 1)
    ON CONFLICT (service_id) DO UPDATE SET last_view_no = services.last_view_no + 1
    RETURNING last_view_no INTO no;
    INSERT INTO unsafemv.views (service_id, view_id, view_no, active_generation, last_generation, base, indexes, receipt_retention)
    VALUES ('page', name, no, 0, 0, 'composed', indexes, '1 day');
    INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status, last_suid)
    VALUES ('page', no, 0, 1, 'active', s(head));
END $$;
CREATE FUNCTION no(name text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'page' AND view_id = name $$;

-- rows in text form, key@suid; a star marks the tentative ones
CREATE PROCEDURE safe(view text, key text, suid bigint, value jsonb = '{}') LANGUAGE sql AS $$
    INSERT INTO unsafemv.rows (service_id, view_no, generation, row_key, source_suid, row_version, value)
    VALUES ('page', no(view), 0, key, s(suid), 1, value)
    ON CONFLICT (service_id, view_no, generation, row_key)
    DO UPDATE SET source_suid = excluded.source_suid, value = excluded.value;
    UPDATE unsafemv.generations g SET row_count = (SELECT count(*) FROM unsafemv.rows r
        WHERE (r.service_id, r.view_no, r.generation) = (g.service_id, g.view_no, g.generation))
    WHERE (service_id, view_no) = ('page', no(view));
$$;
CREATE PROCEDURE receipt(view text, suid bigint, outcome text = 'applied', settled boolean = false) LANGUAGE sql AS $$
    INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at)
    VALUES ('page', no(view), 0, 'event-' || suid, s(suid), outcome, settled, now());
$$;
CREATE PROCEDURE tentative(view text, key text, suid bigint, value jsonb = '{}', entries jsonb = NULL) LANGUAGE sql AS $$
    INSERT INTO unsafemv.unsafe_rows (service_id, view_no, generation, row_key, source_suid, row_version, value, tombstone, entries)
    VALUES ('page', no(view), 0, key, s(suid), 2, value, value IS NULL, entries)
    ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE
    SET source_suid = excluded.source_suid, value = excluded.value, tombstone = excluded.tombstone, entries = excluded.entries;
    INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at)
    VALUES ('page', no(view), 0, 'event-' || suid, s(suid), 'applied', false, now()) ON CONFLICT DO NOTHING;
$$;
CREATE PROCEDURE entry(view text, key text, id text, type text, value text) LANGUAGE sql AS $$
    INSERT INTO unsafemv.index_entries (service_id, view_no, generation, row_key, index_id, value_type, text_value, integer_value, real_value, derived)
    VALUES ('page', no(view), 0, key, id, type, CASE type WHEN 'text' THEN value END,
        CASE type WHEN 'integer' THEN value::bigint END, CASE type WHEN 'real' THEN value::float8 END, false);
$$;
CREATE PROCEDURE head(view text, suid bigint) LANGUAGE sql AS $$
    UPDATE unsafemv.generations SET last_suid = s(suid) WHERE (service_id, view_no) = ('page', no(view));
    UPDATE unsafemv.receipts r SET settled = true WHERE (service_id, view_no) = ('page', no(view)) AND r.suid OPERATOR(unsafemv.<=) s($2);
$$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;
CREATE FUNCTION page(view text, "limit" bigint = 100, "offset" bigint = 0, descending boolean = false,
    after_suid bigint = NULL, after_key text = NULL, with_total boolean = true, consistency text = 'composed')
RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(q.row_key || '@' || short(q.source_suid) || CASE WHEN q.unsafe THEN '*' ELSE '' END, ' ' ORDER BY q.n), '-')
        || coalesce(' of ' || min(q.total_count), '')
    FROM unsafemv.query_composed_page('page', view, $2, $3, $4, s($5), $6, $7, $8)
        WITH ORDINALITY q(row_key, value, row_version, source_suid, unsafe, total_count, n)
$$;
-- the error of a statement: code word and SQLSTATE
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE code text; state text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = CONSTRAINT_NAME, state = RETURNED_SQLSTATE;
    RETURN code || ' ' || state;
END $$;

-- scenario 39
CALL new_view('39', 2);
CALL safe('39', 'z', 1); CALL entry('39', 'z', 'count', 'integer', '2');
CALL safe('39', 'a', 2); CALL entry('39', 'a', 'count', 'integer', '1');
SELECT row_key FROM unsafemv.query_rows('page', '39', 'count', 'integer', "limit" => 1);

-- scenario 40
SELECT refused($$SELECT * FROM unsafemv.query_rows('page', '39', 'count', 'integer', "limit" => -1)$$);
SELECT refused($$SELECT * FROM unsafemv.query_rows('page', '39', 'count', 'integer', "offset" => -1)$$);
CALL new_view('40', 7);
DO $$ BEGIN FOR n IN 1..7 LOOP CALL safe('40', 'k' || n, n); CALL entry('40', 'k' || n, 'i', 'integer', n::text); END LOOP; END $$;
SELECT row_key FROM unsafemv.query_rows('page', '40', 'i', 'integer', "limit" => NULL, "offset" => 5);
SELECT page('40', NULL, 5);
SELECT row_key FROM unsafemv.read_rows('page', '40', "limit" => NULL, "offset" => 5);
SELECT value FROM unsafemv.read_index_entries('page', '40', "limit" => NULL, "offset" => 5);

-- scenario 113: the tentative row above the head wins; one at or below it is not shown
CALL new_view('113', 2);
CALL safe('113', 'k', 2, '{"n": 2}');
CALL tentative('113', 'k', 4, '{"n": 4}');
SELECT * FROM unsafemv.query_composed_page('page', '113');
CALL head('113', 4);
SELECT * FROM unsafemv.query_composed_page('page', '113');

-- scenario 114: arrivals in reversed order, then the safe lane in order
SELECT count(*) FROM unsafemv.create_view('page', '114');
SELECT outcome FROM unsafemv.apply('page', '114', 'event-2', s(2), '{"rowUpserts": [{"rowKey": "k", "value": {"n": 2}}]}');
SELECT outcome FROM unsafemv.apply('page', '114', 'event-1', s(1), '{"rowUpserts": [{"rowKey": "k", "value": {"n": 1, "old": true}}]}');
SELECT row_key, value, short(source_suid), unsafe, total_count FROM unsafemv.query_composed_page('page', '114');
SELECT short(last_suid) FROM unsafemv.apply_safe_batch('page', '114', NULL, jsonb_build_array(
    jsonb_build_object('eventId', 'event-1', 'suid', s(1)::text, 'mutations', '{"rowUpserts": [{"rowKey": "k", "value": {"n": 1, "old": true}}]}'::jsonb),
    jsonb_build_object('eventId', 'event-2', 'suid', s(2)::text, 'mutations', '{"rowUpserts": [{"rowKey": "k", "value": {"n": 2}}]}'::jsonb)));
SELECT row_key, value, short(source_suid), unsafe, total_count FROM unsafemv.query_composed_page('page', '114');

-- scenario 115: a tombstone hides; a newer safe row shows again
CALL new_view('115', 4);
CALL safe('115', 'a', 3);
CALL safe('115', 'k', 4);
SELECT page('115');
CALL tentative('115', 'k', 6, NULL);
SELECT page('115');
SELECT unsafemv.composed_page('page', '115') ->> 'totalCount' AS total;
CALL head('115', 8);
CALL safe('115', 'k', 8);
SELECT page('115');

-- scenario 116: (source_suid, row_key), descending reverses both; pages cover each row once
CALL new_view('116', 3);
CALL safe('116', 'b', 1); CALL safe('116', 'a', 1); CALL safe('116', 'c', 3);
CALL tentative('116', 'e', 5); CALL tentative('116', 'd', 5);
SELECT page('116'), page('116', descending => true);
SELECT n, page('116', 2, n) AS ascending, page('116', 2, n, true) AS descending FROM generate_series(0, 8, 2) n;

-- scenario 117
SELECT page('116', NULL), page('116', NULL, descending => true);
SELECT refused($$SELECT page('116', -2)$$);
SELECT refused($$SELECT unsafemv.composed_page('page', '116', "limit" => -2)$$);

-- scenario 120: safe reads; readHead is the head, also of an empty page
SELECT page('116', consistency => 'safe');
SELECT unsafemv.composed_page('page', '116', consistency => 'safe', "offset" => 9)
    || '{"readHead": "replaced"}' AS page, short(unsafemv.composed_page('page', '116', consistency => 'safe', "offset" => 9) ->> 'readHead') AS read_head;

-- scenario 121: one row a page, over both lanes, in a read-only transaction
CALL new_view('121', 2);
CALL safe('121', 's', 2);
CALL tentative('121', 't', 4);
BEGIN READ ONLY;
SELECT page('121', 1, 0, true), page('121', 1, 1, true), page('121', 1, 2, true);
SELECT count(*) FROM unsafemv.read_rows('page', '121');
SELECT count(*) FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = '121';
SELECT locktype, mode FROM pg_locks WHERE pid = pg_backend_pid() AND mode NOT IN ('AccessShareLock', 'ExclusiveLock');
ROLLBACK;

-- scenario 122: no read shows a tentative row at or below the head
CALL new_view('122', 4);
CALL safe('122', 'a', 1);
CALL tentative('122', 'b', 4, '{}', '[["i", "integer", 1]]');
UPDATE unsafemv.receipts SET settled = true WHERE (service_id, view_no) = ('page', no('122'));
SELECT page('122');
SELECT row_key FROM unsafemv.read_rows('page', '122');
SELECT row_key FROM unsafemv.read_rows('page', '122', ARRAY['b', 'a']);
SELECT count(*) FROM unsafemv.read_index_entries('page', '122');
SELECT count(*) FROM unsafemv.query_rows('page', '122', 'i', 'integer');
SELECT row_key FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = '122';

-- scenario 129
CALL new_view('129', 2);
CALL safe('129', 'older', 1);
CALL safe('129', 'newer', 2);
SELECT page('129', descending => true);

-- scenario 131: a cursor; rows inserted meanwhile; equal SUIDs split by the cursor
CALL new_view('131', 10);
DO $$ BEGIN FOR n IN 1..9 LOOP CALL safe('131', 'k' || n, (n + 2) / 3); END LOOP; END $$;
CALL tentative('131', 'k2', 20); CALL tentative('131', 't1', 20); CALL tentative('131', 't2', 21);
SELECT page('131', 4);
CALL safe('131', 'k10', 1);
CALL safe('131', 'k95', 3);
SELECT page('131', 4, after_suid => 2, after_key => 'k5');
SELECT page('131', 4, after_suid => 3, after_key => 'k9'), page('131', 4, after_suid => 20, after_key => 'k2');
SELECT page('131', 4, descending => true), page('131', 3, descending => true, after_suid => 20, after_key => 'k2');
SELECT page('131', 99, descending => true, after_suid => 3, after_key => 'k7'), page('131', after_suid => 21, after_key => 't2');
SELECT page('131', 2, 1, after_suid => 3, after_key => 'k8'), page('131', consistency => 'safe', after_suid => 3, after_key => 'k8');
-- next leads through all rows, in both directions, and ends with null
WITH RECURSIVE walk AS (
    SELECT d, unsafemv.composed_page('page', '131', "limit" => 2, descending => d) AS page FROM (VALUES (true), (false)) v(d)
    UNION ALL
    SELECT d, unsafemv.composed_page('page', '131', "limit" => 2, descending => d,
        after_suid => page -> 'next' ->> 'afterSuid', after_key => page -> 'next' ->> 'afterKey')
    FROM walk WHERE page -> 'next' <> 'null'
)
SELECT d AS descending, count(*) AS pages, count(DISTINCT r ->> 'rowKey') AS keys, count(*) FILTER (WHERE r IS NULL) AS empty,
    min(page ->> 'totalCount') AS total
FROM walk LEFT JOIN LATERAL jsonb_array_elements(page -> 'rows') r ON true GROUP BY d ORDER BY d;
SELECT refused($$SELECT unsafemv.composed_page('page', '131', after_key => 'k')$$);
SELECT refused($$SELECT unsafemv.composed_page('page', '131', after_suid => repeat('0', 30))$$);

-- composed_page in full; null where nothing is visible
SELECT jsonb_pretty(unsafemv.composed_page('page', '113'));
CALL new_view('empty', NULL);
SELECT unsafemv.composed_page('page', 'empty'), unsafemv.composed_page('page', 'empty', with_total => false, consistency => 'safe');

-- scenario 132: gate closed; every read refuses, other views do not
CALL new_view('132', 6);
CALL safe('132', 'a', 5);
CREATE TABLE reads (statement text);
INSERT INTO reads VALUES
    ($$SELECT * FROM unsafemv.query_composed_page('page', '132')$$),
    ($$SELECT * FROM unsafemv.query_composed_page('page', '132', consistency => 'safe')$$),
    ($$SELECT unsafemv.composed_page('page', '132')$$),
    ($$SELECT unsafemv.composed_page('page', '132', consistency => 'safe')$$),
    ($$SELECT * FROM unsafemv.query_rows('page', '132', 'i', 'integer')$$),
    ($$SELECT * FROM unsafemv.query_rows('page', '132', 'i', 'integer', consistency => 'safe')$$),
    ($$SELECT * FROM unsafemv.read_rows('page', '132')$$),
    ($$SELECT * FROM unsafemv.read_rows('page', '132', consistency => 'safe')$$),
    ($$SELECT * FROM unsafemv.read_index_entries('page', '132')$$),
    ($$SELECT * FROM unsafemv.read_index_entries('page', '132', consistency => 'safe')$$),
    ($$SELECT * FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = '132'$$),
    ($$SELECT count(*) FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = '132' AND row_key = 'no such'$$),
    ($$SELECT * FROM page_test.typed$$);
SELECT unsafemv.create_typed_view('page', '132', 'page_test.typed', 'n int');
SELECT DISTINCT refused(statement) FROM reads;
CALL receipt('132', 4, 'no-change');
SELECT DISTINCT refused(statement) FROM reads;
CALL receipt('132', 7);
SELECT DISTINCT refused(statement) FROM reads;
CALL receipt('132', 6, 'behind-frontier');
SELECT count(*), refused(statement) FROM reads GROUP BY 2;
SELECT gate FROM unsafemv.status WHERE service_id = 'page' AND view_id = '132';
SELECT count(*) FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = '129';
SELECT count(*) FROM unsafemv.current_rows c JOIN unsafemv.views v USING (service_id, view_id)
WHERE c.service_id = 'page' AND c.view_id = '129';
SELECT page('129');
SELECT FROM unsafemv.read_rows('page', '132');
DELETE FROM unsafemv.receipts WHERE (service_id, view_no) = ('page', no('132'));
UPDATE unsafemv.generations SET rebuild_required = true WHERE (service_id, view_no) = ('page', no('132'));
SELECT count(*), refused(statement) FROM reads GROUP BY 2;
UPDATE unsafemv.generations SET rebuild_required = false WHERE (service_id, view_no) = ('page', no('132'));

-- scenario 127: checkpoint-ahead closes both kinds, as long as it is open
INSERT INTO unsafemv.findings (service_id, view_no, generation, kind) VALUES ('page', no('132'), 0, 'checkpoint-ahead');
SELECT count(*), refused(statement) FROM reads GROUP BY 2;
UPDATE unsafemv.findings SET resolved_at = now() WHERE (service_id, view_no) = ('page', no('132'));
SELECT DISTINCT refused(statement) FROM reads;

-- scenario 125: an ordering quarantine closes safe reads only
INSERT INTO unsafemv.findings (service_id, view_no, generation, kind) VALUES ('page', no('132'), 0, 'ordering-quarantine');
SELECT refused(statement), statement ~ 'safe''' AS safe, count(*) FROM reads GROUP BY 1, 2 ORDER BY 1, 2;
SELECT gate, findings FROM unsafemv.status WHERE service_id = 'page' AND view_id = '132';
DELETE FROM unsafemv.findings WHERE (service_id, view_no) = ('page', no('132'));
-- one of another generation closes nothing
INSERT INTO unsafemv.findings (service_id, view_no, generation, kind) VALUES ('page', no('132'), 1, 'ordering-quarantine');
SELECT DISTINCT refused(statement) FROM reads;
DELETE FROM unsafemv.findings WHERE (service_id, view_no) = ('page', no('132'));

-- report 22: ties lose no rows between pages, in one lane and over both
CALL new_view('report 22', 1);
INSERT INTO unsafemv.rows (service_id, view_no, generation, row_key, source_suid, row_version, value)
SELECT 'page', no('report 22'), 0, 'k' || n, s(1), 1, '{}' FROM generate_series(1, 1000) n;
INSERT INTO unsafemv.unsafe_rows (service_id, view_no, generation, row_key, source_suid, row_version, value, tombstone)
SELECT 'page', no('report 22'), 0, 'k' || n, s(2), 1, '{}', false FROM generate_series(1, 500) n;
UPDATE unsafemv.generations SET row_count = 1000 WHERE (service_id, view_no) = ('page', no('report 22'));
WITH RECURSIVE walk AS (
    SELECT d, unsafemv.composed_page('page', 'report 22', "limit" => 7, descending => d) AS page FROM (VALUES (true), (false)) v(d)
    UNION ALL
    SELECT d, unsafemv.composed_page('page', 'report 22', "limit" => 7, descending => d,
        after_suid => page -> 'next' ->> 'afterSuid', after_key => page -> 'next' ->> 'afterKey')
    FROM walk WHERE page -> 'next' <> 'null'
)
SELECT d AS descending, count(*) AS rows, count(DISTINCT r ->> 'rowKey') AS keys FROM walk, jsonb_array_elements(page -> 'rows') r GROUP BY d ORDER BY d;
SELECT d AS descending, count(*) AS rows, count(DISTINCT row_key) AS keys
FROM (VALUES (true), (false)) v(d), generate_series(0, 999, 7) o,
    unsafemv.query_composed_page('page', 'report 22', "limit" => 7, "offset" => o, descending => d)
GROUP BY d ORDER BY d;

-- report 24: total and rows agree; a key of both lanes counts once, at its tentative place
CALL new_view('report 24', 3);
CALL safe('report 24', 'a', 1, '{"open": true}'); CALL entry('report 24', 'a', 'open', 'text', 'yes');
CALL safe('report 24', 'b', 2, '{"open": true}'); CALL entry('report 24', 'b', 'open', 'text', 'yes');
CALL safe('report 24', 'c', 3, '{"open": true}'); CALL entry('report 24', 'c', 'open', 'text', 'yes');
CALL tentative('report 24', 'a', 5, '{"open": false}', '[["open", "text", "no"]]');
CALL tentative('report 24', 'b', 6, NULL);
SELECT page('report 24'), page('report 24', 1), page('report 24', 1, 1), page('report 24', 1, 2);
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'report 24', 'open', 'text', 'yes');
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'report 24', 'open', 'text');
SELECT row_key FROM unsafemv.read_rows('page', 'report 24', ARRAY['c', 'b', 'a', 'c', 'x']);
SELECT row_key FROM unsafemv.read_rows('page', 'report 24', ARRAY['c', 'b', 'a', 'c', 'x'], descending => true, consistency => 'safe');
SELECT row_key, unsafe FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = 'report 24' AND value @> '{"open": true}' ORDER BY 1;

-- report 25: odd arguments
SELECT page('report 24', 0), page('report 24', NULL, 99), page('report 24', with_total => false);
SELECT unsafemv.composed_page('page', 'report 24', "limit" => 0) - 'readHead', unsafemv.composed_page('page', 'report 24', "offset" => 99) - 'readHead';
SELECT page('report 24', 9223372036854775807, 9223372036854775807), page('report 24', 9223372036854775807);
SELECT jsonb_array_length(unsafemv.composed_page('page', 'report 24', 9223372036854775807) -> 'rows');
SELECT call, refused('SELECT unsafemv.' || call) FROM (VALUES
    (1, $$query_composed_page('page', 'report 24', "offset" => -1)$$),
    (2, $$query_composed_page('page', 'report 24', "offset" => NULL)$$),
    (3, $$query_composed_page('page', 'report 24', descending => NULL)$$),
    (4, $$query_composed_page('page', 'report 24', with_total => NULL)$$),
    (5, $$query_composed_page('page', 'report 24', consistency => NULL)$$),
    (6, $$query_composed_page('page', 'report 24', consistency => 'dirty')$$),
    (7, $$query_composed_page(NULL, 'report 24')$$),
    (8, $$query_composed_page('page', NULL)$$),
    (9, $$query_composed_page('page', 'no such')$$),
    (10, $$composed_page('page', 'no such')$$),
    (11, $$read_rows('page', 'no such')$$),
    (12, $$read_rows('page', 'report 24', ARRAY['a', NULL])$$),
    (13, $$read_index_entries('page', 'no such')$$),
    (14, $$query_rows('page', 'no such', 'i', 'text')$$),
    (15, $$query_rows('page', 'report 24', NULL, 'text')$$),
    (16, $$query_rows('page', 'report 24', 'i', NULL)$$),
    (17, $$query_rows('page', 'report 24', 'i', 'numeric')$$),
    (18, $$query_rows('page', 'report 24', 'i', 'integer', '1', from_value => '1')$$),
    (19, $$query_rows('page', 'report 24', 'i', 'integer', '1.5')$$),
    (20, $$query_rows('page', 'report 24', 'i', 'integer', '9223372036854775808')$$),
    (21, $$query_rows('page', 'report 24', 'i', 'integer', from_value => '')$$),
    (22, $$query_rows('page', 'report 24', 'i', 'real', to_value => 'NaN')$$),
    (23, $$query_rows('page', 'report 24', 'i', 'real', to_value => '1e999')$$),
    (24, $$query_rows('page', 'report 24', 'i', 'real', '0x10')$$),
    (25, $$query_rows('page', 'report 24', 'i', 'text', repeat('x', 1025))$$),
    (26, $$query_composed_page('page', 'report 24', after_suid => repeat('0', 30), after_key => repeat('x', 1025))$$)
) v(n, call) ORDER BY n;

-- declared indexes
CALL new_view('declared', 1, '[{"id": "n", "type": "integer", "path": "n"}]');
SELECT refused($$SELECT unsafemv.query_rows('page', 'declared', 'n', 'integer')$$),
    refused($$SELECT unsafemv.query_rows('page', 'declared', 'n', 'real')$$),
    refused($$SELECT unsafemv.query_rows('page', 'declared', 'm', 'integer')$$),
    refused($$SELECT unsafemv.read_index_entries('page', 'declared', 'm')$$);

-- typed order and bounds, over both lanes: 9 before 10, bytes before locale
CALL new_view('typed', 9);
DO $$
DECLARE n int := 0; v text;
BEGIN
    FOREACH v IN ARRAY ARRAY['9', '10', '-1', '9223372036854775807', '-9223372036854775808'] LOOP
        n := n + 1; CALL safe('typed', 'i' || n, 1); CALL entry('typed', 'i' || n, 'i', 'integer', v);
    END LOOP;
    FOREACH v IN ARRAY ARRAY['1e300', '-0.5', '0.1', '2'] LOOP
        n := n + 1; CALL safe('typed', 'r' || n, 1); CALL entry('typed', 'r' || n, 'r', 'real', v);
    END LOOP;
    FOREACH v IN ARRAY ARRAY['b', 'B', 'a', '', U&'\00E9', U&'\+10FFFF'] LOOP
        n := n + 1; CALL safe('typed', 't' || n, 1); CALL entry('typed', 't' || n, 't', 'text', v);
    END LOOP;
END $$;
CALL tentative('typed', 'x', 11, '{}', '[["i", "integer", 10], ["r", "real", 1.5], ["t", "text", "A"], ["t", "integer", 3]]');
SELECT index_id, value_type, encode(convert_to(value, 'UTF8'), 'escape') AS value, row_key, unsafe
FROM unsafemv.read_index_entries('page', 'typed');
SELECT string_agg(quote_literal(encode(convert_to(value, 'UTF8'), 'escape')), ' ' ORDER BY n)
FROM unsafemv.read_index_entries('page', 'typed', 't', descending => true) WITH ORDINALITY e(index_id, value_type, value, row_key, unsafe, n);
SELECT array_agg(row_key ORDER BY n) FROM unsafemv.read_index_entries('page', 'typed', "limit" => 4, "offset" => 5)
    WITH ORDINALITY e(index_id, value_type, value, row_key, unsafe, n);
SELECT value, row_key FROM unsafemv.read_index_entries('page', 'typed', 'i', "limit" => 2, descending => true, consistency => 'safe');
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'typed', 'i', 'integer', from_value => '9', to_value => '10');
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'typed', 'i', 'integer', from_value => '9', to_value => '10', descending => true, "offset" => 1);
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'typed', 'r', 'real', from_value => '-0.5', to_value => '1.5');
SELECT row_key, index_value FROM unsafemv.query_rows('page', 'typed', 't', 'text', to_value => 'a');
SELECT count(*) FROM unsafemv.query_rows('page', 'typed', 't', 'text');
SELECT index_id, value_type, text_value, integer_value, real_value FROM unsafemv.unsafe_index_entries
WHERE service_id = 'page' AND view_no = no('typed') ORDER BY 1, 2;

-- stale tentative rows are refolded by every read: the base moved, or an operation is folded
CALL new_view('stale', 5, '[{"id": "n", "type": "integer", "path": "n"}]');
CALL safe('stale', 'k', 5, '{"n": 1, "old": true}');
INSERT INTO unsafemv.unsafe_rows (service_id, view_no, generation, row_key, source_suid, row_version, value, tombstone, entries, kept, kept_from, base_suid)
VALUES ('page', no('stale'), 0, 'k', s(9), 7, '{"n": 3}', false, '[["n", "integer", 3, true]]',
    jsonb_build_array(
        jsonb_build_object('suid', s(5)::text, 'ops', '[{"do": "patch", "kind": "add", "version": 6, "value": {"n": 1}}]'::jsonb),
        jsonb_build_object('suid', s(9)::text, 'ops', '[{"do": "patch", "kind": "add", "version": 7, "value": {"n": 10}}]'::jsonb)),
    s(5), NULL);
CALL receipt('stale', 9);
CALL entry('stale', 'k', 'm', 'text', 'explicit');
SELECT value, row_version, short(source_suid), unsafe, total_count FROM unsafemv.query_composed_page('page', 'stale');
SELECT value, row_version FROM unsafemv.read_rows('page', 'stale', ARRAY['k']);
SELECT row_key, value FROM unsafemv.query_rows('page', 'stale', 'n', 'integer', '11');
SELECT index_id, value FROM unsafemv.read_index_entries('page', 'stale');
SELECT value FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = 'stale';
-- its base was deleted: the patch has no row, the key is hidden
DELETE FROM unsafemv.index_entries WHERE (service_id, view_no) = ('page', no('stale'));
DELETE FROM unsafemv.rows WHERE (service_id, view_no) = ('page', no('stale'));
UPDATE unsafemv.generations SET row_count = 0 WHERE (service_id, view_no) = ('page', no('stale'));
SELECT unsafemv.composed_page('page', 'stale');

-- current_rows joins and filters, also in parallel workers; typed views
CREATE TABLE wanted (view text, key text);
INSERT INTO wanted VALUES ('113', 'k'), ('report 24', 'a'), ('report 24', 'b');
SELECT w.view, c.row_key, c.value, c.unsafe FROM wanted w
JOIN unsafemv.current_rows c ON c.service_id = 'page' AND c.view_id = w.view AND c.row_key = w.key ORDER BY 1;
BEGIN;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SET LOCAL min_parallel_index_scan_size = 0;
SELECT count(*), count(*) FILTER (WHERE unsafe) AS unsafe FROM unsafemv.current_rows WHERE service_id = 'page' AND view_id = 'report 22';
COMMIT;
CALL new_view('orders', 3);
CALL safe('orders', 'o1', 1, '{"total": 12.5, "strange \"name": [1], "id": "x"}');
CALL safe('orders', 'o2', 2, '[1, 2]');
CALL safe('orders', 'o3', 3, '{"total": null}');
CALL tentative('orders', 'o4', 5, '{"total": 7}');
SELECT unsafemv.create_typed_view('page', 'orders', 'page_test."Or""ders"', 'id text, total numeric(12,2), "strange ""name" jsonb, tags text[]');
SELECT * FROM "Or""ders" ORDER BY row_key;
SELECT total FROM "Or""ders" WHERE row_key = 'o4';
SELECT reloptions FROM pg_class WHERE oid = '"Or""ders"'::regclass;
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '"Or""ders"'::regclass AND attnum > 0 ORDER BY attnum;
CREATE TYPE mood AS ENUM ('good', 'bad');
SELECT unsafemv.create_typed_view('page', 'orders', 'page_test.moods', 'mood page_test.mood');
SELECT call, refused('SELECT unsafemv.create_typed_view(' || call || ')') FROM (VALUES
    (1, $$'page', 'no such', 'page_test.t', 'n int'$$),
    (2, $$'page', 'orders', 'unqualified', 'n int'$$),
    (3, $$'page', 'orders', NULL, 'n int'$$),
    (4, $$'page', 'orders', 'page_test.t', NULL$$),
    (5, $$'page', 'orders', 'page_test.t', ''$$),
    (6, $$'page', 'orders', 'page_test.t', 'n int default 1'$$),
    (7, $$'page', 'orders', 'page_test.t', 'n int, primary key (n)'$$),
    (8, $$'page', 'orders', 'page_test.t', 'n int); DROP TABLE page_test.wanted; CREATE TABLE page_test.u (n int'$$),
    (9, $$'page', 'orders', 'page_test.t', 'n int) INHERITS (page_test.wanted'$$),
    (10, $$'page', 'orders', 'page_test.t', 'n text COLLATE "C"'$$),
    (11, $$'page', 'orders', 'page_test.t', 'LIKE page_test.wanted'$$),
    (12, $$'page', 'orders', 'page_test.t', 'n record'$$),
    (13, $$'page', 'orders', 'page_test.t', 'n no_such_type'$$),
    (14, $$'page', 'orders', 'page_test.t', 'n'$$),
    (15, $$'page', 'orders', 'page_test.wanted', 'n int'$$)
) v(n, call) ORDER BY n;
SELECT count(*) FROM wanted;

-- check: what was made by hand wrong is found
CALL new_view('wrong', 3);
CALL safe('wrong', 'a', 4);
UPDATE unsafemv.generations SET row_count = 7, behind_frontier_suid = s(1) WHERE (service_id, view_no) = ('page', no('wrong'));
CALL entry('wrong', 'ghost', 'i', 'integer', '1');
CALL tentative('wrong', 'b', 5);
DELETE FROM unsafemv.receipts WHERE (service_id, view_no) = ('page', no('wrong'));
SELECT view_id, generation, invariant, detail FROM unsafemv.check('page') WHERE view_id = 'wrong';
CALL new_view('wrong 2', 3, '[{"id": "n", "type": "integer", "path": "n"}]');
CALL safe('wrong 2', 'a', 3, '{"n": 1}');
CALL tentative('wrong 2', 'b', 5, '{"n": 2}', '[["n", "integer", 3, true]]');
UPDATE unsafemv.views SET active_generation = 9 WHERE view_id = 'wrong 2';
SELECT view_id, generation, invariant, detail FROM unsafemv.check('page') WHERE view_id = 'wrong 2';
SELECT count(*) FROM unsafemv.check('no such service');
-- and nothing else is
SELECT view_id, generation, invariant, detail FROM unsafemv.check('page')
WHERE view_id NOT IN ('wrong', 'wrong 2', 'report 22');

-- status
SELECT view_id, generation, definition_version, short(head::text) AS head, head_age > '2000 years', tentative_rows,
    oldest_unsettled_age IS NOT NULL AS oldest, unsettled, receipts, gate, findings
FROM unsafemv.status WHERE view_id IN ('report 22', 'report 24', 'wrong 2', 'empty') AND service_id = 'page' ORDER BY view_id;

-- row level security: rows and total are the role's
CREATE ROLE page_test_reader;
GRANT USAGE ON SCHEMA unsafemv, page_test TO page_test_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA unsafemv TO page_test_reader;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unsafemv TO page_test_reader;
ALTER TABLE unsafemv.rows ENABLE ROW LEVEL SECURITY;
CREATE POLICY page_test ON unsafemv.rows USING (row_key <> 'a');
SET ROLE page_test_reader;
SELECT page('report 24'), page('report 24', consistency => 'safe'), page('39'), page('116');
RESET ROLE;
DROP POLICY page_test ON unsafemv.rows;
ALTER TABLE unsafemv.rows DISABLE ROW LEVEL SECURITY;
SELECT page('116');
SET ROLE page_test_reader;
SELECT page('116');
RESET ROLE;
DROP OWNED BY page_test_reader;
DROP ROLE page_test_reader;

-- current_rows: a closed gate is that of its view, however the planner finds the view,
-- and is judged before any condition on a row
CALL new_view('open', 5);
CALL safe('open', 'k', 5);
CALL new_view('shut', 5);
CALL receipt('shut', 4);
ANALYZE unsafemv.views;
CREATE FUNCTION shown(condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE constraint_name text; rows bigint;
BEGIN
    EXECUTE 'SELECT count(*) FROM unsafemv.current_rows WHERE service_id = ''page'' AND ' || condition INTO rows;
    RETURN rows;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS constraint_name = CONSTRAINT_NAME;
    RETURN constraint_name;
END $$;
CREATE PROCEDURE show_all(way text) LANGUAGE plpgsql AS $show$
DECLARE v text; r text;
BEGIN
    FOREACH v IN ARRAY ARRAY['view_id = $$open$$', 'view_id IN ($$open$$, $$a$$, $$b$$, $$c$$, $$d$$, $$e$$)', 'upper(view_id) = $$OPEN$$',
        'view_id = $$shut$$', 'view_id IN ($$open$$, $$shut$$)'] LOOP
        FOREACH r IN ARRAY ARRAY['true', 'row_key = $$k$$', 'row_key = $$none$$', 'row_version = 17', 'unsafe', 'value = $$7$$'] LOOP
            RAISE NOTICE '%, %, %: %', way, replace(v, '$$', ''), replace(r, '$$', ''), shown(v || ' AND ' || r);
        END LOOP;
    END LOOP;
END $show$;
CALL show_all('planner''s choice');
SET enable_indexscan = off;
SET enable_bitmapscan = off;
CALL show_all('sequential scan');
RESET enable_indexscan;
RESET enable_bitmapscan;

-- report 41: a page is one JSON value up to 256 MB, to within what a row takes beside its value; rows have no such limit
CALL new_view('large', 4);
CALL safe('large', 'k1', 1, to_jsonb(repeat('x', 89478000)));
CALL safe('large', 'k2', 2, to_jsonb(repeat('x', 89478000)));
CALL safe('large', 'k3', 3, to_jsonb(repeat('x', 89478000)));
CALL safe('large', 'k4', 4, to_jsonb(repeat('x', 89479000)));
SELECT n, octet_length(value) FROM jsonb_array_elements(unsafemv.composed_page('page', 'large', 3) -> 'rows') WITH ORDINALITY AS r (row, n),
    LATERAL (SELECT r.row ->> 'value') AS v (value) ORDER BY n;
SELECT refused($$SELECT unsafemv.composed_page('page', 'large', 3, after_suid => s(1), after_key => 'k1')$$);
SELECT refused($$SELECT unsafemv.composed_page('page', 'large', 3, descending => true, consistency => 'safe')$$);
SELECT row_key, octet_length(value #>> '{}') FROM unsafemv.query_composed_page('page', 'large', 3, after_suid => s(1), after_key => 'k1');

-- nothing is granted to PUBLIC
SELECT p.oid::regprocedure FROM pg_proc p
WHERE p.pronamespace = 'unsafemv'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')
    AND p.proname IN ('query_composed_page', 'composed_page', 'query_rows', 'read_rows', 'read_index_entries',
        'create_typed_view', 'check', 'refold', 'require_open_gate', 'derived_entries');

SET client_min_messages = warning;
DROP SCHEMA page_test CASCADE;
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['services', 'views', 'generations', 'rows', 'unsafe_rows', 'index_entries', 'receipts', 'markers', 'findings'] LOOP
        EXECUTE format('DELETE FROM unsafemv.%I WHERE service_id = ''page''', t);
    END LOOP;
END $$;
