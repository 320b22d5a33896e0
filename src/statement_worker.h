/*
 * statement_worker.h
 *	  SQL texts of the trigger and the worker; included by statement_text.c inside
 *	  the table, whose rules hold.
 *
 * The worker's own are calls of public functions.
 *
 * Not a header of declarations: a part of one initialiser, hence no guard.
 */

/* The views of a service with a projection; $1 service_id */
[STATEMENT_DELIVER_VIEWS] =
{
	"t",
		"SELECT v.view_id FROM unsafemv.projections p, " KICK_VIEW("p") " "
		"WHERE p.service_id = $1 AND v.active_generation IS NOT NULL ORDER BY p.service_id, p.view_no"
},

/* $1 owner, $2 lease */
[STATEMENT_WORKER_KICK] =
{
	"ti",
		"SELECT k.service_id, k.view_id, k.lease_epoch FROM unsafemv.worker_kick($1, $2) k"
},

/*
 * Is there more to fold at once, else when is the next pass worth while?  Without a
 * deadline: what arrived since is not eligible within the window.  $1 service_id,
 * $2 view_id, $3 the least pause
 */
[STATEMENT_WORKER_PASS] =
{
	"tti",
		"SELECT (p.last_stop = 'max_events') IS TRUE, "
		"greatest(coalesce(p.last_deadline, p.last_pass + p.window_floor), clock_timestamp() + $3) "
		"FROM unsafemv.views v, LATERAL (SELECT o.* FROM unsafemv.projections o "
		"WHERE o.service_id = v.service_id AND o.view_no = v.view_no OFFSET 0) p "
		"WHERE v.service_id = $1 AND v.view_id = $2"
},

/* $1 service_id, $2 view_id, $3 owner, $4 epoch, $5 lease */
[STATEMENT_WORKER_RENEW] =
{
	"tttni",
		"SELECT unsafemv.renew_kick($1, $2, $3, $4, $5)"
},

/* $5 not_before */
[STATEMENT_WORKER_FINISH] =
{
	"tttnz",
		"SELECT unsafemv.finish_kick($1, $2, $3, NULL, $4, $5)"
},

/* $1 pid */
[STATEMENT_WORKER_CONNECTED] =
{
	"n",
		"SELECT 1 FROM pg_stat_activity a "
		"WHERE a.backend_type = 'unsafemv worker' AND a.datname = current_database() AND a.pid = $1"
},

/* $1 pid; NULL: all */
[STATEMENT_WORKER_STOP] =
{
	"n",
		"SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) FROM pg_stat_activity a "
		"WHERE a.backend_type = 'unsafemv worker' AND a.datname = current_database() AND ($1 IS NULL OR a.pid = $1)"
},
