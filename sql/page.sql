-- page: composed reads and their gate.
--
-- Look-ups in laterals with a limit: a join there could fetch by a part of the key.
-- unsafemv.read_gates and unsafemv.tentative_rows are the two places where "may this
-- view be read" and "what is the tentative state of a key" are decided; the C code,
-- current_rows, status and check read them there.

CREATE VIEW unsafemv.read_gates WITH (security_invoker = true) AS
SELECT v.service_id, v.view_id, v.view_no, v.indexes, g.generation, g.definition_version,
	g.last_suid, g.row_count, g.rebuild_required,
	CASE WHEN g.rebuild_required THEN g.behind_frontier_event_id ELSE o.event_id END AS offender_event_id,
	CASE WHEN g.rebuild_required THEN g.behind_frontier_suid ELSE o.suid END AS offender_suid,
	(SELECT true FROM unsafemv.findings f
	 WHERE f.service_id = g.service_id AND f.view_no = g.view_no AND f.generation = g.generation
		AND f.kind = 'checkpoint-ahead' AND f.resolved_at IS NULL LIMIT 1) IS TRUE AS checkpoint_ahead,
	(SELECT true FROM unsafemv.findings f
	 WHERE f.service_id = g.service_id AND f.view_no = g.view_no AND f.generation = g.generation
		AND f.kind = 'ordering-quarantine' AND f.resolved_at IS NULL LIMIT 1) IS TRUE AS ordering_quarantined
FROM unsafemv.views v
LEFT JOIN LATERAL (
	SELECT a.service_id, a.view_no, a.generation, a.definition_version, a.last_suid, a.row_count,
		a.rebuild_required, a.behind_frontier_event_id, a.behind_frontier_suid
	FROM unsafemv.generations a
	WHERE a.service_id = v.service_id AND a.view_no = v.view_no AND a.generation = v.active_generation
	LIMIT 1) g ON true
LEFT JOIN LATERAL (
	SELECT r.event_id, r.suid
	FROM unsafemv.receipts r
	WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation
		AND NOT r.settled AND r.outcome <> 'no-change' AND r.suid OPERATOR(unsafemv.<=) g.last_suid
	ORDER BY r.suid
	LIMIT 1) o ON true;
COMMENT ON VIEW unsafemv.read_gates IS
'internal: per view its active generation and what closes its reads; an offender or rebuild_required: UNSAFE_BEHIND_FRONTIER';
COMMENT ON COLUMN unsafemv.read_gates.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.read_gates.view_id IS 'the view';
COMMENT ON COLUMN unsafemv.read_gates.view_no IS 'its number';
COMMENT ON COLUMN unsafemv.read_gates.indexes IS 'its declared indexes';
COMMENT ON COLUMN unsafemv.read_gates.generation IS 'active generation; NULL: none';
COMMENT ON COLUMN unsafemv.read_gates.definition_version IS 'of the active generation';
COMMENT ON COLUMN unsafemv.read_gates.last_suid IS 'head of the active generation';
COMMENT ON COLUMN unsafemv.read_gates.row_count IS 'number of its safe rows';
COMMENT ON COLUMN unsafemv.read_gates.rebuild_required IS 'an event was passed over for good';
COMMENT ON COLUMN unsafemv.read_gates.offender_event_id IS 'the event behind the head; NULL: none, or rebuild_required without one';
COMMENT ON COLUMN unsafemv.read_gates.offender_suid IS 'its SUID';
COMMENT ON COLUMN unsafemv.read_gates.checkpoint_ahead IS 'open checkpoint-ahead finding';
COMMENT ON COLUMN unsafemv.read_gates.ordering_quarantined IS 'open ordering quarantine: safe reads are closed';

