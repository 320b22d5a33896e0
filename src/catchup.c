/*
 * catchup.c
 *	  A pass over a projection's source: the safe window, late events, failing
 *	  events (core 11).
 *
 * Protocol.  A pass is a row of transactions.  The first looks: is the source
 * behind the head, is the generation quarantined, did events arrive late, were
 * receipts passed over.  Each of the next locks the generation's row, reads its head
 * and then the next events of the source, and folds those that are old enough; so
 * concurrent passes take turns per chunk, and a crash loses the chunk at hand and
 * nothing else.  Between two of them no lock, snapshot or transaction is held.
 *
 * Safe window: an event is folded when it arrived at least a window ago and its
 * SUID is not of a later time than that; the first that is not ends the pass,
 * whatever comes after it.
 *
 * Late events: whatever became visible after a pass looked has arrived since that
 * pass's horizon (horizon.c), which the generation keeps.  The next pass looks at
 * all that arrived since and lies at or below the head: without a receipt it is
 * late, gets a behind-frontier receipt, which closes the reads, and a finding.  This
 * runs under the generation's row lock, hence no chunk is folded meanwhile, and
 * under the view's shared lock, as everything that claims receipts of an active
 * generation.  Receipts of events that arrived since the horizon are always written
 * and never collected.
 *
 * Failing events: a chunk is folded in a subtransaction, and in halves if it fails,
 * until the event is found; what lies before it is committed.  The event is tried
 * again a few times, then a poison-event finding is committed and the pass stops.
 * What is not the event's fault (cancelled, out of memory, ...) is raised.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

#include "catchup.h"
#include "compat.h"
#include "findings.h"
#include "horizon.h"
#include "lane_safe.h"
#include "receipts.h"
#include "row_writer.h"
#include "source.h"
#include "statement.h"
#include "wait_point.h"

#define LATE_BATCH		1000
#define EVENT_TRIES		3		/* in one pass */
#define EVENT_PAUSE_MS	50		/* after the first; then twice as long */
#define MAX_COLLISIONS	20
#define FAR_AHEAD		(END_TIMESTAMP - 1001 * 366 * USECS_PER_DAY)

/* A key that an event's plan may depend on, as folded so far. */
typedef struct PresentRow
{
	text	   *row_key;
	RowImage	image;
} PresentRow;

/* An event an operator skipped. */
typedef struct SkippedEvent
{
	text	   *event_id;
	Jsonb	   *detail;
} SkippedEvent;

/* One chunk's transaction. */
typedef struct Chunk
{
	CatchUp    *pass;
	View	   *view;
	int64		generation;
	Generation	state;
	Projection	projection;
	int			nskipped;
	SkippedEvent *skipped;		/* by event id */
	TimestampTz limit;			/* latest arrival that is old enough */
	Suid		limit_suid;
	Interval   *window;
	bool		above_ceiling;
	TimestampTz ceiling_deadline;
	ErrorData  *failure;		/* why the next event is not folded */
} Chunk;

extern Datum unsafemv_suid_timestamp(PG_FUNCTION_ARGS);

/* ---------- transactions ---------- */

void
catchup_begin(FunctionCallInfo fcinfo, const char *procedure)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block or a function", procedure),
				 errhint("It commits: call it on its own.")));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s runs under READ COMMITTED only", procedure)));
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

void
catchup_end(void)
{
	if (SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed");
}

void
catchup_transaction(CatchUpStep step, void *argument, int place)
{
	int			level = statement_pin_search_path();

	statement_begin();
	statement_snapshot_begin();
	step(argument);
	statement_snapshot_end();
	statement_end();
	AtEOXact_GUC(true, level);
	WAIT_POINT(place);
	SPI_commit();
	WAIT_POINT(place + 1);
	CHECK_FOR_INTERRUPTS();
}

void
catchup_sleep(int milliseconds)
{
	TimestampTz moment = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), milliseconds);

	InvalidateCatalogSnapshotConditionally();
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

/* ---------- the generation ---------- */

/*
 * View, generation with its row locked, and projection; false: another generation
 * became active while we waited.
 */
