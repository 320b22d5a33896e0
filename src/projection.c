/*
 * projection.c
 *	  Projections: what is attached to a view so that the extension itself turns
 *	  events into its rows (core 11).
 *
 * Guarantees: source, functions and role are stored as names and looked up, with
 * their types, whenever they are used; so a dump can be restored anywhere, and
 * something dropped or changed is a typed error that names it.  The user's code
 * runs as the role that attached, never a superuser, as a restricted operation
 * and with search_path pinned, and settings it changes are taken back; whoever calls
 * follow lends it nothing.
 *
 * Locks: none of its own.  A crash leaves nothing behind but committed rows.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_index.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "library.h"
#include "projection.h"
#include "statement.h"

UNSAFEMV_FUNCTION(unsafemv_attach_projection);
UNSAFEMV_FUNCTION(unsafemv_detach_projection);
UNSAFEMV_FUNCTION(unsafemv_observe_lag);

#define PROJECTION_DETAIL(view) registry_errdetail(view)

/* ---------- the role ---------- */

void
projection_enter(const Projection *projection, ProjectionRole *before)
{
	GetUserIdAndSecContext(&before->user, &before->context);
	SetUserIdAndSecContext(projection->role,
						   before->context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	before->guc_level = NewGUCNestLevel();
}

void
projection_leave(const ProjectionRole *before)
{
	AtEOXact_GUC(false, before->guc_level);
	SetUserIdAndSecContext(before->user, before->context);
}

static void
check_role(const View *view, Oid role)
{
	if (superuser_arg(role))
		RAISE(MV_VALUE_INVALID,
			  errmsg("a projection cannot run as superuser \"%s\"", GetUserNameFromId(role, false)),
			  PROJECTION_DETAIL(view),
			  errhint("SET ROLE to an ordinary role that may read the source, and attach as that."));
}

/* ---------- functions ---------- */

/*
 * Look up a function by name and argument types, and check its result, with the
 * current search_path and as the current role.
 */
static Oid
find_function(const View *view, const char *what, const char *name,
			  int nargs, Oid result_type)
{
	Oid			types[2] = {JSONBOID, JSONBOID};
	List	   *names = textToQualifiedNameList(cstring_to_text(name));
	Oid			function = LookupFuncName(names, nargs, types, true);
	HeapTuple	tuple;
	Form_pg_proc form;
	bool		fits;

	if (!OidIsValid(function))
		RAISE(MV_PROJECTION_MISSING,
			  errmsg("%s %s(%s) does not exist", what, name, nargs == 1 ? "jsonb" : "jsonb, jsonb"),
			  PROJECTION_DETAIL(view),
			  errhint("Create it, or attach another one with unsafemv.attach_projection."));
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	form = (Form_pg_proc) GETSTRUCT(tuple);
	fits = form->prokind == PROKIND_FUNCTION && !form->proretset && form->prorettype == result_type;
	ReleaseSysCache(tuple);
	if (!fits)
		RAISE(MV_VALUE_INVALID,
			  errmsg("%s %s does not return %s", what, name, format_type_be(result_type)),
			  PROJECTION_DETAIL(view));
	if (!COMPAT_MAY_EXECUTE(function, GetUserId()))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, name);
	return function;
}

static char *
function_name(Oid function)
{
	return quote_qualified_identifier(get_namespace_name(get_func_namespace(function)),
									  get_func_name(function));
}

static Oid
find_plan_function(const View *view, const char *name, bool with_rows)
{
	return find_function(view, "plan function", name, with_rows ? 2 : 1, JSONBOID);
}

static Oid
find_key_function(const View *view, const char *name)
{
	return find_function(view, "key function", name, 1, TEXTARRAYOID);
}

/* ---------- the source ---------- */

/* A column's number; its type is one of the first "ntypes" of "types". */
static AttrNumber
check_column(const View *view, const char *source, Oid relation, const char *column,
			 const Oid *types, int ntypes)
{
	AttrNumber	number = get_attnum(relation, column);
	Oid			type;

	if (number == InvalidAttrNumber)
		RAISE(MV_PROJECTION_MISSING, errmsg("source %s has no column \"%s\"", source, column),
			  PROJECTION_DETAIL(view),
			  errhint("Give a table or view with columns service_id, event_id, suid, event and arrived_at, and event_type where event types are given."));
	type = get_atttype(relation, number);
	for (int i = 0; i < ntypes; i++)
		if (type == types[i])
			return number;
	RAISE(MV_VALUE_INVALID,
		  errmsg("column \"%s\" of source %s has type %s, not %s", column, source,
				 format_type_be(type), format_type_be(types[0])),
		  PROJECTION_DETAIL(view),
		  errhint("Adapt the events with a view that casts them."));
	return number;				/* not reached */
}

