/*
 * merge_patch.c
 *	  RFC 7396 merge patch and the other patch kinds, on jsonb.
 *
 * Guarantees that every kind is total: with a valid operand no value of the
 * target makes it fail (but PostgreSQL's own limits: stack depth, jsonb's size).
 * What a kind cannot work on counts as absent; a sum numeric cannot hold leaves
 * the number.  Numbers are numeric throughout and keep every digit.
 *
 * Two objects are merged in one pass: jsonb keeps members sorted by key length
 * and bytes, so that two iterators walk side by side.  What a patch does not
 * name is passed on as it is.  union looks elements up in a hash table.
 *
 * Pure: no SPI, no catalogue access, no locks.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "compat.h"
#include "errors.h"
#include "library.h"
#include "merge_patch.h"

/* Members of an object, one at a time, in stored order. */
typedef struct MemberCursor
{
	JsonbIterator *iterator;	/* NULL: at the end */
	JsonbValue	key;
	JsonbValue	value;
} MemberCursor;

/* An element of the set that union builds. */
typedef struct ElementEntry
{
	JsonbValue *element;
	uint32		hash;
	char		status;
} ElementEntry;

static uint32 element_hash(const JsonbValue *element);
static bool element_equal(JsonbValue *a, JsonbValue *b);

#define SH_PREFIX elements
#define SH_ELEMENT_TYPE ElementEntry
#define SH_KEY_TYPE JsonbValue *
#define SH_KEY element
#define SH_HASH_KEY(tb, key) element_hash(key)
#define SH_EQUAL(tb, a, b) element_equal(a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, entry) (entry)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static const char *const kind_names[] = {
	[PATCH_JSON_PATCH] = "json_patch",
	[PATCH_ADD] = "add",
	[PATCH_MIN] = "min",
	[PATCH_MAX] = "max",
	[PATCH_APPEND] = "append",
	[PATCH_UNION] = "union",
};

static void merge_object(JsonbParseState **state, JsonbValue **result,
						 PatchKind kind, JsonbContainer *target,
						 JsonbContainer *patch);

UNSAFEMV_FUNCTION(unsafemv_jsonb_merge_patch);
UNSAFEMV_FUNCTION(unsafemv_jsonb_apply_patch);

/* ---------------------------------------------------------------------------
 * Kinds
 * ---------------------------------------------------------------------------
 */

/*
 * Look a kind up by its name ("length" bytes).
 */
bool
merge_patch_kind(const char *name, int length, PatchKind *kind)
{
	for (size_t i = 0; i < lengthof(kind_names); i++)
	{
		if (strlen(kind_names[i]) == (size_t) length &&
			memcmp(kind_names[i], name, length) == 0)
		{
			*kind = (PatchKind) i;
			return true;
		}
	}
	return false;
}

/*
 * The name of a kind, in static storage.
 */
const char *
merge_patch_kind_name(PatchKind kind)
{
	return kind_names[kind];
}

/* ---------------------------------------------------------------------------
 * Values
 * ---------------------------------------------------------------------------
 */

static bool
is_object(const JsonbValue *value)
{
	return value != NULL && value->type == jbvBinary &&
		JsonContainerIsObject(value->val.binary.data);
}

static bool
is_array(const JsonbValue *value)
{
	return value != NULL && value->type == jbvBinary &&
		JsonContainerIsArray(value->val.binary.data);
}

static bool
is_number(const JsonbValue *value)
{
	return value != NULL && value->type == jbvNumeric;
}

static void
members_next(MemberCursor *cursor)
{
	if (JsonbIteratorNext(&cursor->iterator, &cursor->key, true) == WJB_KEY)
		(void) JsonbIteratorNext(&cursor->iterator, &cursor->value, true);
	else
		cursor->iterator = NULL;
}

/*
 * Stand on the first member of an object (NULL: no members).
 */
static void
members_begin(MemberCursor *cursor, JsonbContainer *object)
{
	cursor->iterator = NULL;
	if (object == NULL)
		return;
	cursor->iterator = JsonbIteratorInit(object);
	(void) JsonbIteratorNext(&cursor->iterator, &cursor->value, true);
	members_next(cursor);
}

