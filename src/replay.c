/*
 * replay.c
 *	  Replays tentative events when another definition becomes active.
 *
 * Guarantees: part of the promotion's transaction; every event is replayed whole
 * or not at all.  The events are applied as one batch; if that fails, one by one,
 * each in a subtransaction, so that one that fails does not take the others along.
 * With a key function they go one by one at once, because each plan depends on the
 * rows the one before left.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "lane_unsafe.h"
#include "compat.h"
#include "replay.h"
#include "source.h"

/* Of one event whose plan depends on rows. */
typedef struct RowsReplay
{
	Projection *projection;
	SourceEvent *source;
} RowsReplay;

static void
make_plan(Projection *projection, SourceEvent *source, Jsonb *rows, MutationPlan *result)
{
	projection_parse(projection, source->event_id, &source->suid,
					 projection_plan(projection, source->event_id, source->event, rows), result);
}

static void
plan_from_rows(Jsonb *rows, MutationPlan *result, void *context)
{
	RowsReplay *replay = context;

	make_plan(replay->projection, replay->source, rows, result);
}

static void
apply_events(Projection *projection, SourceEvent **sources, int count)
{
	PlannedEvent *planned = palloc0(count * sizeof(PlannedEvent));
	const View *view = projection->view;

	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		planned[i].event_id = sources[i]->event_id;
		planned[i].suid = sources[i]->suid;
		if (projection->key_name == NULL)
			make_plan(projection, sources[i], NULL, &planned[i].plan);
	}
	if (projection->key_name == NULL)
		lane_unsafe_apply(view, planned, count, NULL);
	else
	{
		RowsReplay	context = {projection, sources[0]};
		RowsPlan	plan = {0};

		Assert(count == 1);
		projection_keys(projection, sources[0]->event_id, sources[0]->event, &plan.nkeys, &plan.row_keys);
		plan.make = plan_from_rows;
		plan.context = &context;
		lane_unsafe_apply(view, planned, 1, &plan);
	}
}

/* In a subtransaction; false: it failed through the events' fault. */
static bool
try_events(Projection *projection, SourceEvent **sources, int count)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool failed = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		apply_events(projection, sources, count);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error = errors_roll_back(caller, owner);

		/* Only what has a code of ours is an event's fault. */
		if (error->constraint_name == NULL || unpack_sql_state(error->sqlerrcode)[0] != 'U')
			ReThrowError(error);
		failed = true;
	}
	PG_END_TRY();
	return !failed;
}

void
replay_events(const text *service_id, const text *view_id, ReplayEvent *events, int count)
{
	Projection	projection;
	const View *view;
	SourceEvent *found;
	SourceEvent **sources;
	ReplayEvent **targets;
	Datum	   *suids = palloc(Max(count, 1) * sizeof(Datum));
	int			nfound;
	int			known = 0;

	if (count == 0)
		return;
	CommandCounterIncrement();
	view = registry_locked_view(service_id, view_id);
	if (!projection_read(view, &projection))
		return;
	for (int i = 0; i < count; i++)
		suids[i] = SuidPGetDatum(&events[i].suid);
	nfound = source_find(&projection, suids, count, &found);
	sources = palloc(Max(nfound, 1) * sizeof(SourceEvent *));
	targets = palloc(Max(nfound, 1) * sizeof(ReplayEvent *));

	/* Both are in the order of "events". */
	for (int i = 0, j = 0; i < nfound && j < count;)
	{
		int			order = suid_compare(&found[i].suid, &events[j].suid);

		if (order == 0 && mutation_compare_text(found[i].event_id, events[j].event_id) == 0)
		{
			sources[known] = &found[i++];
			targets[known++] = &events[j++];
		}
		else if (order <= 0)
			i++;
		else
			j++;
	}
	if (known == 0)
		return;
	if (projection.key_name == NULL && try_events(&projection, sources, known))
	{
		for (int i = 0; i < known; i++)
			targets[i]->replayed = true;
		return;
	}
	for (int i = 0; i < known; i++)
		targets[i]->replayed = try_events(&projection, &sources[i], 1);
}
