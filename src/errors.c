/*
 * errors.c
 *	  The error catalogue's table, and what reads it.
 *
 * Guarantees that a code word, its SQLSTATE and its meaning stand in one place
 * (the X-macro of errors.h): the code raised by C, the rows of unsafemv.errors
 * and the README cannot drift apart.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "errors.h"
#include "library.h"

typedef struct ErrorEntry
{
	const char *name;
	const char *sqlstate;
	bool		retryable;
	const char *meaning;
} ErrorEntry;

static const ErrorEntry error_table[] = {
	{NULL, "00000", false, NULL},	/* ERROR_NONE */
#define ERROR_TABLE_ENTRY(code, sqlstate, retryable, meaning) \
	{#code, sqlstate, retryable, meaning},
	UNSAFEMV_ERRORS(ERROR_TABLE_ENTRY)
#undef ERROR_TABLE_ENTRY
};

UNSAFEMV_FUNCTION(unsafemv_error_catalogue);

/*
 * Rolled back before the copy is made, as the main loop of a backend does it: a
 * copy that fails for want of memory would leave the subtransaction, and its
 * session in a transaction block that nobody began and nobody can end.
 */
ErrorData *
errors_roll_back(MemoryContext caller, ResourceOwner owner)
{
	ErrorData  *error;

	RollbackAndReleaseCurrentSubTransaction();
	CurrentResourceOwner = owner;
	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	return error;
}

bool
errors_no_events_fault(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_TRANSACTION_ROLLBACK:
			return true;
		default:
			return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
	}
}

static const ErrorEntry *
error_entry(ErrorCode code)
{
	if (code <= ERROR_NONE || (size_t) code >= lengthof(error_table))
		elog(ERROR, "unrecognized error code: %d", (int) code);
	return &error_table[code];
}

/*
 * Part of an ereport(): sets the SQLSTATE and, as constraint name, the code word.
 */
int
errors_code(ErrorCode code)
{
	const ErrorEntry *entry = error_entry(code);
	const char *s = entry->sqlstate;

	errcode(MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]));
	return err_generic_string(PG_DIAG_CONSTRAINT_NAME, entry->name);
}

/*
 * The code word, in static storage.
 */
const char *
errors_name(ErrorCode code)
{
	return error_entry(code)->name;
}

/*
 * A user's text as a message may quote it: a terminated copy in the current
 * memory context, cut between two characters at ERRORS_CLIP_BYTES, with an
 * ellipsis where something was cut off.
 */
char *
errors_clip(const char *text, int length)
{
	int			kept;

	if (length <= ERRORS_CLIP_BYTES)
		return pnstrdup(text, length);
	kept = pg_mbcliplen(text, length, ERRORS_CLIP_BYTES);
	return psprintf("%.*s...", kept, text);
}

/*
 * unsafemv.error_catalogue(): one row per code, in the table's order.
 */
Datum
unsafemv_error_catalogue(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);

	for (size_t i = ERROR_NONE + 1; i < lengthof(error_table); i++)
	{
		const ErrorEntry *entry = &error_table[i];
		Datum		values[4];
		bool		nulls[4] = {false, false, false, false};

		values[0] = CStringGetTextDatum(entry->name);
		values[1] = CStringGetTextDatum(entry->sqlstate);
		values[2] = BoolGetDatum(entry->retryable);
		values[3] = CStringGetTextDatum(entry->meaning);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}

	return (Datum) 0;
}
