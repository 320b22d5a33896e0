/*
 * lane_unsafe.c
 *	  The unsafe lane: applies events the moment they are delivered (core 6).
 *
 * Protocol, for a batch; a single event is a batch of one:
 *
 *	 1. the view's shared lock, then the active generation;
 *	 2. receipts are claimed, in SUID order, by one insert that waits for whoever
 *	    claims the same event; events that have one are answered from it;
 *	 3. the keys touched are locked, in C byte order, by one insert.  A key that one
 *	    event upserts, and nothing else in the call touches, is written by the same
 *	    insert if it is newer than what is there;
 *	 4. head, and the tentative and safe rows of the keys not written yet, are read
 *	    in one snapshot taken after the last lock was granted;
 *	 5. events are judged and folded in memory, in the order given;
 *	 6. what changed is written: rows, outcomes that differ from the claimed ones,
 *	    markers.
 *
 * No row shared by a view is written.  Everything is the caller's transaction: a
 * rollback or crash leaves nothing.  An event that the head passes while the call
 * runs is judged late in step 5; what step 3 wrote for it lies at or below the head,
 * counts for nothing, and is deleted.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "event.h"
#include "kept.h"
#include "lane_unsafe.h"
#include "library.h"
#include "receipts.h"
#include "registry.h"
#include "row_writer.h"
#include "statement.h"

/* One event of the call, and what became of it. */
typedef struct Delivery
{
	Event	   *event;
	Claim	   *claim;
	bool		repeated;		/* an earlier one of the call has the same
								 * claim */
	bool	   *done;			/* of the claim: an event of it was taken in */
	Outcome		outcome;
	bool		duplicate;
} Delivery;

/* A key that fresh events of the call touch. */
typedef struct TouchedKey
{
	const text *row_key;
	const Event *event;			/* one that touches it, the newest */
	const KeyOperations *operations;
	int			touches;
	bool		written;		/* by the locking insert */
	bool		claimed;		/* inserted as absent by the locking insert */
	bool		changed;
	bool		void_write;		/* written for an event that is late */
	TentativeRow row;
	RowImage	base;
} TouchedKey;

typedef struct ApplyCall
{
	const View *view;
	int64		generation;
	bool		record_arrival;
	bool		report;
	bool		has_safe_head;
	Suid		safe_head;
	TimestampTz observed_at;

	const RowsPlan *rows_plan;	/* of the call's only event, or NULL */

	Generation	state;
	int			nkeys;
	TouchedKey *keys;			/* in C byte order */

	/* to be written at the end */
	int			nmarkers;
	int			markers_allocated;
	Datum	   *marker_events;
	Datum	   *marker_suids;
	Datum	   *marker_keys;
	Datum	   *marker_reasons;
} ApplyCall;

static int
compare_touched(const void *a, const void *b)
{
	return mutation_compare_text(((const TouchedKey *) a)->row_key,
								 ((const TouchedKey *) b)->row_key);
}

static TouchedKey *
find_key(ApplyCall *call, const text *row_key)
{
	TouchedKey	wanted = {.row_key = row_key};

	if (call->nkeys == 1)
		return &call->keys[0];
	return bsearch(&wanted, call->keys, call->nkeys, sizeof(TouchedKey), compare_touched);
}

/*
 * Does the event touch its keys?  Not without a receipt of ours; and one that
 * comes again in the call only if the first might be refused.
 */
static bool
touches_keys(const ApplyCall *call, const Delivery *delivery)
{
	return delivery->claim != NULL && delivery->claim->state == CLAIM_NEW &&
		(call->report || !delivery->repeated);
}

/* The keys that events touch, each once, in C byte order. */
static void
collect_keys(ApplyCall *call, Delivery *deliveries, int count)
{
	int			total = 0;
	int			unique = 0;

	for (int i = 0; i < count; i++)
		if (touches_keys(call, &deliveries[i]))
			total += deliveries[i].event->plan.nkeys;
	call->nkeys = 0;
	call->keys = palloc0(Max(total, 1) * sizeof(TouchedKey));
	for (int i = 0; i < count; i++)
	{
		const Event *event = deliveries[i].event;

		if (!touches_keys(call, &deliveries[i]))
			continue;
		for (int j = 0; j < event->plan.nkeys; j++)
		{
			TouchedKey *key = &call->keys[call->nkeys++];

			key->row_key = event->plan.keys[j].row_key;
			key->event = event;
			key->operations = &event->plan.keys[j];
			key->touches = 1;
		}
	}
	if (call->nkeys <= 1)
		return;
	qsort(call->keys, call->nkeys, sizeof(TouchedKey), compare_touched);
	for (int i = 1; i < call->nkeys; i++)
	{
		TouchedKey *last = &call->keys[unique];

		if (mutation_compare_text(last->row_key, call->keys[i].row_key) == 0)
		{
			last->touches++;
			if (suid_compare(&call->keys[i].event->suid, &last->event->suid) > 0)
				last->event = call->keys[i].event;
		}
		else
			call->keys[++unique] = call->keys[i];
	}
	call->nkeys = unique + 1;
}

