/*
 * statement_catchup.h
 *	  SQL of projections, follow and rebuild; part of statement_text.c's table.
 *
 * $1, $2, $3 are service_id, view_no and generation unless a comment says so.
 */

 /* $1 service_id, $2 view_no */
[STATEMENT_PROJECTION_READ] =
{
	"tn",
		"SELECT p.source, p.plan_function, p.key_function, p.event_types, p.attached_role, "
		"p.window_floor, p.window_ceiling FROM unsafemv.projections p WHERE p.service_id = $1 AND p.view_no = $2"
},

 /*
  * $1 service_id, $2 view_no, $3 source, $4 plan function, $5 key function,
  * $6 event types, $7 role
  */
[STATEMENT_PROJECTION_ATTACH] =
{
	"tntttTt",
		"INSERT INTO unsafemv.projections AS p "
		"(service_id, view_no, source, plan_function, key_function, event_types, attached_role) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (service_id, view_no) DO UPDATE SET "
		"source = excluded.source, plan_function = excluded.plan_function, key_function = excluded.key_function, "
		"event_types = excluded.event_types, attached_role = excluded.attached_role"
},

 /* $1 service_id, $2 view_no */
[STATEMENT_PROJECTION_DETACH] =
{
	"tn",
		"DELETE FROM unsafemv.projections WHERE service_id = $1 AND view_no = $2"
},

 /* $1 service_id, $2 view_no, $3 floor, $4 ceiling; NULL: as it is */
[STATEMENT_PROJECTION_WINDOW] =
{
	"tnii",
		"UPDATE unsafemv.projections p SET window_floor = coalesce($3, p.window_floor), "
		"window_ceiling = coalesce($4, p.window_ceiling) WHERE p.service_id = $1 AND p.view_no = $2 "
		"RETURNING p.window_floor <= p.window_ceiling"
},

 /* $1 service_id, $2 view_no, $3 stop, $4 deadline */
[STATEMENT_PROJECTION_PASSED] =
{
	"tntz",
		"UPDATE unsafemv.projections p SET last_pass = clock_timestamp(), last_stop = $3, last_deadline = $4, "
		"attempts = CASE WHEN $3 = 'poison_event' THEN p.attempts + 1 ELSE 0 END "
		"WHERE p.service_id = $1 AND p.view_no = $2"
},

#define LAG_NOW(alias) \
	"greatest(" alias ".lag - (clock_timestamp() - " alias ".observed_at), interval '0')"

 /* $1 service_id */
[STATEMENT_LAG_READ] =
{
	"t",
		"SELECT " LAG_NOW("l") " FROM unsafemv.lags l WHERE l.service_id = $1"
},

 /* $1 service_id, $2 lag */
[STATEMENT_LAG_OBSERVE] =
{
	"ti",
		"INSERT INTO unsafemv.lags AS l (service_id, lag, observed_at) VALUES ($1, $2, clock_timestamp()) "
		"ON CONFLICT (service_id) DO UPDATE SET lag = greatest(" LAG_NOW("l") ", excluded.lag), "
		"observed_at = clock_timestamp() RETURNING l.lag"
},

 /*
  * The clock, the latest arrival that is old enough, that as a bound of
  * SUIDs, the window, whether the lag is above the ceiling, and until when at
  * least. $1 service_id, $2 floor, $3 ceiling
  */
[STATEMENT_WINDOW_READ] =
{
	"tii",
		"SELECT w.now, w.now - w.width, unsafemv.suid_from_timestamp(w.now - w.width, 99999999999), "
		"w.width, w.lag > $3, w.now + (w.lag - $3) FROM (SELECT c.now, c.lag, least(greatest(c.lag, $2), $3) AS width "
		"FROM (SELECT clock_timestamp() AS now, coalesce((SELECT " LAG_NOW("l") " FROM unsafemv.lags l "
		"WHERE l.service_id = $1), interval '0') AS lag OFFSET 0) c OFFSET 0) w"
},

 /* Of this database */
[STATEMENT_PREPARED_EXISTS] =
{
	"",
		"SELECT 1 FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database() LIMIT 1"
},

 /* $4 horizon */
