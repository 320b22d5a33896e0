/*
 * fold.c
 *	  Folds ordered events on row images: what both lanes do with operations.
 *
 * Guarantees (core 6.3): a tentative row is the fold, in SUID order, of the events
 * delivered for its key above the head, on its base; in whatever order they
 * arrive, the result is the same.  Events at or below the head are pruned whenever
 * the row is touched.  Pure: the same arguments give the same result; nothing but
 * the arguments is read or written.  Results are of the caller's memory context;
 * intermediate values are freed at once, so that a hot key costs memory for its
 * events, not for every step over them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"

#include "fold.h"

/* From here on a value of at least this size is patched in a context of its own. */
#define LARGE_VALUE		1024

/* Give up the image's value (entries), unless "before" still has it. */
static void
release_value(RowImage *image, const RowImage *before)
{
	if (image->owns_value && (before == NULL || image->value != before->value))
		pfree(image->value);
	image->value = NULL;
	image->owns_value = false;
}

static void
release_entries(RowImage *image, const RowImage *before)
{
	if (image->owns_entries && (before == NULL || image->entries != before->entries))
		pfree(image->entries);
	image->entries = NULL;
	image->nentries = 0;
	image->owns_entries = false;
}

static void
release_image(RowImage *image, const RowImage *before)
{
	release_value(image, before);
	release_entries(image, before);
}

/* What else points to the image now, or outlives it, keeps what it has. */
static void
share_image(RowImage *image)
{
	image->owns_value = false;
	image->owns_entries = false;
}

static void
replace_entries(RowImage *image, const RowImage *before, IndexEntry *entries, int count)
{
	release_entries(image, before);
	image->entries = entries;
	image->nentries = count;
	image->owns_entries = true;
}

/* The entries of "count" operations, with what is there if "keep". */
static void
set_entries(RowImage *image, const RowImage *before, const Operation *operations, int count, bool keep)
{
	int			total = keep ? image->nentries : 0;
	int			room = total;
	IndexEntry *entries;

	for (int i = 0; i < count; i++)
		room += operations[i].nentries;
	entries = palloc(Max(room, 1) * sizeof(IndexEntry));
	if (total > 0)
		memcpy(entries, image->entries, total * sizeof(IndexEntry));
	for (int i = 0; i < count; i++)
	{
		if (operations[i].nentries > 0)
			memcpy(entries + total, operations[i].entries, operations[i].nentries * sizeof(IndexEntry));
		total += operations[i].nentries;
	}
	replace_entries(image, before, entries, index_entry_set(entries, total));
}

/* Take the indexes of "count" operations (NULL: all) out. */
static void
remove_entries(RowImage *image, const RowImage *before, const Operation *operations, int count)
{
	IndexEntry *entries = palloc(Max(image->nentries, 1) * sizeof(IndexEntry));
	int			left = image->nentries;

	if (left > 0)
		memcpy(entries, image->entries, left * sizeof(IndexEntry));
	for (int i = 0; i < count; i++)
	{
		const text *index_id = operations[i].index_id;
		int			kept = 0;

		CHECK_FOR_INTERRUPTS();
		for (int j = 0; j < left; j++)
			if (index_id != NULL && mutation_compare_text(entries[j].index_id, index_id) != 0)
				entries[kept++] = entries[j];
		left = kept;
	}
	replace_entries(image, before, entries, left);
}

