/*
 * generation.c
 *	  Candidates: begin, prove, promote, reopen, drop; and declaring an event void
 *	  (core 7).
 *
 * Locks: what moves the active generation, and dropping, take the view's lock
 * exclusively and then the generation rows in number order, all within
 * unsafemv.promotion_timeout.  So they wait for applies and safe steps in flight,
 * and for nothing else; readers never wait.  Beginning a candidate takes the view's
 * lock shared; numbers are given out under the view's row lock.
 *
 * A promotion is one transaction: status, pointer, carried tentative state and the
 * old generation's emptied unsafe lane are visible together or not at all.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"

#include "compat.h"
#include "findings.h"
#include "generation.h"
#include "library.h"
#include "receipts.h"
#include "registry.h"
#include "replay.h"
#include "row_writer.h"
#include "statement.h"

/* Kept rows are refolded in chunks of so many keys. */
#define REFOLD_CHUNK	1000

UNSAFEMV_FUNCTION(unsafemv_begin_rebuild);
UNSAFEMV_FUNCTION(unsafemv_next_generation);
UNSAFEMV_FUNCTION(unsafemv_mark_generation_rebuilt);
UNSAFEMV_FUNCTION(unsafemv_promote_generation);
UNSAFEMV_FUNCTION(unsafemv_reopen_generation);
UNSAFEMV_FUNCTION(unsafemv_drop_generation);
UNSAFEMV_FUNCTION(unsafemv_dismiss_event);

static void
set_status(const View *view, int64 generation, const char *status)
{
	Datum		values[4];

	registry_instance(values, view, generation);
	values[3] = CStringGetTextDatum(status);
	(void) statement_execute(STATEMENT_GENERATION_STATUS, values, NULL);
}

static void
instance_missing(const View *view, int64 generation)
{
	RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
		  registry_errdetail_generation(view, generation));
}

static void
no_number_left(const View *view)
{
	RAISE(MV_GENERATION_INVALID, errmsg("view has given out its last generation number"),
		  registry_errdetail(view), errhint("Numbers are never used again; create another view."));
}

int64
generation_begin(const View *view, int64 definition_version, bool has_generation,
				 int64 generation, const Suid *last_suid)
{
	Datum		values[6];
	bool		nulls[6] = {0};
	bool		isnull;

	if (definition_version < 1)
		RAISE(MV_VALUE_INVALID, errmsg("definition_version is less than 1"));
	(void) registry_resolve_generation(view, false, 0);
	if (has_generation)
		(void) registry_resolve_generation(view, true, generation);
	values[0] = PointerGetDatum(view->service_id);
	values[1] = PointerGetDatum(view->view_id);
	values[2] = Int64GetDatum(generation);
	nulls[2] = !has_generation;
	if (statement_execute(STATEMENT_GENERATION_ALLOCATE, values, nulls) == 0)
	{
		if (!has_generation)
			no_number_left(view);
		registry_instance(values, view, generation);
		if (statement_execute(STATEMENT_HEAD_READ, values, NULL) > 0)
			RAISE(MV_INSTANCE_EXISTS, errmsg("generation exists already"),
				  registry_errdetail_generation(view, generation),
				  errhint("Leave the number out to have one given."));
		RAISE(MV_GENERATION_INVALID, errmsg("generation number has been passed"),
			  registry_errdetail_generation(view, generation),
			  errhint("Numbers are never used again; leave it out to have one given."));
	}
	generation = DatumGetInt64(statement_value(0, 1, &isnull));

	registry_instance(values, view, generation);
	values[3] = Int64GetDatum(definition_version);
	values[4] = CStringGetTextDatum("candidate");
	nulls[2] = false;
	nulls[5] = last_suid == NULL;
	values[5] = SuidPGetDatum(last_suid);
	(void) statement_execute(STATEMENT_GENERATION_INSERT, values, nulls);
	return generation;
}

Datum
unsafemv_begin_rebuild(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		generation;

	registry_require(fcinfo, 2, "definition_version");
	if (PG_GETARG_INT64(2) < 1)
		RAISE(MV_VALUE_INVALID, errmsg("definition_version is less than 1"));
	statement_begin();
	registry_lock_shared(service_id, view_id);
	generation = generation_begin(registry_current_view(service_id, view_id), PG_GETARG_INT64(2),
								  !PG_ARGISNULL(3), PG_ARGISNULL(3) ? 0 : PG_GETARG_INT64(3),
								  PG_ARGISNULL(4) ? NULL : PG_GETARG_SUID_P(4));
	statement_end();
	PG_RETURN_INT64(generation);
}

