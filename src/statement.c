/*
 * statement.c
 *	  One plan cache and one checked execute for every SQL statement.
 *
 * Plans are saved per role and kind.  They are built with planner settings
 * pinned so that each can only be nested loops over the indexes meant for it: a
 * plan made while a table was small must stay right when it is large.  A plan
 * that was invalidated (ANALYZE, DDL) is rebuilt here, with the settings pinned
 * again, before it is used; its pointer is nulled before it is freed, so that an
 * error in between leaves no dangling pointer.  A statement may fire a trigger that
 * comes back here: while one runs, no plan is freed, an invalid one is planned again
 * in its place.
 *
 * The public functions pin search_path, hence a saved plan is never re-analysed
 * because a caller changed it.
 *
 * Takes no locks beyond what the statements take.  Memory: plans live in SPI's
 * saved-plan contexts; results in the SPI procedure's context until
 * statement_end().
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "library.h"
#include "statement.h"

#define STATEMENT_MAX_ARGUMENTS 16
#define STATEMENT_MAX_ROLES		8

/* Plans are per role: permissions and row level security differ. */
typedef struct RolePlans
{
	Oid			role;
	struct RolePlans *next;		/* of retired ones */
	SPIPlanPtr	plans[STATEMENT_COUNT];
} RolePlans;

static RolePlans *role_plans[STATEMENT_MAX_ROLES];
static RolePlans *retired = NULL;	/* to be freed when no statement runs */
static int	running = 0;		/* statements under way, one inside another */
static Oid	suid_type = InvalidOid;
static Oid	suid_array_type = InvalidOid;

static const char *const pinned_settings[][2] = {
	{"enable_seqscan", "off"},
	{"enable_bitmapscan", "off"},
	{"enable_indexscan", "on"},
	{"enable_indexonlyscan", "on"},
	{"enable_nestloop", "on"},
	{"enable_hashjoin", "off"},
	{"enable_mergejoin", "off"},
	{"enable_material", "off"},
	{"enable_memoize", "off"},
	{"enable_sort", "off"},
	{"enable_incremental_sort", "off"},
	{"max_parallel_workers_per_gather", "0"},
	{"jit", "off"},
};

static void
type_changed(Datum arg, int cacheid, uint32 hashvalue)
{
	suid_type = InvalidOid;
	suid_array_type = InvalidOid;
}

void
statement_init(void)
{
	CacheRegisterSyscacheCallback(TYPEOID, type_changed, (Datum) 0);
}

Oid
statement_suid_type(void)
{
	if (!OidIsValid(suid_type))
	{
		Oid			namespace_oid = get_namespace_oid("unsafemv", false);
		Oid			found = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
											CStringGetDatum("suid"),
											ObjectIdGetDatum(namespace_oid));

		if (!OidIsValid(found))
			elog(ERROR, "type unsafemv.suid does not exist");
		suid_type = found;
	}
	return suid_type;
}

static Oid
suid_array(void)
{
	if (!OidIsValid(suid_array_type))
	{
		Oid			element = statement_suid_type();
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(element));
		Oid			found;

		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for type %u", element);
		found = ((Form_pg_type) GETSTRUCT(tuple))->typarray;
		ReleaseSysCache(tuple);
		suid_array_type = found;
	}
	return suid_array_type;
}

static Oid
argument_type(char letter)
{
	switch (letter)
	{
		case 't':
			return TEXTOID;
		case 'n':
			return INT8OID;
		case 'b':
			return BOOLOID;
		case 's':
			return statement_suid_type();
		case 'j':
			return JSONBOID;
		case 'y':
			return BYTEAOID;
		case 'z':
			return TIMESTAMPTZOID;
		case 'i':
			return INTERVALOID;
		case 'r':
			return FLOAT8OID;
		case 'T':
			return TEXTARRAYOID;
		case 'N':
			return INT8ARRAYOID;
		case 'B':
			return BOOLARRAYOID;
		case 'S':
			return suid_array();
		case 'J':
			return JSONBARRAYOID;
		case 'Z':
			return TIMESTAMPTZARRAYOID;
		default:
			elog(ERROR, "unknown argument type letter \"%c\"", letter);
	}
	return InvalidOid;
}

