/*
 * kept.c
 *	  Kept events and index entries as jsonb, the form in which a tentative row
 *	  carries them.
 *
 * Guarantees: writing and reading back gives the same structs, digit by digit.
 * Reading trusts nothing, as whoever may write the tables may have written them: what
 * is not in our format is an error.  Pure; results are of the caller's memory
 * context.
 */
#include "postgres.h"

#include "common/shortest_dec.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "jsonb_read.h"
#include "kept.h"

static void
push_string(JsonbParseState **state, JsonbIteratorToken token, const char *data, int length)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, data);
	value.val.string.len = length;
	(void) pushJsonbValue(state, token, &value);
}

static void
push_key(JsonbParseState **state, const char *name)
{
	push_string(state, WJB_KEY, name, strlen(name));
}

static void
push_numeric(JsonbParseState **state, JsonbIteratorToken token, Numeric number)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	value.val.numeric = number;
	(void) pushJsonbValue(state, token, &value);
}

static void
push_true(JsonbParseState **state, JsonbIteratorToken token)
{
	JsonbValue	value;

	value.type = jbvBool;
	value.val.boolean = true;
	(void) pushJsonbValue(state, token, &value);
}

static void
push_jsonb(JsonbParseState **state, Jsonb *jsonb)
{
	JsonbValue	value;

	if (JB_ROOT_IS_SCALAR(jsonb))
	{
		(void) JsonbExtractScalar(&jsonb->root, &value);
		(void) pushJsonbValue(state, WJB_VALUE, &value);
		return;
	}
	value.type = jbvBinary;
	value.val.binary.data = &jsonb->root;
	value.val.binary.len = VARSIZE(jsonb) - VARHDRSZ;
	(void) pushJsonbValue(state, WJB_VALUE, &value);
}

static Numeric
real_numeric(double real)
{
	char		digits[DOUBLE_SHORTEST_DECIMAL_LEN];

	/* Shortest digits that read back as the same number. */
	double_to_shortest_decimal_buf(real, digits);
	return DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(digits),
											   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

/* [id, type, value(, true)], all but the closing bracket. */
static void
push_entry(JsonbParseState **state, const IndexEntry *entry)
{
	const char *type = index_entry_type_name(entry->type);

	(void) pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	push_string(state, WJB_ELEM, VARDATA_ANY(entry->index_id), VARSIZE_ANY_EXHDR(entry->index_id));
	push_string(state, WJB_ELEM, type, strlen(type));
	switch (entry->type)
	{
		case INDEX_TEXT:
			push_string(state, WJB_ELEM, VARDATA_ANY(entry->text_value),
						VARSIZE_ANY_EXHDR(entry->text_value));
			break;
		case INDEX_INTEGER:
			push_numeric(state, WJB_ELEM, int64_to_numeric(entry->integer_value));
			break;
		case INDEX_REAL:
			push_numeric(state, WJB_ELEM, real_numeric(entry->real_value));
			break;
	}
	if (entry->derived)
		push_true(state, WJB_ELEM);
}

static void
push_entries(JsonbParseState **state, const IndexEntry *entries, int count)
{
	(void) pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < count; i++)
	{
		push_entry(state, &entries[i]);
		(void) pushJsonbValue(state, WJB_END_ARRAY, NULL);
	}
}

