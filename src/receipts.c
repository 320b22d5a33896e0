/*
 * receipts.c
 *	  Receipts and markers; the public functions that only deal with them.
 *
 * Guarantees: one receipt per event and generation; per SUID as long as unsettled.
 * Receipts are claimed in SUID order by one statement.  A claim waits for a
 * transaction that is claiming the same event; what it answered is read by the
 * next statement.  Above READ COMMITTED a lost race is 40001.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "index_scan.h"
#include "library.h"
#include "receipts.h"
#include "statement.h"

static const char *const outcome_names[] = {
	[OUTCOME_APPLIED] = "applied",
	[OUTCOME_OLDER] = "older",
	[OUTCOME_PATCH_NOT_FOUND] = "patch-not-found",
	[OUTCOME_DELETE_WITHOUT_ROW] = "delete-without-row",
	[OUTCOME_NO_CHANGE] = "no-change",
	[OUTCOME_BEHIND_FRONTIER] = "behind-frontier",
};

const char *
receipts_outcome_name(Outcome outcome)
{
	return outcome_names[outcome];
}

static Datum
outcome_datum(Outcome outcome)
{
	return CStringGetTextDatum(outcome_names[outcome]);
}

static int
compare_claims(const void *a, const void *b)
{
	return suid_compare(((const Claim *) a)->suid, ((const Claim *) b)->suid);
}

/*
 * Insert the receipts of claims that are not decided; mark those that got in.
 * Returns how many did not.
 */
static int
insert_claims(const View *view, int64 generation, Claim **claims, int count, TimestampTz observed_at)
{
	Datum		values[7];
	Datum	   *ids;
	Datum	   *suids;
	Datum	   *outcomes;
	uint64		inserted;
	uint64		seen = 0;
	int			left = 0;

	registry_instance(values, view, generation);
	if (count == 1)
	{
		values[3] = PointerGetDatum(claims[0]->event_id);
		values[4] = SuidPGetDatum(claims[0]->suid);
		values[5] = outcome_datum(claims[0]->expected);
		values[6] = TimestampTzGetDatum(observed_at);
		if (statement_execute(STATEMENT_RECEIPT_CLAIM_ONE, values, NULL) == 0)
			return 1;
		claims[0]->state = CLAIM_NEW;
		return 0;
	}

	ids = palloc(count * sizeof(Datum));
	suids = palloc(count * sizeof(Datum));
	outcomes = palloc(count * sizeof(Datum));
	for (int i = 0; i < count; i++)
	{
		ids[i] = PointerGetDatum(claims[i]->event_id);
		suids[i] = SuidPGetDatum(claims[i]->suid);
		outcomes[i] = outcome_datum(claims[i]->expected);
	}
	values[3] = statement_text_array(ids, NULL, count);
	values[4] = statement_suid_array(suids, NULL, count);
	values[5] = statement_text_array(outcomes, NULL, count);
	values[6] = TimestampTzGetDatum(observed_at);
	inserted = statement_execute(STATEMENT_RECEIPT_CLAIM, values, NULL);

	/* They come back in the order they went in; move the others to the front. */
	for (int i = 0; i < count; i++)
	{
		bool		isnull;

		if (seen < inserted &&
			(inserted == (uint64) count ||
			 mutation_compare_text(DatumGetTextPP(statement_value(seen, 1, &isnull)),
								   claims[i]->event_id) == 0))
		{
			claims[i]->state = CLAIM_NEW;
			seen++;
		}
		else
			claims[left++] = claims[i];
	}
	if (seen != inserted)
		elog(ERROR, "receipts came back in another order");
	return left;
}