[STATEMENT_HORIZON_WRITE] =
{
	"tnnz",
		"UPDATE unsafemv.generations SET late_horizon = greatest(late_horizon, $4) "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

 /*
  * Open findings of kind $4 above $5 (NULL: all): event, SUID, attempts, and
  * when the next try is due
  */
[STATEMENT_FINDING_OPEN] =
{
	"tnnts",
		"SELECT f.event_id, f.suid, f.attempts, f.last_seen + least(power(2, least(f.attempts - 1, 20)), 300) * interval '1 s', "
		"f.last_seen + least(power(2, least(f.attempts - 1, 20)), 300) * interval '1 s' <= clock_timestamp() "
		"FROM unsafemv.findings f WHERE f.service_id = $1 AND f.view_no = $2 AND f.generation = $3 AND f.kind = $4 "
		"AND f.resolved_at IS NULL AND (f.suid IS NULL OR f.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5)) "
		"ORDER BY f.suid LIMIT 1"
},

 /*
  * Events an operator skipped in this view, in any generation; $1 service_id,
  * $2 view_no
  */
[STATEMENT_SKIPPED_READ] =
{
	"tn",
		"SELECT DISTINCT ON (f.event_id) f.event_id, f.detail FROM unsafemv.findings f "
		"WHERE f.service_id = $1 AND f.view_no = $2 AND f.kind = 'skipped-event' AND f.resolved_at IS NULL "
		"AND f.detail ? 'reason' AND NOT f.detail ? 'takenBack' ORDER BY f.event_id"
},

 /*
  * A skip is taken back: $3 event_id.  In generations whose head has passed
  * it the finding stays open.
  */
[STATEMENT_SKIPPED_TAKEN_BACK] =
{
	"tnt",
		"UPDATE unsafemv.findings f SET detail = f.detail || '{\"takenBack\": true}', "
		"resolved_at = CASE WHEN f.suid IS NULL OR f.suid OPERATOR(unsafemv.>=) unsafemv.suid_above("
		"(SELECT g.last_suid FROM unsafemv.generations g WHERE g.service_id = f.service_id AND g.view_no = f.view_no "
		"AND g.generation = f.generation)) THEN clock_timestamp() END "
		"WHERE f.service_id = $1 AND f.view_no = $2 AND f.event_id = $3 AND f.kind = 'skipped-event' "
		"AND f.resolved_at IS NULL AND f.detail ? 'reason'"
},

 /* Whatever the generation; $1 service_id, $2 view_no, $3 event_id */
[STATEMENT_POISON_RESOLVE] =
{
	"tnt",
		"UPDATE unsafemv.findings f SET resolved_at = clock_timestamp() WHERE f.service_id = $1 AND f.view_no = $2 "
		"AND f.kind = 'poison-event' AND f.event_id = $3 AND f.resolved_at IS NULL"
},

 /* $4 kind, $5 done, $6 total, $7 started_at */
[STATEMENT_PROGRESS_WRITE] =
{
	"tnntnnz",
		"INSERT INTO unsafemv.progress_state AS p "
		"(service_id, view_no, generation, kind, done, total, started_at, updated_at) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) "
		"ON CONFLICT (service_id, view_no, generation, kind) DO UPDATE SET done = excluded.done, "
		"total = excluded.total, started_at = excluded.started_at, updated_at = excluded.updated_at"
},

 /* $1 service_id, $2 view_no */
[STATEMENT_REBUILD_HOLDER] =
{
	"tn",
		"SELECT r.generation, r.lease_until > clock_timestamp(), r.holder_pid, r.spoiled FROM unsafemv.rebuilds r "
		"WHERE r.service_id = $1 AND r.view_no = $2 FOR UPDATE"
},

 /*
  * Take, or renew, the lease; $1 service_id, $2 view_no, $3 generation, $4
  * lease, $5 pid, $6 session's start
  */
[STATEMENT_REBUILD_LEASE] =
{
	"tnninz",
		"INSERT INTO unsafemv.rebuilds AS r (service_id, view_no, generation, lease_until, holder_pid, holder_started) "
		"VALUES ($1, $2, $3, clock_timestamp() + $4, $5, $6) ON CONFLICT (service_id, view_no) DO UPDATE SET "
		"started_at = CASE WHEN r.generation IS DISTINCT FROM excluded.generation THEN clock_timestamp() ELSE r.started_at END, "
		"generation = excluded.generation, lease_until = excluded.lease_until, "
		"holder_pid = excluded.holder_pid, holder_started = excluded.holder_started, spoiled = false"
},

 /*
  * $1 service_id, $2 view_no, $3 generation, $4 lease, $5 pid, $6 session's
  * start
  */
[STATEMENT_REBUILD_RENEW] =
{
	"tnninz",
		"UPDATE unsafemv.rebuilds r SET lease_until = clock_timestamp() + $4 "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.holder_pid = $5 AND r.holder_started = $6"
},

 /*
  * $1 service_id, $2 view_no, $3 pid, $4 session's start, $5 is the candidate
  * spoiled?
  */
[STATEMENT_REBUILD_RELEASE] =
{
	"tnnzb",
		"UPDATE unsafemv.rebuilds r SET lease_until = NULL, holder_pid = NULL, holder_started = NULL, spoiled = $5 "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.holder_pid = $3 AND r.holder_started = $4"
},