Jsonb *
kept_entry_to_jsonb(const IndexEntry *entry)
{
	JsonbParseState *state = NULL;

	push_entry(&state, entry);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

Jsonb *
kept_entries_to_jsonb(const IndexEntry *entries, int count)
{
	JsonbParseState *state = NULL;

	if (count == 0)
		return NULL;
	push_entries(&state, entries, count);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/* ---------- reading ---------- */

#define MALFORMED(expected) \
	RAISE_CORRUPTED(errmsg("malformed kept events or index entries: %s expected", expected))

static JsonbContainer *
root_array(Jsonb *jsonb)
{
	if (!JB_ROOT_IS_ARRAY(jsonb) || JB_ROOT_IS_SCALAR(jsonb))
		MALFORMED("array");
	return &jsonb->root;
}

static JsonbContainer *
value_array(const JsonbValue *value)
{
	if (value != NULL && value->type == jbvBinary && JsonContainerIsArray(value->val.binary.data))
		return value->val.binary.data;
	MALFORMED("array");
	return NULL;
}

static JsonbContainer *
value_object(const JsonbValue *value)
{
	if (value != NULL && value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data))
		return value->val.binary.data;
	MALFORMED("object");
	return NULL;
}

static const JsonbValue *
value_string(const JsonbValue *value)
{
	if (value != NULL && value->type == jbvString)
		return value;
	MALFORMED("string");
	return NULL;
}

static text *
value_text(const JsonbValue *value)
{
	return jsonb_string_text(value_string(value));
}

static int64
value_integer(const JsonbValue *value)
{
	int64		result = 0;

	if (value == NULL || !index_entry_integer(value, &result))
		MALFORMED("integer");
	return result;
}

static double
value_real(const JsonbValue *value)
{
	double		result = 0;

	if (value == NULL || !index_entry_real(value, &result))
		MALFORMED("number");
	return result;
}

static void
read_entries(JsonbContainer *array, bool derived, int *count, IndexEntry **entries)
{
	int			total = JsonContainerSize(array);
	int			found = 0;

	*entries = palloc0(Max(total, 1) * sizeof(IndexEntry));
	for (int i = 0; i < total; i++)
	{
		JsonbContainer *element = value_array(getIthJsonbValueFromContainer(array, i));
		IndexEntry *entry = &(*entries)[found];
		const JsonbValue *type;
		JsonbValue *value;

		entry->derived = JsonContainerSize(element) > 3;
		if (entry->derived && !derived)
			continue;
		entry->index_id = value_text(getIthJsonbValueFromContainer(element, 0));
		type = value_string(getIthJsonbValueFromContainer(element, 1));
		if (!index_entry_type(type->val.string.val, type->val.string.len, &entry->type))
			MALFORMED("value type");
		value = getIthJsonbValueFromContainer(element, 2);
		switch (entry->type)
		{
			case INDEX_TEXT:
				entry->text_value = value_text(value);
				break;
			case INDEX_INTEGER:
				entry->integer_value = value_integer(value);
				break;
			case INDEX_REAL:
				entry->real_value = value_real(value);
				break;
		}
		found++;
	}
	*count = index_entry_set(*entries, found);
}

void
kept_entries_from_jsonb(Jsonb *array, bool derived, int *count, IndexEntry **entries)
{
	*count = 0;
	*entries = NULL;
	if (array != NULL)
		read_entries(root_array(array), derived, count, entries);
}

static const char *const operation_names[] = {
	[OPERATION_DELETE] = "delete",
	[OPERATION_UPSERT] = "upsert",
	[OPERATION_PATCH] = "patch",
	[OPERATION_UNINDEX] = "unindex",
	[OPERATION_INDEX] = "index",
};

static void
push_operation(JsonbParseState **state, const Operation *operation)
{
	const char *name = operation_names[operation->kind];

	(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	push_key(state, "do");
	push_string(state, WJB_VALUE, name, strlen(name));
	if (operation->kind == OPERATION_UPSERT || operation->kind == OPERATION_PATCH)
	{
		push_key(state, "version");
		push_numeric(state, WJB_VALUE, int64_to_numeric(operation->row_version));
		push_key(state, "value");
		push_jsonb(state, operation->value);
	}
	if (operation->kind == OPERATION_PATCH)
	{
		name = merge_patch_kind_name(operation->patch_kind);
		push_key(state, "kind");
		push_string(state, WJB_VALUE, name, strlen(name));
		if (operation->create)
		{
			push_key(state, "create");
			push_true(state, WJB_VALUE);
		}
	}
	if (operation->index_id != NULL)
	{
		push_key(state, "indexId");
		push_string(state, WJB_VALUE, VARDATA_ANY(operation->index_id),
					VARSIZE_ANY_EXHDR(operation->index_id));
	}
	if (operation->nentries > 0)
	{
		push_key(state, "entries");
		push_entries(state, operation->entries, operation->nentries);
		(void) pushJsonbValue(state, WJB_END_ARRAY, NULL);
	}
	(void) pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

Jsonb *
kept_to_jsonb(const KeptEvent *events, int count)
{
	JsonbParseState *state = NULL;

	if (count == 0)
		return NULL;
	(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < count; i++)
	{
		/* Strings are copied only when all is pushed. */
		char	   *suid = palloc(SUID_TEXT_LENGTH + 1);

		suid_print(&events[i].suid, suid);
		(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		push_key(&state, "suid");
		push_string(&state, WJB_VALUE, suid, SUID_TEXT_LENGTH);
		push_key(&state, "ops");
		(void) pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
		for (int j = 0; j < events[i].operations.count; j++)
			push_operation(&state, &events[i].operations.operations[j]);
		(void) pushJsonbValue(&state, WJB_END_ARRAY, NULL);
		(void) pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static JsonbValue *
member(JsonbContainer *object, const char *name)
{
	return getKeyJsonValueFromContainer(object, name, strlen(name), NULL);
}

static void
read_operation(JsonbContainer *object, Operation *operation)
{
	const JsonbValue *name = value_string(member(object, "do"));
	JsonbValue *value;
	int			kind = 0;

	memset(operation, 0, sizeof(Operation));
	while (kind < (int) lengthof(operation_names) && !jsonb_string_is(name, operation_names[kind]))
		kind++;
	if (kind == (int) lengthof(operation_names))
		MALFORMED("operation");
	operation->kind = (OperationKind) kind;

	if (operation->kind == OPERATION_UPSERT || operation->kind == OPERATION_PATCH)
	{
		operation->row_version = value_integer(member(object, "version"));
		value = member(object, "value");
		if (value == NULL)
			MALFORMED("value");
		operation->value = JsonbValueToJsonb(value);
	}
	if (operation->kind == OPERATION_PATCH)
	{
		name = value_string(member(object, "kind"));
		if (!merge_patch_kind(name->val.string.val, name->val.string.len, &operation->patch_kind))
			MALFORMED("patch kind");
		if (!merge_patch_operand_valid(operation->patch_kind, operation->value))
			MALFORMED("operand of the patch kind");
		operation->create = member(object, "create") != NULL;
	}
	if ((value = member(object, "indexId")) != NULL)
		operation->index_id = value_text(value);
	if ((value = member(object, "entries")) != NULL)
		read_entries(value_array(value), true, &operation->nentries, &operation->entries);
}

void
kept_from_jsonb(Jsonb *array, int *count, KeptEvent **events)
{
	JsonbContainer *root;

	*count = 0;
	*events = NULL;
	if (array == NULL)
		return;
	root = root_array(array);
	*count = JsonContainerSize(root);
	*events = palloc0(Max(*count, 1) * sizeof(KeptEvent));
	for (int i = 0; i < *count; i++)
	{
		JsonbContainer *object = value_object(getIthJsonbValueFromContainer(root, i));
		const JsonbValue *suid = value_string(member(object, "suid"));
		JsonbContainer *operations = value_array(member(object, "ops"));
		KeptEvent  *event = &(*events)[i];
		KeyOperations *target = &event->operations;

		(void) suid_parse(suid->val.string.val, suid->val.string.len, &event->suid, NULL);
		if (i > 0 && suid_compare(&event[-1].suid, &event->suid) >= 0)
			MALFORMED("greater SUID");
		target->count = JsonContainerSize(operations);
		target->operations = palloc(Max(target->count, 1) * sizeof(Operation));
		for (int j = 0; j < target->count; j++)
			read_operation(value_object(getIthJsonbValueFromContainer(operations, j)),
						   &target->operations[j]);
	}
}
