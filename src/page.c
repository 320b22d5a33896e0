/*
 * page.c
 *	  The read gate, refolding of stale tentative rows, and composed pages.
 *
 * Guarantees (core 8): gate, total and rows of a read are of one snapshot, the
 * calling statement's.  Per key the tentative row wins if it counts (its
 * source_suid lies above the head), else the safe row shows.  Reads take no lock
 * and write nothing, so they run in read-only transactions and on a standby.
 *
 * Nothing ever writes a safe row above the head, hence in SUID order all counting
 * tentative rows come after all safe rows: a page is two index-ordered scans, one
 * after the other.  It costs what the page and, for the total, the tentative rows
 * cost, never what the safe rows do.  They are made by page_scan.c; for a role that
 * has row level security, by statements.
 *
 * Memory: rows go straight into the result's tuplestore, which spills to disk;
 * composed_page holds its rows as one JSON value and has a limit for it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "common/int.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"

#include "compat.h"
#include "kept.h"
#include "library.h"
#include "page.h"
#include "page_scan.h"
#include "registry.h"
#include "row_writer.h"

/* What the rows of composed_page may take: what a jsonb array can hold. */
#define PAGE_MAX_BYTES	(256 * 1024 * 1024 - 1)

/* Per row: member names, version, SUID. */
#define PAGE_ROW_BYTES	200

UNSAFEMV_FUNCTION(unsafemv_require_open_gate);
UNSAFEMV_FUNCTION(unsafemv_refold);
UNSAFEMV_FUNCTION(unsafemv_query_composed_page);
UNSAFEMV_FUNCTION(unsafemv_composed_page);

/* ---------------------------------------------------------------------------
 * The gate
 * ---------------------------------------------------------------------------
 */

static text *
text_column(int column)
{
	bool		isnull;
	Datum		value = statement_value(0, column, &isnull);

	return isnull ? NULL : DatumGetTextPP(value);
}

static bool
boolean_column(int column)
{
	bool		isnull;
	Datum		value = statement_value(0, column, &isnull);

	return !isnull && DatumGetBool(value);
}

void
page_read_state(text *service_id, text *view_id, ReadState *state)
{
	Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};
	Datum		value;
	bool		isnull;
	bool		found;

	if (page_scan_state(service_id, view_id, state, &found))
	{
		if (!found)
			registry_view_missing(service_id, view_id);
		return;
	}
	if (statement_read(STATEMENT_READ_STATE, values, NULL) == 0)
		registry_view_missing(service_id, view_id);
	memset(state, 0, sizeof(ReadState));
	state->service_id = service_id;
	state->view_id = view_id;
	state->view_no = DatumGetInt64(statement_value(0, 1, &isnull));
	value = statement_value(0, 2, &isnull);
	if (isnull)
		registry_not_active(service_id, view_id);
	state->generation = DatumGetInt64(value);
	state->indexes = DatumGetJsonbP(statement_value(0, 3, &isnull));
	state->has_head = statement_suid(0, 4, &state->head);
	state->row_count = DatumGetInt64(statement_value(0, 5, &isnull));
	state->rebuild_required = boolean_column(6);
	state->offender_event = text_column(7);
	state->has_offender = statement_suid(0, 8, &state->offender_suid);
	state->checkpoint_ahead = boolean_column(9);
	state->ordering_quarantined = boolean_column(10);
}

bool
page_gate_closed(const ReadState *state)
{
	return state->rebuild_required || state->has_offender;
}

/* DETAIL of the gate's errors. */
static char *
gate_detail(const ReadState *state)
{
	StringInfoData detail;
	char		suid[SUID_TEXT_LENGTH + 1];

	initStringInfo(&detail);
	appendStringInfo(&detail, "Service \"%s\", view \"%s\", generation " INT64_FORMAT ", head ",
					 mutation_clip(state->service_id), mutation_clip(state->view_id),
					 state->generation);
	if (state->has_head)
		suid_print(&state->head, suid);
	appendStringInfoString(&detail, state->has_head ? suid : "none");
	if (page_gate_closed(state) && state->offender_event != NULL && state->has_offender)
	{
		suid_print(&state->offender_suid, suid);
		appendStringInfo(&detail, ", event \"%s\" at %s",
						 mutation_clip(state->offender_event), suid);
	}
	appendStringInfoChar(&detail, '.');
	return detail.data;
}

