/*
 * statement_watch.h
 *	  SQL texts of findings, kicks and waiting; included by statement_text.c inside
 *	  the table, whose rules hold.
 *
 * Guarantees: a view is dirty by one probe of the index of unsettled receipts;
 * next_kick walks that index from view to view, so its cost follows the dirty
 * views, not the views.
 *
 * $1, $2, $3 are service_id, view_no and generation unless a comment says so.
 *
 * Not a header of declarations: a part of one initialiser, hence no guard.
 */

#define WATCH_INSTANCE(alias) \
	alias ".service_id = $1 AND " alias ".view_no = $2 AND " alias ".generation = $3"

/* What tells findings of a kind apart: the expression of findings_key. */
#define FINDING_KEY(prefix) \
	"(CASE WHEN " prefix "kind IN ('checkpoint-ahead', 'ordering-quarantine') THEN '' " \
	"ELSE coalesce(" prefix "event_id, '') END)"

/* A failed apply is over once its event has a receipt. */
#define FINDING_OPEN \
	"(f.resolved_at IS NULL AND NOT (f.kind = 'unsafe-failure' AND EXISTS (" \
	"SELECT FROM unsafemv.receipts r WHERE r.service_id = f.service_id AND r.view_no = f.view_no " \
	"AND r.generation = f.generation AND r.event_id = f.event_id)))"

/* An open checkpoint-ahead finding keeps what was seen first. */
#define FINDING_TAKE(column) \
	column " = CASE WHEN f.kind = 'checkpoint-ahead' AND f.resolved_at IS NULL THEN f." column " ELSE excluded." column " END, "

/* $4 kind, $5 event_id, $6 suid, $7 detail */
[STATEMENT_FINDING_RECORD] =
{
	"tnnttsj",
		"INSERT INTO unsafemv.findings AS f (service_id, view_no, generation, kind, event_id, suid, detail, "
		"first_seen, last_seen) "
		"SELECT $1, $2, $3, $4, $5, $6, $7, m.moment, m.moment FROM (SELECT clock_timestamp() AS moment OFFSET 0) AS m "
		"ON CONFLICT (service_id, view_no, generation, kind, " FINDING_KEY("") ") DO UPDATE SET "
		FINDING_TAKE("event_id") FINDING_TAKE("suid") FINDING_TAKE("detail")
		"first_seen = CASE WHEN f.resolved_at IS NULL THEN f.first_seen ELSE excluded.first_seen END, "
		"attempts = CASE WHEN f.resolved_at IS NULL THEN f.attempts + 1 ELSE 1 END, "
		"last_seen = excluded.last_seen, resolved_at = NULL RETURNING f.attempts"
},

/* $4 kind, $5 event_id (NULL: any); was it open in the sense of read_findings? */
[STATEMENT_FINDING_RESOLVE] =
{
	"tnntt",
		"UPDATE unsafemv.findings AS f SET resolved_at = clock_timestamp() "
		"WHERE " WATCH_INSTANCE("f") " AND f.kind = $4 AND ($5 IS NULL OR f.event_id = $5) AND f.resolved_at IS NULL "
		"RETURNING f.kind <> 'unsafe-failure' OR NOT EXISTS (SELECT FROM unsafemv.receipts r "
		"WHERE r.service_id = f.service_id AND r.view_no = f.view_no AND r.generation = f.generation "
		"AND r.event_id = f.event_id)"
},

/* $4 also those that are not open */
[STATEMENT_FINDING_READ] =
{
	"tnnb",
		"SELECT f.generation, f.kind, f.event_id, CAST(f.suid AS text), f.detail, f.first_seen, f.last_seen, "
		"f.attempts, f.resolved_at FROM unsafemv.findings f "
		"WHERE " WATCH_INSTANCE("f") " AND ($4 OR " FINDING_OPEN ") "
		"ORDER BY f.first_seen, f.kind, f.event_id"
},

/* Is the lease of kick k unexpired; does the kick wait for its time? */
#define KICK_HELD "(k.lease_until > clock_timestamp()) IS TRUE"
#define KICK_DELAYED "(k.not_before > clock_timestamp()) IS TRUE"

