/*
 * statement.h
 *	  Every SQL statement of the extension, as data, with one plan cache.
 */
#ifndef UNSAFEMV_STATEMENT_H
#define UNSAFEMV_STATEMENT_H

#include "executor/spi.h"
#include "utils/timestamp.h"

#include "suid.h"

typedef enum StatementKind
{
	/* registry */
	STATEMENT_VIEW_READ,
	STATEMENT_VIEW_NUMBER,
	STATEMENT_VIEW_INSERT,
	STATEMENT_VIEW_ALTER,
	STATEMENT_VIEW_LOCK,
	STATEMENT_VIEW_DEACTIVATE,
	STATEMENT_VIEW_DELETE,
	STATEMENT_GENERATION_INSERT,
	STATEMENT_HEAD_READ,
	STATEMENT_INSTANCE_READ,
	STATEMENT_LOCK_HOLDERS,
	STATEMENT_ROW_HOLDERS,
	STATEMENT_GENERATION_LIST,
	STATEMENT_GENERATION_LOCK,
	STATEMENT_GENERATION_DROPPING,
	STATEMENT_GENERATION_DELETE,
	STATEMENT_DROP_ROWS,
	STATEMENT_DROP_UNSAFE_ROWS,
	STATEMENT_DROP_INDEX_ENTRIES,
	STATEMENT_DROP_RECEIPTS,
	STATEMENT_DROP_MARKERS,
	STATEMENT_DROP_FINDINGS,
	STATEMENT_DROP_REMAINING,

	/* receipts and markers */
	STATEMENT_RECEIPT_CLAIM_ONE,
	STATEMENT_RECEIPT_CLAIM,
	STATEMENT_RECEIPT_FIND,
	STATEMENT_RECEIPT_OUTCOME,
	STATEMENT_RECEIPT_DELETE,
	STATEMENT_RECEIPT_SETTLE,
	STATEMENT_RECEIPT_SETTLE_KNOWN,
	STATEMENT_RECEIPT_PASSED_OVER,
	STATEMENT_RECEIPT_LOCK,
	STATEMENT_RECEIPT_SETTLED_AT,
	STATEMENT_RECEIPT_FIRST_UNSETTLED,
	STATEMENT_RECEIPT_SETTLED_BELOW,
	STATEMENT_RECEIPT_EXISTS,
	STATEMENT_RECEIPT_META,
	STATEMENT_RECEIPT_MAXIMUM,
	STATEMENT_MARKER_WRITE,
	STATEMENT_MARKER_DELETE,

	/* tentative rows */
	STATEMENT_TENTATIVE_WRITE_ONE,
	STATEMENT_TENTATIVE_WRITE,
	STATEMENT_TENTATIVE_READ,
	STATEMENT_TENTATIVE_STORE,
	STATEMENT_TENTATIVE_STORE_ONE,
	STATEMENT_TENTATIVE_DELETE,
	STATEMENT_TENTATIVE_TOUCHED,

	/* safe rows */
	STATEMENT_SAFE_READ,
	STATEMENT_SAFE_STORE,
	STATEMENT_SAFE_DELETE,
	STATEMENT_ENTRY_INSERT,
	STATEMENT_ENTRY_DELETE,
	STATEMENT_HEAD_WRITE,
	STATEMENT_HEAD_OBSERVE,
	STATEMENT_REBUILD_REQUIRED,

	/* findings, kicks, waiting */
	STATEMENT_FINDING_RECORD,
	STATEMENT_FINDING_RESOLVE,
	STATEMENT_FINDING_READ,
	STATEMENT_KICK_STATE,
	STATEMENT_KICK_LOCK,
	STATEMENT_KICK_GRANT,
	STATEMENT_KICK_INSERT,
	STATEMENT_KICK_RENEW,
	STATEMENT_KICK_FINISH,
	STATEMENT_KICK_CANDIDATES,
	STATEMENT_KICK_ABANDONED,
	STATEMENT_WAIT_FACTS,

	/* catch-up */
	STATEMENT_PROJECTION_READ,
	STATEMENT_PROJECTION_ATTACH,
	STATEMENT_PROJECTION_DETACH,
	STATEMENT_PROJECTION_WINDOW,
	STATEMENT_PROJECTION_PASSED,
	STATEMENT_LAG_READ,
	STATEMENT_LAG_OBSERVE,
	STATEMENT_WINDOW_READ,
	STATEMENT_PREPARED_EXISTS,
	STATEMENT_HORIZON_WRITE,
	STATEMENT_FINDING_OPEN,
	STATEMENT_SKIPPED_READ,
	STATEMENT_SKIPPED_TAKEN_BACK,
	STATEMENT_POISON_RESOLVE,
	STATEMENT_PROGRESS_WRITE,
	STATEMENT_REBUILD_LEASE,
	STATEMENT_REBUILD_HOLDER,
	STATEMENT_REBUILD_RENEW,
	STATEMENT_REBUILD_RELEASE,

	/* reads */
	STATEMENT_READ_STATE,
	STATEMENT_READ_TOTAL,
	STATEMENT_PAGE_SAFE,
	STATEMENT_PAGE_SAFE_DESC,
	STATEMENT_PAGE_TENTATIVE,
	STATEMENT_PAGE_TENTATIVE_DESC,
	STATEMENT_READ_ROWS,
	STATEMENT_READ_ROWS_DESC,
	STATEMENT_READ_ROWS_KEYS,
	STATEMENT_READ_ROWS_KEYS_DESC,
	STATEMENT_QUERY_TEXT,
	STATEMENT_QUERY_TEXT_DESC,
	STATEMENT_QUERY_INTEGER,
	STATEMENT_QUERY_INTEGER_DESC,
	STATEMENT_QUERY_REAL,
	STATEMENT_QUERY_REAL_DESC,
	STATEMENT_ENTRIES_TEXT,
	STATEMENT_ENTRIES_TEXT_DESC,
	STATEMENT_ENTRIES_INTEGER,
	STATEMENT_ENTRIES_INTEGER_DESC,
	STATEMENT_ENTRIES_REAL,
	STATEMENT_ENTRIES_REAL_DESC,

	/* generations, promotion, collection */
	STATEMENT_GENERATION_ALLOCATE,
	STATEMENT_GENERATION_NEXT,
	STATEMENT_GENERATION_STATUS,
	STATEMENT_VIEW_ACTIVATE,
	STATEMENT_GENERATION_PROOF,
	STATEMENT_GENERATION_GATE,
	STATEMENT_QUARANTINE_READ,
	STATEMENT_RECEIPT_IS_SETTLED,
	STATEMENT_RECEIPT_KNOWN,
	STATEMENT_RECEIPT_DISMISS,
	STATEMENT_PROMOTION_MISSING,
	STATEMENT_PROMOTION_FORCE,
	STATEMENT_PROMOTION_CONTRADICTION,
	STATEMENT_CARRY_RECEIPTS,
	STATEMENT_CARRY_MAXIMA,
	STATEMENT_CARRY_ROWS,
	STATEMENT_CARRY_MARKERS,
	STATEMENT_KEPT_KEYS,
	STATEMENT_REDELIVER,
	STATEMENT_RETIRE_ROWS,
	STATEMENT_RETIRE_MARKERS,
	STATEMENT_RETIRE_RECEIPTS,
	STATEMENT_COLLECT_ONE,
	STATEMENT_COLLECT_GUARD,
	STATEMENT_COLLECT_ROWS,
	STATEMENT_COLLECT_MARKERS,
	STATEMENT_COLLECT_ROW_MARKERS,
	STATEMENT_COLLECT_STALE,
	STATEMENT_COLLECT_RECEIPTS_READ,
	STATEMENT_COLLECT_RECEIPTS,
	STATEMENT_FLOOR_WRITE,

	/* the trigger and the worker */
	STATEMENT_DELIVER_VIEWS,
	STATEMENT_WORKER_KICK,
	STATEMENT_WORKER_PASS,
	STATEMENT_WORKER_RENEW,
	STATEMENT_WORKER_FINISH,
	STATEMENT_WORKER_CONNECTED,
	STATEMENT_WORKER_STOP,

	STATEMENT_COUNT
} StatementKind;

