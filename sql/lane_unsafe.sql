--
-- The unsafe lane.
--

CREATE FUNCTION unsafemv.apply(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	mutations jsonb,
	generation bigint DEFAULT NULL,
	definition_version bigint DEFAULT NULL,
	safe_head unsafemv.suid DEFAULT NULL,
	expected_row_version bigint DEFAULT NULL,
	record_arrival boolean DEFAULT true,
	observed_at timestamptz DEFAULT NULL,
	OUT outcome text,
	OUT duplicate boolean)
	AS 'MODULE_PATHNAME', 'unsafemv_apply' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.apply(text, text, text, unsafemv.suid, jsonb, bigint, bigint, unsafemv.suid, bigint, boolean, timestamptz) IS
	'Applies one event to the active generation in the caller''s transaction: visible at its commit. event_id: at most 1,024 bytes. suid: the event''s place in the order. mutations: the mutation plan. generation, definition_version: refuse if another one is active. safe_head: refuse events at or below it. expected_row_version: refuse if a touched row is there with another version. record_arrival: whether an event behind the head is recorded (which closes the reads) or refused. observed_at: when it was delivered (NULL: now). Result: outcome is applied, older, patch-not-found, delete-without-row, no-change or behind-frontier; duplicate is true for a redelivery, which writes nothing. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_DEFINITION_MISMATCH, UNSAFE_SUID_CONTRADICTION, UNSAFE_SAFE_AHEAD, UNSAFE_RECEIPT_EXPIRED, UNSAFE_ROW_CAS_MISMATCH, and those of a bad plan or argument. Isolation: READ COMMITTED; above it, 40001 wherever the snapshot is out of date. Single calls never deadlock with each other; transactions of several calls should go in SUID order.';

CREATE FUNCTION unsafemv.apply_batch(
	service_id text,
	view_id text,
	events jsonb,
	generation bigint DEFAULT NULL,
	definition_version bigint DEFAULT NULL,
	record_arrival boolean DEFAULT true,
	on_error text DEFAULT 'raise')
	RETURNS TABLE("position" integer, event_id text, outcome text, duplicate boolean, error_code text)
	AS 'MODULE_PATHNAME', 'unsafemv_apply_batch' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.apply_batch(text, text, jsonb, bigint, bigint, boolean, text) IS
	'Applies events with the same result as one apply per element in that order, by a constant number of statements. events: array of {"eventId","suid","mutations","expectedRowVersion"}, the last optional, at most 100,000, in any order. on_error: raise, or report: an event that would raise leaves no trace and has its code in error_code, the others apply. Result: one row per element in input order, position from 1. Other arguments, errors and isolation as apply.';
