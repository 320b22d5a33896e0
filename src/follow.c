/*
 * follow.c
 *	  CALL follow, and an operator's word on failing events.
 *
 * Guarantees: follow is a pass of catchup.c into the active generation, then
 * collection, each transaction by itself; what it answered is also kept with the
 * projection.  skip_event and retry_event are findings, hence recorded, dumped and
 * seen in status.
 *
 * A crash loses the transaction at hand; another call goes on from there.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "catchup.h"
#include "collect.h"
#include "compat.h"
#include "findings.h"
#include "library.h"
#include "statement.h"

#define COLLECT_BATCH	10000
#define MAX_CHUNK		100000

UNSAFEMV_FUNCTION(unsafemv_follow);
UNSAFEMV_FUNCTION(unsafemv_skip_event);
UNSAFEMV_FUNCTION(unsafemv_retry_event);

typedef struct Collection
{
	CatchUp    *pass;
	bool		more;
} Collection;

static void
collect(void *argument)
{
	Collection *collection = argument;
	CatchUp    *pass = collection->pass;
	View	   *view = registry_current_view(pass->service_id, pass->view_id);

	collection->more = false;
	if (view->has_active)
		(void) collect_generation(view, view->active_generation, view->definition_version,
								  pass->has_head ? &pass->head : NULL, COLLECT_BATCH, &collection->more);
}

static void
record_pass(void *argument)
{
	CatchUp    *pass = argument;
	View	   *view = registry_current_view(pass->service_id, pass->view_id);
	Datum		values[4];
	bool		nulls[4] = {0};

	values[0] = PointerGetDatum(pass->service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = CStringGetTextDatum(pass->stop);
	values[3] = TimestampTzGetDatum(pass->deadline);
	nulls[3] = !pass->has_deadline;
	(void) statement_execute(STATEMENT_PROJECTION_PASSED, values, nulls);
}

Datum
unsafemv_follow(PG_FUNCTION_ARGS)
{
	CatchUp		pass = {0};
	Collection	collection = {&pass, false};
	TupleDesc	type;
	Datum		values[4];
	bool		nulls[4] = {0};
	MemoryContext caller = CurrentMemoryContext;

	pass.service_id = (text *) pg_detoast_datum_copy(registry_service_argument(fcinfo, 0));
	pass.view_id = (text *) pg_detoast_datum_copy(registry_view_argument(fcinfo, 1));
	pass.has_max_events = !PG_ARGISNULL(2);
	if (pass.has_max_events)
		pass.max_events = PG_GETARG_INT64(2);
	if (pass.max_events < 0)
		RAISE(MV_VALUE_INVALID, errmsg("max_events is negative"));
	registry_require(fcinfo, 3, "chunk");
	pass.chunk = PG_GETARG_INT32(3);
	if (pass.chunk < 1 || pass.chunk > MAX_CHUNK)
		RAISE(MV_VALUE_INVALID, errmsg("chunk is not from 1 to %d", MAX_CHUNK));
	pass.has_maximum = !PG_ARGISNULL(4);
	if (pass.has_maximum)
		pass.maximum = *PG_GETARG_SUID_P(4);
	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	type = BlessTupleDesc(type);

	catchup_begin(fcinfo, "follow");
	MemoryContextSwitchTo(caller);
	catchup_pass(&pass);
	do
		catchup_transaction(collect, &collection, 30);
	while (collection.more);
	catchup_transaction(record_pass, &pass, 40);
	catchup_raise(&pass);
	catchup_end();
	MemoryContextSwitchTo(caller);

	values[0] = Int64GetDatum(pass.folded);
	nulls[1] = !pass.has_head;
	values[1] = pass.has_head ? suid_text_datum(&pass.head) : (Datum) 0;
	values[2] = CStringGetTextDatum(pass.stop);
	nulls[3] = !pass.has_deadline;
	values[3] = TimestampTzGetDatum(pass.deadline);
	return HeapTupleGetDatum(heap_form_tuple(type, values, nulls));
}

/* ---------- an operator's word ---------- */

/* In the active generation and in a candidate that stopped there. */
static bool
resolve_poison(const View *view, const text *event_id)
{
	Datum		values[3];

	values[0] = PointerGetDatum(view->service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = PointerGetDatum(event_id);
	return statement_execute(STATEMENT_POISON_RESOLVE, values, NULL) > 0;
}

Datum
unsafemv_skip_event(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const View *view;
	int64		generation;
	bool		poisoned;
	StringInfoData detail;

	registry_require(fcinfo, 3, "reason");
	statement_begin();
	registry_lock_shared(service_id, view_id);
	view = registry_locked_view(service_id, view_id);
	generation = registry_resolve_generation(view, false, 0);
	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"reason\": ");
	escape_json(&detail, text_to_cstring(PG_GETARG_TEXT_PP(3)));
	appendStringInfoString(&detail, ", \"role\": ");
	escape_json(&detail, GetUserNameFromId(GetUserId(), false));
	appendStringInfoChar(&detail, '}');
	(void) findings_record(view, generation, FINDING_SKIPPED_EVENT, event_id, NULL,
						   findings_detail(detail.data));
	poisoned = resolve_poison(view, event_id);
	statement_end();
	PG_RETURN_BOOL(poisoned);
}

Datum
unsafemv_retry_event(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const View *view;
	Datum		values[3];
	bool		found;

	statement_begin();
	registry_lock_shared(service_id, view_id);
	view = registry_locked_view(service_id, view_id);
	found = resolve_poison(view, event_id);
	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = PointerGetDatum(event_id);
	found |= statement_execute(STATEMENT_SKIPPED_TAKEN_BACK, values, NULL) > 0;
	statement_end();
	PG_RETURN_BOOL(found);
}
