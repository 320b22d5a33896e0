-- monitor: status, and the check of the invariants.

CREATE FUNCTION unsafemv.derived_entries(value jsonb, indexes jsonb) RETURNS jsonb
LANGUAGE c IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_derived_entries';
COMMENT ON FUNCTION unsafemv.derived_entries(jsonb, jsonb) IS
'internal: the index entries that declared indexes derive from a row value, in the form of unsafe_rows.entries; NULL: none';
REVOKE ALL ON FUNCTION unsafemv.derived_entries(jsonb, jsonb) FROM PUBLIC;

-- Counts stop at 1,000: the view is for scraping and must not read a whole table.
-- ORDER BY keeps the planner on the index that ends there.
CREATE VIEW unsafemv.status WITH (security_invoker = true) AS
SELECT s.service_id, s.view_id, s.generation, s.definition_version, s.last_suid AS head,
	pg_catalog.clock_timestamp() - unsafemv.suid_timestamp(s.last_suid) AS head_age,
	(SELECT pg_catalog.count(*) FROM (
		SELECT FROM unsafemv.unsafe_rows u
		WHERE u.service_id = s.service_id AND u.view_no = s.view_no AND u.generation = s.generation
			AND u.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above(s.last_suid)
		ORDER BY u.source_suid LIMIT 1000) c) AS tentative_rows,
	(SELECT pg_catalog.clock_timestamp() - r.observed_at FROM unsafemv.receipts r
	 WHERE r.service_id = s.service_id AND r.view_no = s.view_no AND r.generation = s.generation AND NOT r.settled
	 ORDER BY r.suid LIMIT 1) AS oldest_unsettled_age,
	(SELECT pg_catalog.count(*) FROM (
		SELECT FROM unsafemv.receipts r
		WHERE r.service_id = s.service_id AND r.view_no = s.view_no AND r.generation = s.generation AND NOT r.settled
		ORDER BY r.suid LIMIT 1000) c) AS unsettled,
	(SELECT pg_catalog.count(*) FROM (
		SELECT FROM (
			(SELECT FROM unsafemv.receipts r
			 WHERE r.service_id = s.service_id AND r.view_no = s.view_no AND r.generation = s.generation AND NOT r.settled
			 ORDER BY r.suid LIMIT 1000)
			UNION ALL
			(SELECT FROM unsafemv.receipts r
			 WHERE r.service_id = s.service_id AND r.view_no = s.view_no AND r.generation = s.generation AND r.settled
			 ORDER BY r.suid LIMIT 1000)) k
		LIMIT 1000) c) AS receipts,
	CASE
		WHEN s.generation IS NULL THEN 'MV_INSTANCE_MISSING'
		WHEN s.rebuild_required OR s.offender_suid IS NOT NULL THEN 'UNSAFE_BEHIND_FRONTIER'
		WHEN s.checkpoint_ahead THEN 'MV_CHECKPOINT_AHEAD'
		WHEN s.ordering_quarantined THEN 'MV_ORDERING_QUARANTINED'
		ELSE 'open' END AS gate,
	(SELECT pg_catalog.count(*) FROM unsafemv.findings f
	 WHERE f.service_id = s.service_id AND f.view_no = s.view_no AND f.generation = s.generation
		AND f.resolved_at IS NULL
		AND NOT (f.kind = 'unsafe-failure' AND EXISTS (
			SELECT FROM unsafemv.receipts r
			WHERE r.service_id = f.service_id AND r.view_no = f.view_no AND r.generation = f.generation
				AND r.event_id = f.event_id
				AND (f.suid IS NULL OR r.suid OPERATOR(unsafemv.=) f.suid)))) AS findings,
	k.lease_owner, k.lease_epoch, k.lease_until
