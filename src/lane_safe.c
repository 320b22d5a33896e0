/*
 * lane_safe.c
 *	  The safe lane: folds events in SUID order, a checkpoint step per call (core 7).
 *
 * Protocol: the generation's row is locked first, so that steps of a generation
 * come one after the other; then all receipts of the step, in SUID order (waiting
 * for unsafe transactions that are claiming them); then safe rows and index entries
 * are written, which nobody else writes; then the head; last the tentative rows of
 * the touched keys, skipping those an unsafe transaction holds.  It never waits for
 * the view's lock.
 *
 * All or nothing with the caller's transaction: rows, entries, head, receipts and
 * findings always fit together, also after a crash.  An unsettled receipt at or
 * below the new head is an event the lane passed over: from then on the generation
 * needs a rebuild.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/cryptohash.h"
#include "common/int.h"
#include "common/sha2.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "event.h"
#include "findings.h"
#include "kept.h"
#include "lane_safe.h"
#include "library.h"
#include "receipts.h"
#include "registry.h"
#include "row_writer.h"
#include "statement.h"

/* A safe row that the step touches. */
typedef struct SafeKey
{
	const text *row_key;
	bool		existed;
	RowImage	image;
	int			nbefore;		/* entries stored before the step */
	IndexEntry *before;
} SafeKey;

typedef struct SafeStep
{
	const View *view;
	int64		generation;
	Generation	state;
	int			count;
	Event	   *events;
	Event	  **by_id;			/* the same, in order of their ids */
	int			nkeys;
	SafeKey    *keys;			/* in C byte order */
	bool		has_head;		/* after the step */
	Suid		head;
	bool		has_floor;
	Suid		floor;
	int64		row_count;
	int			contradiction;	/* first event that contradicts its receipt,
								 * or count */
	Suid		known_suid;		/* what that receipt has */

	/* the answer */
	int64		upserts;
	int64		patches;
	int64		deletes;
	int64		entries;
} SafeStep;

/* Begin where the locked generation is. */
static void
take_state(SafeStep *step)
{
	step->has_head = step->state.has_head;
	step->head = step->state.head;
	step->has_floor = step->state.has_floor;
	step->floor = step->state.floor;
	step->row_count = step->state.row_count;
}

/* Lock the generation's row and check everything the caller expects of it. */
static void
lock_generation(SafeStep *step, bool has_generation, int64 generation,
				bool has_definition, int64 definition_version, const Suid *expected)
{
	Generation *state = &step->state;
	bool		found;

	for (;;)
	{
		step->generation = registry_resolve_generation(step->view, has_generation, generation);
		found = registry_lock_generation(step->view, step->generation, state);
		if (has_generation || (found && strcmp(state->status, "active") == 0))
			break;

		/* Another one became active while we waited for the row? */
		CHECK_FOR_INTERRUPTS();
		step->view = registry_current_view(step->view->service_id, step->view->view_id);
		if (registry_resolve_generation(step->view, false, 0) == step->generation)
			break;
	}
	if (!found)
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
			  registry_errdetail_generation(step->view, step->generation));
	if (strcmp(state->status, "active") != 0 && strcmp(state->status, "candidate") != 0)
		RAISE(MV_GENERATION_INVALID, errmsg("generation is %s", state->status),
			  registry_errdetail_generation(step->view, step->generation),
			  errhint("Only the active generation and candidates can be written."));
	if (has_definition && definition_version != state->definition_version)
		RAISE(MV_DEFINITION_MISMATCH,
			  errmsg("generation has definition version %lld, not %lld",
					 (long long) state->definition_version, (long long) definition_version),
			  registry_errdetail_generation(step->view, step->generation));
	if (state->has_head != (expected != NULL) ||
		(expected != NULL && suid_compare(expected, &state->head) != 0))
		RAISE(MV_CAS_MISMATCH,
			  errmsg("head is %s, expected was %s",
					 suid_cstring(state->has_head ? &state->head : NULL),
					 suid_cstring(expected)),
			  registry_errdetail_generation(step->view, step->generation),
			  errhint("Read the head again and retry from there."));

	take_state(step);
}

