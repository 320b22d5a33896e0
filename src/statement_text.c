/*
 * statement_text.c
 *	  The SQL of the extension, as data.
 *
 * Rules: constants with $n only; tables qualified; the public functions run with
 * search_path pg_catalog, so operators of type suid are written out.  Writes that
 * must lock in order are fed in that order.
 *
 * Plans must be right whatever the statistics say, and indexes of a table share
 * leading columns; so the SQL leaves no choice.  A set-wise statement reaches
 * tables through LATERAL subqueries, which cannot be joined the other way round.
 * Where another index of the table would do for the leading columns, the key is
 * given as a range of one value with ORDER BY and LIMIT: only the index that has
 * the key in this order gives it without a sort.  Rows to be updated or deleted
 * are found in this way and then reached by ctid; that is safe only for rows that
 * nobody else can move: locked ones, or of a generation whose row is locked.
 *
 * $1, $2, $3 are service_id, view_no and generation unless a comment says so.
 */
#include "postgres.h"

#include "statement.h"

#define RECEIPT_COLUMNS \
	"(service_id, view_no, generation, event_id, suid, settled, outcome, observed_at)"

#define RECEIPT_KEY \
	"(service_id, event_id, view_no, generation)"

#define TENTATIVE_COLUMNS \
	"(service_id, view_no, generation, row_key, source_suid, row_version, tombstone, value, entries, kept, kept_from, base_suid)"

/*
 * A row that is newer than what is there replaces it; a row without a verdict
 * (tombstone NULL) only claims its key.  Either way the key is locked, and keys
 * that were written or claimed as absent are counted.
 */
#define TENTATIVE_REPLACE \
	"ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE " \
	"SET source_suid = excluded.source_suid, row_version = excluded.row_version, " \
	"tombstone = excluded.tombstone, value = excluded.value, entries = excluded.entries, " \
	"kept = NULL, kept_from = NULL, base_suid = NULL " \
	"WHERE excluded.tombstone IS NOT NULL AND u.source_suid OPERATOR(unsafemv.<) excluded.source_suid"

#define TENTATIVE_STORE \
	"ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE " \
	"SET source_suid = excluded.source_suid, row_version = excluded.row_version, " \
	"tombstone = excluded.tombstone, value = excluded.value, entries = excluded.entries, " \
	"kept = excluded.kept, kept_from = excluded.kept_from, base_suid = excluded.base_suid"

/* Does an event behind the head close the reads of generation g? */
#define GATE_CLOSED \
	"(g.rebuild_required OR EXISTS (SELECT 1 FROM unsafemv.receipts r " \
	"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled " \
	"AND r.suid OPERATOR(unsafemv.<=) g.last_suid AND r.outcome <> 'no-change'))"

/* The greatest SUID the generation g ever had a receipt of. */
#define GREATEST_RECEIVED \
	"(SELECT unsafemv.max(x.suid) FROM (" \
	"(SELECT r.suid FROM unsafemv.receipts r WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 " \
	"AND NOT r.settled ORDER BY r.service_id DESC, r.view_no DESC, r.generation DESC, r.suid DESC LIMIT 1) UNION ALL " \
	"(SELECT r.suid FROM unsafemv.receipts r WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 " \
	"AND r.settled ORDER BY r.service_id DESC, r.view_no DESC, r.generation DESC, r.suid DESC LIMIT 1) UNION ALL " \
	"SELECT g.observed_max_suid) x)"

/* A lock's holder, for people; a prepared transaction has no process. */
#define HOLDER \
	"coalesce('process ' || h.pid, 'prepared transaction ' || (SELECT string_agg(p.gid, ', ') " \
	"FROM pg_locks t JOIN pg_prepared_xacts p ON p.transaction = t.transactionid " \
	"WHERE t.locktype = 'transactionid' AND t.pid IS NULL AND t.virtualtransaction = h.virtualtransaction))"