/* A view, its lease, and its greatest unsettled SUID that counts: service, view. */
[STATEMENT_KICK_STATE] =
{
	"tt",
		"SELECT v.view_no, v.active_generation IS NOT NULL, u.suid, k.view_no IS NOT NULL, "
		"k.lease_owner, k.lease_epoch, k.lease_until, " KICK_HELD ", " KICK_DELAYED
		" FROM unsafemv.views v LEFT JOIN LATERAL (SELECT a.rebuild_required, a.last_suid FROM unsafemv.generations a "
		"WHERE a.service_id = v.service_id AND a.view_no = v.view_no AND a.generation = v.active_generation OFFSET 0) g ON true "
		"LEFT JOIN LATERAL (SELECT r.suid FROM unsafemv.receipts r WHERE r.service_id = v.service_id "
		"AND r.view_no = v.view_no AND r.generation = v.active_generation AND NOT r.settled "
		"ORDER BY r.suid DESC LIMIT 1) u ON NOT g.rebuild_required "
		"OR u.suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid) "
		"LEFT JOIN LATERAL (SELECT * FROM unsafemv.kicks o WHERE o.service_id = v.service_id AND o.view_no = v.view_no "
		"OFFSET 0) k ON true WHERE v.service_id = $1 AND v.view_id = $2"
},

/* Lock a kick unless it is locked; $1 service_id, $2 view_no */
[STATEMENT_KICK_LOCK] =
{
	"tn",
		"SELECT " KICK_HELD ", k.lease_owner IS NOT NULL FROM unsafemv.kicks k "
		"WHERE k.service_id = $1 AND k.view_no = $2 FOR UPDATE SKIP LOCKED"
},

/* $1 service_id, $2 view_no, $3 owner, $4 lease */
[STATEMENT_KICK_GRANT] =
{
	"tnti",
		"UPDATE unsafemv.kicks k SET lease_owner = $3, lease_epoch = k.lease_epoch + 1, "
		"lease_until = clock_timestamp() + $4, not_before = NULL, granted_at = clock_timestamp() "
		"WHERE k.service_id = $1 AND k.view_no = $2 RETURNING k.lease_epoch, k.lease_until"
},

[STATEMENT_KICK_INSERT] =
{
	"tnti",
		"INSERT INTO unsafemv.kicks AS k (service_id, view_no, lease_owner, lease_epoch, lease_until, granted_at) "
		"VALUES ($1, $2, $3, 1, clock_timestamp() + $4, clock_timestamp()) "
		"ON CONFLICT (service_id, view_no) DO NOTHING RETURNING k.lease_epoch, k.lease_until"
},

/* $1 service_id, $2 view_no, $3 owner, $4 epoch, $5 lease */
[STATEMENT_KICK_RENEW] =
{
	"tntni",
		"UPDATE unsafemv.kicks k SET lease_until = clock_timestamp() + $5 "
		"WHERE k.service_id = $1 AND k.view_no = $2 AND k.lease_owner = $3 AND k.lease_epoch = $4 "
		"AND k.lease_until > clock_timestamp() RETURNING k.lease_until"
},

/* $1 service_id, $2 view_no, $3 owner, $4 epoch, $5 not_before */
[STATEMENT_KICK_FINISH] =
{
	"tntnz",
		"UPDATE unsafemv.kicks k SET lease_owner = NULL, lease_until = NULL, not_before = $5 "
		"WHERE k.service_id = $1 AND k.view_no = $2 AND k.lease_owner = $3 AND k.lease_epoch = $4"
},

#define KICK_VIEW(from) \
	"LATERAL (SELECT w.view_id, w.active_generation FROM unsafemv.views w " \
	"WHERE w.service_id = " from ".service_id AND w.view_no = " from ".view_no OFFSET 0) v"

/*
 * Dirty, free views of the services from $1 to $2 (ranges): the first of every
 * service, the one served longest ago first, then every service's second, and so
 * on; at most $3.  The recursion steps over the index of unsettled receipts from
 * one generation to the next.
 */
#define KICK_STEP(from, condition) \
	from ", LATERAL (SELECT r.service_id, r.view_no, r.generation, r.suid FROM unsafemv.receipts r " \
	"WHERE NOT r.settled AND r.service_id <= f.upto AND " condition " " \
	"ORDER BY r.service_id, r.view_no, r.generation, r.suid LIMIT 1) n"