static int
compare_event_ids(const void *a, const void *b)
{
	const Event *event_a = *(Event *const *) a;
	const Event *event_b = *(Event *const *) b;

	return mutation_compare_text(event_a->event_id, event_b->event_id);
}

static void
raise_contradiction(const SafeStep *step, const Event *event, const Suid *known)
{
	RAISE(UNSAFE_SUID_CONTRADICTION,
		  errmsg("event is known with another SUID, %s", suid_cstring(known)),
		  registry_errdetail_event(step->view, step->generation, event->event_id, &event->suid),
		  errhint("An event has one SUID; look for the producer that broke this."));
}

/* SUIDs strictly increase from the head, and no event comes twice. */
static void
check_order(SafeStep *step)
{
	Event	  **order = palloc(Max(step->count, 1) * sizeof(Event *));

	step->by_id = order;
	for (int i = 0; i < step->count; i++)
	{
		Event	   *event = &step->events[i];

		if (step->has_head && suid_compare(&event->suid, &step->head) <= 0)
			RAISE(MV_ORDER_VIOLATION,
				  errmsg("SUID does not lie above the one before it, %s", suid_cstring(&step->head)),
				  registry_errdetail_event(step->view, step->generation, event->event_id, &event->suid),
				  errhint("Give the events in SUID order, each once, starting above the head."));
		step->head = event->suid;
		step->has_head = true;
		order[i] = event;
	}
	qsort(order, step->count, sizeof(Event *), compare_event_ids);
	for (int i = 1; i < step->count; i++)
		if (mutation_compare_text(order[i - 1]->event_id, order[i]->event_id) == 0)
			raise_contradiction(step, order[i], &order[i - 1]->suid);
}

static Event *
find_event(const SafeStep *step, text *event_id)
{
	Event		wanted;
	Event	   *key = &wanted;
	Event	  **found;

	wanted.event_id = event_id;
	found = bsearch(&key, step->by_id, step->count, sizeof(Event *), compare_event_ids);
	if (found == NULL)
		elog(ERROR, "receipt of an event that is not in the step");
	return *found;
}

/* Compare the SUIDs that a settling statement returned with the events'. */
static void
note_contradictions(SafeStep *step, uint64 rows)
{
	for (uint64 row = 0; row < rows; row++)
	{
		bool		isnull;
		Event	   *event = find_event(step, DatumGetTextPP(statement_value(row, 1, &isnull)));
		int			position = event - step->events;
		Suid		known;

		(void) statement_suid(row, 2, &known);
		if (suid_compare(&known, &event->suid) != 0 && position < step->contradiction)
		{
			step->contradiction = position;
			step->known_suid = known;
		}
	}
}

/*
 * Which events get a receipt?  Those that arrived within the retention or since the
 * late horizon; in a
 * candidate also those the active generation has a receipt of, since promotion
 * compares the two.
 */
static bool *
wants_receipt(const SafeStep *step, TimestampTz now)
{
	bool	   *wanted = palloc(step->count * sizeof(bool));
	Datum	   *old_ids = palloc(step->count * sizeof(Datum));
	int			nold = 0;
	TimestampTz horizon = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_mi_interval,
																  TimestampTzGetDatum(now),
																  IntervalPGetDatum(step->state.retention)));

	for (int i = 0; i < step->count; i++)
	{
		const Event *event = &step->events[i];

		wanted[i] = !event->has_arrived_at || event->arrived_at >= horizon ||
			(step->state.has_late_horizon && event->arrived_at >= step->state.late_horizon);
		if (!wanted[i])
			old_ids[nold++] = PointerGetDatum(event->event_id);
	}
	if (nold > 0 && step->view->has_active && strcmp(step->state.status, "candidate") == 0)
	{
		Datum		values[4];
		uint64		found;

		registry_instance(values, step->view, step->generation);
		values[2] = Int64GetDatum(step->view->active_generation);
		values[3] = statement_text_array(old_ids, NULL, nold);
		found = statement_execute(STATEMENT_RECEIPT_KNOWN, values, NULL);
		for (uint64 row = 0; row < found; row++)
		{
			bool		isnull;

			wanted[find_event(step, DatumGetTextPP(statement_value(row, 1, &isnull))) - step->events] = true;
		}
	}
	return wanted;
}

