/*
 * mutation.c
 *	  Checks a mutation plan (core 5) and turns it into structs, grouped by row
 *	  key in C byte order.
 *
 * Guarantees: whatever passes here can be folded and stored by both lanes; the
 * folding never fails on it, and every index tuple it leads to fits.  A plan is
 * refused as a whole.  Nothing is read but the arguments; all memory is of the
 * caller's context.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "jsonb_read.h"
#include "mutation.h"

/* One operation with its key, before grouping. */
typedef struct PlanItem
{
	text	   *row_key;
	int			sequence;
	Operation	operation;
} PlanItem;

typedef struct ParseState
{
	const MutationSource *source;
	const Suid *suid;
	const DeclaredIndexes *declared;
	ErrorCode  *sink;

	/* where we are, for messages */
	const char *list;			/* NULL: the plan itself */
	int			item;
	const char *member;			/* NULL: the item itself */
	int			entry;			/* index into a patch's entries; -1: none */

	int			count;
	int			allocated;
	PlanItem   *items;
	int			nentries;		/* of all items */
	const char *patches;		/* what the plan calls that list */

	int			ntouched;		/* keys of row mutations, sorted */
	text	  **touched;
} ParseState;

#define FAIL(state, code, ...) \
	REJECT((state)->sink, code, __VA_ARGS__, errdetail("%s", describe_place(state)))

static char *
describe_place(ParseState *state)
{
	StringInfoData path;

	initStringInfo(&path);
	if (state->source->event_id != NULL)
		appendStringInfo(&path, "Service \"%s\", view \"%s\", event \"%s\", path ",
						 mutation_clip(state->source->service_id),
						 mutation_clip(state->source->view_id),
						 mutation_clip(state->source->event_id));
	else
		appendStringInfoString(&path, "Path ");
	appendStringInfoChar(&path, '$');
	if (state->source->position >= 0)
		appendStringInfo(&path, "[%d].mutations", state->source->position);
	if (state->list != NULL)
	{
		appendStringInfo(&path, ".%s", state->list);
		if (state->item >= 0)
			appendStringInfo(&path, "[%d]", state->item);
		if (state->entry >= 0)
			appendStringInfo(&path, ".indexEntries[%d]", state->entry);
		if (state->member != NULL)
			appendStringInfo(&path, ".%s", state->member);
	}
	appendStringInfoChar(&path, '.');
	return path.data;
}

char *
mutation_clip(const text *value)
{
	const char *data = VARDATA_ANY(value);
	int			length = VARSIZE_ANY_EXHDR(value);

	if (length <= 64)
		return pnstrdup(data, length);
	return psprintf("%s...", pnstrdup(data, pg_mbcliplen(data, length, 61)));
}

int
mutation_compare_text(const text *a, const text *b)
{
	int			length_a = VARSIZE_ANY_EXHDR(a);
	int			length_b = VARSIZE_ANY_EXHDR(b);
	int			order = memcmp(VARDATA_ANY(a), VARDATA_ANY(b), Min(length_a, length_b));

	if (order != 0)
		return order;
	return (length_a > length_b) - (length_a < length_b);
}

bool
mutation_is_full(const KeyOperations *operations)
{
	for (int i = 0; i < operations->count; i++)
		if (operations->operations[i].kind == OPERATION_UPSERT ||
			operations->operations[i].kind == OPERATION_DELETE)
			return true;
	return false;
}

int
mutation_errmsg_limit(const char *name, const text *value, int limit)
{
	return errmsg("%s has %d bytes, the limit is %d; it begins with \"%s\"", name,
				  (int) VARSIZE_ANY_EXHDR(value), limit, mutation_clip(value));
}

bool
mutation_check_length(const char *name, const text *value, int limit, ErrorCode *sink)
{
	if ((int) VARSIZE_ANY_EXHDR(value) <= limit)
		return true;
	REJECT(sink, MV_LIMIT_EXCEEDED, mutation_errmsg_limit(name, value, limit),
		   errhint("Shorten it, or use a digest of it."));
	return false;
}

