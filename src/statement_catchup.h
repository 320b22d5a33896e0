/*
 * statement_catchup.h
 *	  SQL of projections, follow and rebuild; part of statement_text.c's table.
 *
 * $1, $2, $3 are service_id, view_no and generation unless a comment says so.
 */

	/* $1 service_id, $2 view_no */
	[STATEMENT_PROJECTION_READ] = {"tn",
		"SELECT p.source, p.plan_function, p.key_function, p.event_types, p.attached_role, "
		"p.window_floor, p.window_ceiling FROM unsafemv.projections p WHERE p.service_id = $1 AND p.view_no = $2"},
	/* $1 service_id, $2 view_no, $3 source, $4 plan function, $5 key function, $6 event types, $7 role */
	[STATEMENT_PROJECTION_ATTACH] = {"tntttTt",
		"INSERT INTO unsafemv.projections AS p "
		"(service_id, view_no, source, plan_function, key_function, event_types, attached_role) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (service_id, view_no) DO UPDATE SET "
		"source = excluded.source, plan_function = excluded.plan_function, key_function = excluded.key_function, "
		"event_types = excluded.event_types, attached_role = excluded.attached_role"},
	/* $1 service_id, $2 view_no */
	[STATEMENT_PROJECTION_DETACH] = {"tn",
		"DELETE FROM unsafemv.projections WHERE service_id = $1 AND view_no = $2"},
	/* $1 service_id, $2 view_no, $3 floor, $4 ceiling; NULL: as it is */
	[STATEMENT_PROJECTION_WINDOW] = {"tnii",
		"UPDATE unsafemv.projections p SET window_floor = coalesce($3, p.window_floor), "
		"window_ceiling = coalesce($4, p.window_ceiling) WHERE p.service_id = $1 AND p.view_no = $2 "
		"RETURNING p.window_floor <= p.window_ceiling"},
	/* $1 service_id, $2 view_no, $3 stop, $4 deadline */
	[STATEMENT_PROJECTION_PASSED] = {"tntz",
		"UPDATE unsafemv.projections p SET last_pass = clock_timestamp(), last_stop = $3, last_deadline = $4, "
		"attempts = CASE WHEN $3 = 'poison_event' THEN p.attempts + 1 ELSE 0 END "
		"WHERE p.service_id = $1 AND p.view_no = $2"},

#define LAG_NOW(alias) \
	"greatest(" alias ".lag - (clock_timestamp() - " alias ".observed_at), interval '0')"

	/* $1 service_id */
	[STATEMENT_LAG_READ] = {"t",
		"SELECT " LAG_NOW("l") " FROM unsafemv.lags l WHERE l.service_id = $1"},
	/* $1 service_id, $2 lag */
	[STATEMENT_LAG_OBSERVE] = {"ti",
		"INSERT INTO unsafemv.lags AS l (service_id, lag, observed_at) VALUES ($1, $2, clock_timestamp()) "
		"ON CONFLICT (service_id) DO UPDATE SET lag = greatest(" LAG_NOW("l") ", excluded.lag), "
		"observed_at = clock_timestamp() RETURNING l.lag"},
