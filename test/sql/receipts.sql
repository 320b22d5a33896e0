-- Arrivals, receipts and markers.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA receipts_test;
RESET client_min_messages;
SET search_path = receipts_test, unsafemv;

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


-- what a view of service receipts shows and holds, each as one line
CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'receipts' AND view_id = view $$;
CREATE FUNCTION shown(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s v%s %s', row_key, short(source_suid), row_version, value), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page('receipts', view, NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s=%s->%s', index_id, value, row_key), ', ' ORDER BY index_id COLLATE "C", value COLLATE "C", row_key COLLATE "C"), '-')
    FROM unsafemv.read_index_entries('receipts', view, NULL, NULL, consistency => entries.consistency)
$$;
CREATE FUNCTION receipts(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', event_id, short(suid::text), outcome, CASE WHEN settled THEN ' settled' END), ', ' ORDER BY suid, event_id), '-')
    FROM unsafemv.receipts WHERE service_id = 'receipts' AND view_no = no(view)
$$;
CREATE FUNCTION markers(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s %s', event_id, short(suid::text), row_key, reason), ', ' ORDER BY suid, event_id, row_key), '-')
    FROM unsafemv.markers WHERE service_id = 'receipts' AND view_no = no(view)
$$;
-- what a kick would be for: the greatest unsettled SUID
CREATE FUNCTION target(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(short(max(suid)::text), '-') FROM unsafemv.receipts WHERE service_id = 'receipts' AND view_no = no(view) AND NOT settled
$$;
CREATE FUNCTION head(view text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(short(safe_contiguous_head), '-') FROM unsafemv.read_meta('receipts', view) $$;

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
    FROM unsafemv.apply('receipts', view, coalesce(event, 'e' || n), s(n), plan, expected_row_version => expected, safe_head => s(put.safe_head), record_arrival => record)
$$;
CREATE FUNCTION step(view text, n bigint, plan jsonb, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT format('head %s: %s upserts, %s patches, %s deletes', short(last_suid), row_upserts, row_patches, row_deletes)
    FROM unsafemv.apply_safe('receipts', view, (SELECT safe_contiguous_head::suid FROM unsafemv.read_meta('receipts', view)), s(n), plan, coalesce(event, 'e' || n))
$$;

CREATE FUNCTION settle(view text, n bigint, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT 'head ' || CASE WHEN unsafemv.observe_safe_receipt('receipts', view, coalesce(event, 'e' || n), s(n)) THEN head(view) END
$$;
CREATE FUNCTION arrive(view text, n bigint, event text = NULL) RETURNS boolean LANGUAGE sql AS
$$ SELECT unsafemv.observe_arrival('receipts', view, coalesce(event, 'e' || n), s(n)) $$;
CREATE FUNCTION meta(view text) RETURNS text LANGUAGE sql AS $$
    SELECT format('head %s max %s %s', coalesce(short(safe_contiguous_head), '-'), coalesce(short(unsafe_observed_max_suid), '-'), CASE WHEN rebuild_required THEN 'closed' ELSE 'open' END)
    FROM unsafemv.read_meta('receipts', view)
$$;
CREATE FUNCTION gate(view text) RETURNS text LANGUAGE sql AS
$$ SELECT replace(refused(format('SELECT unsafemv.query_composed_page(''receipts'', %L)', view)), 'NOT REFUSED', 'open') $$;

-- scenario 87: an untouched view
SELECT unsafemv.create_view('receipts', 'r87');
SELECT * FROM unsafemv.read_meta('receipts', 'r87');

-- scenario 78: the exact receipt is settled, its marker goes and the head moves
SELECT unsafemv.create_view('receipts', 'r78');
SELECT put('r78', 5, patch('k', '{}'), 'patch'), markers('r78'), head('r78');
SELECT refused($$SELECT settle('r78', 5, 'wrong')$$) AS other_event, refused($$SELECT settle('r78', 6, 'patch')$$) AS other_suid, markers('r78'), receipts('r78'), head('r78');
SELECT settle('r78', 5, 'patch');
SELECT markers('r78'), receipts('r78'), meta('r78'), gate('r78');
SELECT settle('r78', 5, 'patch') AS again;

-- scenario 79: an arrival behind the head closes the reads at once; any other writes nothing
SELECT unsafemv.create_view('receipts', 'r79');
SELECT arrive('r79', 1, 'first') AS no_head, step('r79', 8, up('k', '8'));
SELECT arrive('r79', 9) AS ahead, arrive('r79', 8) AS known, receipts('r79'), meta('r79'), gate('r79');
SELECT arrive('r79', 1, 'late') AS behind;
SELECT receipts('r79'), meta('r79'), gate('r79'), refused($$SELECT shown('r79', 'safe')$$) AS safe;
SELECT arrive('r79', 1, 'late') AS again, receipts('r79');
SELECT refused($$SELECT arrive('r79', 2, 'late')$$) AS other_suid, refused($$SELECT arrive('r79', 1, 'other')$$) AS other_event, refused($$SELECT arrive('r79', 7, 'e8')$$) AS settled_event;
SELECT arrive('r79', 8, 'other') AS below_with_settled_suid;
SELECT put('r79', 20, '{}'), refused($$SELECT arrive('r79', 20, 'other')$$) AS unsettled_suid, refused($$SELECT arrive('r79', 21, 'e20')$$) AS unsettled_event, arrive('r79', 20) AS known;
SELECT refused($$SELECT unsafemv.observe_arrival('receipts', 'r79', NULL, s(1))$$), refused($$SELECT unsafemv.observe_arrival('receipts', 'r79', '', s(1))$$), refused($$SELECT unsafemv.observe_arrival('receipts', 'r79', 'e', NULL)$$);

-- scenario 82: the head is contiguous: the greatest settled SUID below the smallest unsettled one
SELECT unsafemv.create_view('receipts', 'r82');
SELECT put('r82', 3, up('k', '3')), put('r82', 9, up('k', '9')), put('r82', 12, up('j', '12'));
SELECT settle('r82', 9);
SELECT meta('r82'), receipts('r82'), shown('r82');
-- what lies settled above the head still has its SUID to itself
SELECT refused($$SELECT put('r82', 9, up('k', '0'), 'other')$$) AS apply, refused($$SELECT arrive('r82', 9, 'other')$$) AS arrive, put('r82', 9, up('k', '0')) AS again;
SELECT settle('r82', 3);
SELECT meta('r82'), receipts('r82'), shown('r82');
-- no change does not hold it up
SELECT put('r82', 10, '{}'), put('r82', 11, up('l', '11')), settle('r82', 12), settle('r82', 11);
SELECT meta('r82'), receipts('r82'), gate('r82');

-- a receipt that came late cannot be settled; nor is there anything to observe where the safe lane has rows
SELECT unsafemv.create_view('receipts', 'late');
SELECT put('late', 5, '{}'), settle('late', 5), put('late', 3, up('k', '3'));
SELECT refused($$SELECT settle('late', 3)$$) AS late, head('late');
SELECT step('r79', 22, '{}'), refused($$SELECT settle('r79', 20)$$) AS safe_rows;
SELECT refused($$SELECT unsafemv.observe_safe_receipt('receipts', 'late', NULL, s(1))$$), refused($$SELECT unsafemv.observe_safe_receipt('receipts', 'late', '', s(1))$$), refused($$SELECT unsafemv.observe_safe_receipt('receipts', 'late', 'e', NULL)$$);

-- scenario 83: an event that is safe already and has its receipt is a duplicate, whatever the head; reads stay open
SELECT unsafemv.create_view('receipts', 'r83');
SELECT put('r83', 1, up('k', '1')), step('r83', 1, up('k', '1')), step('r83', 2, up('j', '2')), step('r83', 9, '{}');
SELECT put('r83', 1, up('k', '0')), put('r83', 2, up('j', '0')), put('r83', 2, up('j', '0'), record => false), put('r83', 2, up('j', '0'), safe_head => 9);
SELECT receipts('r83'), gate('r83'), shown('r83');

-- scenario 84: without the receipt nobody can tell news from a redelivery; reads stay open
DELETE FROM unsafemv.receipts WHERE service_id = 'receipts' AND view_no = no('r83') AND suid <= s(2);
UPDATE unsafemv.generations SET receipt_floor = s(2), observed_max_suid = s(2) WHERE service_id = 'receipts' AND view_no = no('r83');
SELECT refused($$SELECT put('r83', 2, up('j', '0'))$$) AS recorded, refused($$SELECT put('r83', 2, up('j', '0'), record => false)$$) AS refused,
    refused($$SELECT put('r83', 1, '{}')$$) AS below, refused($$SELECT put('r83', 1, up('k', '0'), expected => 99, safe_head => 1)$$) AS before_cas, refused($$SELECT arrive('r83', 2)$$) AS arrival;
SELECT outcome, duplicate, error_code FROM unsafemv.apply_batch('receipts', 'r83', jsonb_build_array(jsonb_build_object('eventId', 'e2', 'suid', s(2)::text, 'mutations', up('j', '0')), jsonb_build_object('eventId', 'e9', 'suid', s(9)::text, 'mutations', '{}'::jsonb)), on_error => 'report');
SELECT receipts('r83'), meta('r83'), gate('r83'), shown('r83'), unsafemv.has_target_receipt('receipts', 'r83', 'e2', s(2));
-- above the floor it is news
SELECT put('r83', 3, up('k', '3')), gate('r83');

-- scenario 85: an event nobody has seen, below the head, closes the reads, whatever head the caller knows
SELECT unsafemv.create_view('receipts', name) FROM unnest(ARRAY['r85a', 'r85b', 'r85c']) AS name;
SELECT v, step(v, 8, up('k', '8')), put(v, 3, up('k', '3'), safe_head => h), gate(v), meta(v) FROM (VALUES ('r85a', NULL), ('r85b', 2), ('r85c', 8)) AS x (v, h) ORDER BY v;
SELECT v, receipts(v), (SELECT count(*) FROM unsafemv.unsafe_rows WHERE service_id = 'receipts' AND view_no = no(v)) AS tentative FROM unnest(ARRAY['r85a', 'r85b', 'r85c']) v;

-- report 10: the retention is the window in which a redelivery is recognised; what lies behind it is refused, never applied again
CREATE FUNCTION one() RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT patch('counter', '{"n": 1}', 1, true, 'add') $$;
CREATE FUNCTION again(view text, n bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before text := state();
    answer text := refused(format('SELECT put(%L, %s, one())', view, n));
BEGIN
    IF answer = 'NOT REFUSED' THEN answer := put(view, n, one()); END IF;
    RETURN format('%s%s, %s, %s', answer, CASE WHEN state() <> before THEN ' AND WROTE' END, gate(view), shown(view));
END $$;
-- days go by: what has arrived did so two days ago
CREATE FUNCTION purge(view text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    a record;
BEGIN
    UPDATE unsafemv.receipts SET observed_at = observed_at - interval '2 days' WHERE service_id = 'receipts' AND view_no = no(view);
    UPDATE unsafemv.generations SET candidate_since = candidate_since - interval '2 days' WHERE service_id = 'receipts' AND view_no = no(view);
    SELECT * INTO a FROM unsafemv.read_active('receipts', view);
    PERFORM unsafemv.collect_eligible('receipts', view, a.generation, a.definition_version, a.last_suid::suid);
    SELECT * INTO a FROM unsafemv.read_active('receipts', view);
    RETURN format('generation %s, floor %s: %s', a.generation, coalesce(short(a.receipt_floor), '-'), receipts(view));
END $$;
SELECT unsafemv.create_view('receipts', 'r10');
SELECT put('r10', 1, one()), shown('r10');
-- in front of the head no receipt ever goes
SELECT purge('r10'), again('r10', 1);
-- behind it, first with the receipt, then without
SELECT step('r10', 1, one()), again('r10', 1);
SELECT step('r10', 3, '{}'), again('r10', 1);
SELECT purge('r10'), again('r10', 1);
SELECT outcome, duplicate, error_code FROM unsafemv.apply_batch('receipts', 'r10', jsonb_build_array(jsonb_build_object('eventId', 'e1', 'suid', s(1)::text, 'mutations', one())), on_error => 'report');
SELECT refused($$SELECT unsafemv.apply_safe('receipts', 'r10', s(3), s(1), one(), 'e1')$$) AS folded_again, refused($$SELECT put('r10', 1, one(), record => false)$$) AS unrecorded, refused($$SELECT arrive('r10', 1)$$) AS observed;
-- during a rebuild: the candidate is empty, has folded it, is active
SELECT put('r10', 5, up('other', '5')), step('r10', 5, up('other', '5')), unsafemv.begin_rebuild('receipts', 'r10', 1);
SELECT again('r10', 1), purge('r10') AS needed_for_the_comparison;
SELECT last_suid IS NOT NULL AS folded FROM unsafemv.apply_safe('receipts', 'r10', NULL, s(1), one(), 'e1', 1);
SELECT again('r10', 1), purge('r10');
SELECT row_upserts FROM unsafemv.apply_safe_batch('receipts', 'r10', s(1), jsonb_build_array(jsonb_build_object('eventId', 'e3', 'suid', s(3)::text, 'mutations', '{}'::jsonb), jsonb_build_object('eventId', 'e5', 'suid', s(5)::text, 'mutations', up('other', '5'))), 1);
SELECT again('r10', 1), purge('r10') AS compared;
SELECT * FROM unsafemv.promote_generation('receipts', 'r10', 1, 0);
SELECT again('r10', 1), purge('r10');
SELECT again('r10', 1), again('r10', 5);
-- a rebuild that says when its events arrived leaves no receipts of old ones, but a floor
SELECT unsafemv.begin_rebuild('receipts', 'r10', 2);
SELECT row_patches FROM unsafemv.apply_safe_batch('receipts', 'r10', NULL, (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', CASE n WHEN 1 THEN one() ELSE '{}' END, 'arrivedAt', now() - interval '3 days')) FROM unnest(ARRAY[1, 3, 5]) n), 2);
SELECT * FROM unsafemv.promote_generation('receipts', 'r10', 2, 1);
SELECT receipts('r10') AS of_generation_1, again('r10', 1), short(receipt_floor) AS floor FROM unsafemv.read_active('receipts', 'r10');

-- read_meta: the greatest SUID of all receipts there ever were, and the gate's verdict
SELECT unsafemv.create_view('receipts', 'meta');
SELECT put('meta', 7, up('k', '7')), meta('meta');
SELECT step('meta', 7, up('k', '7')), meta('meta');
DELETE FROM unsafemv.receipts WHERE service_id = 'receipts' AND view_no = no('meta');
UPDATE unsafemv.generations SET receipt_floor = s(7), observed_max_suid = s(7) WHERE service_id = 'receipts' AND view_no = no('meta');
SELECT meta('meta'), put('meta', 8, '{}'), meta('meta');
SELECT unsafemv.create_view('receipts', 'seeded', last_suid => s(4));
SELECT meta('seeded'), refused($$SELECT put('seeded', 4, '{}')$$) AS at_the_seed, put('seeded', 5, '{}'), meta('seeded');

-- scenario 90: has_target_receipt looks for exactly event and SUID, in every generation, whatever the outcome
SELECT unsafemv.create_view('receipts', 'r90');
SELECT put('r90', 1, up('k', '1')), put('r90', 2, '{}'), put('r90', 3, patch('j', '{}')), put('r90', 4, del('i')), step('r90', 6, '{}'), put('r90', 5, up('k', '5'));
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status) VALUES ('receipts', no('r90'), 1, 1, 'retired');
INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at) VALUES ('receipts', no('r90'), 1, 'old', s(1), 'applied', true, now()), ('receipts', no('r90'), 1, 'void', s(2), 'dismissed', true, now());
SELECT event, n, unsafemv.has_target_receipt('receipts', 'r90', event, s(n)) AS found FROM (VALUES ('e1', 1), ('e2', 2), ('e3', 3), ('e4', 4), ('e5', 5), ('e6', 6), ('old', 1), ('void', 2), ('e1', 2), ('e2', 1), ('old', 2), ('other', 1)) AS x (event, n);
SELECT unsafemv.create_view('receipts2', 'r90');
SELECT unsafemv.has_target_receipt('receipts2', 'r90', 'e1', s(1)) AS in_another_service;

SELECT * FROM unsafemv.check('receipts');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id LIKE 'receipts%';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA receipts_test CASCADE;
