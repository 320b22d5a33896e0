/*
 * index_entry.c
 *	  Index entries of rows: their values, the declarations that derive them, and
 *	  their order as set members.
 *
 * Guarantees: an entry's value fits its type (no NaN, infinity or negative zero)
 * and a text value fits an index tuple.  What a row's value derives never fails: a
 * value that does not fit is no entry.  Pure; memory is of the caller's context.
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "index_entry.h"
#include "jsonb_read.h"
#include "mutation.h"

static const char *const index_type_names[] = {
	[INDEX_TEXT] = "text",
	[INDEX_INTEGER] = "integer",
	[INDEX_REAL] = "real",
};

const char *
index_entry_type_name(IndexType type)
{
	return index_type_names[type];
}

bool
index_entry_type(const char *name, int length, IndexType *type)
{
	for (int i = 0; i < (int) lengthof(index_type_names); i++)
	{
		if ((int) strlen(index_type_names[i]) == length &&
			memcmp(index_type_names[i], name, length) == 0)
		{
			*type = (IndexType) i;
			return true;
		}
	}
	return false;
}

int
index_entry_compare(const IndexEntry *a, const IndexEntry *b)
{
	int			order = mutation_compare_text(a->index_id, b->index_id);

	if (order != 0)
		return order;
	if (a->type != b->type)
		return a->type < b->type ? -1 : 1;
	switch (a->type)
	{
		case INDEX_TEXT:
			return mutation_compare_text(a->text_value, b->text_value);
		case INDEX_INTEGER:
			return (a->integer_value > b->integer_value) - (a->integer_value < b->integer_value);
		case INDEX_REAL:
			return (a->real_value > b->real_value) - (a->real_value < b->real_value);
	}
	return 0;
}

/* Is the JSON number whole and within bigint? */
static bool
whole_number(const JsonbValue *number, int64 *result)
{
	Datum		value = NumericGetDatum(number->val.numeric);
	Datum		low = NumericGetDatum(int64_to_numeric(PG_INT64_MIN));
	Datum		high = NumericGetDatum(int64_to_numeric(PG_INT64_MAX));

	if (DatumGetBool(DirectFunctionCall2(numeric_lt, value, low)) ||
		DatumGetBool(DirectFunctionCall2(numeric_gt, value, high)))
		return false;
	*result = DatumGetInt64(DirectFunctionCall1(numeric_int8, value));
	return DatumGetBool(DirectFunctionCall2(numeric_eq, value,
											NumericGetDatum(int64_to_numeric(*result))));
}

bool
index_entry_integer(const JsonbValue *number, int64 *result)
{
	return number->type == jbvNumeric && whole_number(number, result);
}

bool
index_entry_real(const JsonbValue *number, double *result)
{
	if (number->type != jbvNumeric)
		return false;
	*result = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow,
												 NumericGetDatum(number->val.numeric)));
	if (!isfinite(*result))
		return false;
	if (*result == 0)
		*result = 0;			/* no negative zero: it would be a second zero */
	return true;
}

/* The member of the row's value that the path leads to. */
static bool
find_path(Jsonb *value, const DeclaredIndex *index, JsonbValue *result)
{
	JsonbContainer *container = &value->root;

	if (JB_ROOT_IS_SCALAR(value))
		return false;
	for (int i = 0; i < index->path_length; i++)
	{
		const text *name = index->path[i];

		if (!JsonContainerIsObject(container) ||
			getKeyJsonValueFromContainer(container, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name),
										 result) == NULL)
			return false;
		if (i == index->path_length - 1)
			return true;
		if (result->type != jbvBinary)
			return false;
		container = result->val.binary.data;
	}
	return false;
}

static int
compare_entries(const void *a, const void *b)
{
	return index_entry_compare(a, b);
}

int
index_entry_set(IndexEntry *entries, int count)
{
	int			kept = 0;

	if (count > 1)
		qsort(entries, count, sizeof(IndexEntry), compare_entries);
	for (int i = 0; i < count; i++)
	{
		if (kept > 0 && index_entry_compare(&entries[kept - 1], &entries[i]) == 0)
		{
			/* An entry that was also given explicitly outlives the value. */
			if (!entries[i].derived)
				entries[kept - 1].derived = false;
		}
		else
			entries[kept++] = entries[i];
	}
	return kept;
}