/* The event has a receipt of this SUID and outcome: a duplicate or a contradiction. */
static void
decide_known(Claim *claim, const Suid *suid, const text *outcome)
{
	const char *behind = outcome_names[OUTCOME_BEHIND_FRONTIER];
	char		printed[SUID_TEXT_LENGTH + 1];

	if (suid_compare(suid, claim->suid) == 0)
	{
		claim->state = CLAIM_DUPLICATE;
		claim->behind_frontier = VARSIZE_ANY_EXHDR(outcome) == strlen(behind) &&
			memcmp(VARDATA_ANY(outcome), behind, strlen(behind)) == 0;
		return;
	}
	suid_print(suid, printed);
	claim->state = CLAIM_CONTRADICTION;
	claim->other = psprintf("its receipt has SUID %s", printed);
}

/* Decide claims whose event has a receipt; returns how many are left. */
static int
find_known(const View *view, int64 generation, Claim **claims, int count)
{
	DirectScan	scan;
	int			left = 0;

	statement_snapshot_begin();
	if (!index_scan_open(&scan, SCAN_RECEIPT))
	{
		statement_snapshot_end();
		return count;
	}
	for (int i = 0; i < count; i++)
	{
		Suid		suid;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		index_scan_reset(&scan);
		index_scan_where(&scan, 1, BTEqualStrategyNumber, PointerGetDatum(view->service_id));
		index_scan_where(&scan, 2, BTEqualStrategyNumber, PointerGetDatum(claims[i]->event_id));
		index_scan_where(&scan, 3, BTEqualStrategyNumber, Int64GetDatum(view->view_no));
		index_scan_where(&scan, 4, BTEqualStrategyNumber, Int64GetDatum(generation));
		index_scan_start(&scan, ForwardScanDirection);
		if (index_scan_next(&scan))
		{
			(void) index_scan_suid(&scan, RECEIPT_SUID, &suid);
			decide_known(claims[i], &suid, DatumGetTextPP(index_scan_value(&scan, RECEIPT_OUTCOME, &isnull)));
		}
		else
			claims[left++] = claims[i];
	}
	index_scan_close(&scan);
	statement_snapshot_end();
	return left;
}

/*
 * Read what stands in the way of claims; returns how many are still undecided
 * because it has gone meanwhile.
 */
static int
read_obstacles(const View *view, int64 generation, Claim **claims, int count)
{
	Datum		values[5];
	Datum	   *ids;
	Datum	   *suids;
	bool	   *undecided;
	uint64		found;
	int			left = 0;

	count = find_known(view, generation, claims, count);
	if (count == 0)
		return 0;
	ids = palloc(count * sizeof(Datum));
	suids = palloc(count * sizeof(Datum));
	undecided = palloc0(count * sizeof(bool));
	for (int i = 0; i < count; i++)
	{
		ids[i] = PointerGetDatum(claims[i]->event_id);
		suids[i] = SuidPGetDatum(claims[i]->suid);
	}
	registry_instance(values, view, generation);
	values[3] = statement_text_array(ids, NULL, count);
	values[4] = statement_suid_array(suids, NULL, count);
	found = statement_execute(STATEMENT_RECEIPT_FIND, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		int64		position = DatumGetInt64(statement_value(row, 1, &isnull)) - 1;
		Claim	   *claim = claims[position];
		Suid		suid;
		Datum		other;

		if (statement_suid(row, 2, &suid))
		{
			decide_known(claim, &suid, DatumGetTextPP(statement_value(row, 3, &isnull)));
			continue;
		}
		other = statement_value(row, 4, &isnull);
		if (isnull)
			other = statement_value(row, 5, &isnull);
		if (!isnull)
		{
			claim->state = CLAIM_CONTRADICTION;
			claim->other = psprintf("its SUID belongs to event \"%s\"",
									mutation_clip(DatumGetTextPP(other)));
		}
		else
			undecided[position] = true;
	}
	for (int i = 0; i < count; i++)
		if (undecided[i])
			claims[left++] = claims[i];
	return left;
}