CREATE FUNCTION unsafemv.require_open_gate(service_id text, view_id text) RETURNS boolean
LANGUAGE c STABLE PARALLEL SAFE COST 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_require_open_gate';
COMMENT ON FUNCTION unsafemv.require_open_gate(text, text) IS
'internal: true if composed reads of the view are open, else the error they would raise; the gate of current_rows';
REVOKE ALL ON FUNCTION unsafemv.require_open_gate(text, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.refold(kept jsonb, head unsafemv.suid, base_value jsonb, base_row_version bigint,
	base_suid unsafemv.suid, base_entries jsonb, indexes jsonb,
	OUT value jsonb, OUT row_version bigint, OUT tombstone boolean, OUT entries jsonb)
LANGUAGE c IMMUTABLE PARALLEL SAFE COST 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_refold';
COMMENT ON FUNCTION unsafemv.refold(jsonb, unsafemv.suid, jsonb, bigint, unsafemv.suid, jsonb, jsonb) IS
'internal: a tentative row''s kept events above head (NULL: all) folded on the safe row base_* (base_suid NULL: there is none), with the entries that indexes derives; NULLs if nothing is left above the head';
REVOKE ALL ON FUNCTION unsafemv.refold(jsonb, unsafemv.suid, jsonb, bigint, unsafemv.suid, jsonb, jsonb) FROM PUBLIC;

-- One row per tentative row.  The lateral part runs only where events are kept; its
-- first two conditions are the row's own, so that others cost nothing.  The safe row
-- is looked up in a shape that only the primary key can serve.
CREATE VIEW unsafemv.tentative_rows WITH (security_invoker = true) AS
SELECT u.service_id, u.view_no, u.generation, u.row_key, u.source_suid,
	CASE WHEN f.tombstone IS NULL THEN u.value ELSE f.value END AS value,
	CASE WHEN f.tombstone IS NULL THEN u.row_version ELSE f.row_version END AS row_version,
	CASE WHEN f.tombstone IS NULL THEN u.tombstone ELSE f.tombstone END AS tombstone,
	CASE WHEN f.tombstone IS NULL THEN u.entries ELSE f.entries END AS entries,
	f.tombstone IS NOT NULL AS refolded
FROM unsafemv.unsafe_rows u
LEFT JOIN LATERAL (
	SELECT r.value, r.row_version, r.tombstone, r.entries
	FROM unsafemv.generations g
	JOIN unsafemv.views v ON v.service_id = g.service_id AND v.view_no = g.view_no
	LEFT JOIN LATERAL (
		SELECT s.value, s.row_version, s.source_suid
		FROM unsafemv.rows s
		WHERE s.service_id = u.service_id AND s.view_no = u.view_no AND s.generation = u.generation
			AND s.row_key >= u.row_key AND s.row_key <= u.row_key
		ORDER BY s.row_key
		LIMIT 1) b ON true
	CROSS JOIN LATERAL unsafemv.refold(u.kept, g.last_suid, b.value, b.row_version, b.source_suid,
		(SELECT pg_catalog.jsonb_agg(pg_catalog.jsonb_build_array(e.index_id, e.value_type,
				CASE e.value_type
					WHEN 'text' THEN pg_catalog.to_jsonb(e.text_value)
					WHEN 'integer' THEN pg_catalog.to_jsonb(e.integer_value)
					ELSE pg_catalog.to_jsonb(e.real_value) END))
		 FROM unsafemv.index_entries e
		 WHERE e.service_id = u.service_id AND e.view_no = u.view_no AND e.generation = u.generation
			AND e.row_key = u.row_key AND NOT e.derived),
		v.indexes) r
	WHERE u.kept IS NOT NULL
		AND g.service_id = u.service_id AND g.view_no = u.view_no AND g.generation = u.generation
		AND (u.kept_from OPERATOR(unsafemv.<=) g.last_suid
			OR ((b.source_suid OPERATOR(unsafemv.=) u.base_suid) IS NOT TRUE
				AND (b.source_suid IS NOT NULL OR u.base_suid IS NOT NULL)))
	OFFSET 0) f ON true;
COMMENT ON VIEW unsafemv.tentative_rows IS
'internal: the tentative rows with stale ones refolded on the present safe row; one counts if source_suid >= suid_above(head), whatever tombstone says';
COMMENT ON COLUMN unsafemv.tentative_rows.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.tentative_rows.view_no IS 'the view''s number';
COMMENT ON COLUMN unsafemv.tentative_rows.generation IS 'the generation';
COMMENT ON COLUMN unsafemv.tentative_rows.row_key IS 'key of the row';
COMMENT ON COLUMN unsafemv.tentative_rows.source_suid IS 'SUID of the newest event';
COMMENT ON COLUMN unsafemv.tentative_rows.value IS 'the folded value; NULL in a tombstone';
COMMENT ON COLUMN unsafemv.tentative_rows.row_version IS 'version given by the newest operation';
COMMENT ON COLUMN unsafemv.tentative_rows.tombstone IS 'true: the key is hidden';
COMMENT ON COLUMN unsafemv.tentative_rows.entries IS 'index entries, explicit and derived, as in unsafe_rows';
COMMENT ON COLUMN unsafemv.tentative_rows.refolded IS 'the stored row was stale';

CREATE VIEW unsafemv.unsafe_index_entries WITH (security_invoker = true) AS
SELECT t.service_id, t.view_no, t.generation,
	(e.entry ->> 0) COLLATE "C" AS index_id,
	(e.entry ->> 1) COLLATE "C" AS value_type,
	CASE e.entry ->> 1 WHEN 'text' THEN e.entry ->> 2 END COLLATE "C" AS text_value,
	CASE e.entry ->> 1 WHEN 'integer' THEN (e.entry ->> 2)::pg_catalog.int8 END AS integer_value,
	CASE e.entry ->> 1 WHEN 'real' THEN (e.entry ->> 2)::pg_catalog.float8 END AS real_value,
	t.row_key
FROM unsafemv.tentative_rows t
CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(t.entries) e(entry);
COMMENT ON VIEW unsafemv.unsafe_index_entries IS 'index entries of the tentative rows, one row each';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.view_no IS 'the view''s number';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.generation IS 'the generation';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.index_id IS 'name of the index';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.value_type IS 'text, integer or real';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.text_value IS 'the value of a text entry';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.integer_value IS 'the value of an integer entry';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.real_value IS 'the value of a real entry';
COMMENT ON COLUMN unsafemv.unsafe_index_entries.row_key IS 'key of the row';

-- The first arm has no row.  It judges the gate of every view asked for before any
-- row is read, whether a row is then found or not.  In a lateral that nothing is
-- pushed into (OFFSET 0) a gate is judged after the conditions on service_id and
-- view_id, which may leave out a closed view, and before those on any other column:
-- the first arm's columns come out of the lateral too.
CREATE VIEW unsafemv.current_rows WITH (security_invoker = true) AS
SELECT v.service_id, v.view_id, o.row_key, o.value, o.row_version, o.source_suid, o.unsafe
FROM unsafemv.views v
CROSS JOIN LATERAL (
	SELECT v.view_id AS row_key, to_jsonb(v.view_no) AS value, v.view_no AS row_version,
		unsafemv.suid_from_position(v.view_no) AS source_suid, v.view_no < 0 AS unsafe,
		unsafemv.require_open_gate(v.service_id, v.view_id) AS open
	OFFSET 0) o
WHERE NOT o.open
UNION ALL
SELECT v.service_id, v.view_id, r.row_key, r.value, r.row_version, r.source_suid, false AS unsafe
FROM unsafemv.views v
CROSS JOIN LATERAL (SELECT unsafemv.require_open_gate(v.service_id, v.view_id) AS open OFFSET 0) o
JOIN unsafemv.generations g ON g.service_id = v.service_id AND g.view_no = v.view_no
	AND g.generation = v.active_generation
JOIN unsafemv.rows r ON r.service_id = v.service_id AND r.view_no = v.view_no AND r.generation = v.active_generation
WHERE o.open
	AND NOT EXISTS (
		SELECT FROM unsafemv.unsafe_rows u
		WHERE u.service_id = r.service_id AND u.view_no = r.view_no AND u.generation = r.generation
			AND u.row_key = r.row_key
			AND u.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid))