typedef struct StatementText
{
	/*
	 * Argument types, a letter each: t text, n bigint, b boolean, s suid, j
	 * jsonb, y bytea, z timestamptz, i interval, r double precision; upper
	 * case: an array of it.
	 */
	const char *arguments;
	const char *sql;
} StatementText;

extern const StatementText statement_texts[STATEMENT_COUNT];

/* Registers the cache's invalidation callbacks; from _PG_init. */
extern void statement_init(void);

/*
 * Pin search_path where no SET clause can; ends with AtEOXact_GUC(true, level), level
 * being what is returned.
 */
extern int	statement_pin_search_path(void);

/* Open and close one use of the statements (SPI) within a public function. */
extern void statement_begin(void);
extern void statement_end(void);

/*
 * Run a statement; the number of rows returned or written.  statement_execute
 * sees everything committed before it begins (READ COMMITTED); statement_read
 * sees what the active snapshot sees.  "nulls" may be NULL.  Result rows stay in
 * SPI_tuptable until the next statement frees... they live until statement_end.
 */
extern uint64 statement_execute(StatementKind kind, Datum *values, const bool *nulls);
extern uint64 statement_read(StatementKind kind, Datum *values, const bool *nulls);

/* statement_read whose rows go to "dest", one by one, instead of SPI_tuptable. */
extern uint64 statement_read_into(StatementKind kind, Datum *values, const bool *nulls,
								  DestReceiver *dest);