[STATEMENT_KICK_CANDIDATES] =
{
	"TTn",
		"WITH RECURSIVE step AS ("
		"SELECT f.upto, n.service_id, n.view_no, n.generation, n.suid FROM "
		KICK_STEP("(SELECT a.since COLLATE \"C\" AS since, a.upto COLLATE \"C\" AS upto "
				  "FROM unnest($1, $2) AS a(since, upto)) f", "r.service_id >= f.since")
		" UNION ALL "
		"SELECT f.upto, n.service_id, n.view_no, n.generation, n.suid FROM "
		KICK_STEP("step f", "(r.service_id, r.view_no, r.generation) > (f.service_id, f.view_no, f.generation)")
		"), dirty AS (SELECT s.service_id, v.view_id, o.suid FROM step s, " KICK_VIEW("s") ", "
		"LATERAL (SELECT a.rebuild_required, a.last_suid FROM unsafemv.generations a "
		"WHERE a.service_id = s.service_id AND a.view_no = s.view_no AND a.generation = s.generation OFFSET 0) g, "
		"LATERAL (SELECT CASE WHEN g.rebuild_required THEN (SELECT r.suid FROM unsafemv.receipts r "
		"WHERE r.service_id = s.service_id AND r.view_no = s.view_no AND r.generation = s.generation AND NOT r.settled "
		"AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above(g.last_suid) ORDER BY r.suid LIMIT 1) "
		"ELSE s.suid END AS suid OFFSET 0) o "
		"WHERE v.active_generation = s.generation AND o.suid IS NOT NULL "
		"AND (SELECT " KICK_HELD " OR " KICK_DELAYED " FROM unsafemv.kicks k "
		"WHERE k.service_id = s.service_id AND k.view_no = s.view_no) IS NOT TRUE), "
		"ranked AS (SELECT d.service_id, d.view_id, "
		"row_number() OVER (PARTITION BY d.service_id ORDER BY d.suid, d.view_id) AS rank FROM dirty d) "
		"SELECT x.service_id, x.view_id FROM (SELECT r.service_id, r.view_id, r.rank, "
		"max(CASE WHEN r.rank = 1 THEN (SELECT max(k.granted_at) FROM unsafemv.kicks k "
		"WHERE k.service_id = r.service_id) END) OVER (PARTITION BY r.service_id) AS served FROM ranked r) x "
		"ORDER BY x.rank, x.served NULLS FIRST, x.service_id LIMIT $3"
},

/* Views whose lease expired and was not released, of the services from $1 to $2 */
[STATEMENT_KICK_ABANDONED] =
{
	"TT",
		"SELECT k.service_id, v.view_id FROM unnest($1, $2) AS f(since, upto), "
		"LATERAL (SELECT o.service_id, o.view_no, o.lease_until FROM unsafemv.kicks o "
		"WHERE o.service_id >= f.since AND o.service_id <= f.upto "
		"AND o.lease_owner IS NOT NULL AND o.lease_until <= clock_timestamp() OFFSET 0) k, " KICK_VIEW("k")
		" WHERE v.active_generation IS NOT NULL ORDER BY k.lease_until, k.service_id, v.view_id"
},

/* The receipts of SUID $5 with this condition, but of other events than $4 */
#define WAIT_OTHER(condition) \
	"LATERAL (SELECT true AS other FROM unsafemv.receipts r WHERE " WATCH_INSTANCE("r") \
	" AND r.suid OPERATOR(unsafemv.>=) $5 AND r.suid OPERATOR(unsafemv.<=) $5 " \
	"AND r.event_id <> $4 AND " condition " ORDER BY r.suid LIMIT 1)"

/* What a wait for an event goes by; $4 event_id, $5 suid */
[STATEMENT_WAIT_FACTS] =
{
	"tnnts",
		"SELECT g.last_suid, g.receipt_floor, i.suid, i.settled, i.outcome, i.xmin, "
		"u.other IS TRUE OR s.other IS TRUE, f.failed IS TRUE FROM unsafemv.generations g "
		"LEFT JOIN LATERAL (SELECT r.suid, r.settled, r.outcome, r.xmin FROM unsafemv.receipts r "
		"WHERE " WATCH_INSTANCE("r") " AND r.event_id = $4 OFFSET 0) i ON true "
		"LEFT JOIN " WAIT_OTHER("NOT r.settled") " u ON true "
		"LEFT JOIN " WAIT_OTHER("r.settled") " s ON true "
		"LEFT JOIN LATERAL (SELECT true AS failed FROM unsafemv.findings f WHERE " WATCH_INSTANCE("f")
		" AND f.kind = 'unsafe-failure' AND " FINDING_KEY("f.") " = $4 AND f.resolved_at IS NULL LIMIT 1) f "
		"ON i.suid IS NULL "
		"WHERE " WATCH_INSTANCE("g")
},