/*
 * May the locking insert write the key outright?  Only if the value follows from
 * the event alone and nothing but its place in the order can speak against it.
 */
static bool
writes_outright(const ApplyCall *call, const TouchedKey *key)
{
	if (call->report || key->touches > 1 || key->event->has_expected)
		return false;
	if (!call->view->base_composed && key->event->plan.nkeys > 1)
		return false;
	for (int i = 0; i < key->operations->count; i++)
		if (key->operations->operations[i].kind == OPERATION_UPSERT)
			return true;
	return false;
}

/* Step 3. */
static void
lock_keys(ApplyCall *call)
{
	const View *view = call->view;
	int			count = call->nkeys;
	Datum	   *keys = palloc(count * sizeof(Datum));
	Datum	   *suids = palloc(count * sizeof(Datum));
	Datum	   *versions = palloc(count * sizeof(Datum));
	Datum	   *tombstones = palloc(count * sizeof(Datum));
	bool	   *claims_only = palloc(count * sizeof(bool));
	Datum	   *contents = palloc(count * sizeof(Datum));
	Datum	   *entries = palloc(count * sizeof(Datum));
	bool	   *no_entries = palloc(count * sizeof(bool));
	Datum		values[9];
	uint64		returned;
	uint64		seen = 0;

	for (int i = 0; i < count; i++)
	{
		TouchedKey *key = &call->keys[i];
		RowImage	image = {0};

		keys[i] = PointerGetDatum(key->row_key);
		suids[i] = SuidPGetDatum(&key->event->suid);
		versions[i] = Int64GetDatum(0);
		tombstones[i] = BoolGetDatum(false);
		no_entries[i] = true;
		claims_only[i] = !writes_outright(call, key);
		if (!claims_only[i])
		{
			IndexEntry *all;
			int			nall;

			(void) fold_step(&image, &key->event->suid, key->operations, false);
			fold_entries(&image, &view->declared, &nall, &all);
			versions[i] = Int64GetDatum(image.row_version);
			contents[i] = JsonbPGetDatum(image.value);
			no_entries[i] = nall == 0;
			entries[i] = JsonbPGetDatum(kept_entries_to_jsonb(all, nall));
		}
	}

	registry_instance(values, view, call->generation);
	if (count == 1)
	{
		bool		nulls[9] = {0};

		values[3] = keys[0];
		values[4] = suids[0];
		values[5] = versions[0];
		values[6] = tombstones[0];
		values[7] = contents[0];
		values[8] = entries[0];
		nulls[6] = nulls[7] = claims_only[0];
		nulls[8] = no_entries[0];
		if (statement_execute(STATEMENT_TENTATIVE_WRITE_ONE, values, nulls) == 0)
			return;
		call->keys[0].claimed = claims_only[0];
		call->keys[0].written = !claims_only[0];
		return;
	}
	else
	{
		values[3] = statement_text_array(keys, NULL, count);
		values[4] = statement_suid_array(suids, NULL, count);
		values[5] = statement_bigint_array(versions, NULL, count);
		values[6] = statement_boolean_array(tombstones, claims_only, count);
		values[7] = statement_jsonb_array(contents, claims_only, count);
		values[8] = statement_jsonb_array(entries, no_entries, count);
		returned = statement_execute(STATEMENT_TENTATIVE_WRITE, values, NULL);
	}

	/* They come back in the order they went in. */
	for (int i = 0; i < count && seen < returned; i++)
	{
		bool		isnull;

		if (returned < (uint64) count &&
			mutation_compare_text(DatumGetTextPP(statement_value(seen, 1, &isnull)),
								  call->keys[i].row_key) != 0)
			continue;
		seen++;
		if (claims_only[i])
			call->keys[i].claimed = true;
		else
			call->keys[i].written = true;
	}
	if (seen != returned)
		elog(ERROR, "tentative rows came back in another order");
}