/*
 * jsonb's order of keys: length, then bytes.
 */
static int
compare_keys(const JsonbValue *a, const JsonbValue *b)
{
	if (a->val.string.len != b->val.string.len)
		return a->val.string.len < b->val.string.len ? -1 : 1;
	return memcmp(a->val.string.val, b->val.string.val, a->val.string.len);
}

/*
 * Equal elements have equal hashes; numbers hash by value, not by digits.
 */
static uint32
element_hash(const JsonbValue *element)
{
	uint32		hash = 0;
	JsonbIterator *iterator;
	JsonbIteratorToken token;
	JsonbValue	value;

	if (element->type != jbvBinary)
	{
		JsonbHashScalarValue(element, &hash);
		return hash;
	}
	iterator = JsonbIteratorInit(element->val.binary.data);
	while ((token = JsonbIteratorNext(&iterator, &value, false)) != WJB_DONE)
	{
		if (token == WJB_KEY || token == WJB_VALUE || token == WJB_ELEM)
			JsonbHashScalarValue(&value, &hash);
		else
			hash = hash_combine(hash, (uint32) token);
	}
	return hash;
}

/*
 * jsonb's equality.
 */
static bool
element_equal(JsonbValue *a, JsonbValue *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type)
	{
		case jbvNull:
			return true;
		case jbvBool:
			return a->val.boolean == b->val.boolean;
		case jbvString:
			return a->val.string.len == b->val.string.len &&
				memcmp(a->val.string.val, b->val.string.val, a->val.string.len) == 0;
		case jbvNumeric:
			return DatumGetBool(DirectFunctionCall2(numeric_eq,
													NumericGetDatum(a->val.numeric),
													NumericGetDatum(b->val.numeric)));
		case jbvBinary:
			return compareJsonbContainers(a->val.binary.data, b->val.binary.data) == 0;
		default:
			elog(ERROR, "unrecognized jsonb value type: %d", (int) a->type);
			return false;		/* keep compiler quiet */
	}
}

/* ---------------------------------------------------------------------------
 * Leaves: the operand is no object
 * ---------------------------------------------------------------------------
 */

/*
 * The number that add, min or max leaves.  Equal numbers leave the target's.
 */
static Numeric
merge_number(PatchKind kind, Numeric target, Numeric operand)
{
	bool		overflow = false;
	Numeric		sum;
	int			order;

	if (kind == PATCH_ADD)
	{
		sum = numeric_add_opt_error(target, operand, &overflow);
		return overflow ? target : sum;
	}
	order = DatumGetInt32(DirectFunctionCall2(numeric_cmp,
											  NumericGetDatum(target),
											  NumericGetDatum(operand)));
	if (kind == PATCH_MIN)
		return order <= 0 ? target : operand;
	return order >= 0 ? target : operand;
}

/*
 * Push "element", for union only if "seen" (NULL: append) does not hold it yet;
 * an element of the target is pushed anyway.
 */
static void
push_element(JsonbParseState **state, elements_hash *seen, JsonbValue *element,
			 bool always)
{
	bool		found = false;

	CHECK_FOR_INTERRUPTS();
	if (seen != NULL)
	{
		JsonbValue *copy = (JsonbValue *) palloc(sizeof(JsonbValue));

		*copy = *element;
		(void) elements_insert(seen, copy, &found);
		if (found)
			pfree(copy);
	}
	if (always || !found)
		(void) pushJsonbValue(state, WJB_ELEM, element);
}

static void
push_elements(JsonbParseState **state, elements_hash *seen, JsonbValue *array,
			  bool always)
{
	JsonbIterator *iterator = JsonbIteratorInit(array->val.binary.data);
	JsonbIteratorToken token;
	JsonbValue	element;

	while ((token = JsonbIteratorNext(&iterator, &element, true)) != WJB_DONE)
	{
		if (token == WJB_ELEM)
			push_element(state, seen, &element, always);
	}
}

