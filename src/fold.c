/*
 * fold.c
 *	  Folds ordered events on row images: what both lanes do with operations.
 *
 * Guarantees (core 6.3): a tentative row is the fold, in SUID order, of the events
 * delivered for its key above the head, on its base; in whatever order they
 * arrive, the result is the same.  Events at or below the head are pruned whenever
 * the row is touched.  Pure: the same arguments give the same result; nothing but
 * the arguments is read or written.  Results are of the caller's memory context;
 * intermediate values of a refold are freed at once, so that a hot key costs
 * memory for its list, not for every step over it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "fold.h"

static void
set_entries(RowImage *image, const IndexEntry *more, int nmore, bool keep)
{
	int			before = keep ? image->nentries : 0;
	IndexEntry *entries = palloc(Max(before + nmore, 1) * sizeof(IndexEntry));

	if (before > 0)
		memcpy(entries, image->entries, before * sizeof(IndexEntry));
	if (nmore > 0)
		memcpy(entries + before, more, nmore * sizeof(IndexEntry));
	image->entries = entries;
	image->nentries = index_entry_set(entries, before + nmore);
}

static void
remove_entries(RowImage *image, const text *index_id)
{
	IndexEntry *entries = palloc(Max(image->nentries, 1) * sizeof(IndexEntry));
	int			count = 0;

	for (int i = 0; i < image->nentries; i++)
		if (index_id != NULL &&
			mutation_compare_text(image->entries[i].index_id, index_id) != 0)
			entries[count++] = image->entries[i];
	image->entries = entries;
	image->nentries = count;
}

bool
fold_step(RowImage *image, const Suid *suid, const KeyOperations *operations, bool strict)
{
	RowImage	before = *image;

	for (int i = 0; i < operations->count; i++)
	{
		const Operation *operation = &operations->operations[i];

		switch (operation->kind)
		{
			case OPERATION_DELETE:
				memset(image, 0, sizeof(RowImage));
				break;
			case OPERATION_UPSERT:
				image->present = true;
				image->value = operation->value;
				image->row_version = operation->row_version;
				image->source_suid = *suid;
				image->nentries = 0;
				image->entries = NULL;
				break;
			case OPERATION_PATCH:
				if (!image->present && !operation->create)
				{
					if (strict)
					{
						*image = before;
						return false;
					}
					break;
				}
				image->value = merge_patch_apply(operation->patch_kind,
												 image->present ? image->value : NULL,
												 operation->value);
				image->present = true;
				image->row_version = operation->row_version;
				image->source_suid = *suid;
				if (operation->nentries > 0)
					set_entries(image, operation->entries, operation->nentries, false);
				break;
			case OPERATION_UNINDEX:
				if (image->present)
					remove_entries(image, operation->index_id);
				break;
			case OPERATION_INDEX:
				if (image->present)
					set_entries(image, operation->entries, operation->nentries, true);
				break;
		}
	}
	return true;
}

KeyVerdict
fold_verdict(bool present, const KeyOperations *operations)
{
	const Operation *first_patch = NULL;
	bool		deleted = false;

	if (present)
		return KEY_APPLIED;
	for (int i = 0; i < operations->count; i++)
	{
		const Operation *operation = &operations->operations[i];

		if (operation->kind == OPERATION_UPSERT)
			return KEY_APPLIED;
		if (operation->kind == OPERATION_DELETE)
			deleted = true;
		if (operation->kind == OPERATION_PATCH && first_patch == NULL)
			first_patch = operation;
	}
	if (first_patch != NULL)
		return first_patch->create ? KEY_APPLIED : KEY_PATCH_NOT_FOUND;
	return deleted ? KEY_DELETE_WITHOUT_ROW : KEY_APPLIED;
}

bool
fold_counts(const TentativeRow *row, const Suid *head)
{
	return row->exists && (head == NULL || suid_compare(&row->source_suid, head) > 0);
}

/* An event that leaves exactly this image, whatever was there before. */
static void
snapshot_event(const RowImage *image, const Suid *suid, KeptEvent *event)
{
	event->suid = *suid;
	event->operations.row_key = NULL;
	event->operations.count = 1;
	event->operations.operations = palloc0(2 * sizeof(Operation));
	if (!image->present)
		event->operations.operations[0].kind = OPERATION_DELETE;
	else
	{
		event->operations.operations[0].kind = OPERATION_UPSERT;
		event->operations.operations[0].value = image->value;
		event->operations.operations[0].row_version = image->row_version;
	}
	if (image->present && image->nentries > 0)
	{
		event->operations.operations[1].kind = OPERATION_INDEX;
		event->operations.operations[1].nentries = image->nentries;
		event->operations.operations[1].entries = image->entries;
		event->operations.count = 2;
	}
}