/* The same for a part of a plan. */
static bool
check_length(ParseState *state, const char *name, const text *value, int limit)
{
	if ((int) VARSIZE_ANY_EXHDR(value) <= limit)
		return true;
	FAIL(state, MV_LIMIT_EXCEEDED, mutation_errmsg_limit(name, value, limit),
		 errhint("Shorten it, or use a digest of it."));
	return false;
}

/*
 * Nesting depth of a value.  Every container takes at least 8 bytes, so small
 * values need no walk.
 */
static bool
too_deep(Jsonb *value)
{
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	element;
	int			depth = 0;

	if (VARSIZE(value) < LIMIT_NESTING * 8)
		return false;
	iterator = JsonbIteratorInit(&value->root);
	while ((token = JsonbIteratorNext(&iterator, &element, false)) != WJB_DONE)
	{
		if (token == WJB_BEGIN_ARRAY || token == WJB_BEGIN_OBJECT)
		{
			if (++depth > LIMIT_NESTING)
				return true;
		}
		else if (token == WJB_END_ARRAY || token == WJB_END_OBJECT)
			depth--;
	}
	return false;
}

static bool
parse_row_key(ParseState *state, const JsonbValue *value, text **result)
{
	if (value->type == jbvNull || (value->type == jbvString && value->val.string.len == 0))
	{
		FAIL(state, MV_ROW_KEY_REQUIRED, errmsg("row key is empty"));
		return false;
	}
	if (value->type != jbvString)
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("row key is not a string"));
		return false;
	}
	*result = jsonb_string_text(value);
	return check_length(state, "row key", *result, LIMIT_ROW_KEY);
}

static bool
parse_row_version(ParseState *state, const JsonbValue *value, int64 *result)
{
	if (!index_entry_integer(value, result) || *result < 0)
	{
		FAIL(state, MV_ROW_VERSION_INVALID,
			 errmsg("row version is not a whole number from 0 to %lld", (long long) PG_INT64_MAX));
		return false;
	}
	return true;
}

static bool
parse_source_suid(ParseState *state, const JsonbValue *value)
{
	Suid		suid;
	ErrorCode	code = ERROR_NONE;

	if (value->type != jbvString)
	{
		FAIL(state, SUID_INVALID, errmsg("source SUID is not a string of 30 digits"));
		return false;
	}
	if (!suid_parse(value->val.string.val, value->val.string.len, &suid, &code))
	{
		FAIL(state, code, suid_errmsg(code, value->val.string.val, value->val.string.len));
		return false;
	}
	if (suid_compare(&suid, state->suid) != 0)
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("source SUID differs from the event's SUID"));
		return false;
	}
	return true;
}

static bool
parse_index_id(ParseState *state, const JsonbValue *value, text **result)
{
	if (value->type != jbvString || value->val.string.len == 0)
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("index id is not a string, or empty"));
		return false;
	}
	*result = jsonb_string_text(value);
	return check_length(state, "index id", *result, LIMIT_INDEX_ID);
}

/* Value and declaration of an entry whose other members are known. */
static bool
check_entry(ParseState *state, IndexEntry *entry, const JsonbValue *value)
{
	state->member = "indexId";
	if (state->declared != NULL && state->declared->count > 0)
	{
		const DeclaredIndex *found = NULL;

		for (int i = 0; i < state->declared->count; i++)
			if (mutation_compare_text(state->declared->indexes[i].index_id, entry->index_id) == 0)
				found = &state->declared->indexes[i];
		if (found == NULL)
		{
			FAIL(state, MV_INDEX_UNDECLARED,
				 errmsg("index \"%s\" is not declared", text_to_cstring(entry->index_id)),
				 errhint("Declare it when the view is created, or leave the entry out."));
			return false;
		}
		if (found->type != entry->type)
		{
			FAIL(state, MV_INDEX_VALUE_TYPE_MISMATCH,
				 errmsg("index \"%s\" is declared with type %s, not %s",
						text_to_cstring(entry->index_id),
						index_entry_type_name(found->type),
						index_entry_type_name(entry->type)));
			return false;
		}
	}

	state->member = "value";
	switch (entry->type)
	{
		case INDEX_TEXT:
			if (value->type == jbvString)
			{
				entry->text_value = jsonb_string_text(value);
				return check_length(state, "text index value", entry->text_value, LIMIT_TEXT_VALUE);
			}
			break;
		case INDEX_INTEGER:
			if (index_entry_integer(value, &entry->integer_value))
				return true;
			break;
		case INDEX_REAL:
			if (index_entry_real(value, &entry->real_value))
				return true;
			break;
	}
	FAIL(state, MV_INDEX_VALUE_INVALID,
		 errmsg("value of index \"%s\" does not fit type %s", text_to_cstring(entry->index_id),
				index_entry_type_name(entry->type)),
		 errhint("text takes a string, integer a whole number within bigint, real a finite number."));
	return false;
}