/* Pin the planner's settings; AtEOXact_GUC with the result releases them. */
static int
pin_settings(void)
{
	int			level = NewGUCNestLevel();

	for (int i = 0; i < (int) lengthof(pinned_settings); i++)
		(void) set_config_option(pinned_settings[i][0], pinned_settings[i][1],
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
								 true, 0, false);
	return level;
}

/* Make the plan, unless it is valid, with the settings pinned. */
static void
plan_now(SPIPlanPtr plan)
{
	int			level = pin_settings();
	CachedPlan *generic = SPI_plan_get_cached_plan(plan);

	if (generic != NULL)
		ReleaseCachedPlan(generic, CurrentResourceOwner);
	AtEOXact_GUC(true, level);
}

static SPIPlanPtr
build_plan(StatementKind kind)
{
	const StatementText *text = &statement_texts[kind];
	int			nargs;
	Oid			types[STATEMENT_MAX_ARGUMENTS];
	MemoryContext caller = CurrentMemoryContext;
	SPIPlanPtr	plan;

	if (text->sql == NULL)
		elog(ERROR, "statement %d has no text", (int) kind);
	library_check();
	nargs = strlen(text->arguments);
	Assert(nargs <= STATEMENT_MAX_ARGUMENTS);
	for (int i = 0; i < nargs; i++)
		types[i] = argument_type(text->arguments[i]);

	plan = SPI_prepare_cursor(text->sql, nargs, types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "could not prepare statement %d: %s", (int) kind,
			 SPI_result_code_string(SPI_result));
	MemoryContextSwitchTo(caller);	/* SPI leaves its own */

	/* After keeping, which would throw the plan away. */
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep plan of statement %d", (int) kind);
	PG_TRY();
	{
		plan_now(plan);
	}
	PG_CATCH();
	{
		SPI_freeplan(plan);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return plan;
}

static void
free_plans(RolePlans *plans)
{
	for (int i = 0; i < STATEMENT_COUNT; i++)
	{
		SPIPlanPtr	plan = plans->plans[i];

		plans->plans[i] = NULL;
		if (plan != NULL)
			SPI_freeplan(plan);
	}
}

/* The current role's plans, moved to the front; the oldest role's are dropped. */
static RolePlans *
current_role_plans(void)
{
	Oid			role = GetUserId();
	RolePlans  *found;
	int			i;

	if (role_plans[0] != NULL && role_plans[0]->role == role)
		return role_plans[0];

	for (i = 1; i < STATEMENT_MAX_ROLES; i++)
		if (role_plans[i] == NULL || role_plans[i]->role == role)
			break;
	if (i == STATEMENT_MAX_ROLES)
	{
		i--;
		role_plans[i]->next = retired;
		retired = role_plans[i];
		role_plans[i] = NULL;
	}
	while (running == 0 && retired != NULL)
	{
		RolePlans  *oldest = retired;

		retired = oldest->next;
		free_plans(oldest);
		pfree(oldest);
	}
	if (role_plans[i] == NULL)
		role_plans[i] = MemoryContextAllocZero(TopMemoryContext, sizeof(RolePlans));
	found = role_plans[i];
	found->role = role;
	memmove(&role_plans[1], &role_plans[0], i * sizeof(RolePlans *));
	role_plans[0] = found;
	return found;
}

/* The current role's plan of a statement, rebuilt if it has become invalid. */
static SPIPlanPtr
valid_plan(StatementKind kind)
{
	RolePlans  *plans = current_role_plans();
	SPIPlanPtr	plan = plans->plans[kind];

	if (plan != NULL && !SPI_plan_is_valid(plan))
	{
		if (running > 0)
		{
			plan_now(plan);
			return plan;
		}
		plans->plans[kind] = NULL;
		SPI_freeplan(plan);
		plan = NULL;
	}
	if (plan == NULL)
	{
		plan = build_plan(kind);
		plans->plans[kind] = plan;
	}
	return plan;
}

/* Run a plan, by its options or else by plain values; how many rows. */
static uint64
run_plan(StatementKind kind, SPIPlanPtr plan, const SPIExecuteOptions *options,
		 Datum *values, const char *nulls, bool read_only)
{
	MemoryContext caller = CurrentMemoryContext;
	int			code;

	running++;
	PG_TRY();
	{
		if (options != NULL)
			code = SPI_execute_plan_extended(plan, options);
		else
			code = SPI_execute_plan(plan, values, nulls, read_only, 0);
	}
	PG_FINALLY();
	{
		running--;
	}
	PG_END_TRY();
	if (code < 0)
		elog(ERROR, "statement %d failed: %s", (int) kind, SPI_result_code_string(code));
	MemoryContextSwitchTo(caller);	/* SPI leaves its own */
	return SPI_processed;
}

static uint64
run(StatementKind kind, Datum *values, const bool *nulls, bool read_only)
{
	SPIPlanPtr	plan = valid_plan(kind);
	char		spi_nulls[STATEMENT_MAX_ARGUMENTS];

	if (nulls != NULL)
	{
		int			nargs = strlen(statement_texts[kind].arguments);

		for (int i = 0; i < nargs; i++)
			spi_nulls[i] = nulls[i] ? 'n' : ' ';
	}
	return run_plan(kind, plan, NULL, values, nulls != NULL ? spi_nulls : NULL, read_only);
}

uint64
statement_execute(StatementKind kind, Datum *values, const bool *nulls)
{
	return run(kind, values, nulls, false);
}

uint64
statement_read(StatementKind kind, Datum *values, const bool *nulls)
{
	return run(kind, values, nulls, true);
}

uint64
statement_read_into(StatementKind kind, Datum *values, const bool *nulls, DestReceiver *dest)
{
	SPIPlanPtr	plan = valid_plan(kind);
	const char *arguments = statement_texts[kind].arguments;
	int			nargs = strlen(arguments);
	ParamListInfo params = makeParamList(nargs);
	SPIExecuteOptions options = {0};

	for (int i = 0; i < nargs; i++)
	{
		params->params[i].value = values[i];
		params->params[i].isnull = nulls != NULL && nulls[i];
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = argument_type(arguments[i]);
	}
	options.params = params;
	options.read_only = true;
	options.dest = dest;
	return run_plan(kind, plan, &options, NULL, NULL, true);
}

/* Argument types and nulls as SPI wants them. */
static int
query_arguments(const char *arguments, const bool *nulls, Oid *types, char *spi_nulls)
{
	int			nargs = strlen(arguments);

	Assert(nargs <= STATEMENT_MAX_ARGUMENTS);
	for (int i = 0; i < nargs; i++)
	{
		types[i] = argument_type(arguments[i]);
		spi_nulls[i] = nulls != NULL && nulls[i] ? 'n' : ' ';
	}
	return nargs;
}

uint64
statement_query(const char *sql, const char *arguments, Datum *values, const bool *nulls)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[STATEMENT_MAX_ARGUMENTS];
	char		spi_nulls[STATEMENT_MAX_ARGUMENTS];
	int			nargs = query_arguments(arguments, nulls, types, spi_nulls);
	int			level = pin_settings();
	int			code = SPI_execute_with_args(sql, nargs, types, values, spi_nulls, false, 0);

	if (code != SPI_OK_SELECT)
		elog(ERROR, "query failed: %s", SPI_result_code_string(code));
	AtEOXact_GUC(true, level);
	MemoryContextSwitchTo(caller);
	return SPI_processed;
}

