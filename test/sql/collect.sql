-- Collection: what goes, what stays, and what a redelivery gets afterwards.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA collect_test;
RESET client_min_messages;
SET search_path = collect_test, unsafemv;

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

-- the code a statement is refused with, after "said" its message too; says so if anything was written
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before text := state();
    number text;
    word text;
    message text;
BEGIN
    EXECUTE statement;
    RAISE EXCEPTION USING ERRCODE = 'P0001', CONSTRAINT = 'NOT REFUSED', MESSAGE = '-';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, word = CONSTRAINT_NAME, message = MESSAGE_TEXT;
    IF word = '' THEN word := number;
    ELSIF number = 'P0001' THEN NULL;
    ELSIF number IS DISTINCT FROM (SELECT e.sqlstate FROM unsafemv.errors e WHERE e.code = word) THEN
        word := word || ' WITH SQLSTATE ' || number;
    END IF;
    RETURN word || CASE WHEN state() <> before THEN ' BUT WROTE' ELSE '' END || ': ' || message;
END $$;
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE sql AS $$ SELECT split_part(said(statement), ':', 1) $$;

-- what a view of service gc shows and holds, each as one line
CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'gc' AND view_id = view $$;
CREATE FUNCTION shown(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s v%s %s%s', row_key, short(source_suid), row_version, value, CASE WHEN unsafe THEN ' unsafe' END), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page('gc', view, NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s=%s->%s', index_id, value, row_key), ', ' ORDER BY index_id COLLATE "C", value COLLATE "C", row_key COLLATE "C"), '-')
    FROM unsafemv.read_index_entries('gc', view, NULL, NULL, consistency => entries.consistency)
$$;
CREATE FUNCTION receipts(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', event_id, short(suid::text), outcome, CASE WHEN settled THEN ' settled' END), ', ' ORDER BY suid, event_id), '-')
    FROM unsafemv.receipts WHERE service_id = 'gc' AND view_no = no(view)
$$;
CREATE FUNCTION markers(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s %s', event_id, short(suid::text), row_key, reason), ', ' ORDER BY suid, event_id, row_key), '-')
    FROM unsafemv.markers WHERE service_id = 'gc' AND view_no = no(view)
$$;
-- tentative rows as stored: key, SUID, value or -, kept SUIDs on their base
CREATE FUNCTION stored(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', row_key, short(source_suid::text), coalesce(value::text, '-'),
        ' keeps ' || (SELECT string_agg(short(k ->> 'suid'), '+' ORDER BY k ->> 'suid') FROM jsonb_array_elements(kept) k) || ' on ' || coalesce(short(base_suid::text), '-')), ', ' ORDER BY row_key), '-')
    FROM unsafemv.unsafe_rows WHERE service_id = 'gc' AND view_no = no(view)