Datum
unsafemv_next_generation(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};
	View	   *view;
	int64		next;
	bool		isnull;

	statement_begin();
	view = registry_read_view(service_id, view_id);
	(void) statement_read(STATEMENT_GENERATION_NEXT, values, NULL);
	next = DatumGetInt64(statement_value(0, 1, &isnull));
	if (isnull)
		no_number_left(view);
	statement_end();
	PG_RETURN_INT64(next);
}

/* The open ordering quarantine of a generation; false: there is none. */
static bool
read_quarantine(const View *view, int64 generation, text **event_id, Suid *suid)
{
	Datum		values[3];
	bool		isnull;

	registry_instance(values, view, generation);
	if (statement_execute(STATEMENT_QUARANTINE_READ, values, NULL) == 0)
		return false;
	*event_id = DatumGetTextPCopy(statement_value(0, 1, &isnull));
	(void) statement_suid(0, 2, suid);
	return true;
}

/*
 * Has the candidate folded the quarantined event?  At or below its receipt floor
 * nobody can tell any more but by the digest of the whole history.
 */
static bool
has_folded(const View *view, int64 candidate, const Generation *state,
		   const text *event_id, const Suid *suid)
{
	Datum		values[5];

	if (state->has_floor && suid_compare(suid, &state->floor) <= 0)
		return true;
	registry_instance(values, view, candidate);
	values[3] = PointerGetDatum(event_id);
	values[4] = SuidPGetDatum(suid);
	return statement_execute(STATEMENT_RECEIPT_IS_SETTLED, values, NULL) > 0;
}

#define NOT_VERIFIED(view, generation, ...) \
	RAISE(MV_REBUILD_NOT_VERIFIED, __VA_ARGS__, registry_errdetail_generation(view, generation), \
		  errhint("Fold the whole source into the candidate and prove it again."))

void
generation_prove(const View *view, int64 generation, int64 count, const Suid *maximum,
				 const bytea *digest)
{
	Generation	state;
	Datum		values[6];
	bool		nulls[6] = {0};
	text	   *event_id;
	Suid		suid;

	if (!registry_lock_generation(view, generation, &state))
		instance_missing(view, generation);
	if (strcmp(state.status, "candidate") != 0)
		NOT_VERIFIED(view, generation, errmsg("generation is %s, not a candidate", state.status));
	if (count != state.history_count)
		NOT_VERIFIED(view, generation,
					 errmsg("source has %lld events, the candidate folded %lld",
							(long long) count, (long long) state.history_count));
	if ((maximum != NULL) != state.has_head ||
		(maximum != NULL && suid_compare(maximum, &state.head) != 0))
		NOT_VERIFIED(view, generation,
					 errmsg("source ends at %s, the candidate's head is %s",
							suid_cstring(maximum), suid_cstring(state.has_head ? &state.head : NULL)));
	if ((digest == NULL) != (state.history_digest == NULL) ||
		(digest != NULL &&
		 (VARSIZE_ANY_EXHDR(digest) != VARSIZE_ANY_EXHDR(state.history_digest) ||
		  memcmp(VARDATA_ANY(digest), VARDATA_ANY(state.history_digest),
				 VARSIZE_ANY_EXHDR(digest)) != 0)))
		NOT_VERIFIED(view, generation, errmsg("history digest of the source differs from the candidate's"));
	if (view->has_active && read_quarantine(view, view->active_generation, &event_id, &suid) &&
		!has_folded(view, generation, &state, event_id, &suid))
		NOT_VERIFIED(view, generation,
					 errmsg("candidate has not folded the quarantined event \"%s\"", mutation_clip(event_id)));

	registry_instance(values, view, generation);
	values[3] = Int64GetDatum(count);
	values[4] = SuidPGetDatum(maximum);
	values[5] = PointerGetDatum(digest);
	nulls[4] = maximum == NULL;
	nulls[5] = digest == NULL;
	(void) statement_execute(STATEMENT_GENERATION_PROOF, values, nulls);
}

