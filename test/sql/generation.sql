-- Generations: begin, fold, prove, promote, reopen, drop; dismissed events.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA generation_test;
RESET client_min_messages;
SET search_path = generation_test, unsafemv;

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

-- the code a statement is refused with, after "said" its DETAIL too; says so if anything was written
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before text := state();
    number text;
    word text;
    detail text;
BEGIN
    EXECUTE statement;
    RAISE EXCEPTION USING ERRCODE = 'P0001', CONSTRAINT = 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, word = CONSTRAINT_NAME, detail = PG_EXCEPTION_DETAIL;
    IF word = '' THEN word := number;
    ELSIF number = 'P0001' THEN NULL;
    ELSIF number IS DISTINCT FROM (SELECT e.sqlstate FROM unsafemv.errors e WHERE e.code = word) THEN
        word := word || ' WITH SQLSTATE ' || number;
    END IF;
    RETURN word || CASE WHEN state() <> before THEN ' BUT WROTE' ELSE '' END
        || coalesce(': ' || nullif(regexp_replace(detail, '0{10,}(\d)', '\1', 'g'), ''), '');
END $$;
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE sql AS $$ SELECT split_part(said(statement), ':', 1) $$;

-- what a view of service gen shows and holds, each as one line
CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'gen' AND view_id = view $$;
CREATE FUNCTION shown(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s v%s %s%s', row_key, short(source_suid), row_version, value, CASE WHEN unsafe THEN ' unsafe' END), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page('gen', view, NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION entries(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s=%s->%s', index_id, value, row_key), ', ' ORDER BY index_id COLLATE "C", value COLLATE "C", row_key COLLATE "C"), '-')
    FROM unsafemv.read_index_entries('gen', view, NULL, NULL, consistency => entries.consistency)
$$;
CREATE FUNCTION receipts(view text, generation bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', event_id, short(suid::text), outcome, CASE WHEN settled THEN ' settled' END), ', ' ORDER BY suid, event_id), '-')
    FROM unsafemv.receipts r WHERE service_id = 'gen' AND view_no = no(view) AND r.generation = receipts.generation
$$;
CREATE FUNCTION markers(view text, generation bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s %s', event_id, short(suid::text), row_key, reason), ', ' ORDER BY suid, event_id, row_key), '-')
    FROM unsafemv.markers m WHERE service_id = 'gen' AND view_no = no(view) AND m.generation = markers.generation
$$;
-- tentative rows as stored: key, SUID, value or -, kept SUIDs on their base
CREATE FUNCTION stored(view text, generation bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s%s', row_key, short(source_suid::text), coalesce(value::text, '-'),
        ' keeps ' || (SELECT string_agg(short(k ->> 'suid'), '+' ORDER BY k ->> 'suid') FROM jsonb_array_elements(kept) k) || ' on ' || coalesce(short(base_suid::text), '-')), ', ' ORDER BY row_key), '-')
    FROM unsafemv.unsafe_rows u WHERE service_id = 'gen' AND view_no = no(view) AND u.generation = stored.generation
$$;
CREATE FUNCTION meta(view text) RETURNS text LANGUAGE sql AS
$$ SELECT format('head %s, %s', coalesce(short(safe_contiguous_head), '-'), CASE WHEN rebuild_required THEN 'closed' ELSE 'open' END) FROM unsafemv.read_meta('gen', view) $$;
CREATE FUNCTION maximum(view text) RETURNS text LANGUAGE sql AS
$$ SELECT coalesce(short(unsafe_observed_max_suid), '-') FROM unsafemv.read_meta('gen', view) $$;
CREATE FUNCTION next(view text) RETURNS bigint LANGUAGE sql AS $$ SELECT unsafemv.next_generation('gen', view) $$;
CREATE FUNCTION instance(view text, generation bigint) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s %s v%s head %s floor %s rows %s history %s%s%s', i.generation, i.status, i.definition_version, coalesce(short(i.last_suid), '-'), coalesce(short(i.receipt_floor), '-'),
        i.row_count, i.history_count, coalesce(' proof ' || i.rebuilt_source_event_count || '@' || coalesce(short(i.rebuilt_source_max_suid), '-'), ''),
        coalesce(' rebuild required by ' || i.behind_frontier_event_id || '@' || short(i.behind_frontier_suid), CASE WHEN i.rebuild_required THEN ' rebuild required' END))
    FROM unsafemv.read_instance('gen', view, instance.generation) i
