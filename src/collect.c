/*
 * collect.c
 *	  Collection: tentative rows, markers and receipts that the safe lane has made
 *	  superfluous (core 10).
 *
 * Guarantees: a tentative row goes only if the committed head has passed it, the
 * gate is open, and its event is settled, judged and deleted by one statement; so a
 * concurrent page shows every key exactly once.  Nothing above the head goes.
 * Receipts go in SUID order, once older than the view's retention, and the floor
 * rises with them in the same transaction.
 *
 * Locks: collect_eligible takes the generation's row first, like a safe step; it
 * skips tentative rows that an unsafe transaction holds.  Every statement is
 * bounded by max_rows.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "collect.h"
#include "library.h"
#include "row_writer.h"
#include "statement.h"

/* Bound where the caller gives none. */
#define COLLECT_ALL		PG_INT64_MAX

UNSAFEMV_FUNCTION(unsafemv_garbage_collect);
UNSAFEMV_FUNCTION(unsafemv_collect_eligible);

Datum
unsafemv_garbage_collect(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		generation;
	const Suid *source_suid;
	const Suid *safe_head;
	View	   *view;
	Datum		values[8];
	bool		collected;

	registry_require(fcinfo, 2, "generation");
	registry_require(fcinfo, 3, "definition_version");
	registry_require(fcinfo, 4, "row_key");
	registry_require(fcinfo, 5, "expected_row_version");
	source_suid = registry_suid_argument(fcinfo, 6, "expected_source_suid");
	safe_head = registry_suid_argument(fcinfo, 7, "safe_head");
	registry_require(fcinfo, 8, "strict");
	generation = PG_GETARG_INT64(2);

	statement_begin();
	view = registry_current_view(service_id, view_id);
	(void) registry_resolve_generation(view, true, generation);
	registry_instance(values, view, generation);
	values[3] = PG_GETARG_DATUM(4);
	values[4] = PG_GETARG_DATUM(5);
	values[5] = SuidPGetDatum(source_suid);
	values[6] = SuidPGetDatum(safe_head);
	values[7] = PG_GETARG_DATUM(3);
	collected = statement_execute(STATEMENT_COLLECT_ONE, values, NULL) > 0;
	if (collected)
	{
		values[4] = SuidPGetDatum(source_suid);
		(void) statement_execute(STATEMENT_COLLECT_ROW_MARKERS, values, NULL);
	}
	else
	{
		bool		isnull;

		if (statement_execute(STATEMENT_COLLECT_GUARD, values, NULL) == 0)
			RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
				  registry_errdetail_generation(view, generation));
		if (PG_GETARG_BOOL(8))
			RAISE(UNSAFE_GC_GUARD_FAILED,
				  errmsg("row \"%s\" cannot be collected: %s", mutation_clip(PG_GETARG_TEXT_PP(4)),
						 TextDatumGetCString(statement_value(0, 1, &isnull))),
				  registry_errdetail_generation(view, generation),
				  errhint("Read the row and the head again."));
	}
	statement_end();
	PG_RETURN_BOOL(collected);
}

/* Settled receipts at or below the head that nothing needs any more; their number. */
static int64
collect_receipts(const View *view, int64 generation, const Suid *head, int64 budget)
{
	Datum		values[5];
	uint64		count;
	uint64		old = 0;
	Suid		last;
	TimestampTz newest = DT_NOBEGIN;

	registry_instance(values, view, generation);
	values[3] = SuidPGetDatum(head);
	values[4] = Int64GetDatum(budget);
	count = statement_execute(STATEMENT_COLLECT_RECEIPTS_READ, values, NULL);
	for (; old < count; old++)
	{
		bool		isnull;

		/* In order: the first one that has to stay ends it. */
		if (!DatumGetBool(statement_value(old, 3, &isnull)))
			break;
		newest = Max(newest, DatumGetTimestampTz(statement_value(old, 2, &isnull)));
	}
	if (old == 0)
		return 0;
	(void) statement_suid(old - 1, 1, &last);
	values[3] = SuidPGetDatum(&last);
	values[4] = TimestampTzGetDatum(newest);
	(void) statement_execute(STATEMENT_COLLECT_RECEIPTS, values, NULL);
	(void) statement_execute(STATEMENT_FLOOR_WRITE, values, NULL);
	return old;
}

/* Rows above the head whose fold is out of date, because a step had to skip them; their number. */
static int64
refold_stale(const View *view, int64 generation, const Suid *head, int64 budget)
{
	Datum		values[5];
	uint64		count;
	Datum	   *keys;

	registry_instance(values, view, generation);
	values[3] = SuidPGetDatum(head);
	values[4] = Int64GetDatum(budget);
	count = statement_execute(STATEMENT_COLLECT_STALE, values, NULL);
	keys = palloc(Max(count, 1) * sizeof(Datum));
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;

		keys[i] = PointerGetDatum(DatumGetTextPCopy(statement_value(i, 1, &isnull)));
	}
	row_writer_refold(view, generation, head, keys, count);
	return count;
}

int64
collect_generation(const View *view, int64 generation, int64 definition_version,
				   const Suid *safe_head, int64 budget, bool *more)
{
	Generation	state;
	Suid		head;
	Datum		values[5];
	int64		collected;
	int64		markers;
	bool		closed = true;

	*more = false;
	if (!registry_lock_generation(view, generation, &state))
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
			  registry_errdetail_generation(view, generation));
	registry_instance(values, view, generation);
	if (statement_execute(STATEMENT_GENERATION_GATE, values, NULL) > 0)
	{
		bool		isnull;

		closed = DatumGetBool(statement_value(0, 1, &isnull)) && !isnull;
	}
	if (safe_head == NULL || !state.has_head || closed ||
		strcmp(state.status, "active") != 0 ||
		state.definition_version != definition_version)
		return 0;

	/* Nothing above the stored head, whatever the caller thinks. */
	head = *safe_head;
	if (suid_compare(&head, &state.head) > 0)
		head = state.head;
	values[3] = SuidPGetDatum(&head);
	values[4] = Int64GetDatum(budget);
	collected = statement_execute(STATEMENT_COLLECT_ROWS, values, NULL);
	CHECK_FOR_INTERRUPTS();
	markers = statement_execute(STATEMENT_COLLECT_MARKERS, values, NULL);
	*more = collected == budget || markers == budget;
	if (view->base_composed)
		*more |= refold_stale(view, generation, &state.head, budget) == budget;
	CHECK_FOR_INTERRUPTS();
	*more |= collect_receipts(view, generation, &head, budget) == budget;
	return collected;
}

Datum
unsafemv_collect_eligible(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		generation;
	int64		budget = PG_ARGISNULL(5) ? COLLECT_ALL : PG_GETARG_INT64(5);
	View	   *view;
	int64		collected;
	bool		more;

	registry_require(fcinfo, 2, "generation");
	registry_require(fcinfo, 3, "definition_version");
	if (budget < 0)
		RAISE(MV_VALUE_INVALID, errmsg("max_rows is negative"));
	generation = PG_GETARG_INT64(2);

	statement_begin();
	view = registry_current_view(service_id, view_id);
	(void) registry_resolve_generation(view, true, generation);
	collected = collect_generation(view, generation, PG_GETARG_INT64(3),
								   PG_ARGISNULL(4) ? NULL : PG_GETARG_SUID_P(4), budget, &more);
	statement_end();
	PG_RETURN_INT64(collected);
}
