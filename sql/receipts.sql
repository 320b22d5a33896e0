--
-- Receipts.
--

CREATE FUNCTION unsafemv.observe_arrival(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_observe_arrival' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.observe_arrival(text, text, text, unsafemv.suid) IS
	'Says whether an event that is not applied here came late: true if it has no receipt and lies at or below the head; its behind-frontier receipt is then written, which closes the reads. Otherwise nothing is written. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, UNSAFE_SUID_CONTRADICTION, UNSAFE_RECEIPT_EXPIRED, MV_VALUE_INVALID. Isolation: as apply.';

CREATE FUNCTION unsafemv.observe_safe_receipt(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_observe_safe_receipt' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.observe_safe_receipt(text, text, text, unsafemv.suid) IS
	'For callers that keep their safe rows elsewhere: settles the receipt of exactly this event; the head becomes the greatest settled SUID below the smallest unsettled one. Returns true. Errors: UNSAFE_RECEIPT_MISSING, UNSAFE_BEHIND_FRONTIER (the event came late), MV_SAFE_LANE_IN_USE, MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; calls queue for the generation''s row; above READ COMMITTED 40001.';

CREATE FUNCTION unsafemv.read_meta(
	service_id text,
	view_id text,
	OUT safe_contiguous_head text,
	OUT unsafe_observed_max_suid text,
	OUT rebuild_required boolean)
	AS 'MODULE_PATHNAME', 'unsafemv_read_meta' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.read_meta(text, text) IS
	'Of the active generation: its head, the greatest SUID it ever had a receipt of, and whether the reads are closed by an event behind the head. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot and locks nothing.';

CREATE FUNCTION unsafemv.has_target_receipt(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_has_target_receipt' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.has_target_receipt(text, text, text, unsafemv.suid) IS
	'Whether any generation of the view has a receipt of exactly this event and SUID, whatever its outcome. Errors: MV_VIEW_MISSING, MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot and locks nothing.';