FROM unsafemv.read_gates s
LEFT JOIN unsafemv.kicks k ON k.service_id = s.service_id AND k.view_no = s.view_no;
COMMENT ON VIEW unsafemv.status IS 'one row per view, of its active generation; cheap enough to scrape';
COMMENT ON COLUMN unsafemv.status.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.status.view_id IS 'the view';
COMMENT ON COLUMN unsafemv.status.generation IS 'active generation; NULL: none';
COMMENT ON COLUMN unsafemv.status.definition_version IS 'version of the projection code it was built with';
COMMENT ON COLUMN unsafemv.status.head IS 'SUID of the last event the safe lane folded; NULL: nothing yet';
COMMENT ON COLUMN unsafemv.status.head_age IS 'time since the head''s moment (meaningless where SUIDs are made of positions)';
COMMENT ON COLUMN unsafemv.status.tentative_rows IS 'tentative rows above the head; counted up to 1,000, which means that many or more';
COMMENT ON COLUMN unsafemv.status.oldest_unsettled_age IS 'time since the unsettled event with the least SUID was processed first; NULL: nothing is unsettled';
COMMENT ON COLUMN unsafemv.status.unsettled IS 'unsettled receipts; counted up to 1,000';
COMMENT ON COLUMN unsafemv.status.receipts IS 'receipts kept; counted up to 1,000';
COMMENT ON COLUMN unsafemv.status.gate IS 'open, or the code with which reads are refused; MV_ORDERING_QUARANTINED refuses safe reads only';
COMMENT ON COLUMN unsafemv.status.findings IS 'open findings; a failed apply counts until its event has a receipt';
COMMENT ON COLUMN unsafemv.status.lease_owner IS 'who holds the lease on the view''s work; NULL: nobody';
COMMENT ON COLUMN unsafemv.status.lease_epoch IS 'how often the view''s work was granted; NULL: never';
COMMENT ON COLUMN unsafemv.status.lease_until IS 'when the lease expires; in the past: it was not finished, and another worker may take it';

