/*
 * index_scan.c
 *	  Rows of the extension's tables straight from an index, without a plan.
 *
 * For the hottest look-ups only, where starting a plan costs more than the rows
 * it finds: the head an apply reads, the gate and the rows of a composed page.
 * Guarantees: the rows a statement would see in the active snapshot, or a refusal
 * to open, after which the caller runs the statement.  Rights, row level security
 * and an index's usability are checked here as the planner and executor do.
 *
 * Locks: ACCESS SHARE on table and index to the end of the transaction, as a
 * query's.  Opened relations, pins and snapshots are the resource owner's: an
 * error leaves nothing.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "catalog/namespace.h"
#include "catalog/pg_am_d.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "index_scan.h"

#define SCAN_MAX_COLUMNS	8

#define INSTANCE	"service_id", "view_no", "generation"
#define SAFE_COLUMNS {"row_key", "value", "row_version", "source_suid"}
#define TENTATIVE_COLUMNS \
	{"row_key", "value", "row_version", "source_suid", "tombstone", "entries", "kept", "base_suid"}

/* The index, its first columns, whether it is partial; and the columns read. */
static const struct
{
	const char *table;
	const char *index;
	const char *keys[SCAN_MAX_KEYS];
	bool		partial;
	const char *columns[SCAN_MAX_COLUMNS];
}			scan_names[SCAN_COUNT] = {
	[SCAN_VIEW] = {"views", "views_pkey", {"service_id", "view_id"}, false,
	{"view_no", "active_generation", "indexes"}},
	[SCAN_GENERATION] = {"generations", "generations_pkey", {INSTANCE}, false,
	{"last_suid", "receipt_floor", "settled_max_suid", "row_count", "rebuild_required",
	"behind_frontier_event_id", "behind_frontier_suid"}},
	[SCAN_RECEIPT] = {"receipts", "receipts_pkey", {"service_id", "event_id", "view_no", "generation"}, false,
	{"event_id", "suid", "outcome"}},
	[SCAN_UNSETTLED] = {"receipts", "receipts_unsettled_key", {INSTANCE, "suid"}, true,
	{"event_id", "suid", "outcome"}},
	[SCAN_FINDING] = {"findings", "findings_key", {INSTANCE, "kind"}, false, {"resolved_at"}},
	[SCAN_SAFE] = {"rows", "rows_pkey", {INSTANCE, "row_key"}, false, SAFE_COLUMNS},
	[SCAN_SAFE_BY_SUID] = {"rows", "rows_suid_idx", {INSTANCE, "source_suid", "row_key"}, false, SAFE_COLUMNS},
	[SCAN_ENTRY] = {"index_entries", "index_entries_row_idx", {INSTANCE, "row_key"}, false,
	{"index_id", "value_type", "derived", "text_value", "integer_value", "real_value"}},
	[SCAN_TENTATIVE] = {"unsafe_rows", "unsafe_rows_pkey", {INSTANCE, "row_key"}, false, TENTATIVE_COLUMNS},
	[SCAN_TENTATIVE_BY_SUID] = {"unsafe_rows", "unsafe_rows_suid_idx", {INSTANCE, "source_suid", "row_key"}, false,
	TENTATIVE_COLUMNS},
};

/* What the names stand for in this database. */
typedef struct ScanPlace
{
	bool		known;
	bool		as_expected;	/* the index is what its name promises */
	Oid			table;
	Oid			index;
	AttrNumber	columns[SCAN_MAX_COLUMNS];
	FmgrInfo	operators[INDEX_MAX_KEYS][BTMaxStrategyNumber]; /* of index columns;
																 * fn_oid 0: not looked
																 * up */
} ScanPlace;

static ScanPlace places[SCAN_COUNT];

static void
relation_changed(Datum arg, Oid relation)
{
	for (int i = 0; i < SCAN_COUNT; i++)
		if (relation == InvalidOid || relation == places[i].table || relation == places[i].index)
			places[i].known = false;
}

void
index_scan_init(void)
{
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
}