int
index_entry_derive(Jsonb *value, const DeclaredIndexes *declared, IndexEntry *entries)
{
	int			count = 0;

	for (int i = 0; i < declared->count; i++)
	{
		const DeclaredIndex *index = &declared->indexes[i];
		IndexEntry *entry = &entries[count];
		JsonbValue	found;
		bool		fits = false;

		if (!find_path(value, index, &found))
			continue;
		memset(entry, 0, sizeof(IndexEntry));
		switch (index->type)
		{
			case INDEX_TEXT:
				fits = found.type == jbvString && found.val.string.len <= LIMIT_TEXT_VALUE;
				if (fits)
					entry->text_value = jsonb_string_text(&found);
				break;
			case INDEX_INTEGER:
				fits = index_entry_integer(&found, &entry->integer_value);
				break;
			case INDEX_REAL:
				fits = index_entry_real(&found, &entry->real_value);
				break;
		}
		if (!fits)
			continue;
		entry->index_id = index->index_id;
		entry->type = index->type;
		entry->derived = true;
		count++;
	}
	return count;
}

/* "a.b.c" as member names. */
static void
split_path(const JsonbValue *path, DeclaredIndex *index)
{
	const char *start = path->val.string.val;
	const char *end = start + path->val.string.len;

	index->path_length = 0;
	index->path = palloc((path->val.string.len + 1) * sizeof(text *));
	for (const char *at = start;; at++)
	{
		if (at == end || *at == '.')
		{
			index->path[index->path_length++] = cstring_to_text_with_len(start, at - start);
			if (at == end)
				break;
			start = at + 1;
		}
	}
}

void
index_entry_declare(Jsonb *indexes, DeclaredIndexes *result)
{
	int			count;

	result->count = 0;
	result->indexes = NULL;
	if (!JB_ROOT_IS_ARRAY(indexes) || JB_ROOT_IS_SCALAR(indexes))
		RAISE(MV_VALUE_INVALID, errmsg("indexes is not a JSON array"),
			  errhint("Give an array of {\"id\", \"type\", \"path\"}."));
	count = JB_ROOT_COUNT(indexes);
	if (count > LIMIT_DECLARED)
		RAISE(MV_LIMIT_EXCEEDED,
			  errmsg("%d indexes are declared, the limit is %d", count, LIMIT_DECLARED),
			  errdetail("Path $."),
			  errhint("Declare those that queries use."));
	result->indexes = palloc0(Max(count, 1) * sizeof(DeclaredIndex));
	for (int i = 0; i < count; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(&indexes->root, i);
		DeclaredIndex *index = &result->indexes[i];
		JsonbIterator *iterator;
		JsonbValue	name;
		JsonbValue	member;
		bool		has_type = false;

		if (element->type != jbvBinary || !JsonContainerIsObject(element->val.binary.data))
			RAISE(MV_VALUE_INVALID, errmsg("index declaration is not an object"),
				  errdetail("Path $[%d].", i));
		iterator = JsonbIteratorInit(element->val.binary.data);
		(void) JsonbIteratorNext(&iterator, &name, true);
		while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
		{
			(void) JsonbIteratorNext(&iterator, &member, true);
			if (!jsonb_string_is(&name, "id") && !jsonb_string_is(&name, "type") &&
				!jsonb_string_is(&name, "path"))
				RAISE(MV_VALUE_INVALID,
					  errmsg("unknown member \"%s\" of an index declaration",
							 errors_clip(name.val.string.val, name.val.string.len)),
					  errdetail("Path $[%d].", i),
					  errhint("Members are id, type and path."));
			if (member.type != jbvString || member.val.string.len == 0)
				RAISE(MV_VALUE_INVALID,
					  errmsg("member \"%s\" of an index declaration is not a string, or empty",
							 pnstrdup(name.val.string.val, name.val.string.len)),
					  errdetail("Path $[%d].", i));
			if (jsonb_string_is(&name, "id"))
			{
				index->index_id = jsonb_string_text(&member);
				(void) mutation_check_length("index id", index->index_id, LIMIT_INDEX_ID, NULL);
			}
			else if (jsonb_string_is(&name, "type"))
			{
				if (!index_entry_type(member.val.string.val, member.val.string.len, &index->type))
					RAISE(MV_VALUE_INVALID, errmsg("type of an index declaration is not text, integer or real"),
						  errdetail("Path $[%d].type.", i));
				has_type = true;
			}
			else
				split_path(&member, index);
		}
		if (index->index_id == NULL || !has_type || index->path == NULL)
			RAISE(MV_VALUE_INVALID,
				  errmsg("index declaration lacks member \"%s\"",
						 index->index_id == NULL ? "id" : !has_type ? "type" : "path"),
				  errdetail("Path $[%d].", i));
		for (int j = 0; j < i; j++)
			if (mutation_compare_text(result->indexes[j].index_id, index->index_id) == 0)
				RAISE(MV_INDEX_DUPLICATE,
					  errmsg("index \"%s\" is declared twice", text_to_cstring(index->index_id)),
					  errdetail("Path $[%d].id.", i));
		result->count++;
	}
}