/* The row of a table with this row key, as a LATERAL subquery. */
#define BY_ROW_KEY(columns, table, alias) \
	"LATERAL (SELECT " columns " FROM unsafemv." table " " alias " " \
	"WHERE " alias ".service_id = $1 AND " alias ".view_no = $2 AND " alias ".generation = $3 " \
	"AND " alias ".row_key >= k.row_key AND " alias ".row_key <= k.row_key " \
	"ORDER BY " alias ".row_key LIMIT 1)"

/* The receipt of an event, as a LATERAL subquery. */
#define BY_EVENT_ID(columns, alias) \
	"LATERAL (SELECT " columns " FROM unsafemv.receipts " alias " " \
	"WHERE " alias ".service_id = $1 AND " alias ".view_no = $2 AND " alias ".generation = $3 " \
	"AND " alias ".event_id >= k.event_id AND " alias ".event_id <= k.event_id " \
	"ORDER BY " alias ".event_id LIMIT 1)"

/* The receipts of a SUID with this condition, but of other events. */
#define OTHER_BY_SUID(condition) \
	"LATERAL (SELECT r.event_id FROM unsafemv.receipts r " \
	"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 " \
	"AND r.suid OPERATOR(unsafemv.>=) k.suid AND r.suid OPERATOR(unsafemv.<=) k.suid " \
	"AND r.event_id <> k.event_id AND " condition " ORDER BY r.suid LIMIT 1)"

/* A row's index entries as jsonb, for a row that is there. */
#define ENTRIES_OF(present, element, condition) \
	"CASE WHEN " present " THEN (SELECT jsonb_agg(" element ") " \
	"FROM unsafemv.index_entries e WHERE e.service_id = $1 AND e.view_no = $2 AND e.generation = $3 " \
	"AND e.row_key = k.row_key" condition ") END "

#define ENTRY_ELEMENT \
	"CASE e.value_type " \
	"WHEN 'text' THEN jsonb_build_array(e.index_id, e.value_type, e.text_value) " \
	"WHEN 'integer' THEN jsonb_build_array(e.index_id, e.value_type, e.integer_value) " \
	"ELSE jsonb_build_array(e.index_id, e.value_type, e.real_value) END"

#define DROP_FROM(table) \
	{"tnnn", "DELETE FROM unsafemv." table " WHERE ctid = ANY (ARRAY(" \
	 "SELECT t.ctid FROM unsafemv." table " t " \
	 "WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 LIMIT $4))"}