/*
 * Every event has a settled receipt afterwards; but one that arrived longer ago
 * than the retention gets no new receipt, the floor rises instead.
 */
static void
settle_receipts(SafeStep *step)
{
	Datum	   *ids = palloc(step->count * sizeof(Datum));
	Datum	   *suids = palloc(step->count * sizeof(Datum));
	Datum	   *observed = palloc(step->count * sizeof(Datum));
	Datum	   *old_ids = palloc(step->count * sizeof(Datum));
	int			nasked = 0;
	int			nold = 0;
	TimestampTz now = GetCurrentTimestamp();
	bool	   *wanted = wants_receipt(step, now);
	Datum		values[6];

	for (int i = 0; i < step->count; i++)
	{
		const Event *event = &step->events[i];

		if (!wanted[i])
		{
			old_ids[nold++] = PointerGetDatum(event->event_id);
			step->floor = event->suid;
			step->has_floor = true;
			continue;
		}
		ids[nasked] = PointerGetDatum(event->event_id);
		suids[nasked] = SuidPGetDatum(&event->suid);
		observed[nasked++] = TimestampTzGetDatum(event->has_arrived_at ? event->arrived_at : now);
	}

	step->contradiction = step->count;
	registry_instance(values, step->view, step->generation);
	if (nasked > 0)
	{
		uint64		settled;

		values[3] = statement_text_array(ids, NULL, nasked);
		values[4] = statement_suid_array(suids, NULL, nasked);
		values[5] = statement_timestamp_array(observed, nasked);
		settled = statement_execute(STATEMENT_RECEIPT_SETTLE, values, NULL);
		if (settled != (uint64) nasked)
			elog(ERROR, "settled " UINT64_FORMAT " receipts instead of %d", settled, nasked);
		note_contradictions(step, settled);
	}
	if (nold > 0)
	{
		values[3] = statement_text_array(old_ids, NULL, nold);
		note_contradictions(step, statement_execute(STATEMENT_RECEIPT_SETTLE_KNOWN, values, NULL));
	}
}

static int
compare_safe_keys(const void *a, const void *b)
{
	return mutation_compare_text(((const SafeKey *) a)->row_key, ((const SafeKey *) b)->row_key);
}

static SafeKey *
find_key(SafeStep *step, const text *row_key)
{
	SafeKey		wanted = {.row_key = row_key};

	return bsearch(&wanted, step->keys, step->nkeys, sizeof(SafeKey), compare_safe_keys);
}

/* The rows the step touches, as they are. */
static void
read_rows(SafeStep *step)
{
	int			total = 0;
	int			unique = 0;
	Datum	   *keys;
	Datum		values[4];
	uint64		found;

	for (int i = 0; i < step->count; i++)
		total += step->events[i].plan.nkeys;
	step->keys = palloc0(Max(total, 1) * sizeof(SafeKey));
	for (int i = 0; i < step->count; i++)
		for (int j = 0; j < step->events[i].plan.nkeys; j++)
			step->keys[step->nkeys++].row_key = step->events[i].plan.keys[j].row_key;
	if (step->nkeys == 0)
		return;
	qsort(step->keys, step->nkeys, sizeof(SafeKey), compare_safe_keys);
	for (int i = 1; i < step->nkeys; i++)
		if (mutation_compare_text(step->keys[unique].row_key, step->keys[i].row_key) != 0)
			step->keys[++unique] = step->keys[i];
	step->nkeys = unique + 1;

	keys = palloc(step->nkeys * sizeof(Datum));
	for (int i = 0; i < step->nkeys; i++)
		keys[i] = PointerGetDatum(step->keys[i].row_key);
	registry_instance(values, step->view, step->generation);
	values[3] = statement_text_array(keys, NULL, step->nkeys);
	found = statement_execute(STATEMENT_SAFE_READ, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		SafeKey    *key = &step->keys[DatumGetInt64(statement_value(row, 1, &isnull)) - 1];

		row_writer_read_safe(row, 2, &key->image, &key->nbefore, &key->before);
		key->existed = key->image.present;
	}
}

