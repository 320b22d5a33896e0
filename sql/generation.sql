--
-- Generations: begin, prove, promote, reopen, drop.
--

CREATE FUNCTION unsafemv.begin_rebuild(
	service_id text,
	view_id text,
	definition_version bigint,
	generation bigint DEFAULT NULL,
	last_suid unsafemv.suid DEFAULT NULL)
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_begin_rebuild' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.begin_rebuild(text, text, bigint, bigint, unsafemv.suid) IS
	'Begins a candidate generation beside the active one; returns its number. definition_version: of the projection code that will fold it, from 1. generation: the number wanted, above every number given out before (NULL: the next one). last_suid: the head to start from, also its receipt floor. Reads are not touched. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_INSTANCE_EXISTS, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: any; concurrent calls get different numbers (above READ COMMITTED 40001).';

CREATE FUNCTION unsafemv.next_generation(service_id text, view_id text) RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_next_generation' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.next_generation(text, text) IS
	'The number the next candidate would get: one above the greatest ever given out, dropped ones included. Errors: MV_VIEW_MISSING, MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot, promises nothing.';

CREATE FUNCTION unsafemv.mark_generation_rebuilt(
	service_id text,
	view_id text,
	generation bigint,
	source_event_count bigint,
	source_max_suid unsafemv.suid,
	source_history_digest bytea)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_mark_generation_rebuilt' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.mark_generation_rebuilt(text, text, bigint, bigint, unsafemv.suid, bytea) IS
	'Records the proof that a candidate folded its whole source: number of events, greatest SUID and history digest of the source must equal what the candidate kept (an empty source: 0, NULL, NULL), and an event under an open ordering quarantine must be among those folded. Any later safe step voids the proof. Returns true. Errors: MV_REBUILD_NOT_VERIFIED, MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: any; queues for the generation''s row.';

CREATE FUNCTION unsafemv.promote_generation(
	service_id text,
	view_id text,
	candidate_generation bigint,
	expected_active_generation bigint,
	force boolean DEFAULT false,
	OUT generation bigint,
	OUT carried bigint,
	OUT redeliver text[])
	AS 'MODULE_PATHNAME', 'unsafemv_promote_generation' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.promote_generation(text, text, bigint, bigint, boolean) IS
	'Makes a candidate the active generation and retires the active one; a row switch that readers never wait for. expected_active_generation: compare-and-set. Refused (MV_PROMOTION_BEHIND, with the distance in DETAIL) if the candidate''s head lies behind the active head, its reads are closed, or it lacks an event the active generation received at or below its head; force promotes all the same, records a forced-promotion finding, and carries what is lacking unsettled, so that reads open closed. Result: the new active generation; carried: events above its head whose tentative state came along (same definition version); redeliver: ids of such events to be applied again (another version). An open ordering quarantine needs a candidate with a valid proof that folded the quarantined event, and is resolved. Errors: UNSAFE_SUID_CONTRADICTION (an event has another SUID in the candidate), MV_PROMOTION_CAS_MISMATCH, MV_PROMOTION_BEHIND, MV_PROMOTION_BUSY, MV_REBUILD_NOT_VERIFIED, MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: READ COMMITTED only (25001); waits for applies and steps in flight, up to unsafemv.promotion_timeout.';

CREATE FUNCTION unsafemv.reopen_generation(service_id text, view_id text, generation bigint) RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_reopen_generation' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.reopen_generation(text, text, bigint) IS
	'The way back: makes a retired generation a candidate again, to be caught up with the safe lane and promoted. Returns true. Errors: MV_GENERATION_INVALID (not retired), MV_INSTANCE_MISSING, MV_VIEW_MISSING, MV_PROMOTION_BUSY, MV_VALUE_INVALID. Isolation: READ COMMITTED only (25001).';

CREATE FUNCTION unsafemv.drop_generation(
	service_id text,
	view_id text,
	generation bigint,
	max_rows bigint DEFAULT NULL)
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_drop_generation' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.drop_generation(text, text, bigint, bigint) IS
	'Drops a candidate or retired generation with everything in it. max_rows: delete at most so many rows in this call (NULL: all); returns how many remain, 0 when it is gone. From the first call on it is dropping and cannot be written or promoted. Errors: MV_GENERATION_INVALID (active), MV_INSTANCE_MISSING, MV_VIEW_MISSING, MV_PROMOTION_BUSY, MV_VALUE_INVALID. Isolation: READ COMMITTED only (25001).';

CREATE FUNCTION unsafemv.dismiss_event(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	reason text)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_dismiss_event' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.dismiss_event(text, text, text, unsafemv.suid, text) IS
	'Declares an event void: one that was applied but never reached the source, or a late one that shall not count. Its receipt is settled with outcome dismissed and a dismissed-event finding keeps the reason; it blocks no promotion and closes no gate any more (rebuild_required stays as it is; tentative state it left stays until the head passes it). Returns true; false, with nothing changed, if the event is settled already. Errors: UNSAFE_RECEIPT_MISSING, MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; queues for the generation''s row.';

REVOKE ALL ON FUNCTION
	unsafemv.begin_rebuild(text, text, bigint, bigint, unsafemv.suid),
	unsafemv.next_generation(text, text),
	unsafemv.mark_generation_rebuilt(text, text, bigint, bigint, unsafemv.suid, bytea),
	unsafemv.promote_generation(text, text, bigint, bigint, boolean),
	unsafemv.reopen_generation(text, text, bigint),
	unsafemv.drop_generation(text, text, bigint, bigint),
	unsafemv.dismiss_event(text, text, text, unsafemv.suid, text)
	FROM PUBLIC;