static bool
open_chunk(CatchUp *pass, Chunk *chunk)
{
	memset(chunk, 0, sizeof(Chunk));
	chunk->pass = pass;
	chunk->view = registry_current_view(pass->service_id, pass->view_id);
	chunk->generation = registry_resolve_generation(chunk->view, pass->rebuild, pass->generation);
	pass->generation = chunk->generation;
	if (!registry_lock_generation(chunk->view, chunk->generation, &chunk->state) ||
		strcmp(chunk->state.status, pass->rebuild ? "candidate" : "active") != 0)
	{
		if (pass->rebuild)
			RAISE(MV_GENERATION_INVALID, errmsg("generation is not a candidate any more"),
				  registry_errdetail_generation(chunk->view, chunk->generation));
		return false;
	}
	if (!projection_read(chunk->view, &chunk->projection))
		projection_missing(chunk->view);
	pass->has_head = chunk->state.has_head;
	pass->head = chunk->state.head;
	return true;
}

/* The first open finding of a kind above "after" (NULL: any); its rows are in the last result. */
static bool
find_finding(const Chunk *chunk, FindingKind kind, const Suid *after)
{
	Datum		values[5];
	bool		nulls[5] = {0};

	registry_instance(values, chunk->view, chunk->generation);
	values[3] = CStringGetTextDatum(findings_kind_name(kind));
	values[4] = SuidPGetDatum(after);
	nulls[4] = after == NULL;
	return statement_execute(STATEMENT_FINDING_OPEN, values, nulls) > 0;
}

/* To be raised once this transaction, with the finding, is committed. */
static void
refuse(CatchUp *pass, ErrorCode code, const char *message)
{
	pass->refusal = code;
	pass->refusal_message = MemoryContextStrdup(pass->context, message);
}

void
catchup_raise(const CatchUp *pass)
{
	if (pass->refusal == ERROR_NONE)
		return;
	RAISE(pass->refusal, errmsg("%s", pass->refusal_message),
		  errdetail("Service \"%s\", view \"%s\", generation %lld.",
					mutation_clip(pass->service_id), mutation_clip(pass->view_id),
					(long long) pass->generation),
		  pass->refusal == MV_CHECKPOINT_AHEAD ?
		  errhint("Restore the source, or rebuild the view; then resolve_finding.") :
		  errhint("Repair the source, then resolve_finding or rebuild the view."));
}

/* ---------- looking ---------- */

static int
compare_source_events(const void *a, const void *b)
{
	return suid_compare(&((const SourceEvent *) a)->suid, &((const SourceEvent *) b)->suid);
}

typedef struct KnownEvent
{
	text	   *event_id;
	Suid		suid;
} KnownEvent;

static int
compare_known(const void *a, const void *b)
{
	return mutation_compare_text(((const KnownEvent *) a)->event_id,
								 ((const KnownEvent *) b)->event_id);
}

/* Those of the events that have no receipt, to the front; how many. */
static int
without_receipt(const Chunk *chunk, SourceEvent *events, int count)
{
	Datum	   *ids = palloc(count * sizeof(Datum));
	bool	   *known = palloc0(count * sizeof(bool));
	Datum		values[4];
	uint64		found;
	int			left = 0;

	for (int i = 0; i < count; i++)
		ids[i] = PointerGetDatum(events[i].event_id);
	registry_instance(values, chunk->view, chunk->generation);
	values[3] = statement_text_array(ids, NULL, count);
	found = statement_execute(STATEMENT_RECEIPT_KNOWN, values, NULL);
	{
		KnownEvent *receipts = palloc(Max(found, 1) * sizeof(KnownEvent));

		for (uint64 row = 0; row < found; row++)
		{
			bool		isnull;

			receipts[row].event_id = DatumGetTextPP(statement_value(row, 1, &isnull));
			(void) statement_suid(row, 2, &receipts[row].suid);
		}
		qsort(receipts, found, sizeof(KnownEvent), compare_known);
		for (int i = 0; i < count; i++)
		{
			KnownEvent	wanted = {.event_id = events[i].event_id};
			KnownEvent *receipt = bsearch(&wanted, receipts, found, sizeof(KnownEvent), compare_known);

			/*
			 * A receipt of the same id with another SUID is of something
			 * else.
			 */
			known[i] = receipt != NULL && suid_compare(&receipt->suid, &events[i].suid) == 0;
		}
	}
	for (int i = 0; i < count; i++)
		if (!known[i])
			events[left++] = events[i];
	qsort(events, left, sizeof(SourceEvent), compare_source_events);
	return left;
}