/*
 * One {"indexId", "valueType", "value", "rowKey"}.  *present is false for a null
 * value, *row_key NULL if the member is absent.
 */
static bool
parse_entry(ParseState *state, const JsonbValue *object, IndexEntry *entry,
			bool *present, text **row_key)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	member;
	JsonbValue	value;
	bool		has_id = false;
	bool		has_type = false;
	bool		has_value = false;

	memset(entry, 0, sizeof(IndexEntry));
	*row_key = NULL;
	*present = false;
	state->member = NULL;
	if (object->type != jbvBinary || !JsonContainerIsObject(object->val.binary.data))
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("index entry is not an object"));
		return false;
	}

	iterator = JsonbIteratorInit(object->val.binary.data);
	(void) JsonbIteratorNext(&iterator, &name, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &member, true);
		if (jsonb_string_is(&name, "indexId"))
		{
			state->member = "indexId";
			if (!parse_index_id(state, &member, &entry->index_id))
				return false;
			has_id = true;
		}
		else if (jsonb_string_is(&name, "valueType"))
		{
			state->member = "valueType";
			if (member.type != jbvString ||
				!index_entry_type(member.val.string.val, member.val.string.len, &entry->type))
			{
				FAIL(state, MV_PLAN_INVALID, errmsg("value type is not text, integer or real"));
				return false;
			}
			has_type = true;
		}
		else if (jsonb_string_is(&name, "value"))
		{
			value = member;
			has_value = true;
		}
		else if (jsonb_string_is(&name, "rowKey"))
		{
			state->member = "rowKey";
			if (!parse_row_key(state, &member, row_key))
				return false;
		}
		else
		{
			state->member = NULL;
			FAIL(state, MV_PLAN_INVALID, errmsg("unknown member \"%s\" of an index entry",
												pnstrdup(name.val.string.val, name.val.string.len)));
			return false;
		}
	}
	state->member = NULL;
	if (!has_id || !has_type || !has_value)
	{
		FAIL(state, MV_PLAN_INVALID,
			 errmsg("index entry lacks member \"%s\"",
					!has_id ? "indexId" : !has_type ? "valueType" : "value"));
		return false;
	}
	if (value.type == jbvNull)
		return true;
	*present = true;
	return check_entry(state, entry, &value);
}

static Operation *
add_item(ParseState *state, text *row_key, OperationKind kind)
{
	PlanItem   *item;

	if (state->count == state->allocated)
	{
		state->allocated = Max(4, state->allocated * 2);
		state->items = state->items == NULL ?
			palloc(state->allocated * sizeof(PlanItem)) :
			repalloc(state->items, state->allocated * sizeof(PlanItem));
	}
	item = &state->items[state->count];
	memset(item, 0, sizeof(PlanItem));
	item->row_key = row_key;
	item->sequence = state->count++;
	item->operation.kind = kind;
	return &item->operation;
}

static bool
parse_delete(ParseState *state, const JsonbValue *element)
{
	text	   *row_key = NULL;

	if (element->type == jbvBinary && JsonContainerIsObject(element->val.binary.data))
	{
		JsonbIterator *iterator = JsonbIteratorInit(element->val.binary.data);
		JsonbValue	name;
		JsonbValue	member;

		(void) JsonbIteratorNext(&iterator, &name, true);
		while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
		{
			(void) JsonbIteratorNext(&iterator, &member, true);
			if (!jsonb_string_is(&name, "rowKey"))
			{
				FAIL(state, MV_PLAN_INVALID, errmsg("unknown member \"%s\" of a delete",
													pnstrdup(name.val.string.val, name.val.string.len)));
				return false;
			}
			state->member = "rowKey";
			if (!parse_row_key(state, &member, &row_key))
				return false;
		}
		if (row_key == NULL)
		{
			FAIL(state, MV_ROW_KEY_REQUIRED, errmsg("delete lacks its row key"));
			return false;
		}
	}
	else if (!parse_row_key(state, element, &row_key))
		return false;

	(void) add_item(state, row_key, OPERATION_DELETE);
	return true;
}