/* A valid, whole btree index that begins with these two columns. */
static void
check_index(const View *view, const char *source, Relation relation,
			AttrNumber first, AttrNumber second, const char *column)
{
	List	   *indexes = RelationGetIndexList(relation);
	ListCell   *cell;
	bool		found = false;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index form;

		if (!HeapTupleIsValid(tuple))
			continue;
		form = (Form_pg_index) GETSTRUCT(tuple);
		found |= form->indisvalid && form->indnkeyatts >= 2 &&
			form->indkey.values[0] == first && form->indkey.values[1] == second &&
			heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	if (!found)
		RAISE(MV_VALUE_INVALID,
			  errmsg("source %s has no index on (service_id, %s)", source, column),
			  PROJECTION_DETAIL(view),
			  errhint("CREATE INDEX ON %s (service_id, %s);", source, column));
}

/* Check a source that exists. */
static void
check_source(const View *view, const char *source, Oid relation_id, bool has_types)
{
	Oid			text_types[] = {TEXTOID, VARCHAROID};
	Oid			id_types[] = {TEXTOID, VARCHAROID, UUIDOID, INT8OID};
	Oid			suid_types[] = {statement_suid_type()};
	Oid			jsonb_types[] = {JSONBOID};
	Oid			time_types[] = {TIMESTAMPTZOID};
	char		kind = get_rel_relkind(relation_id);
	AttrNumber	service;
	AttrNumber	suid;
	AttrNumber	arrived;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE && kind != RELKIND_VIEW &&
		kind != RELKIND_MATVIEW && kind != RELKIND_FOREIGN_TABLE)
		RAISE(MV_VALUE_INVALID, errmsg("source %s is neither a table nor a view", source),
			  PROJECTION_DETAIL(view));
	service = check_column(view, source, relation_id, "service_id", text_types, lengthof(text_types));
	(void) check_column(view, source, relation_id, "event_id", id_types, lengthof(id_types));
	suid = check_column(view, source, relation_id, "suid", suid_types, 1);
	(void) check_column(view, source, relation_id, "event", jsonb_types, 1);
	arrived = check_column(view, source, relation_id, "arrived_at", time_types, 1);
	if (has_types)
		(void) check_column(view, source, relation_id, "event_type", text_types, lengthof(text_types));

	if (kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_MATVIEW)
	{
		Relation	relation = table_open(relation_id, AccessShareLock);

		check_index(view, source, relation, service, suid, "suid");
		check_index(view, source, relation, service, arrived, "arrived_at");
		table_close(relation, AccessShareLock);
	}
}

static Oid
find_source(const View *view, const char *source)
{
	RangeVar   *name = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(source)));
	Oid			relation = RangeVarGetRelid(name, NoLock, true);

	if (!OidIsValid(relation))
		RAISE(MV_PROJECTION_MISSING, errmsg("source %s does not exist", source),
			  PROJECTION_DETAIL(view),
			  errhint("Create it, or attach another one with unsafemv.attach_projection."));
	return relation;
}

void
projection_check_source(const Projection *projection)
{
	ProjectionRole before;

	projection_enter(projection, &before);
	check_source(projection->view, projection->source,
				 find_source(projection->view, projection->source), projection->has_types);
	projection_leave(&before);
}

/* ---------- reading ---------- */

void
projection_missing(const View *view)
{
	RAISE(MV_PROJECTION_MISSING, errmsg("view has no projection"),
		  PROJECTION_DETAIL(view),
		  errhint("Attach one with unsafemv.attach_projection."));
}