/* Events behind the head that nobody delivered: the reads close. */
static void
record_late(const Chunk *chunk, SourceEvent *events, int count)
{
	Claim	   *claims = palloc0(count * sizeof(Claim));
	const Suid *head = &chunk->state.head;
	bool		closed = chunk->state.rebuild_required;

	for (int i = 0; i < count; i++)
	{
		claims[i].event_id = events[i].event_id;
		claims[i].suid = &events[i].suid;
		claims[i].expected = OUTCOME_BEHIND_FRONTIER;
	}
	receipts_claim(chunk->view, chunk->generation, claims, count, GetCurrentTimestamp());
	for (int i = 0; i < count; i++)
	{
		if (claims[i].state == CLAIM_CONTRADICTION && !closed)
		{
			Datum		values[5];

			/* It cannot have a receipt: the generation itself says it. */
			registry_instance(values, chunk->view, chunk->generation);
			values[3] = PointerGetDatum(claims[i].event_id);
			values[4] = SuidPGetDatum(claims[i].suid);
			(void) statement_execute(STATEMENT_REBUILD_REQUIRED, values, NULL);
			closed = true;
		}
		if (claims[i].state != CLAIM_DUPLICATE)
			(void) findings_record(chunk->view, chunk->generation, FINDING_LATE_EVENT,
								   claims[i].event_id, claims[i].suid,
								   findings_detail(psprintf("{\"head\": \"%s\"%s}", suid_cstring(head),
															claims[i].state == CLAIM_CONTRADICTION ? ", \"contradiction\": true" : "")));
	}
}

/* Events at or below the head when the first pass begins belong to it. */
static void
record_seeded(const Chunk *chunk, SourceEvent *events, int count)
{
	Datum	   *ids = palloc(count * sizeof(Datum));
	Datum	   *suids = palloc(count * sizeof(Datum));
	Datum	   *arrivals = palloc(count * sizeof(Datum));
	Datum		values[6];

	for (int i = 0; i < count; i++)
	{
		ids[i] = PointerGetDatum(events[i].event_id);
		suids[i] = SuidPGetDatum(&events[i].suid);
		arrivals[i] = TimestampTzGetDatum(events[i].arrived_at);
	}
	registry_instance(values, chunk->view, chunk->generation);
	values[3] = statement_text_array(ids, NULL, count);
	values[4] = statement_suid_array(suids, NULL, count);
	values[5] = statement_timestamp_array(arrivals, count);
	(void) statement_execute(STATEMENT_RECEIPT_SETTLE, values, NULL);
}

static void
look_for_late(const Chunk *chunk)
{
	const Generation *state = &chunk->state;
	TimestampTz horizon;
	bool		known = horizon_read(&horizon);
	Datum		values[4];

	if (!known)
		horizon = state->has_late_horizon ? state->late_horizon : DT_NOBEGIN;
	if (state->has_head)
	{
		Portal		cursor = source_arrived(&chunk->projection,
											state->has_late_horizon ? state->late_horizon : horizon,
											&state->head);
		MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "unsafemv late events",
													ALLOCSET_DEFAULT_SIZES);
		MemoryContext caller = MemoryContextSwitchTo(batch);
		int			count;

		for (;;)
		{
			SourceEvent *events;
			SPITupleTable *fetched;

			CHECK_FOR_INTERRUPTS();
			count = source_fetch(&chunk->projection, cursor, LATE_BATCH, &events);
			fetched = SPI_tuptable;
			if (count > 0)
			{
				int			left = without_receipt(chunk, events, count);

				statement_free();
				if (left > 0 && state->has_late_horizon)
					record_late(chunk, events, left);
				else if (left > 0)
					record_seeded(chunk, events, left);
			}
			SPI_freetuptable(fetched);
			MemoryContextReset(batch);
			if (count < LATE_BATCH)
				break;
		}
		MemoryContextSwitchTo(caller);
		MemoryContextDelete(batch);
		SPI_cursor_close(cursor);
	}
	registry_instance(values, chunk->view, chunk->generation);
	values[3] = TimestampTzGetDatum(horizon);
	(void) statement_execute(STATEMENT_HORIZON_WRITE, values, NULL);
}