static void
reserve_kept(TentativeRow *row, int count)
{
	if (row->kept_allocated >= count)
		return;
	row->kept_allocated = Max(count, 2 * row->kept_allocated);
	if (row->kept == NULL)
		row->kept = palloc(row->kept_allocated * sizeof(KeptEvent));
	else
		row->kept = repalloc(row->kept, row->kept_allocated * sizeof(KeptEvent));
}

/*
 * Make row->kept the events above the head, ascending; a pure row gives one
 * snapshot event.
 */
static void
live_events(TentativeRow *row, const Suid *head)
{
	int			dead = 0;

	if (!fold_counts(row, head))
	{
		row->nkept = 0;
		return;
	}
	if (row->nkept == 0)
	{
		reserve_kept(row, 1);
		snapshot_event(&row->image, &row->source_suid, &row->kept[0]);
		row->nkept = 1;
		return;
	}
	while (head != NULL && suid_compare(&row->kept[dead].suid, head) <= 0)
		dead++;
	row->nkept -= dead;
	if (dead > 0)
		memmove(row->kept, row->kept + dead, row->nkept * sizeof(KeptEvent));
}

/* Fold the first "count" events on the base. */
static void
fold_events(const RowImage *base, const KeptEvent *events, int count, RowImage *result)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch;

	*result = *base;
	if (count == 0)
		return;
	if (count == 1)
	{
		(void) fold_step(result, &events[0].suid, &events[0].operations, false);
		return;
	}

	scratch = AllocSetContextCreate(caller, "unsafemv fold", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(scratch);
	for (int i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) fold_step(result, &events[i].suid, &events[i].operations, false);
	}
	MemoryContextSwitchTo(caller);
	if (result->present)
	{
		Jsonb	   *value = palloc(VARSIZE(result->value));

		memcpy(value, result->value, VARSIZE(result->value));
		result->value = value;
		set_entries(result, NULL, 0, true);
	}
	MemoryContextDelete(scratch);
}

bool
fold_stale(const TentativeRow *row, const Suid *head, const RowImage *base)
{
	if (row->nkept == 0)
		return false;
	if (head != NULL && suid_compare(&row->kept[0].suid, head) <= 0)
		return true;
	if (row->has_base != base->present)
		return true;
	return base->present && suid_compare(&row->base_suid, &base->source_suid) != 0;
}

/* Cut what the last upsert or delete supersedes. */
static void
cut_superseded(TentativeRow *row)
{
	int			start = row->nkept - 1;

	while (start > 0 && !mutation_is_full(&row->kept[start].operations))
		start--;
	if (start > 0)
	{
		row->nkept -= start;
		memmove(row->kept, row->kept + start, row->nkept * sizeof(KeptEvent));
	}
}

static Size
kept_bytes(const TentativeRow *row)
{
	Size		total = 0;

	for (int i = 0; i < row->nkept; i++)
	{
		const KeyOperations *operations = &row->kept[i].operations;

		for (int j = 0; j < operations->count; j++)
			if (operations->operations[j].value != NULL)
				total += VARSIZE(operations->operations[j].value);
	}
	return total;
}

/*
 * Beyond the cap, the oldest half becomes one operation at its place; again while
 * few but large operations are beyond it.
 */
static void
cap_kept(TentativeRow *row, const RowImage *base)
{
	while (row->nkept > 1 &&
		   (row->nkept > FOLD_MAX_KEPT_EVENTS || kept_bytes(row) > FOLD_MAX_KEPT_BYTES))
	{
		int			half = row->nkept / 2;
		RowImage	image;

		if (half == 1 && mutation_is_full(&row->kept[0].operations))
			half = 2;
		fold_events(base, row->kept, half, &image);
		snapshot_event(&image, &row->kept[half - 1].suid, &row->kept[half - 1]);
		row->nkept -= half - 1;
		memmove(row->kept, row->kept + half - 1, row->nkept * sizeof(KeptEvent));
	}
}