/* Step 4. */
static void
read_state(ApplyCall *call)
{
	const View *view = call->view;
	int			nasked = 0;
	TouchedKey **asked = palloc(Max(call->nkeys, 1) * sizeof(TouchedKey *));
	Datum	   *keys;
	TentativeRow *rows;
	RowImage   *bases;

	for (int i = 0; i < call->nkeys; i++)
		if (!call->keys[i].written)
			asked[nasked++] = &call->keys[i];
	if (nasked == 0)
	{
		registry_head(view, call->generation, false, &call->state);
		return;
	}

	keys = palloc(nasked * sizeof(Datum));
	rows = palloc(nasked * sizeof(TentativeRow));
	bases = view->base_composed ? palloc(nasked * sizeof(RowImage)) : NULL;
	for (int i = 0; i < nasked; i++)
		keys[i] = PointerGetDatum(asked[i]->row_key);

	statement_snapshot_begin();
	registry_head(view, call->generation, true, &call->state);
	row_writer_read(view, call->generation, keys, nasked, rows, bases);
	statement_snapshot_end();
	for (int i = 0; i < nasked; i++)
	{
		asked[i]->row = rows[i];
		if (bases != NULL)
			asked[i]->base = bases[i];
	}
}

static void
add_marker(ApplyCall *call, const Event *event, const text *row_key, Outcome reason)
{
	int			i = call->nmarkers++;

	if (i == call->markers_allocated)
	{
		Size		size;

		call->markers_allocated = Max(8, 2 * i);
		size = call->markers_allocated * sizeof(Datum);
		call->marker_events = i == 0 ? palloc(size) : repalloc(call->marker_events, size);
		call->marker_suids = i == 0 ? palloc(size) : repalloc(call->marker_suids, size);
		call->marker_keys = i == 0 ? palloc(size) : repalloc(call->marker_keys, size);
		call->marker_reasons = i == 0 ? palloc(size) : repalloc(call->marker_reasons, size);
	}
	call->marker_events[i] = PointerGetDatum(event->event_id);
	call->marker_suids[i] = SuidPGetDatum(&event->suid);
	call->marker_keys[i] = PointerGetDatum(row_key);
	call->marker_reasons[i] = CStringGetTextDatum(receipts_outcome_name(reason));
}

/* The row a patch or delete works on, and readers see. */
static void
visible_image(const ApplyCall *call, TouchedKey *key, RowImage *result)
{
	const Suid *head = call->state.has_head ? &call->state.head : NULL;

	if (!fold_counts(&key->row, head))
	{
		*result = key->base;
		return;
	}
	if (fold_stale(&key->row, head, &key->base))
		fold_refresh(&key->row, head, &key->base);
	*result = key->row.image;
}

/* An event under base => 'composed': every operation takes its place. */
static Outcome
take_in_composed(ApplyCall *call, const Event *event)
{
	const Suid *head = call->state.has_head ? &call->state.head : NULL;
	bool		all_superseded = true;
	bool		patch_not_found = false;
	bool		delete_without_row = false;

	for (int i = 0; i < event->plan.nkeys; i++)
	{
		const KeyOperations *operations = &event->plan.keys[i];
		TouchedKey *key = find_key(call, operations->row_key);
		KeyVerdict	verdict;
		bool		left_as_is;

		if (key->written)
		{
			all_superseded = false;
			continue;
		}
		verdict = fold_judge(&key->row, head, &key->base, &event->suid, operations, &left_as_is);
		if (verdict == KEY_SUPERSEDED)
		{
			add_marker(call, event, key->row_key, OUTCOME_OLDER);
			continue;
		}
		all_superseded = false;
		if (verdict == KEY_PATCH_NOT_FOUND)
			patch_not_found = true;
		else if (verdict == KEY_DELETE_WITHOUT_ROW)
			delete_without_row = true;
		if (left_as_is)
			add_marker(call, event, key->row_key,
					   verdict == KEY_PATCH_NOT_FOUND ? OUTCOME_PATCH_NOT_FOUND :
					   OUTCOME_DELETE_WITHOUT_ROW);
		fold_insert(&key->row, head, &key->base, &event->suid, operations);
		key->changed = true;
	}
	return all_superseded ? OUTCOME_OLDER :
		patch_not_found ? OUTCOME_PATCH_NOT_FOUND :
		delete_without_row ? OUTCOME_DELETE_WITHOUT_ROW : OUTCOME_APPLIED;
}