/* The source ends behind the head, or an earlier pass found it so. */
static bool
checkpoint_ahead(Chunk *chunk)
{
	CatchUp    *pass = chunk->pass;
	Suid		maximum;
	bool		has_maximum;

	if (!chunk->state.has_head)
		return false;
	has_maximum = source_maximum(&chunk->projection, &maximum);
	if (!has_maximum || suid_compare(&maximum, &chunk->state.head) < 0)
	{
		(void) findings_record(chunk->view, chunk->generation, FINDING_CHECKPOINT_AHEAD, NULL,
							   has_maximum ? &maximum : NULL,
							   findings_detail(psprintf("{\"head\": \"%s\"}", suid_cstring(&chunk->state.head))));
		refuse(pass, MV_CHECKPOINT_AHEAD,
			   psprintf("source ends at %s, behind the head, %s",
						suid_cstring(has_maximum ? &maximum : NULL), suid_cstring(&chunk->state.head)));
		return true;
	}
	if (!find_finding(chunk, FINDING_CHECKPOINT_AHEAD, NULL))
		return false;
	refuse(pass, MV_CHECKPOINT_AHEAD, "source has been behind the head");
	return true;
}

static void
look(void *argument)
{
	CatchUp    *pass = argument;
	Chunk		chunk;

	registry_lock_shared(pass->service_id, pass->view_id);
	if (!open_chunk(pass, &chunk))
		elog(ERROR, "active generation is not active");
	projection_check_source(&chunk.projection);
	if (checkpoint_ahead(&chunk))
		return;
	if (find_finding(&chunk, FINDING_ORDERING_QUARANTINE, NULL))
	{
		refuse(pass, MV_ORDERING_QUARANTINED, "order of the source is broken");
		return;
	}
	if (pass->rebuild)
		catchup_renew(chunk.view, chunk.generation);
	look_for_late(&chunk);
	lane_safe_fold(chunk.view, chunk.generation, NULL, 0);
}

/* ---------- the window ---------- */

static void
read_window(Chunk *chunk)
{
	Datum		values[3];
	bool		isnull;

	values[0] = PointerGetDatum(chunk->view->service_id);
	values[1] = IntervalPGetDatum(chunk->projection.window_floor);
	values[2] = IntervalPGetDatum(chunk->projection.window_ceiling);
	(void) statement_execute(STATEMENT_WINDOW_READ, values, NULL);
	chunk->limit = DatumGetTimestampTz(statement_value(0, 2, &isnull));
	(void) statement_suid(0, 3, &chunk->limit_suid);
	chunk->window = DatumGetIntervalP(statement_value(0, 4, &isnull));
	chunk->above_ceiling = DatumGetBool(statement_value(0, 5, &isnull));
	chunk->ceiling_deadline = DatumGetTimestampTz(statement_value(0, 6, &isnull));
}

static bool
old_enough(const Chunk *chunk, const SourceEvent *event)
{
	return event->arrived_at <= chunk->limit && suid_compare(&event->suid, &chunk->limit_suid) <= 0;
}

/* When the event will be old enough; false: nobody knows. */
static bool
read_deadline(const Chunk *chunk, const SourceEvent *event, TimestampTz *deadline)
{
	TimestampTz since = event->arrived_at;

	if (event->arrived_at > FAR_AHEAD)
		return false;			/* no window can be added */
	if (suid_compare(&event->suid, &chunk->limit_suid) > 0)
		since = Max(since, DatumGetTimestampTz(DirectFunctionCall1(unsafemv_suid_timestamp,
																   SuidPGetDatum(&event->suid))));
	if (TIMESTAMP_NOT_FINITE(since))
		return false;
	*deadline = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
														TimestampTzGetDatum(since),
														IntervalPGetDatum(chunk->window)));
	return true;
}

static void
stop_pass(CatchUp *pass, const char *stop, bool has_deadline, TimestampTz deadline)
{
	pass->stop = stop;
	pass->has_deadline = has_deadline;
	pass->deadline = deadline;
}

/* ---------- planning ---------- */

