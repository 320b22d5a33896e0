/*
 * rebuild.c
 *	  CALL rebuild and CALL rebuild_and_promote: a candidate beside the live view.
 *
 * Protocol: one transaction takes the lease and begins the candidate, or takes up
 * the one an earlier call left; then passes of catchup.c fold the source into it,
 * each chunk renewing the lease; then the source is read again and compared with
 * what was folded, which is the proof; then, if asked, the candidate is promoted, as
 * soon as its head has reached the active head.
 *
 * The lease is a row.  Two starters are told apart under the lock of the view's
 * row; a holder whose process is gone holds it no more, any other for a minute after
 * its last chunk.  So a crash at any point leaves a candidate that the next call
 * resumes, and nothing that readers of the active generation see: kicks, waits and
 * reads are about the active generation only.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/sha2.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "catchup.h"
#include "compat.h"
#include "findings.h"
#include "generation.h"
#include "lane_safe.h"
#include "library.h"
#include "source.h"
#include "statement.h"

#define REBUILD_CHUNK	1000
#define PROOF_BATCH		1000
#define DROP_BATCH		10000
#define WAIT_SLICE_MS	1000

UNSAFEMV_FUNCTION(unsafemv_rebuild);
UNSAFEMV_FUNCTION(unsafemv_rebuild_and_promote);

typedef struct Rebuild
{
	CatchUp		pass;
	int64		definition_version;
	bool		has_obsolete;	/* an earlier candidate that cannot be resumed */
	int64		obsolete;
	int64		obsolete_left;
	bool		behind;			/* the active head */
	bool		promoted;
} Rebuild;

/* ---------- lease and candidate ---------- */

/* Can the candidate an earlier call began be resumed? */
static bool
resumable(Rebuild *rebuild, const View *view, int64 generation, bool spoiled)
{
	Generation	state;

	if (!registry_lock_generation(view, generation, &state) || strcmp(state.status, "candidate") != 0)
		return false;
	if (!spoiled && state.definition_version == rebuild->definition_version &&
		!generation_closed(view, generation))
		return true;
	rebuild->has_obsolete = true;
	rebuild->obsolete = generation;
	return false;
}

static void
begin(void *argument)
{
	Rebuild    *rebuild = argument;
	CatchUp    *pass = &rebuild->pass;
	View	   *view;
	Projection	projection;
	Datum		values[6];
	bool		found = false;
	int64		generation = 0;

	registry_lock_shared(pass->service_id, pass->view_id);
	values[0] = PointerGetDatum(pass->service_id);
	values[1] = PointerGetDatum(pass->view_id);
	if (statement_execute(STATEMENT_VIEW_LOCK, values, NULL) == 0)
		registry_view_missing(pass->service_id, pass->view_id);
	view = registry_current_view(pass->service_id, pass->view_id);
	if (!projection_read(view, &projection))
		projection_missing(view);
	projection_check_source(&projection);

	values[1] = Int64GetDatum(view->view_no);
	if (statement_execute(STATEMENT_REBUILD_HOLDER, values, NULL) > 0)
	{
		bool		isnull;
		bool		held = DatumGetBool(statement_value(0, 2, &isnull)) && !isnull;
		int			holder = (int) DatumGetInt64(statement_value(0, 3, &isnull));

		if (held && !isnull && holder != MyProcPid && BackendPidGetProc(holder) != NULL)
			RAISE(MV_REBUILD_RUNNING, errmsg("another session rebuilds this view"),
				  errdetail("Service \"%s\", view \"%s\". Holder: process %d.",
							mutation_clip(pass->service_id), mutation_clip(pass->view_id), holder),
				  errhint("Wait for it; unsafemv.progress shows how far it is."));
		generation = DatumGetInt64(statement_value(0, 1, &isnull));
		if (!isnull)
			found = resumable(rebuild, view, generation, DatumGetBool(statement_value(0, 4, &isnull)));
	}
	if (!found)
		generation = generation_begin(view, rebuild->definition_version, false, 0, NULL);
	registry_instance(values, view, generation);
	values[3] = IntervalPGetDatum(catchup_lease());
	values[4] = Int64GetDatum(MyProcPid);
	values[5] = TimestampTzGetDatum(MyStartTimestamp);
	(void) statement_execute(STATEMENT_REBUILD_LEASE, values, NULL);
	pass->generation = generation;
}

/*
 * Drop what cannot be resumed.  The row lock is enough for a candidate: nobody
 * applies to it, and a promotion needs that lock too.
 */