/* Make the key's tentative row one event's image, with nothing kept. */
static void
replace_row(TouchedKey *key, const Event *event, const RowImage *image)
{
	memset(&key->row, 0, sizeof(TentativeRow));
	key->row.exists = true;
	key->row.source_suid = event->suid;
	key->row.image = *image;
	key->row.row_version = image->present ? image->row_version : 0;
	key->changed = true;
}

/* An event under base => 'unsafe': all of it or nothing. */
static Outcome
take_in_unsafe(ApplyCall *call, const Event *event)
{
	const Suid *head = call->state.has_head ? &call->state.head : NULL;
	Outcome		outcome = OUTCOME_APPLIED;

	for (int i = 0; i < event->plan.nkeys; i++)
	{
		const KeyOperations *operations = &event->plan.keys[i];
		TouchedKey *key = find_key(call, operations->row_key);
		bool		counts = fold_counts(&key->row, head);
		KeyVerdict	verdict;

		if (key->written)
			continue;
		if (counts && suid_compare(&key->row.source_suid, &event->suid) > 0)
		{
			outcome = OUTCOME_OLDER;
			break;
		}
		verdict = fold_verdict(counts && key->row.image.present, operations);
		if (verdict == KEY_PATCH_NOT_FOUND)
			outcome = OUTCOME_PATCH_NOT_FOUND;
		else if (verdict == KEY_DELETE_WITHOUT_ROW && outcome == OUTCOME_APPLIED)
			outcome = OUTCOME_DELETE_WITHOUT_ROW;
	}

	for (int i = 0; i < event->plan.nkeys; i++)
	{
		const KeyOperations *operations = &event->plan.keys[i];
		TouchedKey *key = find_key(call, operations->row_key);
		RowImage	image = {0};

		if (key->written)
			continue;
		if (fold_counts(&key->row, head))
			image = key->row.image;
		if (outcome == OUTCOME_APPLIED)
		{
			(void) fold_step(&image, &event->suid, operations, false);
			replace_row(key, event, &image);
			continue;
		}
		add_marker(call, event, key->row_key, outcome);
		if (outcome == OUTCOME_DELETE_WITHOUT_ROW && !image.present &&
			fold_verdict(false, operations) == KEY_DELETE_WITHOUT_ROW)
			replace_row(key, event, &image);
	}
	return outcome;
}

/* Row CAS, on the locked base rows; false if refused. */
static bool
check_row_versions(ApplyCall *call, Event *event, ErrorCode *sink)
{
	for (int i = 0; event->has_expected && i < event->plan.nkeys; i++)
	{
		TouchedKey *key = find_key(call, event->plan.keys[i].row_key);
		RowImage	image;

		visible_image(call, key, &image);
		if (!image.present || image.row_version == event->expected_row_version)
			continue;
		REJECT(sink, UNSAFE_ROW_CAS_MISMATCH,
			   errmsg("row \"%s\" has version %lld, expected was %lld", mutation_clip(key->row_key),
					  (long long) image.row_version, (long long) event->expected_row_version),
			   registry_errdetail_event(call->view, call->generation, event->event_id, &event->suid),
			   errhint("Read the row again and retry."));
		return false;
	}
	return true;
}