void
receipts_claim(const View *view, int64 generation, Claim *claims, int count, TimestampTz observed_at)
{
	Claim	  **open = palloc(Max(count, 1) * sizeof(Claim *));

	if (count > 1)
		qsort(claims, count, sizeof(Claim), compare_claims);
	for (int i = 0; i < count; i++)
		open[i] = &claims[i];

	/*
	 * Usually once; again only if an obstacle vanished between two
	 * statements.
	 */
	while (count > 0)
	{
		CHECK_FOR_INTERRUPTS();
		count = insert_claims(view, generation, open, count, observed_at);
		if (count > 0)
			count = read_obstacles(view, generation, open, count);
	}
}

void
receipts_check_settled(const View *view, int64 generation, const Generation *state,
					   Claim *claims, int count)
{
	Datum		values[5];
	Datum	   *ids;
	Datum	   *suids;
	Claim	  **asked;
	int			nasked = 0;
	uint64		found;

	if (!state->has_settled_max ||
		(state->has_head && suid_compare(&state->settled_max, &state->head) <= 0))
		return;

	ids = palloc(Max(count, 1) * sizeof(Datum));
	suids = palloc(Max(count, 1) * sizeof(Datum));
	asked = palloc(Max(count, 1) * sizeof(Claim *));
	for (int i = 0; i < count; i++)
	{
		if (claims[i].state != CLAIM_NEW ||
			(state->has_head && suid_compare(claims[i].suid, &state->head) <= 0))
			continue;
		ids[nasked] = PointerGetDatum(claims[i].event_id);
		suids[nasked] = SuidPGetDatum(claims[i].suid);
		asked[nasked++] = &claims[i];
	}
	if (nasked == 0)
		return;
	registry_instance(values, view, generation);
	values[3] = statement_text_array(ids, NULL, nasked);
	values[4] = statement_suid_array(suids, NULL, nasked);
	found = statement_execute(STATEMENT_RECEIPT_SETTLED_AT, values, NULL);
	for (uint64 row = 0; row < found; row++)
	{
		bool		isnull;
		text	   *event_id = DatumGetTextPP(statement_value(row, 1, &isnull));
		text	   *other = DatumGetTextPP(statement_value(row, 2, &isnull));

		for (int i = 0; i < nasked; i++)
		{
			if (mutation_compare_text(asked[i]->event_id, event_id) != 0)
				continue;
			asked[i]->state = CLAIM_CONTRADICTION;
			asked[i]->other = psprintf("its SUID belongs to event \"%s\"", mutation_clip(other));
		}
	}
}

void
receipts_set_outcomes(const View *view, int64 generation,
					  Datum *event_ids, Datum *suids, const Outcome *outcomes, int count)
{
	Datum		values[6];
	Datum	   *names;

	if (count == 0)
		return;
	names = palloc(count * sizeof(Datum));
	for (int i = 0; i < count; i++)
		names[i] = outcome_datum(outcomes[i]);
	registry_instance(values, view, generation);
	values[3] = statement_text_array(event_ids, NULL, count);
	values[4] = statement_suid_array(suids, NULL, count);
	values[5] = statement_text_array(names, NULL, count);
	(void) statement_execute(STATEMENT_RECEIPT_OUTCOME, values, NULL);
}

/* Run a statement whose only further argument is an array of event ids. */
static void
execute_for_events(StatementKind kind, const View *view, int64 generation, Datum *event_ids, int count)
{
	Datum		values[4];

	if (count == 0)
		return;
	registry_instance(values, view, generation);
	values[3] = statement_text_array(event_ids, NULL, count);
	(void) statement_execute(kind, values, NULL);
}

void
receipts_give_up(const View *view, int64 generation, Datum *event_ids, int count)
{
	execute_for_events(STATEMENT_RECEIPT_DELETE, view, generation, event_ids, count);
}

