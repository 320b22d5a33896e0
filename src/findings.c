/*
 * findings.c
 *	  Findings: recording, resolving, reading them.
 *
 * Guarantees: one row per generation, kind and event (checkpoint-ahead and
 * ordering-quarantine: per generation), whoever records it at the same time.  A
 * finding that is recorded again counts the attempt; one that had been resolved
 * opens anew, with a fresh first_seen.  An open checkpoint-ahead finding keeps
 * what was seen first, every other kind says what was seen last.
 *
 * A finding closes reads the moment its transaction commits, because the gates
 * read this table (read_gates); nothing is cached.
 *
 * Locks: the public writers take the view's lock shared, so that what is the
 * active generation when they look still is when they commit; then the finding's
 * row, by one INSERT or UPDATE.  Two transactions that record several findings in
 * different order may deadlock (40P01).
 *
 * A crash leaves committed findings and nothing else.  Recording is part of the
 * caller's transaction: one that is about to fail must commit it first.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "findings.h"
#include "library.h"
#include "statement.h"

UNSAFEMV_FUNCTION(unsafemv_record_checkpoint_ahead);
UNSAFEMV_FUNCTION(unsafemv_record_ordering_quarantine);
UNSAFEMV_FUNCTION(unsafemv_record_unsafe_failure);
UNSAFEMV_FUNCTION(unsafemv_resolve_finding);
UNSAFEMV_FUNCTION(unsafemv_read_findings);

static const char *const kind_names[] = {
	[FINDING_CHECKPOINT_AHEAD] = "checkpoint-ahead",
	[FINDING_ORDERING_QUARANTINE] = "ordering-quarantine",
	[FINDING_UNSAFE_FAILURE] = "unsafe-failure",
	[FINDING_POISON_EVENT] = "poison-event",
	[FINDING_SKIPPED_EVENT] = "skipped-event",
	[FINDING_LATE_EVENT] = "late-event",
	[FINDING_DISMISSED_EVENT] = "dismissed-event",
	[FINDING_FORCED_PROMOTION] = "forced-promotion",
};

const char *
findings_kind_name(FindingKind kind)
{
	return kind_names[kind];
}

/* $1 to $5 of the writing statements; the event may be NULL. */
static void
set_finding(Datum *values, bool *nulls, const View *view, int64 generation, FindingKind kind,
			const text *event_id)
{
	registry_instance(values, view, generation);
	values[3] = CStringGetTextDatum(kind_names[kind]);
	values[4] = PointerGetDatum(event_id);
	nulls[4] = event_id == NULL;
}

Jsonb *
findings_detail(const char *json)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(json)));
}

int64
findings_record(const View *view, int64 generation, FindingKind kind,
				const text *event_id, const Suid *suid, Jsonb *detail)
{
	Datum		values[7];
	bool		nulls[7] = {0};
	bool		isnull;

	set_finding(values, nulls, view, generation, kind, event_id);
	values[5] = SuidPGetDatum(suid);
	nulls[5] = suid == NULL;
	values[6] = JsonbPGetDatum(detail);
	if (statement_execute(STATEMENT_FINDING_RECORD, values, nulls) != 1)
		elog(ERROR, "finding was not recorded");
	return DatumGetInt64(statement_value(0, 1, &isnull));
}

bool
findings_resolve(const View *view, int64 generation, FindingKind kind, const text *event_id)
{
	Datum		values[5];
	bool		nulls[5] = {0};
	uint64		resolved;
	bool		open = false;

	set_finding(values, nulls, view, generation, kind, event_id);
	resolved = statement_execute(STATEMENT_FINDING_RESOLVE, values, nulls);
	for (uint64 row = 0; row < resolved; row++)
	{
		bool		isnull;

		open |= DatumGetBool(statement_value(row, 1, &isnull));
	}
	return open;
}

/* ---------- public functions ---------- */