/* The rest of the row follows from its list of events, its base and its image. */
static void
settle_row(TentativeRow *row, const RowImage *base)
{
	row->exists = true;
	row->source_suid = row->kept[row->nkept - 1].suid;
	row->row_version = row->image.present ? row->image.row_version : 0;
	row->has_base = base->present;
	row->base_suid = base->source_suid;
	if (row->nkept == 1 && mutation_is_full(&row->kept[0].operations))
	{
		row->nkept = 0;
		row->has_base = false;
	}
}

void
fold_refresh(TentativeRow *row, const Suid *head, const RowImage *base)
{
	if (fold_counts(row, head) && row->nkept == 0)
		return;
	live_events(row, head);
	if (row->nkept == 0)
	{
		row->exists = false;
		return;
	}
	fold_events(base, row->kept, row->nkept, &row->image);
	settle_row(row, base);
}

KeyVerdict
fold_judge(const TentativeRow *row, const Suid *head, const RowImage *base,
		   const Suid *suid, const KeyOperations *operations, bool *left_as_is)
{
	RowImage	before;
	RowImage	after;
	KeyVerdict	verdict;

	*left_as_is = false;
	if (!fold_counts(row, head))
		before = *base;
	else if (suid_compare(suid, &row->source_suid) > 0 && !fold_stale(row, head, base))
		before = row->image;
	else
	{
		TentativeRow copy = *row;
		int			place = 0;

		copy.kept_allocated = 0;
		copy.kept = NULL;
		if (row->nkept > 0)
		{
			reserve_kept(&copy, row->nkept);
			memcpy(copy.kept, row->kept, row->nkept * sizeof(KeptEvent));
		}
		live_events(&copy, head);
		for (int i = 0; i < copy.nkept; i++)
		{
			if (suid_compare(&copy.kept[i].suid, suid) < 0)
				place = i + 1;
			else if (mutation_is_full(&copy.kept[i].operations))
				return KEY_SUPERSEDED;
		}
		fold_events(base, copy.kept, place, &before);
		pfree(copy.kept);
	}

	verdict = fold_verdict(before.present, operations);
	if (!before.present && verdict != KEY_APPLIED)
	{
		after = before;
		(void) fold_step(&after, suid, operations, false);
		*left_as_is = !after.present;
	}
	return verdict;
}

void
fold_insert(TentativeRow *row, const Suid *head, const RowImage *base,
			const Suid *suid, const KeyOperations *operations)
{
	bool		append = fold_counts(row, head) && suid_compare(suid, &row->source_suid) > 0 &&
	!fold_stale(row, head, base);
	int			place;

	if (!fold_counts(row, head))
		row->image = *base;
	live_events(row, head);
	for (place = row->nkept; place > 0; place--)
		if (suid_compare(&row->kept[place - 1].suid, suid) < 0)
			break;
	if (place == row->nkept && mutation_is_full(operations))
	{
		/* Replaces everything: nothing before it matters. */
		row->nkept = 0;
		place = 0;
		append = true;
	}
	reserve_kept(row, row->nkept + 1);
	memmove(row->kept + place + 1, row->kept + place, (row->nkept - place) * sizeof(KeptEvent));
	row->kept[place].suid = *suid;
	row->kept[place].operations = *operations;
	row->nkept++;

	if (append)
		(void) fold_step(&row->image, suid, operations, false);
	cut_superseded(row);
	if (!append)
		fold_events(base, row->kept, row->nkept, &row->image);
	cap_kept(row, base);
	settle_row(row, base);
}

void
fold_entries(const RowImage *image, const DeclaredIndexes *declared,
			 int *count, IndexEntry **entries)
{
	int			total = image->nentries;

	*entries = NULL;
	*count = 0;
	if (!image->present || total + declared->count == 0)
		return;
	*entries = palloc((total + declared->count) * sizeof(IndexEntry));
	if (total > 0)
		memcpy(*entries, image->entries, total * sizeof(IndexEntry));
	total += index_entry_derive(image->value, declared, *entries + total);
	*count = index_entry_set(*entries, total);
}