UNION ALL
SELECT v.service_id, v.view_id, t.row_key, t.value, t.row_version, t.source_suid, true
FROM unsafemv.views v
CROSS JOIN LATERAL (SELECT unsafemv.require_open_gate(v.service_id, v.view_id) AS open OFFSET 0) o
JOIN unsafemv.generations g ON g.service_id = v.service_id AND g.view_no = v.view_no
	AND g.generation = v.active_generation
JOIN unsafemv.tentative_rows t ON t.service_id = v.service_id AND t.view_no = v.view_no
	AND t.generation = v.active_generation
WHERE o.open
	AND t.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid)
	AND NOT t.tombstone;
COMMENT ON VIEW unsafemv.current_rows IS
'composed rows of all views, to join and filter: name the view by service_id and view_id. Refuses like query_composed_page (UNSAFE_BEHIND_FRONTIER, MV_CHECKPOINT_AHEAD) while the gate of a view it reads is closed; an unknown view has no rows. A condition on row_key uses the row key index, given statistics (autovacuum, ANALYZE)';
COMMENT ON COLUMN unsafemv.current_rows.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.current_rows.view_id IS 'the view';
COMMENT ON COLUMN unsafemv.current_rows.row_key IS 'key of the row';
COMMENT ON COLUMN unsafemv.current_rows.value IS 'the row';
COMMENT ON COLUMN unsafemv.current_rows.row_version IS 'version given by the newest operation on the row';
COMMENT ON COLUMN unsafemv.current_rows.source_suid IS 'SUID of the newest event that wrote the row';
COMMENT ON COLUMN unsafemv.current_rows.unsafe IS 'true: tentative, the safe lane has not folded it yet';