$$;
CREATE FUNCTION meta(view text) RETURNS text LANGUAGE sql AS
$$ SELECT format('head %s, maximum %s, %s', coalesce(short(safe_contiguous_head), '-'), coalesce(short(unsafe_observed_max_suid), '-'), CASE WHEN rebuild_required THEN 'closed' ELSE 'open' END) FROM unsafemv.read_meta('gc', view) $$;
CREATE FUNCTION floor(view text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(short(receipt_floor), '-') FROM unsafemv.read_active('gc', view) $$;

-- plans
CREATE FUNCTION up(key text, value jsonb, version bigint = 1) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', value, 'rowVersion', version))) $$;
CREATE FUNCTION patch(key text, patch jsonb, version bigint = 1, "create" boolean = false, kind text = 'json_patch') RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowPatches', jsonb_build_array(jsonb_build_object('kind', kind, 'rowKey', key, 'patch', patch, 'rowVersion', version, 'create', "create"))) $$;
CREATE FUNCTION del(key text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowDeletes', jsonb_build_array(key)) $$;
CREATE FUNCTION entry(key text, index text, value text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', key, 'indexId', index, 'valueType', 'text', 'value', value))) $$;
-- an unsafe apply (old: delivered longer ago than any retention), a safe step, both kinds of collection; events are named by their SUID
CREATE FUNCTION put(view text, n bigint, plan jsonb, event text = NULL, old boolean = false) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END
    FROM unsafemv.apply('gc', view, coalesce(event, 'e' || n), s(n), plan, observed_at => CASE WHEN old THEN timestamptz '2001-01-01' END)
$$;
CREATE FUNCTION step(view text, n bigint, plan jsonb, event text = NULL, generation bigint = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT 'head ' || short(last_suid) FROM unsafemv.apply_safe('gc', view, (SELECT CASE WHEN step.generation IS NULL THEN (SELECT a.last_suid FROM unsafemv.read_active('gc', view) a) ELSE (SELECT i.last_suid FROM unsafemv.read_instance('gc', view, step.generation) i) END::suid),
        s(n), plan, coalesce(event, 'e' || n), step.generation)
$$;
CREATE FUNCTION collect(view text, head bigint, max_rows bigint = NULL, generation bigint = 0, version bigint = 1) RETURNS bigint LANGUAGE sql AS
$$ SELECT unsafemv.collect_eligible('gc', view, generation, version, s(head), max_rows) $$;
CREATE FUNCTION gc(view text, key text, n bigint, version bigint = 1, safe_head bigint = NULL, generation bigint = 0, definition bigint = 1, strict boolean = false) RETURNS boolean LANGUAGE sql AS
$$ SELECT unsafemv.garbage_collect('gc', view, generation, definition, key, gc.version, s(n), s(coalesce(gc.safe_head, n)), strict) $$;
-- a tentative row that its step leaves behind: it is away while the step runs, as a row that another transaction holds is for it
CREATE FUNCTION behind(view text, key text, n bigint, plan jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    u unsafemv.unsafe_rows;
    answer text;
BEGIN
    DELETE FROM unsafemv.unsafe_rows d WHERE d.service_id = 'gc' AND d.view_no = no(view) AND d.row_key = key RETURNING d.* INTO STRICT u;
    answer := step(view, n, plan);
    INSERT INTO unsafemv.unsafe_rows SELECT u.*;
    RETURN answer;
END $$;

-- scenario 102: settled through observe_safe_receipt; row, entries and markers go, the receipt stays for its retention
SELECT create_view('gc', 's102');
SELECT put('s102', 5, up('k', '{"a":5}', 7) || entry('k', 'i', 'five')), put('s102', 4, up('k', '4')), put('s102', 6, '{}'), observe_safe_receipt('gc', 's102', 'e4', s(4)), observe_safe_receipt('gc', 's102', 'e5', s(5));
INSERT INTO unsafemv.markers (service_id, view_no, generation, row_key, event_id, suid, reason) VALUES ('gc', no('s102'), 0, 'k', 'e3', s(3), 'older'), ('gc', no('s102'), 0, 'j', 'e3', s(3), 'older');
SELECT shown('s102'), stored('s102'), markers('s102'), meta('s102');
SELECT gc('s102', 'k', 5, 7), stored('s102'), entries('s102'), markers('s102') AS others_stay, receipts('s102'), floor('s102'), gc('s102', 'k', 5, 7) AS again;
SELECT put('s102', 5, up('k', '{"a":5}', 7) || entry('k', 'i', 'five')) AS redelivered, shown('s102'), has_target_receipt('gc', 's102', 'e5', s(5));

-- scenario 103: every guard by itself; false, with strict named; everything kept
SELECT create_view('gc', 's103');
SELECT put('s103', 5, up('k', '{"a":5}', 3) || entry('k', 'i', 'five')), put('s103', 9, up('j', '9')), behind('s103', 'k', 5, up('k', '{"a":5}', 3)), stored('s103');
CREATE TABLE before AS SELECT state();
SELECT gc('s103', 'k', 5, 3, safe_head => 4) AS safe_head, gc('s103', 'k', 5, 3, generation => 0, definition => 2) AS definition, gc('s103', 'k', 5, 2) AS version, gc('s103', 'k', 4, 3, safe_head => 9) AS source, gc('s103', 'missing', 5, 3) AS key, gc('s103', 'j', 9, 1) AS head;
SELECT said($$SELECT gc('s103', 'k', 5, 3, safe_head => 4, strict => true)$$) AS safe_head;
SELECT said($$SELECT gc('s103', 'k', 5, 3, definition => 2, strict => true)$$) AS definition;
SELECT said($$SELECT gc('s103', 'k', 5, 2, strict => true)$$) AS version;
SELECT said($$SELECT gc('s103', 'k', 4, 3, safe_head => 9, strict => true)$$) AS source;
SELECT said($$SELECT gc('s103', 'missing', 5, 3, strict => true)$$) AS key;
SELECT said($$SELECT gc('s103', 'j', 9, 1, safe_head => 100, strict => true)$$) AS head;
SELECT (SELECT state FROM before) = state() AS unchanged;
-- a generation that is not active: candidate, retired
SELECT begin_rebuild('gc', 's103', 1);
SELECT gc('s103', 'k', 5, 3, generation => 1) AS candidate, collect('s103', 5, generation => 1), said($$SELECT gc('s103', 'k', 5, 3, generation => 1, strict => true)$$) AS strict;
SELECT drop_generation('gc', 's103', 1), begin_rebuild('gc', 's103', 1, last_suid => s(5)), promote_generation('gc', 's103', 2, 0);
SELECT gc('s103', 'j', 9, 1, generation => 0) AS retired, collect('s103', 9), said($$SELECT gc('s103', 'j', 9, 1, generation => 0, strict => true)$$) AS strict, stored('s103');
-- the gate: an unsettled receipt at or below the head, and rebuild_required
SELECT create_view('gc', 's103b');
SELECT put('s103b', 5, up('k', '5')), behind('s103b', 'k', 5, up('k', '5')), put('s103b', 2, up('late', '2')), gc('s103b', 'k', 5) AS closed, collect('s103b', 5), said($$SELECT gc('s103b', 'k', 5, strict => true)$$) AS strict, stored('s103b'), receipts('s103b');
SELECT apply_safe_batch('gc', 's103b', s(5), '[]'), gc('s103b', 'k', 5) AS rebuild_required, said($$SELECT gc('s103b', 'k', 5, strict => true)$$) AS strict, collect('s103b', 5), stored('s103b');
SELECT dismiss_event('gc', 's103b', 'e2', s(2), 'void'), gc('s103b', 'k', 5) AS stays_required, collect('s103b', 5);
-- the receipt of the row's event: gone below the floor is as good as settled
SELECT create_view('gc', 's103c', receipt_retention => '0');
SELECT put('s103c', 5, up('k', '5')), behind('s103c', 'k', 5, up('k', '5'));
DELETE FROM unsafemv.receipts WHERE service_id = 'gc' AND view_no = no('s103c');
SELECT gc('s103c', 'k', 5) AS gone_above_floor, said($$SELECT gc('s103c', 'k', 5, strict => true)$$) AS strict;
UPDATE unsafemv.generations SET receipt_floor = s(5) WHERE service_id = 'gc' AND view_no = no('s103c');
SELECT gc('s103c', 'k', 5) AS gone_at_floor, stored('s103c'), shown('s103c');
-- a no-change event below the head closes no gate
SELECT create_view('gc', 's103d');
SELECT put('s103d', 5, up('k', '5')), put('s103d', 4, '{}'), behind('s103d', 'k', 5, up('k', '5')), gc('s103d', 'k', 5), receipts('s103d');

-- bad input
SELECT refused($$SELECT garbage_collect('gc', 'no view', 0, 1, 'k', 1, s(5), s(5))$$) AS view, refused($$SELECT garbage_collect(NULL, 's103b', 0, 1, 'k', 1, s(5), s(5))$$) AS null_service, refused($$SELECT garbage_collect('gc', NULL, 0, 1, 'k', 1, s(5), s(5))$$) AS null_view, refused($$SELECT garbage_collect('gc', 's103b', NULL, 1, 'k', 1, s(5), s(5))$$) AS null_generation,
    refused($$SELECT garbage_collect('gc', 's103b', 9, 1, 'k', 1, s(5), s(5))$$) AS missing, refused($$SELECT garbage_collect('gc', 's103b', -1, 1, 'k', 1, s(5), s(5))$$) AS negative, refused($$SELECT garbage_collect('gc', 's103b', 0, NULL, 'k', 1, s(5), s(5))$$) AS null_definition;
SELECT refused($$SELECT garbage_collect('gc', 's103b', 0, 1, NULL, 1, s(5), s(5))$$) AS null_key, refused($$SELECT garbage_collect('gc', 's103b', 0, 1, 'k', NULL, s(5), s(5))$$) AS null_version, refused($$SELECT garbage_collect('gc', 's103b', 0, 1, 'k', 1, NULL, s(5))$$) AS null_source, refused($$SELECT garbage_collect('gc', 's103b', 0, 1, 'k', 1, s(5), NULL)$$) AS null_head,
    refused($$SELECT garbage_collect('gc', 's103b', 0, 1, 'k', 1, '5', s(5))$$) AS suid, refused($$SELECT garbage_collect('gc', 's103b', 0, 1, 'k', 1, s(5), s(5), NULL)$$) AS null_strict, refused($$SELECT garbage_collect('gc', 's103b', 9, 1, 'k', 1, s(5), s(5), true)$$) AS missing_strict;
SELECT refused($$SELECT collect_eligible('gc', 'no view', 0, 1, s(5))$$) AS view, refused($$SELECT collect_eligible(NULL, 's103b', 0, 1, s(5))$$) AS null_service, refused($$SELECT collect_eligible('gc', 's103b', NULL, 1, s(5))$$) AS null_generation, refused($$SELECT collect_eligible('gc', 's103b', 0, NULL, s(5))$$) AS null_definition,
    refused($$SELECT collect_eligible('gc', 's103b', 9, 1, s(5))$$) AS missing, refused($$SELECT collect_eligible('gc', 's103b', -1, 1, s(5))$$) AS negative, refused($$SELECT collect_eligible('gc', 's103b', 0, 1, s(5), -1)$$) AS max_rows, refused($$SELECT collect_eligible('gc', 's103b', 0, 1, '5')$$) AS suid;

-- scenario 104: a tombstone
SELECT create_view('gc', 's104');
SELECT step('s104', 1, up('k', '1')), put('s104', 5, del('k')), behind('s104', 'k', 5, del('k')), shown('s104'), stored('s104');
SELECT gc('s104', 'k', 5, (SELECT row_version FROM unsafemv.unsafe_rows WHERE service_id = 'gc' AND view_no = no('s104'))), stored('s104'), shown('s104');

-- scenario 105: past the retention the receipt is gone, and a wait is answered by head and floor
-- scenario 84: a redelivery then gets UNSAFE_RECEIPT_EXPIRED, and reads stay open
SELECT create_view('gc', 's105');
SELECT put('s105', 5, up('k', '5')), step('s105', 5, up('k', '5')), collect('s105', 5), receipts('s105') AS young, alter_view('gc', 's105', '0'), collect('s105', 5, 0) AS none, receipts('s105') AS bound_0, collect('s105', 5), receipts('s105'), floor('s105'), meta('s105');
SELECT has_target_receipt('gc', 's105', 'e5', s(5)), wait_for('gc', 's105', 'e5', s(5), '0'), wait_for('gc', 's105', 'e5', s(5), '0', 'safe');
SELECT refused($$SELECT put('s105', 5, up('k', '5'))$$) AS redelivered, refused($$SELECT apply('gc', 's105', 'e5', s(5), up('k', '5'), record_arrival => false)$$) AS unrecorded, refused($$SELECT put('s105', 3, up('n', '3'))$$) AS news, refused($$SELECT observe_arrival('gc', 's105', 'e5', s(5))$$) AS observed, shown('s105'), meta('s105');
SELECT error_code, outcome FROM apply_batch('gc', 's105', jsonb_build_array(jsonb_build_object('eventId', 'e5', 'suid', s(5)::text, 'mutations', up('k', '5')), jsonb_build_object('eventId', 'e6', 'suid', s(6)::text, 'mutations', up('j', '6'))), on_error => 'report');

-- scenario 106: no head, nothing; then what the head has passed
SELECT create_view('gc', 's106');
SELECT put('s106', 3, up('a', '3')), put('s106', 5, up('b', '5')), put('s106', 9, up('c', '9')), put('s106', 8, up('c', '8'));
SELECT collect('s106', 5) AS no_head, collect_eligible('gc', 's106', 0, 1, NULL) AS null_head;
SELECT observe_safe_receipt('gc', 's106', 'e3', s(3)), observe_safe_receipt('gc', 's106', 'e5', s(5)), collect_eligible('gc', 's106', 0, 1, NULL) AS null_head, collect('s106', 5, version => 2) AS other_definition, collect('s106', 2) AS below, collect('s106', 5, 0) AS bound_0;
SELECT alter_view('gc', 's106', '0'), collect('s106', 999), stored('s106'), receipts('s106'), markers('s106'), meta('s106'), floor('s106');

-- scenario 107: several events of one row, and those without one
SELECT create_view('gc', 's107');
SELECT put('s107', 3, up('k', '3')), put('s107', 1, up('k', '1')), put('s107', 2, patch('k', '{}')), put('s107', 4, up('k', '4')), step('s107', 1, up('k', '1')), step('s107', 2, patch('k', '{}')), step('s107', 3, up('k', '3')), receipts('s107');
SELECT collect('s107', 3) AS young, receipts('s107'), floor('s107'), alter_view('gc', 's107', '0'), collect('s107', 3), receipts('s107'), floor('s107'), stored('s107'), meta('s107');

-- in SUID order, bounded; the first that is too young ends it
SELECT create_view('gc', 'order');
SELECT put('order', n, up('k' || n, to_jsonb(n)), old => n <> 4), step('order', n, up('k' || n, to_jsonb(n))) FROM generate_series(1, 6) n;
SELECT collect('order', 6, 2), receipts('order'), floor('order'), collect('order', 6), receipts('order'), floor('order'), collect('order', 6), floor('order');
SELECT put('order', 2, up('k2', '2'), 'news') FROM (SELECT) x WHERE refused($$SELECT put('order', 2, up('k2', '2'), 'news')$$) <> 'UNSAFE_RECEIPT_EXPIRED';
SELECT put('order', 5, up('k5', '5')) AS above_floor, shown('order');
-- safe_head bounds the receipts too
SELECT alter_view('gc', 'order', '0'), collect('order', 5), receipts('order'), floor('order');

-- two receipts of one SUID: the young one stays
SELECT create_view('gc', 'twins');
SELECT put('twins', 5, up('k', '5'), old => true), step('twins', 5, up('k', '5')), step('twins', 6, up('k', '6')), put('twins', 5, up('j', '5'), 'other'), dismiss_event('gc', 'twins', 'other', s(5), 'void'), collect('twins', 6), receipts('twins') LIKE '%other@5%' AS young_stays;
SELECT put('twins', 5, up('j', '5'), 'other') AS redelivered;

-- while a candidate exists, receipts observed since it began stay
SELECT create_view('gc', 'candidate', receipt_retention => '0');
SELECT put('candidate', 1, up('k', '1')), step('candidate', 1, up('k', '1')), begin_rebuild('gc', 'candidate', 1), put('candidate', 2, up('k', '2')), step('candidate', 2, up('k', '2'));
SELECT collect('candidate', 2), receipts('candidate'), floor('candidate'), drop_generation('gc', 'candidate', 1), collect('candidate', 2), receipts('candidate'), floor('candidate');
-- so does a reopened one count from then on
SELECT begin_rebuild('gc', 'candidate', 1, last_suid => s(2)), promote_generation('gc', 'candidate', 2, 0), put('candidate', 3, up('k', '3')), step('candidate', 3, up('k', '3')), reopen_generation('gc', 'candidate', 0), put('candidate', 4, up('k', '4')), step('candidate', 4, up('k', '4'));
SELECT collect('candidate', 4, generation => 2), receipts('candidate'), floor('candidate');

-- nothing above the head ever goes, whatever safe_head says
SELECT create_view('gc', 'above', receipt_retention => '0');
SELECT step('above', 1, up('k', '1')), put('above', 5, patch('k', '{}'), old => true), put('above', 4, up('j', '4'), old => true), put('above', 3, up('j', '3'), old => true), put('above', 6, '{}', old => true), put('above', 7, patch('x', '{}'), old => true), put('above', 8, del('y'), old => true), dismiss_event('gc', 'above', 'e5', s(5), 'void');
SELECT collect('above', 999), gc('above', 'k', 5, safe_head => 999), stored('above'), receipts('above'), markers('above'), meta('above'), floor('above');

-- the maximum of read_meta survives collection
SELECT create_view('gc', 'maximum', receipt_retention => '0');
SELECT put('maximum', 5, up('k', '5')), step('maximum', 5, up('k', '5')), meta('maximum') AS before, collect('maximum', 5), receipts('maximum'), meta('maximum') AS after;

-- scenario 110: an event in flight does not stop collection
SELECT create_view('gc', 's110', receipt_retention => '0');
SELECT string_agg(format('%s %s', put('s110', n + 1, up('k' || n % 3, to_jsonb(n + 1))), step('s110', n, up('k' || (n + 2) % 3, to_jsonb(n)))), ', '), sum(collect('s110', n)) AS left_behind FROM generate_series(1, 6) n;
SELECT receipts('s110'), stored('s110'), floor('s110'), shown('s110');

-- scenario 258, in part: skipped by its step, its receipt collected; a later collection takes the row
SELECT create_view('gc', 's258', receipt_retention => '0');
SELECT put('s258', 5, up('k', '5')), put('s258', 7, del('gone'));
BEGIN;
CREATE TEMP TABLE away ON COMMIT DROP AS SELECT * FROM unsafemv.unsafe_rows WHERE service_id = 'gc' AND view_no = no('s258');
DELETE FROM unsafemv.unsafe_rows WHERE service_id = 'gc' AND view_no = no('s258');
SELECT step('s258', 5, up('k', '5')), step('s258', 7, del('gone')), collect('s258', 7), receipts('s258'), floor('s258');
INSERT INTO unsafemv.unsafe_rows SELECT * FROM away;
COMMIT;
SELECT shown('s258'), stored('s258'), collect('s258', 7), stored('s258'), shown('s258');

-- kept patches that a step had to skip are refolded, bounded by max_rows
SELECT create_view('gc', 'stale', indexes => '[{"id":"n","type":"integer","path":"n"}]');
SELECT step('stale', 1, up('a', '{"n":1}') || up('b', '{"n":1}')), step('stale', 2, up('a', '{"n":2}')), put('stale', 5, patch('a', '{"n":1}', kind => 'add')), put('stale', 9, patch('a', '{"n":1}', kind => 'add')), put('stale', 6, patch('b', '{"p6":1}')), put('stale', 8, patch('b', '{"p8":1}')), stored('stale');
SELECT behind('stale', 'a', 5, patch('a', '{"n":1}', kind => 'add')), behind('stale', 'b', 6, patch('b', '{"p6":1}')), stored('stale') AS skipped, shown('stale');
SELECT collect('stale', 6, 1), stored('stale') AS one, collect('stale', 6), stored('stale') AS both, shown('stale'), entries('stale');
-- the base replaced, and removed
SELECT behind('stale', 'a', 7, up('a', '{"n":70}')), shown('stale'), collect('stale', 7), stored('stale'), entries('stale');
SELECT put('stale', 10, patch('b', '{"p10":1}')), step('stale', 8, patch('b', '{"p8":1}')), step('stale', 9, patch('a', '{"n":1}', kind => 'add')), put('stale', 12, patch('b', '{"p12":1}')), behind('stale', 'b', 10, del('b')), shown('stale'), collect('stale', 10), stored('stale'), shown('stale'), entries('stale');

-- base unsafe: rows go, nothing is refolded
SELECT create_view('gc', 'unsafe', base => 'unsafe', receipt_retention => '0');
SELECT put('unsafe', 5, up('k', '{"a":5}')), put('unsafe', 6, patch('k', '{"p":6}')), put('unsafe', 7, up('j', '7')), behind('unsafe', 'k', 5, up('k', '{"a":"five"}')), collect('unsafe', 5), stored('unsafe'), receipts('unsafe'), floor('unsafe');
SELECT behind('unsafe', 'k', 6, patch('k', '{"p":6}')), collect('unsafe', 6), stored('unsafe'), shown('unsafe');

-- report 20: a tombstone was collected; older writes do not bring the row back, a new create is fresh
SELECT create_view('gc', 'r20');
SELECT put('r20', 1, up('k', '{"old":1}')), put('r20', 20, del('k')), step('r20', 1, up('k', '{"old":1}')), behind('r20', 'k', 20, del('k')), collect('r20', 20), stored('r20'), shown('r20');
SELECT put('r20', 1, up('k', '{"old":1}')) AS create_1, shown('r20'), alter_view('gc', 'r20', '0'), collect('r20', 20), refused($$SELECT put('r20', 1, up('k', '{"old":1}'))$$) AS create_1, refused($$SELECT put('r20', 15, patch('k', '{"p":15}'))$$) AS patch_15, shown('r20'), meta('r20');
SELECT put('r20', 30, up('k', '{"new":1}')), shown('r20'), step('r20', 30, up('k', '{"new":1}')), collect('r20', 30), shown('r20'), stored('r20');
-- within the retention news behind the tombstone is late, not a row
SELECT create_view('gc', 'r20b');
SELECT put('r20b', 20, del('k')), behind('r20b', 'k', 20, del('k')), collect('r20b', 20), put('r20b', 15, patch('k', '{"p":15}')) AS patch_15, meta('r20b');

-- scenario 111: 20,000 rows, in bounded batches
SELECT create_view('gc', 's111');
SELECT count(*) AS applied FROM apply_batch('gc', 's111', (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', up('k' || n, to_jsonb(n)))) FROM generate_series(1, 20000) n)) WHERE outcome = 'applied';
-- as a source elsewhere would settle them, in one go
UPDATE unsafemv.receipts SET settled = true, observed_at = '2001-01-01' WHERE service_id = 'gc' AND view_no = no('s111') AND suid <= s(19999);
UPDATE unsafemv.generations SET last_suid = s(19999) WHERE service_id = 'gc' AND view_no = no('s111');
DO $$
DECLARE
    n bigint;
    calls bigint := 0;
BEGIN
    LOOP
        n := collect_test.collect('s111', 20000, 3000);
        calls := calls + 1;
        IF n > 3000 THEN RAISE EXCEPTION '% rows in a batch of 3000', n; END IF;
        EXIT WHEN n = 0;
    END LOOP;
    RAISE NOTICE '% calls', calls;
END $$;
SELECT stored('s111'), receipts('s111'), short((read_active('gc', 's111')).receipt_floor) AS floor, shown('s111'), meta('s111');

SELECT * FROM unsafemv.check('gc');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'gc';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA collect_test CASCADE;