static void
drop_obsolete(void *argument)
{
	Rebuild    *rebuild = argument;
	View	   *view = registry_current_view(rebuild->pass.service_id, rebuild->pass.view_id);
	Generation	state;
	int64		budget = DROP_BATCH;

	rebuild->obsolete_left = 0;
	if (registry_lock_generation(view, rebuild->obsolete, &state) &&
		(strcmp(state.status, "candidate") == 0 || strcmp(state.status, "dropping") == 0))
		rebuild->obsolete_left = registry_drop_rows(view, rebuild->obsolete, &budget);
	catchup_renew(view, rebuild->pass.generation);
}

static void
release(void *argument)
{
	CatchUp    *pass = &((Rebuild *) argument)->pass;
	Datum		values[5];

	values[0] = PointerGetDatum(pass->service_id);
	values[1] = Int64GetDatum(registry_current_view(pass->service_id, pass->view_id)->view_no);
	values[2] = Int64GetDatum(MyProcPid);
	values[3] = TimestampTzGetDatum(MyStartTimestamp);
	values[4] = BoolGetDatum(strcmp(pass->stop, "source_changed") == 0 ||
							 strcmp(pass->stop, "behind_frontier") == 0 ||
							 pass->refusal != ERROR_NONE);
	(void) statement_execute(STATEMENT_REBUILD_RELEASE, values, NULL);
}

/* ---------- proof ---------- */

/* Read the source again, up to the head, and compare. */
static void
prove(void *argument)
{
	CatchUp    *pass = &((Rebuild *) argument)->pass;
	View	   *view = registry_current_view(pass->service_id, pass->view_id);
	Generation	state;
	Projection	projection;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	int64		total = 0;
	Suid		last;

	if (!registry_lock_generation(view, pass->generation, &state) ||
		strcmp(state.status, "candidate") != 0)
		RAISE(MV_GENERATION_INVALID, errmsg("generation is not a candidate any more"),
			  registry_errdetail_generation(view, pass->generation));
	if (generation_closed(view, pass->generation))
	{
		pass->stop = "behind_frontier";
		return;
	}
	if (!projection_read(view, &projection))
		projection_missing(view);
	if (state.has_head)
	{
		Portal		cursor = source_history(&projection, &state.head);
		int			count;

		do
		{
			SourceEvent *events;

			CHECK_FOR_INTERRUPTS();
			count = source_fetch(&projection, cursor, PROOF_BATCH, &events);
			for (int i = 0; i < count; i++)
			{
				lane_safe_digest(digest, total++ > 0, events[i].event_id, &events[i].suid);
				last = events[i].suid;
			}
			pfree(events);
			statement_free();
		} while (count == PROOF_BATCH);
		SPI_cursor_close(cursor);
	}
	if (total != state.history_count ||
		state.has_head != (total > 0) ||
		(total > 0 && (suid_compare(&last, &state.head) != 0 || state.history_digest == NULL ||
					   VARSIZE_ANY_EXHDR(state.history_digest) != PG_SHA256_DIGEST_LENGTH ||
					   memcmp(VARDATA_ANY(state.history_digest), digest, PG_SHA256_DIGEST_LENGTH) != 0)))
	{
		pass->stop = "source_changed";
		return;
	}
	generation_prove(view, pass->generation, total, total > 0 ? &last : NULL,
					 total > 0 ? lane_safe_digest_value(digest) : NULL);
}

/* ---------- promotion ---------- */

static void
promote(void *argument)
{
	Rebuild    *rebuild = argument;
	CatchUp    *pass = &rebuild->pass;
	View	   *view = registry_lock_exclusive(pass->service_id, pass->view_id);
	Generation	active;
	Generation	candidate;
	int64		carried;
	Datum		redeliver;
	Datum	   *left;
	int			nleft;

	rebuild->behind = false;
	registry_head(view, registry_resolve_generation(view, false, 0), false, &active);
	registry_head(view, pass->generation, false, &candidate);
	if (active.has_head &&
		(!candidate.has_head || suid_compare(&candidate.head, &active.head) < 0))
	{
		rebuild->behind = true;
		return;
	}
	generation_promote(pass->service_id, pass->view_id, pass->generation, view->active_generation,
					   false, &carried, &redeliver);
	deconstruct_array(DatumGetArrayTypeP(redeliver), TEXTOID, -1, false, TYPALIGN_INT, &left, NULL, &nleft);
	view = registry_current_view(pass->service_id, pass->view_id);
	for (int i = 0; i < nleft; i++)
		(void) findings_record(view, pass->generation, FINDING_UNSAFE_FAILURE, DatumGetTextPP(left[i]), NULL,
							   findings_detail("{\"error\": \"not replayed when the generation was promoted\"}"));
	rebuild->promoted = true;
}

