/*
 * page_index.c
 *	  Reads in another order than the composed page's, and typed SQL views.
 *
 * Guarantees: as page.c, with which they share gate, snapshot and memory rules.
 * Both lanes come ordered and are merged by the statement; the safe lane is read
 * by the index in the result's order and only as far as the page goes, the
 * tentative lane's entries are expanded from its rows.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/namespace.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "parser/parser.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "library.h"
#include "mutation.h"
#include "page.h"
#include "registry.h"

UNSAFEMV_FUNCTION(unsafemv_read_rows);
UNSAFEMV_FUNCTION(unsafemv_query_rows);
UNSAFEMV_FUNCTION(unsafemv_read_index_entries);
UNSAFEMV_FUNCTION(unsafemv_create_typed_view);

/*
 * read_rows(service_id, view_id, row_keys, limit, offset, descending, after_key,
 * consistency): rows by key.
 */
Datum
unsafemv_read_rows(PG_FUNCTION_ARGS)
{
	DestReceiver *receiver = page_receiver(fcinfo);
	bool		by_keys = !PG_ARGISNULL(2);
	int64		limit = page_limit(fcinfo, 3);
	int64		offset = page_offset(fcinfo, 4);
	bool		descending = page_flag(fcinfo, 5, "descending");
	text	   *after_key = NULL;
	bool		safe = page_safe(fcinfo, 7);
	StatementKind kind;
	ReadState	state;
	Suid		bound;
	ReadPart	part;

	if (!PG_ARGISNULL(6))
	{
		after_key = PG_GETARG_TEXT_PP(6);
		(void) mutation_check_length("after_key", after_key, LIMIT_ROW_KEY, NULL);
	}
	else
		after_key = descending ? page_last_text(LIMIT_ROW_KEY) : cstring_to_text("");
	if (by_keys && array_contains_nulls(PG_GETARG_ARRAYTYPE_P(2)))
		RAISE(MV_VALUE_INVALID,
			  errmsg("row_keys must not contain NULL"));

	statement_begin();
	page_open(fcinfo, safe, &state, &bound);
	if (by_keys)
		kind = descending ? STATEMENT_READ_ROWS_KEYS_DESC : STATEMENT_READ_ROWS_KEYS;
	else
		kind = descending ? STATEMENT_READ_ROWS_DESC : STATEMENT_READ_ROWS;
	page_part(&part, kind, &state, &bound);
	part.values[4] = PointerGetDatum(after_key);
	part.offset_argument = 5;
	if (by_keys)
		part.values[7] = PG_GETARG_DATUM(2);
	(void) page_run(&part, 1, offset, limit, receiver);
	statement_end();
	PG_RETURN_NULL();
}

/* ---------------------------------------------------------------------------
 * Indexes
 * ---------------------------------------------------------------------------
 */

/*
 * Does the view let this index be asked for?  Where it declares indexes, only
 * those, and with their type (NULL: any).
 */
static void
check_declared(const ReadState *state, const text *index_id, const IndexType *type)
{
	DeclaredIndexes declared;

	index_entry_declare(state->indexes, &declared);
	if (declared.count == 0)
		return;
	for (int i = 0; i < declared.count; i++)
	{
		if (mutation_compare_text(declared.indexes[i].index_id, index_id) != 0)
			continue;
		if (type != NULL && declared.indexes[i].type != *type)
			RAISE(MV_INDEX_VALUE_TYPE_MISMATCH,
				  errmsg("index \"%s\" is of type %s, not %s", mutation_clip(index_id),
						 index_entry_type_name(declared.indexes[i].type),
						 index_entry_type_name(*type)),
				  errdetail("Service \"%s\", view \"%s\".", mutation_clip(state->service_id),
							mutation_clip(state->view_id)));
		return;
	}
	RAISE(MV_INDEX_UNDECLARED,
		  errmsg("index \"%s\" is not declared", mutation_clip(index_id)),
		  errdetail("Service \"%s\", view \"%s\".", mutation_clip(state->service_id),
					mutation_clip(state->view_id)));
}

