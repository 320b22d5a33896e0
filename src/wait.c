/*
 * wait.c
 *	  Waiting until an event is visible in a view.
 *
 * Guarantees (core 8): the answer is about this very event, never about a mark
 * that passed it.  Visible: the active generation has a receipt of exactly this
 * event and SUID (safe: a settled one), or both its head and its receipt floor
 * have passed the SUID.  Unavailable, which wins: a gate is closed, the event has
 * an open failure finding, or another event has the SUID, or the event another
 * one.  All facts of a probe are of one snapshot.
 *
 * A wait probes at once and then after 25, 50, 100, ... 1000 ms, the last time at
 * its deadline; in between it sleeps on the process latch.  A latch that was set
 * for something else makes it look for interrupts, not at tables.
 *
 * wait_for probes with a fresh snapshot each time, hence refuses isolation levels
 * that show one for the whole transaction; while it sleeps it keeps nothing of its
 * own, but the calling statement keeps a snapshot, as every statement does.
 * wait_until ends the transaction after each probe, so that it sleeps without
 * snapshot, lock or transaction id and vacuum can remove what is deleted
 * meanwhile.  It cannot carry a SET clause then; each probe pins search_path.
 *
 * No lock is taken and nothing is written: a cancelled wait, or a crash, leaves
 * nothing.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "library.h"
#include "page.h"
#include "registry.h"
#include "statement.h"

#define FIRST_PAUSE_MS	25
#define LAST_PAUSE_MS	1000

typedef enum Verdict
{
	VERDICT_PENDING,
	VERDICT_VISIBLE,
	VERDICT_UNAVAILABLE
} Verdict;

/* Whom a wait is for; the texts outlive transactions of the wait. */
typedef struct WaitTarget
{
	text	   *service_id;
	text	   *view_id;
	text	   *event_id;
	Suid		suid;
	bool		safe;
	TimestampTz deadline;		/* not for read_wait_state */
} WaitTarget;

/* What one probe saw. */
typedef struct WaitState
{
	Verdict		verdict;
	bool		receipt;		/* of exactly this event and SUID */
	bool		settled;		/* it is settled */
	text	   *outcome;		/* what it says */
	bool		own;			/* this transaction wrote it */
	bool		has_head;
	Suid		head;
	bool		has_floor;
	Suid		floor;
	ErrorCode	gate;			/* ERROR_NONE: open */
	bool		failure;		/* open failure finding */
} WaitState;

UNSAFEMV_FUNCTION(unsafemv_read_wait_state);
UNSAFEMV_FUNCTION(unsafemv_wait_for);
UNSAFEMV_FUNCTION(unsafemv_wait_until);

/* ---------- a probe ---------- */

/*
 * Look in the active snapshot; between statement_begin and statement_end, where
 * the result lives.
 */
static void
probe(const WaitTarget *target, WaitState *state)
{
	ReadState	gates;
	Datum		values[5];
	Datum		value;
	Suid		known;
	bool		known_event;
	bool		contradicted;
	bool		passed;
	bool		isnull;

	memset(state, 0, sizeof(WaitState));
	page_read_state(target->service_id, target->view_id, &gates);
	if (page_gate_closed(&gates))
		state->gate = UNSAFE_BEHIND_FRONTIER;
	else if (gates.checkpoint_ahead)
		state->gate = MV_CHECKPOINT_AHEAD;
	else if (target->safe && gates.ordering_quarantined)
		state->gate = MV_ORDERING_QUARANTINED;

	values[0] = PointerGetDatum(target->service_id);
	values[1] = Int64GetDatum(gates.view_no);
	values[2] = Int64GetDatum(gates.generation);
	values[3] = PointerGetDatum(target->event_id);
	values[4] = SuidPGetDatum(&target->suid);
	if (statement_read(STATEMENT_WAIT_FACTS, values, NULL) == 0)
		elog(ERROR, "active generation does not exist");
	state->has_head = statement_suid(0, 1, &state->head);
	state->has_floor = statement_suid(0, 2, &state->floor);
	known_event = statement_suid(0, 3, &known);
	state->receipt = known_event && suid_compare(&known, &target->suid) == 0;
	if (state->receipt)
	{
		state->settled = DatumGetBool(statement_value(0, 4, &isnull));
		state->outcome = DatumGetTextPP(statement_value(0, 5, &isnull));
		value = statement_value(0, 6, &isnull);
		state->own = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(value));
	}
	contradicted = DatumGetBool(statement_value(0, 7, &isnull)) || (known_event && !state->receipt);
	state->failure = DatumGetBool(statement_value(0, 8, &isnull));
	passed = state->has_head && suid_compare(&target->suid, &state->head) <= 0 &&
		state->has_floor && suid_compare(&target->suid, &state->floor) <= 0;

	if (state->gate != ERROR_NONE || state->failure || contradicted)
		state->verdict = VERDICT_UNAVAILABLE;
	else if (passed || (state->receipt && (state->settled || !target->safe)))
		state->verdict = VERDICT_VISIBLE;
	else
		state->verdict = VERDICT_PENDING;
}

/* A probe in a snapshot of its own; nothing is kept of it. */
static Verdict
probe_now(const WaitTarget *target)
{
	WaitState	state;

	statement_begin();
	statement_snapshot_begin();
	probe(target, &state);
	statement_snapshot_end();
	statement_end();
	if (state.verdict == VERDICT_PENDING && target->safe && state.receipt && state.own)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("the awaited receipt is this transaction's own and cannot be settled before it ends"),
				 errdetail("Service \"%s\", view \"%s\", event \"%s\".",
						   mutation_clip(target->service_id), mutation_clip(target->view_id),
						   mutation_clip(target->event_id)),
				 errhint("Commit first, then wait with consistency safe.")));
	return state.verdict;
}