static void
read_skipped(Chunk *chunk)
{
	Datum		values[2] = {PointerGetDatum(chunk->view->service_id), Int64GetDatum(chunk->view->view_no)};
	uint64		count = statement_execute(STATEMENT_SKIPPED_READ, values, NULL);

	chunk->skipped = palloc(Max(count, 1) * sizeof(SkippedEvent));
	chunk->nskipped = count;
	for (uint64 row = 0; row < count; row++)
	{
		bool		isnull;

		chunk->skipped[row].event_id = DatumGetTextPP(statement_value(row, 1, &isnull));
		chunk->skipped[row].detail = DatumGetJsonbP(statement_value(row, 2, &isnull));
	}
}

static int
compare_skipped(const void *a, const void *b)
{
	return mutation_compare_text(((const SkippedEvent *) a)->event_id, ((const SkippedEvent *) b)->event_id);
}

static const SkippedEvent *
find_skipped(const Chunk *chunk, text *event_id)
{
	SkippedEvent wanted = {event_id, NULL};

	if (chunk->nskipped == 0)
		return NULL;
	return bsearch(&wanted, chunk->skipped, chunk->nskipped, sizeof(SkippedEvent), compare_skipped);
}

static int
compare_present(const void *a, const void *b)
{
	return mutation_compare_text(((const PresentRow *) a)->row_key, ((const PresentRow *) b)->row_key);
}

static PresentRow *
find_present(PresentRow *rows, int count, text *row_key)
{
	PresentRow	wanted = {.row_key = row_key};

	return bsearch(&wanted, rows, count, sizeof(PresentRow), compare_present);
}

/* The present values of these keys, as an object; what it takes to make is freed. */
static Jsonb *
rows_object(PresentRow *rows, int count, Datum *keys, int nkeys)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch = AllocSetContextCreate(caller, "unsafemv rows", ALLOCSET_DEFAULT_SIZES);
	JsonbParseState *state = NULL;
	Jsonb	   *object;
	Jsonb	   *result;

	MemoryContextSwitchTo(scratch);
	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < nkeys; i++)
	{
		PresentRow *row = find_present(rows, count, DatumGetTextPP(keys[i]));
		JsonbValue	member;

		if (!row->image.present)
			continue;
		member.type = jbvString;
		member.val.string.val = VARDATA_ANY(row->row_key);
		member.val.string.len = VARSIZE_ANY_EXHDR(row->row_key);
		(void) pushJsonbValue(&state, WJB_KEY, &member);
		if (JB_ROOT_IS_SCALAR(row->image.value))
			(void) JsonbExtractScalar(&row->image.value->root, &member);
		else
			JsonbToJsonbValue(row->image.value, &member);
		(void) pushJsonbValue(&state, WJB_VALUE, &member);
	}
	object = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	MemoryContextSwitchTo(caller);
	result = DatumGetJsonbPCopy(JsonbPGetDatum(object));
	MemoryContextDelete(scratch);
	return result;
}

/* Read the rows of all keys that the events' plans depend on; sorted, each once. */
static PresentRow *
read_present(Chunk *chunk, Datum **keys, int *nkeys, int count, int *nrows)
{
	PresentRow *rows;
	int			total = 0;
	int			unique = 0;
	Datum	   *asked;
	Datum		values[4];
	uint64		found;

	for (int i = 0; i < count; i++)
		total += nkeys[i];
	rows = palloc0(Max(total, 1) * sizeof(PresentRow));
	*nrows = 0;
	if (total == 0)
		return rows;
	for (int i = 0; i < count; i++)
		for (int j = 0; j < nkeys[i]; j++)
			rows[(*nrows)++].row_key = DatumGetTextPP(keys[i][j]);
	qsort(rows, total, sizeof(PresentRow), compare_present);
	for (int i = 1; i < total; i++)
		if (compare_present(&rows[unique], &rows[i]) != 0)
			rows[++unique] = rows[i];
	*nrows = unique + 1;

	asked = palloc(*nrows * sizeof(Datum));
	for (int i = 0; i < *nrows; i++)
		asked[i] = PointerGetDatum(rows[i].row_key);
	registry_instance(values, chunk->view, chunk->generation);
	values[3] = statement_text_array(asked, NULL, *nrows);
	found = statement_execute(STATEMENT_SAFE_READ, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		IndexEntry *entries;
		int			nentries;
		PresentRow *present = &rows[DatumGetInt64(statement_value(row, 1, &isnull)) - 1];

		row_writer_read_safe(row, 2, &present->image, &nentries, &entries);
	}
	return rows;
}