static char *
name_column(int column)
{
	bool		isnull;
	Datum		value = statement_value(0, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

static Interval *
interval_column(int column)
{
	bool		isnull;
	Interval   *result = palloc(sizeof(Interval));

	*result = *DatumGetIntervalP(statement_value(0, column, &isnull));
	return result;
}

bool
projection_read(const View *view, Projection *result)
{
	Datum		values[2] = {PointerGetDatum(view->service_id), Int64GetDatum(view->view_no)};
	ProjectionRole before;
	char	   *role;
	bool		isnull;
	Datum		types;

	memset(result, 0, sizeof(Projection));
	if (statement_execute(STATEMENT_PROJECTION_READ, values, NULL) == 0)
		return false;
	result->view = view;
	result->source = name_column(1);
	result->plan_name = name_column(2);
	result->key_name = name_column(3);
	types = statement_value(0, 4, &isnull);
	result->has_types = !isnull;
	if (!isnull)
		result->event_types = PointerGetDatum(PG_DETOAST_DATUM_COPY(types));
	role = name_column(5);
	result->window_floor = interval_column(6);
	result->window_ceiling = interval_column(7);

	result->role = get_role_oid(role, true);
	if (!OidIsValid(result->role))
		RAISE(MV_PROJECTION_MISSING,
			  errmsg("role \"%s\", which attached the projection, does not exist", role),
			  PROJECTION_DETAIL(view),
			  errhint("Attach it anew with unsafemv.attach_projection."));
	check_role(view, result->role);
	projection_enter(result, &before);
	fmgr_info(find_plan_function(view, result->plan_name, result->key_name != NULL), &result->plan);
	if (result->key_name != NULL)
		fmgr_info(find_key_function(view, result->key_name), &result->keys);
	projection_leave(&before);
	return true;
}

/* ---------- calling ---------- */

/* In a PG_CATCH: raise what was caught as the function's failure. */
static void
raise_failure(const Projection *projection, const text *event_id, const char *function,
			  const char *verb, MemoryContext caller)
{
	ErrorData  *error;

	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	if (errors_no_events_fault(error->sqlerrcode))
		PG_RE_THROW();
	FlushErrorState();
	RAISE(MV_PLAN_FUNCTION_FAILED,
		  errmsg("%s %s: %s", function, verb, error->message),
		  errdetail("Service \"%s\", view \"%s\", event \"%s\", SQLSTATE %s.%s%s",
					mutation_clip(projection->view->service_id),
					mutation_clip(projection->view->view_id), mutation_clip(event_id),
					unpack_sql_state(error->sqlerrcode),
					error->detail != NULL ? " " : "", error->detail != NULL ? error->detail : ""),
		  error->hint != NULL ? errhint("%s", error->hint) : 0,
		  error->context != NULL ? errcontext("%s", error->context) : 0);
}

/* Call with one or two jsonb arguments; false: it returned NULL. */
static bool
call(Projection *projection, FmgrInfo *function, const char *name,
	 const text *event_id, Jsonb *event, Jsonb *rows, Datum *result)
{
	LOCAL_FCINFO(fcinfo, 2);
	MemoryContext caller = CurrentMemoryContext;
	ProjectionRole before;

	InitFunctionCallInfoData(*fcinfo, function, rows == NULL ? 1 : 2, DEFAULT_COLLATION_OID, NULL, NULL);
	fcinfo->args[0].value = JsonbPGetDatum(event);
	fcinfo->args[0].isnull = false;
	if (rows != NULL)
	{
		fcinfo->args[1].value = JsonbPGetDatum(rows);
		fcinfo->args[1].isnull = false;
	}
	projection_enter(projection, &before);
	PG_TRY();
	{
		*result = FunctionCallInvoke(fcinfo);
	}
	PG_CATCH();
	{
		raise_failure(projection, event_id, name, "failed", caller);
	}
	PG_END_TRY();
	projection_leave(&before);
	MemoryContextSwitchTo(caller);
	return !fcinfo->isnull;
}

Jsonb *
projection_plan(Projection *projection, const text *event_id, Jsonb *event, Jsonb *rows)
{
	Datum		result;

	if (!call(projection, &projection->plan, projection->plan_name, event_id, event,
			  projection->key_name != NULL ? rows : NULL, &result))
		return NULL;
	return DatumGetJsonbP(result);
}

void
projection_keys(Projection *projection, const text *event_id, Jsonb *event, int *count, Datum **keys)
{
	Datum		result;
	bool	   *nulls;
	int			kept = 0;

	*count = 0;
	*keys = NULL;
	if (!call(projection, &projection->keys, projection->key_name, event_id, event, NULL, &result))
		return;
	deconstruct_array(DatumGetArrayTypeP(result), TEXTOID, -1, false, TYPALIGN_INT,
					  keys, &nulls, count);
	for (int i = 0; i < *count; i++)
		if (!nulls[i])
			(*keys)[kept++] = (*keys)[i];
	*count = kept;
}

void
projection_parse(Projection *projection, const text *event_id, const Suid *suid, Jsonb *plan,
				 MutationPlan *result)
{
	MemoryContext caller = CurrentMemoryContext;
	MutationSource source;

	memset(result, 0, sizeof(MutationPlan));
	if (plan == NULL)
		return;
	source.service_id = projection->view->service_id;
	source.view_id = projection->view->view_id;
	source.event_id = event_id;
	source.position = -1;
	PG_TRY();
	{
		(void) mutation_parse(plan, suid, &projection->view->declared, &source, result, NULL);
	}
	PG_CATCH();
	{
		raise_failure(projection, event_id, projection->plan_name, "returned a malformed plan", caller);
	}
	PG_END_TRY();
}

/* ---------- public functions ---------- */

/*
 * No SET clause on the function: names are looked up with the caller's
 * search_path, everything else with the pinned one.
 */
Datum
unsafemv_attach_projection(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	bool		has_keys = !PG_ARGISNULL(4);
	bool		has_types = !PG_ARGISNULL(5);
	View		view = {0};
	Oid			relation;
	char	   *source;
	Datum		values[7];
	bool		nulls[7] = {0};
	int			level;

	registry_require(fcinfo, 2, "source");
	registry_require(fcinfo, 3, "plan_function");
	view.service_id = service_id;
	view.view_id = view_id;
	level = statement_pin_search_path();
	statement_begin();
	registry_lock_shared(service_id, view_id);
	values[1] = Int64GetDatum(registry_current_view(service_id, view_id)->view_no);
	statement_end();
	AtEOXact_GUC(true, level);

	check_role(&view, GetUserId());
	if (has_types && array_contains_nulls(PG_GETARG_ARRAYTYPE_P(5)))
		RAISE(MV_VALUE_INVALID, errmsg("argument \"event_types\" has a null element"));
	if (has_types && ArrayGetNItems(ARR_NDIM(PG_GETARG_ARRAYTYPE_P(5)), ARR_DIMS(PG_GETARG_ARRAYTYPE_P(5))) == 0)
		RAISE(MV_VALUE_INVALID, errmsg("argument \"event_types\" is empty"),
			  errhint("NULL takes events of every type."));

	relation = find_source(&view, text_to_cstring(PG_GETARG_TEXT_PP(2)));
	if (get_rel_persistence(relation) == RELPERSISTENCE_TEMP)
		RAISE(MV_VALUE_INVALID, errmsg("source is a temporary table"), PROJECTION_DETAIL(&view));
	source = quote_qualified_identifier(get_namespace_name(get_rel_namespace(relation)),
										get_rel_name(relation));
	check_source(&view, source, relation, has_types);
	if (pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relation, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, source);

	values[0] = PointerGetDatum(service_id);
	values[2] = CStringGetTextDatum(source);
	values[3] = CStringGetTextDatum(function_name(find_plan_function(&view, text_to_cstring(PG_GETARG_TEXT_PP(3)),
																	 has_keys)));
	nulls[4] = !has_keys;
	values[4] = !has_keys ? (Datum) 0 :
		CStringGetTextDatum(function_name(find_key_function(&view, text_to_cstring(PG_GETARG_TEXT_PP(4)))));
	nulls[5] = !has_types;
	values[5] = PG_GETARG_DATUM(5);
	values[6] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));

	level = statement_pin_search_path();
	statement_begin();
	(void) statement_execute(STATEMENT_PROJECTION_ATTACH, values, nulls);
	statement_end();
	AtEOXact_GUC(true, level);
	PG_RETURN_BOOL(true);
}

Datum
unsafemv_detach_projection(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	Datum		values[2];
	bool		detached;

	statement_begin();
	registry_lock_shared(service_id, view_id);
	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(registry_current_view(service_id, view_id)->view_no);
	detached = statement_execute(STATEMENT_PROJECTION_DETACH, values, NULL) > 0;
	statement_end();
	PG_RETURN_BOOL(detached);
}

Datum
unsafemv_observe_lag(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	Datum		values[2] = {PointerGetDatum(service_id), PG_GETARG_DATUM(1)};
	Interval   *result;
	bool		isnull;

	result = palloc0(sizeof(Interval));
	if (!PG_ARGISNULL(1))
		registry_check_interval("lag", PG_GETARG_INTERVAL_P(1));
	statement_begin();
	if (PG_ARGISNULL(1) ? statement_execute(STATEMENT_LAG_READ, values, NULL) > 0 :
		statement_execute(STATEMENT_LAG_OBSERVE, values, NULL) > 0)
		*result = *DatumGetIntervalP(statement_value(0, 1, &isnull));
	statement_end();
	PG_RETURN_INTERVAL_P(result);
}
