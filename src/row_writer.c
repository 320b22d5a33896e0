/*
 * row_writer.c
 *	  Tentative rows between the tables and structs, for both lanes.
 *
 * Guarantees: a row written and read back is the same; declared index entries are
 * derived again from the value at every write, of two statements at most, whatever
 * the number of rows.  Expects the keys locked; memory is of the caller's context.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "index_scan.h"
#include "kept.h"
#include "row_writer.h"

/* Columns of a row by enum ScanRowColumn, of a result or under a scan. */
typedef struct RowColumns
{
	Datum		values[ROW_COLUMNS];
	bool		nulls[ROW_COLUMNS];
} RowColumns;

static void
columns_of_result(uint64 row, int first, const enum ScanRowColumn *order, int count, RowColumns *result)
{
	for (int i = 0; i < count; i++)
		result->values[order[i]] = statement_value(row, first + i, &result->nulls[order[i]]);
}

static void
columns_of_scan(const DirectScan *scan, int count, RowColumns *result)
{
	for (int i = 0; i < count; i++)
		result->values[i] = index_scan_value(scan, i, &result->nulls[i]);
}

static Jsonb *
jsonb_column(const RowColumns *columns, int column)
{
	return columns->nulls[column] ? NULL : DatumGetJsonbPCopy(columns->values[column]);
}

static bool
suid_column(const RowColumns *columns, int column, Suid *result)
{
	if (!columns->nulls[column])
		*result = *DatumGetSuidP(columns->values[column]);
	return !columns->nulls[column];
}

void
row_writer_no_value(void)
{
	RAISE_CORRUPTED(errmsg("row without a value that is no tombstone"));
}

/* Into zeros; what an entry of a safe row is stands in a table of its own. */
static void
read_safe(const RowColumns *columns, RowImage *result)
{
	result->present = true;
	(void) suid_column(columns, ROW_SUID, &result->source_suid);
	result->row_version = DatumGetInt64(columns->values[ROW_VERSION]);
	result->value = jsonb_column(columns, ROW_VALUE);
	if (result->value == NULL)
		row_writer_no_value();
}

/* Into zeros, which stay for a key that this call has claimed. */
static void
read_tentative(const RowColumns *columns, TentativeRow *result)
{
	if (columns->nulls[ROW_TOMBSTONE])
		return;
	result->exists = true;
	(void) suid_column(columns, ROW_SUID, &result->source_suid);
	result->row_version = DatumGetInt64(columns->values[ROW_VERSION]);
	if (!DatumGetBool(columns->values[ROW_TOMBSTONE]))
	{
		read_safe(columns, &result->image);
		kept_entries_from_jsonb(jsonb_column(columns, ROW_ENTRIES), false,
								&result->image.nentries, &result->image.entries);
	}
	kept_from_jsonb(jsonb_column(columns, ROW_KEPT), &result->nkept, &result->kept);
	result->kept_allocated = result->nkept;
	result->has_base = suid_column(columns, ROW_BASE_SUID, &result->base_suid);
}

void
row_writer_read_tentative(uint64 row, int first, TentativeRow *result)
{
	static const enum ScanRowColumn order[] = {ROW_SUID, ROW_VERSION, ROW_TOMBSTONE, ROW_VALUE,
	ROW_ENTRIES, ROW_KEPT, ROW_BASE_SUID};
	RowColumns	columns;

	memset(result, 0, sizeof(TentativeRow));
	columns_of_result(row, first, order, lengthof(order), &columns);
	read_tentative(&columns, result);
}

void
row_writer_read_safe(uint64 row, int first, RowImage *result, int *nall, IndexEntry **all_entries)
{
	static const enum ScanRowColumn order[] = {ROW_SUID, ROW_VERSION, ROW_VALUE, ROW_ENTRIES};
	RowColumns	columns;
	Jsonb	   *entries;

	memset(result, 0, sizeof(RowImage));
	if (nall != NULL)
	{
		*nall = 0;
		*all_entries = NULL;
	}
	columns_of_result(row, first, order, lengthof(order), &columns);
	if (columns.nulls[ROW_SUID])
		return;
	read_safe(&columns, result);
	entries = jsonb_column(&columns, ROW_ENTRIES);
	kept_entries_from_jsonb(entries, false, &result->nentries, &result->entries);
	if (nall != NULL)
		kept_entries_from_jsonb(entries, true, nall, all_entries);
}

