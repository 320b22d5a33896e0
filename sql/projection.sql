--
-- Projections: from the events of a table to a view.
--

CREATE FUNCTION unsafemv.attach_projection(
	service_id text,
	view_id text,
	source text,
	plan_function text,
	key_function text DEFAULT NULL,
	event_types text[] DEFAULT NULL)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_attach_projection' LANGUAGE C;
COMMENT ON FUNCTION unsafemv.attach_projection(text, text, text, text, text, text[]) IS
	'Attaches the events of a table to a view. source: name of a table or view with columns service_id text, event_id text, suid unsafemv.suid, event jsonb and arrived_at timestamptz (the database''s now() or clock_timestamp()), and event_type text if event_types is given; a table needs indexes on (service_id, suid) and (service_id, arrived_at). plan_function: name of a function (event jsonb) returning the mutation plan as jsonb, NULL for none; with key_function, a function (event jsonb) returning text[], it is called as (event jsonb, rows jsonb) and rows is an object with the present values of those keys that exist. event_types: only these events. Names are looked up with the caller''s search_path and stored qualified. The source is read and the functions run as the calling role, which cannot be a superuser, with search_path pg_catalog, pg_temp. Returns true; attaching anew replaces what was attached and keeps the window. Errors: MV_PROJECTION_MISSING (source, column or function is missing), MV_VALUE_INVALID (a wrong type, a missing index, a superuser), MV_VIEW_MISSING. Isolation: any.';

CREATE FUNCTION unsafemv.projections_guard() RETURNS trigger
	AS 'MODULE_PATHNAME', 'unsafemv_projections_guard' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.projections_guard() IS
	'Internal trigger: a projection can only be made to run as a role whose rights the writer has (42501).';
REVOKE ALL ON FUNCTION unsafemv.projections_guard() FROM PUBLIC;

CREATE TRIGGER projections_guard
	BEFORE INSERT OR UPDATE OF service_id, view_no, source, plan_function, key_function, event_types, attached_role
	ON unsafemv.projections FOR EACH ROW EXECUTE FUNCTION unsafemv.projections_guard();

CREATE FUNCTION unsafemv.detach_projection(service_id text, view_id text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_detach_projection' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.detach_projection(text, text) IS
	'Detaches a view''s projection; rows and head stay. Returns whether one was attached. Errors: MV_VIEW_MISSING, MV_VALUE_INVALID. Isolation: any.';

CREATE FUNCTION unsafemv.observe_lag(service_id text, lag interval) RETURNS interval
	AS 'MODULE_PATHNAME', 'unsafemv_observe_lag' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.observe_lag(text, interval) IS
	'Tells how late events of a service reach their source. Kept is the greatest recent value; it decays by one second per second. The safe window of every view of the service follows it between floor and ceiling. lag: 0 or more (NULL: only ask). Returns the lag that counts now. Errors: MV_VALUE_INVALID. Isolation: any; above READ COMMITTED 40001.';

REVOKE ALL ON FUNCTION
	unsafemv.attach_projection(text, text, text, text, text, text[]),
	unsafemv.detach_projection(text, text),
	unsafemv.observe_lag(text, interval)
	FROM PUBLIC;