Portal
statement_cursor_open(const char *sql, const char *arguments, Datum *values, const bool *nulls)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[STATEMENT_MAX_ARGUMENTS];
	char		spi_nulls[STATEMENT_MAX_ARGUMENTS];
	int			nargs = query_arguments(arguments, nulls, types, spi_nulls);
	int			level = pin_settings();
	Portal		cursor = SPI_cursor_open_with_args(NULL, sql, nargs, types, values, spi_nulls,
												   false, CURSOR_OPT_NO_SCROLL);

	AtEOXact_GUC(true, level);
	MemoryContextSwitchTo(caller);
	return cursor;
}

uint64
statement_cursor_fetch(Portal cursor, long count)
{
	MemoryContext caller = CurrentMemoryContext;

	SPI_cursor_fetch(cursor, true, count);
	MemoryContextSwitchTo(caller);
	return SPI_processed;
}

void
statement_free(void)
{
	SPI_freetuptable(SPI_tuptable);
}

void
statement_utility(const char *command)
{
	int			code = SPI_execute(command, false, 0);

	if (code != SPI_OK_UTILITY)
		elog(ERROR, "command failed: %s", SPI_result_code_string(code));
}

int
statement_pin_search_path(void)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return level;
}

void
statement_begin(void)
{
	int			code = SPI_connect();

	if (code != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed: %s", SPI_result_code_string(code));
}

void
statement_end(void)
{
	int			code = SPI_finish();

	if (code != SPI_OK_FINISH)
		elog(ERROR, "SPI_finish failed: %s", SPI_result_code_string(code));
}

Datum
statement_value(uint64 row, int column, bool *isnull)
{
	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, column, isnull);
}