/* Fold; the first event that is no good is the one reported. */
static void
fold_step_events(SafeStep *step)
{
	for (int i = 0; i < step->count; i++)
	{
		Event	   *event = &step->events[i];

		CHECK_FOR_INTERRUPTS();
		for (int j = 0; j < event->plan.nkeys; j++)
		{
			const KeyOperations *operations = &event->plan.keys[j];

			if (!fold_step(&find_key(step, operations->row_key)->image, &event->suid, operations, true))
				RAISE(MV_PATCH_ROW_MISSING,
					  errmsg("patch of row \"%s\", which does not exist", mutation_clip(operations->row_key)),
					  registry_errdetail_event(step->view, step->generation, event->event_id, &event->suid),
					  errhint("Give the patch \"create\": true, or leave the event out on purpose."));
		}
		if (i == step->contradiction)
			raise_contradiction(step, event, &step->known_suid);
		step->upserts += event->plan.upserts;
		step->patches += event->plan.patches;
		step->deletes += event->plan.deletes;
	}
}

/* Entries to delete and insert, as arrays of keys and [id, type, value]. */
typedef struct EntryList
{
	int			count;
	int			allocated;
	Datum	   *keys;
	Datum	   *entries;
	bool	   *whole_row;
} EntryList;

static void
add_entry(EntryList *list, const text *row_key, const IndexEntry *entry)
{
	int			i = list->count++;

	if (i == list->allocated)
	{
		list->allocated = Max(16, 2 * i);
		list->keys = i == 0 ? palloc(list->allocated * sizeof(Datum)) :
			repalloc(list->keys, list->allocated * sizeof(Datum));
		list->entries = i == 0 ? palloc(list->allocated * sizeof(Datum)) :
			repalloc(list->entries, list->allocated * sizeof(Datum));
		list->whole_row = i == 0 ? palloc(list->allocated * sizeof(bool)) :
			repalloc(list->whole_row, list->allocated * sizeof(bool));
	}
	list->keys[i] = PointerGetDatum(row_key);
	list->whole_row[i] = entry == NULL;
	list->entries[i] = entry == NULL ? (Datum) 0 : JsonbPGetDatum(kept_entry_to_jsonb(entry));
}

/* A counter of the generation's row, which somebody may have written by hand. */
static int64
add_count(const SafeStep *step, int64 count, int64 more)
{
	int64		result;

	if (pg_add_s64_overflow(count, more, &result))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("bigint out of range"),
				 registry_errdetail_generation(step->view, step->generation)));
	return result;
}

/* The difference between the entries stored and those the row has now. */
static void
diff_entries(SafeKey *key, const DeclaredIndexes *declared, EntryList *gone, EntryList *new)
{
	IndexEntry *after;
	int			nafter;
	int			i = 0;
	int			j = 0;

	fold_entries(&key->image, declared, &nafter, &after);
	if (nafter == 0)
	{
		if (key->nbefore > 0)
			add_entry(gone, key->row_key, NULL);
		return;
	}
	while (i < key->nbefore || j < nafter)
	{
		int			order = i == key->nbefore ? 1 : j == nafter ? -1 :
		index_entry_compare(&key->before[i], &after[j]);

		if (order == 0 && key->before[i].derived == after[j].derived)
		{
			i++;
			j++;
			continue;
		}
		if (order <= 0)
			add_entry(gone, key->row_key, &key->before[i++]);
		if (order >= 0)
			add_entry(new, key->row_key, &after[j++]);
	}
}