/* The explicit entries of the safe row with this key. */
static void
scan_entries(DirectScan *scan, Datum key, RowImage *image)
{
	int			allocated = 0;

	for (bool found = index_scan_find(scan, key); found; found = index_scan_next(scan))
	{
		IndexEntry *entry;
		text	   *type;
		bool		isnull;

		if (DatumGetBool(index_scan_value(scan, ENTRY_DERIVED, &isnull)))
			continue;
		if (image->nentries == allocated)
		{
			allocated = Max(4, 2 * allocated);
			image->entries = image->entries == NULL ? palloc(allocated * sizeof(IndexEntry)) :
				repalloc(image->entries, allocated * sizeof(IndexEntry));
		}
		entry = &image->entries[image->nentries++];
		memset(entry, 0, sizeof(IndexEntry));
		entry->index_id = DatumGetTextPCopy(index_scan_value(scan, ENTRY_INDEX, &isnull));
		type = DatumGetTextPP(index_scan_value(scan, ENTRY_TYPE, &isnull));
		if (!index_entry_type(VARDATA_ANY(type), VARSIZE_ANY_EXHDR(type), &entry->type))
			elog(ERROR, "unknown type of an index entry");
		if (entry->type == INDEX_TEXT)
			entry->text_value = DatumGetTextPCopy(index_scan_value(scan, ENTRY_TEXT, &isnull));
		else if (entry->type == INDEX_INTEGER)
			entry->integer_value = DatumGetInt64(index_scan_value(scan, ENTRY_INTEGER, &isnull));
		else
			entry->real_value = DatumGetFloat8(index_scan_value(scan, ENTRY_REAL, &isnull));
	}
	image->nentries = index_entry_set(image->entries, image->nentries);
}

/* row_writer_read by index scans; false: they may not be used. */
static bool
scan_rows(const View *view, int64 generation, Datum *keys, int count, TentativeRow *rows, RowImage *bases)
{
	static const ScanKind kinds[] = {SCAN_TENTATIVE, SCAN_SAFE, SCAN_ENTRY};
	DirectScan	scans[lengthof(kinds)];
	int			wanted = bases == NULL ? 1 : lengthof(kinds);
	int			open = 0;
	RowColumns	columns;

	while (open < wanted && index_scan_open(&scans[open], kinds[open]))
		open++;
	for (int i = 0; i < open && open == wanted; i++)
	{
		index_scan_instance(&scans[i], view->service_id, view->view_no, generation);
		index_scan_where(&scans[i], 4, BTEqualStrategyNumber, (Datum) 0);
	}
	for (int i = 0; i < count && open == wanted; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (index_scan_find(&scans[0], keys[i]))
		{
			columns_of_scan(&scans[0], ROW_COLUMNS, &columns);
			read_tentative(&columns, &rows[i]);
		}
		if (bases != NULL && index_scan_find(&scans[1], keys[i]))
		{
			columns_of_scan(&scans[1], ROW_TOMBSTONE, &columns);
			read_safe(&columns, &bases[i]);
			scan_entries(&scans[2], keys[i], &bases[i]);
		}
	}
	for (int i = 0; i < open; i++)
		index_scan_close(&scans[i]);
	return open == wanted;
}

void
row_writer_read(const View *view, int64 generation, Datum *keys, int count, TentativeRow *rows, RowImage *bases)
{
	Datum		values[4];
	uint64		found;

	memset(rows, 0, count * sizeof(TentativeRow));
	if (bases != NULL)
		memset(bases, 0, count * sizeof(RowImage));
	if (scan_rows(view, generation, keys, count, rows, bases))
		return;
	registry_instance(values, view, generation);
	values[3] = statement_text_array(keys, NULL, count);
	found = statement_read(STATEMENT_TENTATIVE_READ, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		int			position = DatumGetInt64(statement_value(row, 1, &isnull)) - 1;

		row_writer_read_tentative(row, 2, &rows[position]);
		if (bases != NULL)
			row_writer_read_safe(row, 9, &bases[position], NULL, NULL);
	}
}

void
row_writer_begin(TentativeWrites *writes, int capacity)
{
	memset(writes, 0, sizeof(TentativeWrites));
	writes->allocated = capacity = Max(capacity, 1);
	writes->keys = palloc(capacity * sizeof(Datum));
	writes->suids = palloc(capacity * sizeof(Datum));
	writes->versions = palloc(capacity * sizeof(Datum));
	writes->tombstones = palloc(capacity * sizeof(Datum));
	writes->values = palloc(capacity * sizeof(Datum));
	writes->no_values = palloc(capacity * sizeof(bool));
	writes->entries = palloc(capacity * sizeof(Datum));
	writes->no_entries = palloc(capacity * sizeof(bool));
	writes->kept = palloc(capacity * sizeof(Datum));
	writes->no_kept = palloc(capacity * sizeof(bool));
	writes->kept_froms = palloc(capacity * sizeof(Datum));
	writes->bases = palloc(capacity * sizeof(Datum));
	writes->no_bases = palloc(capacity * sizeof(bool));
	writes->deletes = palloc(capacity * sizeof(Datum));
}