static ScanPlace *
find_place(ScanKind kind)
{
	ScanPlace  *place = &places[kind];
	Oid			namespace_oid;

	if (place->known)
		return place;
	memset(place, 0, sizeof(ScanPlace));
	namespace_oid = get_namespace_oid("unsafemv", true);
	place->table = get_relname_relid(scan_names[kind].table, namespace_oid);
	place->index = get_relname_relid(scan_names[kind].index, namespace_oid);
	if (!OidIsValid(place->table) || !OidIsValid(place->index))
		return NULL;
	for (int i = 0; i < SCAN_MAX_COLUMNS && scan_names[kind].columns[i] != NULL; i++)
	{
		place->columns[i] = get_attnum(place->table, scan_names[kind].columns[i]);
		if (place->columns[i] == InvalidAttrNumber)
			return NULL;
	}
	place->known = true;
	return place;
}

/*
 * Are the index's first columns the expected ones, ascending, of their columns' own
 * types and collations?  An owner may have put another index in its place.
 */
static bool
as_expected(ScanKind kind, Relation table, Relation index)
{
	TupleDesc	columns = RelationGetDescr(table);

	if (index->rd_rel->relam != BTREE_AM_OID || index->rd_index->indrelid != RelationGetRelid(table) ||
		(RelationGetIndexPredicate(index) != NIL) != scan_names[kind].partial)
		return false;
	for (int i = 0; i < SCAN_MAX_KEYS && scan_names[kind].keys[i] != NULL; i++)
	{
		AttrNumber	number = i < index->rd_index->indnkeyatts ? index->rd_index->indkey.values[i] : 0;
		Form_pg_attribute column = number > 0 ? TupleDescAttr(columns, number - 1) : NULL;

		if (column == NULL || strcmp(NameStr(column->attname), scan_names[kind].keys[i]) != 0 ||
			index->rd_indoption[i] != 0 || index->rd_opcintype[i] != column->atttypid ||
			index->rd_indcollation[i] != column->attcollation)
			return false;
	}
	return true;
}

/* May this snapshot use the index?  As get_relation_info() of the planner. */
static bool
usable(Relation index)
{
	if (!index->rd_index->indisvalid)
		return false;
	return !index->rd_index->indcheckxmin ||
		TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data), TransactionXmin);
}

bool
index_scan_open(DirectScan *scan, ScanKind kind)
{
	ScanPlace  *place;

	/* Names are looked up again if waiting for the lock has changed them. */
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		place = find_place(kind);
		if (place == NULL ||
			pg_class_aclcheck(place->table, GetUserId(), ACL_SELECT) != ACLCHECK_OK ||
			check_enable_rls(place->table, InvalidOid, true) == RLS_ENABLED)
			return false;
		scan->table = try_table_open(place->table, AccessShareLock);
		if (scan->table != NULL && place->known)
			break;
		if (scan->table != NULL)
			table_close(scan->table, NoLock);
		place->known = false;
	}
	scan->kind = kind;
	scan->context = CurrentMemoryContext;
	scan->index = index_open(place->index, AccessShareLock);
	if (!place->as_expected)
		place->as_expected = as_expected(kind, scan->table, scan->index);
	if (!place->as_expected || !usable(scan->index))
	{
		index_close(scan->index, NoLock);
		table_close(scan->table, NoLock);
		return false;
	}
	scan->slot = table_slot_create(scan->table, NULL);
	scan->descriptor = NULL;
	scan->visibility_map = InvalidBuffer;
	scan->nkeys = 0;
	return true;
}

void
index_scan_close(DirectScan *scan)
{
	if (BufferIsValid(scan->visibility_map))
		ReleaseBuffer(scan->visibility_map);
	ExecDropSingleTupleTableSlot(scan->slot);
	if (scan->descriptor != NULL)
		index_endscan(scan->descriptor);
	index_close(scan->index, NoLock);
	table_close(scan->table, NoLock);
}

void
index_scan_reset(DirectScan *scan)
{
	scan->nkeys = 0;
}