static void
write_rows(SafeStep *step)
{
	Datum	   *keys = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	Datum	   *suids = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	Datum	   *versions = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	Datum	   *contents = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	Datum	   *deletes = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	int			nstores = 0;
	int			ndeletes = 0;
	EntryList	gone = {0};
	EntryList	new = {0};
	Datum		values[7];

	for (int i = 0; i < step->nkeys; i++)
	{
		SafeKey    *key = &step->keys[i];

		if (key->image.present)
		{
			keys[nstores] = PointerGetDatum(key->row_key);
			suids[nstores] = SuidPGetDatum(&key->image.source_suid);
			versions[nstores] = Int64GetDatum(key->image.row_version);
			contents[nstores++] = JsonbPGetDatum(key->image.value);
		}
		else if (key->existed)
			deletes[ndeletes++] = PointerGetDatum(key->row_key);
		step->row_count = add_count(step, step->row_count,
									(int) key->image.present - (int) key->existed);
		diff_entries(key, &step->view->declared, &gone, &new);
	}

	registry_instance(values, step->view, step->generation);
	if (nstores > 0)
	{
		values[3] = statement_text_array(keys, NULL, nstores);
		values[4] = statement_suid_array(suids, NULL, nstores);
		values[5] = statement_bigint_array(versions, NULL, nstores);
		values[6] = statement_jsonb_array(contents, NULL, nstores);
		(void) statement_execute(STATEMENT_SAFE_STORE, values, NULL);
	}
	if (ndeletes > 0)
	{
		values[3] = statement_text_array(deletes, NULL, ndeletes);
		(void) statement_execute(STATEMENT_SAFE_DELETE, values, NULL);
	}
	if (gone.count > 0)
	{
		values[3] = statement_text_array(gone.keys, NULL, gone.count);
		values[4] = statement_jsonb_array(gone.entries, gone.whole_row, gone.count);
		(void) statement_execute(STATEMENT_ENTRY_DELETE, values, NULL);
	}
	if (new.count > 0)
	{
		values[3] = statement_text_array(new.keys, NULL, new.count);
		values[4] = statement_jsonb_array(new.entries, new.whole_row, new.count);
		(void) statement_execute(STATEMENT_ENTRY_INSERT, values, NULL);
	}
	step->entries = new.count;
}

/* SHA-256 over the previous digest, the digits of the SUID and the event id. */
void
lane_safe_digest(uint8 *digest, bool has_digest, const text *event_id, const Suid *suid)
{
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);
	char		printed[SUID_TEXT_LENGTH + 1];

	suid_print(suid, printed);
	if (context == NULL ||
		pg_cryptohash_init(context) < 0 ||
		(has_digest && pg_cryptohash_update(context, digest, PG_SHA256_DIGEST_LENGTH) < 0) ||
		pg_cryptohash_update(context, (uint8 *) printed, SUID_TEXT_LENGTH) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) VARDATA_ANY(event_id),
							 VARSIZE_ANY_EXHDR(event_id)) < 0 ||
		pg_cryptohash_final(context, digest, PG_SHA256_DIGEST_LENGTH) < 0)
		elog(ERROR, "could not compute the history digest");
	pg_cryptohash_free(context);
}

bytea *
lane_safe_digest_value(const uint8 *digest)
{
	bytea	   *result = palloc(VARHDRSZ + PG_SHA256_DIGEST_LENGTH);

	SET_VARSIZE(result, VARHDRSZ + PG_SHA256_DIGEST_LENGTH);
	memcpy(VARDATA(result), digest, PG_SHA256_DIGEST_LENGTH);
	return result;
}

static void
write_head(SafeStep *step)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	bool		has_digest = step->state.history_digest != NULL;
	Datum		values[8];
	bool		nulls[8] = {0};

	if (has_digest)
	{
		if (VARSIZE_ANY_EXHDR(step->state.history_digest) != PG_SHA256_DIGEST_LENGTH)
			RAISE_CORRUPTED(errmsg("history digest has %d bytes, not %d",
								   (int) VARSIZE_ANY_EXHDR(step->state.history_digest),
								   PG_SHA256_DIGEST_LENGTH));
		memcpy(digest, VARDATA_ANY(step->state.history_digest), PG_SHA256_DIGEST_LENGTH);
	}
	for (int i = 0; i < step->count; i++)
	{
		lane_safe_digest(digest, has_digest, step->events[i].event_id, &step->events[i].suid);
		has_digest = true;
	}
	registry_instance(values, step->view, step->generation);
	values[3] = SuidPGetDatum(&step->head);
	values[4] = Int64GetDatum(step->row_count);
	values[5] = Int64GetDatum(add_count(step, step->state.history_count, step->count));
	values[6] = PointerGetDatum(lane_safe_digest_value(digest));
	values[7] = SuidPGetDatum(&step->floor);
	nulls[7] = !step->has_floor;
	(void) statement_execute(STATEMENT_HEAD_WRITE, values, nulls);
}

/*
 * Tentative rows of the touched keys: gone if nothing is left above the head,
 * refolded if they keep operations and their base has moved.
 */