CREATE FUNCTION unsafemv.query_composed_page(service_id text, view_id text, "limit" bigint DEFAULT 100,
	"offset" bigint DEFAULT 0, descending boolean DEFAULT false, after_suid unsafemv.suid DEFAULT NULL,
	after_key text DEFAULT NULL, with_total boolean DEFAULT true, consistency text DEFAULT 'composed')
RETURNS TABLE (row_key text, value jsonb, row_version bigint, source_suid text, unsafe boolean, total_count bigint)
LANGUAGE c STABLE PARALLEL RESTRICTED COST 1000 ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_query_composed_page';
COMMENT ON FUNCTION unsafemv.query_composed_page(text, text, bigint, bigint, boolean, unsafemv.suid, text, boolean, text) IS
'a page of a view''s rows by (source_suid, row_key), both ascending or both descending. limit: NULL = all; offset: rows skipped, counted after the cursor; after_suid, after_key: a cursor, the last row of the page before (both or neither; cost does not depend on depth, which offset''s does); with_total: false leaves total_count NULL; consistency: composed (per key the tentative row above the head if there is one, else the safe row; deleted ones hidden) or safe (safe rows only). total_count: rows of the view, whatever the page (no row, no total: see composed_page). unsafe: the safe lane has not folded the row yet. Gate, total and rows are of the calling statement''s snapshot; takes no lock; runs in read-only transactions and on a standby. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, UNSAFE_BEHIND_FRONTIER, MV_CHECKPOINT_AHEAD, MV_ORDERING_QUARANTINED (safe only), MV_VALUE_INVALID, MV_LIMIT_EXCEEDED';
REVOKE ALL ON FUNCTION unsafemv.query_composed_page(text, text, bigint, bigint, boolean, unsafemv.suid, text, boolean, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.composed_page(service_id text, view_id text, "limit" bigint DEFAULT 100,
	"offset" bigint DEFAULT 0, descending boolean DEFAULT false, after_suid unsafemv.suid DEFAULT NULL,
	after_key text DEFAULT NULL, with_total boolean DEFAULT true, consistency text DEFAULT 'composed')
RETURNS jsonb
LANGUAGE c STABLE PARALLEL RESTRICTED COST 1000 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_composed_page';
COMMENT ON FUNCTION unsafemv.composed_page(text, text, bigint, bigint, boolean, unsafemv.suid, text, boolean, text) IS
'query_composed_page as one JSON value: {"rows": [{"rowKey", "value", "rowVersion", "sourceSuid", "unsafe"}], "totalCount", "readHead", "next"}. rowVersion is a string, because a JSON number would lose digits beyond 2^53 in JavaScript. totalCount: right also past the end, null without with_total. readHead: the head for safe reads, else the greatest source_suid visible; null: none. next: {"afterSuid", "afterKey"} of the following page, null if there is none (or limit is 0). Arguments, isolation and errors as query_composed_page; rows of more than 256 MB are MV_LIMIT_EXCEEDED';
REVOKE ALL ON FUNCTION unsafemv.composed_page(text, text, bigint, bigint, boolean, unsafemv.suid, text, boolean, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.query_rows(service_id text, view_id text, index_id text, value_type text,
	"equals" text DEFAULT NULL, from_value text DEFAULT NULL, to_value text DEFAULT NULL,
	"limit" bigint DEFAULT 100, "offset" bigint DEFAULT 0, descending boolean DEFAULT false,
	consistency text DEFAULT 'composed')
RETURNS TABLE (row_key text, index_value text, value jsonb, row_version bigint, source_suid text, unsafe boolean)
LANGUAGE c STABLE PARALLEL RESTRICTED COST 1000 ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_query_rows';
COMMENT ON FUNCTION unsafemv.query_rows(text, text, text, text, text, text, text, bigint, bigint, boolean, text) IS
'rows by an index, ordered by (typed index value, row_key), both ascending or both descending. value_type: text (byte order), integer or real. equals: that value only; from_value, to_value: bounds, both inclusive; given as text of the type; equals excludes the other two. limit: NULL = all. A row with several entries in the range appears once for each. Snapshot, locks, consistency and gate as query_composed_page. Errors: those, MV_INDEX_UNDECLARED and MV_INDEX_VALUE_TYPE_MISMATCH (the view declares indexes, and not this one, or with another type), MV_INDEX_VALUE_INVALID (a bound is not of the type), MV_VALUE_INVALID (unknown value_type)';
REVOKE ALL ON FUNCTION unsafemv.query_rows(text, text, text, text, text, text, text, bigint, bigint, boolean, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.read_rows(service_id text, view_id text, row_keys text[] DEFAULT NULL,
	"limit" bigint DEFAULT 100, "offset" bigint DEFAULT 0, descending boolean DEFAULT false,
	after_key text DEFAULT NULL, consistency text DEFAULT 'composed')
RETURNS TABLE (row_key text, value jsonb, row_version bigint, source_suid text, unsafe boolean)
LANGUAGE c STABLE PARALLEL RESTRICTED COST 1000 ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_read_rows';
COMMENT ON FUNCTION unsafemv.read_rows(text, text, text[], bigint, bigint, boolean, text, text) IS
'rows by key, in byte order. row_keys: these keys only (absent and hidden ones are left out, repeated ones come once), NULL = all; limit: NULL = all; after_key: continue behind this key. Snapshot, locks, consistency, gate and errors as query_composed_page';
REVOKE ALL ON FUNCTION unsafemv.read_rows(text, text, text[], bigint, bigint, boolean, text, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.read_index_entries(service_id text, view_id text, index_id text DEFAULT NULL,
	"limit" bigint DEFAULT 100, "offset" bigint DEFAULT 0, descending boolean DEFAULT false,
	consistency text DEFAULT 'composed')
RETURNS TABLE (index_id text, value_type text, value text, row_key text, unsafe boolean)
LANGUAGE c STABLE PARALLEL RESTRICTED COST 1000 ROWS 100 SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_read_index_entries';
COMMENT ON FUNCTION unsafemv.read_index_entries(text, text, text, bigint, bigint, boolean, text) IS
'index entries of the visible rows, ordered by (value_type, index_id, typed value, row_key), all ascending or all descending: 9 comes before 10. index_id: NULL = all indexes; limit: NULL = all. Snapshot, locks, consistency, gate and errors as query_composed_page; MV_INDEX_UNDECLARED';
REVOKE ALL ON FUNCTION unsafemv.read_index_entries(text, text, text, bigint, bigint, boolean, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.create_typed_view(service_id text, view_id text, name text, columns text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_create_typed_view';
COMMENT ON FUNCTION unsafemv.create_typed_view(text, text, text, text) IS
'creates an ordinary SQL view (security_invoker) over current_rows with row_key and one column per member of the row value. name: schema-qualified name of the new view; columns: list of column names and types as in CREATE TABLE, nothing else, for example ''id text, total numeric(12,2)''; types outside pg_catalog schema-qualified. A member that is absent or a value that is not an object gives NULL; one that does not fit its type is an error of the query. Result: the view''s quoted name. Needs CREATE on the schema. Errors: MV_VIEW_MISSING, MV_VALUE_INVALID, and PostgreSQL''s own';
REVOKE ALL ON FUNCTION unsafemv.create_typed_view(text, text, text, text) FROM PUBLIC;
