/*
 * page_scan.c
 *	  Gate, rows and total of composed pages by direct index scans.
 *
 * Guarantees: what the statements of statement_read.h answer in the same snapshot;
 * they stay for roles with row level security and are the definition.  A page is
 * two index scans one after the other (page.c); a safe row costs one probe for a
 * tentative row that counts on its key, and none where no tentative row counts at
 * all.  A tentative row whose kept events are stale is refolded here (fold.c), as
 * unsafemv.refold does for SQL.
 *
 * Takes no lock but ACCESS SHARE on the tables.  Memory: rows go to the receiver
 * one by one; what a refold needs is freed after each row.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "index_scan.h"
#include "kept.h"
#include "page_scan.h"
#include "registry.h"
#include "row_writer.h"

/* ---------------------------------------------------------------------------
 * The gate
 * ---------------------------------------------------------------------------
 */

/* The view and its active generation's number. */
static bool
scan_view(text *service_id, text *view_id, ReadState *state, bool *has_active, bool *found)
{
	DirectScan	scan;
	bool		isnull;
	Datum		active;

	if (!index_scan_open(&scan, SCAN_VIEW))
		return false;
	index_scan_where(&scan, 1, BTEqualStrategyNumber, PointerGetDatum(service_id));
	index_scan_where(&scan, 2, BTEqualStrategyNumber, PointerGetDatum(view_id));
	index_scan_start(&scan, ForwardScanDirection);
	*found = index_scan_next(&scan);
	if (*found)
	{
		state->view_no = DatumGetInt64(index_scan_value(&scan, VIEW_NO, &isnull));
		active = index_scan_value(&scan, VIEW_ACTIVE_GENERATION, &isnull);
		*has_active = !isnull;
		state->generation = isnull ? 0 : DatumGetInt64(active);
		state->indexes = DatumGetJsonbPCopy(index_scan_value(&scan, VIEW_INDEXES, &isnull));
	}
	index_scan_close(&scan);
	return true;
}

static bool
scan_generation(ReadState *state, bool *found)
{
	DirectScan	scan;
	bool		isnull;
	Datum		event;

	if (!index_scan_open(&scan, SCAN_GENERATION))
		return false;
	index_scan_instance(&scan, state->service_id, state->view_no, state->generation);
	index_scan_start(&scan, ForwardScanDirection);
	*found = index_scan_next(&scan);
	if (*found)
	{
		state->has_head = index_scan_suid(&scan, GENERATION_HEAD, &state->head);
		state->row_count = DatumGetInt64(index_scan_value(&scan, GENERATION_ROW_COUNT, &isnull));
		state->rebuild_required = DatumGetBool(index_scan_value(&scan, GENERATION_REBUILD_REQUIRED, &isnull));
		if (state->rebuild_required)
		{
			event = index_scan_value(&scan, GENERATION_OFFENDER_EVENT, &isnull);
			if (!isnull)
				state->offender_event = DatumGetTextPCopy(event);
			state->has_offender = index_scan_suid(&scan, GENERATION_OFFENDER_SUID, &state->offender_suid);
		}
	}
	index_scan_close(&scan);
	return true;
}