/* Step 5, for one event. */
static void
judge(ApplyCall *call, Delivery *delivery)
{
	Event	   *event = delivery->event;
	Claim	   *claim = delivery->claim;
	ErrorCode  *sink = call->report ? &event->error : NULL;
	bool		late;

	if (claim == NULL)
		return;					/* refused when it was parsed */
	delivery->outcome = OUTCOME_NO_CHANGE;
	if (claim->state == CLAIM_DUPLICATE || *delivery->done)
	{
		delivery->duplicate = true;
		if (claim->behind_frontier)
			delivery->outcome = OUTCOME_BEHIND_FRONTIER;
		return;
	}
	if (claim->state == CLAIM_CONTRADICTION)
	{
		REJECT(sink, UNSAFE_SUID_CONTRADICTION,
			   errmsg("event contradicts a receipt: %s", claim->other),
			   registry_errdetail_event(call->view, call->generation, claim->event_id, claim->suid),
			   errhint("An event has one SUID and a SUID one event; look for the producer that broke this."));
		return;
	}

	late = call->state.has_head && suid_compare(&event->suid, &call->state.head) <= 0;
	if (late)
	{
		if (call->state.has_floor && suid_compare(&event->suid, &call->state.floor) <= 0)
		{
			REJECT(sink, UNSAFE_RECEIPT_EXPIRED,
				   errmsg("event lies at or below the receipt floor"),
				   registry_errdetail_event(call->view, call->generation, claim->event_id, claim->suid),
				   errhint("Nobody can tell a redelivery from news here; keep receipts longer than your transport redelivers."));
			return;
		}
		if (!call->record_arrival)
		{
			REJECT(sink, UNSAFE_SAFE_AHEAD,
				   errmsg("event lies at or below the head and has no receipt"),
				   registry_errdetail_event(call->view, call->generation, claim->event_id, claim->suid),
				   errhint("Apply it with record_arrival => true to record that it came late."));
			return;
		}
		delivery->outcome = OUTCOME_BEHIND_FRONTIER;
		claim->behind_frontier = true;
		*delivery->done = true;
		for (int i = 0; i < event->plan.nkeys; i++)
		{
			TouchedKey *key = find_key(call, event->plan.keys[i].row_key);

			if (key->written)
				key->void_write = true;
		}
		return;
	}
	if (call->has_safe_head && suid_compare(&event->suid, &call->safe_head) <= 0)
	{
		REJECT(sink, UNSAFE_SAFE_AHEAD,
			   errmsg("event lies at or below the caller's safe_head and has no receipt"),
			   registry_errdetail_event(call->view, call->generation, claim->event_id, claim->suid),
			   errhint("The stored head has not passed it: pass the head this view has, or none."));
		return;
	}
	if (!check_row_versions(call, event, sink))
		return;

	if (event->plan.nkeys == 0)
		add_marker(call, event, event->event_id, OUTCOME_NO_CHANGE);
	else if (call->view->base_composed)
		delivery->outcome = take_in_composed(call, event);
	else
		delivery->outcome = take_in_unsafe(call, event);
	*delivery->done = true;
}

/* Step 6. */
static void
write_changes(ApplyCall *call, Delivery *deliveries, int count)
{
	TentativeWrites writes;
	Datum	   *changed_ids = palloc(Max(count, 1) * sizeof(Datum));
	Datum	   *changed_suids = palloc(Max(count, 1) * sizeof(Datum));
	Outcome    *changed = palloc(Max(count, 1) * sizeof(Outcome));
	Datum	   *refused = palloc(Max(count, 1) * sizeof(Datum));
	int			nchanged = 0;
	int			nrefused = 0;

	row_writer_begin(&writes, call->nkeys);
	for (int i = 0; i < call->nkeys; i++)
	{
		TouchedKey *key = &call->keys[i];

		if (key->changed)
			row_writer_store(&writes, key->row_key, &key->row, &call->view->declared);
		else if (key->claimed || key->void_write)
			row_writer_delete(&writes, key->row_key);
	}
	row_writer_end(&writes, call->view, call->generation);

	for (int i = 0; i < count; i++)
	{
		Delivery   *delivery = &deliveries[i];
		Claim	   *claim = delivery->claim;

		if (claim == NULL || claim->state != CLAIM_NEW || delivery->duplicate)
			continue;
		if (delivery->event->error == ERROR_NONE)
		{
			if (delivery->outcome == claim->expected)
				continue;
			changed_ids[nchanged] = PointerGetDatum(claim->event_id);
			changed_suids[nchanged] = SuidPGetDatum(claim->suid);
			changed[nchanged++] = delivery->outcome;
		}
		else if (!*delivery->done)
			refused[nrefused++] = PointerGetDatum(claim->event_id);
	}
	receipts_set_outcomes(call->view, call->generation, changed_ids, changed_suids, changed, nchanged);
	receipts_give_up(call->view, call->generation, refused, nrefused);
	receipts_mark(call->view, call->generation, call->marker_events, call->marker_suids,
				  call->marker_keys, call->marker_reasons, call->nmarkers);
}

static int
compare_deliveries(const void *a, const void *b)
{
	const Delivery *delivery_a = *(Delivery *const *) a;
	const Delivery *delivery_b = *(Delivery *const *) b;
	int			order = mutation_compare_text(delivery_a->event->event_id,
											  delivery_b->event->event_id);

	if (order != 0)
		return order;
	return delivery_a < delivery_b ? -1 : 1;
}

static int
compare_delivery_suids(const void *a, const void *b)
{
	const Delivery *delivery_a = *(Delivery *const *) a;
	const Delivery *delivery_b = *(Delivery *const *) b;

	return suid_compare(&delivery_a->event->suid, &delivery_b->event->suid);
}