void
index_scan_where(DirectScan *scan, int column, StrategyNumber strategy, Datum value)
{
	FmgrInfo   *operator = &places[scan->kind].operators[column - 1][strategy - 1];
	Oid			type = scan->index->rd_opcintype[column - 1];

	Assert(scan->nkeys < SCAN_MAX_KEYS);
	if (operator->fn_oid == InvalidOid)
	{
		Oid			found = get_opfamily_member(scan->index->rd_opfamily[column - 1], type, type, strategy);

		if (!OidIsValid(found))
			elog(ERROR, "index \"%s\" has no operator %d of column %d",
				 RelationGetRelationName(scan->index), strategy, column);
		fmgr_info_cxt(get_opcode(found), operator, TopMemoryContext);
	}
	ScanKeyEntryInitializeWithInfo(&scan->keys[scan->nkeys++], 0, column, strategy, InvalidOid,
								   scan->index->rd_indcollation[column - 1], operator, value);
}

void
index_scan_instance(DirectScan *scan, const text *service_id, int64 view_no, int64 generation)
{
	index_scan_where(scan, 1, BTEqualStrategyNumber, PointerGetDatum(service_id));
	index_scan_where(scan, 2, BTEqualStrategyNumber, Int64GetDatum(view_no));
	index_scan_where(scan, 3, BTEqualStrategyNumber, Int64GetDatum(generation));
}

void
index_scan_start(DirectScan *scan, ScanDirection direction)
{
	MemoryContext caller = MemoryContextSwitchTo(scan->context);

	if (scan->descriptor != NULL && scan->descriptor->numberOfKeys != scan->nkeys)
	{
		index_endscan(scan->descriptor);
		scan->descriptor = NULL;
	}
	if (scan->descriptor == NULL)
		scan->descriptor = COMPAT_INDEX_BEGINSCAN(scan->table, scan->index, GetActiveSnapshot(),
												  scan->nkeys);
	index_rescan(scan->descriptor, scan->keys, scan->nkeys, NULL, 0);
	scan->direction = direction;
	MemoryContextSwitchTo(caller);
}

bool
index_scan_next(DirectScan *scan)
{
	MemoryContext caller = MemoryContextSwitchTo(scan->context);
	bool		found = index_getnext_slot(scan->descriptor, scan->direction, scan->slot);

	MemoryContextSwitchTo(caller);
	return found;
}

Datum
index_scan_value(const DirectScan *scan, int column, bool *isnull)
{
	return slot_getattr(scan->slot, places[scan->kind].columns[column], isnull);
}

bool
index_scan_suid(const DirectScan *scan, int column, Suid *result)
{
	bool		isnull;
	Datum		value = index_scan_value(scan, column, &isnull);

	if (!isnull)
		*result = *DatumGetSuidP(value);
	return !isnull;
}

bool
index_scan_find(DirectScan *scan, Datum value)
{
	scan->keys[scan->nkeys - 1].sk_argument = value;
	index_scan_start(scan, ForwardScanDirection);
	return index_scan_next(scan);
}

bool
index_scan_exists(DirectScan *scan, Datum value)
{
	MemoryContext caller = MemoryContextSwitchTo(scan->context);
	ItemPointer tid;
	bool		found = false;

	scan->keys[scan->nkeys - 1].sk_argument = value;
	index_scan_start(scan, ForwardScanDirection);
	while (!found && (tid = index_getnext_tid(scan->descriptor, ForwardScanDirection)) != NULL)
	{
		BlockNumber block = ItemPointerGetBlockNumber(tid);

		found = VM_ALL_VISIBLE(scan->table, block, &scan->visibility_map);
		if (found)
			/* What an index-only scan tells SERIALIZABLE. */
			PredicateLockPage(scan->table, block, scan->descriptor->xs_snapshot);
		else
			found = index_fetch_heap(scan->descriptor, scan->slot);
	}
	MemoryContextSwitchTo(caller);
	return found;
}
