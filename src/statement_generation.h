/*
 * statement_generation.h
 *	  SQL of generations, promotion and collection; part of statement_text.c's
 *	  table.
 *
 * $1, $2, $3 are service_id, view_no and generation unless a comment says so.
 */

 /* $1 service_id, $2 view_id, $3 the number wanted, or null */
[STATEMENT_GENERATION_ALLOCATE] =
{
	"ttn",
		"UPDATE unsafemv.views SET last_generation = coalesce($3, last_generation + 1) "
		"WHERE service_id = $1 AND view_id = $2 AND active_generation IS NOT NULL "
		"AND CASE WHEN $3 IS NULL THEN last_generation < 9223372036854775807 ELSE $3 > last_generation END "
		"RETURNING last_generation"
},

 /* $1 service_id, $2 view_id */
[STATEMENT_GENERATION_NEXT] =
{
	"tt",
		"SELECT CASE WHEN last_generation < 9223372036854775807 THEN last_generation + 1 END FROM unsafemv.views WHERE service_id = $1 AND view_id = $2"
},

 /* $4 status */
[STATEMENT_GENERATION_STATUS] =
{
	"tnnt",
		"UPDATE unsafemv.generations SET status = $4, updated_at = clock_timestamp(), "
		"candidate_since = CASE WHEN $4 = 'candidate' THEN clock_timestamp() END "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

[STATEMENT_VIEW_ACTIVATE] =
{
	"tnn",
		"UPDATE unsafemv.views SET active_generation = $3 WHERE service_id = $1 AND view_no = $2"
},

 /* $4 count, $5 maximum, $6 digest */
[STATEMENT_GENERATION_PROOF] =
{
	"tnnnsy",
		"UPDATE unsafemv.generations SET rebuilt_source_event_count = $4, rebuilt_source_max_suid = $5, "
		"rebuilt_source_history_digest = $6, rebuilt_at = clock_timestamp(), updated_at = clock_timestamp() "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

 /* Is the generation's gate closed, or an ordering quarantine open? */
[STATEMENT_GENERATION_GATE] =
{
	"tnn",
		"SELECT " GATE_CLOSED ", "
		"EXISTS (SELECT 1 FROM unsafemv.findings f WHERE f.service_id = $1 AND f.view_no = $2 AND f.generation = $3 "
		"AND f.kind = 'checkpoint-ahead' AND f.resolved_at IS NULL), "
		"g.rebuilt_at IS NOT NULL FROM unsafemv.generations g "
		"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"
},

 /* The open ordering quarantine */
[STATEMENT_QUARANTINE_READ] =
{
	"tnn",
		"SELECT f.event_id, f.suid FROM unsafemv.findings f "
		"WHERE f.service_id = $1 AND f.view_no = $2 AND f.generation = $3 "
		"AND f.kind = 'ordering-quarantine' AND f.resolved_at IS NULL"
},

 /* Is the event settled in the generation? $4 event_id, $5 suid */
[STATEMENT_RECEIPT_IS_SETTLED] =
{
	"tnnts",
		"SELECT 1 FROM unsafemv.receipts r WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 "
		"AND r.event_id = $4 AND r.suid OPERATOR(unsafemv.=) $5 AND r.settled"
},

 /* Which of these events have a receipt? $4 event_ids */
[STATEMENT_RECEIPT_KNOWN] =
{
	"tnnT",
		"SELECT r.event_id, r.suid FROM unnest($4) AS k(event_id), " BY_EVENT_ID("r.event_id, r.suid", "r") " r"
},

 /* Unless it is settled, that is, folded; $4 event_id, $5 suid */
[STATEMENT_RECEIPT_DISMISS] =
{
	"tnnts",
		"UPDATE unsafemv.receipts SET settled = true, outcome = 'dismissed' "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3 AND event_id = $4 "
		"AND suid OPERATOR(unsafemv.=) $5 AND NOT settled"
},

/*
 * Receipts of the active generation ($3) at or below the candidate's head ($5)
 * that mattered and are not settled in the candidate ($4): all unsettled ones, and
 * settled ones above the candidate's floor ($6).
 * Looked up one by one, never as a join of two scans.
 */
#define MISSING_IN_CANDIDATE \
	"(SELECT r.event_id, r.suid, r.outcome, r.observed_at FROM unsafemv.receipts r " \
	"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled " \
	"AND r.suid OPERATOR(unsafemv.<=) $5 AND r.outcome <> 'no-change' " \
	"UNION ALL SELECT r.event_id, r.suid, r.outcome, r.observed_at FROM unsafemv.receipts r " \
	"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.settled " \
	"AND r.suid OPERATOR(unsafemv.<=) $5 AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($6) " \
	"AND r.outcome <> ALL ('{no-change,dismissed}')) x " \
	"WHERE (SELECT c.settled AND c.suid OPERATOR(unsafemv.=) x.suid FROM unsafemv.receipts c " \
	"WHERE c.service_id = $1 AND c.view_no = $2 AND c.generation = $4 " \
	"AND c.event_id >= x.event_id AND c.event_id <= x.event_id ORDER BY c.event_id LIMIT 1) IS NOT TRUE"

[STATEMENT_PROMOTION_MISSING] =
{
	"tnnnss",
		"SELECT count(*), (array_agg(x.event_id ORDER BY x.suid))[1:10] FROM " MISSING_IN_CANDIDATE
},

[STATEMENT_PROMOTION_FORCE] =
{
	"tnnnss",
		"INSERT INTO unsafemv.receipts "
		"(service_id, view_no, generation, event_id, suid, settled, outcome, observed_at) "
		"SELECT $1, $2, $4, x.event_id, x.suid, false, x.outcome, x.observed_at FROM " MISSING_IN_CANDIDATE
		" ON CONFLICT DO NOTHING"
},

 /*
  * An event of the active generation ($3) that the candidate ($4) knows with
  * another SUID: of those it lacks, and of those to be carried above $5
  */
[STATEMENT_PROMOTION_CONTRADICTION] =
{
	"tnnns",
		"SELECT r.event_id, r.suid, c.suid FROM ("
		"SELECT u.event_id, u.suid FROM unsafemv.receipts u "
		"WHERE u.service_id = $1 AND u.view_no = $2 AND u.generation = $3 AND NOT u.settled UNION ALL "
		"SELECT s.event_id, s.suid FROM unsafemv.receipts s WHERE s.service_id = $1 AND s.view_no = $2 "
		"AND s.generation = $3 AND s.settled AND s.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5)) r, "
		"LATERAL (SELECT k.suid FROM unsafemv.receipts k "
		"WHERE k.service_id = $1 AND k.view_no = $2 AND k.generation = $4 AND k.event_id = r.event_id OFFSET 0) c "
		"WHERE c.suid OPERATOR(unsafemv.<>) r.suid LIMIT 1"
},

 /*
  * Carry what lies above the new head ($5) to generation $4: what is not
  * settled, or dismissed, or was settled ahead of the old head ($6)
  */
[STATEMENT_CARRY_RECEIPTS] =
{
	"tnnnss",
		"UPDATE unsafemv.receipts SET generation = $4 WHERE ctid = ANY (ARRAY("
		"SELECT r.ctid FROM unsafemv.receipts r WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 "
		"AND NOT r.settled AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5) UNION ALL "
		"SELECT r.ctid FROM unsafemv.receipts r WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 "
		"AND r.settled AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5) "
		"AND (r.outcome = 'dismissed' OR r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($6)))) "
		"RETURNING settled"
},

 /*
  * What the view has ever seen stays known: $4 the greatest SUID received, $5
  * the greatest settled ahead of the head
  */
[STATEMENT_CARRY_MAXIMA] =
{
	"tnnss",
		"UPDATE unsafemv.generations SET "
		"observed_max_suid = coalesce(unsafemv.suid_larger(observed_max_suid, $4), observed_max_suid, $4), "
		"settled_max_suid = coalesce(unsafemv.suid_larger(settled_max_suid, $5), settled_max_suid, $5) "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

[STATEMENT_CARRY_ROWS] =
{
	"tnnns",
		"UPDATE unsafemv.unsafe_rows SET generation = $4 "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3 "
		"AND source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5)"
},

[STATEMENT_CARRY_MARKERS] =
{
	"tnnns",
		"UPDATE unsafemv.markers SET generation = $4 "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3 "
		"AND suid OPERATOR(unsafemv.>=) unsafemv.suid_above($5)"
},

 /* The next keys with kept operations; $4 the last key seen, $5 how many */
[STATEMENT_KEPT_KEYS] =
{
	"tnntn",
		"SELECT u.row_key FROM unsafemv.unsafe_rows u "
		"WHERE u.service_id = $1 AND u.view_no = $2 AND u.generation = $3 AND u.row_key > $4 "
		"AND u.kept IS NOT NULL ORDER BY u.row_key LIMIT $5"
},

 /* Tentative events above the new head ($4), to be applied again */
[STATEMENT_REDELIVER] =
{
	"tnns",
		"SELECT r.event_id, r.suid FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled "
		"AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above($4) "
		"ORDER BY r.service_id, r.view_no, r.generation, r.suid"
},

[STATEMENT_RETIRE_ROWS] =
{
	"tnn",
		"DELETE FROM unsafemv.unsafe_rows WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

[STATEMENT_RETIRE_MARKERS] =
{
	"tnn",
		"DELETE FROM unsafemv.markers WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},

[STATEMENT_RETIRE_RECEIPTS] =
{
	"tnn",
		"DELETE FROM unsafemv.receipts WHERE service_id = $1 AND view_no = $2 AND generation = $3 AND NOT settled"
},

 /*
  * Collect one tentative row if every guard holds.  $4 row_key, $5
  * expected_row_version, $6 expected_source_suid, $7 safe_head, $8
  * definition_version
  */
[STATEMENT_COLLECT_ONE] =
{
	"tnntnssn",
		"DELETE FROM unsafemv.unsafe_rows d "
		"WHERE d.ctid = ANY (ARRAY(SELECT u.ctid FROM (SELECT $4) AS k(row_key), "
		BY_ROW_KEY("u.ctid", "unsafe_rows", "u") " u)) "
		"AND d.service_id = $1 AND d.view_no = $2 AND d.generation = $3 AND d.row_key = $4 "
		"AND d.row_version = $5 AND d.source_suid OPERATOR(unsafemv.=) $6 AND $7 OPERATOR(unsafemv.>=) $6 "
		"AND EXISTS (SELECT 1 FROM unsafemv.generations g "
		"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3 AND g.status = 'active' "
		"AND g.definition_version = $8 AND g.last_suid OPERATOR(unsafemv.>=) $6 AND NOT " GATE_CLOSED " "
		"AND (g.receipt_floor OPERATOR(unsafemv.>=) $6 OR EXISTS (SELECT 1 FROM unsafemv.receipts s "
		"WHERE s.service_id = $1 AND s.view_no = $2 AND s.generation = $3 AND s.settled "
		"AND s.suid OPERATOR(unsafemv.=) $6)))"
},

 /* Which guard failed; the same arguments */
[STATEMENT_COLLECT_GUARD] =
{
	"tnntnssn",
		"SELECT CASE "
		"WHEN g.status <> 'active' THEN 'generation is not active' "
		"WHEN g.definition_version <> $8 THEN 'definition version differs' "
		"WHEN " GATE_CLOSED " THEN 'read gate is closed' "
		"WHEN $7 OPERATOR(unsafemv.<) $6 THEN 'safe_head lies below the row' "
		"WHEN (g.last_suid OPERATOR(unsafemv.>=) $6) IS NOT TRUE THEN 'head lies below the row' "
		"WHEN u.row_version IS NULL THEN 'row does not exist' "
		"WHEN u.row_version <> $5 THEN 'row version differs' "
		"WHEN (u.source_suid OPERATOR(unsafemv.=) $6) IS NOT TRUE THEN 'source SUID differs' "
		"ELSE 'receipt is not settled' END "
		"FROM unsafemv.generations g CROSS JOIN (SELECT $4) AS k(row_key) LEFT JOIN "
		BY_ROW_KEY("u.row_version, u.source_suid", "unsafe_rows", "u") " u ON true "
		"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"
},

 /*
  * Collect tentative rows at or below $4, at most $5, but for those an unsafe
  * transaction holds and those whose event is not settled.
  */
[STATEMENT_COLLECT_ROWS] =
{
	"tnnsn",
		"DELETE FROM unsafemv.unsafe_rows WHERE ctid = ANY (ARRAY(SELECT u.ctid FROM unsafemv.unsafe_rows u "
		"WHERE u.service_id = $1 AND u.view_no = $2 AND u.generation = $3 "
		"AND u.source_suid OPERATOR(unsafemv.<=) $4 "
		"AND (SELECT true FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled "
		"AND r.suid OPERATOR(unsafemv.>=) u.source_suid AND r.suid OPERATOR(unsafemv.<=) u.source_suid "
		"ORDER BY r.suid LIMIT 1) IS NULL "
		"ORDER BY u.source_suid, u.row_key LIMIT $5 FOR UPDATE OF u SKIP LOCKED))"
},

 /* Markers of settled events at or below $4, at most $5 */
[STATEMENT_COLLECT_MARKERS] =
{
	"tnnsn",
		"DELETE FROM unsafemv.markers WHERE ctid = ANY (ARRAY(SELECT m.ctid FROM unsafemv.markers m "
		"WHERE m.service_id = $1 AND m.view_no = $2 AND m.generation = $3 "
		"AND m.suid OPERATOR(unsafemv.<=) $4 ORDER BY m.suid LIMIT $5))"
},

 /* Markers of a key at or below $5; $4 row_key */
[STATEMENT_COLLECT_ROW_MARKERS] =
{
	"tnnts",
		"DELETE FROM unsafemv.markers WHERE service_id = $1 AND view_no = $2 AND generation = $3 "
		"AND suid OPERATOR(unsafemv.<=) $5 AND row_key = $4"
},

 /*
  * Rows above the head $4 whose fold is out of date, at most $5, skipping
  * locked ones
  */
[STATEMENT_COLLECT_STALE] =
{
	"tnnsn",
		"SELECT u.row_key FROM unsafemv.unsafe_rows u "
		"WHERE u.service_id = $1 AND u.view_no = $2 AND u.generation = $3 "
		"AND u.source_suid OPERATOR(unsafemv.>=) unsafemv.suid_above($4) AND u.kept IS NOT NULL "
		"AND (u.kept_from OPERATOR(unsafemv.<=) $4 OR coalesce((SELECT "
		"(u.base_suid OPERATOR(unsafemv.=) k.source_suid) IS NOT TRUE FROM "
		"LATERAL (SELECT r.source_suid FROM unsafemv.rows r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 "
		"AND r.row_key >= u.row_key AND r.row_key <= u.row_key ORDER BY r.row_key LIMIT 1) k), "
		"u.base_suid IS NOT NULL)) "
		"ORDER BY u.source_suid, u.row_key LIMIT $5 FOR UPDATE OF u SKIP LOCKED"
},

 /*
  * Settled receipts at or below $4 in SUID order, at most $5, and whether
  * each may go: older than the retention, and no candidate still has to be
  * compared with it
  */
[STATEMENT_COLLECT_RECEIPTS_READ] =
{
	"tnnsn",
		"SELECT r.suid, r.observed_at, r.observed_at < least(clock_timestamp() - (SELECT v.receipt_retention "
		"FROM unsafemv.views v WHERE v.service_id = $1 AND v.view_no = $2), (SELECT h.late_horizon FROM unsafemv.generations h "
		"WHERE h.service_id = $1 AND h.view_no = $2 AND h.generation = $3)) "
		"AND NOT EXISTS (SELECT 1 FROM unsafemv.generations c "
		"WHERE c.service_id = $1 AND c.view_no = $2 AND c.status = 'candidate' "
		"AND (r.observed_at >= c.candidate_since OR r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above(c.receipt_floor) "
		"AND NOT EXISTS (SELECT 1 FROM unsafemv.receipts k WHERE k.service_id = $1 AND k.view_no = $2 "
		"AND k.generation = c.generation AND k.event_id = r.event_id AND k.settled))) "
		"FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.settled "
		"AND r.suid OPERATOR(unsafemv.<=) $4 "
		"ORDER BY r.service_id, r.view_no, r.generation, r.suid LIMIT $5"
},

 /* Settled receipts at or below $4 observed at $5 or before */
[STATEMENT_COLLECT_RECEIPTS] =
{
	"tnnsz",
		"DELETE FROM unsafemv.receipts WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.settled "
		"AND r.suid OPERATOR(unsafemv.<=) $4 AND r.observed_at <= $5 "
		"ORDER BY r.service_id, r.view_no, r.generation, r.suid))"
},

 /* $4 the greatest SUID collected */
[STATEMENT_FLOOR_WRITE] =
{
	"tnns",
		"UPDATE unsafemv.generations SET receipt_floor = unsafemv.suid_larger(coalesce(receipt_floor, $4), $4), "
		"observed_max_suid = unsafemv.suid_larger(coalesce(observed_max_suid, $4), $4), "
		"updated_at = clock_timestamp() "
		"WHERE service_id = $1 AND view_no = $2 AND generation = $3"
},