/*
 * Give every distinct event a claim.  Returns false if events contradict each
 * other: which of them counts depends on what becomes of the first.
 */
static bool
prepare_claims(Delivery *deliveries, int count, Claim **claims, int *nclaims)
{
	Delivery  **order = palloc(Max(count, 1) * sizeof(Delivery *));
	Claim	   *made = palloc0(Max(count, 1) * sizeof(Claim));
	bool	   *done = palloc0(Max(count, 1) * sizeof(bool));
	int			good = 0;

	*claims = made;
	*nclaims = 0;
	for (int i = 0; i < count; i++)
		if (deliveries[i].event->error == ERROR_NONE)
			order[good++] = &deliveries[i];

	if (good > 1)
	{
		qsort(order, good, sizeof(Delivery *), compare_delivery_suids);
		for (int i = 1; i < good; i++)
			if (suid_compare(&order[i - 1]->event->suid, &order[i]->event->suid) == 0 &&
				mutation_compare_text(order[i - 1]->event->event_id, order[i]->event->event_id) != 0)
				return false;
		qsort(order, good, sizeof(Delivery *), compare_deliveries);
	}
	for (int i = 0; i < good; i++)
	{
		const Event *event = order[i]->event;
		Claim	   *claim;

		if (i > 0 && mutation_compare_text(order[i - 1]->event->event_id, event->event_id) == 0)
		{
			if (suid_compare(&order[i - 1]->event->suid, &event->suid) != 0)
				return false;
			order[i]->repeated = true;
		}
		else
		{
			claim = &made[(*nclaims)++];
			claim->event_id = event->event_id;
			claim->suid = &event->suid;
			claim->expected = event->plan.nkeys == 0 ? OUTCOME_NO_CHANGE : OUTCOME_APPLIED;
		}
		order[i]->claim = &made[*nclaims - 1];
		order[i]->done = &done[*nclaims - 1];
	}
	return true;
}

/* receipts_claim sorts the claims: find each delivery's again. */
static void
relink_claims(Delivery *deliveries, int count, Claim *claims, int nclaims)
{
	if (nclaims <= 1)
		return;
	for (int i = 0; i < count; i++)
	{
		int			low = 0;
		int			high = nclaims - 1;
		const Suid *wanted = &deliveries[i].event->suid;

		if (deliveries[i].claim == NULL)
			continue;
		while (low < high)
		{
			int			middle = (low + high) / 2;

			if (suid_compare(claims[middle].suid, wanted) < 0)
				low = middle + 1;
			else
				high = middle;
		}
		deliveries[i].claim = &claims[low];
	}
}

/*
 * Lock the keys a plan depends on, and let it be made from the rows visible there.
 * What was inserted to lock absent keys is deleted again: others wait for this
 * transaction even so.
 */
static void
plan_from_rows(ApplyCall *call, Event *event)
{
	ApplyCall	look = *call;
	int			count = call->rows_plan->nkeys;
	KeyOperations nothing = {0};
	TentativeWrites claimed;
	JsonbParseState *state = NULL;
	int			unique = 0;

	look.keys = palloc0(Max(count, 1) * sizeof(TouchedKey));
	for (int i = 0; i < count; i++)
	{
		look.keys[i].row_key = DatumGetTextPP(call->rows_plan->row_keys[i]);
		look.keys[i].event = event;
		look.keys[i].operations = &nothing;
	}
	qsort(look.keys, count, sizeof(TouchedKey), compare_touched);
	for (int i = 0; i < count; i++)
		if (i == 0 || compare_touched(&look.keys[unique - 1], &look.keys[i]) != 0)
			look.keys[unique++] = look.keys[i];
	look.nkeys = unique;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	if (unique > 0)
	{
		lock_keys(&look);
		read_state(&look);
	}
	row_writer_begin(&claimed, unique);
	for (int i = 0; i < unique; i++)
	{
		TouchedKey *key = &look.keys[i];
		RowImage	image;
		JsonbValue	member;

		if (key->claimed)
			row_writer_delete(&claimed, key->row_key);
		visible_image(&look, key, &image);
		if (!image.present)
			continue;
		member.type = jbvString;
		member.val.string.val = VARDATA_ANY(unconstify(text *, key->row_key));
		member.val.string.len = VARSIZE_ANY_EXHDR(key->row_key);
		(void) pushJsonbValue(&state, WJB_KEY, &member);
		JsonbToJsonbValue(image.value, &member);
		(void) pushJsonbValue(&state, WJB_VALUE, &member);
	}
	row_writer_end(&claimed, call->view, call->generation);
	call->rows_plan->make(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL)),
						  &event->plan, call->rows_plan->context);
}

