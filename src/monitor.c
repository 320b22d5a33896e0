/*
 * monitor.c
 *	  What unsafemv.check needs beyond SQL.
 *
 * Guarantees: nothing here reads or writes a table.
 */
#include "postgres.h"

#include "kept.h"
#include "library.h"

UNSAFEMV_FUNCTION(unsafemv_derived_entries);

/*
 * derived_entries(value, indexes): the entries that the declaration derives from
 * a row value, as a tentative row stores them; NULL: none.
 */
Datum
unsafemv_derived_entries(PG_FUNCTION_ARGS)
{
	DeclaredIndexes declared;
	RowImage	image = {0};
	int			count;
	IndexEntry *entries;
	Jsonb	   *result;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	index_entry_declare(PG_GETARG_JSONB_P(1), &declared);
	image.present = true;
	image.value = PG_GETARG_JSONB_P(0);
	fold_entries(&image, &declared, &count, &entries);
	result = kept_entries_to_jsonb(entries, count);
	if (result == NULL)
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(result);
}