Datum
unsafemv_mark_generation_rebuilt(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	View	   *view;

	registry_require(fcinfo, 2, "generation");
	registry_require(fcinfo, 3, "source_event_count");
	statement_begin();
	view = registry_current_view(service_id, view_id);
	(void) registry_resolve_generation(view, true, PG_GETARG_INT64(2));
	generation_prove(view, PG_GETARG_INT64(2), PG_GETARG_INT64(3),
					 PG_ARGISNULL(4) ? NULL : PG_GETARG_SUID_P(4),
					 PG_ARGISNULL(5) ? NULL : PG_GETARG_BYTEA_PP(5));
	statement_end();
	PG_RETURN_BOOL(true);
}

static void
require_read_committed(const char *function)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s runs under READ COMMITTED only", function)));
}

/* Is the generation's gate closed (or a checkpoint-ahead finding open)?  Proven? */
static void
read_gate(const View *view, int64 generation, bool *closed, bool *proven)
{
	Datum		values[3];
	bool		isnull;

	registry_instance(values, view, generation);
	(void) statement_execute(STATEMENT_GENERATION_GATE, values, NULL);
	*closed = DatumGetBool(statement_value(0, 1, &isnull));
	if (isnull)
		*closed = false;
	*closed |= DatumGetBool(statement_value(0, 2, &isnull));
	*proven = DatumGetBool(statement_value(0, 3, &isnull));
}

bool
generation_closed(const View *view, int64 generation)
{
	bool		closed;
	bool		proven;

	read_gate(view, generation, &closed, &proven);
	return closed;
}

/*
 * Refuse a candidate that has not reached what readers have seen.  With "force"
 * only say (true) that it would have been refused.
 */
static bool
check_distance(const View *view, int64 active, const Generation *active_state,
			   int64 candidate, const Generation *candidate_state,
			   bool candidate_closed, bool force)
{
	Datum		values[6];
	bool		nulls[6] = {0};
	bool		behind;
	bool		isnull;
	int64		missing;
	StringInfoData distance;

	behind = active_state->has_head &&
		(!candidate_state->has_head ||
		 suid_compare(&candidate_state->head, &active_state->head) < 0);
	registry_instance(values, view, active);
	values[3] = Int64GetDatum(candidate);
	values[4] = SuidPGetDatum(&candidate_state->head);
	values[5] = SuidPGetDatum(&candidate_state->floor);
	nulls[4] = !candidate_state->has_head;
	nulls[5] = !candidate_state->has_floor;
	(void) statement_execute(STATEMENT_PROMOTION_MISSING, values, nulls);
	missing = DatumGetInt64(statement_value(0, 1, &isnull));
	if (!behind && missing == 0 && !candidate_closed)
		return false;
	if (force)
	{
		if (missing > 0)
			(void) statement_execute(STATEMENT_PROMOTION_FORCE, values, nulls);
		return true;
	}

	initStringInfo(&distance);
	appendStringInfo(&distance, "Service \"%s\", view \"%s\", candidate %lld with head %s, active %lld with head %s.",
					 mutation_clip(view->service_id), mutation_clip(view->view_id),
					 (long long) candidate, suid_cstring(candidate_state->has_head ? &candidate_state->head : NULL),
					 (long long) active, suid_cstring(active_state->has_head ? &active_state->head : NULL));
	if (missing > 0)
	{
		Datum	   *ids;
		int			nids;

		deconstruct_array(DatumGetArrayTypeP(statement_value(0, 2, &isnull)), TEXTOID, -1, false,
						  TYPALIGN_INT, &ids, NULL, &nids);
		appendStringInfo(&distance, " Not folded by the candidate: %lld, beginning with", (long long) missing);
		for (int i = 0; i < nids; i++)
			appendStringInfo(&distance, "%s \"%s\"", i > 0 ? "," : "",
							 mutation_clip(DatumGetTextPP(ids[i])));
		appendStringInfoChar(&distance, '.');
	}
	RAISE(MV_PROMOTION_BEHIND,
		  behind ? errmsg("candidate's head lies behind the active head") :
		  missing > 0 ? errmsg("candidate lacks events that the active generation has received") :
		  errmsg("candidate's reads are closed"),
		  errdetail("%s", distance.data),
		  errhint("Catch the candidate up and retry."));
	return false;
}