/* The events with their plans; with a key function each sees what those before it did. */
static Event *
plan_events(Chunk *chunk, SourceEvent *sources, int count)
{
	Projection *projection = &chunk->projection;
	bool		with_rows = projection->key_name != NULL;
	Event	   *events = palloc0(count * sizeof(Event));
	Datum	  **keys = palloc0(count * sizeof(Datum *));
	int		   *nkeys = palloc0(count * sizeof(int));
	PresentRow *rows = NULL;
	int			nrows = 0;

	if (with_rows)
	{
		for (int i = 0; i < count; i++)
			if (find_skipped(chunk, sources[i].event_id) == NULL)
				projection_keys(projection, sources[i].event_id, sources[i].event, &nkeys[i], &keys[i]);
		rows = read_present(chunk, keys, nkeys, count, &nrows);
	}
	for (int i = 0; i < count; i++)
	{
		SourceEvent *source = &sources[i];
		Event	   *event = &events[i];
		const SkippedEvent *skipped = find_skipped(chunk, source->event_id);
		Jsonb	   *present = NULL;
		Jsonb	   *plan;

		CHECK_FOR_INTERRUPTS();
		event->event_id = source->event_id;
		event->suid = source->suid;
		event->has_arrived_at = true;
		event->arrived_at = source->arrived_at;
		if (skipped != NULL)
		{
			(void) findings_record(chunk->view, chunk->generation, FINDING_SKIPPED_EVENT,
								   source->event_id, &source->suid, skipped->detail);
			continue;
		}
		if (with_rows)
			present = rows_object(rows, nrows, keys[i], nkeys[i]);
		plan = projection_plan(projection, source->event_id, source->event, present);
		projection_parse(projection, source->event_id, &source->suid, plan, &event->plan);
		for (int j = 0; with_rows && j < event->plan.nkeys; j++)
		{
			PresentRow *row = find_present(rows, nrows, event->plan.keys[j].row_key);

			if (row != NULL)
				(void) fold_step(&row->image, &event->suid, &event->plan.keys[j], true);
		}
		if (present != NULL && plan != present)
			pfree(present);
	}
	return events;
}

/* ---------- folding ---------- */

static bool
is_collision(int sqlstate)
{
	return ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_TRANSACTION_ROLLBACK ||
		sqlstate == ERRCODE_LOCK_NOT_AVAILABLE;
}

/* Is the error no event's fault? */
static bool
is_fatal(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_SYSTEM_ERROR:
		case ERRCODE_INTERNAL_ERROR:
			return true;
		default:
			return sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE;
	}
}

/* Fold events in a subtransaction; false leaves chunk->failure. */
static bool
try_fold(Chunk *chunk, SourceEvent *sources, int count)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	chunk->failure = NULL;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		lane_safe_fold(chunk->view, chunk->generation, plan_events(chunk, sources, count), count);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		chunk->failure = errors_roll_back(caller, owner);
		if (is_fatal(chunk->failure->sqlerrcode))
			ReThrowError(chunk->failure);
	}
	PG_END_TRY();
	return chunk->failure == NULL;
}

/* Fold events up to the first that fails; how many. */
static int
fold_events(Chunk *chunk, SourceEvent *sources, int count)
{
	int			done = 0;
	int			size = count;

	while (done < count)
	{
		int			take = Min(size, count - done);

		CHECK_FOR_INTERRUPTS();
		if (try_fold(chunk, &sources[done], take))
			done += take;
		else if (take == 1 || is_collision(chunk->failure->sqlerrcode))
			break;
		else
			size = take / 2;
	}
	return done;
}