/* A patch of a large value leaves a multiple of it behind. */
static Jsonb *
patch_value(const Operation *operation, Jsonb *target)
{
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext scratch;
	Jsonb	   *result;

	if (VARSIZE(operation->value) + (target == NULL ? 0 : VARSIZE(target)) < LARGE_VALUE)
		return merge_patch_apply(operation->patch_kind, target, operation->value);
	scratch = AllocSetContextCreate(caller, "unsafemv patch", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(scratch);
	result = merge_patch_apply(operation->patch_kind, target, operation->value);
	MemoryContextSwitchTo(caller);
	result = DatumGetJsonbPCopy(JsonbPGetDatum(result));
	MemoryContextDelete(scratch);
	return result;
}

bool
fold_step(RowImage *image, const Suid *suid, const KeyOperations *operations, bool strict)
{
	RowImage	before = *image;
	int			run;

	for (int i = 0; i < operations->count; i += run)
	{
		const Operation *operation = &operations->operations[i];
		Jsonb	   *value;

		/* Operations on entries come one an entry: a run of them is one step. */
		for (run = 1; operation->kind >= OPERATION_UNINDEX && i + run < operations->count &&
			 operation[run].kind == operation->kind; run++)
			;
		CHECK_FOR_INTERRUPTS();
		switch (operation->kind)
		{
			case OPERATION_DELETE:
				release_image(image, &before);
				memset(image, 0, sizeof(RowImage));
				break;
			case OPERATION_UPSERT:
				release_image(image, &before);
				image->present = true;
				image->value = operation->value;
				image->row_version = operation->row_version;
				image->source_suid = *suid;
				break;
			case OPERATION_PATCH:
				if (!image->present && !operation->create)
				{
					if (strict)
					{
						release_image(image, &before);
						*image = before;
						return false;
					}
					break;
				}
				value = patch_value(operation, image->present ? image->value : NULL);
				release_value(image, &before);
				image->value = value;
				image->owns_value = true;
				image->present = true;
				image->row_version = operation->row_version;
				image->source_suid = *suid;
				if (operation->nentries > 0)
					set_entries(image, &before, operation, 1, false);
				break;
			case OPERATION_UNINDEX:
				if (image->present)
					remove_entries(image, &before, operation, run);
				break;
			case OPERATION_INDEX:
				if (image->present)
					set_entries(image, &before, operation, run, true);
				break;
		}
	}
	if (before.value != image->value)
		release_value(&before, NULL);
	if (before.entries != image->entries)
		release_entries(&before, NULL);
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

/* An event that leaves exactly this image, whatever was there before, and takes it over. */
static void
snapshot_event(RowImage *image, const Suid *suid, KeptEvent *event)
{
	event->owns_value = image->owns_value;
	share_image(image);
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
	while (head != NULL && dead < row->nkept && suid_compare(&row->kept[dead].suid, head) <= 0)
		dead++;
	row->nkept -= dead;
	if (dead > 0)
		memmove(row->kept, row->kept + dead, row->nkept * sizeof(KeptEvent));
}

/* Fold the first "count" events on the base. */
static void
fold_events(const RowImage *base, const KeptEvent *events, int count, RowImage *result)
{
	*result = *base;
	share_image(result);
	for (int i = 0; i < count; i++)
		(void) fold_step(result, &events[i].suid, &events[i].operations, false);
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
		{
			const Operation *operation = &operations->operations[j];

			if (operation->value != NULL)
				total += VARSIZE(operation->value);
			for (int k = 0; k < operation->nentries; k++)
				total += sizeof(IndexEntry) +
					(operation->entries[k].text_value != NULL ? VARSIZE_ANY(operation->entries[k].text_value) : 0);
		}
	}
	return total;
}

/* Give up an event, unless an image still has its value. */
static void
release_event(const TentativeRow *row, KeptEvent *event, const RowImage *image)
{
	Jsonb	   *value = event->owns_value ? event->operations.operations[0].value : NULL;

	if (value != NULL && value != row->image.value && value != image->value)
		pfree(value);
	event->owns_value = false;
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
		for (int i = 0; i < half; i++)
			release_event(row, &row->kept[i], &image);
		snapshot_event(&image, &row->kept[half - 1].suid, &row->kept[half - 1]);
		row->nkept -= half - 1;
		memmove(row->kept, row->kept + half - 1, row->nkept * sizeof(KeptEvent));
	}
}

/* The image from the base and all events. */
static void
refold(TentativeRow *row, const RowImage *base)
{
	release_image(&row->image, NULL);
	fold_events(base, row->kept, row->nkept, &row->image);
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
		release_event(row, &row->kept[0], &row->image);
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
	refold(row, base);
	settle_row(row, base);
}

KeyVerdict
fold_judge(const TentativeRow *row, const Suid *head, const RowImage *base,
		   const Suid *suid, const KeyOperations *operations, bool *left_as_is)
{
	RowImage	image = {0};
	KeyVerdict	verdict;
	bool		present;		/* the row before: all that counts of it */

	*left_as_is = false;
	if (!fold_counts(row, head))
		present = base->present;
	else if (suid_compare(suid, &row->source_suid) > 0 && !fold_stale(row, head, base))
		present = row->image.present;
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
		fold_events(base, copy.kept, place, &image);
		present = image.present;
		release_image(&image, NULL);
		pfree(copy.kept);
	}

	verdict = fold_verdict(present, operations);
	if (!present && verdict != KEY_APPLIED)
	{
		memset(&image, 0, sizeof(RowImage));
		(void) fold_step(&image, suid, operations, false);
		*left_as_is = !image.present;
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
	{
		row->image = *base;
		share_image(&row->image);
	}
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
	row->kept[place].owns_value = false;
	row->nkept++;

	if (append)
		(void) fold_step(&row->image, suid, operations, false);
	cut_superseded(row);
	if (!append)
		refold(row, base);
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
