/*
 * fuzz.c
 *	  libFuzzer inside a backend: the pure rooms with the server's own palloc, jsonb
 *	  and ereport under them.
 *
 * fuzz(arguments) hands the backend to libFuzzer, which never returns from it.  The
 * first byte of an input chooses the room, the others are choices of a generator:
 * whatever the bytes, the JSON is well-formed, so that they reach the code behind
 * the parser.  Raw text goes into suid's input, which takes anything.
 *
 * A finding is a signal, a sanitizer's report, an error other than those meant for
 * bad input ("cannot happen" has no code of ours), or an answer that breaks a law:
 * a patch applied twice is a patch applied once (RFC 7396, min, max, union), a SUID
 * printed is the SUID read, kept events written are the kept events read, and events
 * folded in any order of arrival are the events folded in order.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "compat.h"
#include "event.h"
#include "fold.h"
#include "kept.h"
#include "merge_patch.h"
#include "mutation.h"
#include "suid.h"

PG_MODULE_MAGIC;

extern int	LLVMFuzzerRunDriver(int *argc, char ***argv, int (*run) (const uint8_t *data, size_t size));

PG_FUNCTION_INFO_V1(fuzz);

#define MAX_DEPTH	4
#define MAX_EVENTS	6

static const uint8_t *input;
static size_t left;
static MemoryContext work;

/* What the plans, patches and declarations know, and what they do not. */
static const char *const words[] = {
	"upserts", "rowUpserts", "patches", "rowPatches", "deletes", "rowDeletes", "indexEntries",
	"indexDeletes", "rowKey", "rowVersion", "value", "kind", "patch", "create", "upsert", "indexId",
	"valueType", "sourceSuid", "eventId", "suid", "mutations", "expectedRowVersion", "arrivedAt",
	"json_patch", "add", "min", "max", "append", "union", "text", "integer", "real", "boolean",
	"id", "type", "path", "k", "n", "a", "a.b", "", "\xc3\xa9", "\x01", "000000000000000000100000000000",
};

static const char *const patch_kinds[] = {"json_patch", "add", "min", "max", "append", "union"};

static const char *const numbers[] = {
	"0", "-0.0", "1", "-1", "0.1", "1e3", "9223372036854775807", "9223372036854775808",
	"-9223372036854775808", "1e308", "1e309", "-1e400", "1e-400", "123456789012345678901234567890.5",
	"99999999999999999999", "1.0000000000000000000000001",
};

static int
take(int choices)
{
	if (left == 0)
		return 0;
	left--;
	return *input++ % choices;
}

/* Once in a while something else than what belongs there. */
static bool
odd(void)
{
	return take(16) == 15;
}

/* ---------- a JSON generator ---------- */

static JsonbParseState *state;

static JsonbValue *
string(const char *text, int length)
{
	JsonbValue *value = palloc0(sizeof(JsonbValue));

	value->type = jbvString;
	value->val.string.val = unconstify(char *, text);
	value->val.string.len = length;
	return value;
}

static JsonbValue *
word(void)
{
	const char *text = words[take(lengthof(words))];

	return string(text, strlen(text));
}