$$;
CREATE FUNCTION proof_columns(view text, generation bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT num_nonnulls(rebuilt_source_event_count, rebuilt_source_max_suid, rebuilt_source_history_digest, rebuilt_at)::bigint FROM unsafemv.read_instance('gen', view, proof_columns.generation)
$$;
CREATE FUNCTION findings(view text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s: %s%s%s', generation, kind, coalesce(' ' || event_id || '@' || short(suid::text), ''), CASE WHEN resolved_at IS NOT NULL THEN ' resolved' END), ', ' ORDER BY generation, kind, suid, event_id), '-')
    FROM unsafemv.findings WHERE service_id = 'gen' AND view_no = no(view)
$$;
-- rows a generation has in every table
CREATE FUNCTION left_over(view text, generation bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    name text;
    n bigint;
    whole text;
BEGIN
    FOR name IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'generation'
        WHERE c.relnamespace = 'unsafemv'::regnamespace AND c.relkind = 'r' ORDER BY c.relname LOOP
        EXECUTE format('SELECT count(*) FROM unsafemv.%I t WHERE service_id = $1 AND view_no = $2 AND t.generation = $3', name)
            INTO n USING 'gen', no(view), generation;
        IF n > 0 THEN whole := concat_ws(', ', whole, name || ' ' || n); END IF;
    END LOOP;
    RETURN coalesce(whole, 'nothing');
END $$;

-- plans
CREATE FUNCTION up(key text, value jsonb, version bigint = 1) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', key, 'value', value, 'rowVersion', version))) $$;
CREATE FUNCTION patch(key text, patch jsonb, version bigint = 1, "create" boolean = false, kind text = 'json_patch') RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowPatches', jsonb_build_array(jsonb_build_object('kind', kind, 'rowKey', key, 'patch', patch, 'rowVersion', version, 'create', "create"))) $$;
CREATE FUNCTION del(key text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('rowDeletes', jsonb_build_array(key)) $$;
CREATE FUNCTION entry(key text, index text, value text) RETURNS jsonb LANGUAGE sql IMMUTABLE AS
$$ SELECT jsonb_build_object('indexEntries', jsonb_build_array(jsonb_build_object('rowKey', key, 'indexId', index, 'valueType', 'text', 'value', value))) $$;
-- an unsafe apply, a safe step of a generation, a promotion; events are named by their SUID
CREATE FUNCTION put(view text, n bigint, plan jsonb, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END FROM unsafemv.apply('gen', view, coalesce(event, 'e' || n), s(n), plan)
$$;
CREATE FUNCTION step(view text, generation bigint, n bigint, plan jsonb, event text = NULL, arrived text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT 'head ' || short(b.last_suid) FROM unsafemv.apply_safe_batch('gen', view, (SELECT i.last_suid::suid FROM unsafemv.read_instance('gen', view, step.generation) i),
        jsonb_build_array(jsonb_build_object('eventId', coalesce(event, 'e' || n), 'suid', s(n)::text, 'mutations', plan) || CASE WHEN arrived IS NULL THEN '{}' ELSE jsonb_build_object('arrivedAt', arrived) END), step.generation) b
$$;
CREATE FUNCTION promote(view text, candidate bigint, active bigint, force boolean = false) RETURNS text LANGUAGE sql AS
$$ SELECT format('%s active, %s carried, redeliver %s', generation, carried, redeliver) FROM unsafemv.promote_generation('gen', view, candidate, active, promote.force) $$;
-- the digest of events named by their SUIDs
CREATE FUNCTION digest(VARIADIC n bigint[]) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
    d bytea;
    i bigint;
BEGIN
    FOREACH i IN ARRAY n LOOP d := history_digest(d, 'e' || i, s(i)); END LOOP;
    RETURN d;
END $$;

-- scenario 15: a candidate beside the active generation; a number is given out once
SELECT create_view('gen', 's15');
SELECT step('s15', 0, 1, up('k', '1')), put('s15', 2, up('u', '2'));
SELECT shown('s15') AS before, meta('s15');
SELECT begin_rebuild('gen', 's15', 1, generation => 1);
SELECT instance('s15', 0), instance('s15', 1), shown('s15') AS unchanged, meta('s15'), (SELECT generation FROM read_active('gen', 's15'));
SELECT refused($$SELECT begin_rebuild('gen', 's15', 1, generation => 1)$$) AS twice, refused($$SELECT begin_rebuild('gen', 's15', 1, generation => 0)$$) AS active;
-- folding it changes no read and takes nothing from the unsafe lane
SELECT step('s15', 1, 1, up('k', '"other"')), shown('s15'), meta('s15'), receipts('s15', 0), receipts('s15', 1);
SELECT (SELECT count(*) FROM unsafemv.acquire_kick('gen', 's15', 'w', '1 s')) AS dirty_by_active, stored('s15', 0);

-- scenario 16: numbers are never used again
SELECT create_view('gen', 's16');
SELECT begin_rebuild('gen', 's16', 1), promote('s16', 1, 0), next('s16');
SELECT begin_rebuild('gen', 's16', 2), next('s16'), drop_generation('gen', 's16', 2), next('s16');
SELECT refused($$SELECT begin_rebuild('gen', 's16', 1, generation => 2)$$) AS dropped;
-- scenario 241: after a drop the next number
SELECT begin_rebuild('gen', 's16', 1), next('s16');
SELECT begin_rebuild('gen', 's16', 1, generation => 7), next('s16'), refused($$SELECT begin_rebuild('gen', 's16', 1, generation => 5)$$) AS passed;

-- bad input of every function
SELECT refused($$SELECT begin_rebuild('gen', 'no view', 1)$$) AS view, refused($$SELECT begin_rebuild('no service', 's15', 1)$$) AS service, refused($$SELECT begin_rebuild(NULL, 's15', 1)$$) AS null_service, refused($$SELECT begin_rebuild('gen', NULL, 1)$$) AS null_view,
    refused($$SELECT begin_rebuild('gen', 's15', NULL)$$) AS null_version, refused($$SELECT begin_rebuild('gen', 's15', 0)$$) AS version, refused($$SELECT begin_rebuild('gen', 's15', 1, generation => -1)$$) AS negative, refused($$SELECT begin_rebuild('gen', 's15', 1, last_suid => '5')$$) AS suid;
SELECT refused($$SELECT next_generation('gen', 'no view')$$) AS view, refused($$SELECT next_generation(NULL, 's15')$$) AS null_service, refused($$SELECT next_generation('gen', NULL)$$) AS null_view;
SELECT refused($$SELECT mark_generation_rebuilt('gen', 'no view', 1, 0, NULL, NULL)$$) AS view, refused($$SELECT mark_generation_rebuilt('gen', 's15', NULL, 0, NULL, NULL)$$) AS null_generation, refused($$SELECT mark_generation_rebuilt('gen', 's15', 9, 0, NULL, NULL)$$) AS missing,
    refused($$SELECT mark_generation_rebuilt('gen', 's15', -1, 0, NULL, NULL)$$) AS negative, refused($$SELECT mark_generation_rebuilt('gen', 's15', 1, NULL, NULL, NULL)$$) AS null_count, refused($$SELECT mark_generation_rebuilt(NULL, 's15', 1, 0, NULL, NULL)$$) AS null_service;
SELECT refused($$SELECT promote_generation('gen', 'no view', 1, 0)$$) AS view, refused($$SELECT promote_generation('gen', 's15', 9, 0)$$) AS missing, refused($$SELECT promote_generation('gen', 's15', -1, 0)$$) AS negative, refused($$SELECT promote_generation('gen', 's15', NULL, 0)$$) AS null_candidate,
    refused($$SELECT promote_generation('gen', 's15', 1, NULL)$$) AS null_expected, refused($$SELECT promote_generation('gen', 's15', 1, 0, NULL)$$) AS null_force, refused($$SELECT promote_generation(NULL, 's15', 1, 0)$$) AS null_service, refused($$SELECT promote_generation('gen', NULL, 1, 0)$$) AS null_view;
SELECT refused($$SELECT reopen_generation('gen', 'no view', 1)$$) AS view, refused($$SELECT reopen_generation('gen', 's15', NULL)$$) AS null_generation, refused($$SELECT reopen_generation('gen', 's15', 9)$$) AS missing, refused($$SELECT reopen_generation('gen', 's15', -1)$$) AS negative,
    refused($$SELECT reopen_generation('gen', 's15', 0)$$) AS active, refused($$SELECT reopen_generation('gen', 's15', 1)$$) AS candidate;
SELECT refused($$SELECT drop_generation('gen', 'no view', 1)$$) AS view, refused($$SELECT drop_generation('gen', 's15', NULL)$$) AS null_generation, refused($$SELECT drop_generation('gen', 's15', 9)$$) AS missing, refused($$SELECT drop_generation('gen', 's15', -1)$$) AS negative,
    refused($$SELECT drop_generation('gen', 's15', 0)$$) AS active, refused($$SELECT drop_generation('gen', 's15', 1, -1)$$) AS max_rows;
SELECT refused($$SELECT dismiss_event('gen', 'no view', 'e', s(1), 'r')$$) AS view, refused($$SELECT dismiss_event('gen', 's15', NULL, s(1), 'r')$$) AS null_event, refused($$SELECT dismiss_event('gen', 's15', 'e2', NULL, 'r')$$) AS null_suid, refused($$SELECT dismiss_event('gen', 's15', 'e2', s(2), NULL)$$) AS null_reason,
    refused($$SELECT dismiss_event('gen', 's15', 'e2', s(3), 'r')$$) AS other_suid, refused($$SELECT dismiss_event('gen', 's15', 'x', s(2), 'r')$$) AS other_event, refused($$SELECT dismiss_event('gen', 's15', 'e2', '2', 'r')$$) AS suid;

-- scenarios 36, 72: a retired generation is not written, in either lane
SELECT promote('s15', 1, 0), instance('s15', 0), instance('s15', 1), shown('s15');
SELECT refused($$SELECT step('s15', 0, 3, up('k', '3'))$$) AS safe, refused($$SELECT apply_safe_batch('gen', 's15', s(1), '[]', generation => 0)$$) AS empty_step, refused($$SELECT apply('gen', 's15', 'e3', s(3), up('k', '3'), generation => 0)$$) AS upsert,
    refused($$SELECT apply('gen', 's15', 'e3', s(3), patch('k', '{}'), generation => 0)$$) AS patch, refused($$SELECT apply('gen', 's15', 'e3', s(3), del('k'), generation => 0)$$) AS delete, refused($$SELECT apply('gen', 's15', 'e3', s(3), '{}', generation => 0)$$) AS nothing,
    refused($$SELECT apply_batch('gen', 's15', '[]', generation => 0)$$) AS batch, refused($$SELECT apply('gen', 's15', 'e3', s(3), up('k', '3'), generation => 9)$$) AS unknown;
SELECT put('s15', 3, up('k', '3')), shown('s15'), receipts('s15', 0), receipts('s15', 1);
SELECT left_over('s15', 0);

-- scenario 72: so is a candidate in the unsafe lane
SELECT begin_rebuild('gen', 's15', 1);
SELECT refused($$SELECT apply('gen', 's15', 'e4', s(4), up('k', '3'), generation => 2)$$) AS upsert, refused($$SELECT apply('gen', 's15', 'e4', s(4), patch('k', '{}'), generation => 2)$$) AS patch, refused($$SELECT apply('gen', 's15', 'e4', s(4), '{}', generation => 2)$$) AS nothing;

-- scenario 42: a patched row is identical after rebuild and promotion
SELECT create_view('gen', 's42', indexes => '[{"id":"status","type":"text","path":"status"}]');
CREATE FUNCTION room(n bigint) RETURNS jsonb LANGUAGE sql AS $$
    SELECT CASE n WHEN 1 THEN up('r1', '{"status":"reserved","roomId":"r1","guest":{"name":"a"}}') WHEN 2 THEN up('r2', '{"status":"reserved","roomId":"r2"}') ELSE patch('r1', '{"status":"cancelled","guest":{"by":"b"}}', 2) END
$$;
SELECT step('s42', 0, n, room(n)) FROM generate_series(1, 3) n;
CREATE TABLE before AS SELECT row_key, value, row_version, source_suid, unsafe FROM query_composed_page('gen', 's42');
SELECT begin_rebuild('gen', 's42', 1);
SELECT step('s42', 1, n, room(n)) FROM generate_series(1, 3) n;
SELECT promote('s42', 1, 0), shown('s42'), entries('s42');
SELECT count(*) AS different FROM (SELECT row_key, value, row_version, source_suid, unsafe FROM query_composed_page('gen', 's42')) a FULL JOIN before b USING (row_key, value, row_version, source_suid, unsafe) WHERE a IS NULL OR b IS NULL;

-- scenario 38: any safe step of a proven candidate voids the proof
-- scenario 143: it cannot resolve a quarantine then
SELECT create_view('gen', 's38');
SELECT step('s38', 0, 1, up('k', '1')), begin_rebuild('gen', 's38', 1);
SELECT step('s38', 1, 1, up('k', '1'));
SELECT mark_generation_rebuilt('gen', 's38', 1, 1, s(1), digest(1)), instance('s38', 1), proof_columns('s38', 1);
SELECT step('s38', 1, 2, '{}'), proof_columns('s38', 1);
SELECT mark_generation_rebuilt('gen', 's38', 1, 2, s(2), digest(1, 2)), instance('s38', 1), proof_columns('s38', 1);
SELECT record_ordering_quarantine('gen', 's38', 'e1', s(1));
SELECT step('s38', 1, 3, up('k', '3')), refused($$SELECT promote_generation('gen', 's38', 1, 0)$$) AS promotion, findings('s38');
SELECT mark_generation_rebuilt('gen', 's38', 1, 3, s(3), digest(1, 2, 3)), promote('s38', 1, 0), findings('s38'), shown('s38', 'safe');

-- scenario 73: a promotion to another definition forgets what the new one has not folded; a redelivery is applied, then a duplicate
SELECT create_view('gen', 's73');
SELECT put('s73', 5, up('k', '{"old":1}')), put('s73', 4, patch('k', '{"p":1}')), put('s73', 6, up('j', '{"old":1}')), put('s73', 7, '{}'), begin_rebuild('gen', 's73', 2);
SELECT promote('s73', 1, 0), shown('s73'), meta('s73'), receipts('s73', 0), receipts('s73', 1), markers('s73', 0), stored('s73', 0);
SELECT put('s73', 5, up('k', '{"new":1}')), put('s73', 5, up('k', '{"new":1}')), shown('s73'), receipts('s73', 1);
SELECT put('s73', 4, patch('k', '{"p":1}')), put('s73', 6, up('j', '{"new":1}')), put('s73', 7, '{}'), receipts('s73', 1), markers('s73', 1), shown('s73');
-- a definition guard of the old code is refused
SELECT refused($$SELECT apply('gen', 's73', 'e8', s(8), up('k', '8'), definition_version => 1)$$);

-- scenario 112: dropping a retired generation, bounded; the pointer is untouched
SELECT create_view('gen', 's112', receipt_retention => '0');
SELECT step('s112', 0, n, up('k' || n, to_jsonb(n)) || entry('k' || n, 'i', 'x')) FROM generate_series(1, 4) n;
SELECT record_unsafe_failure('gen', 's112', 'e9', s(9), 'why');
SELECT begin_rebuild('gen', 's112', 1, last_suid => s(4)), promote('s112', 1, 0);
SELECT left_over('s112', 0), instance('s112', 0);
SELECT drop_generation('gen', 's112', 0, 0) > 0 AS remains, instance('s112', 0), refused($$SELECT reopen_generation('gen', 's112', 0)$$) AS reopen, refused($$SELECT step('s112', 0, 5, up('k', '1'))$$) AS step;
SELECT drop_generation('gen', 's112', 0, 3) > 0 AS remains, drop_generation('gen', 's112', 0, 3) > 0 AS remains;
SELECT drop_generation('gen', 's112', 0), left_over('s112', 0), instance('s112', 1);
SELECT generation, status FROM read_active('gen', 's112');
SELECT refused($$SELECT drop_generation('gen', 's112', 0)$$) AS gone, refused($$SELECT read_instance('gen', 's112', 0)$$) AS read, next('s112');
-- a candidate with everything in it, in one call
SELECT begin_rebuild('gen', 's112', 1), step('s112', 2, 1, up('k', '1') || entry('k', 'i', 'x')), drop_generation('gen', 's112', 2), left_over('s112', 2);

-- scenario 138: the promotion is a compare-and-set
SELECT create_view('gen', 's138');
SELECT step('s138', 0, 1, up('k', '"old"')), begin_rebuild('gen', 's138', 1), step('s138', 1, 1, up('k', '"new"'));
SELECT refused($$SELECT promote_generation('gen', 's138', 1, 99)$$), shown('s138'), instance('s138', 0), (SELECT retryable FROM errors WHERE code = 'MV_PROMOTION_CAS_MISMATCH');
SELECT promote('s138', 1, 0), instance('s138', 0), instance('s138', 1), shown('s138');
SELECT active_generation FROM unsafemv.views WHERE service_id = 'gen' AND view_id = 's138';

-- scenario 139: only a candidate can be promoted
SELECT begin_rebuild('gen', 's138', 1), drop_generation('gen', 's138', 2, 0);
SELECT refused($$SELECT promote_generation('gen', 's138', 0, 1)$$) AS retired, refused($$SELECT promote_generation('gen', 's138', 1, 1)$$) AS active, refused($$SELECT promote_generation('gen', 's138', 2, 1)$$) AS gone;
SELECT begin_rebuild('gen', 's138', 1), step('s138', 3, 1, up('k', '1'));
SELECT drop_generation('gen', 's138', 3, 0) > 0 AS dropping, refused($$SELECT promote_generation('gen', 's138', 3, 1)$$) AS dropping, refused($$SELECT promote_generation('gen', 's138', 3, 1, true)$$) AS forced, refused($$SELECT promote_generation('gen', 's138', 0, 1, true)$$) AS retired_forced;

-- scenario 140: an open quarantine wants a proven candidate, forced or not
SELECT create_view('gen', 's140');
SELECT step('s140', 0, 1, up('k', '1')), step('s140', 0, 3, up('k', '3')), record_ordering_quarantine('gen', 's140', 'e2', s(2), '{"seen":"late"}'), begin_rebuild('gen', 's140', 1);
SELECT step('s140', 1, 1, up('k', '1')), step('s140', 1, 3, up('k', '3'));
SELECT refused($$SELECT promote_generation('gen', 's140', 1, 0)$$), refused($$SELECT promote_generation('gen', 's140', 1, 0, true)$$) AS forced, findings('s140'), refused($$SELECT shown('s140', 'safe')$$), shown('s140');

-- scenario 142: what is no proof
SELECT refused($$SELECT mark_generation_rebuilt('gen', 's140', 1, 2, s(3), digest(1, 3))$$) AS misses_quarantined;
SELECT begin_rebuild('gen', 's140', 1);
SELECT step('s140', 2, n, up('k', to_jsonb(n))) FROM generate_series(1, 3) n;
SELECT refused($$SELECT mark_generation_rebuilt('gen', 's140', 2, 3, s(4), digest(1, 2, 3))$$) AS maximum, refused($$SELECT mark_generation_rebuilt('gen', 's140', 2, 3, NULL, digest(1, 2, 3))$$) AS no_maximum, refused($$SELECT mark_generation_rebuilt('gen', 's140', 2, 4, s(3), digest(1, 2, 3))$$) AS count,
    refused($$SELECT mark_generation_rebuilt('gen', 's140', 2, 3, s(3), digest(1, 3, 2))$$) AS digest, refused($$SELECT mark_generation_rebuilt('gen', 's140', 2, 3, s(3), NULL)$$) AS no_digest, refused($$SELECT mark_generation_rebuilt('gen', 's140', 0, 2, s(3), digest(1, 3))$$) AS active;
SELECT proof_columns('s140', 2), mark_generation_rebuilt('gen', 's140', 2, 3, s(3), digest(1, 2, 3)), promote('s140', 2, 0), findings('s140'), shown('s140', 'safe');
SELECT refused($$SELECT mark_generation_rebuilt('gen', 's140', 0, 2, s(3), digest(1, 3))$$) AS retired;
-- an event that arrived longer ago than the retention is folded all the same
SELECT create_view('gen', 's142');
SELECT step('s142', 0, 1, up('k', '1')), step('s142', 0, 3, up('k', '3')), record_ordering_quarantine('gen', 's142', 'e2', s(2)), begin_rebuild('gen', 's142', 1);
SELECT step('s142', 1, n, up('k', to_jsonb(n)), arrived => '2001-01-01T00:00:00Z') FROM generate_series(1, 3) n;
SELECT mark_generation_rebuilt('gen', 's142', 1, 3, s(3), digest(1, 2, 3)), proof_columns('s142', 1);
-- a quarantine that is newer than the proof is not answered by it
SELECT create_view('gen', 's142b');
SELECT step('s142b', 0, 1, up('k', '1')), begin_rebuild('gen', 's142b', 1), step('s142b', 1, 1, up('k', '1'));
SELECT mark_generation_rebuilt('gen', 's142b', 1, 1, s(1), digest(1)), record_ordering_quarantine('gen', 's142b', 'other', s(1));
SELECT refused($$SELECT promote_generation('gen', 's142b', 1, 0)$$) AS later_quarantine;

-- scenario 144: a rebuild that deletes everything
SELECT create_view('gen', 's144');
SELECT step('s144', 0, 1, up('k', '1')), step('s144', 0, 2, up('j', '2')), record_ordering_quarantine('gen', 's144', 'e2', s(2)), begin_rebuild('gen', 's144', 2);
SELECT step('s144', 1, 1, up('k', '1')), step('s144', 1, 2, '{"rowDeletes":["k","j"]}'), mark_generation_rebuilt('gen', 's144', 1, 2, s(2), digest(1, 2));
SELECT instance('s144', 1), promote('s144', 1, 0), findings('s144');
SELECT shown('s144', 'safe'), composed_page('gen', 's144', consistency => 'safe');
SELECT f.resolved_at = g.updated_at OR abs(extract(epoch FROM f.resolved_at - g.updated_at)) < 1 AS at_promotion FROM unsafemv.findings f JOIN unsafemv.generations g USING (service_id, view_no) WHERE f.service_id = 'gen' AND f.view_no = no('s144') AND g.generation = 1;

-- scenario 145: an empty source
SELECT create_view('gen', 's145');
SELECT begin_rebuild('gen', 's145', 1), mark_generation_rebuilt('gen', 's145', 1, 0, NULL, NULL), instance('s145', 1);
SELECT refused($$SELECT mark_generation_rebuilt('gen', 's145', 1, 0, s(1), NULL)$$) AS maximum, refused($$SELECT mark_generation_rebuilt('gen', 's145', 1, 0, NULL, '\x00')$$) AS digest;
SELECT promote('s145', 1, 0), instance('s145', 1), composed_page('gen', 's145');

-- scenario 146: failures of the old generation do not gate the new one
SELECT create_view('gen', 's146');
SELECT step('s146', 0, 1, up('k', '1')), record_unsafe_failure('gen', 's146', 'e2', s(2), 'why'), record_checkpoint_ahead('gen', 's146', NULL), begin_rebuild('gen', 's146', 2);
SELECT refused($$SELECT shown('s146')$$) AS before, wait_for('gen', 's146', 'e2', s(2), '0') AS waits;
SELECT step('s146', 1, 1, up('k', '1')), promote('s146', 1, 0), shown('s146'), shown('s146', 'safe');
SELECT wait_for('gen', 's146', 'e2', s(2), '0') AS waits, count(*) AS open FROM read_findings('gen', 's146');

-- scenario 148, report 28: built is not caught up
SELECT create_view('gen', 's148');
SELECT step('s148', 0, 1, up('k', '1')), begin_rebuild('gen', 's148', 1), step('s148', 0, 2, up('j', '2')), put('s148', 5, up('u', '5')), put('s148', 6, patch('u', '{"p":6}'));
SELECT said($$SELECT promote_generation('gen', 's148', 1, 0)$$), (SELECT retryable FROM errors WHERE code = 'MV_PROMOTION_BEHIND');
SELECT step('s148', 1, 1, up('k', '1')), said($$SELECT promote_generation('gen', 's148', 1, 0)$$), shown('s148'), findings('s148');
SELECT promote('s148', 1, 0, true), findings('s148'), instance('s148', 1), meta('s148'), shown('s148'), receipts('s148', 1);
SELECT kind, regexp_replace(detail::text, '0{10,}', '', 'g') AS detail, attempts FROM read_findings('gen', 's148');
-- a force that is not needed is none
SELECT begin_rebuild('gen', 's148', 1), step('s148', 2, 1, up('k', '1')), promote('s148', 2, 1, true), findings('s148'), shown('s148');
-- a closed candidate is not promoted (report 28)
SELECT create_view('gen', 'r28');
SELECT step('r28', 0, 1, up('k', '1')), begin_rebuild('gen', 'r28', 1), step('r28', 1, 1, up('k', '1'));
SELECT promote('r28', 1, 0), put('r28', 3, up('j', '3')), step('r28', 1, 4, up('k', '4')), meta('r28'), instance('r28', 1);
SELECT begin_rebuild('gen', 'r28', 1, last_suid => s(4)), said($$SELECT promote_generation('gen', 'r28', 2, 1)$$);
SELECT begin_rebuild('gen', 'r28', 1), step('r28', 3, 1, up('k', '1')), step('r28', 3, 3, up('j', '3')), step('r28', 3, 4, up('k', '4')), promote('r28', 3, 1), meta('r28'), shown('r28');
-- the way back to the closed one stays closed: reopened, caught up, refused
SELECT reopen_generation('gen', 'r28', 1), said($$SELECT promote_generation('gen', 'r28', 1, 3)$$);

-- scenario 236: events that came late to the active generation
SELECT create_view('gen', 's236');
SELECT step('s236', 0, 40, up('k', '40')), step('s236', 0, 80, up('k', '80')), begin_rebuild('gen', 's236', 1), step('s236', 1, 40, up('k', '40')), step('s236', 1, 80, up('k', '80')), step('s236', 1, 100, up('k', '100'));
SELECT put('s236', 50, up('a', '50')), put('s236', 60, up('b', '60')), said($$SELECT promote_generation('gen', 's236', 1, 0)$$);
SELECT promote('s236', 1, 0, true), receipts('s236', 1), meta('s236'), refused($$SELECT shown('s236')$$) AS read, refused($$SELECT shown('s236', 'safe')$$) AS safe_read, findings('s236'), receipts('s236', 0);
-- the next step says so for good; a clean rebuild ends it
SELECT step('s236', 1, 101, up('k', '101')), instance('s236', 1), begin_rebuild('gen', 's236', 1);
SELECT step('s236', 2, n, up(CASE n WHEN 50 THEN 'a' WHEN 60 THEN 'b' ELSE 'k' END, to_jsonb(n))) FROM unnest('{40,50,60,80,100,101}'::int[]) n;
SELECT promote('s236', 2, 1), shown('s236'), meta('s236');
-- unsettled ones above the active head count just as well, and no-change does not
SELECT create_view('gen', 's236b');
SELECT put('s236b', 3, up('a', '3')), put('s236b', 4, '{}'), put('s236b', 5, up('b', '5')), begin_rebuild('gen', 's236b', 1), step('s236b', 1, 5, up('b', '5'));
SELECT said($$SELECT promote_generation('gen', 's236b', 1, 0)$$), promote('s236b', 1, 0, true), receipts('s236b', 1), meta('s236b');

-- scenario 251: in flight while the candidate passes it, settled in the active generation afterwards
SELECT create_view('gen', 's251');
SELECT step('s251', 0, 90, up('k', '90')), begin_rebuild('gen', 's251', 1);
SELECT step('s251', 1, n, up('k', to_jsonb(n))) FROM unnest('{90,94,96}'::int[]) n;
SELECT put('s251', 95, up('a', '95')), put('s251', 94, up('k', '94')), step('s251', 0, 94, up('k', '94')), step('s251', 0, 95, up('a', '95')), receipts('s251', 0), said($$SELECT promote_generation('gen', 's251', 1, 0)$$);
-- nor does collection hide it: receipts observed since the candidate began are kept
SELECT alter_view('gen', 's251', '0'), collect_eligible('gen', 's251', 0, 1, s(95)), receipts('s251', 0), refused($$SELECT promote_generation('gen', 's251', 1, 0)$$);

-- scenario 252: an event that was applied and whose append rolled back
SELECT create_view('gen', 's252');
SELECT step('s252', 0, 1, up('k', '1')), put('s252', 3, up('ghost', '3')), put('s252', 2, '{}', 'void'), step('s252', 0, 4, up('k', '4')), meta('s252'), refused($$SELECT shown('s252')$$) AS read;
SELECT begin_rebuild('gen', 's252', 1), step('s252', 1, 1, up('k', '1')), step('s252', 1, 4, up('k', '4')), said($$SELECT promote_generation('gen', 's252', 1, 0)$$);
SELECT dismiss_event('gen', 's252', 'e3', s(3), 'its append rolled "back"'), receipts('s252', 0), findings('s252'), instance('s252', 0);
SELECT detail FROM unsafemv.findings WHERE service_id = 'gen' AND view_no = no('s252') AND kind = 'dismissed-event';
SELECT promote('s252', 1, 0), shown('s252'), meta('s252'), left_over('s252', 0);
-- a late one that shall not count: the gate opens again, and a redelivery is known
SELECT put('s252', 2, up('late', '2')), meta('s252'), dismiss_event('gen', 's252', 'e2', s(2), 'old'), meta('s252'), shown('s252'), put('s252', 2, up('late', '2'));
-- dismissed above the head: the row stays until the head passes it, over a promotion too
SELECT create_view('gen', 's252b');
SELECT step('s252b', 0, 1, up('k', '1')), put('s252b', 9, up('ghost', '9')), dismiss_event('gen', 's252b', 'e9', s(9), 'void'), shown('s252b'), receipts('s252b', 0), begin_rebuild('gen', 's252b', 1), step('s252b', 1, 1, up('k', '1'));
SELECT generation FROM promote_generation('gen', 's252b', 1, 0);
SELECT invariant, detail FROM unsafemv.check('gen') WHERE view_id = 's252b';
SELECT put('s252b', 9, up('ghost', '9')) AS redelivered;
-- two settled receipts may share a SUID at or below the head
SELECT step('s252b', 1, 12, up('k', '12')), put('s252b', 12, up('other', '12'), 'other'), dismiss_event('gen', 's252b', 'other', s(12), 'void'), meta('s252b'), put('s252b', 12, up('other', '12'), 'other');

-- scenario 245: the way back
SELECT create_view('gen', 's245');
SELECT step('s245', 0, 1, up('k', '1')), begin_rebuild('gen', 's245', 2), step('s245', 1, 1, up('k', '"one"')), promote('s245', 1, 0), step('s245', 1, 2, up('k', '"two"')), put('s245', 3, up('j', '"three"')), shown('s245');
SELECT reopen_generation('gen', 's245', 0), instance('s245', 0), refused($$SELECT reopen_generation('gen', 's245', 0)$$) AS again, said($$SELECT promote_generation('gen', 's245', 0, 1)$$);
SELECT step('s245', 0, 2, up('k', '2')), promote('s245', 0, 1), shown('s245'), meta('s245'), instance('s245', 0), instance('s245', 1);
SELECT put('s245', 3, up('j', '3')), step('s245', 0, 3, up('j', '3')), shown('s245'), receipts('s245', 0);

-- scenario 259: to and fro with tentative rows each time
SELECT create_view('gen', 's259');
SELECT step('s259', 0, 1, up('k', '{"a":1}')), put('s259', 5, patch('k', '{"p5":1}')), put('s259', 6, up('j', '6') || entry('j', 'i', 'six')), put('s259', 4, up('j', '4')), put('s259', 7, '{}');
SELECT begin_rebuild('gen', 's259', 1), step('s259', 1, 1, up('k', '{"b":1}')), promote('s259', 1, 0), shown('s259'), entries('s259'), stored('s259', 1), markers('s259', 1), left_over('s259', 0);
SELECT put('s259', 8, patch('k', '{"p8":1}')), put('s259', 9, del('j')), put('s259', 5, patch('k', '{"p5":1}')), shown('s259');
SELECT reopen_generation('gen', 's259', 0), promote('s259', 0, 1), shown('s259'), stored('s259', 0), receipts('s259', 0), markers('s259', 0), left_over('s259', 1);
SELECT reopen_generation('gen', 's259', 1), promote('s259', 1, 0), shown('s259'), reopen_generation('gen', 's259', 0), promote('s259', 0, 1), shown('s259'), receipts('s259', 0), left_over('s259', 1);
SELECT step('s259', 0, n, CASE n WHEN 4 THEN up('j', '4') WHEN 5 THEN patch('k', '{"p5":1}') WHEN 6 THEN up('j', '6') WHEN 7 THEN '{}' WHEN 8 THEN patch('k', '{"p8":1}') ELSE del('j') END) FROM generate_series(4, 9) n;
SELECT shown('s259'), stored('s259', 0), markers('s259', 0), receipts('s259', 0);
SELECT invariant, detail FROM unsafemv.check('gen') WHERE view_id = 's259';

-- scenario 238, report 26: the same definition carries; kept patches fold on the candidate's rows
SELECT create_view('gen', 'carry', indexes => '[{"id":"c","type":"integer","path":"c"}]');
SELECT step('carry', 0, 1, up('k', '{"c":1,"from":"active"}')), step('carry', 0, 2, up('gone', '{"c":2}')), step('carry', 0, 3, up('same', '{"c":3,"from":"active"}'));
SELECT put('carry', 10, patch('k', '{"p10":1}', 2)), put('carry', 12, patch('k', '{"c":10}', 3, kind => 'add')), put('carry', 11, patch('gone', '{"p11":1}')), put('carry', 13, patch('later', '{"p13":1}')), put('carry', 14, up('new', '{"c":14}')), put('carry', 15, patch('new', '{"p15":1}')),
    put('carry', 16, del('same')), put('carry', 9, up('same', '{"c":9}')), put('carry', 17, '{}'), put('carry', 18, patch('early', '{"p18":1}', "create" => true));
SELECT shown('carry'), entries('carry'), stored('carry', 0);
-- the candidate has other values at the same SUIDs (k), no row (gone), a row the active one lacks (later), and folds 10 and 14 itself
SELECT begin_rebuild('gen', 'carry', 1), step('carry', 1, 1, up('k', '{"c":100,"from":"candidate"}')), step('carry', 1, 2, del('gone')), step('carry', 1, 3, up('later', '{"c":3}'));
SELECT step('carry', 1, 10, patch('k', '{"p10":"safe"}', 2)), refused($$SELECT promote_generation('gen', 'carry', 1, 0)$$) AS lacks_9, begin_rebuild('gen', 'carry', 1);
SELECT step('carry', 2, n, CASE n WHEN 1 THEN up('k', '{"c":100,"from":"candidate"}') WHEN 2 THEN del('gone') WHEN 3 THEN up('later', '{"c":3}') WHEN 9 THEN up('same', '{"c":9}') ELSE patch('k', '{"p10":"safe"}', 2) END) FROM unnest('{1,2,3,9,10}'::int[]) n;
SELECT promote('carry', 2, 0), instance('carry', 2), meta('carry');
SELECT row_key, value, row_version, short(source_suid) AS source, unsafe FROM query_composed_page('gen', 'carry');
SELECT entries('carry'), stored('carry', 2), receipts('carry', 2), markers('carry', 2), left_over('carry', 0);
SELECT put('carry', 12, patch('k', '{"c":10}', 3, kind => 'add')) AS duplicate, put('carry', 19, patch('k', '{"p19":1}')) AS next, (SELECT value FROM read_rows('gen', 'carry') WHERE row_key = 'k');

-- kept patches on a tentative upsert that the candidate has folded
SELECT create_view('gen', 'carry2');
SELECT put('carry2', 5, up('k', '{"a":5}')), put('carry2', 6, patch('k', '{"p6":1}')), put('carry2', 9, patch('k', '{"p9":1}')), put('carry2', 7, del('x')), put('carry2', 8, up('x', '{"x":8}')), stored('carry2', 0), begin_rebuild('gen', 'carry2', 1);
SELECT step('carry2', 1, 5, up('k', '{"a":"five"}')), step('carry2', 1, 6, patch('k', '{"p6":"six"}')), promote('carry2', 1, 0), shown('carry2'), stored('carry2', 1), receipts('carry2', 1), receipts('carry2', 0);
-- all tentative rows at or below the new head: nothing comes along
SELECT begin_rebuild('gen', 'carry2', 1);
SELECT step('carry2', 2, n, up('k', to_jsonb(n))) FROM generate_series(5, 9) n;
SELECT promote('carry2', 2, 1), shown('carry2'), left_over('carry2', 2), meta('carry2');

-- base unsafe: the stored merged values come along as they are
SELECT create_view('gen', 'carry3', base => 'unsafe');
SELECT put('carry3', 5, up('k', '{"a":5}')), put('carry3', 6, patch('k', '{"p6":1}')), put('carry3', 4, up('k', '4')), step('carry3', 0, 1, up('k', '{"a":1}')), begin_rebuild('gen', 'carry3', 1), step('carry3', 1, 1, up('k', '{"b":1}'));
SELECT promote('carry3', 1, 0), shown('carry3'), receipts('carry3', 1), markers('carry3', 1);

-- another definition: the events to deliver again, in SUID order; those at or below the new head are none
SELECT create_view('gen', 'redeliver');
SELECT put('redeliver', 7, up('k', '7')), put('redeliver', 5, up('k', '5'), 'é "5", x'), put('redeliver', 9, patch('z', '{}')), put('redeliver', 3, up('a', '3')), put('redeliver', 8, '{}'), begin_rebuild('gen', 'redeliver', 9), step('redeliver', 1, 3, up('a', '"3"'));
SELECT promote('redeliver', 1, 0), left_over('redeliver', 0), left_over('redeliver', 1), meta('redeliver'), shown('redeliver');

-- scenario 250: half of 300 kept patches became one operation; a promotion carries that as it is
SELECT create_view('gen', 's250');
SELECT step('s250', 0, 1, up('k', '{"f0":0}'));
SELECT count(*) AS applied FROM apply_batch('gen', 's250', (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', patch('k', jsonb_build_object('f' || n, n, 'last', n), n)) ORDER BY n) FROM generate_series(2, 301) n)) WHERE outcome = 'applied';
SELECT p.row_version, short(p.source_suid) AS source, (SELECT count(*) FROM jsonb_object_keys(p.value)) AS members, p.value -> 'last' AS last, jsonb_array_length(kept) < 300 AS capped
    FROM query_composed_page('gen', 's250') p JOIN unsafemv.unsafe_rows u ON u.service_id = 'gen' AND u.view_no = no('s250');
SELECT begin_rebuild('gen', 's250', 1), step('s250', 1, 1, up('k', '{"f0":0}')), promote('s250', 1, 0);
SELECT row_version, short(source_suid) AS source, (SELECT count(*) FROM jsonb_object_keys(value)) AS members, value -> 'last' AS last FROM query_composed_page('gen', 's250');
-- a patch at and below what became one operation is older, with a marker
SELECT put('s250', 100, patch('k', '{"x":1}'), 'e100') AS known, reopen_generation('gen', 's250', 0), step('s250', 0, 2, patch('k', '{"f2":2}')), promote('s250', 0, 1), meta('s250');
SELECT row_version, short(source_suid) AS source, (SELECT count(*) FROM jsonb_object_keys(value)) AS members, value -> 'last' AS last FROM query_composed_page('gen', 's250');
SELECT string_agg(r, ' ') AS steps FROM (SELECT step('s250', 0, n, patch('k', jsonb_build_object('f' || n, n, 'last', n), n)) AS r FROM generate_series(3, 301) n OFFSET 0) x WHERE r = 'head 301';
SELECT row_version, short(source_suid) AS source, (SELECT count(*) FROM jsonb_object_keys(value)) AS members, value -> 'last' AS last, unsafe FROM query_composed_page('gen', 's250');

-- begin_rebuild with last_suid: the head, and the floor
SELECT create_view('gen', 'seed');
SELECT step('seed', 0, 5, up('k', '5')), begin_rebuild('gen', 'seed', 1, last_suid => s(5)), instance('seed', 1);
SELECT promote('seed', 1, 0), meta('seed'), shown('seed'), refused($$SELECT put('seed', 5, up('k', '5'))$$) AS at_floor, refused($$SELECT put('seed', 3, up('k', '3'))$$) AS below, put('seed', 6, up('k', '6')) AS above;

-- a candidate's fold settles also below its floor what the active generation has receipts for
SELECT create_view('gen', 'floor');
SELECT step('floor', 0, 1, up('k', '1'), arrived => '2001-01-01T00:00:00Z'), put('floor', 2, up('k', '2')), put('floor', 4, up('k', '4')), step('floor', 0, 2, up('k', '2')), instance('floor', 0), receipts('floor', 0), begin_rebuild('gen', 'floor', 1);
SELECT step('floor', 1, n, up('k', to_jsonb(n)), arrived => '2001-01-01T00:00:00Z') FROM generate_series(1, 4) n;
SELECT instance('floor', 1), receipts('floor', 1), promote('floor', 1, 0), meta('floor');
SELECT put('floor', 2, up('k', '2')) AS settled, put('floor', 4, up('k', '4')) AS unsettled, refused($$SELECT put('floor', 1, up('k', '1'))$$) AS old, refused($$SELECT put('floor', 3, up('k', '3'))$$) AS never_seen, meta('floor'), shown('floor');
-- and one that the candidate passed over below its floor while it is unsettled is missed
SELECT create_view('gen', 'floor2');
SELECT put('floor2', 2, up('k', '2')), begin_rebuild('gen', 'floor2', 1), step('floor2', 1, 5, up('k', '5'), arrived => '2001-01-01T00:00:00Z'), instance('floor2', 1), refused($$SELECT promote_generation('gen', 'floor2', 1, 0)$$);

-- the maximum of read_meta is over all receipts ever: carried, collected, of another definition, and those of the generation before
SELECT create_view('gen', 'maximum', receipt_retention => '0');
SELECT put('maximum', 9, up('k', '9')), step('maximum', 0, 9, up('k', '9')), collect_eligible('gen', 'maximum', 0, 1, s(9)), receipts('maximum', 0), maximum('maximum');
SELECT put('maximum', 12, up('k', '12')), begin_rebuild('gen', 'maximum', 1, last_suid => s(9)), promote('maximum', 1, 0), maximum('maximum') AS carried, receipts('maximum', 1);
SELECT begin_rebuild('gen', 'maximum', 2, last_suid => s(9)), promote('maximum', 2, 1), maximum('maximum') AS of_another_definition;
SELECT create_view('gen', 'maximum2'), step('maximum2', 0, 5, up('k', '5')), begin_rebuild('gen', 'maximum2', 1, last_suid => s(5)), promote('maximum2', 1, 0), maximum('maximum2') AS of_the_generation_before;

-- settled above the head by a caller that keeps its safe rows elsewhere: row and receipt come along
SELECT create_view('gen', 'elsewhere');
SELECT put('elsewhere', 3, up('k', '3')), put('elsewhere', 9, up('j', '9')), observe_safe_receipt('gen', 'elsewhere', 'e9', s(9)), meta('elsewhere'), begin_rebuild('gen', 'elsewhere', 1);
SELECT generation FROM promote_generation('gen', 'elsewhere', 1, 0);
SELECT shown('elsewhere');
SELECT invariant, detail FROM unsafemv.check('gen') WHERE view_id = 'elsewhere';
SELECT put('elsewhere', 9, up('j', '9')) AS redelivered, put('elsewhere', 3, up('k', '3')) AS redelivered;

-- report 26: a rebuild beside live traffic with a late event; twice in a row
SELECT create_view('gen', 'r26');
CREATE FUNCTION all_of(view text, generation bigint, since bigint, upto bigint) RETURNS text LANGUAGE sql AS $$
    SELECT short(b.last_suid) FROM unsafemv.apply_safe_batch('gen', view, (SELECT i.last_suid::suid FROM unsafemv.read_instance('gen', view, all_of.generation) i),
        (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', patch('k' || n % 7, '{"n":1}', n, true, 'add')) ORDER BY n) FROM generate_series(since, upto) n), generation) b
$$;
SELECT all_of('r26', 0, 1, 989), all_of('r26', 0, 991, 1000), begin_rebuild('gen', 'r26', 1), all_of('r26', 1, 1, 500);
SELECT count(*) AS live FROM apply_batch('gen', 'r26', (SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', s(n)::text, 'mutations', patch('k' || n % 7, '{"n":1}', n, true, 'add'))) FROM generate_series(1001, 1050) n)) WHERE outcome = 'applied';
SELECT shown('r26') AS readable, put('r26', 990, patch('k3', '{"n":1}', 990, true, 'add')), meta('r26'), refused($$SELECT promote_generation('gen', 'r26', 1, 0)$$);
SELECT all_of('r26', 1, 501, 1000), promote('r26', 1, 0), meta('r26'), shown('r26'), shown('r26', 'safe');
SELECT begin_rebuild('gen', 'r26', 1), all_of('r26', 2, 1, 1050), promote('r26', 2, 1), shown('r26'), meta('r26'), begin_rebuild('gen', 'r26', 1), all_of('r26', 3, 1, 1050), promote('r26', 3, 2), shown('r26', 'safe');
SELECT sum((value ->> 'n')::int) AS events FROM query_composed_page('gen', 'r26');

-- report 19: nothing of the generation that is not active is collected
SELECT create_view('gen', 'r19', receipt_retention => '0');
SELECT step('r19', 0, 11, up('k', '11')), put('r19', 12, up('k', '12')), begin_rebuild('gen', 'r19', 1), step('r19', 1, 11, up('k', '11')), step('r19', 1, 12, up('k', '12'));
SELECT collect_eligible('gen', 'r19', 0, 1, s(12)), collect_eligible('gen', 'r19', 1, 1, s(12)), garbage_collect('gen', 'r19', 0, 1, 'k', 1, s(12), s(12)), shown('r19'), receipts('r19', 1);

-- report 20: a tombstone that was collected does not let older writes back, over a promotion too
SELECT create_view('gen', 'r20', receipt_retention => '0');
SELECT put('r20', 1, up('k', '{"old":1}')), put('r20', 20, del('k')), step('r20', 0, 1, up('k', '{"old":1}')), step('r20', 0, 20, del('k')), collect_eligible('gen', 'r20', 0, 1, s(20)), instance('r20', 0), shown('r20');
SELECT refused($$SELECT put('r20', 1, up('k', '{"old":1}'))$$) AS create_1, refused($$SELECT put('r20', 15, patch('k', '{"p":15}'))$$) AS patch_15, shown('r20'), meta('r20');
SELECT begin_rebuild('gen', 'r20', 1), step('r20', 1, 1, up('k', '{"old":1}')), step('r20', 1, 20, del('k')), promote('r20', 1, 0), put('r20', 1, up('k', '{"old":1}')) AS create_1, put('r20', 30, up('k', '{"new":1}')), shown('r20');

-- scenario 241: what was dropped stays dropped
SELECT create_view('gen', 's241');
SELECT begin_rebuild('gen', 's241', 1), begin_rebuild('gen', 's241', 1), step('s241', 2, 1, up('k', '1')), drop_generation('gen', 's241', 2), begin_rebuild('gen', 's241', 1), left_over('s241', 2), left_over('s241', 3);

SELECT * FROM unsafemv.check('gen');
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'gen';
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA generation_test CASCADE;