const StatementText statement_texts[STATEMENT_COUNT] = {
	/* $1 service_id, $2 view_id */
	[STATEMENT_VIEW_READ] = {"tt",
		"SELECT v.view_no, v.active_generation, g.definition_version, v.base, v.indexes "
		"FROM unsafemv.views v LEFT JOIN LATERAL (SELECT a.definition_version FROM unsafemv.generations a "
		"WHERE a.service_id = v.service_id AND a.view_no = v.view_no AND a.generation = v.active_generation OFFSET 0) g ON true "
	"WHERE v.service_id = $1 AND v.view_id = $2"},
	/* $1 service_id */
	[STATEMENT_VIEW_NUMBER] = {"t",
		"INSERT INTO unsafemv.services AS s (service_id, last_view_no) VALUES ($1, 1) "
		"ON CONFLICT (service_id) DO UPDATE SET last_view_no = s.last_view_no + 1 "
	"RETURNING last_view_no"},

	/*
	 * $1 service_id, $2 view_id, $3 view_no, $4 generation, $5 base, $6
	 * indexes, $7 retention
	 */
	[STATEMENT_VIEW_INSERT] = {"ttnntji",
		"INSERT INTO unsafemv.views "
		"(service_id, view_id, view_no, active_generation, last_generation, base, indexes, receipt_retention) "
	"VALUES ($1, $2, $3, $4, $4, $5, $6, $7) ON CONFLICT (service_id, view_id) DO NOTHING RETURNING view_no"},
	/* $1 service_id, $2 view_id, $3 retention, NULL: as it is */
	[STATEMENT_VIEW_ALTER] = {"tti",
		"UPDATE unsafemv.views SET receipt_retention = coalesce($3, receipt_retention) "
	"WHERE service_id = $1 AND view_id = $2 RETURNING view_no"},
	/* $1 service_id, $2 view_id */
	[STATEMENT_VIEW_LOCK] = {"tt",
	"SELECT view_no FROM unsafemv.views WHERE service_id = $1 AND view_id = $2 FOR UPDATE"},
	/* $1 service_id, $2 view_no */
	[STATEMENT_VIEW_DEACTIVATE] = {"tn",
		"UPDATE unsafemv.views SET active_generation = NULL "
	"WHERE service_id = $1 AND view_no = $2 AND active_generation IS NOT NULL"},
	/* $1 service_id, $2 view_no */
	[STATEMENT_VIEW_DELETE] = {"tn",
		"WITH lease AS (DELETE FROM unsafemv.kicks WHERE service_id = $1 AND view_no = $2), "
		"projection AS (DELETE FROM unsafemv.projections WHERE service_id = $1 AND view_no = $2), "
		"rebuild AS (DELETE FROM unsafemv.rebuilds WHERE service_id = $1 AND view_no = $2), "
		"progress AS (DELETE FROM unsafemv.progress_state WHERE service_id = $1 AND view_no = $2) "
	"DELETE FROM unsafemv.views WHERE service_id = $1 AND view_no = $2"},
	/* $4 definition_version, $5 status, $6 last_suid */
	[STATEMENT_GENERATION_INSERT] = {"tnnnts",
		"INSERT INTO unsafemv.generations "
		"(service_id, view_no, generation, definition_version, status, last_suid, receipt_floor, candidate_since) "
	"VALUES ($1, $2, $3, $4, $5, $6, $6, CASE WHEN $5 = 'candidate' THEN clock_timestamp() END)"},
	[STATEMENT_HEAD_READ] = {"tnn",
		"SELECT g.last_suid, g.receipt_floor, g.settled_max_suid FROM unsafemv.generations g "
	"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"},
	[STATEMENT_GENERATION_LOCK] = {"tnn",
		"SELECT g.last_suid, g.receipt_floor, g.settled_max_suid, g.status, g.definition_version, "
		"g.row_count, g.history_count, g.history_digest, g.rebuild_required, "
		"(SELECT v.receipt_retention FROM unsafemv.views v WHERE v.service_id = g.service_id AND v.view_no = g.view_no), "
		"g.late_horizon FROM unsafemv.generations g "
	"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3 FOR NO KEY UPDATE OF g"},
	[STATEMENT_INSTANCE_READ] = {"tnn",
		"SELECT g.generation, g.status, g.definition_version, g.last_suid::text, g.receipt_floor::text, g.row_count, "
		"g.rebuild_required, g.behind_frontier_event_id, g.behind_frontier_suid::text, g.history_count, g.history_digest, "
		"g.rebuilt_source_event_count, g.rebuilt_source_max_suid::text, g.rebuilt_source_history_digest, g.rebuilt_at, "
		"g.created_at, g.updated_at FROM unsafemv.generations g "
	"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"},
	/* Who holds a view's lock; $1, $2 the halves of its key, $3 its class */
	[STATEMENT_LOCK_HOLDERS] = {"nnn",
		"SELECT DISTINCT " HOLDER " FROM pg_locks h "
		"WHERE h.locktype = 'advisory' AND h.classid = $1::oid AND h.objid = $2::oid AND h.objsubid = $3 AND h.granted "
		"AND h.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) "
	"AND h.pid IS DISTINCT FROM pg_backend_pid()"},
	/* Who holds rows of its generations; $1 service_id, $2 view_no */
	[STATEMENT_ROW_HOLDERS] = {"tn",
		"SELECT DISTINCT " HOLDER " FROM unsafemv.generations g JOIN pg_locks h "
		"ON h.locktype = 'transactionid' AND h.granted AND h.transactionid = g.xmax "
	"WHERE g.service_id = $1 AND g.view_no = $2 AND h.pid IS DISTINCT FROM pg_backend_pid()"},
	/* $1 service_id, $2 view_no */
	[STATEMENT_GENERATION_LIST] = {"tn",
		"SELECT g.generation FROM unsafemv.generations g "
	"WHERE g.service_id = $1 AND g.view_no = $2 ORDER BY g.service_id, g.view_no, g.generation"},
	[STATEMENT_GENERATION_DROPPING] = {"tnn",
		"UPDATE unsafemv.generations SET status = 'dropping', updated_at = clock_timestamp() "
	"WHERE service_id = $1 AND view_no = $2 AND generation = $3 AND status <> 'dropping'"},
	[STATEMENT_GENERATION_DELETE] = {"tnn",
	"DELETE FROM unsafemv.generations WHERE service_id = $1 AND view_no = $2 AND generation = $3"},
	[STATEMENT_DROP_ROWS] = DROP_FROM("rows"),
	[STATEMENT_DROP_UNSAFE_ROWS] = DROP_FROM("unsafe_rows"),
	[STATEMENT_DROP_INDEX_ENTRIES] = DROP_FROM("index_entries"),
	[STATEMENT_DROP_RECEIPTS] = {"tnnn",
		"DELETE FROM unsafemv.receipts WHERE ctid = ANY (ARRAY(SELECT x.ctid FROM ("
		"SELECT t.ctid FROM unsafemv.receipts t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 AND t.settled "
		"UNION ALL "
		"SELECT t.ctid FROM unsafemv.receipts t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 AND NOT t.settled"
	") x LIMIT $4))"},
	[STATEMENT_DROP_MARKERS] = DROP_FROM("markers"),
	[STATEMENT_DROP_FINDINGS] = DROP_FROM("findings"),
	[STATEMENT_DROP_REMAINING] = {"tnn",
		"SELECT (SELECT count(*) FROM unsafemv.rows t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3)"
		" + (SELECT count(*) FROM unsafemv.unsafe_rows t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3)"
		" + (SELECT count(*) FROM unsafemv.index_entries t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3)"
		" + (SELECT count(*) FROM unsafemv.receipts t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 AND t.settled)"
		" + (SELECT count(*) FROM unsafemv.receipts t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 AND NOT t.settled)"
		" + (SELECT count(*) FROM unsafemv.markers t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3)"
	" + (SELECT count(*) FROM unsafemv.findings t WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3)"},

	/*
	 * $4 event_id, $5 suid, $6 outcome, $7 observed_at.  Both unique keys are
	 * looked at for conflicts: to wait for one of them while the receipt goes
	 * in could deadlock two deliveries of one event.
	 */
	[STATEMENT_RECEIPT_CLAIM_ONE] = {"tnntstz",
		"INSERT INTO unsafemv.receipts " RECEIPT_COLUMNS " "
	"VALUES ($1, $2, $3, $4, $5, false, $6, $7) ON CONFLICT DO NOTHING"},
	/* $4 event_ids, $5 suids, $6 outcomes, $7 observed_at; in SUID order */
	[STATEMENT_RECEIPT_CLAIM] = {"tnnTSTz",
		"INSERT INTO unsafemv.receipts " RECEIPT_COLUMNS " "
		"SELECT $1, $2, $3, k.event_id, k.suid, false, k.outcome, $7 "
	"FROM unnest($4, $5, $6) AS k(event_id, suid, outcome) ON CONFLICT DO NOTHING RETURNING event_id"},

	/*
	 * What stands in the way of events: the receipt of the same id, the
	 * unsettled one of the same SUID, and a settled one of the same SUID
	 * above the head. $4 event_ids, $5 suids
	 */
	[STATEMENT_RECEIPT_FIND] = {"tnnTS",
		"SELECT k.position, i.suid, i.outcome, u.event_id, s.event_id "
		"FROM ROWS FROM (unnest($4), unnest($5)) WITH ORDINALITY AS k(event_id, suid, position) "
		"LEFT JOIN LATERAL (SELECT r.suid, r.outcome FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.event_id = k.event_id OFFSET 0) i ON true "
		"LEFT JOIN " OTHER_BY_SUID("NOT r.settled") " u ON true "
		"LEFT JOIN " OTHER_BY_SUID("r.settled AND r.suid OPERATOR(unsafemv.>=) unsafemv.suid_above("
								   "(SELECT g.last_suid FROM unsafemv.generations g "
								   "WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3))") " s ON true"},
	/* Of receipts that are there; $4 event_ids, $5 suids, $6 outcomes */
	[STATEMENT_RECEIPT_OUTCOME] = {"tnnTST",
		"INSERT INTO unsafemv.receipts " RECEIPT_COLUMNS " "
		"SELECT $1, $2, $3, k.event_id, k.suid, false, k.outcome, clock_timestamp() "
		"FROM unnest($4, $5, $6) AS k(event_id, suid, outcome) "
	"ON CONFLICT " RECEIPT_KEY " DO UPDATE SET outcome = excluded.outcome"},

	/*
	 * Claimed by this transaction, or of a generation that is locked; $4
	 * event_ids
	 */
	[STATEMENT_RECEIPT_DELETE] = {"tnnT",
		"DELETE FROM unsafemv.receipts WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM unnest($4) AS k(event_id), "
	BY_EVENT_ID("r.ctid", "r") " r))"},

	/*
	 * Settle or insert as settled; $4 event_ids, $5 suids, $6 observed_ats;
	 * in SUID order
	 */
	[STATEMENT_RECEIPT_SETTLE] = {"tnnTSZ",
		"INSERT INTO unsafemv.receipts AS r " RECEIPT_COLUMNS " "
		"SELECT $1, $2, $3, k.event_id, k.suid, true, 'applied', k.observed_at "
		"FROM unnest($4, $5, $6) AS k(event_id, suid, observed_at) "
		"ON CONFLICT " RECEIPT_KEY " DO UPDATE SET settled = true "
	"RETURNING r.event_id, r.suid"},
	/* Settle if there is one, in a generation that is locked; $4 event_ids */
	[STATEMENT_RECEIPT_SETTLE_KNOWN] = {"tnnT",
		"UPDATE unsafemv.receipts u SET settled = true "
		"WHERE u.ctid = ANY (ARRAY(SELECT r.ctid FROM unnest($4) AS k(event_id), "
	BY_EVENT_ID("r.ctid", "r") " r)) RETURNING u.event_id, u.suid"},
	/* Unsettled at or below the head; $4 head */
	[STATEMENT_RECEIPT_PASSED_OVER] = {"tnns",
		"SELECT r.event_id, r.suid, r.outcome FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled "
	"AND r.suid OPERATOR(unsafemv.<=) $4 ORDER BY r.service_id, r.view_no, r.generation, r.suid"},
	/* $4 event_id, $5 suid */
	[STATEMENT_RECEIPT_LOCK] = {"tnnts",
		"SELECT r.settled, r.outcome FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.event_id = $4 "
	"AND r.suid OPERATOR(unsafemv.=) $5 FOR NO KEY UPDATE"},
	/* Another event's settled receipts of these SUIDs; $4 event_ids, $5 suids */
	[STATEMENT_RECEIPT_SETTLED_AT] = {"tnnTS",
	"SELECT k.event_id, s.event_id FROM unnest($4, $5) AS k(event_id, suid), " OTHER_BY_SUID("r.settled") " s"},
	[STATEMENT_RECEIPT_FIRST_UNSETTLED] = {"tnn",
		"SELECT r.suid FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND NOT r.settled AND r.outcome <> 'no-change' "
	"ORDER BY r.service_id, r.view_no, r.generation, r.suid LIMIT 1"},
	/* The greatest settled SUID below $4 */
	[STATEMENT_RECEIPT_SETTLED_BELOW] = {"tnns",
		"SELECT r.suid FROM unsafemv.receipts r "
		"WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3 AND r.settled "
		"AND r.suid OPERATOR(unsafemv.<) $4 "
	"ORDER BY r.service_id DESC, r.view_no DESC, r.generation DESC, r.suid DESC LIMIT 1"},
	/* $1 service_id, $2 view_no, $3 event_id, $4 suid */
	[STATEMENT_RECEIPT_EXISTS] = {"tnts",
		"SELECT 1 FROM unsafemv.generations g, LATERAL (SELECT 1 FROM unsafemv.receipts r "
		"WHERE r.service_id = g.service_id AND r.view_no = g.view_no AND r.generation = g.generation "
		"AND r.event_id = $3 AND r.suid OPERATOR(unsafemv.=) $4 OFFSET 0) r "
	"WHERE g.service_id = $1 AND g.view_no = $2 LIMIT 1"},
	/* Head, greatest SUID ever received, and the gate's verdict */
	[STATEMENT_RECEIPT_META] = {"tnn",
		"SELECT g.last_suid::text, " GREATEST_RECEIVED "::text, "
		GATE_CLOSED " "
	"FROM unsafemv.generations g WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"},
	[STATEMENT_RECEIPT_MAXIMUM] = {"tnn",
		"SELECT " GREATEST_RECEIVED " FROM unsafemv.generations g "
	"WHERE g.service_id = $1 AND g.view_no = $2 AND g.generation = $3"},
	/* $4 event_ids, $5 suids, $6 row_keys, $7 reasons */
	[STATEMENT_MARKER_WRITE] = {"tnnTSTT",
		"INSERT INTO unsafemv.markers (service_id, view_no, generation, event_id, suid, row_key, reason) "
		"SELECT $1, $2, $3, k.event_id, k.suid, k.row_key, k.reason "
	"FROM unnest($4, $5, $6, $7) AS k(event_id, suid, row_key, reason) ON CONFLICT DO NOTHING"},
	/* $4 suids of the events */
	[STATEMENT_MARKER_DELETE] = {"tnnS",
		"DELETE FROM unsafemv.markers WHERE ctid = ANY (ARRAY(SELECT x.ctid FROM unnest($4) AS k(suid), "
		"LATERAL (SELECT m.ctid FROM unsafemv.markers m "
		"WHERE m.service_id = $1 AND m.view_no = $2 AND m.generation = $3 "
	"AND m.suid OPERATOR(unsafemv.>=) k.suid AND m.suid OPERATOR(unsafemv.<=) k.suid OFFSET 0) x))"},

	/*
	 * $4 row_key, $5 source_suid, $6 row_version, $7 tombstone, $8 value, $9
	 * entries
	 */
	[STATEMENT_TENTATIVE_WRITE_ONE] = {"tnntsnbjj",
		"INSERT INTO unsafemv.unsafe_rows AS u "
		"(service_id, view_no, generation, row_key, source_suid, row_version, tombstone, value, entries) "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) " TENTATIVE_REPLACE},
	/* The same as arrays, in C byte order of row_key */
	[STATEMENT_TENTATIVE_WRITE] = {"tnnTSNBJJ",
		"INSERT INTO unsafemv.unsafe_rows AS u "
		"(service_id, view_no, generation, row_key, source_suid, row_version, tombstone, value, entries) "
		"SELECT $1, $2, $3, k.row_key, k.source_suid, k.row_version, k.tombstone, k.value, k.entries "
		"FROM unnest($4, $5, $6, $7, $8, $9) AS k(row_key, source_suid, row_version, tombstone, value, entries) "
	TENTATIVE_REPLACE " RETURNING u.row_key"},
	/* Tentative state and base of keys; $4 row_keys */
	[STATEMENT_TENTATIVE_READ] = {"tnnT",
		"SELECT k.position, u.source_suid, u.row_version, u.tombstone, u.value, u.entries, u.kept, u.base_suid, "
		"r.source_suid, r.row_version, r.value, "
		ENTRIES_OF("r.row_key IS NOT NULL", ENTRY_ELEMENT, " AND NOT e.derived")
		"FROM unnest($4) WITH ORDINALITY AS k(row_key, position) "
		"LEFT JOIN " BY_ROW_KEY("u.*", "unsafe_rows", "u") " u ON true "
	"LEFT JOIN " BY_ROW_KEY("r.*", "rows", "r") " r ON true"},

	/*
	 * Whole rows, on keys that are locked; $4.. the columns as arrays, in C
	 * byte order of row_key
	 */
	[STATEMENT_TENTATIVE_STORE] = {"tnnTSNBJJJSS",
		"INSERT INTO unsafemv.unsafe_rows AS u " TENTATIVE_COLUMNS " "
	"SELECT $1, $2, $3, k.* FROM unnest($4, $5, $6, $7, $8, $9, $10, $11, $12) AS k " TENTATIVE_STORE},
	/* One of them */
	[STATEMENT_TENTATIVE_STORE_ONE] = {"tnntsnbjjjss",
		"INSERT INTO unsafemv.unsafe_rows AS u " TENTATIVE_COLUMNS " "
	"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) " TENTATIVE_STORE},
	/* Keys that are locked; $4 row_keys */
	[STATEMENT_TENTATIVE_DELETE] = {"tnnT",
		"DELETE FROM unsafemv.unsafe_rows WHERE ctid = ANY (ARRAY(SELECT u.ctid FROM unnest($4) AS k(row_key), "
	BY_ROW_KEY("u.ctid", "unsafe_rows", "u") " u))"},

	/*
	 * Tentative rows that a safe step on these keys may have to collect or
	 * refold; those locked by an unsafe transaction are skipped.  $4
	 * row_keys, $5 new head
	 */
	[STATEMENT_TENTATIVE_TOUCHED] = {"tnnTs",
		"SELECT k.position, u.source_suid, u.row_version, u.tombstone, u.value, u.entries, u.kept, u.base_suid "
		"FROM unnest($4) WITH ORDINALITY AS k(row_key, position), LATERAL (SELECT t.* FROM unsafemv.unsafe_rows t "
		"WHERE t.service_id = $1 AND t.view_no = $2 AND t.generation = $3 "
		"AND t.row_key >= k.row_key AND t.row_key <= k.row_key "
		"AND (t.source_suid OPERATOR(unsafemv.<=) $5 OR t.kept IS NOT NULL) "
	"ORDER BY t.row_key LIMIT 1 FOR UPDATE SKIP LOCKED) u"},

	/* $4 row_keys */
	[STATEMENT_SAFE_READ] = {"tnnT",
		"SELECT k.position, r.source_suid, r.row_version, r.value, "
		ENTRIES_OF("r.row_key IS NOT NULL",
				   ENTRY_ELEMENT " || CASE WHEN e.derived THEN '[true]'::jsonb ELSE '[]'::jsonb END", "")
		"FROM unnest($4) WITH ORDINALITY AS k(row_key, position) "
	"LEFT JOIN " BY_ROW_KEY("r.*", "rows", "r") " r ON true"},
	/* $4 row_keys, $5 source_suids, $6 row_versions, $7 values */
	[STATEMENT_SAFE_STORE] = {"tnnTSNJ",
		"INSERT INTO unsafemv.rows (service_id, view_no, generation, row_key, source_suid, row_version, value) "
		"SELECT $1, $2, $3, k.* FROM unnest($4, $5, $6, $7) AS k "
		"ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE "
	"SET source_suid = excluded.source_suid, row_version = excluded.row_version, value = excluded.value"},
	/* $4 row_keys */
	[STATEMENT_SAFE_DELETE] = {"tnnT",
		"DELETE FROM unsafemv.rows WHERE ctid = ANY (ARRAY(SELECT r.ctid FROM unnest($4) AS k(row_key), "
	BY_ROW_KEY("r.ctid", "rows", "r") " r))"},
	/* $4 row_keys, $5 entries as [id, type, value(, true)] */
	[STATEMENT_ENTRY_INSERT] = {"tnnTJ",
		"INSERT INTO unsafemv.index_entries "
		"(service_id, view_no, generation, row_key, index_id, value_type, text_value, integer_value, real_value, derived) "
		"SELECT $1, $2, $3, k.row_key, k.entry ->> 0, k.entry ->> 1, "
		"CASE k.entry ->> 1 WHEN 'text' THEN k.entry ->> 2 END, "
		"CASE k.entry ->> 1 WHEN 'integer' THEN (k.entry -> 2)::bigint END, "
		"CASE k.entry ->> 1 WHEN 'real' THEN (k.entry ->> 2)::double precision END, "
		"jsonb_array_length(k.entry) > 3 "
	"FROM unnest($4, $5) AS k(row_key, entry)"},
	/* $4 row_keys, $5 entries; all entries of a row for an entry that is NULL */
	[STATEMENT_ENTRY_DELETE] = {"tnnTJ",
		"DELETE FROM unsafemv.index_entries WHERE ctid = ANY (ARRAY(SELECT x.ctid "
		"FROM unnest($4, $5) AS k(row_key, entry), LATERAL (SELECT e.ctid FROM unsafemv.index_entries e "
		"WHERE e.service_id = $1 AND e.view_no = $2 AND e.generation = $3 AND e.row_key = k.row_key "
		"AND (k.entry IS NULL OR (e.index_id = k.entry ->> 0 AND e.value_type = k.entry ->> 1 "
		"AND CASE e.value_type WHEN 'text' THEN e.text_value = k.entry ->> 2 "
		"WHEN 'integer' THEN e.integer_value = (k.entry -> 2)::bigint "
	"ELSE e.real_value = (k.entry ->> 2)::double precision END)) OFFSET 0) x))"},
	/* $4 head, $5 row_count, $6 history_count, $7 history_digest, $8 floor */
	[STATEMENT_HEAD_WRITE] = {"tnnsnnys",
		"UPDATE unsafemv.generations SET last_suid = $4, row_count = $5, history_count = $6, history_digest = $7, "
		"receipt_floor = $8, rebuilt_source_event_count = NULL, rebuilt_source_max_suid = NULL, "
		"rebuilt_source_history_digest = NULL, rebuilt_at = NULL, updated_at = clock_timestamp() "
	"WHERE service_id = $1 AND view_no = $2 AND generation = $3"},
	/* Of observe_safe_receipt; $4 head, $5 settled SUID */
	[STATEMENT_HEAD_OBSERVE] = {"tnnss",
		"UPDATE unsafemv.generations SET last_suid = $4, settled_max_suid = unsafemv.suid_larger(coalesce(settled_max_suid, $5), $5), "
	"updated_at = clock_timestamp() WHERE service_id = $1 AND view_no = $2 AND generation = $3"},
	/* $4 event_id, $5 suid */
	[STATEMENT_REBUILD_REQUIRED] = {"tnnts",
		"UPDATE unsafemv.generations SET rebuild_required = true, behind_frontier_event_id = $4, behind_frontier_suid = $5, "
	"updated_at = clock_timestamp() WHERE service_id = $1 AND view_no = $2 AND generation = $3"},

#include "statement_generation.h"
#include "statement_catchup.h"
#include "statement_read.h"
#include "statement_watch.h"
#include "statement_worker.h"
};
