/*
 * index_scan.h
 *	  Rows of the extension's tables straight from an index, without a plan.
 */
#ifndef UNSAFEMV_INDEX_SCAN_H
#define UNSAFEMV_INDEX_SCAN_H

#include "access/genam.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "executor/tuptable.h"
#include "storage/buf.h"

#include "suid.h"

/* What can be scanned: an index, and the columns of its table that are read. */
typedef enum ScanKind
{
	SCAN_VIEW,					/* service_id, view_id */
	SCAN_GENERATION,			/* service_id, view_no, generation */
	SCAN_RECEIPT,				/* service_id, event_id, view_no, generation */
	SCAN_UNSETTLED,				/* instance, suid */
	SCAN_FINDING,				/* instance, kind */
	SCAN_SAFE,					/* instance, row_key */
	SCAN_SAFE_BY_SUID,			/* instance, source_suid, row_key */
	SCAN_ENTRY,					/* instance, row_key */
	SCAN_TENTATIVE,				/* instance, row_key */
	SCAN_TENTATIVE_BY_SUID,		/* instance, source_suid, row_key */
	SCAN_COUNT
} ScanKind;

/* Columns to be read; of each kind its own numbers. */
enum ScanViewColumn
{
	VIEW_NO, VIEW_ACTIVE_GENERATION, VIEW_INDEXES
};
enum ScanGenerationColumn
{
	GENERATION_HEAD, GENERATION_FLOOR, GENERATION_SETTLED_MAX, GENERATION_ROW_COUNT,
	GENERATION_REBUILD_REQUIRED, GENERATION_OFFENDER_EVENT, GENERATION_OFFENDER_SUID
};
enum ScanReceiptColumn
{
	RECEIPT_EVENT, RECEIPT_SUID, RECEIPT_OUTCOME
};
enum ScanFindingColumn
{
	FINDING_RESOLVED_AT
};
enum ScanRowColumn
{
	/* of both lanes */
	ROW_KEY, ROW_VALUE, ROW_VERSION, ROW_SUID,
	/* tentative rows only */
	ROW_TOMBSTONE, ROW_ENTRIES, ROW_KEPT, ROW_BASE_SUID,
	ROW_COLUMNS
};
enum ScanEntryColumn
{
	ENTRY_INDEX, ENTRY_TYPE, ENTRY_DERIVED, ENTRY_TEXT, ENTRY_INTEGER, ENTRY_REAL
};

#define SCAN_MAX_KEYS	7

typedef struct DirectScan
{
	ScanKind	kind;
	MemoryContext context;		/* of what the access method allocates */
	Relation	table;
	Relation	index;
	IndexScanDesc descriptor;
	TupleTableSlot *slot;
	ScanDirection direction;
	Buffer		visibility_map;
	int			nkeys;
	ScanKeyData keys[SCAN_MAX_KEYS];
} DirectScan;

/* Registers the cache's invalidation callback; from _PG_init. */
extern void index_scan_init(void);

/*
 * Open a scan with the active snapshot, which must stay active while rows are
 * fetched.  False, and nothing is open, if only the executor may answer: the role
 * lacks a right on the table or has row level security there, or the index cannot
 * be used by this snapshot.
 */
extern bool index_scan_open(DirectScan *scan, ScanKind kind);
extern void index_scan_close(DirectScan *scan);

/*
 * Conditions on the index's columns (from 1), in their order; then start.  A scan
 * can be started again, with other conditions after index_scan_reset.
 */
extern void index_scan_reset(DirectScan *scan);
extern void index_scan_where(DirectScan *scan, int column, StrategyNumber strategy, Datum value);
extern void index_scan_instance(DirectScan *scan, const text *service_id, int64 view_no, int64 generation);
extern void index_scan_start(DirectScan *scan, ScanDirection direction);

/* The next row; it stays until the next one is fetched. */
extern bool index_scan_next(DirectScan *scan);
extern Datum index_scan_value(const DirectScan *scan, int column, bool *isnull);

/* Copy a SUID out of the row; false: the column is NULL. */
extern bool index_scan_suid(const DirectScan *scan, int column, Suid *result);

/* The row with this value of the last condition; the others stay. */
extern bool index_scan_find(DirectScan *scan, Datum value);

/* Is there such a row?  It is not read if the visibility map vouches for it. */
extern bool index_scan_exists(DirectScan *scan, Datum value);

#endif							/* UNSAFEMV_INDEX_SCAN_H */