/* An upsert, or with "patch" a patch. */
static bool
parse_write(ParseState *state, const JsonbValue *element, bool patch)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	member;
	JsonbContainer *entries = NULL;
	text	   *row_key = NULL;
	Jsonb	   *value = NULL;
	int64		row_version = 1;
	bool		has_kind = false;
	PatchKind	kind = PATCH_JSON_PATCH;
	bool		create = false;
	Operation  *operation;

	if (element->type != jbvBinary || !JsonContainerIsObject(element->val.binary.data))
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("%s is not an object", patch ? "patch" : "upsert"));
		return false;
	}

	iterator = JsonbIteratorInit(element->val.binary.data);
	(void) JsonbIteratorNext(&iterator, &name, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &member, true);
		if (jsonb_string_is(&name, "rowKey"))
		{
			state->member = "rowKey";
			if (!parse_row_key(state, &member, &row_key))
				return false;
		}
		else if (jsonb_string_is(&name, "rowVersion"))
		{
			state->member = "rowVersion";
			if (!parse_row_version(state, &member, &row_version))
				return false;
		}
		else if (jsonb_string_is(&name, "sourceSuid"))
		{
			state->member = "sourceSuid";
			if (!parse_source_suid(state, &member))
				return false;
		}
		else if (jsonb_string_is(&name, patch ? "patch" : "value"))
		{
			state->member = patch ? "patch" : "value";
			if (patch &&
				(member.type != jbvBinary || !JsonContainerIsObject(member.val.binary.data)))
			{
				FAIL(state, MV_PATCH_OBJECT_REQUIRED, errmsg("patch is not a JSON object"));
				return false;
			}
			value = JsonbValueToJsonb(&member);
			if (too_deep(value))
			{
				FAIL(state, MV_LIMIT_EXCEEDED,
					 errmsg("value is nested deeper than %d levels", LIMIT_NESTING));
				return false;
			}
		}
		else if (patch && jsonb_string_is(&name, "kind"))
		{
			state->member = "kind";
			if (member.type != jbvString ||
				!merge_patch_kind(member.val.string.val, member.val.string.len, &kind))
			{
				FAIL(state, MV_PATCH_KIND_INVALID,
					 errmsg("unknown patch kind"),
					 errhint("Kinds are json_patch, add, min, max, append and union."));
				return false;
			}
			has_kind = true;
		}
		else if (patch && jsonb_string_is(&name, "create"))
		{
			state->member = "create";
			if (member.type != jbvBool)
			{
				FAIL(state, MV_PLAN_INVALID, errmsg("create is not true or false"));
				return false;
			}
			create = member.val.boolean;
		}
		else if (patch && jsonb_string_is(&name, "indexEntries"))
		{
			state->member = "indexEntries";
			if (member.type != jbvBinary || !JsonContainerIsArray(member.val.binary.data))
			{
				FAIL(state, MV_PLAN_INVALID, errmsg("indexEntries is not an array"));
				return false;
			}
			entries = member.val.binary.data;
		}
		else
		{
			state->member = NULL;
			FAIL(state, MV_PLAN_INVALID,
				 errmsg("unknown member \"%s\" of %s",
						pnstrdup(name.val.string.val, name.val.string.len),
						patch ? "a patch" : "an upsert"));
			return false;
		}
	}
	state->member = NULL;
	if (row_key == NULL)
	{
		FAIL(state, MV_ROW_KEY_REQUIRED, errmsg("%s lacks its row key", patch ? "patch" : "upsert"));
		return false;
	}
	if (patch && !has_kind)
	{
		FAIL(state, MV_PATCH_KIND_INVALID, errmsg("patch lacks its kind"),
			 errhint("Kinds are json_patch, add, min, max, append and union."));
		return false;
	}
	if (value == NULL)
	{
		if (patch)
			FAIL(state, MV_PATCH_OBJECT_REQUIRED, errmsg("patch lacks member \"patch\""));
		else
			FAIL(state, MV_PLAN_INVALID, errmsg("upsert lacks member \"value\""));
		return false;
	}
	if (patch && !merge_patch_operand_valid(kind, value))
	{
		state->member = "patch";
		FAIL(state, MV_PLAN_INVALID,
			 errmsg("a leaf of a patch of kind %s is not a number", merge_patch_kind_name(kind)));
		return false;
	}

	operation = add_item(state, row_key, patch ? OPERATION_PATCH : OPERATION_UPSERT);
	operation->row_version = row_version;
	operation->value = value;
	operation->patch_kind = kind;
	operation->create = create;
	if (entries != NULL)
	{
		int			count = JsonContainerSize(entries);

		operation->entries = palloc(Max(count, 1) * sizeof(IndexEntry));
		for (int i = 0; i < count; i++)
		{
			JsonbValue *object = getIthJsonbValueFromContainer(entries, i);
			IndexEntry *entry = &operation->entries[operation->nentries];
			text	   *named;
			bool		present;

			CHECK_FOR_INTERRUPTS();
			state->entry = i;
			if (!parse_entry(state, object, entry, &present, &named))
				return false;
			if (named != NULL && mutation_compare_text(named, row_key) != 0)
			{
				state->member = "rowKey";
				FAIL(state, MV_INDEX_ROW_KEY_MISMATCH,
					 errmsg("index entry of a patch names another row"));
				return false;
			}
			if (present)
				operation->nentries++;
		}
		state->entry = -1;
		state->nentries += operation->nentries;
	}
	return true;
}