/* Run a command that is no plan: DDL, its names quoted, its types looked up. */
extern void statement_utility(const char *command);

/*
 * Run a query that is made of names a user attached, quoted and looked up: planned
 * for these very values, with the planner's choice pinned to indexes as in all
 * statements, and seeing everything committed before it begins.  "arguments" as in
 * StatementText.
 */
extern uint64 statement_query(const char *sql, const char *arguments, Datum *values, const bool *nulls);

/* The same as a cursor: fetch (into SPI_tuptable, until statement_free), close. */
extern Portal statement_cursor_open(const char *sql, const char *arguments, Datum *values,
									const bool *nulls);
extern uint64 statement_cursor_fetch(Portal cursor, long count);

/* Give the last result back before statement_end. */
extern void statement_free(void);

/* Column (from 1) of a row (from 0) of the last result. */
extern Datum statement_value(uint64 row, int column, bool *isnull);

/* Copy a SUID out of the last result; false: the column is NULL. */
extern bool statement_suid(uint64 row, int column, Suid *result);

/*
 * From now on statement_read sees one fresh snapshot, with this transaction's
 * own writes; statement_snapshot_end returns to the former.
 */
extern void statement_snapshot_begin(void);
extern void statement_snapshot_end(void);

/* Same with the newest snapshot even above READ COMMITTED. */
extern void statement_latest_begin(void);

/* Type unsafemv.suid in this database. */
extern Oid	statement_suid_type(void);

/* Arrays for set-wise statements; "nulls" may be NULL. */
extern Datum statement_text_array(Datum *values, const bool *nulls, int count);
extern Datum statement_bigint_array(Datum *values, const bool *nulls, int count);
extern Datum statement_boolean_array(Datum *values, const bool *nulls, int count);
extern Datum statement_suid_array(Datum *values, const bool *nulls, int count);
extern Datum statement_timestamp_array(Datum *values, int count);
extern Datum statement_jsonb_array(Datum *values, const bool *nulls, int count);

#endif							/* UNSAFEMV_STATEMENT_H */
