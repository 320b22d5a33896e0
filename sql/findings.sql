--
-- Findings.
--

CREATE FUNCTION unsafemv.record_checkpoint_ahead(
	service_id text,
	view_id text,
	source_suid unsafemv.suid,
	detail jsonb DEFAULT '{}')
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_record_checkpoint_ahead' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.record_checkpoint_ahead(text, text, unsafemv.suid, jsonb) IS
	'Records that the source of events ends behind the head (it was restored, or emptied); all reads of the view are refused with MV_CHECKPOINT_AHEAD from the commit on, until resolve_finding. source_suid: the source''s greatest SUID; NULL: it is empty. detail: what else was seen. Returns true if this opened the finding; false if it was open: it then keeps its values and counts the attempt. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; above READ COMMITTED 40001 if the view or the finding has moved.';
REVOKE ALL ON FUNCTION unsafemv.record_checkpoint_ahead(text, text, unsafemv.suid, jsonb) FROM PUBLIC;

CREATE FUNCTION unsafemv.record_ordering_quarantine(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	detail jsonb DEFAULT '{}')
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_record_ordering_quarantine' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.record_ordering_quarantine(text, text, text, unsafemv.suid, jsonb) IS
	'Records that the order of the source broke at an event; safe reads of the view are refused with MV_ORDERING_QUARANTINED from the commit on. detail: what else was seen. Returns true if this opened the finding; false if it was open: it then shows this event and detail, and keeps first_seen. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED. Isolation: any; above READ COMMITTED 40001 if the view or the finding has moved.';
REVOKE ALL ON FUNCTION unsafemv.record_ordering_quarantine(text, text, text, unsafemv.suid, jsonb) FROM PUBLIC;

CREATE FUNCTION unsafemv.record_unsafe_failure(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	error text)
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_record_unsafe_failure' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.record_unsafe_failure(text, text, text, unsafemv.suid, text) IS
	'Records that an event could not be applied; those who wait for it get unavailable from the commit on. It counts as open only until the event has a receipt. error: the message; read_findings shows the newest as {"error"}. Returns the attempts since the finding was opened. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED. Isolation: any; above READ COMMITTED 40001 if the view or the finding has moved. Must run in a transaction that commits, so not in the one that failed.';
REVOKE ALL ON FUNCTION unsafemv.record_unsafe_failure(text, text, text, unsafemv.suid, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.resolve_finding(
	service_id text,
	view_id text,
	kind text,
	event_id text DEFAULT NULL)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_resolve_finding' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.resolve_finding(text, text, text, text) IS
	'Resolves findings of the active generation. kind: checkpoint-ahead, ordering-quarantine, unsafe-failure, poison-event, skipped-event, late-event, dismissed-event or forced-promotion. event_id: of this event; NULL: all of the kind. Returns whether one was open. Errors: MV_VALUE_INVALID (unknown kind), MV_VIEW_MISSING, MV_INSTANCE_MISSING. Isolation: any; above READ COMMITTED 40001 if the view or the finding has moved.';
REVOKE ALL ON FUNCTION unsafemv.resolve_finding(text, text, text, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.read_findings(
	service_id text,
	view_id text,
	include_resolved boolean DEFAULT false)
	RETURNS TABLE(generation bigint, kind text, event_id text, suid text, detail jsonb, first_seen timestamptz, last_seen timestamptz, attempts bigint, resolved_at timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_read_findings' LANGUAGE C STABLE ROWS 10
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.read_findings(text, text, boolean) IS
	'The findings of the active generation, the oldest first. include_resolved: also those that are not open (resolved, or a failed apply whose event has a receipt now). Result: attempts counts how often the finding was recorded since it was opened. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot and locks nothing.';
REVOKE ALL ON FUNCTION unsafemv.read_findings(text, text, boolean) FROM PUBLIC;