static text *
index_argument(FunctionCallInfo fcinfo, int argno)
{
	text	   *index_id = PG_GETARG_TEXT_PP(argno);

	(void) mutation_check_length("index_id", index_id, LIMIT_INDEX_ID, NULL);
	return index_id;
}

/* A bound as a number, or MV_INDEX_VALUE_INVALID; same rules as an entry's value. */
static Datum
number_bound(const char *name, const text *value, IndexType type)
{
	char	   *string = text_to_cstring(value);
	char	   *end;
	int64		integer = 0;
	double		real = 0;
	bool		valid = false;

	errno = 0;
	/* No blanks, words or hexadecimal digits, which the library would take. */
	if (string[0] != '\0' && string[strspn(string, "0123456789+-.eE")] == '\0')
	{
		if (type == INDEX_INTEGER)
			integer = strtoi64(string, &end, 10);
		else
			real = strtod(string, &end);
		valid = *end == '\0' && (type == INDEX_INTEGER ? errno == 0 : isfinite(real));
	}
	if (!valid)
		RAISE(MV_INDEX_VALUE_INVALID,
			  errmsg("%s is not a value of type %s", name, index_entry_type_name(type)),
			  errdetail("It is \"%s\".", mutation_clip(value)));
	return type == INDEX_INTEGER ? Int64GetDatum(integer) :
		Float8GetDatum(real == 0 ? 0 : real);
}

static Datum
index_bound(FunctionCallInfo fcinfo, int argno, const char *name, IndexType type)
{
	text	   *value = PG_GETARG_TEXT_PP(argno);

	if (type != INDEX_TEXT)
		return number_bound(name, value, type);
	(void) mutation_check_length(name, value, LIMIT_TEXT_VALUE, NULL);
	return PointerGetDatum(value);
}

/* What lies below or above every value of the type. */
static Datum
open_bound(IndexType type, bool upper)
{
	switch (type)
	{
		case INDEX_TEXT:
			return PointerGetDatum(upper ? page_last_text(LIMIT_TEXT_VALUE) : cstring_to_text(""));
		case INDEX_INTEGER:
			return Int64GetDatum(upper ? PG_INT64_MAX : PG_INT64_MIN);
		case INDEX_REAL:
			return Float8GetDatum(upper ? get_float8_infinity() : -get_float8_infinity());
	}
	return (Datum) 0;
}

/*
 * query_rows(service_id, view_id, index_id, value_type, equals, from_value,
 * to_value, limit, offset, descending, consistency): rows by an index.
 */
Datum
unsafemv_query_rows(PG_FUNCTION_ARGS)
{
	static const StatementKind kinds[][2] = {
		[INDEX_TEXT] = {STATEMENT_QUERY_TEXT, STATEMENT_QUERY_TEXT_DESC},
		[INDEX_INTEGER] = {STATEMENT_QUERY_INTEGER, STATEMENT_QUERY_INTEGER_DESC},
		[INDEX_REAL] = {STATEMENT_QUERY_REAL, STATEMENT_QUERY_REAL_DESC},
	};
	DestReceiver *receiver = page_receiver(fcinfo);
	text	   *index_id;
	text	   *type_name;
	IndexType	type;
	Datum		from;
	Datum		to;
	int64		limit = page_limit(fcinfo, 7);
	int64		offset = page_offset(fcinfo, 8);
	bool		descending = page_flag(fcinfo, 9, "descending");
	bool		safe = page_safe(fcinfo, 10);
	ReadState	state;
	Suid		bound;
	ReadPart	part;

	registry_require(fcinfo, 2, "index_id");
	registry_require(fcinfo, 3, "value_type");
	index_id = index_argument(fcinfo, 2);
	type_name = PG_GETARG_TEXT_PP(3);
	if (!index_entry_type(VARDATA_ANY(type_name), VARSIZE_ANY_EXHDR(type_name), &type))
		RAISE(MV_VALUE_INVALID,
			  errmsg("unknown value_type \"%s\"", mutation_clip(type_name)),
			  errhint("Known are \"text\", \"integer\" and \"real\"."));
	if (!PG_ARGISNULL(4))
	{
		if (!PG_ARGISNULL(5) || !PG_ARGISNULL(6))
			RAISE(MV_VALUE_INVALID,
				  errmsg("equals excludes from_value and to_value"));
		from = to = index_bound(fcinfo, 4, "equals", type);
	}
	else
	{
		from = PG_ARGISNULL(5) ? open_bound(type, false) :
			index_bound(fcinfo, 5, "from_value", type);
		to = PG_ARGISNULL(6) ? open_bound(type, true) :
			index_bound(fcinfo, 6, "to_value", type);
	}

	statement_begin();
	page_open(fcinfo, safe, &state, &bound);
	check_declared(&state, index_id, &type);
	page_part(&part, kinds[type][descending ? 1 : 0], &state, &bound);
	part.values[4] = PointerGetDatum(index_id);
	part.values[5] = from;
	part.values[6] = to;
	part.offset_argument = 7;
	(void) page_run(&part, 1, offset, limit, receiver);
	statement_end();
	PG_RETURN_NULL();
}