CREATE FUNCTION unsafemv.check(service_id text DEFAULT NULL)
RETURNS TABLE (service_id text, view_id text, generation bigint, invariant integer, detail text)
LANGUAGE sql STABLE PARALLEL RESTRICTED ROWS 10 SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
WITH gen AS (
	SELECT v.view_id, v.active_generation, v.indexes, v.base, g.*
	FROM unsafemv.generations g
	JOIN unsafemv.views v ON v.service_id = g.service_id AND v.view_no = g.view_no
	WHERE ($1 IS NULL OR g.service_id = $1) AND g.status <> 'dropping'
), tentative AS (
	SELECT g.view_id, g.indexes, g.last_suid, g.status, u.*,
		u.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid) AS counts
	FROM gen g
	JOIN unsafemv.unsafe_rows u ON u.service_id = g.service_id AND u.view_no = g.view_no AND u.generation = g.generation
), quiet AS MATERIALIZED (
	-- nothing is unsettled; an operator's dismissal settles a receipt, not the row
	SELECT g.service_id, g.view_no, g.generation
	FROM gen g
	JOIN unsafemv.read_gates s ON s.service_id = g.service_id AND s.view_no = g.view_no AND s.generation = g.generation
	WHERE NOT s.rebuild_required AND s.offender_suid IS NULL AND NOT s.checkpoint_ahead
		AND NOT EXISTS (
			SELECT FROM unsafemv.receipts r
			WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
				AND NOT r.settled)
		AND NOT EXISTS (
			SELECT FROM unsafemv.receipts r
			WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
				AND r.settled AND r.outcome = 'dismissed' AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid))
), entry AS (
	-- every index entry of both lanes, with the value of its row
	SELECT g.service_id, g.view_id, g.view_no, g.generation, g.indexes, 'safe' AS lane, e.row_key, r.value, e.derived,
		jsonb_build_array(e.index_id, e.value_type, CASE e.value_type
			WHEN 'text' THEN to_jsonb(e.text_value)
			WHEN 'integer' THEN to_jsonb(e.integer_value)
			ELSE to_jsonb(e.real_value) END) AS entry
	FROM gen g
	JOIN unsafemv.index_entries e ON e.service_id = g.service_id AND e.view_no = g.view_no AND e.generation = g.generation
	LEFT JOIN unsafemv.rows r ON r.service_id = e.service_id AND r.view_no = e.view_no AND r.generation = e.generation
		AND r.row_key = e.row_key
	UNION ALL
	SELECT t.service_id, t.view_id, t.view_no, t.generation, t.indexes, 'tentative', t.row_key,
		CASE WHEN NOT t.tombstone THEN t.value END, x.e -> 3 IS NOT NULL, jsonb_build_array(x.e -> 0, x.e -> 1, x.e -> 2)
	FROM tentative t CROSS JOIN LATERAL jsonb_array_elements(t.entries) x(e)
), derived AS (
	-- what the declarations derive from the rows of both lanes
	SELECT w.service_id, w.view_id, w.view_no, w.generation, w.lane, w.row_key,
		jsonb_build_array(x.e -> 0, x.e -> 1, x.e -> 2) AS entry
	FROM (
		SELECT g.service_id, g.view_id, g.view_no, g.generation, g.indexes, 'safe' AS lane, r.row_key, r.value
		FROM gen g
		JOIN unsafemv.rows r ON r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
		WHERE g.indexes <> '[]'
		UNION ALL
		SELECT t.service_id, t.view_id, t.view_no, t.generation, t.indexes, 'tentative', t.row_key, t.value
		FROM tentative t
		WHERE t.indexes <> '[]' AND NOT t.tombstone
	) w
	CROSS JOIN LATERAL jsonb_array_elements(unsafemv.derived_entries(w.value, w.indexes)) x(e)
), violation(service_id, view_id, generation, invariant, detail) AS (
	-- 1: one active generation, and the view points at it
	SELECT v.service_id, v.view_id, v.active_generation, 1, 'the view points at a generation that is not active'
	FROM unsafemv.views v
	WHERE ($1 IS NULL OR v.service_id = $1) AND v.active_generation IS NOT NULL AND NOT EXISTS (
		SELECT FROM unsafemv.generations g
		WHERE g.service_id = v.service_id AND g.view_no = v.view_no AND g.generation = v.active_generation
			AND g.status = 'active')
	UNION ALL
	SELECT g.service_id, g.view_id, g.generation, 1, 'active, but the view does not point at it'
	FROM gen g
	WHERE g.status = 'active' AND g.generation IS DISTINCT FROM g.active_generation
	UNION ALL
	SELECT g.service_id, g.view_id, g.generation, 1, 'retired, but keeps tentative rows, markers or unsettled receipts'
	FROM gen g
	WHERE g.status = 'retired' AND (
		EXISTS (SELECT FROM unsafemv.unsafe_rows u
			WHERE u.service_id = g.service_id AND u.view_no = g.view_no AND u.generation = g.generation)
		OR EXISTS (SELECT FROM unsafemv.markers m
			WHERE m.service_id = g.service_id AND m.view_no = g.view_no AND m.generation = g.generation)
		OR EXISTS (SELECT FROM unsafemv.receipts r
			WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation AND NOT r.settled))
	UNION ALL
	-- 2: nothing safe above the head
	SELECT g.service_id, g.view_id, g.generation, 2, format('safe row %L above the head', r.row_key)
	FROM gen g
	JOIN unsafemv.rows r ON r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
		AND r.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid)
	UNION ALL
	-- 3: a tentative row above the head has its receipt
	SELECT t.service_id, t.view_id, t.generation, 3, format('tentative row %L without the receipt of its event', t.row_key)
	FROM tentative t
	WHERE t.counts AND NOT EXISTS (
		SELECT FROM unsafemv.receipts r
		WHERE r.service_id = t.service_id AND r.view_no = t.view_no AND r.generation = t.generation
			AND r.suid OPERATOR(unsafemv.=) t.source_suid AND r.settled)
		-- apart, because so are the indexes
		AND NOT EXISTS (
		SELECT FROM unsafemv.receipts r
		WHERE r.service_id = t.service_id AND r.view_no = t.view_no AND r.generation = t.generation
			AND r.suid OPERATOR(unsafemv.=) t.source_suid AND NOT r.settled)
	UNION ALL
	SELECT t.service_id, t.view_id, t.generation, 3, format('tentative row %L was claimed and never written', t.row_key)
	FROM tentative t
	WHERE t.tombstone IS NULL
	UNION ALL
	SELECT g.service_id, g.view_id, g.generation, 3, format('two receipts above the head with SUID %s', r.suid)
	FROM gen g
	JOIN unsafemv.receipts r ON r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
		AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid)
	GROUP BY g.service_id, g.view_id, g.generation, r.suid
	HAVING count(*) > 1
	UNION ALL
	-- 4: entries only with their row; declared ones as the value gives
	SELECT e.service_id, e.view_id, e.generation, 4, format('%s entry %s of row %L, which is not there', e.lane, e.entry, e.row_key)
	FROM entry e
	WHERE e.value IS NULL
	UNION ALL
	SELECT e.service_id, e.view_id, e.generation, 4, format('%s entry %s of row %L does not follow from its value', e.lane, e.entry, e.row_key)
	FROM entry e
	WHERE e.derived AND e.value IS NOT NULL AND NOT EXISTS (
		SELECT FROM derived d
		WHERE d.service_id = e.service_id AND d.view_no = e.view_no AND d.generation = e.generation
			AND d.lane = e.lane AND d.row_key = e.row_key AND d.entry = e.entry)
	UNION ALL
	SELECT d.service_id, d.view_id, d.generation, 4, format('%s row %L lacks entry %s', d.lane, d.row_key, d.entry)
	FROM derived d
	WHERE NOT EXISTS (
		SELECT FROM entry e
		WHERE e.service_id = d.service_id AND e.view_no = d.view_no AND e.generation = d.generation
			AND e.lane = d.lane AND e.row_key = d.row_key AND e.entry = d.entry)
	UNION ALL
	-- 5: a tentative row that is not stale is the fold of its kept events on its base
	SELECT t.service_id, t.view_id, t.generation, 5, format('tentative row %L is not the fold of its kept events', t.row_key)
	FROM tentative t
	JOIN unsafemv.tentative_rows f ON f.service_id = t.service_id AND f.view_no = t.view_no
		AND f.generation = t.generation AND f.row_key = t.row_key AND NOT f.refolded
	LEFT JOIN unsafemv.rows b ON b.service_id = t.service_id AND b.view_no = t.view_no
		AND b.generation = t.generation AND b.row_key = t.row_key
	CROSS JOIN LATERAL unsafemv.refold(t.kept, t.last_suid, b.value, b.row_version, b.source_suid,
		(SELECT jsonb_agg(jsonb_build_array(e.index_id, e.value_type, CASE e.value_type
			WHEN 'text' THEN to_jsonb(e.text_value)
			WHEN 'integer' THEN to_jsonb(e.integer_value)
			ELSE to_jsonb(e.real_value) END))
		 FROM unsafemv.index_entries e
		 WHERE e.service_id = t.service_id AND e.view_no = t.view_no AND e.generation = t.generation
			AND e.row_key = t.row_key AND NOT e.derived),
		t.indexes) r
	WHERE t.counts AND t.kept IS NOT NULL AND NOT (
		r.tombstone IS NOT DISTINCT FROM t.tombstone AND r.value IS NOT DISTINCT FROM t.value
		AND (t.tombstone OR r.row_version = t.row_version)
		AND (SELECT coalesce(jsonb_agg(x.e ORDER BY x.e), '[]') FROM jsonb_array_elements(r.entries) x(e))
			= (SELECT coalesce(jsonb_agg(x.e ORDER BY x.e), '[]') FROM jsonb_array_elements(t.entries) x(e)))
	UNION ALL
	SELECT t.service_id, t.view_id, t.generation, 5, format('kept events of tentative row %L do not match its columns', t.row_key)
	FROM tentative t
	WHERE t.kept IS NOT NULL AND NOT (
		t.kept -> 0 ->> 'suid' = t.kept_from::text AND t.kept -> -1 ->> 'suid' = t.source_suid::text)
	UNION ALL
	-- 6: with nothing unsettled, composed rows are the safe rows
	SELECT t.service_id, t.view_id, t.generation, 6, format('tentative row %L shows although nothing is unsettled', t.row_key)
	FROM tentative t
	JOIN quiet q ON q.service_id = t.service_id AND q.view_no = t.view_no AND q.generation = t.generation
	WHERE t.counts
		AND (NOT t.tombstone OR EXISTS (
			SELECT FROM unsafemv.rows r
			WHERE r.service_id = t.service_id AND r.view_no = t.view_no AND r.generation = t.generation
				AND r.row_key = t.row_key))
	UNION ALL
	-- 7: row_count
	SELECT g.service_id, g.view_id, g.generation, 7, format('row_count is %s, there are %s safe rows', g.row_count, c.n)
	FROM gen g
	CROSS JOIN LATERAL (
		SELECT count(*) AS n FROM unsafemv.rows r
		WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation) c
	WHERE c.n <> g.row_count
	UNION ALL
	-- 8: rebuild_required never goes back
	SELECT g.service_id, g.view_id, g.generation, 8, 'an event was passed over, but rebuild_required is false'
	FROM gen g
	WHERE NOT g.rebuild_required AND (g.behind_frontier_suid IS NOT NULL OR g.behind_frontier_event_id IS NOT NULL)
	UNION ALL
	-- 9: leases; that there is one per view is the primary key's doing
	SELECT v.service_id, v.view_id, v.active_generation, 9, 'a lease without owner, end or epoch'
	FROM unsafemv.kicks k
	JOIN unsafemv.views v ON v.service_id = k.service_id AND v.view_no = k.view_no
	WHERE ($1 IS NULL OR k.service_id = $1)
		AND ((k.lease_owner IS NULL) <> (k.lease_until IS NULL) OR k.lease_epoch < 1 OR k.lease_owner = '')
)
SELECT x.service_id, x.view_id, x.generation, x.invariant, x.detail
FROM violation x
ORDER BY x.service_id, x.view_id, x.generation, x.invariant, x.detail
$$;
COMMENT ON FUNCTION unsafemv.check(text) IS
'violations of the invariants, one row each; none: healthy. service_id: NULL = all. invariant: 1 one active generation, and the view points at it; 2 no safe row above the head; 3 every tentative row above the head has its receipt; 4 index entries exist with their row only, declared ones as the value gives; 5 a tentative row is the fold of its kept events; 6 with nothing unsettled composed rows are the safe rows; 7 row_count is exact; 8 rebuild_required stays; 9 a lease has an owner, an end and an epoch. Reads everything, in one snapshot; takes no lock. No error of its own';
REVOKE ALL ON FUNCTION unsafemv.check(text) FROM PUBLIC;
