--
-- The worker.
--

CREATE FUNCTION unsafemv.worker_kick(
	owner text,
	lease interval,
	service_ids text[] DEFAULT NULL)
	RETURNS TABLE(service_id text, view_id text, target_suid text, dirty boolean, lease_epoch bigint, lease_until timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_worker_kick' LANGUAGE C ROWS 1
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.worker_kick(text, interval, text[]) IS
	'internal: next_kick among views with an attached projection only';
REVOKE ALL ON FUNCTION unsafemv.worker_kick(text, interval, text[]) FROM PUBLIC;

CREATE FUNCTION unsafemv.start_worker() RETURNS integer
	AS 'MODULE_PATHNAME', 'unsafemv_start_worker' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.start_worker() IS
	'Starts a background worker in this database as the current role, which must be allowed to log in, and to use next_kick, follow and finish_kick (admin). The worker takes views with a projection that are dirty or due under a lease (unsafemv.worker_lease), follows them, and sleeps unsafemv.worker_naptime when there is nothing to do; several share the views. Returns its process id once it is connected. It lives until stop_worker, a termination, or the server''s end, also through DROP EXTENSION; for one that is started again use shared_preload_libraries with unsafemv.databases (a list of databases; one named twice gets two workers) and unsafemv.worker_role: stop_worker makes such a worker start anew after 5 seconds. While a worker is connected, DROP DATABASE needs FORCE. Errors: 53400 (no free slot: raise max_worker_processes), 25006 (standby), 57P03 (it ended at its start; the server''s log says why). Isolation: any; not undone by a rollback.';
REVOKE ALL ON FUNCTION unsafemv.start_worker() FROM PUBLIC;

CREATE FUNCTION unsafemv.stop_worker(pid integer DEFAULT NULL) RETURNS integer
	AS 'MODULE_PATHNAME', 'unsafemv_stop_worker' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.stop_worker(integer) IS
	'Tells workers of this database to stop: what a pass has committed stays, the rest of it is rolled back and its lease expires. pid: this one; NULL: all. Returns how many were told; of other roles'' workers those that the role may see and terminate. Errors: 42501 (a worker the role may see but not terminate). Isolation: any.';
REVOKE ALL ON FUNCTION unsafemv.stop_worker(integer) FROM PUBLIC;