/* ---------- arguments ---------- */

/* The first four arguments, copied. */
static void
target_arguments(FunctionCallInfo fcinfo, WaitTarget *target)
{
	memset(target, 0, sizeof(WaitTarget));
	target->service_id = (text *) pg_detoast_datum_copy(registry_service_argument(fcinfo, 0));
	target->view_id = (text *) pg_detoast_datum_copy(registry_view_argument(fcinfo, 1));
	target->event_id = (text *) pg_detoast_datum_copy(registry_event_argument(fcinfo, 2));
	target->suid = *registry_suid_argument(fcinfo, 3, "suid");
}

/* Arguments five and six; the deadline counts from now. */
static void
wait_arguments(FunctionCallInfo fcinfo, WaitTarget *target)
{
	TimestampTz now = GetCurrentTimestamp();

	registry_require(fcinfo, 4, "timeout");
	registry_check_interval("timeout", PG_GETARG_INTERVAL_P(4));
	target->deadline = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
															   TimestampTzGetDatum(now),
															   PG_GETARG_DATUM(4)));
	if (target->deadline < now)
		RAISE(MV_VALUE_INVALID, errmsg("timeout is negative"));
	target->safe = page_safe(fcinfo, 5);
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot wait above READ COMMITTED: the transaction's snapshot would not show the change")));
}

/* ---------- the wait ---------- */

/* The moment of the next probe; *pause is the pause before it, then the next. */
static TimestampTz
next_probe(const WaitTarget *target, int *pause)
{
	TimestampTz next = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), *pause);

	*pause = Min(*pause * 2, LAST_PAUSE_MS);
	return Min(next, target->deadline);
}

/* Sleep until "moment", whatever else sets the latch. */
static void
sleep_until(TimestampTz moment)
{
	for (;;)
	{
		long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), moment);

		CHECK_FOR_INTERRUPTS();
		if (left <= 0)
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, left,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

static const char *
verdict_name(Verdict verdict)
{
	return verdict == VERDICT_VISIBLE ? "visible" :
		verdict == VERDICT_UNAVAILABLE ? "unavailable" : "pending";
}

static const char *
result_name(Verdict verdict)
{
	return verdict == VERDICT_PENDING ? "timeout" : verdict_name(verdict);
}

Datum
unsafemv_wait_for(PG_FUNCTION_ARGS)
{
	WaitTarget	target;
	Verdict		verdict;
	int			pause = FIRST_PAUSE_MS;

	target_arguments(fcinfo, &target);
	wait_arguments(fcinfo, &target);
	for (;;)
	{
		verdict = probe_now(&target);
		if (verdict != VERDICT_PENDING || GetCurrentTimestamp() >= target.deadline)
			break;
		sleep_until(next_probe(&target, &pause));
	}
	PG_RETURN_TEXT_P(cstring_to_text(result_name(verdict)));
}

/* A probe as a function with a SET clause would make it. */
static Verdict
probe_pinned(const WaitTarget *target)
{
	int			level = statement_pin_search_path();
	Verdict		verdict;

	verdict = probe_now(target);
	AtEOXact_GUC(true, level);
	return verdict;
}

/*
 * The same with a transaction of its own for each probe.  The caller's memory
 * context is the portal's, which outlives them.
 */
Datum
unsafemv_wait_until(PG_FUNCTION_ARGS)
{
	WaitTarget	target;
	Verdict		verdict;
	int			pause = FIRST_PAUSE_MS;
	TupleDesc	descriptor;
	Datum		values[1];
	bool		nulls[1] = {false};
	MemoryContext caller = CurrentMemoryContext;

	target_arguments(fcinfo, &target);
	wait_arguments(fcinfo, &target);
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("wait_until cannot run inside a transaction block or a function"),
				 errhint("Use wait_for there, or end the transaction first.")));
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	descriptor = BlessTupleDesc(descriptor);

	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	for (;;)
	{
		verdict = probe_pinned(&target);
		SPI_commit();
		if (verdict != VERDICT_PENDING || GetCurrentTimestamp() >= target.deadline)
			break;
		InvalidateCatalogSnapshotConditionally();
		sleep_until(next_probe(&target, &pause));
	}
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
	MemoryContextSwitchTo(caller);
	values[0] = CStringGetTextDatum(result_name(verdict));
	return HeapTupleGetDatum(heap_form_tuple(descriptor, values, nulls));
}

Datum
unsafemv_read_wait_state(PG_FUNCTION_ARGS)
{
	WaitTarget	target;
	WaitState	state;
	TupleDesc	descriptor;
	Datum		values[8];
	bool		nulls[8] = {0};
	HeapTuple	tuple;

	target_arguments(fcinfo, &target);
	target.safe = page_safe(fcinfo, 4);
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	descriptor = BlessTupleDesc(descriptor);

	statement_begin();
	probe(&target, &state);
	values[0] = CStringGetTextDatum(verdict_name(state.verdict));
	values[1] = BoolGetDatum(state.receipt);
	values[2] = BoolGetDatum(state.settled);
	values[3] = PointerGetDatum(state.outcome);
	nulls[3] = state.outcome == NULL;
	nulls[4] = !state.has_head;
	values[4] = state.has_head ? suid_text_datum(&state.head) : (Datum) 0;
	nulls[5] = !state.has_floor;
	values[5] = state.has_floor ? suid_text_datum(&state.floor) : (Datum) 0;
	values[6] = CStringGetTextDatum(state.gate == ERROR_NONE ? "open" : errors_name(state.gate));
	values[7] = BoolGetDatum(state.failure);
	tuple = heap_form_tuple(descriptor, values, nulls);
	tuple = SPI_copytuple(tuple);
	statement_end();
	return HeapTupleGetDatum(tuple);
}
