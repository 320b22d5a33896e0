/*
 * kept.c
 *	  Kept events and index entries as jsonb, the form in which a tentative row
 *	  carries them.
 *
 * Guarantees: writing and reading back gives the same structs, digit by digit.
 * The format is our own, hence malformed input is an internal error.  Pure;
 * results are of the caller's memory context.
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

static text *
value_text(const JsonbValue *value)
{
	if (value->type != jbvString)
		elog(ERROR, "malformed kept data: string expected");
	return jsonb_string_text(value);
}

static int64
value_integer(const JsonbValue *value)
{
	int64		result;

	if (!index_entry_integer(value, &result))
		elog(ERROR, "malformed kept data: integer expected");
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
		JsonbContainer *element = getIthJsonbValueFromContainer(array, i)->val.binary.data;
		IndexEntry *entry = &(*entries)[found];
		JsonbValue *type;
		JsonbValue *value;

		entry->derived = JsonContainerSize(element) > 3;
		if (entry->derived && !derived)
			continue;
		entry->index_id = value_text(getIthJsonbValueFromContainer(element, 0));
		type = getIthJsonbValueFromContainer(element, 1);
		if (!index_entry_type(type->val.string.val, type->val.string.len, &entry->type))
			elog(ERROR, "malformed kept data: unknown value type");
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
				if (!index_entry_real(value, &entry->real_value))
					elog(ERROR, "malformed kept data: number expected");
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
		read_entries(&array->root, derived, count, entries);
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
	JsonbValue *value = member(object, "do");
	int			kind = 0;

	memset(operation, 0, sizeof(Operation));
	while (kind < (int) lengthof(operation_names) &&
		   !(value != NULL && value->type == jbvString && jsonb_string_is(value, operation_names[kind])))
		kind++;
	if (kind == (int) lengthof(operation_names))
		elog(ERROR, "malformed kept data: unknown operation");
	operation->kind = (OperationKind) kind;

	if ((value = member(object, "version")) != NULL)
		operation->row_version = value_integer(value);
	if ((value = member(object, "value")) != NULL)
		operation->value = JsonbValueToJsonb(value);
	if ((value = member(object, "kind")) != NULL &&
		!merge_patch_kind(value->val.string.val, value->val.string.len, &operation->patch_kind))
		elog(ERROR, "malformed kept data: unknown patch kind");
	operation->create = member(object, "create") != NULL;
	if ((value = member(object, "indexId")) != NULL)
		operation->index_id = value_text(value);
	if ((value = member(object, "entries")) != NULL)
		read_entries(value->val.binary.data, true, &operation->nentries, &operation->entries);
}

void
kept_from_jsonb(Jsonb *array, int *count, KeptEvent **events)
{
	*count = 0;
	*events = NULL;
	if (array == NULL)
		return;
	*count = JB_ROOT_COUNT(array);
	*events = palloc0(Max(*count, 1) * sizeof(KeptEvent));
	for (int i = 0; i < *count; i++)
	{
		JsonbContainer *object = getIthJsonbValueFromContainer(&array->root, i)->val.binary.data;
		JsonbValue *suid = member(object, "suid");
		JsonbContainer *operations = member(object, "ops")->val.binary.data;
		KeyOperations *target = &(*events)[i].operations;

		(void) suid_parse(suid->val.string.val, suid->val.string.len, &(*events)[i].suid, NULL);
		target->count = JsonContainerSize(operations);
		target->operations = palloc(Max(target->count, 1) * sizeof(Operation));
		for (int j = 0; j < target->count; j++)
			read_operation(getIthJsonbValueFromContainer(operations, j)->val.binary.data,
						   &target->operations[j]);
	}
}