void
page_gate_check(const ReadState *state, bool safe)
{
	if (page_gate_closed(state))
		RAISE(UNSAFE_BEHIND_FRONTIER,
			  errmsg("reads of view \"%s\" are closed: an event lies behind the head",
					 mutation_clip(state->view_id)),
			  errdetail_internal("%s", gate_detail(state)),
			  errhint("Rebuild the view and promote the new generation."));
	if (state->checkpoint_ahead)
		RAISE(MV_CHECKPOINT_AHEAD,
			  errmsg("reads of view \"%s\" are closed: its source is behind the head",
					 mutation_clip(state->view_id)),
			  errdetail_internal("%s", gate_detail(state)),
			  errhint("Restore the source, or rebuild the view and promote the new generation."));
	if (safe && state->ordering_quarantined)
		RAISE(MV_ORDERING_QUARANTINED,
			  errmsg("safe reads of view \"%s\" are closed: the order of its source broke",
					 mutation_clip(state->view_id)),
			  errdetail_internal("%s", gate_detail(state)),
			  errhint("Rebuild the view and promote the new generation."));
}

/*
 * require_open_gate(service_id, view_id): true, or the error a composed read
 * raises.
 */
Datum
unsafemv_require_open_gate(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	ReadState	state;

	statement_begin();
	page_read_state(service_id, view_id, &state);
	page_gate_check(&state, false);
	statement_end();
	PG_RETURN_BOOL(true);
}

/* ---------------------------------------------------------------------------
 * Stale tentative rows
 * ---------------------------------------------------------------------------
 */

/*
 * refold(kept, head, base value, base row version, base SUID, base entries,
 * declared indexes): the row's value, version, tombstone and entries.
 */