void
receipts_mark(const View *view, int64 generation, Datum *event_ids, Datum *suids,
			  Datum *row_keys, Datum *reasons, int count)
{
	Datum		values[7];

	if (count == 0)
		return;
	registry_instance(values, view, generation);
	values[3] = statement_text_array(event_ids, NULL, count);
	values[4] = statement_suid_array(suids, NULL, count);
	values[5] = statement_text_array(row_keys, NULL, count);
	values[6] = statement_text_array(reasons, NULL, count);
	(void) statement_execute(STATEMENT_MARKER_WRITE, values, NULL);
}

void
receipts_unmark(const View *view, int64 generation, Datum *suids, int count)
{
	Datum		values[4];

	if (count == 0)
		return;
	registry_instance(values, view, generation);
	values[3] = statement_suid_array(suids, NULL, count);
	(void) statement_execute(STATEMENT_MARKER_DELETE, values, NULL);
}

/* ---------- public functions ---------- */

UNSAFEMV_FUNCTION(unsafemv_observe_arrival);
UNSAFEMV_FUNCTION(unsafemv_observe_safe_receipt);
UNSAFEMV_FUNCTION(unsafemv_read_meta);
UNSAFEMV_FUNCTION(unsafemv_has_target_receipt);

static void
raise_contradiction(const View *view, int64 generation, const Claim *claim)
{
	RAISE(UNSAFE_SUID_CONTRADICTION,
		  errmsg("event contradicts a receipt: %s", claim->other),
		  registry_errdetail_event(view, generation, claim->event_id, claim->suid),
		  errhint("An event has one SUID and a SUID one event; look for the producer that broke this."));
}

/*
 * Late: claim the behind-frontier receipt, which closes the gate.  Otherwise
 * nothing is written; the claim is what told a known event, so it is not made
 * before the event is known to be late.
 */
Datum
unsafemv_observe_arrival(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");
	const View *view;
	int64		generation;
	Generation	state;
	Claim		claim = {0};
	bool		behind = false;

	statement_begin();
	registry_lock_shared(service_id, view_id);
	view = registry_locked_view(service_id, view_id);
	generation = registry_resolve_generation(view, false, 0);
	claim.event_id = event_id;
	claim.suid = suid;
	claim.expected = OUTCOME_BEHIND_FRONTIER;
	registry_head(view, generation, false, &state);
	if (state.has_head && suid_compare(suid, &state.head) <= 0)
	{
		receipts_claim(view, generation, &claim, 1, GetCurrentTimestamp());
		if (claim.state == CLAIM_CONTRADICTION)
			raise_contradiction(view, generation, &claim);
		behind = claim.state == CLAIM_NEW || claim.behind_frontier;
		if (claim.state == CLAIM_NEW && state.has_floor && suid_compare(suid, &state.floor) <= 0)
			RAISE(UNSAFE_RECEIPT_EXPIRED,
				  errmsg("event lies at or below the receipt floor"),
				  registry_errdetail_event(view, generation, event_id, NULL),
				  errhint("Nobody can tell a redelivery from news here; keep receipts longer than your transport redelivers."));
	}
	else
	{
		Claim	   *open = &claim;

		if (read_obstacles(view, generation, &open, 1) == 0 && claim.state == CLAIM_CONTRADICTION)
			raise_contradiction(view, generation, &claim);
	}
	statement_end();
	PG_RETURN_BOOL(behind);
}

/* The smallest unsettled SUID that holds the head back; infinity: none. */
static void
first_unsettled(Datum *values, bool latest, Suid *result)
{
	uint64		found;

	suid_infinity(result);
	if (latest)
	{
		statement_latest_begin();
		found = statement_read(STATEMENT_RECEIPT_FIRST_UNSETTLED, values, NULL);
		statement_snapshot_end();
	}
	else
		found = statement_execute(STATEMENT_RECEIPT_FIRST_UNSETTLED, values, NULL);
	if (found > 0)
		(void) statement_suid(0, 1, result);
}

