--
-- Views and generations.
--

CREATE FUNCTION unsafemv.views_changed() RETURNS trigger
	AS 'MODULE_PATHNAME', 'unsafemv_views_changed' LANGUAGE C;
COMMENT ON FUNCTION unsafemv.views_changed() IS
	'Internal trigger: tells every backend that cached views are out of date.';

CREATE TRIGGER views_changed AFTER INSERT OR UPDATE OR DELETE ON unsafemv.views
	FOR EACH ROW EXECUTE FUNCTION unsafemv.views_changed();
CREATE TRIGGER views_truncated AFTER TRUNCATE ON unsafemv.views
	FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.views_changed();
ALTER TABLE unsafemv.views ENABLE ALWAYS TRIGGER views_changed;
ALTER TABLE unsafemv.views ENABLE ALWAYS TRIGGER views_truncated;

CREATE FUNCTION unsafemv.create_view(
	service_id text,
	view_id text,
	definition_version bigint DEFAULT 1,
	generation bigint DEFAULT 0,
	last_suid unsafemv.suid DEFAULT NULL,
	indexes jsonb DEFAULT '[]',
	base text DEFAULT 'composed',
	receipt_retention interval DEFAULT '1 day')
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_create_view' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.create_view(text, text, bigint, bigint, unsafemv.suid, jsonb, text, interval) IS
	'Registers a view with its first, active generation; returns the generation''s number. service_id and view_id: at most 255 bytes. definition_version: version of the projection code, from 1. last_suid: the head to start from, also the receipt floor; NULL: nothing folded yet. indexes: array of at most 256 {"id","type","path"} with type text, integer or real and path as member names joined by dots; entries are then derived from the rows. base: what an unsafe patch or delete works on, composed (the visible row) or unsafe (tentative rows only). receipt_retention: how long a redelivery is recognised after its event was folded. Errors: MV_INSTANCE_EXISTS, MV_GENERATION_INVALID, MV_VALUE_INVALID, MV_INDEX_DUPLICATE, MV_LIMIT_EXCEEDED. Isolation: any; a concurrent creation of the same view is waited for.';

CREATE FUNCTION unsafemv.alter_view(
	service_id text,
	view_id text,
	receipt_retention interval DEFAULT NULL,
	window_floor interval DEFAULT NULL,
	window_ceiling interval DEFAULT NULL)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_alter_view' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.alter_view(text, text, interval, interval, interval) IS
	'Changes a view''s receipt retention or the safe window of its projection; nothing else of a view can change. NULL leaves a value as it is, but at least one must be given. window_floor: least age of an event that follow folds. window_ceiling: with more lag than this follow folds nothing. Returns true. Errors: MV_VIEW_MISSING, MV_PROJECTION_MISSING (a window without an attached projection), MV_VALUE_INVALID (negative, or floor above ceiling). Isolation: any.';

CREATE FUNCTION unsafemv.drop_view(
	service_id text,
	view_id text,
	max_rows bigint DEFAULT NULL)
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_drop_view' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.drop_view(text, text, bigint) IS
	'Drops a view with everything in it. max_rows: delete at most so many rows in this call (NULL: all); returns how many remain, 0 when the view is gone. From the first call on the view has no active generation. Waits for applies in flight up to unsafemv.promotion_timeout, then MV_PROMOTION_BUSY. Errors: MV_VIEW_MISSING, MV_PROMOTION_BUSY, MV_VALUE_INVALID. Isolation: READ COMMITTED only (25001).';

CREATE FUNCTION unsafemv.read_instance(
	service_id text,
	view_id text,
	generation bigint,
	OUT generation bigint,
	OUT status text,
	OUT definition_version bigint,
	OUT last_suid text,
	OUT receipt_floor text,
	OUT row_count bigint,
	OUT rebuild_required boolean,
	OUT behind_frontier_event_id text,
	OUT behind_frontier_suid text,
	OUT history_count bigint,
	OUT history_digest bytea,
	OUT rebuilt_source_event_count bigint,
	OUT rebuilt_source_max_suid text,
	OUT rebuilt_source_history_digest bytea,
	OUT rebuilt_at timestamptz,
	OUT created_at timestamptz,
	OUT updated_at timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_read_instance' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.read_instance(text, text, bigint) IS
	'One generation of a view: status (active, candidate, retired, dropping), head (last_suid), floor, number of safe rows, verdict, history and rebuild proof. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot and locks nothing.';

CREATE FUNCTION unsafemv.read_active(
	service_id text,
	view_id text,
	OUT generation bigint,
	OUT status text,
	OUT definition_version bigint,
	OUT last_suid text,
	OUT receipt_floor text,
	OUT row_count bigint,
	OUT rebuild_required boolean,
	OUT behind_frontier_event_id text,
	OUT behind_frontier_suid text,
	OUT history_count bigint,
	OUT history_digest bytea,
	OUT rebuilt_source_event_count bigint,
	OUT rebuilt_source_max_suid text,
	OUT rebuilt_source_history_digest bytea,
	OUT rebuilt_at timestamptz,
	OUT created_at timestamptz,
	OUT updated_at timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_read_active' LANGUAGE C STABLE
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.read_active(text, text) IS
	'The active generation of a view, with the columns of read_instance. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING (the view is being dropped), MV_VALUE_INVALID. Isolation: any; reads the caller''s snapshot and locks nothing.';