Datum
unsafemv_refold(PG_FUNCTION_ARGS)
{
	TupleDesc	descriptor;
	TentativeRow row = {0};
	RowImage	base = {0};
	DeclaredIndexes declared;
	Datum		values[4] = {0};
	bool		nulls[4] = {true, true, true, true};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(6))
		elog(ERROR, "refold without kept events or declared indexes");

	kept_from_jsonb(PG_GETARG_JSONB_P(0), &row.nkept, &row.kept);
	if (row.nkept == 0)
		elog(ERROR, "refold without kept events");
	row.kept_allocated = row.nkept;
	row.exists = true;
	row.source_suid = row.kept[row.nkept - 1].suid;
	if (!PG_ARGISNULL(4))
	{
		if (PG_ARGISNULL(2) || PG_ARGISNULL(3))
			elog(ERROR, "refold on half a base");
		base.present = true;
		base.value = PG_GETARG_JSONB_P(2);
		base.row_version = PG_GETARG_INT64(3);
		base.source_suid = *PG_GETARG_SUID_P(4);
		if (!PG_ARGISNULL(5))
			kept_entries_from_jsonb(PG_GETARG_JSONB_P(5), false, &base.nentries, &base.entries);
		/* The fold wants them as a sorted set. */
		base.nentries = index_entry_set(base.entries, base.nentries);
	}

	fold_refresh(&row, PG_ARGISNULL(1) ? NULL : PG_GETARG_SUID_P(1), &base);
	if (row.exists)
	{
		int			nentries;
		IndexEntry *entries;
		Jsonb	   *array;

		index_entry_declare(PG_GETARG_JSONB_P(6), &declared);
		fold_entries(&row.image, &declared, &nentries, &entries);
		array = kept_entries_to_jsonb(entries, nentries);
		nulls[0] = !row.image.present;
		values[0] = PointerGetDatum(row.image.value);
		nulls[1] = false;
		values[1] = Int64GetDatum(row.row_version);
		nulls[2] = false;
		values[2] = BoolGetDatum(!row.image.present);
		nulls[3] = array == NULL;
		values[3] = PointerGetDatum(array);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* ---------------------------------------------------------------------------
 * What all reads share
 * ---------------------------------------------------------------------------
 */

static int64
not_negative(int64 value, const char *name)
{
	if (value < 0)
		RAISE(MV_VALUE_INVALID,
			  errmsg("%s must not be negative", name),
			  errdetail("It is " INT64_FORMAT ".", value));
	return value;
}

int64
page_limit(FunctionCallInfo fcinfo, int argno)
{
	return PG_ARGISNULL(argno) ? -1 : not_negative(PG_GETARG_INT64(argno), "limit");
}

int64
page_offset(FunctionCallInfo fcinfo, int argno)
{
	registry_require(fcinfo, argno, "offset");
	return not_negative(PG_GETARG_INT64(argno), "offset");
}

bool
page_flag(FunctionCallInfo fcinfo, int argno, const char *name)
{
	registry_require(fcinfo, argno, name);
	return PG_GETARG_BOOL(argno);
}

bool
page_safe(FunctionCallInfo fcinfo, int argno)
{
	char	   *consistency;

	registry_require(fcinfo, argno, "consistency");
	consistency = text_to_cstring(PG_GETARG_TEXT_PP(argno));
	if (strcmp(consistency, "safe") == 0)
		return true;
	if (strcmp(consistency, "composed") != 0)
		RAISE(MV_VALUE_INVALID,
			  errmsg("unknown consistency \"%s\"",
					 mutation_clip(PG_GETARG_TEXT_PP(argno))),
			  errhint("Known are \"composed\" and \"safe\"."));
	return false;
}

text *
page_last_text(int limit)
{
	text	   *result = palloc(VARHDRSZ + limit + 1);

	/* In byte order 0xFF repeated is beyond any text that is not longer. */
	SET_VARSIZE(result, VARHDRSZ + limit + 1);
	memset(VARDATA(result), 0xFF, limit + 1);
	return result;
}

void
page_open(FunctionCallInfo fcinfo, bool safe, ReadState *state, Suid *bound)
{
	page_read_state(registry_service_argument(fcinfo, 0), registry_view_argument(fcinfo, 1), state);
	page_gate_check(state, safe);
	if (safe)
		suid_infinity(bound);
	else
		suid_above(state->has_head ? &state->head : NULL, bound);
}

void
page_part(ReadPart *part, StatementKind kind, const ReadState *state, const Suid *bound)
{
	memset(part, 0, sizeof(ReadPart));
	part->kind = kind;
	part->state = state;
	part->values[0] = PointerGetDatum(state->service_id);
	part->values[1] = Int64GetDatum(state->view_no);
	part->values[2] = Int64GetDatum(state->generation);
	part->values[3] = SuidPGetDatum(bound);
}

static uint64
run_part(ReadPart *part, int64 offset, int64 limit, DestReceiver *dest)
{
	uint64		rows;

	if ((part->kind == STATEMENT_PAGE_SAFE || part->kind == STATEMENT_PAGE_SAFE_DESC ||
		 part->kind == STATEMENT_PAGE_TENTATIVE || part->kind == STATEMENT_PAGE_TENTATIVE_DESC) &&
		page_scan_part(part, offset, limit, dest, &rows))
		return rows;
	part->values[part->offset_argument] = Int64GetDatum(offset);
	part->values[part->offset_argument + 1] = Int64GetDatum(limit);
	part->nulls[part->offset_argument + 1] = limit < 0;
	return statement_read_into(part->kind, part->values, part->nulls, dest);
}

uint64
page_run(ReadPart *parts, int count, int64 offset, int64 limit, DestReceiver *dest)
{
	uint64		total = 0;

	for (int i = 0; i < count && limit != 0; i++)
	{
		uint64		rows = run_part(&parts[i], offset, limit, dest);

		/* The offset may end in this part, or behind it. */
		if (rows > 0)
			offset = 0;
		else if (offset > 0 && i + 1 < count)
			offset -= run_part(&parts[i], 0, offset, None_Receiver);
		if (limit > 0)
			limit -= rows;
		total += rows;
	}
	return total;
}

DestReceiver *
page_receiver(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result;
	DestReceiver *receiver;

	InitMaterializedSRF(fcinfo, 0);
	result = (ReturnSetInfo *) fcinfo->resultinfo;
	receiver = CreateTuplestoreDestReceiver();
	SetTuplestoreDestReceiverParams(receiver, result->setResult,
									result->econtext->ecxt_per_query_memory, false, NULL, NULL);
	return receiver;
}

/* ---------------------------------------------------------------------------
 * The composed page
 * ---------------------------------------------------------------------------
 */

/* Arguments of both forms of the page. */
typedef struct PageArguments
{
	int64		limit;
	int64		offset;
	bool		descending;
	bool		has_cursor;
	Suid		after_suid;
	text	   *after_key;
	bool		with_total;
	bool		safe;
} PageArguments;

static void
page_arguments(FunctionCallInfo fcinfo, PageArguments *arguments)
{
	memset(arguments, 0, sizeof(PageArguments));
	arguments->limit = page_limit(fcinfo, 2);
	arguments->offset = page_offset(fcinfo, 3);
	arguments->descending = page_flag(fcinfo, 4, "descending");
	if (PG_ARGISNULL(5) != PG_ARGISNULL(6))
		RAISE(MV_VALUE_INVALID,
			  errmsg("after_suid and after_key go together"),
			  errhint("Give both of the last row of the page before, or neither."));
	arguments->has_cursor = !PG_ARGISNULL(5);
	if (arguments->has_cursor)
	{
		arguments->after_suid = *PG_GETARG_SUID_P(5);
		arguments->after_key = PG_GETARG_TEXT_PP(6);
		(void) mutation_check_length("after_key", arguments->after_key, LIMIT_ROW_KEY, NULL);
	}
	arguments->with_total = page_flag(fcinfo, 7, "with_total");
	arguments->safe = page_safe(fcinfo, 8);
}

/* The bounds of a part: SUIDs from "from" to before "to", keys beyond "key". */
static void
bound_part(ReadPart *part, const Suid *from, const Suid *to, text *key)
{
	Suid	   *bounds = palloc(2 * sizeof(Suid));

	bounds[0] = *from;
	bounds[1] = *to;
	part->values[4] = SuidPGetDatum(&bounds[0]);
	part->values[5] = SuidPGetDatum(&bounds[1]);
	part->values[6] = PointerGetDatum(key);
	part->offset_argument = 7;
	part->nulls[9] = true;
}

/*
 * The parts of a page in its order: per lane what is left of it behind the
 * cursor; the cursor's lane in two, the rows of its very SUID first.  At most
 * three; their number.
 */
static int
page_parts(const ReadState *state, const Suid *bound, const PageArguments *arguments, ReadPart *parts)
{
	bool		descending = arguments->descending;
	text	   *no_key = descending ? page_last_text(LIMIT_ROW_KEY) : cstring_to_text("");
	int			cursor_lane = 0;
	int			count = 0;

	/* The lanes in the page's order are 0 and 1. */
	if (arguments->has_cursor)
		cursor_lane = (suid_compare(&arguments->after_suid, bound) >= 0) == descending ? 0 : 1;
	for (int lane = cursor_lane; lane < 2; lane++)
	{
		bool		tentative = (lane == 0) == descending;
		StatementKind kind;
		Suid		from;
		Suid		to;

		if (tentative && arguments->safe)
			continue;
		kind = tentative ?
			(descending ? STATEMENT_PAGE_TENTATIVE_DESC : STATEMENT_PAGE_TENTATIVE) :
			(descending ? STATEMENT_PAGE_SAFE_DESC : STATEMENT_PAGE_SAFE);
		suid_above(NULL, &from);
		suid_infinity(&to);
		if (arguments->has_cursor && lane == cursor_lane)
		{
			Suid		behind;

			suid_above(&arguments->after_suid, &behind);
			page_part(&parts[count], kind, state, bound);
			parts[count].cursor = true;
			bound_part(&parts[count++], &arguments->after_suid, &behind, arguments->after_key);
			if (descending)
				to = arguments->after_suid;
			else
				from = behind;
		}
		page_part(&parts[count], kind, state, bound);
		bound_part(&parts[count++], &from, &to, no_key);
	}
	return count;
}

/* Number of rows visible, whatever the page. */
static int64
page_total(const ReadState *state, const Suid *bound, bool safe)
{
	ReadPart	part;
	int64		total = state->row_count;
	int64		visible;
	int64		covering;
	Oid			rows = get_relname_relid("rows", get_namespace_oid("unsafemv", false));

	/* Where policies hide rows, the number of all rows is not the answer. */
	if (check_enable_rls(rows, InvalidOid, true) == RLS_ENABLED)
	{
		PageArguments all = {.limit = -1,.safe = true};

		(void) page_parts(state, bound, &all, &part);
		total = page_run(&part, 1, 0, -1, None_Receiver);
		if (safe)
			return total;
		page_part(&part, STATEMENT_READ_TOTAL, state, bound);
		(void) statement_read(STATEMENT_READ_TOTAL, part.values, NULL);
		/* Safe rows under a tentative one were skipped already. */
		return total + DatumGetInt64(statement_value(0, 1, &part.nulls[0]));
	}
	if (safe)
		return total;
	if (!page_scan_total(state, bound, &visible, &covering))
	{
		page_part(&part, STATEMENT_READ_TOTAL, state, bound);
		(void) statement_read(STATEMENT_READ_TOTAL, part.values, NULL);
		visible = DatumGetInt64(statement_value(0, 1, &part.nulls[0]));
		covering = DatumGetInt64(statement_value(0, 2, &part.nulls[0]));
	}
	/* A row_count that somebody wrote by hand. */
	if (pg_add_s64_overflow(total, visible - covering, &total))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("bigint out of range")));
	return total;
}