/*
 * read_index_entries(service_id, view_id, index_id, limit, offset, descending,
 * consistency): entries of one index or all.
 */
Datum
unsafemv_read_index_entries(PG_FUNCTION_ARGS)
{
	/* By the types' names. */
	static const StatementKind kinds[2][3] = {
		{STATEMENT_ENTRIES_INTEGER, STATEMENT_ENTRIES_REAL, STATEMENT_ENTRIES_TEXT},
		{STATEMENT_ENTRIES_TEXT_DESC, STATEMENT_ENTRIES_REAL_DESC, STATEMENT_ENTRIES_INTEGER_DESC},
	};
	DestReceiver *receiver = page_receiver(fcinfo);
	text	   *index_id = PG_ARGISNULL(2) ? NULL : index_argument(fcinfo, 2);
	int64		limit = page_limit(fcinfo, 3);
	int64		offset = page_offset(fcinfo, 4);
	bool		descending = page_flag(fcinfo, 5, "descending");
	bool		safe = page_safe(fcinfo, 6);
	text	   *first = index_id != NULL ? index_id : cstring_to_text("");
	text	   *last = index_id != NULL ? index_id : page_last_text(LIMIT_INDEX_ID);
	ReadState	state;
	Suid		bound;
	ReadPart	parts[3];

	statement_begin();
	page_open(fcinfo, safe, &state, &bound);
	if (index_id != NULL)
		check_declared(&state, index_id, NULL);
	for (int i = 0; i < (int) lengthof(parts); i++)
	{
		page_part(&parts[i], kinds[descending ? 1 : 0][i], &state, &bound);
		parts[i].values[4] = PointerGetDatum(first);
		parts[i].values[5] = PointerGetDatum(last);
		parts[i].offset_argument = 6;
	}
	(void) page_run(parts, lengthof(parts), offset, limit, receiver);
	statement_end();
	PG_RETURN_NULL();
}

/* ---------------------------------------------------------------------------
 * Typed SQL views
 * ---------------------------------------------------------------------------
 */

/* A syntax error's place is one in our text, not in the client's. */
static void
columns_error(void *arg)
{
	const char *source = arg;
	int			position = geterrposition();

	if (position > 0)
	{
		errposition(0);
		internalerrposition(position);
		internalerrquery(source);
	}
	errcontext("column list of a typed view");
}

static void
columns_invalid(const char *detail)
{
	RAISE(MV_VALUE_INVALID,
		  errmsg("columns must be a list of names and types"),
		  errdetail_internal("%s", detail),
		  errhint("For example 'id text, total numeric(12,2)'."));
}

/*
 * Parse a column list and write it again: "definitions" with types, "names" as
 * output columns.  Nothing of the caller's text survives but names, quoted, and
 * types, looked up.
 */