Datum
unsafemv_observe_safe_receipt(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");
	const View *view;
	int64		generation;
	Generation	state;
	Datum		values[5];
	bool		nulls[5] = {0};
	Datum		event_ids[1] = {PointerGetDatum(event_id)};
	Suid		bound;
	Suid		head;
	bool		isnull;

	statement_begin();
	view = registry_current_view(service_id, view_id);
	generation = registry_lock_active(view, &state);
	if (state.row_count > 0)
		RAISE(MV_SAFE_LANE_IN_USE, errmsg("generation has safe rows of its own"),
			  registry_errdetail_generation(view, generation),
			  errhint("Settle its events with apply_safe or apply_safe_batch."));

	registry_instance(values, view, generation);
	values[3] = PointerGetDatum(event_id);
	values[4] = SuidPGetDatum(suid);
	if (statement_execute(STATEMENT_RECEIPT_LOCK, values, NULL) == 0)
		RAISE(UNSAFE_RECEIPT_MISSING, errmsg("no receipt of this event and SUID"),
			  registry_errdetail_event(view, generation, event_id, suid),
			  errhint("Apply the event first."));
	if (!DatumGetBool(statement_value(0, 1, &isnull)) &&
		strcmp(TextDatumGetCString(statement_value(0, 2, &isnull)),
			   outcome_names[OUTCOME_BEHIND_FRONTIER]) == 0)
		RAISE(UNSAFE_BEHIND_FRONTIER, errmsg("event arrived behind the head and cannot be settled"),
			  registry_errdetail_event(view, generation, event_id, NULL),
			  errhint("Rebuild the view."));
	execute_for_events(STATEMENT_RECEIPT_SETTLE_KNOWN, view, generation, event_ids, 1);
	receipts_unmark(view, generation, &values[4], 1);

	/* The head: the greatest settled SUID below the smallest unsettled one. */
	first_unsettled(values, false, &bound);
	if (IsolationUsesXactSnapshot())
	{
		Suid		latest;

		/* What was applied since the snapshot must not be passed over. */
		first_unsettled(values, true, &latest);
		if (suid_compare(&latest, &bound) != 0)
			registry_serialization_failure(service_id, view_id);
	}
	values[3] = SuidPGetDatum(&bound);
	head = state.head;
	if (statement_execute(STATEMENT_RECEIPT_SETTLED_BELOW, values, NULL) > 0)
	{
		Suid		settled;

		(void) statement_suid(0, 1, &settled);
		if (!state.has_head || suid_compare(&settled, &head) > 0)
		{
			head = settled;
			state.has_head = true;
		}
	}
	nulls[3] = !state.has_head;
	values[3] = SuidPGetDatum(&head);
	values[4] = SuidPGetDatum(suid);
	(void) statement_execute(STATEMENT_HEAD_OBSERVE, values, nulls);
	statement_end();
	PG_RETURN_BOOL(true);
}

Datum
unsafemv_read_meta(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	View	   *view;
	Datum		values[3];
	Datum		result;

	statement_begin();
	view = registry_read_view(service_id, view_id);
	registry_instance(values, view, registry_resolve_generation(view, false, 0));
	if (statement_read(STATEMENT_RECEIPT_META, values, NULL) == 0)
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"), registry_errdetail(view));
	result = PointerGetDatum(SPI_returntuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc));
	statement_end();
	return result;
}

Datum
unsafemv_has_target_receipt(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *event_id = registry_event_argument(fcinfo, 2);
	const Suid *suid = registry_suid_argument(fcinfo, 3, "suid");
	View	   *view;
	Datum		values[4];
	bool		found;

	statement_begin();
	view = registry_read_view(service_id, view_id);
	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = PointerGetDatum(event_id);
	values[3] = SuidPGetDatum(suid);
	found = statement_read(STATEMENT_RECEIPT_EXISTS, values, NULL) > 0;
	statement_end();
	PG_RETURN_BOOL(found);
}
