--
-- The safe lane.
--

CREATE FUNCTION unsafemv.apply_safe(
	service_id text,
	view_id text,
	expected_last_suid unsafemv.suid,
	last_suid unsafemv.suid,
	mutations jsonb,
	event_id text,
	generation bigint DEFAULT NULL,
	definition_version bigint DEFAULT NULL,
	OUT last_suid text,
	OUT row_upserts bigint,
	OUT row_patches bigint,
	OUT row_deletes bigint,
	OUT index_entries bigint)
	AS 'MODULE_PATHNAME', 'unsafemv_apply_safe' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.apply_safe(text, text, unsafemv.suid, unsafemv.suid, jsonb, text, bigint, bigint) IS
	'Folds one event into the safe rows. expected_last_suid: the head as the caller knows it (NULL: nothing folded). last_suid: the event''s SUID, the new head. generation: NULL is the active one. Result: the new head, the mutations of the plan, and the index entries inserted. The event''s receipt is settled (or made), its tentative row collected or refolded; an unsettled receipt at or below the new head sets rebuild_required. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_DEFINITION_MISMATCH, MV_CAS_MISMATCH, MV_ORDER_VIOLATION, MV_PATCH_ROW_MISSING, UNSAFE_SUID_CONTRADICTION, and those of a bad plan. Isolation: any; steps of a generation queue for its row; above READ COMMITTED 40001.';

CREATE FUNCTION unsafemv.apply_safe_batch(
	service_id text,
	view_id text,
	expected_last_suid unsafemv.suid,
	events jsonb,
	generation bigint DEFAULT NULL,
	definition_version bigint DEFAULT NULL,
	OUT last_suid text,
	OUT row_upserts bigint,
	OUT row_patches bigint,
	OUT row_deletes bigint,
	OUT index_entries bigint)
	AS 'MODULE_PATHNAME', 'unsafemv_apply_safe_batch' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.apply_safe_batch(text, text, unsafemv.suid, jsonb, bigint, bigint) IS
	'Folds events in one checkpoint step, with the same rows as one apply_safe each. events: array of {"eventId","suid","mutations","arrivedAt"}, the last optional (when the event reached the source), with strictly increasing SUIDs above the head; an empty array only looks for events that were passed over. Other arguments, result, errors and isolation as apply_safe.';

CREATE FUNCTION unsafemv.history_digest(previous bytea, event_id text, suid unsafemv.suid) RETURNS bytea
	AS 'MODULE_PATHNAME', 'unsafemv_history_digest' LANGUAGE C IMMUTABLE PARALLEL SAFE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.history_digest(bytea, text, unsafemv.suid) IS
	'One link of the history digest the safe lane keeps: SHA-256 over the previous digest (NULL at the start), the 30 digits of the SUID and the bytes of the event id. Errors: MV_VALUE_INVALID.';