/* Refold every row with kept operations on the generation's own rows. */
static void
refold_rows(const View *view, int64 generation, const Generation *state)
{
	const Suid *head = state->has_head ? &state->head : NULL;
	text	   *last = cstring_to_text("");
	Datum		values[5];

	for (;;)
	{
		Datum	   *keys = palloc(REFOLD_CHUNK * sizeof(Datum));
		uint64		count;
		bool		isnull;

		registry_instance(values, view, generation);
		values[3] = PointerGetDatum(last);
		values[4] = Int64GetDatum(REFOLD_CHUNK);
		count = statement_execute(STATEMENT_KEPT_KEYS, values, NULL);
		if (count == 0)
			break;
		for (uint64 i = 0; i < count; i++)
			keys[i] = PointerGetDatum(DatumGetTextPCopy(statement_value(i, 1, &isnull)));
		last = DatumGetTextPP(keys[count - 1]);
		row_writer_refold(view, generation, head, keys, count);
	}
}

/* No event may have one SUID here and another there. */
static void
check_contradictions(const View *view, int64 active, int64 candidate, const Generation *candidate_state)
{
	Datum		values[5];
	bool		nulls[5] = {0};
	bool		isnull;

	registry_instance(values, view, active);
	values[3] = Int64GetDatum(candidate);
	values[4] = SuidPGetDatum(&candidate_state->head);
	nulls[4] = !candidate_state->has_head;
	if (statement_execute(STATEMENT_PROMOTION_CONTRADICTION, values, nulls) == 0)
		return;
	RAISE(UNSAFE_SUID_CONTRADICTION,
		  errmsg("event \"%s\" has SUID %s in the active generation, %s in the candidate",
				 mutation_clip(DatumGetTextPP(statement_value(0, 1, &isnull))),
				 suid_cstring(DatumGetSuidP(statement_value(0, 2, &isnull))),
				 suid_cstring(DatumGetSuidP(statement_value(0, 3, &isnull)))),
		  registry_errdetail_generation(view, candidate),
		  errhint("An event has one SUID; look for the producer that broke this."));
}

/* Carry the tentative state above the candidate's head; the number of events. */
static int64
carry_state(const View *view, int64 active, const Generation *active_state,
			int64 candidate, const Generation *candidate_state)
{
	Datum		values[6];
	bool		nulls[6] = {0};
	int64		carried = 0;
	uint64		moved;

	registry_instance(values, view, active);
	values[3] = Int64GetDatum(candidate);
	values[4] = SuidPGetDatum(&candidate_state->head);
	values[5] = SuidPGetDatum(&active_state->head);
	nulls[4] = !candidate_state->has_head;
	nulls[5] = !active_state->has_head;
	moved = statement_execute(STATEMENT_CARRY_RECEIPTS, values, nulls);
	for (uint64 row = 0; row < moved; row++)
	{
		bool		isnull;

		if (!DatumGetBool(statement_value(row, 1, &isnull)))
			carried++;
	}
	(void) statement_execute(STATEMENT_CARRY_ROWS, values, nulls);
	(void) statement_execute(STATEMENT_CARRY_MARKERS, values, nulls);
	if (view->base_composed)
		refold_rows(view, candidate, candidate_state);
	return carried;
}

/* The greatest SUIDs the view has seen stay known to the new generation. */
static void
carry_maxima(const View *view, int64 active, const Generation *active_state, int64 candidate)
{
	Datum		values[5];
	bool		nulls[5] = {0};
	Suid		observed;

	registry_instance(values, view, active);
	(void) statement_execute(STATEMENT_RECEIPT_MAXIMUM, values, NULL);
	nulls[3] = !statement_suid(0, 1, &observed);
	registry_instance(values, view, candidate);
	values[3] = SuidPGetDatum(&observed);
	values[4] = SuidPGetDatum(&active_state->settled_max);
	nulls[4] = !active_state->has_settled_max;
	(void) statement_execute(STATEMENT_CARRY_MAXIMA, values, nulls);
}

/* Tentative events above the candidate's head, in SUID order; their number. */
static int
read_tentative_events(const View *view, int64 active, const Generation *candidate_state,
					  ReplayEvent **events)
{
	Datum		values[4];
	bool		nulls[4] = {0};
	uint64		count;

	registry_instance(values, view, active);
	values[3] = SuidPGetDatum(&candidate_state->head);
	nulls[3] = !candidate_state->has_head;
	count = statement_execute(STATEMENT_REDELIVER, values, nulls);
	*events = palloc0(Max(count, 1) * sizeof(ReplayEvent));
	for (uint64 row = 0; row < count; row++)
	{
		bool		isnull;

		(*events)[row].event_id = DatumGetTextPCopy(statement_value(row, 1, &isnull));
		(void) statement_suid(row, 2, &(*events)[row].suid);
	}
	return count;
}