static int
compare_keys(const void *a, const void *b)
{
	return mutation_compare_text(*(text *const *) a, *(text *const *) b);
}

/* Remember the rows the plan touches, for touches(). */
static void
collect_touched(ParseState *state)
{
	state->touched = palloc(Max(state->count, 1) * sizeof(text *));
	state->ntouched = state->count;
	for (int i = 0; i < state->count; i++)
		state->touched[i] = state->items[i].row_key;
	qsort(state->touched, state->ntouched, sizeof(text *), compare_keys);
}

static bool
touches(const ParseState *state, const text *row_key)
{
	return bsearch(&row_key, state->touched, state->ntouched, sizeof(text *), compare_keys) != NULL;
}

static bool
parse_index_delete(ParseState *state, const JsonbValue *element)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	member;
	text	   *row_key = NULL;
	text	   *index_id = NULL;

	if (element->type != jbvBinary || !JsonContainerIsObject(element->val.binary.data))
	{
		FAIL(state, MV_PLAN_INVALID, errmsg("index delete is not an object"));
		return false;
	}
	iterator = JsonbIteratorInit(element->val.binary.data);
	(void) JsonbIteratorNext(&iterator, &name, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &member, true);
		if (jsonb_string_is(&name, "rowKey"))
		{
			state->member = "rowKey";
			if (!parse_row_key(state, &member, &row_key))
				return false;
		}
		else if (jsonb_string_is(&name, "indexId"))
		{
			state->member = "indexId";
			if (member.type != jbvNull && !parse_index_id(state, &member, &index_id))
				return false;
		}
		else
		{
			state->member = NULL;
			FAIL(state, MV_PLAN_INVALID, errmsg("unknown member \"%s\" of an index delete",
												pnstrdup(name.val.string.val, name.val.string.len)));
			return false;
		}
	}
	state->member = NULL;
	if (row_key == NULL)
	{
		FAIL(state, MV_ROW_KEY_REQUIRED, errmsg("index delete lacks its row key"));
		return false;
	}
	if (!touches(state, row_key))
	{
		FAIL(state, MV_INDEX_ROW_KEY_MISMATCH,
			 errmsg("index delete names a row that the plan does not touch"));
		return false;
	}
	add_item(state, row_key, OPERATION_UNINDEX)->index_id = index_id;
	return true;
}