/* Fold up to what is old enough; true if that is all a promotion can ask for. */
static bool
catch_up(Rebuild *rebuild)
{
	CatchUp    *pass = &rebuild->pass;

	catchup_pass(pass);
	if (pass->refusal != ERROR_NONE)
	{
		catchup_transaction(release, rebuild, 80);
		catchup_raise(pass);
	}
	if (strcmp(pass->stop, CATCHUP_CAUGHT_UP) == 0 || strcmp(pass->stop, "skipped_event") == 0)
	{
		catchup_transaction(prove, rebuild, 60);
		return strcmp(pass->stop, "behind_frontier") != 0 && strcmp(pass->stop, "source_changed") != 0;
	}
	return strcmp(pass->stop, "safe_window_fence") == 0;
}

static void
promote_when_reached(Rebuild *rebuild)
{
	CatchUp    *pass = &rebuild->pass;
	int64		folded = -1;

	for (;;)
	{
		catchup_transaction(promote, rebuild, 70);
		if (rebuild->promoted)
			return;
		if (!pass->has_deadline && pass->folded == folded)
		{
			/*
			 * A whole pass found nothing: the source ends behind the active
			 * head.
			 */
			catchup_transaction(release, rebuild, 80);
			RAISE(MV_PROMOTION_BEHIND,
				  errmsg("source ends at %s, behind the active head",
						 suid_cstring(pass->has_head ? &pass->head : NULL)),
				  errdetail("Service \"%s\", view \"%s\", candidate %lld.",
							mutation_clip(pass->service_id), mutation_clip(pass->view_id),
							(long long) pass->generation),
				  errhint("Restore the source, or promote the candidate with force."));
		}
		folded = pass->folded;

		/*
		 * The active head lies above: what is missing is not old enough, or
		 * just was.
		 */
		if (pass->has_deadline)
		{
			long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), pass->deadline);

			catchup_sleep(Min(left, WAIT_SLICE_MS));
		}
		if (!catch_up(rebuild))
			return;
	}
}

static Datum
run(FunctionCallInfo fcinfo, const char *procedure, bool and_promote)
{
	Rebuild		rebuild = {0};
	CatchUp    *pass = &rebuild.pass;
	TupleDesc	type;
	Datum		values[2];
	bool		nulls[2] = {0};
	MemoryContext caller = CurrentMemoryContext;
	bool		reached;

	pass->service_id = (text *) pg_detoast_datum_copy(registry_service_argument(fcinfo, 0));
	pass->view_id = (text *) pg_detoast_datum_copy(registry_view_argument(fcinfo, 1));
	registry_require(fcinfo, 2, "definition_version");
	rebuild.definition_version = PG_GETARG_INT64(2);
	if (rebuild.definition_version < 1)
		RAISE(MV_VALUE_INVALID, errmsg("definition_version is less than 1"));
	pass->rebuild = true;
	pass->chunk = REBUILD_CHUNK;
	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	type = BlessTupleDesc(type);

	catchup_begin(fcinfo, procedure);
	MemoryContextSwitchTo(caller);
	catchup_transaction(begin, &rebuild, 50);
	if (rebuild.has_obsolete)
	{
		do
			catchup_transaction(drop_obsolete, &rebuild, 52);
		while (rebuild.obsolete_left > 0);
	}
	reached = catch_up(&rebuild);
	if (reached && and_promote)
		promote_when_reached(&rebuild);
	catchup_transaction(release, &rebuild, 80);
	catchup_end();
	MemoryContextSwitchTo(caller);

	values[0] = Int64GetDatum(pass->generation);
	values[1] = CStringGetTextDatum(rebuild.promoted ? "promoted" : pass->stop);
	return HeapTupleGetDatum(heap_form_tuple(type, values, nulls));
}

Datum
unsafemv_rebuild(PG_FUNCTION_ARGS)
{
	return run(fcinfo, "rebuild", false);
}

Datum
unsafemv_rebuild_and_promote(PG_FUNCTION_ARGS)
{
	return run(fcinfo, "rebuild_and_promote", true);
}