static void
rebuild_columns(const char *columns, StringInfo names, StringInfo definitions)
{
	char	   *source = psprintf("CREATE TABLE t (%s\n)", columns);
	ErrorContextCallback callback;
	List	   *statements;
	CreateStmt *create;
	ListCell   *cell;

	callback.callback = columns_error;
	callback.arg = source;
	callback.previous = error_context_stack;
	error_context_stack = &callback;

	statements = raw_parser(source, RAW_PARSE_DEFAULT);
	if (list_length(statements) != 1 ||
		!IsA(linitial_node(RawStmt, statements)->stmt, CreateStmt))
		columns_invalid("There is more than a column list.");
	create = (CreateStmt *) linitial_node(RawStmt, statements)->stmt;
	if (create->inhRelations != NIL || create->partspec != NULL || create->partbound != NULL ||
		create->ofTypename != NULL || create->constraints != NIL || create->options != NIL ||
		create->oncommit != ONCOMMIT_NOOP || create->tablespacename != NULL ||
		create->accessMethod != NULL)
		columns_invalid("There is more than a column list.");
	if (create->tableElts == NIL)
		columns_invalid("It is empty.");

	foreach(cell, create->tableElts)
	{
		ColumnDef  *column = (ColumnDef *) lfirst(cell);
		Oid			type;
		int32		typmod;

		if (!IsA(column, ColumnDef) || column->constraints != NIL || column->collClause != NULL ||
			column->fdwoptions != NIL || column->compression != NULL)
			columns_invalid("There is more than names and types.");
		typenameTypeIdAndMod(NULL, column->typeName, &type, &typmod);
		if (get_typtype(type) == TYPTYPE_PSEUDO || column->typeName->setof)
			columns_invalid("A column cannot be of that type.");
		appendStringInfo(names, ", c.%s", quote_identifier(column->colname));
		appendStringInfo(definitions, "%s%s %s", foreach_current_index(cell) > 0 ? ", " : "",
						 quote_identifier(column->colname),
						 format_type_extended(type, typmod,
											  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	}
	error_context_stack = callback.previous;
}

/*
 * create_typed_view(service_id, view_id, name, columns): an SQL view over
 * current_rows; its quoted name.
 */
Datum
unsafemv_create_typed_view(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	MemoryContext caller = CurrentMemoryContext;
	StringInfoData names;
	StringInfoData definitions;
	StringInfoData command;
	List	   *qualified;
	char	   *name;
	text	   *result;

	registry_require(fcinfo, 2, "name");
	registry_require(fcinfo, 3, "columns");
	qualified = textToQualifiedNameList(PG_GETARG_TEXT_PP(2));
	if (list_length(qualified) != 2)
		RAISE(MV_VALUE_INVALID,
			  errmsg("name must be schema-qualified"),
			  errdetail("It is \"%s\".", mutation_clip(PG_GETARG_TEXT_PP(2))));
	name = NameListToQuotedString(qualified);

	initStringInfo(&names);
	initStringInfo(&definitions);
	rebuild_columns(text_to_cstring(PG_GETARG_TEXT_PP(3)), &names, &definitions);

	statement_begin();
	(void) registry_read_view(service_id, view_id);
	initStringInfo(&command);
	appendStringInfo(&command,
					 "CREATE VIEW %s WITH (security_invoker = true) AS"
					 " SELECT r.row_key%s FROM unsafemv.current_rows r"
					 " CROSS JOIN LATERAL pg_catalog.jsonb_to_record("
					 "CASE WHEN pg_catalog.jsonb_typeof(r.value) = 'object' THEN r.value ELSE '{}' END)"
					 " c(%s)"
					 " WHERE r.service_id = %s AND r.view_id = %s",
					 name, names.data, definitions.data,
					 quote_literal_cstr(text_to_cstring(service_id)),
					 quote_literal_cstr(text_to_cstring(view_id)));
	statement_utility(command.data);
	MemoryContextSwitchTo(caller);
	result = cstring_to_text(name);
	statement_end();
	PG_RETURN_TEXT_P(result);
}
