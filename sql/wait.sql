--
-- Waiting until an event is visible.
--

CREATE FUNCTION unsafemv.read_wait_state(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	consistency text DEFAULT 'composed',
	OUT verdict text,
	OUT receipt boolean,
	OUT settled boolean,
	OUT outcome text,
	OUT head text,
	OUT receipt_floor text,
	OUT gate text,
	OUT failure boolean)
	AS 'MODULE_PATHNAME', 'unsafemv_read_wait_state' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.read_wait_state(text, text, text, unsafemv.suid, text) IS
	'What a wait for an event would find now, for callers that poll. consistency: composed or safe. Result: verdict is visible, pending or unavailable; receipt, settled and outcome are of the receipt of exactly this event and SUID in the active generation; gate is open or the code with which reads of that consistency are refused; failure: the event has an open failure finding. Unavailable also: the SUID is another event''s, or the event has another SUID. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED. Isolation: any; reads the caller''s snapshot and locks nothing.';
REVOKE ALL ON FUNCTION unsafemv.read_wait_state(text, text, text, unsafemv.suid, text) FROM PUBLIC;

CREATE FUNCTION unsafemv.wait_for(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	timeout interval DEFAULT '20 s',
	consistency text DEFAULT 'composed')
	RETURNS text
	AS 'MODULE_PATHNAME', 'unsafemv_wait_for' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.wait_for(text, text, text, unsafemv.suid, interval, text) IS
	'Waits until an event is visible in a view. suid: of this event. timeout: by the database clock; 0 looks once. consistency: composed (the event was processed) or safe (the safe lane has folded it). Result: visible; timeout; unavailable if a gate is closed, the event''s apply failed, or event and SUID contradict a receipt. Looks after 25, 50, 100, ... 1000 ms. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED; 25001 with consistency safe for a receipt of this very transaction. Isolation: READ COMMITTED only (25001); sees what others commit meanwhile. The calling statement keeps its snapshot while it waits: for long waits CALL wait_until.';
REVOKE ALL ON FUNCTION unsafemv.wait_for(text, text, text, unsafemv.suid, interval, text) FROM PUBLIC;

-- No SET clause: it commits.  The result comes last so that it need not be given.
CREATE PROCEDURE unsafemv.wait_until(
	service_id text,
	view_id text,
	event_id text,
	suid unsafemv.suid,
	timeout interval DEFAULT '20 s',
	consistency text DEFAULT 'composed',
	INOUT result text DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'unsafemv_wait_until' LANGUAGE C;
COMMENT ON PROCEDURE unsafemv.wait_until(text, text, text, unsafemv.suid, interval, text, text) IS
	'wait_for as a procedure that holds no snapshot, lock or transaction id while it sleeps, so that vacuum goes on. Arguments, result and errors as wait_for; what is given as result does not matter. Isolation: READ COMMITTED, outside a transaction block (25001).';
REVOKE ALL ON PROCEDURE unsafemv.wait_until(text, text, text, unsafemv.suid, interval, text, text) FROM PUBLIC;