/*
 * query_composed_page(service_id, view_id, limit, offset, descending, after_suid,
 * after_key, with_total, consistency): rows.
 */
Datum
unsafemv_query_composed_page(PG_FUNCTION_ARGS)
{
	DestReceiver *receiver = page_receiver(fcinfo);
	PageArguments arguments;
	ReadState	state;
	Suid		bound;
	ReadPart	parts[3];
	int			count;

	page_arguments(fcinfo, &arguments);
	statement_begin();
	page_open(fcinfo, arguments.safe, &state, &bound);
	count = page_parts(&state, &bound, &arguments, parts);
	if (arguments.with_total && arguments.limit != 0)
	{
		int64		total = page_total(&state, &bound, arguments.safe);

		for (int i = 0; i < count; i++)
		{
			parts[i].values[9] = Int64GetDatum(total);
			parts[i].nulls[9] = false;
		}
	}
	(void) page_run(parts, count, arguments.offset, arguments.limit, receiver);
	statement_end();
	PG_RETURN_NULL();
}

/* ---------------------------------------------------------------------------
 * The page as one JSON value
 * ---------------------------------------------------------------------------
 */

/* A receiver that appends rows to a JSON array. */
typedef struct JsonReceiver
{
	DestReceiver receiver;
	JsonbParseState *state;
	MemoryContext context;		/* of the array */
	int64		limit;			/* rows wanted; -1: all; more are just counted */
	int64		rows;
	Size		bytes;
	text	   *last_key;
	text	   *last_suid;
} JsonReceiver;