void
generation_promote(text *service_id, text *view_id, int64 candidate, int64 active, bool force,
				   int64 *carried, Datum *redeliver)
{
	View	   *view;
	Generation	active_state;
	Generation	candidate_state;
	bool		closed;
	bool		proven;
	bool		forced;
	text	   *quarantined;
	Suid		quarantined_suid;
	ReplayEvent *events = NULL;
	int			nevents = 0;
	int			nleft = 0;
	Datum	   *left;
	Datum		values[5];

	*carried = 0;
	view = registry_lock_exclusive(service_id, view_id);
	(void) registry_resolve_generation(view, false, 0);
	(void) registry_resolve_generation(view, true, candidate);
	if (active != view->active_generation)
		RAISE(MV_PROMOTION_CAS_MISMATCH,
			  errmsg("active generation is %lld, expected was %lld",
					 (long long) view->active_generation, (long long) active),
			  registry_errdetail(view),
			  errhint("Read the active generation again and decide anew."));
	if (!registry_lock_generation(view, candidate, &candidate_state))
		instance_missing(view, candidate);
	if (strcmp(candidate_state.status, "candidate") != 0)
		RAISE(MV_PROMOTION_CAS_MISMATCH,
			  errmsg("generation is %s, not a candidate", candidate_state.status),
			  registry_errdetail_generation(view, candidate),
			  errhint("A retired one can be reopened and caught up; promote a candidate."));
	if (!registry_lock_generation(view, active, &active_state))
		instance_missing(view, active);

	read_gate(view, candidate, &closed, &proven);
	if (read_quarantine(view, active, &quarantined, &quarantined_suid))
	{
		if (!proven)
			NOT_VERIFIED(view, candidate,
						 errmsg("active generation is quarantined and the candidate has no valid rebuild proof"));
		if (!has_folded(view, candidate, &candidate_state, quarantined, &quarantined_suid))
			NOT_VERIFIED(view, candidate,
						 errmsg("candidate has not folded the quarantined event \"%s\"",
								mutation_clip(quarantined)));
	}
	check_contradictions(view, active, candidate, &candidate_state);
	forced = check_distance(view, active, &active_state, candidate, &candidate_state, closed, force);
	carry_maxima(view, active, &active_state, candidate);

	if (active_state.definition_version == candidate_state.definition_version)
		*carried = carry_state(view, active, &active_state, candidate, &candidate_state);
	else
		nevents = read_tentative_events(view, active, &candidate_state, &events);

	/* A retired generation keeps no tentative state. */
	registry_instance(values, view, active);
	(void) statement_execute(STATEMENT_RETIRE_ROWS, values, NULL);
	(void) statement_execute(STATEMENT_RETIRE_MARKERS, values, NULL);
	(void) statement_execute(STATEMENT_RETIRE_RECEIPTS, values, NULL);

	set_status(view, active, "retired");
	set_status(view, candidate, "active");
	registry_instance(values, view, candidate);
	(void) statement_execute(STATEMENT_VIEW_ACTIVATE, values, NULL);
	(void) findings_resolve(view, active, FINDING_ORDERING_QUARANTINE, NULL);
	if (forced)
		(void) findings_record(view, candidate, FINDING_FORCED_PROMOTION, NULL, NULL, findings_detail(psprintf("{\"from\": \"%lld\", \"activeHead\": \"%s\", \"candidateHead\": \"%s\"}",
																											   (long long) active,
																											   suid_cstring(active_state.has_head ? &active_state.head : NULL),
																											   suid_cstring(candidate_state.has_head ? &candidate_state.head : NULL))));

	replay_events(service_id, view_id, events, nevents);
	left = palloc(Max(nevents, 1) * sizeof(Datum));
	for (int i = 0; i < nevents; i++)
	{
		if (events[i].replayed)
			(*carried)++;
		else
			left[nleft++] = PointerGetDatum(events[i].event_id);
	}
	*redeliver = statement_text_array(left, NULL, nleft);
}