static void
collect_tentative(SafeStep *step)
{
	Datum	   *keys = palloc(Max(step->nkeys, 1) * sizeof(Datum));
	TentativeWrites writes;
	TentativeRow *rows;
	int		   *positions;
	Datum		values[5];
	uint64		found;

	if (step->nkeys == 0)
		return;
	for (int i = 0; i < step->nkeys; i++)
		keys[i] = PointerGetDatum(step->keys[i].row_key);
	registry_instance(values, step->view, step->generation);
	values[3] = statement_text_array(keys, NULL, step->nkeys);
	values[4] = SuidPGetDatum(&step->head);
	found = statement_execute(STATEMENT_TENTATIVE_TOUCHED, values, NULL);
	if (found == 0)
		return;

	rows = palloc(found * sizeof(TentativeRow));
	positions = palloc(found * sizeof(int));
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;

		positions[row] = DatumGetInt64(statement_value(row, 1, &isnull)) - 1;
		row_writer_read_tentative(row, 2, &rows[row]);
	}
	row_writer_begin(&writes, found);
	for (uint64 row = 0; row < found; row++)
	{
		SafeKey    *key = &step->keys[positions[row]];

		CHECK_FOR_INTERRUPTS();
		if (!fold_counts(&rows[row], &step->head))
			row_writer_delete(&writes, key->row_key);
		else if (fold_stale(&rows[row], &step->head, &key->image))
		{
			fold_refresh(&rows[row], &step->head, &key->image);
			row_writer_store(&writes, key->row_key, &rows[row], &step->view->declared);
		}
	}
	row_writer_end(&writes, step->view, step->generation);
}

/*
 * Unsettled receipts at or below the head.  Those without an effect are settled;
 * any other is an event that was passed over.
 */
static void
look_for_passed_over(SafeStep *step)
{
	Datum		values[5];
	Datum	   *harmless;
	Datum	   *harmless_suids;
	int			nharmless = 0;
	text	   *offender = NULL;
	Suid		offender_suid;
	uint64		found;

	if (!step->has_head)
		return;
	registry_instance(values, step->view, step->generation);
	values[3] = SuidPGetDatum(&step->head);
	found = statement_execute(STATEMENT_RECEIPT_PASSED_OVER, values, NULL);
	if (found == 0)
		return;

	harmless = palloc(found * sizeof(Datum));
	harmless_suids = palloc(found * sizeof(Datum));
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		text	   *event_id = DatumGetTextPP(statement_value(row, 1, &isnull));
		Datum		suid = statement_value(row, 2, &isnull);

		if (strcmp(TextDatumGetCString(statement_value(row, 3, &isnull)),
				   receipts_outcome_name(OUTCOME_NO_CHANGE)) == 0)
		{
			harmless[nharmless] = PointerGetDatum(event_id);
			harmless_suids[nharmless++] = suid;
		}
		else if (offender == NULL)
		{
			offender = event_id;
			offender_suid = *DatumGetSuidP(suid);
		}
	}
	if (nharmless > 0)
	{
		values[3] = statement_text_array(harmless, NULL, nharmless);
		(void) statement_execute(STATEMENT_RECEIPT_SETTLE_KNOWN, values, NULL);
		receipts_unmark(step->view, step->generation, harmless_suids, nharmless);
	}
	if (offender != NULL && !step->state.rebuild_required)
	{
		values[3] = PointerGetDatum(offender);
		values[4] = SuidPGetDatum(&offender_suid);
		(void) statement_execute(STATEMENT_REBUILD_REQUIRED, values, NULL);

		(void) findings_record(step->view, step->generation, FINDING_SKIPPED_EVENT, offender, &offender_suid,
							   findings_detail(psprintf("{\"head\": \"%s\"}", suid_cstring(&step->head))));
	}
}

static void
run_step(SafeStep *step)
{
	check_order(step);
	if (step->count > 0)
	{
		Datum	   *suids = palloc(step->count * sizeof(Datum));

		settle_receipts(step);
		read_rows(step);
		fold_step_events(step);
		write_rows(step);
		write_head(step);
		for (int i = 0; i < step->count; i++)
			suids[i] = SuidPGetDatum(&step->events[i].suid);
		receipts_unmark(step->view, step->generation, suids, step->count);
		collect_tentative(step);
	}
	look_for_passed_over(step);
}