static void
push_string(JsonbParseState **state, JsonbIteratorToken token, const char *string, int length)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = unconstify(char *, string);
	value.val.string.len = length;
	(void) pushJsonbValue(state, token, &value);
}

static void
push_member(JsonbParseState **state, const char *name, const text *value)
{
	push_string(state, WJB_KEY, name, strlen(name));
	if (value != NULL)
		push_string(state, WJB_VALUE, VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
	else
	{
		JsonbValue	null = {.type = jbvNull};

		(void) pushJsonbValue(state, WJB_VALUE, &null);
	}
}

static bool
json_receive(TupleTableSlot *slot, DestReceiver *self)
{
	JsonReceiver *receiver = (JsonReceiver *) self;
	MemoryContext executor;
	JsonbValue	value;
	Jsonb	   *row_value;
	char		version[32];

	if (receiver->limit >= 0 && receiver->rows >= receiver->limit)
	{
		receiver->rows++;
		return true;
	}
	slot_getallattrs(slot);
	executor = MemoryContextSwitchTo(receiver->context);

	/* The array points into these copies until it is serialised. */
	if (slot->tts_isnull[1])
		row_writer_no_value();
	receiver->last_key = DatumGetTextPCopy(slot->tts_values[0]);
	row_value = DatumGetJsonbPCopy(slot->tts_values[1]);
	receiver->last_suid = DatumGetTextPCopy(slot->tts_values[3]);
	receiver->bytes += VARSIZE(row_value) + VARSIZE(receiver->last_key) + PAGE_ROW_BYTES;
	if (receiver->bytes > PAGE_MAX_BYTES)
		RAISE(MV_LIMIT_EXCEEDED,
			  errmsg("rows of the page exceed 256 MB as one JSON value"),
			  errhint("Use a smaller limit, or query_composed_page."));

	(void) pushJsonbValue(&receiver->state, WJB_BEGIN_OBJECT, NULL);
	push_member(&receiver->state, "rowKey", receiver->last_key);
	push_string(&receiver->state, WJB_KEY, "value", 5);
	if (JB_ROOT_IS_SCALAR(row_value))
		(void) JsonbExtractScalar(&row_value->root, &value);
	else
	{
		value.type = jbvBinary;
		value.val.binary.data = &row_value->root;
		value.val.binary.len = VARSIZE(row_value) - VARHDRSZ;
	}
	(void) pushJsonbValue(&receiver->state, WJB_VALUE, &value);
	snprintf(version, sizeof(version), INT64_FORMAT, DatumGetInt64(slot->tts_values[2]));
	push_member(&receiver->state, "rowVersion", cstring_to_text(version));
	push_member(&receiver->state, "sourceSuid", receiver->last_suid);
	push_string(&receiver->state, WJB_KEY, "unsafe", 6);
	value.type = jbvBool;
	value.val.boolean = DatumGetBool(slot->tts_values[4]);
	(void) pushJsonbValue(&receiver->state, WJB_VALUE, &value);
	(void) pushJsonbValue(&receiver->state, WJB_END_OBJECT, NULL);

	receiver->rows++;
	MemoryContextSwitchTo(executor);
	return true;
}

static void
json_startup(DestReceiver *self, int operation, TupleDesc descriptor)
{
}

static void
json_nothing(DestReceiver *self)
{
}

/* The head, or for composed reads the greatest SUID visible; NULL: none. */
static text *
read_head(const ReadState *state, const Suid *bound, bool safe)
{
	PageArguments newest = {.limit = 1,.descending = true};
	ReadPart	parts[3];
	int			count;

	if (safe)
		return state->has_head ? DatumGetTextPP(suid_text_datum(&state->head)) : NULL;
	count = page_parts(state, bound, &newest, parts);
	for (int i = 0; i < count; i++)
	{
		bool		isnull;

		parts[i].values[7] = Int64GetDatum(0);
		parts[i].values[8] = Int64GetDatum(1);
		if (statement_read(parts[i].kind, parts[i].values, parts[i].nulls) > 0)
			return DatumGetTextPP(statement_value(0, 4, &isnull));
	}
	return NULL;
}

/* composed_page(... as query_composed_page ...): one JSON value. */
Datum
unsafemv_composed_page(PG_FUNCTION_ARGS)
{
	MemoryContext caller = CurrentMemoryContext;
	JsonReceiver receiver = {0};
	PageArguments arguments;
	ReadState	state;
	Suid		bound;
	ReadPart	parts[3];
	int			count;
	text	   *head;
	JsonbValue	value;
	JsonbValue *page;
	bool		more;
	Jsonb	   *result;

	page_arguments(fcinfo, &arguments);
	statement_begin();
	page_open(fcinfo, arguments.safe, &state, &bound);

	receiver.receiver.receiveSlot = json_receive;
	receiver.receiver.rStartup = json_startup;
	receiver.receiver.rShutdown = json_nothing;
	receiver.receiver.rDestroy = json_nothing;
	receiver.receiver.mydest = DestTuplestore;
	receiver.context = CurrentMemoryContext;
	receiver.limit = arguments.limit;
	(void) pushJsonbValue(&receiver.state, WJB_BEGIN_OBJECT, NULL);
	push_string(&receiver.state, WJB_KEY, "rows", 4);
	(void) pushJsonbValue(&receiver.state, WJB_BEGIN_ARRAY, NULL);

	/* One row more tells whether there is a next page. */
	count = page_parts(&state, &bound, &arguments, parts);
	(void) page_run(parts, count, arguments.offset,
					arguments.limit > 0 && arguments.limit < PG_INT64_MAX ?
					arguments.limit + 1 : arguments.limit,
					&receiver.receiver);
	more = arguments.limit >= 0 && receiver.rows > arguments.limit;
	(void) pushJsonbValue(&receiver.state, WJB_END_ARRAY, NULL);

	push_string(&receiver.state, WJB_KEY, "totalCount", 10);
	value.type = jbvNull;
	if (arguments.with_total)
	{
		value.type = jbvNumeric;
		value.val.numeric = int64_to_numeric(page_total(&state, &bound, arguments.safe));
	}
	(void) pushJsonbValue(&receiver.state, WJB_VALUE, &value);

	head = read_head(&state, &bound, arguments.safe);
	push_member(&receiver.state, "readHead", head);
	if (more)
	{
		push_string(&receiver.state, WJB_KEY, "next", 4);
		(void) pushJsonbValue(&receiver.state, WJB_BEGIN_OBJECT, NULL);
		push_member(&receiver.state, "afterSuid", receiver.last_suid);
		push_member(&receiver.state, "afterKey", receiver.last_key);
		(void) pushJsonbValue(&receiver.state, WJB_END_OBJECT, NULL);
	}
	else
		push_member(&receiver.state, "next", NULL);

	page = pushJsonbValue(&receiver.state, WJB_END_OBJECT, NULL);

	/* Into the caller's memory; the rest goes with the statements. */
	MemoryContextSwitchTo(caller);
	result = JsonbValueToJsonb(page);
	statement_end();
	PG_RETURN_JSONB_P(result);
}