/* Record on the active generation; the attempts so far. */
static int64
record(text *service_id, text *view_id, FindingKind kind, const text *event_id,
	   const Suid *suid, Jsonb *detail)
{
	const View *view;
	int64		attempts;

	statement_begin();
	registry_lock_shared(service_id, view_id);
	view = registry_locked_view(service_id, view_id);
	attempts = findings_record(view, registry_resolve_generation(view, false, 0), kind,
							   event_id, suid, detail);
	statement_end();
	return attempts;
}

Datum
unsafemv_record_checkpoint_ahead(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);

	registry_require(fcinfo, 3, "detail");
	PG_RETURN_BOOL(record(service_id, view_id, FINDING_CHECKPOINT_AHEAD, NULL,
						  PG_ARGISNULL(2) ? NULL : PG_GETARG_SUID_P(2),
						  PG_GETARG_JSONB_P(3)) == 1);
}

Datum
unsafemv_record_ordering_quarantine(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");

	registry_require(fcinfo, 4, "detail");
	PG_RETURN_BOOL(record(service_id, view_id, FINDING_ORDERING_QUARANTINE, event_id, suid,
						  PG_GETARG_JSONB_P(4)) == 1);
}

/* {"error": message} */
static Jsonb *
error_detail(const text *message)
{
	JsonbParseState *state = NULL;
	JsonbValue	member;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	member.type = jbvString;
	member.val.string.val = pstrdup("error");
	member.val.string.len = strlen("error");
	(void) pushJsonbValue(&state, WJB_KEY, &member);
	member.val.string.val = VARDATA_ANY(unconstify(text *, message));
	member.val.string.len = VARSIZE_ANY_EXHDR(message);
	(void) pushJsonbValue(&state, WJB_VALUE, &member);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Datum
unsafemv_record_unsafe_failure(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");

	registry_require(fcinfo, 4, "error");
	PG_RETURN_INT64(record(service_id, view_id, FINDING_UNSAFE_FAILURE, event_id, suid,
						   error_detail(PG_GETARG_TEXT_PP(4))));
}

/* The kind argument, or MV_VALUE_INVALID. */
static FindingKind
kind_argument(FunctionCallInfo fcinfo, int argno)
{
	char	   *name;

	registry_require(fcinfo, argno, "kind");
	name = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	for (int kind = 0; kind < (int) lengthof(kind_names); kind++)
		if (strcmp(name, kind_names[kind]) == 0)
			return (FindingKind) kind;
	RAISE(MV_VALUE_INVALID,
		  errmsg("unknown kind of finding \"%s\"", mutation_clip(PG_GETARG_TEXT_PP(argno))),
		  errhint("Known are checkpoint-ahead, ordering-quarantine, unsafe-failure, poison-event, skipped-event, late-event, dismissed-event and forced-promotion."));
	return FINDING_CHECKPOINT_AHEAD;	/* not reached */
}

Datum
unsafemv_resolve_finding(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	FindingKind kind = kind_argument(fcinfo, 2);
	text	   *event_id = PG_ARGISNULL(3) ? NULL : registry_event_argument(fcinfo, 3);
	const View *view;
	bool		resolved;

	statement_begin();
	registry_lock_shared(service_id, view_id);
	view = registry_locked_view(service_id, view_id);
	resolved = findings_resolve(view, registry_resolve_generation(view, false, 0), kind, event_id);
	statement_end();
	PG_RETURN_BOOL(resolved);
}

Datum
unsafemv_read_findings(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	View	   *view;
	uint64		found;
	Datum		values[4];

	registry_require(fcinfo, 2, "include_resolved");
	InitMaterializedSRF(fcinfo, 0);
	statement_begin();
	view = registry_read_view(service_id, view_id);
	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = Int64GetDatum(registry_resolve_generation(view, false, 0));
	values[3] = PG_GETARG_DATUM(2);
	found = statement_read(STATEMENT_FINDING_READ, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		CHECK_FOR_INTERRUPTS();
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[row]);
	}
	statement_end();
	return (Datum) 0;
}