static void
apply_deliveries(ApplyCall *call, Delivery *deliveries, int count)
{
	Claim	   *claims;
	int			nclaims;

	if (!prepare_claims(deliveries, count, &claims, &nclaims))
	{
		/* Events that contradict each other: one after the other. */
		for (int i = 0; i < count; i++)
			apply_deliveries(call, &deliveries[i], 1);
		return;
	}
	if (nclaims == 0)
		return;
	call->nmarkers = 0;

	if (call->rows_plan != NULL)
		claims[0].expected = OUTCOME_APPLIED;	/* the plan is yet to be made */
	receipts_claim(call->view, call->generation, claims, nclaims, call->observed_at);
	relink_claims(deliveries, count, claims, nclaims);
	if (call->rows_plan != NULL && claims[0].state == CLAIM_NEW)
		plan_from_rows(call, deliveries[0].event);
	collect_keys(call, deliveries, count);
	if (call->nkeys > 0)
		lock_keys(call);
	read_state(call);
	receipts_check_settled(call->view, call->generation, &call->state, claims, nclaims);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		judge(call, &deliveries[i]);
	}
	write_changes(call, deliveries, count);
}

/* ---------- for other rooms ---------- */

void
lane_unsafe_apply(const View *view, PlannedEvent *planned, int count, const RowsPlan *rows_plan)
{
	ApplyCall	call = {0};
	Event	   *events = palloc0(Max(count, 1) * sizeof(Event));
	Delivery   *deliveries = palloc0(Max(count, 1) * sizeof(Delivery));

	Assert(rows_plan == NULL || count == 1);
	call.view = view;
	call.generation = registry_resolve_generation(view, false, 0);
	call.rows_plan = rows_plan;
	call.record_arrival = true;
	call.observed_at = GetCurrentTimestamp();
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		events[i].event_id = planned[i].event_id;
		events[i].suid = planned[i].suid;
		events[i].plan = planned[i].plan;
		deliveries[i].event = &events[i];
	}
	apply_deliveries(&call, deliveries, count);
}

/* ---------- public functions ---------- */

UNSAFEMV_FUNCTION(unsafemv_apply);
UNSAFEMV_FUNCTION(unsafemv_apply_batch);

/* Steps before the first statement: lock, view, guards. */
static void
begin_call(ApplyCall *call, const text *service_id, const text *view_id,
		   bool has_generation, int64 generation, bool has_definition, int64 definition_version)
{
	registry_lock_shared(service_id, view_id);
	call->view = registry_locked_view(service_id, view_id);
	if (has_generation)
	{
		(void) registry_resolve_generation(call->view, true, generation);
		if (!call->view->has_active || generation != call->view->active_generation)
		{
			Generation	other;

			registry_head(call->view, generation, false, &other);
			RAISE(MV_GENERATION_INVALID, errmsg("generation is not active"),
				  registry_errdetail_generation(call->view, generation),
				  errhint("Apply to the active generation."));
		}
	}
	call->generation = registry_resolve_generation(call->view, false, 0);
	if (has_definition && definition_version != call->view->definition_version)
		RAISE(MV_DEFINITION_MISMATCH,
			  errmsg("active generation has definition version %lld, not %lld",
					 (long long) call->view->definition_version, (long long) definition_version),
			  registry_errdetail_generation(call->view, call->generation));
}

/* The blessed row type (outcome text, duplicate boolean). */
static TupleDesc
apply_result_type(void)
{
	static TupleDesc result = NULL;

	if (result == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
		TupleDesc	made = CreateTemplateTupleDesc(2);

		TupleDescInitEntry(made, 1, "outcome", TEXTOID, -1, 0);
		TupleDescInitEntry(made, 2, "duplicate", BOOLOID, -1, 0);
		result = BlessTupleDesc(made);
		MemoryContextSwitchTo(old);
	}
	return result;
}