static JsonbValue *
number(void)
{
	JsonbValue *value = palloc0(sizeof(JsonbValue));

	value->type = jbvNumeric;
	value->val.numeric = DatumGetNumeric(DirectFunctionCall3(numeric_in, CStringGetDatum(numbers[take(lengthof(numbers))]),
															 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	return value;
}

static JsonbValue *
scalar(void)
{
	JsonbValue *value;

	switch (take(5))
	{
		case 0:
			value = palloc0(sizeof(JsonbValue));
			value->type = jbvNull;
			return value;
		case 1:
			value = palloc0(sizeof(JsonbValue));
			value->type = jbvBool;
			value->val.boolean = take(2) == 1;
			return value;
		case 2:
			{
				char	   *text = palloc(300);
				int			length = 0;

				while (length < 300 && take(8) != 0)
					text[length++] = 'a' + take(26);
				return string(text, length);
			}
		case 3:
			return word();
		default:
			return number();
	}
}

static void push_any(JsonbIteratorToken place, int depth);

static void
push(JsonbIteratorToken place, JsonbValue *value)
{
	(void) pushJsonbValue(&state, place, value);
}

static void
push_object(int depth)
{
	int			count = take(5);

	push(WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < count; i++)
	{
		push(WJB_KEY, word());
		push_any(WJB_VALUE, depth + 1);
	}
	push(WJB_END_OBJECT, NULL);
}

static void
push_any(JsonbIteratorToken place, int depth)
{
	int			choice = depth >= MAX_DEPTH ? 0 : take(4);

	if (choice == 2)
	{
		int			count = take(5);

		push(WJB_BEGIN_ARRAY, NULL);
		for (int i = 0; i < count; i++)
			push_any(WJB_ELEM, depth + 1);
		push(WJB_END_ARRAY, NULL);
	}
	else if (choice == 3)
		push_object(depth);
	else
		push(place, scalar());
}

static Jsonb *
make_json(bool object)
{
	state = NULL;
	if (object)
	{
		int			count = take(6);

		push(WJB_BEGIN_OBJECT, NULL);
		for (int i = 0; i < count; i++)
		{
			push(WJB_KEY, word());
			push_any(WJB_VALUE, 1);
		}
		return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
	}
	push(WJB_BEGIN_ARRAY, NULL);
	push_any(WJB_ELEM, 1);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

static void
member(const char *name, JsonbValue *value)
{
	push(WJB_KEY, string(name, strlen(name)));
	if (odd())
		push_any(WJB_VALUE, 1);
	else
		push(WJB_VALUE, value);
}

static JsonbValue *
one_of(const char *const *texts, int count)
{
	const char *text = texts[take(count)];

	return string(text, strlen(text));
}

static void
push_entry(void)
{
	static const char *const types[] = {"text", "integer", "real", "boolean"};

	push(WJB_BEGIN_OBJECT, NULL);
	member("indexId", string("i", 1));
	member("valueType", one_of(types, lengthof(types)));
	member("value", scalar());
	if (take(2) == 0)
		member("rowKey", string("k", 1));
	push(WJB_END_OBJECT, NULL);
}

/* A plan that is nearly always a good one, on the rows "k" and "n". */
static void
push_plan(void)
{
	static const char *const keys[] = {"k", "k", "k", "n"};
	int			lists = take(16);

	push(WJB_BEGIN_OBJECT, NULL);
	if (lists & 1)
	{
		push(WJB_KEY, string("upserts", 7));
		push(WJB_BEGIN_ARRAY, NULL);
		for (int n = take(3); n >= 0; n--)
		{
			push(WJB_BEGIN_OBJECT, NULL);
			member("rowKey", one_of(keys, lengthof(keys)));
			push(WJB_KEY, string("value", 5));
			push_object(2);
			if (take(2))
				member("rowVersion", number());
			push(WJB_END_OBJECT, NULL);
		}
		push(WJB_END_ARRAY, NULL);
	}
	if (lists & 2)
	{
		push(WJB_KEY, string("patches", 7));
		push(WJB_BEGIN_ARRAY, NULL);
		for (int n = take(3); n >= 0; n--)
		{
			push(WJB_BEGIN_OBJECT, NULL);
			member("kind", one_of(patch_kinds, lengthof(patch_kinds)));
			member("rowKey", one_of(keys, lengthof(keys)));
			push(WJB_KEY, string("patch", 5));
			if (odd())
				push_any(WJB_VALUE, 1);
			else
			{
				push(WJB_BEGIN_OBJECT, NULL);
				member("n", number());
				push(WJB_KEY, word());
				push_any(WJB_VALUE, 3);
				push(WJB_END_OBJECT, NULL);
			}
			if (take(4) == 0)
			{
				push(WJB_KEY, string("indexEntries", 12));
				push(WJB_BEGIN_ARRAY, NULL);
				push_entry();
				push(WJB_END_ARRAY, NULL);
			}
			push(WJB_END_OBJECT, NULL);
		}
		push(WJB_END_ARRAY, NULL);
	}
	if (lists & 4)
	{
		push(WJB_KEY, string("deletes", 7));
		push(WJB_BEGIN_ARRAY, NULL);
		push(WJB_ELEM, odd() ? scalar() : one_of(keys, lengthof(keys)));
		push(WJB_END_ARRAY, NULL);
	}
	if (lists & 8)
	{
		push(WJB_KEY, string("indexEntries", 12));
		push(WJB_BEGIN_ARRAY, NULL);
		push_entry();
		push(WJB_END_ARRAY, NULL);
	}
	if (odd())
	{
		push(WJB_KEY, word());
		push_any(WJB_VALUE, 1);
	}
}

static Jsonb *
make_plan(void)
{
	state = NULL;
	push_plan();
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* An entry as a tentative row has it, nearly always a good one. */
static void
push_kept_entry(void)
{
	static const char *const types[] = {"text", "integer", "real"};

	if (odd())
	{
		push_any(WJB_ELEM, 2);
		return;
	}
	push(WJB_BEGIN_ARRAY, NULL);
	push(WJB_ELEM, odd() ? scalar() : string("i", 1));
	push(WJB_ELEM, odd() ? scalar() : one_of(types, lengthof(types)));
	if (!odd())
		push(WJB_ELEM, scalar());
	if (take(4) == 0)
		push(WJB_ELEM, scalar());
	push(WJB_END_ARRAY, NULL);
}

/* All but the closing bracket. */
static void
push_kept_entries(void)
{
	push(WJB_BEGIN_ARRAY, NULL);
	for (int n = take(3); n > 0; n--)
		push_kept_entry();
}

static void
push_kept_operation(void)
{
	static const char *const names[] = {"delete", "upsert", "patch", "unindex", "index"};

	if (odd())
	{
		push_any(WJB_ELEM, 1);
		return;
	}
	push(WJB_BEGIN_OBJECT, NULL);
	member("do", odd() ? scalar() : one_of(names, lengthof(names)));
	if (!odd())
		member("version", number());
	if (!odd())
	{
		push(WJB_KEY, string("value", 5));
		push_any(WJB_VALUE, 2);
	}
	if (!odd())
		member("kind", one_of(patch_kinds, lengthof(patch_kinds)));
	if (take(2))
		member("create", scalar());
	if (take(4) == 0)
		member("indexId", odd() ? scalar() : string("i", 1));
	if (take(2))
	{
		push(WJB_KEY, string("entries", 7));
		push_kept_entries();
		push(WJB_END_ARRAY, NULL);
	}
	push(WJB_END_OBJECT, NULL);
}

/* Kept events as a tentative row has them, nearly always good ones. */
static Jsonb *
make_kept(void)
{
	state = NULL;
	push(WJB_BEGIN_ARRAY, NULL);
	for (int n = take(4), place = 1; n > 0; n--, place += odd() ? 0 : 1)
	{
		char	   *suid = psprintf("%030d", place);

		if (odd())
		{
			push_any(WJB_ELEM, 1);
			continue;
		}
		push(WJB_BEGIN_OBJECT, NULL);
		member("suid", odd() ? scalar() : string(suid, strlen(suid)));
		push(WJB_KEY, string("ops", 3));
		push(WJB_BEGIN_ARRAY, NULL);
		for (int i = take(4); i > 0; i--)
			push_kept_operation();
		push(WJB_END_ARRAY, NULL);
		push(WJB_END_OBJECT, NULL);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
}

/* ---------- the rooms ---------- */

static void
law(bool holds, const char *broken)
{
	if (!holds)
	{
		fprintf(stderr, "fuzz: law broken: %s\n", broken);
		abort();
	}
}

static bool
same_json(Jsonb *a, Jsonb *b)
{
	return (a == NULL) == (b == NULL) && (a == NULL || compareJsonbContainers(&a->root, &b->root) == 0);
}

static void
fuzz_suid(void)
{
	ErrorCode	error = ERROR_NONE;
	Suid		suid;

	if (suid_parse((const char *) input, (int) left, &suid, &error))
	{
		char		printed[SUID_TEXT_LENGTH + 1];
		Suid		again;
		Suid		above;

		suid_print(&suid, printed);
		law(left == SUID_TEXT_LENGTH && memcmp(printed, input, SUID_TEXT_LENGTH) == 0, "a SUID printed is the SUID read");
		law(suid_parse(printed, SUID_TEXT_LENGTH, &again, NULL) && suid_compare(&suid, &again) == 0, "read again it is the same");
		suid_above(&suid, &above);
		law(suid_compare(&above, &suid) > 0, "above is above");
	}
	else
		law(error != ERROR_NONE, "a refusal has a code");
}

static void
fuzz_merge(void)
{
	PatchKind	kind = take(PATCH_UNION + 1);
	Jsonb	   *target = take(8) == 0 ? NULL : make_json(true);
	Jsonb	   *patch = make_json(true);
	Jsonb	   *once;
	Jsonb	   *twice;

	if (!merge_patch_operand_valid(kind, patch))
		return;
	once = merge_patch_apply(kind, target, patch);
	twice = merge_patch_apply(kind, once, patch);
	law(kind == PATCH_ADD || kind == PATCH_APPEND || same_json(once, twice), "a patch applied twice is a patch applied once");
	/* What comes out is sound enough to be read again. */
	(void) JsonbToCString(NULL, &twice->root, VARSIZE(twice));
}

static void
fuzz_mutation(bool well_formed)
{
	MutationSource source = {cstring_to_text("s"), cstring_to_text("v"), cstring_to_text("e"), -1};
	ErrorCode	error = ERROR_NONE;
	DeclaredIndexes declared = {0};
	MutationPlan plan;
	Suid		suid = {{0}};
	Jsonb	   *json = well_formed ? make_plan() : make_json(take(8) != 0);

	if (take(2) == 0)
		law(mutation_parse(json, &suid, &declared, &source, &plan, &error) || error != ERROR_NONE, "a refusal has a code");
	else
		(void) mutation_parse(json, &suid, &declared, &source, &plan, NULL);
}

static void
fuzz_events(void)
{
	DeclaredIndexes declared = {0};
	Event	   *events;
	int			count;
	bool		safe_lane = take(2);

	event_parse_batch(make_json(false), cstring_to_text("s"), cstring_to_text("v"), &declared, safe_lane, take(2), &count, &events);
}

static bool
same_image(const RowImage *a, const RowImage *b)
{
	if (a->present != b->present)
		return false;
	if (!a->present)
		return true;
	if (!same_json(a->value, b->value) || a->row_version != b->row_version ||
		suid_compare(&a->source_suid, &b->source_suid) != 0 || a->nentries != b->nentries)
		return false;
	for (int i = 0; i < a->nentries; i++)
		if (index_entry_compare(&a->entries[i], &b->entries[i]) != 0)
			return false;
	return true;
}

static void
fuzz_fold(void)
{
	MutationSource source = {cstring_to_text("s"), cstring_to_text("v"), cstring_to_text("e"), -1};
	DeclaredIndexes declared = {0};
	RowImage	base = {0};
	RowImage	ordered;
	TentativeRow row = {0};
	KeyOperations *operations[MAX_EVENTS] = {NULL};
	Suid		suids[MAX_EVENTS] = {{{0}}};
	int			places[MAX_EVENTS];
	int			count = 2 + take(MAX_EVENTS - 1);

	if (take(2))
	{
		base.present = true;
		base.value = make_json(true);
		base.row_version = 1;
	}
	for (int i = 0; i < count; i++)
	{
		MutationPlan plan;
		ErrorCode	error = ERROR_NONE;

		suids[i].data[SUID_BYTES - 1] = i + 1;
		places[i] = i;
		if (mutation_parse(make_plan(), &suids[i], &declared, &source, &plan, &error))
			for (int k = 0; k < plan.nkeys; k++)
				if (VARSIZE_ANY_EXHDR(plan.keys[k].row_key) == 1 && *VARDATA_ANY(plan.keys[k].row_key) == 'k')
					operations[i] = &plan.keys[k];
	}
	ordered = base;
	for (int i = 0; i < count; i++)
		if (operations[i] != NULL)
			(void) fold_step(&ordered, &suids[i], operations[i], false);
	/* Some order of arrival. */
	for (int i = count - 1; i > 0; i--)
	{
		int			other = take(i + 1);
		int			place = places[i];

		places[i] = places[other];
		places[other] = place;
	}
	for (int i = 0; i < count; i++)
	{
		int			event = places[i];
		bool		left_as_is;
		KeyVerdict	verdict;

		if (operations[event] == NULL)
			continue;
		verdict = fold_judge(&row, NULL, &base, &suids[event], operations[event], &left_as_is);
		if (verdict == KEY_SUPERSEDED)
			continue;
		fold_insert(&row, NULL, &base, &suids[event], operations[event]);
	}
	if (row.exists)
		law(same_image(&row.image, &ordered), "folded in any order of arrival, events are the events in order");
}

static void
fuzz_kept(void)
{
	Jsonb	   *kept = odd() ? make_json(false) : make_kept();
	DeclaredIndexes declared = {0};
	RowImage	base = {0};
	TentativeRow row = {0};
	TentativeRow again = {0};
	Jsonb	   *written;
	IndexEntry *entries;
	int			count;

	if (take(2))
	{
		base.present = true;
		base.value = make_json(take(2));
		base.row_version = 1;
		state = NULL;
		push_kept_entries();
		kept_entries_from_jsonb(JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL)), take(2), &base.nentries, &base.entries);
	}
	kept_from_jsonb(kept, &row.nkept, &row.kept);
	if (row.nkept == 0)
		return;
	written = kept_to_jsonb(row.kept, row.nkept);
	kept_from_jsonb(written, &again.nkept, &again.kept);
	law(same_json(written, kept_to_jsonb(again.kept, again.nkept)), "kept events written are the kept events read");
	row.kept_allocated = row.nkept;
	row.exists = true;
	row.source_suid = row.kept[row.nkept - 1].suid;
	fold_refresh(&row, take(2) ? &row.kept[0].suid : NULL, &base);
	if (!row.exists)
		return;
	fold_entries(&row.image, &declared, &count, &entries);
	(void) kept_entries_to_jsonb(entries, count);
}

static int
run(const uint8_t *data, size_t size)
{
	/* Small blocks: what is larger has an allocation, and so bounds, of its own. */
	MemoryContext caller = CurrentMemoryContext;

	if (size == 0)
		return -1;
	input = data;
	left = size;
	MemoryContextReset(work);
	MemoryContextSwitchTo(work);
	PG_TRY();
	{
		switch (take(7))
		{
			case 0:
				fuzz_suid();
				break;
			case 1:
				fuzz_merge();
				break;
			case 2:
				fuzz_mutation(false);
				break;
			case 3:
				fuzz_mutation(true);
				break;
			case 4:
				fuzz_events();
				break;
			case 5:
				fuzz_kept();
				break;
			default:
				fuzz_fold();
		}
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(work);
		error = CopyErrorData();
		FlushErrorState();
		/* A code word of ours; what kept data is not; or what numeric says of its input. */
		if (error->constraint_name == NULL && error->sqlerrcode != ERRCODE_DATA_CORRUPTED && ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_DATA_EXCEPTION)
		{
			fprintf(stderr, "fuzz: unexpected error: %s %s\n", unpack_sql_state(error->sqlerrcode), error->message);
			abort();
		}
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	return 0;
}

Datum
fuzz(PG_FUNCTION_ARGS)
{
	Datum	   *texts;
	int			count;
	char	  **arguments;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), TEXTOID, -1, false, TYPALIGN_INT, &texts, NULL, &count);
	arguments = palloc0((count + 2) * sizeof(char *));
	arguments[0] = "fuzz";
	for (int i = 0; i < count; i++)
		arguments[i + 1] = TextDatumGetCString(texts[i]);
	count++;
	work = AllocSetContextCreate(TopMemoryContext, "fuzz", 0, 1024, 1024);
	(void) LLVMFuzzerRunDriver(&count, &arguments, run);
	PG_RETURN_VOID();
}
