--
-- Kicks: work under a lease.
--

CREATE FUNCTION unsafemv.acquire_kick(
	service_id text,
	view_id text,
	owner text,
	lease interval)
	RETURNS TABLE(target_suid text, dirty boolean, lease_epoch bigint, lease_until timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_acquire_kick' LANGUAGE C ROWS 1
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.acquire_kick(text, text, text, interval) IS
	'Takes a view''s work under a lease; commit at once. owner: any name of the worker. lease: for how long, positive. Result: one row: target_suid, the greatest unsettled SUID (NULL: none; the view is due, or the former lease expired without being finished); dirty, whether there is one; lease_epoch, with the owner the token for renew_kick and finish_kick, greater at every grant; lease_until. No row: idle, nothing is unsettled, and a view with a projection had a pass of follow within its window. Errors: UNSAFE_KICK_LEASE_HELD (leased, also by the same owner, or being granted; retryable), MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_VALUE_INVALID. Isolation: any; never waits; judged in the newest snapshot, a lost race above READ COMMITTED is 40001.';
REVOKE ALL ON FUNCTION unsafemv.acquire_kick(text, text, text, interval) FROM PUBLIC;

CREATE FUNCTION unsafemv.next_kick(
	owner text,
	lease interval,
	service_ids text[] DEFAULT NULL)
	RETURNS TABLE(service_id text, view_id text, target_suid text, dirty boolean, lease_epoch bigint, lease_until timestamptz)
	AS 'MODULE_PATHNAME', 'unsafemv_next_kick' LANGUAGE C ROWS 1
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.next_kick(text, interval, text[]) IS
	'Takes the work of some view that is dirty, or has a projection whose last pass is older than the view''s window, that is not leased and whose not_before has passed; commit at once. Services take turns, the one served longest ago first; within a service the oldest unsettled event, or last pass, decides. If there is none, a view whose lease expired without being finished. service_ids: only of these services; NULL: of all. Result: as acquire_kick, with the view; no row: no work. Errors: MV_VALUE_INVALID. Isolation: any; never waits; judged in the newest snapshot, a lost race above READ COMMITTED is 40001.';
REVOKE ALL ON FUNCTION unsafemv.next_kick(text, interval, text[]) FROM PUBLIC;

CREATE FUNCTION unsafemv.renew_kick(
	service_id text,
	view_id text,
	owner text,
	lease_epoch bigint,
	lease interval)
	RETURNS timestamptz
	AS 'MODULE_PATHNAME', 'unsafemv_renew_kick' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.renew_kick(text, text, text, bigint, interval) IS
	'Lets a lease end "lease" from now; returns that moment. owner, lease_epoch: the token of the grant. Errors: UNSAFE_KICK_LEASE_LOST (expired, finished or taken over), MV_VIEW_MISSING, MV_VALUE_INVALID. Isolation: any; above READ COMMITTED 40001 if the lease has changed since the snapshot.';
REVOKE ALL ON FUNCTION unsafemv.renew_kick(text, text, text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION unsafemv.finish_kick(
	service_id text,
	view_id text,
	owner text,
	reached_suid unsafemv.suid,
	lease_epoch bigint,
	not_before timestamptz DEFAULT NULL)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_finish_kick' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.finish_kick(text, text, text, unsafemv.suid, bigint, timestamptz) IS
	'Releases a lease. owner, lease_epoch: the token of the grant. reached_suid: how far the work came, may be NULL; it decides nothing, because whether the view is dirty follows from its receipts. not_before: next_kick offers the view again from then on (NULL: at once). Returns true; false, and nothing changes, if the token is not that of the present lease. Errors: MV_VIEW_MISSING, MV_VALUE_INVALID. Isolation: any; above READ COMMITTED 40001 if the lease has changed since the snapshot.';
REVOKE ALL ON FUNCTION unsafemv.finish_kick(text, text, text, unsafemv.suid, bigint, timestamptz) FROM PUBLIC;