/* The first unsettled receipt at or below the head that changes something. */
static bool
scan_offender(ReadState *state)
{
	DirectScan	scan;

	if (state->rebuild_required || !state->has_head)
		return true;
	if (!index_scan_open(&scan, SCAN_UNSETTLED))
		return false;
	index_scan_instance(&scan, state->service_id, state->view_no, state->generation);
	index_scan_where(&scan, 4, BTLessEqualStrategyNumber, SuidPGetDatum(&state->head));
	index_scan_start(&scan, ForwardScanDirection);
	while (!state->has_offender && index_scan_next(&scan))
	{
		bool		isnull;
		text	   *outcome = DatumGetTextPP(index_scan_value(&scan, RECEIPT_OUTCOME, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (VARSIZE_ANY_EXHDR(outcome) == strlen("no-change") &&
			memcmp(VARDATA_ANY(outcome), "no-change", strlen("no-change")) == 0)
			continue;
		state->offender_event = DatumGetTextPCopy(index_scan_value(&scan, RECEIPT_EVENT, &isnull));
		state->has_offender = index_scan_suid(&scan, RECEIPT_SUID, &state->offender_suid);
	}
	index_scan_close(&scan);
	return true;
}

/* Open findings that close reads. */
static bool
scan_findings(ReadState *state)
{
	static const char *const kinds[] = {"checkpoint-ahead", "ordering-quarantine"};
	bool	   *open[] = {&state->checkpoint_ahead, &state->ordering_quarantined};
	DirectScan	scan;

	if (!index_scan_open(&scan, SCAN_FINDING))
		return false;
	for (int i = 0; i < (int) lengthof(kinds); i++)
	{
		index_scan_reset(&scan);
		index_scan_instance(&scan, state->service_id, state->view_no, state->generation);
		index_scan_where(&scan, 4, BTEqualStrategyNumber, CStringGetTextDatum(kinds[i]));
		index_scan_start(&scan, ForwardScanDirection);
		while (!*open[i] && index_scan_next(&scan))
			(void) index_scan_value(&scan, FINDING_RESOLVED_AT, open[i]);
	}
	index_scan_close(&scan);
	return true;
}

bool
page_scan_state(text *service_id, text *view_id, ReadState *state, bool *found)
{
	bool		has_active = false;
	bool		has_generation;

	memset(state, 0, sizeof(ReadState));
	state->service_id = service_id;
	state->view_id = view_id;
	if (!scan_view(service_id, view_id, state, &has_active, found))
		return false;
	if (!*found)
		return true;
	if (!has_active)
		registry_not_active(service_id, view_id);
	if (!scan_generation(state, &has_generation))
		return false;
	if (!has_generation)
		registry_not_active(service_id, view_id);
	return scan_offender(state) && scan_findings(state);
}

/* ---------------------------------------------------------------------------
 * Tentative rows
 * ---------------------------------------------------------------------------
 */

/* A row as the page shows it. */
typedef struct PageRow
{
	bool		hidden;
	Datum		value;
	Datum		row_version;
	bool		safe_known;		/* the key's safe row was looked for */
	bool		has_safe;
} PageRow;

static const Suid *
head_of(const ReadState *state)
{
	return state->has_head ? &state->head : NULL;
}

/* Conditions up to a key that index_scan_find or index_scan_exists gives. */
static void
by_key(DirectScan *scan, const ReadState *state)
{
	index_scan_instance(scan, state->service_id, state->view_no, state->generation);
	index_scan_where(scan, 4, BTEqualStrategyNumber, (Datum) 0);
}

/* The tentative row under the scan; "safe" finds safe rows by key. */
static void
read_tentative(const DirectScan *scan, DirectScan *safe, const ReadState *state, PageRow *result)
{
	const Suid *head = head_of(state);
	bool		isnull;
	Datum		kept = index_scan_value(scan, ROW_KEPT, &isnull);
	TentativeRow row = {0};
	RowImage	base = {0};

	memset(result, 0, sizeof(PageRow));
	if (!isnull)
	{
		result->safe_known = true;
		result->has_safe = index_scan_find(safe, index_scan_value(scan, ROW_KEY, &isnull));
		if (result->has_safe)
		{
			base.present = true;
			base.value = DatumGetJsonbP(index_scan_value(safe, ROW_VALUE, &isnull));
			base.row_version = DatumGetInt64(index_scan_value(safe, ROW_VERSION, &isnull));
			(void) index_scan_suid(safe, ROW_SUID, &base.source_suid);
		}
		kept_from_jsonb(DatumGetJsonbP(kept), &row.nkept, &row.kept);
		row.kept_allocated = row.nkept;
		row.has_base = index_scan_suid(scan, ROW_BASE_SUID, &row.base_suid);
		if (fold_stale(&row, head, &base))
		{
			row.exists = true;
			row.source_suid = row.kept[row.nkept - 1].suid;
			fold_refresh(&row, head, &base);
			result->hidden = !row.image.present;
			result->value = JsonbPGetDatum(row.image.value);
			result->row_version = Int64GetDatum(row.row_version);
			return;
		}
	}
	/* NULL: a key that a running call of this transaction has claimed */
	result->hidden = DatumGetBool(index_scan_value(scan, ROW_TOMBSTONE, &isnull)) || isnull;
	result->value = index_scan_value(scan, ROW_VALUE, &isnull);
	if (isnull && !result->hidden)
		row_writer_no_value();
	result->row_version = index_scan_value(scan, ROW_VERSION, &isnull);
}

bool
page_scan_total(const ReadState *state, const Suid *bound, int64 *visible, int64 *covering)
{
	DirectScan	tentative;
	DirectScan	safe;
	MemoryContext scratch;
	MemoryContext caller;

	if (!index_scan_open(&tentative, SCAN_TENTATIVE))
		return false;
	if (!index_scan_open(&safe, SCAN_SAFE))
	{
		index_scan_close(&tentative);
		return false;
	}
	*visible = *covering = 0;
	scratch = AllocSetContextCreate(CurrentMemoryContext, "unsafemv total", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(scratch);

	/*
	 * In the order of the keys: look-ups of neighbours find their pages in
	 * the cache.
	 */
	index_scan_instance(&tentative, state->service_id, state->view_no, state->generation);
	index_scan_start(&tentative, ForwardScanDirection);
	by_key(&safe, state);
	while (index_scan_next(&tentative))
	{
		PageRow		row;
		Suid		suid;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		(void) index_scan_suid(&tentative, ROW_SUID, &suid);
		if (suid_compare(&suid, bound) < 0)
			continue;
		read_tentative(&tentative, &safe, state, &row);
		if (!row.safe_known)
			row.has_safe = index_scan_exists(&safe, index_scan_value(&tentative, ROW_KEY, &isnull));
		if (!row.hidden)
			(*visible)++;
		if (row.has_safe)
			(*covering)++;
		MemoryContextReset(scratch);
	}

	MemoryContextSwitchTo(caller);
	MemoryContextDelete(scratch);
	index_scan_close(&safe);
	index_scan_close(&tentative);
	return true;
}

/* ---------------------------------------------------------------------------
 * A part of a page
 * ---------------------------------------------------------------------------
 */

/* (row_key, value, row_version, source_suid text, unsafe, total). */
static TupleDesc
page_row_type(void)
{
	static TupleDesc result = NULL;

	if (result == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		TupleDesc	made = CreateTemplateTupleDesc(6);

		TupleDescInitEntry(made, 1, "row_key", TEXTOID, -1, 0);
		TupleDescInitEntry(made, 2, "value", JSONBOID, -1, 0);
		TupleDescInitEntry(made, 3, "row_version", INT8OID, -1, 0);
		TupleDescInitEntry(made, 4, "source_suid", TEXTOID, -1, 0);
		TupleDescInitEntry(made, 5, "unsafe", BOOLOID, -1, 0);
		TupleDescInitEntry(made, 6, "total_count", INT8OID, -1, 0);
		result = made;
		MemoryContextSwitchTo(old);
	}
	return result;
}

/* Does any tentative row count? */
static bool
any_counts(DirectScan *scan, const ReadState *state, const Suid *bound)
{
	index_scan_instance(scan, state->service_id, state->view_no, state->generation);
	index_scan_where(scan, 4, BTGreaterEqualStrategyNumber, SuidPGetDatum(bound));
	index_scan_start(scan, ForwardScanDirection);
	return index_scan_next(scan);
}

bool
page_scan_part(const ReadPart *part, int64 offset, int64 limit, DestReceiver *dest, uint64 *rows)
{
	const ReadState *state = part->state;
	const Suid *bound = DatumGetSuidP(part->values[3]);
	bool		descending = part->kind == STATEMENT_PAGE_SAFE_DESC || part->kind == STATEMENT_PAGE_TENTATIVE_DESC;
	bool		tentative = part->kind == STATEMENT_PAGE_TENTATIVE || part->kind == STATEMENT_PAGE_TENTATIVE_DESC;
	bool		probes = true;
	Suid		from = *DatumGetSuidP(part->values[4]);
	Suid		infinity;
	DirectScan	scan;
	DirectScan	other;
	TupleTableSlot *slot;
	MemoryContext scratch;
	MemoryContext caller;

	*rows = 0;
	if (!index_scan_open(&scan, tentative ? SCAN_TENTATIVE_BY_SUID : SCAN_SAFE_BY_SUID))
		return false;
	if (!index_scan_open(&other, tentative ? SCAN_SAFE : SCAN_TENTATIVE))
	{
		index_scan_close(&scan);
		return false;
	}
	index_scan_instance(&scan, state->service_id, state->view_no, state->generation);
	if (tentative && suid_compare(&from, bound) < 0)
		from = *bound;
	index_scan_where(&scan, 4, BTGreaterEqualStrategyNumber, SuidPGetDatum(&from));
	index_scan_where(&scan, 4, BTLessStrategyNumber, part->values[5]);
	if (part->cursor)
		index_scan_where(&scan, 5, descending ? BTLessStrategyNumber : BTGreaterStrategyNumber, part->values[6]);
	by_key(&other, state);

	/* Of safe reads no tentative row counts; often there is none. */
	if (!tentative)
	{
		DirectScan	newest;

		suid_infinity(&infinity);
		probes = suid_compare(bound, &infinity) != 0;
		if (probes && index_scan_open(&newest, SCAN_TENTATIVE_BY_SUID))
		{
			probes = any_counts(&newest, state, bound);
			index_scan_close(&newest);
		}
	}

	scratch = AllocSetContextCreate(CurrentMemoryContext, "unsafemv page", ALLOCSET_SMALL_SIZES);
	slot = MakeSingleTupleTableSlot(page_row_type(), &TTSOpsVirtual);
	dest->rStartup(dest, CMD_SELECT, page_row_type());
	caller = MemoryContextSwitchTo(scratch);
	index_scan_start(&scan, descending ? BackwardScanDirection : ForwardScanDirection);
	while ((limit < 0 || *rows < (uint64) limit) && index_scan_next(&scan))
	{
		PageRow		row;
		Suid		suid;
		Datum		key;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(scratch);
		key = index_scan_value(&scan, ROW_KEY, &isnull);
		if (tentative)
		{
			read_tentative(&scan, &other, state, &row);
			if (row.hidden)
				continue;
		}
		else
		{
			if (probes && index_scan_find(&other, key) &&
				index_scan_suid(&other, ROW_SUID, &suid) && suid_compare(&suid, bound) >= 0)
				continue;
			row.value = index_scan_value(&scan, ROW_VALUE, &isnull);
			row.row_version = index_scan_value(&scan, ROW_VERSION, &isnull);
		}
		if (offset > 0)
		{
			offset--;
			continue;
		}
		(void) index_scan_suid(&scan, ROW_SUID, &suid);
		ExecClearTuple(slot);
		memset(slot->tts_isnull, 0, 6 * sizeof(bool));
		slot->tts_values[0] = key;
		slot->tts_values[1] = row.value;
		slot->tts_values[2] = row.row_version;
		slot->tts_values[3] = suid_text_datum(&suid);
		slot->tts_values[4] = BoolGetDatum(tentative);
		slot->tts_values[5] = part->values[9];
		slot->tts_isnull[5] = part->nulls[9];
		ExecStoreVirtualTuple(slot);
		(*rows)++;
		if (!dest->receiveSlot(slot, dest))
			break;
	}
	MemoryContextSwitchTo(caller);
	dest->rShutdown(dest);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(scratch);
	index_scan_close(&other);
	index_scan_close(&scan);
	return true;
}
