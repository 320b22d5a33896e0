--
-- One step of a test vector against the extension, as one JSON value:
-- {"error": code word} if the step raised, else what the vector expects.
-- Service is always 'player'; every create_view of a vector is another view.
--
CREATE FUNCTION pg_temp.receipts(view text) RETURNS SETOF unsafemv.receipts LANGUAGE sql AS $$
	SELECT r.* FROM unsafemv.receipts r JOIN unsafemv.views v USING (service_id, view_no)
	WHERE v.service_id = 'player' AND v.view_id = view AND r.generation = v.active_generation
$$;

-- What the model calls collect: receipt_retention zero, then collection at the
-- head.  Done on the tables, so that the vectors do not depend on the clock.
CREATE FUNCTION pg_temp.collect(view text) RETURNS void LANGUAGE sql AS $$
	UPDATE unsafemv.generations g SET
		observed_max_suid = (SELECT max(r.suid) FROM
			(SELECT suid FROM pg_temp.receipts(view) UNION ALL SELECT g.observed_max_suid) r),
		receipt_floor = (SELECT max(r.suid) FROM
			(SELECT suid FROM pg_temp.receipts(view) WHERE settled UNION ALL SELECT g.receipt_floor) r)
	FROM unsafemv.views v
	WHERE v.service_id = 'player' AND v.view_id = view
		AND (g.service_id, g.view_no, g.generation) = (v.service_id, v.view_no, v.active_generation);
	DELETE FROM unsafemv.receipts r USING unsafemv.views v
	WHERE v.service_id = 'player' AND v.view_id = view AND r.settled
		AND (r.service_id, r.view_no, r.generation) = (v.service_id, v.view_no, v.active_generation);
$$;

-- What section 9 of the contract derives: any unsettled receipt makes the view
-- dirty, unless rebuild_required is set, then only one above the head.
CREATE FUNCTION pg_temp.kick(view text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('dirty', d.dirty, 'target', CASE WHEN d.dirty THEN d.target::text END)
	FROM unsafemv.views v
	JOIN unsafemv.generations g ON (g.service_id, g.view_no, g.generation) = (v.service_id, v.view_no, v.active_generation),
	LATERAL (SELECT max(r.suid) AS target,
				coalesce(bool_or(NOT g.rebuild_required OR g.last_suid IS NULL OR r.suid > g.last_suid), false) AS dirty
			 FROM pg_temp.receipts(view) r WHERE NOT r.settled) d
	WHERE v.service_id = 'player' AND v.view_id = view
$$;

CREATE FUNCTION pg_temp.step(view text, op text, args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	answer jsonb;
	code text;
	state text;
	message text;
BEGIN
	CASE op
	WHEN 'create_view' THEN
		PERFORM unsafemv.create_view('player', view, base => args ->> 'base', indexes => args -> 'indexes');
	WHEN 'apply' THEN
		SELECT jsonb_build_object('outcome', a.outcome, 'duplicate', a.duplicate) INTO answer
		FROM unsafemv.apply('player', view, args ->> 'eventId', args ->> 'suid', args -> 'mutations',
			safe_head => args ->> 'safe_head', expected_row_version => (args ->> 'expected_row_version')::bigint,
			record_arrival => coalesce((args ->> 'record_arrival')::boolean, true)) a;
	WHEN 'apply_batch' THEN
		SELECT jsonb_agg(jsonb_build_object('position', a.position, 'event_id', a.event_id, 'outcome', a.outcome,
			'duplicate', a.duplicate, 'error_code', a.error_code) ORDER BY a.nth) INTO answer
		FROM (SELECT b.*, row_number() OVER () AS nth FROM
			unsafemv.apply_batch('player', view, args -> 'events', on_error => args ->> 'on_error') b) a;
	WHEN 'apply_safe_batch' THEN
		SELECT jsonb_build_object('last_suid', a.last_suid) INTO answer
		FROM unsafemv.apply_safe_batch('player', view, args ->> 'expected_last_suid', args -> 'events') a;
	WHEN 'page' THEN
		-- both forms of the page must agree; only the jsonb one knows the total past the end
		SELECT jsonb_build_object('rows', coalesce(jsonb_agg(jsonb_build_object('row_key', p.row_key, 'value', p.value,
			'row_version', p.row_version, 'source_suid', p.source_suid, 'unsafe', p.unsafe) ORDER BY p.nth), '[]'),
			'total', coalesce(min(p.total_count), -1)) INTO answer
		FROM (SELECT q.*, row_number() OVER () AS nth FROM unsafemv.query_composed_page('player', view,
			"limit" => (args ->> 'limit')::bigint, "offset" => (args ->> 'offset')::bigint,
			descending => (args ->> 'descending')::boolean, consistency => args ->> 'consistency') q) p;
		DECLARE
			page jsonb := unsafemv.composed_page('player', view,
				"limit" => (args ->> 'limit')::bigint, "offset" => (args ->> 'offset')::bigint,
				descending => (args ->> 'descending')::boolean, consistency => args ->> 'consistency');
		BEGIN
			IF answer -> 'rows' <> (SELECT coalesce(jsonb_agg(jsonb_build_object('row_key', r -> 'rowKey', 'value', r -> 'value',
					'row_version', (r ->> 'rowVersion')::bigint, 'source_suid', r -> 'sourceSuid', 'unsafe', r -> 'unsafe') ORDER BY n), '[]')
					FROM jsonb_array_elements(page -> 'rows') WITH ORDINALITY x (r, n))
				OR (answer ->> 'total' <> '-1' AND answer -> 'total' <> page -> 'totalCount') THEN
				answer := answer || jsonb_build_object('composed_page differs', page);
			ELSE
				answer := answer || jsonb_build_object('total', page -> 'totalCount');
			END IF;
		END;
	WHEN 'query_rows' THEN
		SELECT coalesce(jsonb_agg(q.row_key ORDER BY q.nth), '[]') INTO answer
		FROM (SELECT r.row_key, row_number() OVER () AS nth FROM unsafemv.query_rows('player', view,
			args ->> 'index_id', args ->> 'value_type', "limit" => NULL, descending => (args ->> 'descending')::boolean) r) q;
	WHEN 'collect' THEN
		PERFORM pg_temp.collect(view);
	WHEN 'read_meta' THEN
		SELECT to_jsonb(m) INTO answer FROM unsafemv.read_meta('player', view) m;
	WHEN 'kick' THEN
		answer := pg_temp.kick(view);
	WHEN 'receipts' THEN
		SELECT coalesce(jsonb_agg(jsonb_build_array(r.event_id, r.suid::text, r.outcome, r.settled) ORDER BY r.event_id), '[]')
		INTO answer FROM pg_temp.receipts(view) r;
	WHEN 'check' THEN
		SELECT coalesce(jsonb_agg(to_jsonb(c)), '[]') INTO answer FROM unsafemv.check('player') c;
	END CASE;
	RETURN coalesce(answer, 'null');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS code = CONSTRAINT_NAME, state = RETURNED_SQLSTATE, message = MESSAGE_TEXT;
	-- not one of ours: the message is what a reader needs
	RETURN jsonb_build_object('error', CASE WHEN code <> '' AND state LIKE 'UM%' THEN code ELSE state || ' ' || message END);
END $$;