static bool
parse_index_entry(ParseState *state, const JsonbValue *element)
{
	IndexEntry *entry = palloc(sizeof(IndexEntry));
	text	   *row_key;
	bool		present;
	Operation  *operation;

	if (!parse_entry(state, element, entry, &present, &row_key))
		return false;
	state->member = NULL;
	if (row_key == NULL)
	{
		FAIL(state, MV_ROW_KEY_REQUIRED, errmsg("index entry lacks its row key"));
		return false;
	}
	if (!touches(state, row_key))
	{
		FAIL(state, MV_INDEX_ROW_KEY_MISMATCH,
			 errmsg("index entry names a row that the plan does not touch"));
		return false;
	}
	if (!present)
		return true;
	operation = add_item(state, row_key, OPERATION_INDEX);
	operation->nentries = 1;
	operation->entries = entry;
	state->nentries++;
	return true;
}

static int
compare_items(const void *a, const void *b)
{
	const PlanItem *item_a = a;
	const PlanItem *item_b = b;
	int			order = mutation_compare_text(item_a->row_key, item_b->row_key);

	if (order != 0)
		return order;
	return item_a->sequence - item_b->sequence;
}

/*
 * Group the items by key; they are in phase order already.  A delete listed twice
 * is one delete.
 */
static void
group_items(ParseState *state, MutationPlan *result)
{
	Operation  *operations;
	int			noperations = 0;

	if (state->count == 0)
		return;
	if (state->count > 1)
		qsort(state->items, state->count, sizeof(PlanItem), compare_items);
	operations = palloc(state->count * sizeof(Operation));
	result->keys = palloc(state->count * sizeof(KeyOperations));
	for (int i = 0; i < state->count; i++)
	{
		const PlanItem *item = &state->items[i];
		bool		same = i > 0 && mutation_compare_text(item->row_key, item[-1].row_key) == 0;

		if (same && item->operation.kind == OPERATION_DELETE)
		{
			result->deletes--;
			continue;
		}
		if (!same)
		{
			KeyOperations *key = &result->keys[result->nkeys++];

			key->row_key = item->row_key;
			key->count = 0;
			key->operations = &operations[noperations];
		}
		operations[noperations++] = item->operation;
		result->keys[result->nkeys - 1].count++;
	}
}

/* Deleting and patching one key needs an upsert or create in between. */
static bool
check_patched_deletes(ParseState *state, const MutationPlan *plan)
{
	for (int i = 0; i < plan->nkeys; i++)
	{
		const KeyOperations *key = &plan->keys[i];
		bool		gone = false;

		for (int j = 0; j < key->count; j++)
		{
			const Operation *operation = &key->operations[j];

			if (operation->kind == OPERATION_DELETE)
				gone = true;
			else if (operation->kind == OPERATION_UPSERT)
				gone = false;
			else if (operation->kind == OPERATION_PATCH && gone && !operation->create)
			{
				state->list = state->patches;
				state->item = -1;
				FAIL(state, MV_PLAN_INVALID,
					 errmsg("row \"%s\" is deleted and patched by one plan", mutation_clip(key->row_key)),
					 errhint("Give the patch \"create\": true, or upsert the row."));
				return false;
			}
		}
	}
	return true;
}

/* How many index entries the plan gives one row. */
static bool
check_row_entries(ParseState *state, const MutationPlan *plan)
{
	if (state->nentries <= LIMIT_ROW_ENTRIES)
		return true;
	for (int i = 0; i < plan->nkeys; i++)
	{
		const KeyOperations *key = &plan->keys[i];
		int			count = 0;
		bool		listed = false;

		for (int j = 0; j < key->count; j++)
		{
			count += key->operations[j].nentries;
			listed |= key->operations[j].kind == OPERATION_INDEX;
		}
		if (count <= LIMIT_ROW_ENTRIES)
			continue;
		state->list = listed ? "indexEntries" : state->patches;
		state->item = -1;
		FAIL(state, MV_LIMIT_EXCEEDED,
			 errmsg("row \"%s\" is given %d index entries by one plan, the limit is %d",
					mutation_clip(key->row_key), count, LIMIT_ROW_ENTRIES),
			 errhint("Index what queries look for, or make several rows of it."));
		return false;
	}
	return true;
}