static Datum
optional_jsonb(Jsonb *value, bool *isnull)
{
	*isnull = value == NULL;
	return JsonbPGetDatum(value);
}

void
row_writer_store(TentativeWrites *writes, const text *row_key, const TentativeRow *row,
				 const DeclaredIndexes *declared)
{
	int			i = writes->nstores++;
	int			nentries;
	IndexEntry *entries;

	Assert(i < writes->allocated && row->exists);
	fold_entries(&row->image, declared, &nentries, &entries);
	writes->keys[i] = PointerGetDatum(row_key);
	writes->suids[i] = SuidPGetDatum(&row->source_suid);
	writes->versions[i] = Int64GetDatum(row->row_version);
	writes->tombstones[i] = BoolGetDatum(!row->image.present);
	writes->values[i] = optional_jsonb(row->image.present ? row->image.value : NULL,
									   &writes->no_values[i]);
	writes->entries[i] = optional_jsonb(kept_entries_to_jsonb(entries, nentries),
										&writes->no_entries[i]);
	writes->kept[i] = optional_jsonb(kept_to_jsonb(row->kept, row->nkept), &writes->no_kept[i]);
	writes->kept_froms[i] = row->nkept > 0 ? SuidPGetDatum(&row->kept[0].suid) : (Datum) 0;
	writes->no_bases[i] = row->nkept == 0 || !row->has_base;
	writes->bases[i] = SuidPGetDatum(&row->base_suid);
}

void
row_writer_delete(TentativeWrites *writes, const text *row_key)
{
	Assert(writes->ndeletes < writes->allocated);
	writes->deletes[writes->ndeletes++] = PointerGetDatum(row_key);
}

void
row_writer_end(TentativeWrites *writes, const View *view, int64 generation)
{
	Datum		values[12];

	registry_instance(values, view, generation);
	if (writes->nstores == 1)
	{
		bool		nulls[12] = {0};

		values[3] = writes->keys[0];
		values[4] = writes->suids[0];
		values[5] = writes->versions[0];
		values[6] = writes->tombstones[0];
		values[7] = writes->values[0];
		values[8] = writes->entries[0];
		values[9] = writes->kept[0];
		values[10] = writes->kept_froms[0];
		values[11] = writes->bases[0];
		nulls[7] = writes->no_values[0];
		nulls[8] = writes->no_entries[0];
		nulls[9] = nulls[10] = writes->no_kept[0];
		nulls[11] = writes->no_bases[0];
		(void) statement_execute(STATEMENT_TENTATIVE_STORE_ONE, values, nulls);
	}
	else if (writes->nstores > 0)
	{
		int			count = writes->nstores;

		values[3] = statement_text_array(writes->keys, NULL, count);
		values[4] = statement_suid_array(writes->suids, NULL, count);
		values[5] = statement_bigint_array(writes->versions, NULL, count);
		values[6] = statement_boolean_array(writes->tombstones, NULL, count);
		values[7] = statement_jsonb_array(writes->values, writes->no_values, count);
		values[8] = statement_jsonb_array(writes->entries, writes->no_entries, count);
		values[9] = statement_jsonb_array(writes->kept, writes->no_kept, count);
		values[10] = statement_suid_array(writes->kept_froms, writes->no_kept, count);
		values[11] = statement_suid_array(writes->bases, writes->no_bases, count);
		(void) statement_execute(STATEMENT_TENTATIVE_STORE, values, NULL);
	}
	if (writes->ndeletes > 0)
	{
		values[3] = statement_text_array(writes->deletes, NULL, writes->ndeletes);
		(void) statement_execute(STATEMENT_TENTATIVE_DELETE, values, NULL);
	}
}

void
row_writer_refold(const View *view, int64 generation, const Suid *head, Datum *keys, int count)
{
	TentativeWrites writes;
	TentativeRow *rows = palloc(Max(count, 1) * sizeof(TentativeRow));
	RowImage   *bases = palloc(Max(count, 1) * sizeof(RowImage));

	if (count == 0)
		return;
	statement_snapshot_begin();
	row_writer_read(view, generation, keys, count, rows, bases);
	statement_snapshot_end();
	row_writer_begin(&writes, count);
	for (int i = 0; i < count; i++)
	{
		const text *row_key = DatumGetTextPP(keys[i]);

		CHECK_FOR_INTERRUPTS();
		if (!rows[i].exists)
			continue;
		fold_refresh(&rows[i], head, &bases[i]);
		if (rows[i].exists)
			row_writer_store(&writes, row_key, &rows[i], &view->declared);
		else
			row_writer_delete(&writes, row_key);
	}
	row_writer_end(&writes, view, generation);
}