/* Two events with one SUID, or an order that is none; true: the pass is refused. */
static bool
check_order(Chunk *chunk, const SourceEvent *events, int count)
{
	for (int i = 1; i < count; i++)
	{
		const SourceEvent *event = &events[i];

		if (suid_compare(&events[i - 1].suid, &event->suid) < 0)
			continue;
		(void) findings_record(chunk->view, chunk->generation, FINDING_ORDERING_QUARANTINE,
							   event->event_id, &event->suid,
							   findings_detail(psprintf("{\"code\": \"MV_ORDER_VIOLATION\", \"before\": \"%s\"}",
														suid_cstring(&events[i - 1].suid))));
		refuse(chunk->pass, MV_ORDERING_QUARANTINED,
			   psprintf("source gives event \"%s\" with SUID %s after SUID %s", mutation_clip(event->event_id),
						suid_cstring(&event->suid), suid_cstring(&events[i - 1].suid)));
		return true;
	}
	return false;
}

/* The next event failed again: say so and stop, or have it tried again. */
static void
take_failure(Chunk *chunk, const SourceEvent *event, bool known)
{
	CatchUp    *pass = chunk->pass;
	const ErrorData *failure = chunk->failure;
	StringInfoData detail;
	int64		attempts;

	if (is_collision(failure->sqlerrcode))
	{
		if (++pass->collisions > MAX_COLLISIONS)
			ReThrowError(chunk->failure);
		pass->pause = true;
		return;
	}
	pass->tries++;
	if (!known && pass->tries < EVENT_TRIES)
	{
		pass->pause = true;
		return;
	}
	initStringInfo(&detail);
	appendStringInfoString(&detail, "{\"error\": ");
	escape_json(&detail, failure->message);
	appendStringInfoString(&detail, ", \"code\": ");
	escape_json(&detail, failure->constraint_name != NULL ? failure->constraint_name :
				unpack_sql_state(failure->sqlerrcode));
	if (failure->detail != NULL)
	{
		appendStringInfoString(&detail, ", \"detail\": ");
		escape_json(&detail, failure->detail);
	}
	appendStringInfoChar(&detail, '}');
	attempts = findings_record(chunk->view, chunk->generation, FINDING_POISON_EVENT,
							   event->event_id, &event->suid, findings_detail(detail.data));
	stop_pass(pass, CATCHUP_POISON, true,
			  TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
										  (attempts > 9 ? 300 : Min(300, 1 << (Max(attempts, 1) - 1))) * 1000));
}

static void
write_progress(Chunk *chunk)
{
	CatchUp    *pass = chunk->pass;
	Datum		values[7];
	bool		nulls[7] = {0};

	registry_instance(values, chunk->view, chunk->generation);
	values[3] = CStringGetTextDatum(pass->rebuild ? "rebuild" : "follow");
	values[4] = Int64GetDatum(pass->folded);
	values[5] = Int64GetDatum(pass->total);
	nulls[5] = pass->total < 0;
	values[6] = TimestampTzGetDatum(pass->started_at);
	(void) statement_execute(STATEMENT_PROGRESS_WRITE, values, nulls);
}