enum
{
	LIST_DELETES,
	LIST_UPSERTS,
	LIST_PATCHES,
	LIST_INDEX_DELETES,
	LIST_INDEX_ENTRIES,
	LIST_COUNT
};

static const char *const list_names[LIST_COUNT][2] = {
	{"rowDeletes", "deletes"},
	{"rowUpserts", "upserts"},
	{"rowPatches", "patches"},
	{"indexDeletes", NULL},
	{"indexEntries", NULL},
};

bool
mutation_parse(Jsonb *plan, const Suid *suid, const DeclaredIndexes *declared,
			   const MutationSource *source, MutationPlan *result, ErrorCode *sink)
{
	ParseState	state = {0};
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	member;
	JsonbContainer *lists[LIST_COUNT] = {0};
	const char *names[LIST_COUNT] = {0};

	memset(result, 0, sizeof(MutationPlan));
	state.source = source;
	state.suid = suid;
	state.declared = declared;
	state.sink = sink;
	state.item = -1;
	state.entry = -1;

	if (!JB_ROOT_IS_OBJECT(plan))
	{
		FAIL(&state, MV_PLAN_INVALID, errmsg("mutation plan is not a JSON object"));
		return false;
	}

	/* Find the lists first: they count in their own order, not in the JSON's. */
	iterator = JsonbIteratorInit(&plan->root);
	(void) JsonbIteratorNext(&iterator, &name, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		int			list;

		(void) JsonbIteratorNext(&iterator, &member, true);
		for (list = 0; list < LIST_COUNT; list++)
			if (jsonb_string_is(&name, list_names[list][0]) ||
				(list_names[list][1] != NULL && jsonb_string_is(&name, list_names[list][1])))
				break;
		if (list == LIST_COUNT)
		{
			FAIL(&state, MV_PLAN_INVALID,
				 errmsg("unknown member \"%s\" of a mutation plan",
						pnstrdup(name.val.string.val, name.val.string.len)),
				 errhint("Members are rowUpserts, rowPatches, rowDeletes (or upserts, patches, deletes), indexEntries and indexDeletes."));
			return false;
		}
		state.list = names[list] = list_names[list][jsonb_string_is(&name, list_names[list][0]) ? 0 : 1];
		if (lists[list] != NULL)
		{
			FAIL(&state, MV_PLAN_INVALID, errmsg("list is given under both its names"));
			return false;
		}
		if (member.type != jbvBinary || !JsonContainerIsArray(member.val.binary.data))
		{
			FAIL(&state, MV_PLAN_INVALID, errmsg("list of a mutation plan is not an array"));
			return false;
		}
		lists[list] = member.val.binary.data;
	}

	for (int list = 0; list < LIST_COUNT; list++)
	{
		int			before = state.count;

		if (lists[list] == NULL)
			continue;
		if (list >= LIST_INDEX_DELETES && state.touched == NULL)
			collect_touched(&state);
		state.list = names[list];
		state.item = -1;
		iterator = JsonbIteratorInit(lists[list]);
		(void) JsonbIteratorNext(&iterator, &member, true);
		while (JsonbIteratorNext(&iterator, &member, true) == WJB_ELEM)
		{
			bool		good = false;

			CHECK_FOR_INTERRUPTS();
			state.item++;
			state.member = NULL;
			switch (list)
			{
				case LIST_DELETES:
					good = parse_delete(&state, &member);
					break;
				case LIST_UPSERTS:
					good = parse_write(&state, &member, false);
					break;
				case LIST_PATCHES:
					good = parse_write(&state, &member, true);
					break;
				case LIST_INDEX_DELETES:
					good = parse_index_delete(&state, &member);
					break;
				default:		/* LIST_INDEX_ENTRIES */
					good = parse_index_entry(&state, &member);
					break;
			}
			if (!good)
				return false;
		}
		if (list == LIST_DELETES)
			result->deletes = state.count - before;
		else if (list == LIST_UPSERTS)
			result->upserts = state.count - before;
		else if (list == LIST_PATCHES)
			result->patches = state.count - before;
	}

	group_items(&state, result);
	state.patches = names[LIST_PATCHES];
	state.member = NULL;
	return check_patched_deletes(&state, result) && check_row_entries(&state, result);
}