Datum
unsafemv_promote_generation(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	TupleDesc	type;
	int64		carried;
	Datum		result[3];
	bool		result_nulls[3] = {0};
	HeapTuple	tuple;
	Datum		answer;

	registry_require(fcinfo, 2, "candidate_generation");
	registry_require(fcinfo, 3, "expected_active_generation");
	registry_require(fcinfo, 4, "force");
	require_read_committed("promote_generation");
	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	statement_begin();
	generation_promote(service_id, view_id, PG_GETARG_INT64(2), PG_GETARG_INT64(3),
					   PG_GETARG_BOOL(4), &carried, &result[2]);
	result[0] = PG_GETARG_DATUM(2);
	result[1] = Int64GetDatum(carried);
	tuple = heap_form_tuple(BlessTupleDesc(type), result, result_nulls);
	answer = PointerGetDatum(SPI_returntuple(tuple, type));
	statement_end();
	PG_RETURN_DATUM(answer);
}

Datum
unsafemv_reopen_generation(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		generation;
	View	   *view;
	Generation	state;

	registry_require(fcinfo, 2, "generation");
	generation = PG_GETARG_INT64(2);
	require_read_committed("reopen_generation");
	statement_begin();
	view = registry_lock_exclusive(service_id, view_id);
	(void) registry_resolve_generation(view, true, generation);
	if (!registry_lock_generation(view, generation, &state))
		instance_missing(view, generation);
	if (strcmp(state.status, "retired") != 0)
		RAISE(MV_GENERATION_INVALID, errmsg("generation is %s, not retired", state.status),
			  registry_errdetail_generation(view, generation));
	set_status(view, generation, "candidate");
	statement_end();
	PG_RETURN_BOOL(true);
}

Datum
unsafemv_drop_generation(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		generation;
	int64		budget = PG_ARGISNULL(3) ? PG_INT64_MAX : PG_GETARG_INT64(3);
	int64		remaining;
	View	   *view;
	Generation	state;

	registry_require(fcinfo, 2, "generation");
	generation = PG_GETARG_INT64(2);
	if (budget < 0)
		RAISE(MV_VALUE_INVALID, errmsg("max_rows is negative"));
	require_read_committed("drop_generation");
	statement_begin();
	view = registry_lock_exclusive(service_id, view_id);
	(void) registry_resolve_generation(view, true, generation);
	if (!registry_lock_generation(view, generation, &state))
		instance_missing(view, generation);
	if (strcmp(state.status, "active") == 0)
		RAISE(MV_GENERATION_INVALID, errmsg("generation is active"),
			  registry_errdetail_generation(view, generation),
			  errhint("Promote another one first, or drop the view."));
	remaining = registry_drop_rows(view, generation, &budget);
	statement_end();
	PG_RETURN_INT64(remaining);
}

Datum
unsafemv_dismiss_event(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");
	View	   *view;
	int64		generation;
	Generation	state;
	Datum		values[5];
	StringInfoData detail;

	registry_require(fcinfo, 4, "reason");
	if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(4)) == 0)
		RAISE(MV_VALUE_INVALID, errmsg("argument \"reason\" is empty"),
			  errhint("Say why the event shall not count; it is kept as a finding."));
	statement_begin();
	view = registry_current_view(service_id, view_id);
	generation = registry_lock_active(view, &state);
	registry_instance(values, view, generation);
	values[3] = PointerGetDatum(event_id);
	values[4] = SuidPGetDatum(suid);
	if (statement_execute(STATEMENT_RECEIPT_DISMISS, values, NULL) == 0)
	{
		if (statement_execute(STATEMENT_RECEIPT_IS_SETTLED, values, NULL) == 0)
			RAISE(UNSAFE_RECEIPT_MISSING, errmsg("no receipt of this event and SUID"),
				  registry_errdetail_event(view, generation, event_id, suid),
				  errhint("Only an event that was delivered can be dismissed."));
		statement_end();
		PG_RETURN_BOOL(false);
	}
	receipts_unmark(view, generation, &values[4], 1);
	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"reason\": ");
	escape_json(&detail, text_to_cstring(PG_GETARG_TEXT_PP(4)));
	appendStringInfoChar(&detail, '}');
	(void) findings_record(view, generation, FINDING_DISMISSED_EVENT, event_id, suid, findings_detail(detail.data));
	statement_end();
	PG_RETURN_BOOL(true);
}