static void
fold_chunk(void *argument)
{
	CatchUp    *pass = argument;
	Chunk		chunk;
	SourceEvent *events;
	int64		asked = pass->chunk;
	int			count;
	int			readable;
	int			fit = 0;
	int			done;
	ErrorData  *unreadable;
	bool		poisoned;
	text	   *poison = NULL;

	pass->pause = false;
	if (!open_chunk(pass, &chunk))
		return;
	if (pass->rebuild)
		catchup_renew(chunk.view, chunk.generation);
	read_window(&chunk);
	if (pass->has_max_events)
		asked = Min(asked, pass->max_events - pass->folded);
	if (chunk.above_ceiling)
	{
		stop_pass(pass, "safe_window_ceiling", true, chunk.ceiling_deadline);
		return;
	}

	/*
	 * One more than asked, to know whether there is one, and of the same
	 * SUID.
	 */
	count = source_read(&chunk.projection, chunk.state.has_head ? &chunk.state.head : NULL,
						asked + 1, &events, &readable, &unreadable);
	if (check_order(&chunk, events, count))
		return;
	while (fit < Min(count, asked) && old_enough(&chunk, &events[fit]) &&
		   !(pass->has_maximum && suid_compare(&events[fit].suid, &pass->maximum) > 0))
		fit++;
	if (pass->total < 0 && fit == asked && count > asked && asked > 0)
		pass->total = pass->folded + source_count(&chunk.projection,
												  chunk.state.has_head ? &chunk.state.head : NULL,
												  pass->has_maximum ? &pass->maximum : NULL);

	poisoned = find_finding(&chunk, FINDING_POISON_EVENT, chunk.state.has_head ? &chunk.state.head : NULL);
	if (poisoned)
	{
		bool		isnull;
		TimestampTz due = DatumGetTimestampTz(statement_value(0, 4, &isnull));
		bool		is_due = DatumGetBool(statement_value(0, 5, &isnull));

		poison = DatumGetTextPP(statement_value(0, 1, &isnull));
		if (fit > 0 && !is_due && pass->tries == 0 &&
			mutation_compare_text(poison, events[0].event_id) == 0)
		{
			stop_pass(pass, CATCHUP_POISON, true, due);
			return;
		}
	}

	read_skipped(&chunk);
	if (readable == 0 && fit > 0 && find_skipped(&chunk, events[0].event_id) != NULL)
		readable = 1;			/* nobody looks at what it says */
	done = fold_events(&chunk, events, Min(fit, readable));
	if (done > 0)
	{
		pass->folded += done;
		pass->head = events[done - 1].suid;
		pass->has_head = true;
		pass->tries = 0;
		pass->collisions = 0;
		write_progress(&chunk);
		for (int i = 0; poisoned && i < done; i++)
			if (mutation_compare_text(poison, events[i].event_id) == 0)
				(void) findings_resolve(chunk.view, chunk.generation, FINDING_POISON_EVENT, poison);
	}
	if (done < fit && done == readable && done > 0)
		return;					/* and on */
	if (done < fit && done == readable)
		chunk.failure = unreadable;
	if (done < fit)
		take_failure(&chunk, &events[done],
					 poisoned && mutation_compare_text(poison, events[done].event_id) == 0);
	else if (fit < Min(count, asked))
	{
		TimestampTz deadline = 0;
		bool		has_deadline;

		if (pass->has_maximum && suid_compare(&events[fit].suid, &pass->maximum) > 0)
			stop_pass(pass, "maximum_suid", false, 0);
		else
		{
			has_deadline = read_deadline(&chunk, &events[fit], &deadline);
			stop_pass(pass, "safe_window_fence", has_deadline, deadline);
		}
	}
	else if (count <= asked)
		stop_pass(pass, find_finding(&chunk, FINDING_SKIPPED_EVENT, NULL) ? "skipped_event" : CATCHUP_CAUGHT_UP,
				  false, 0);
	else if (pass->has_max_events && pass->folded >= pass->max_events)
		stop_pass(pass, "max_events", false, 0);
}

/* ---------- a pass ---------- */

void
catchup_pass(CatchUp *pass)
{
	pass->context = CurrentMemoryContext;
	pass->started_at = GetCurrentTimestamp();
	pass->total = -1;
	pass->stop = NULL;
	pass->refusal = ERROR_NONE;
	catchup_transaction(look, pass, 10);
	while (pass->stop == NULL && pass->refusal == ERROR_NONE)
	{
		catchup_transaction(fold_chunk, pass, 20);
		if (pass->pause)
			catchup_sleep(EVENT_PAUSE_MS << Min(pass->tries + pass->collisions, 5));
	}
	if (pass->refusal != ERROR_NONE)
		stop_pass(pass, pass->refusal == MV_CHECKPOINT_AHEAD ? "checkpoint_ahead" : "ordering_quarantined",
				  false, 0);
}

/* ---------- a rebuild's lease ---------- */

Interval *
catchup_lease(void)
{
	Interval   *lease = palloc0(sizeof(Interval));

	lease->time = 60 * USECS_PER_SEC;
	return lease;
}

void
catchup_renew(const View *view, int64 generation)
{
	Datum		values[6];

	registry_instance(values, view, generation);
	values[3] = IntervalPGetDatum(catchup_lease());
	values[4] = Int64GetDatum(MyProcPid);
	values[5] = TimestampTzGetDatum(MyStartTimestamp);
	if (statement_execute(STATEMENT_REBUILD_RENEW, values, NULL) == 0)
		RAISE(MV_REBUILD_RUNNING, errmsg("another session took this rebuild over"),
			  registry_errdetail_generation(view, generation));
}