bool
statement_suid(uint64 row, int column, Suid *result)
{
	bool		isnull;
	Datum		value = statement_value(row, column, &isnull);

	if (!isnull)
		*result = *DatumGetSuidP(value);
	return !isnull;
}

void
statement_snapshot_begin(void)
{
	CommandCounterIncrement();
	PushActiveSnapshot(GetTransactionSnapshot());
	UpdateActiveSnapshotCommandId();
}

void
statement_latest_begin(void)
{
	CommandCounterIncrement();
	PushCopiedSnapshot(GetLatestSnapshot());
	UpdateActiveSnapshotCommandId();
}

void
statement_snapshot_end(void)
{
	PopActiveSnapshot();
}

static Datum
make_array(Datum *values, const bool *nulls, int count, Oid element, int length, bool byval, char align)
{
	int			dims[1] = {count};
	int			lbs[1] = {1};

	if (count == 0)
		return PointerGetDatum(construct_empty_array(element));
	return PointerGetDatum(construct_md_array(values, unconstify(bool *, nulls), 1, dims, lbs,
											  element, length, byval, align));
}

Datum
statement_text_array(Datum *values, const bool *nulls, int count)
{
	return make_array(values, nulls, count, TEXTOID, -1, false, TYPALIGN_INT);
}

Datum
statement_bigint_array(Datum *values, const bool *nulls, int count)
{
	return make_array(values, nulls, count, INT8OID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}

Datum
statement_boolean_array(Datum *values, const bool *nulls, int count)
{
	return make_array(values, nulls, count, BOOLOID, 1, true, TYPALIGN_CHAR);
}

Datum
statement_suid_array(Datum *values, const bool *nulls, int count)
{
	return make_array(values, nulls, count, statement_suid_type(), SUID_BYTES, false, TYPALIGN_CHAR);
}

Datum
statement_jsonb_array(Datum *values, const bool *nulls, int count)
{
	return make_array(values, nulls, count, JSONBOID, -1, false, TYPALIGN_INT);
}

Datum
statement_timestamp_array(Datum *values, int count)
{
	return make_array(values, NULL, count, TIMESTAMPTZOID, 8, FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}