/* ---------- for other rooms ---------- */

void
lane_safe_fold(const View *view, int64 generation, Event *events, int count)
{
	SafeStep	step = {0};
	Generation *state = &step.state;

	step.view = view;
	step.generation = generation;
	step.events = events;
	step.count = count;
	if (!registry_lock_generation(view, generation, state))
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
			  registry_errdetail_generation(view, generation));
	take_state(&step);
	run_step(&step);
}

/* ---------- public functions ---------- */

UNSAFEMV_FUNCTION(unsafemv_apply_safe);
UNSAFEMV_FUNCTION(unsafemv_apply_safe_batch);
UNSAFEMV_FUNCTION(unsafemv_history_digest);

static Datum
step_result(FunctionCallInfo fcinfo, const SafeStep *step)
{
	TupleDesc	type;
	Datum		values[5];
	bool		nulls[5] = {0};

	if (get_call_result_type(fcinfo, NULL, &type) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	nulls[0] = !step->has_head;
	values[0] = step->has_head ? suid_text_datum(&step->head) : (Datum) 0;
	values[1] = Int64GetDatum(step->upserts);
	values[2] = Int64GetDatum(step->patches);
	values[3] = Int64GetDatum(step->deletes);
	values[4] = Int64GetDatum(step->entries);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(type), values, nulls));
}

#define OPTIONAL_BIGINT(argno) \
	!PG_ARGISNULL(argno), PG_ARGISNULL(argno) ? 0 : PG_GETARG_INT64(argno)

Datum
unsafemv_apply_safe(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	SafeStep	step = {0};
	Event		event = {0};
	MutationSource source;

	event.suid = *registry_suid_argument(fcinfo, 3, "last_suid");
	registry_require(fcinfo, 4, "mutations");
	event.event_id = registry_event_argument(fcinfo, 5);

	statement_begin();
	step.view = registry_current_view(service_id, view_id);
	source.service_id = service_id;
	source.view_id = view_id;
	source.event_id = event.event_id;
	source.position = -1;
	(void) mutation_parse(PG_GETARG_JSONB_P(4), &event.suid, &step.view->declared, &source,
						  &event.plan, NULL);
	step.events = &event;
	step.count = 1;
	lock_generation(&step, OPTIONAL_BIGINT(6), OPTIONAL_BIGINT(7),
					PG_ARGISNULL(2) ? NULL : PG_GETARG_SUID_P(2));
	run_step(&step);
	statement_end();
	return step_result(fcinfo, &step);
}

Datum
unsafemv_apply_safe_batch(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	SafeStep	step = {0};

	registry_require(fcinfo, 3, "events");
	statement_begin();
	step.view = registry_current_view(service_id, view_id);
	event_parse_batch(PG_GETARG_JSONB_P(3), service_id, view_id, &step.view->declared,
					  true, false, &step.count, &step.events);
	lock_generation(&step, OPTIONAL_BIGINT(4), OPTIONAL_BIGINT(5),
					PG_ARGISNULL(2) ? NULL : PG_GETARG_SUID_P(2));
	run_step(&step);
	statement_end();
	return step_result(fcinfo, &step);
}

Datum
unsafemv_history_digest(PG_FUNCTION_ARGS)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	text	   *event_id = registry_event_argument(fcinfo, 1);
	const Suid *suid = registry_suid_argument(fcinfo, 2, "suid");

	if (!PG_ARGISNULL(0))
	{
		bytea	   *previous = PG_GETARG_BYTEA_PP(0);

		if (VARSIZE_ANY_EXHDR(previous) != PG_SHA256_DIGEST_LENGTH)
			RAISE(MV_VALUE_INVALID, errmsg("previous digest has %d bytes, not %d",
										   (int) VARSIZE_ANY_EXHDR(previous), PG_SHA256_DIGEST_LENGTH));
		memcpy(digest, VARDATA_ANY(previous), PG_SHA256_DIGEST_LENGTH);
	}
	lane_safe_digest(digest, !PG_ARGISNULL(0), event_id, suid);
	PG_RETURN_BYTEA_P(lane_safe_digest_value(digest));
}
