/*
 * row_writer.h
 *	  Reads tentative rows and writes them back.
 */
#ifndef UNSAFEMV_ROW_WRITER_H
#define UNSAFEMV_ROW_WRITER_H

#include "fold.h"
#include "registry.h"
#include "statement.h"

/*
 * A tentative row from columns "first".. of a row of the last result: source_suid,
 * row_version, tombstone, value, entries, kept, base_suid.  Copies into the
 * current context.
 */
extern void row_writer_read_tentative(uint64 row, int first, TentativeRow *result);

/*
 * A safe row's image from columns "first"..: source_suid, row_version, value,
 * entries; explicit entries only, unless all are asked for in *all_entries.
 */
extern void row_writer_read_safe(uint64 row, int first, RowImage *result,
								 int *nall, IndexEntry **all_entries);

/* The error for a tentative row that the table's writers did not make. */
extern void row_writer_no_value(void);

/*
 * The tentative rows of keys and, unless "bases" is NULL, the safe rows under
 * them, in the active snapshot; zeros where there is none.
 */
extern void row_writer_read(const View *view, int64 generation, Datum *keys, int count,
							TentativeRow *rows, RowImage *bases);

/*
 * Collects tentative rows to be stored or deleted by one statement each; keys
 * must come in C byte order and be locked by the caller.
 */
typedef struct TentativeWrites
{
	int			nstores;
	int			ndeletes;
	int			allocated;
	Datum	   *keys;
	Datum	   *suids;
	Datum	   *versions;
	Datum	   *tombstones;
	Datum	   *values;
	bool	   *no_values;
	Datum	   *entries;
	bool	   *no_entries;
	Datum	   *kept;
	bool	   *no_kept;
	Datum	   *kept_froms;
	Datum	   *bases;
	bool	   *no_bases;
	Datum	   *deletes;
} TentativeWrites;

extern void row_writer_begin(TentativeWrites *writes, int capacity);
extern void row_writer_store(TentativeWrites *writes, const text *row_key, const TentativeRow *row,
							 const DeclaredIndexes *declared);
extern void row_writer_delete(TentativeWrites *writes, const text *row_key);
extern void row_writer_end(TentativeWrites *writes, const View *view, int64 generation);

/*
 * Refold the tentative rows of these keys (sorted, locked by the caller) on the
 * generation's safe rows; rows with nothing left above the head go.
 */
extern void row_writer_refold(const View *view, int64 generation, const Suid *head,
							  Datum *keys, int count);

#endif							/* UNSAFEMV_ROW_WRITER_H */