/*
 * append and union: the target's elements, then the operand's.
 */
static void
merge_array(JsonbParseState **state, PatchKind kind, JsonbValue *target,
			JsonbValue *operand)
{
	elements_hash *seen = NULL;

	if (kind == PATCH_UNION)
		seen = elements_create(CurrentMemoryContext, 32, NULL);
	(void) pushJsonbValue(state, WJB_BEGIN_ARRAY, NULL);
	if (is_array(target))
		push_elements(state, seen, target, true);
	if (is_array(operand))
		push_elements(state, seen, operand, false);
	else
		push_element(state, seen, operand, false);
	(void) pushJsonbValue(state, WJB_END_ARRAY, NULL);
	if (seen != NULL)
		elements_destroy(seen);
}

static void
merge_leaf(JsonbParseState **state, PatchKind kind, JsonbValue *target,
		   JsonbValue *operand)
{
	JsonbValue	number;

	switch (kind)
	{
		case PATCH_JSON_PATCH:
			(void) pushJsonbValue(state, WJB_VALUE, operand);
			break;
		case PATCH_ADD:
		case PATCH_MIN:
		case PATCH_MAX:
			if (!is_number(operand))
				elog(ERROR, "operand of patch kind %s is not a number", kind_names[kind]);
			number = *operand;
			if (target != NULL && is_number(target))
				number.val.numeric = merge_number(kind, target->val.numeric,
												  operand->val.numeric);
			(void) pushJsonbValue(state, WJB_VALUE, &number);
			break;
		case PATCH_APPEND:
		case PATCH_UNION:
			merge_array(state, kind, target, operand);
			break;
	}
}

/* ---------------------------------------------------------------------------
 * Objects
 * ---------------------------------------------------------------------------
 */

/*
 * One member named by the patch; "target" is NULL where it is absent.
 */
static void
merge_member(JsonbParseState **state, PatchKind kind, JsonbValue *key,
			 JsonbValue *target, JsonbValue *patch)
{
	JsonbValue *ignored;

	if (kind == PATCH_JSON_PATCH && patch->type == jbvNull)
		return;					/* removed */
	(void) pushJsonbValue(state, WJB_KEY, key);
	if (is_object(patch))
		merge_object(state, &ignored, kind,
					 is_object(target) ? target->val.binary.data : NULL,
					 patch->val.binary.data);
	else
		merge_leaf(state, kind, target, patch);
}

/*
 * Push the object that "patch" makes of "target" (NULL: no object).  *result is
 * meaningful for the outermost object only.
 */