Datum
unsafemv_apply(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	ApplyCall	call = {0};
	Event		event = {0};
	Delivery	delivery = {0};
	MutationSource source;
	Datum		result[2];
	bool		nulls[2] = {0};

	event.event_id = registry_event_argument(fcinfo, 2);
	event.suid = *registry_suid_argument(fcinfo, 3, "suid");
	registry_require(fcinfo, 4, "mutations");
	registry_require(fcinfo, 9, "record_arrival");
	call.record_arrival = PG_GETARG_BOOL(9);
	call.has_safe_head = !PG_ARGISNULL(7);
	if (call.has_safe_head)
		call.safe_head = *PG_GETARG_SUID_P(7);
	event.has_expected = !PG_ARGISNULL(8);
	if (event.has_expected)
	{
		event.expected_row_version = PG_GETARG_INT64(8);
		if (event.expected_row_version < 0)
			RAISE(MV_ROW_VERSION_INVALID, errmsg("expected_row_version is negative"));
	}
	call.observed_at = GetCurrentTimestamp();
	if (!PG_ARGISNULL(10))
	{
		TimestampTz given = PG_GETARG_TIMESTAMPTZ(10);

		if (TIMESTAMP_NOT_FINITE(given))
			RAISE(MV_VALUE_INVALID, errmsg("observed_at is not finite"));
		/* A client's clock that is ahead must not keep receipts for longer. */
		call.observed_at = Min(given, call.observed_at);
	}

	statement_begin();
	begin_call(&call, service_id, view_id,
			   !PG_ARGISNULL(5), PG_ARGISNULL(5) ? 0 : PG_GETARG_INT64(5),
			   !PG_ARGISNULL(6), PG_ARGISNULL(6) ? 0 : PG_GETARG_INT64(6));
	source.service_id = service_id;
	source.view_id = view_id;
	source.event_id = event.event_id;
	source.position = -1;
	(void) mutation_parse(PG_GETARG_JSONB_P(4), &event.suid, &call.view->declared, &source,
						  &event.plan, NULL);
	delivery.event = &event;
	apply_deliveries(&call, &delivery, 1);
	statement_end();

	result[0] = CStringGetTextDatum(receipts_outcome_name(delivery.outcome));
	result[1] = BoolGetDatum(delivery.duplicate);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(apply_result_type(), result, nulls)));
}

Datum
unsafemv_apply_batch(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	ReturnSetInfo *result_info = (ReturnSetInfo *) fcinfo->resultinfo;
	ApplyCall	call = {0};
	Event	   *events;
	Delivery   *deliveries;
	int			count;
	char	   *on_error;

	registry_require(fcinfo, 2, "events");
	registry_require(fcinfo, 5, "record_arrival");
	registry_require(fcinfo, 6, "on_error");
	call.record_arrival = PG_GETARG_BOOL(5);
	on_error = text_to_cstring(PG_GETARG_TEXT_PP(6));
	call.report = strcmp(on_error, "report") == 0;
	if (!call.report && strcmp(on_error, "raise") != 0)
		RAISE(MV_VALUE_INVALID, errmsg("on_error is \"%s\", neither raise nor report",
									   errors_clip(on_error, strlen(on_error))));
	call.observed_at = GetCurrentTimestamp();
	InitMaterializedSRF(fcinfo, 0);

	statement_begin();
	begin_call(&call, service_id, view_id,
			   !PG_ARGISNULL(3), PG_ARGISNULL(3) ? 0 : PG_GETARG_INT64(3),
			   !PG_ARGISNULL(4), PG_ARGISNULL(4) ? 0 : PG_GETARG_INT64(4));
	event_parse_batch(PG_GETARG_JSONB_P(2), service_id, view_id, &call.view->declared,
					  false, call.report, &count, &events);
	deliveries = palloc0(Max(count, 1) * sizeof(Delivery));
	for (int i = 0; i < count; i++)
		deliveries[i].event = &events[i];
	apply_deliveries(&call, deliveries, count);

	for (int i = 0; i < count; i++)
	{
		Datum		values[5];
		bool		nulls[5] = {0};
		bool		failed = events[i].error != ERROR_NONE;

		values[0] = Int32GetDatum(i + 1);
		nulls[1] = events[i].event_id == NULL;
		values[1] = PointerGetDatum(events[i].event_id);
		nulls[2] = nulls[3] = failed;
		values[2] = failed ? (Datum) 0 : CStringGetTextDatum(receipts_outcome_name(deliveries[i].outcome));
		values[3] = BoolGetDatum(deliveries[i].duplicate);
		nulls[4] = !failed;
		values[4] = failed ? CStringGetTextDatum(errors_name(events[i].error)) : (Datum) 0;
		tuplestore_putvalues(result_info->setResult, result_info->setDesc, values, nulls);
	}
	statement_end();
	return (Datum) 0;
}
