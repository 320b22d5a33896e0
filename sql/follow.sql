--
-- Catching up: folding the events of a source that are older than the safe window.
--

-- No SET clause: it commits.
CREATE PROCEDURE unsafemv.follow(
	service_id text,
	view_id text,
	max_events bigint DEFAULT NULL,
	chunk integer DEFAULT 500,
	maximum_suid unsafemv.suid DEFAULT NULL,
	INOUT folded bigint DEFAULT NULL,
	INOUT head text DEFAULT NULL,
	INOUT stop text DEFAULT NULL,
	INOUT deadline timestamptz DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'unsafemv_follow' LANGUAGE C;
COMMENT ON PROCEDURE unsafemv.follow(text, text, bigint, integer, unsafemv.suid, bigint, text, text, timestamptz) IS
	'Folds the events of a view''s source that are older than the safe window into the active generation, in SUID order, committing per chunk; looks for events that arrived late and for receipts that were passed over; collects. The window is the lag of the service (observe_lag), at least the floor and at most the ceiling of the view. max_events: at most so many (NULL: all). chunk: events per transaction, 1 to 100000. maximum_suid: none above this. Results: folded, the events folded; head, the head then; stop: caught_up (the source has no more), skipped_event (caught up, but an event was skipped by skip_event), safe_window_fence (the next event is too young), safe_window_ceiling (the lag is above the ceiling: nothing folded), max_events, maximum_suid, poison_event (the next event cannot be folded, see read_findings); deadline, when another call can do more (NULL: unknown). What is given for the results does not matter. Errors, after their finding was committed: MV_CHECKPOINT_AHEAD (the source ends behind the head), MV_ORDERING_QUARANTINED (two events with one SUID); MV_PROJECTION_MISSING, MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: READ COMMITTED, outside a transaction block (25001). Concurrent calls for one view take turns per chunk. An error or crash loses the chunk at hand, nothing else.';

CREATE FUNCTION unsafemv.skip_event(service_id text, view_id text, event_id text, reason text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_skip_event' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.skip_event(text, text, text, text) IS
	'An operator''s decision that follow and rebuild leave an event out: its place is passed, nothing of it is folded. Recorded as an open skipped-event finding with reason and role; as long as it is open no pass says caught_up. Resolves the event''s poison-event finding. Returns true if that was open. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED. Isolation: any; above READ COMMITTED 40001.';

CREATE FUNCTION unsafemv.retry_event(service_id text, view_id text, event_id text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_retry_event' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.retry_event(text, text, text) IS
	'Lets the next pass try a failing event at once, or takes a skip back. Returns true if a poison-event or skipped-event finding was open. A skipped event that the head has passed comes in with the next rebuild only; its finding stays open until then. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID, MV_LIMIT_EXCEEDED. Isolation: any; above READ COMMITTED 40001.';

CREATE PROCEDURE unsafemv.rebuild(
	service_id text,
	view_id text,
	definition_version bigint,
	INOUT generation bigint DEFAULT NULL,
	INOUT stop text DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'unsafemv_rebuild' LANGUAGE C;
COMMENT ON PROCEDURE unsafemv.rebuild(text, text, bigint, bigint, text) IS
	'Folds the whole source into a candidate generation beside the active one, committing per chunk, and proves it when it has reached the end. A call that was stopped or killed is resumed by the next one with the same definition_version. Results: generation, the candidate; stop as follow says: caught_up (proven); safe_window_fence, safe_window_ceiling, poison_event (not proven: call again); source_changed (the source is not what was folded any more), behind_frontier (a late event closed the candidate): the next call begins another. Errors: MV_REBUILD_RUNNING (another session rebuilds this view), and those of follow and begin_rebuild. Isolation: READ COMMITTED, outside a transaction block (25001). Readers of the active generation notice nothing.';

CREATE PROCEDURE unsafemv.rebuild_and_promote(
	service_id text,
	view_id text,
	definition_version bigint,
	INOUT generation bigint DEFAULT NULL,
	INOUT stop text DEFAULT NULL)
	AS 'MODULE_PATHNAME', 'unsafemv_rebuild_and_promote' LANGUAGE C;
COMMENT ON PROCEDURE unsafemv.rebuild_and_promote(text, text, bigint, bigint, text) IS
	'rebuild, then promotes the candidate once its head has reached the active head; stop is promoted then, else as rebuild says. Tentative events come along; to another definition_version they are replayed through the attached projection. Errors: those of rebuild and promote_generation. Isolation: as rebuild.';

CREATE VIEW unsafemv.progress WITH (security_invoker = true) AS
SELECT p.service_id, v.view_id, p.generation, p.kind, p.done, p.total,
	s.rate, CASE WHEN p.total <= p.done THEN interval '0'
		WHEN s.rate > 0 THEN (p.total - p.done) / s.rate * interval '1 s' END AS remaining,
	p.started_at, p.updated_at
FROM unsafemv.progress_state p
JOIN unsafemv.views v ON v.service_id = p.service_id AND v.view_no = p.view_no
CROSS JOIN LATERAL (SELECT p.done / nullif(extract(epoch FROM p.updated_at - p.started_at)::double precision, 0) AS rate) s;
COMMENT ON VIEW unsafemv.progress IS 'how far the last pass of follow or rebuild of each view has come; moves while it runs';
COMMENT ON COLUMN unsafemv.progress.service_id IS 'tenant';
COMMENT ON COLUMN unsafemv.progress.view_id IS 'the view';
COMMENT ON COLUMN unsafemv.progress.generation IS 'the generation folded into';
COMMENT ON COLUMN unsafemv.progress.kind IS 'follow or rebuild';
COMMENT ON COLUMN unsafemv.progress.done IS 'events folded by the pass';
COMMENT ON COLUMN unsafemv.progress.total IS 'events there were to fold when the pass began; NULL: not counted, one chunk was enough';
COMMENT ON COLUMN unsafemv.progress.rate IS 'events per second';
COMMENT ON COLUMN unsafemv.progress.remaining IS 'time the rest will take at this rate; NULL: unknown';
COMMENT ON COLUMN unsafemv.progress.started_at IS 'when the pass began';
COMMENT ON COLUMN unsafemv.progress.updated_at IS 'when its last chunk was folded';

REVOKE ALL ON PROCEDURE unsafemv.follow(text, text, bigint, integer, unsafemv.suid, bigint, text, text, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION
	unsafemv.skip_event(text, text, text, text),
	unsafemv.retry_event(text, text, text)
	FROM PUBLIC;
REVOKE ALL ON PROCEDURE unsafemv.rebuild(text, text, bigint, bigint, text) FROM PUBLIC;
REVOKE ALL ON PROCEDURE unsafemv.rebuild_and_promote(text, text, bigint, bigint, text) FROM PUBLIC;