static void
merge_object(JsonbParseState **state, JsonbValue **result, PatchKind kind,
			 JsonbContainer *target, JsonbContainer *patch)
{
	MemberCursor have;
	MemberCursor want;

	check_stack_depth();

	members_begin(&have, target);
	members_begin(&want, patch);
	(void) pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	while (have.iterator != NULL || want.iterator != NULL)
	{
		int			order;

		CHECK_FOR_INTERRUPTS();
		if (want.iterator == NULL)
			order = -1;
		else if (have.iterator == NULL)
			order = 1;
		else
			order = compare_keys(&have.key, &want.key);

		if (order < 0)
		{
			(void) pushJsonbValue(state, WJB_KEY, &have.key);
			(void) pushJsonbValue(state, WJB_VALUE, &have.value);
		}
		else
			merge_member(state, kind, &want.key,
						 order == 0 ? &have.value : NULL, &want.value);

		if (order <= 0)
			members_next(&have);
		if (order >= 0)
			members_next(&want);
	}
	*result = pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

/*
 * Find the first leaf that add, min or max cannot take.  "path" (may be NULL)
 * becomes its path.
 */
static bool
operand_valid(JsonbContainer *object, StringInfo path)
{
	MemberCursor member;
	int			length = path != NULL ? path->len : 0;

	check_stack_depth();

	for (members_begin(&member, object); member.iterator != NULL; members_next(&member))
	{
		CHECK_FOR_INTERRUPTS();
		if (path != NULL)
		{
			path->len = length;
			appendStringInfoChar(path, '.');
			escape_json(path, errors_clip(member.key.val.string.val,
										  member.key.val.string.len));
		}
		if (is_object(&member.value))
		{
			if (!operand_valid(member.value.val.binary.data, path))
				return false;
		}
		else if (!is_number(&member.value))
			return false;
	}
	return true;
}

/*
 * Does the operand suit the kind?
 */
bool
merge_patch_operand_valid(PatchKind kind, Jsonb *patch)
{
	if (kind == PATCH_JSON_PATCH)
		return true;
	if (!JB_ROOT_IS_OBJECT(patch))
		return false;
	if (kind == PATCH_APPEND || kind == PATCH_UNION)
		return true;
	return operand_valid(&patch->root, NULL);
}

/*
 * The value that "patch" makes of "target" (NULL: absent).
 */
Jsonb *
merge_patch_apply(PatchKind kind, Jsonb *target, Jsonb *patch)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;
	bool		onto_object = target != NULL && JB_ROOT_IS_OBJECT(target);

	if (!JB_ROOT_IS_OBJECT(patch))
	{
		if (kind != PATCH_JSON_PATCH)
			elog(ERROR, "operand of patch kind %s is not an object", kind_names[kind]);
		return DatumGetJsonbPCopy(JsonbPGetDatum(patch));
	}
	if (onto_object && JB_ROOT_COUNT(patch) == 0)
		return DatumGetJsonbPCopy(JsonbPGetDatum(target));

	merge_object(&state, &result, kind, onto_object ? &target->root : NULL,
				 &patch->root);
	return JsonbValueToJsonb(result);
}

/* ---------------------------------------------------------------------------
 * SQL
 * ---------------------------------------------------------------------------
 */

/*
 * unsafemv.jsonb_merge_patch(target, patch)
 */
Datum
unsafemv_jsonb_merge_patch(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(1))
		PG_RETURN_NULL();
	PG_RETURN_JSONB_P(merge_patch_apply(PATCH_JSON_PATCH,
										PG_ARGISNULL(0) ? NULL : PG_GETARG_JSONB_P(0),
										PG_GETARG_JSONB_P(1)));
}

/*
 * unsafemv.jsonb_apply_patch(kind, target, patch)
 */
Datum
unsafemv_jsonb_apply_patch(PG_FUNCTION_ARGS)
{
	text	   *name;
	PatchKind	kind;
	Jsonb	   *patch;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(2))
		RAISE(MV_VALUE_INVALID,
			  errmsg("patch kind and patch must not be null"));

	name = PG_GETARG_TEXT_PP(0);
	if (!merge_patch_kind(VARDATA_ANY(name), (int) VARSIZE_ANY_EXHDR(name), &kind))
		RAISE(MV_PATCH_KIND_INVALID,
			  errmsg("unknown patch kind: \"%s\"",
					 errors_clip(VARDATA_ANY(name), (int) VARSIZE_ANY_EXHDR(name))),
			  errhint("Patch kinds are json_patch, add, min, max, append and union."));

	patch = PG_GETARG_JSONB_P(2);
	if (!JB_ROOT_IS_OBJECT(patch))
		RAISE(MV_PATCH_OBJECT_REQUIRED,
			  errmsg("patch is not a JSON object"));
	if (!merge_patch_operand_valid(kind, patch))
	{
		StringInfoData path;

		initStringInfo(&path);
		appendStringInfoChar(&path, '$');
		(void) operand_valid(&patch->root, &path);
		RAISE(MV_PLAN_INVALID,
			  errmsg("patch of kind \"%s\" holds a value that is not a number",
					 kind_names[kind]),
			  errdetail("The value stands at %s.", path.data),
			  errhint("Every value of an add, min or max patch is a number or an object of such values."));
	}
	PG_RETURN_JSONB_P(merge_patch_apply(kind,
										PG_ARGISNULL(1) ? NULL : PG_GETARG_JSONB_P(1),
										patch));
}
