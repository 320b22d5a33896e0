/*
 * registry.c
 *	  Views and generations: creating, changing, dropping, looking up.
 *
 * Locks: a view has a lock in PostgreSQL's lock manager, an advisory class of its
 * own (fourth field of the tag: VIEW_LOCK_CLASS).  Applies take it shared, before
 * they resolve the active generation; what moves the active generation takes it
 * exclusively, then the generation rows in number order, with a bounded wait.  So
 * an apply's generation stays active until its transaction ends.
 *
 * The applies' lookup is cached per backend.  A trigger on the table of views
 * sends a relation invalidation for every change; it reaches other backends before
 * the changing transaction releases its locks, and a lookup accepts pending
 * invalidations after it got the shared lock.  Hence what the cache says under the
 * lock is what a statement begun after the lock would read.
 *
 * A crash leaves nothing behind but committed rows; dropping works in batches and
 * can be repeated until nothing remains.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/rls.h"

#include "compat.h"
#include "errors.h"
#include "index_scan.h"
#include "library.h"
#include "registry.h"
#include "statement.h"

#define VIEW_LOCK_CLASS		3	/* 1 and 2 are SQL's own advisory locks */
#define MAX_CACHED_VIEWS	1024

typedef struct CacheKey
{
	Oid			role;
	uint32		padding;
	uint64		hash;
} CacheKey;

typedef struct CacheEntry
{
	CacheKey	key;
	MemoryContext context;
	View	   *view;
} CacheEntry;

static HTAB *cache = NULL;
static bool cache_valid = false;
static Oid	views_relation = InvalidOid;

int			registry_promotion_timeout = 2000;

static void
relation_changed(Datum arg, Oid relation)
{
	if (relation == InvalidOid || views_relation == InvalidOid || relation == views_relation)
		cache_valid = false;
}

void
registry_init(void)
{
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
}

static uint64
view_hash(const text *service_id, const text *view_id)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(service_id),
										   VARSIZE_ANY_EXHDR(service_id), 0);

	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(view_id),
							   VARSIZE_ANY_EXHDR(view_id), hash);
}

static void
view_lock_tag(LOCKTAG *tag, const text *service_id, const text *view_id)
{
	uint64		hash = view_hash(service_id, view_id);

	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash, VIEW_LOCK_CLASS);
}

void
registry_view_missing(const text *service_id, const text *view_id)
{
	RAISE(MV_VIEW_MISSING, errmsg("view does not exist"),
		  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
		  errhint("Register it with unsafemv.create_view."));
}

void
registry_not_active(const text *service_id, const text *view_id)
{
	RAISE(MV_INSTANCE_MISSING, errmsg("view has no active generation"),
		  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
		  errhint("It is being dropped; create it anew once it is gone."));
}

/* Build a View from the last result's first row, in the current context. */
static View *
make_view(const text *service_id, const text *view_id)
{
	View	   *view = palloc0(sizeof(View));
	bool		isnull;
	Datum		value;

	view->service_id = cstring_to_text_with_len(VARDATA_ANY(service_id), VARSIZE_ANY_EXHDR(service_id));
	view->view_id = cstring_to_text_with_len(VARDATA_ANY(view_id), VARSIZE_ANY_EXHDR(view_id));
	view->view_no = DatumGetInt64(statement_value(0, 1, &isnull));
	value = statement_value(0, 2, &isnull);
	view->has_active = !isnull;
	view->active_generation = isnull ? 0 : DatumGetInt64(value);
	value = statement_value(0, 3, &isnull);
	view->definition_version = isnull ? 0 : DatumGetInt64(value);
	view->base_composed = strcmp(TextDatumGetCString(statement_value(0, 4, &isnull)), "composed") == 0;
	index_entry_declare(DatumGetJsonbP(statement_value(0, 5, &isnull)), &view->declared);
	return view;
}

View *
registry_current_view(const text *service_id, const text *view_id)
{
	Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};

	if (statement_execute(STATEMENT_VIEW_READ, values, NULL) == 0)
		registry_view_missing(service_id, view_id);
	return make_view(service_id, view_id);
}

View *
registry_read_view(const text *service_id, const text *view_id)
{
	Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};

	if (statement_read(STATEMENT_VIEW_READ, values, NULL) == 0)
		registry_view_missing(service_id, view_id);
	return make_view(service_id, view_id);
}

/* Do policies decide which views the role sees? */
static bool
views_restricted(void)
{
	Oid			relation = cache_valid ? views_relation :
	get_relname_relid("views", get_namespace_oid("unsafemv", false));

	return check_enable_rls(relation, InvalidOid, true) == RLS_ENABLED;
}

/*
 * A view that the role must not see is not waited for either: how long its lock is
 * held is another's business.
 */
void
registry_lock_shared(const text *service_id, const text *view_id)
{
	LOCKTAG		tag;

	if (views_restricted())
	{
		bool		latest = IsolationUsesXactSnapshot();

		if (latest)
			statement_latest_begin();
		(void) (latest ? registry_read_view(service_id, view_id) :
				registry_current_view(service_id, view_id));
		if (latest)
			statement_snapshot_end();
	}
	view_lock_tag(&tag, service_id, view_id);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

/* The holders that a statement names. */
static char *
list_holders(StatementKind kind, Datum *values)
{
	uint64		count = statement_execute(kind, values, NULL);
	StringInfoData holders;

	initStringInfo(&holders);
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;
		Datum		holder = statement_value(i, 1, &isnull);

		if (!isnull)
			appendStringInfo(&holders, "%s%s", holders.len > 0 ? ", " : "",
							 TextDatumGetCString(holder));
	}
	return holders.len > 0 ? holders.data : pstrdup("gone meanwhile");
}

/* The numbers of a view's generations, ascending. */
static int
list_generations(const text *service_id, int64 view_no, int64 **generations)
{
	Datum		values[2] = {PointerGetDatum(service_id), Int64GetDatum(view_no)};
	uint64		count = statement_execute(STATEMENT_GENERATION_LIST, values, NULL);

	*generations = palloc(Max(count, 1) * sizeof(int64));
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;

		(*generations)[i] = DatumGetInt64(statement_value(i, 1, &isnull));
	}
	return (int) count;
}

/* Let the next wait for a lock end at the deadline. */
static void
bound_lock_wait(TimestampTz deadline)
{
	long		remaining = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), deadline);
	char		timeout[32];

	snprintf(timeout, sizeof(timeout), "%ld", Max(remaining, 1L));
	(void) set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/*
 * The wait is bounded by lock_timeout in a subtransaction, so that queueing stays
 * with the lock manager.  The view is read again behind the lock.
 */
View *
registry_lock_exclusive(const text *service_id, const text *view_id)
{
	int64		view_no = registry_current_view(service_id, view_id)->view_no;
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	LOCKTAG		tag;
	char	   *holders = NULL;
	volatile bool locked = false;
	volatile bool busy = false;

	/*
	 * A plan function would move the view from under the call that runs it,
	 * whose lock does not keep out its own transaction.
	 */
	if (InSecurityRestrictedOperation())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot change a view within a security-restricted operation"),
				 errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
				 errhint("Plan and key functions only read; promote and drop views from outside.")));

	/*
	 * Named before we queue: afterwards those who queued behind us hold it
	 * too.
	 */
	view_lock_tag(&tag, service_id, view_id);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		Datum		values[3];

		values[0] = Int64GetDatum(tag.locktag_field2);
		values[1] = Int64GetDatum(tag.locktag_field3);
		values[2] = Int64GetDatum(VIEW_LOCK_CLASS);
		holders = list_holders(STATEMENT_LOCK_HOLDERS, values);
	}
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		int			level = NewGUCNestLevel();
		TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), registry_promotion_timeout);
		Datum		values[3];
		int64	   *generations;
		int			count;

		bound_lock_wait(deadline);
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		locked = true;
		count = list_generations(service_id, view_no, &generations);
		values[0] = PointerGetDatum(service_id);
		values[1] = Int64GetDatum(view_no);
		for (int k = 0; k < count; k++)
		{
			bound_lock_wait(deadline);
			values[2] = Int64GetDatum(generations[k]);
			(void) statement_execute(STATEMENT_GENERATION_LOCK, values, NULL);
		}
		AtEOXact_GUC(false, level);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error = errors_roll_back(caller, owner);

		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			ReThrowError(error);
		busy = true;
	}
	PG_END_TRY();

	if (busy && locked)
	{
		Datum		values[2] = {PointerGetDatum(service_id), Int64GetDatum(view_no)};

		holders = list_holders(STATEMENT_ROW_HOLDERS, values);
	}
	if (busy)
		RAISE(MV_PROMOTION_BUSY,
			  errmsg("view is in use by transactions that did not end within %d ms",
					 registry_promotion_timeout),
			  errdetail("Service \"%s\", view \"%s\". Holders: %s.",
						mutation_clip(service_id), mutation_clip(view_id), holders),
			  errhint("Retry, end those transactions, or raise unsafemv.promotion_timeout."));
	return registry_current_view(service_id, view_id);
}

void
registry_serialization_failure(const text *service_id, const text *view_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access: the view has moved since the transaction's snapshot"),
			 errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
			 errhint("Retry the transaction.")));
}

/* Forget all cached views; those in use live to the end of the transaction. */
static void
reset_cache(void)
{
	HASH_SEQ_STATUS status;
	CacheEntry *entry;
	HASHCTL		control = {0};

	if (cache != NULL)
	{
		hash_seq_init(&status, cache);
		while ((entry = hash_seq_search(&status)) != NULL)
			MemoryContextSetParent(entry->context, TopTransactionContext);
		hash_destroy(cache);
		cache = NULL;
	}
	control.keysize = sizeof(CacheKey);
	control.entrysize = sizeof(CacheEntry);
	control.hcxt = TopMemoryContext;
	cache = hash_create("unsafemv views", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	views_relation = get_relname_relid("views", get_namespace_oid("unsafemv", false));
	cache_valid = true;
}

const View *
registry_locked_view(const text *service_id, const text *view_id)
{
	CacheKey	key = {0};
	CacheEntry *entry;
	MemoryContext context;
	MemoryContext caller;
	View	   *view;
	bool		found;

	if (IsolationUsesXactSnapshot())
	{
		Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};
		View	   *latest;

		statement_latest_begin();
		latest = registry_read_view(service_id, view_id);
		statement_snapshot_end();
		if (statement_execute(STATEMENT_VIEW_READ, values, NULL) == 0)
			registry_serialization_failure(service_id, view_id);
		view = make_view(service_id, view_id);
		if (view->view_no != latest->view_no || view->has_active != latest->has_active ||
			view->active_generation != latest->active_generation)
			registry_serialization_failure(service_id, view_id);
		return view;
	}

	AcceptInvalidationMessages();
	if (!cache_valid || hash_get_num_entries(cache) >= MAX_CACHED_VIEWS)
		reset_cache();
	/* What policies let the role see may depend on settings. */
	if (check_enable_rls(views_relation, InvalidOid, true) == RLS_ENABLED)
		return registry_current_view(service_id, view_id);
	key.role = GetUserId();
	key.hash = view_hash(service_id, view_id);
	entry = hash_search(cache, &key, HASH_FIND, NULL);
	if (entry != NULL &&
		mutation_compare_text(entry->view->service_id, service_id) == 0 &&
		mutation_compare_text(entry->view->view_id, view_id) == 0)
		return entry->view;

	context = AllocSetContextCreate(CurrentMemoryContext, "unsafemv view", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	view = registry_current_view(service_id, view_id);
	MemoryContextSwitchTo(caller);
	if (!cache_valid || entry != NULL)
		return view;			/* changed meanwhile, or its place is taken */

	entry = hash_search(cache, &key, HASH_ENTER, &found);
	MemoryContextSetParent(context, TopMemoryContext);
	entry->context = context;
	entry->view = view;
	return view;
}

static void
read_head(Generation *result)
{
	memset(result, 0, sizeof(Generation));
	result->has_head = statement_suid(0, 1, &result->head);
	result->has_floor = statement_suid(0, 2, &result->floor);
	result->has_settled_max = statement_suid(0, 3, &result->settled_max);
}

/* The head in the active snapshot, by the shortest way. */
static bool
find_head(const View *view, int64 generation, Generation *result)
{
	DirectScan	scan;
	Datum		values[3];
	bool		found;

	if (!index_scan_open(&scan, SCAN_GENERATION))
	{
		registry_instance(values, view, generation);
		found = statement_read(STATEMENT_HEAD_READ, values, NULL) > 0;
		if (found)
			read_head(result);
		return found;
	}
	index_scan_instance(&scan, view->service_id, view->view_no, generation);
	index_scan_start(&scan, ForwardScanDirection);
	found = index_scan_next(&scan);
	if (found)
	{
		memset(result, 0, sizeof(Generation));
		result->has_head = index_scan_suid(&scan, GENERATION_HEAD, &result->head);
		result->has_floor = index_scan_suid(&scan, GENERATION_FLOOR, &result->floor);
		result->has_settled_max = index_scan_suid(&scan, GENERATION_SETTLED_MAX, &result->settled_max);
	}
	index_scan_close(&scan);
	return found;
}

static bool
same_suid(bool has_a, const Suid *a, bool has_b, const Suid *b)
{
	return has_a == has_b && (!has_a || suid_compare(a, b) == 0);
}

void
registry_head(const View *view, int64 generation, bool in_snapshot, Generation *result)
{
	Datum		values[3];
	uint64		found;

	registry_instance(values, view, generation);

	if (IsolationUsesXactSnapshot())
	{
		Generation	own;

		statement_latest_begin();
		found = statement_read(STATEMENT_HEAD_READ, values, NULL);
		statement_snapshot_end();
		if (found > 0)
			read_head(result);
		if (statement_execute(STATEMENT_HEAD_READ, values, NULL) != found)
			registry_serialization_failure(view->service_id, view->view_id);
		if (found > 0)
		{
			read_head(&own);
			if (!same_suid(own.has_head, &own.head, result->has_head, &result->head) ||
				!same_suid(own.has_floor, &own.floor, result->has_floor, &result->floor))
				registry_serialization_failure(view->service_id, view->view_id);
		}
	}
	else
	{
		if (!in_snapshot)
			statement_snapshot_begin();
		found = find_head(view, generation, result) ? 1 : 0;
		if (!in_snapshot)
			statement_snapshot_end();
	}
	if (found == 0)
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
			  registry_errdetail_generation(view, generation));
}

bool
registry_lock_generation(const View *view, int64 generation, Generation *result)
{
	Datum		values[3];
	Datum		value;
	bool		isnull;

	registry_instance(values, view, generation);
	if (statement_execute(STATEMENT_GENERATION_LOCK, values, NULL) == 0)
		return false;

	read_head(result);
	result->status = TextDatumGetCString(statement_value(0, 4, &isnull));
	result->definition_version = DatumGetInt64(statement_value(0, 5, &isnull));
	result->row_count = DatumGetInt64(statement_value(0, 6, &isnull));
	result->history_count = DatumGetInt64(statement_value(0, 7, &isnull));
	value = statement_value(0, 8, &isnull);
	result->history_digest = isnull ? NULL : DatumGetByteaPCopy(value);
	result->rebuild_required = DatumGetBool(statement_value(0, 9, &isnull));
	value = statement_value(0, 10, &isnull);
	if (!isnull)
	{
		result->retention = palloc(sizeof(Interval));
		*result->retention = *DatumGetIntervalP(value);
	}
	value = statement_value(0, 11, &isnull);
	result->has_late_horizon = !isnull;
	result->late_horizon = isnull ? 0 : DatumGetTimestampTz(value);
	return true;
}

int64
registry_lock_active(const View *view, Generation *result)
{
	int64		generation = registry_resolve_generation(view, false, 0);

	if (!registry_lock_generation(view, generation, result) || strcmp(result->status, "active") != 0)
		RAISE(MV_INSTANCE_MISSING, errmsg("generation is not active any more"),
			  registry_errdetail_generation(view, generation), errhint("Retry."));
	return generation;
}

int64
registry_resolve_generation(const View *view, bool has_generation, int64 generation)
{
	if (has_generation)
	{
		if (generation < 0)
			RAISE(MV_GENERATION_INVALID, errmsg("generation is negative"),
				  registry_errdetail_generation(view, generation));
		return generation;
	}
	if (!view->has_active)
		registry_not_active(view->service_id, view->view_id);
	return view->active_generation;
}

void
registry_instance(Datum *values, const View *view, int64 generation)
{
	values[0] = PointerGetDatum(view->service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = Int64GetDatum(generation);
}

/* ---------- arguments and messages ---------- */

void
registry_require(FunctionCallInfo fcinfo, int argno, const char *name)
{
	if (PG_ARGISNULL(argno))
		RAISE(MV_VALUE_INVALID, errmsg("argument \"%s\" is null", name),
			  errhint("Give a value."));
}

static text *
id_argument(FunctionCallInfo fcinfo, int argno, const char *name, int limit)
{
	text	   *value;

	registry_require(fcinfo, argno, name);
	value = PG_GETARG_TEXT_PP(argno);
	if (VARSIZE_ANY_EXHDR(value) == 0)
		RAISE(MV_VALUE_INVALID, errmsg("argument \"%s\" is empty", name),
			  errhint("Give a value."));
	(void) mutation_check_length(name, value, limit, NULL);
	return value;
}

text *
registry_service_argument(FunctionCallInfo fcinfo, int argno)
{
	return id_argument(fcinfo, argno, "service_id", LIMIT_SERVICE_ID);
}

text *
registry_view_argument(FunctionCallInfo fcinfo, int argno)
{
	return id_argument(fcinfo, argno, "view_id", LIMIT_VIEW_ID);
}

text *
registry_event_argument(FunctionCallInfo fcinfo, int argno)
{
	return id_argument(fcinfo, argno, "event_id", LIMIT_EVENT_ID);
}

const Suid *
registry_suid_argument(FunctionCallInfo fcinfo, int argno, const char *name)
{
	registry_require(fcinfo, argno, name);
	return PG_GETARG_SUID_P(argno);
}

/* Is a part of an interval, months, days or time, beyond 1000 years? */
static bool
part_too_long(const Interval *value)
{
	const int64 days = 366 * 1000;

	return value->month > 12 * 1000 || value->month < -12 * 1000 ||
		value->day > days || value->day < -days ||
		value->time > days * USECS_PER_DAY || value->time < -days * USECS_PER_DAY;
}

/*
 * The parts count one by one, too: years and days of opposite signs may compare
 * as nothing, and still no moment can be added to them.
 */
void
registry_check_interval(const char *name, const Interval *value)
{
	Interval	zero = {0};
	Interval	most = {.month = 12 * 1000};
	Datum		datum = IntervalPGetDatum(unconstify(Interval *, value));

	if (DatumGetBool(DirectFunctionCall2(interval_lt, datum, IntervalPGetDatum(&zero))))
		RAISE(MV_VALUE_INVALID, errmsg("%s is negative", name));
	if (part_too_long(value) ||
		DatumGetBool(DirectFunctionCall2(interval_gt, datum, IntervalPGetDatum(&most))))
		RAISE(MV_VALUE_INVALID, errmsg("%s is more than 1000 years", name));
}

int
registry_errdetail(const View *view)
{
	return errdetail("Service \"%s\", view \"%s\".",
					 mutation_clip(view->service_id), mutation_clip(view->view_id));
}

int
registry_errdetail_generation(const View *view, int64 generation)
{
	return errdetail("Service \"%s\", view \"%s\", generation %lld.",
					 mutation_clip(view->service_id), mutation_clip(view->view_id),
					 (long long) generation);
}

int
registry_errdetail_event(const View *view, int64 generation, const text *event_id, const Suid *suid)
{
	return errdetail("Service \"%s\", view \"%s\", generation %lld, event \"%s\"%s%s.",
					 mutation_clip(view->service_id), mutation_clip(view->view_id),
					 (long long) generation, mutation_clip(event_id),
					 suid != NULL ? ", SUID " : "", suid != NULL ? suid_cstring(suid) : "");
}

/* ---------- public functions ---------- */

UNSAFEMV_FUNCTION(unsafemv_views_changed);
UNSAFEMV_FUNCTION(unsafemv_create_view);
UNSAFEMV_FUNCTION(unsafemv_alter_view);
UNSAFEMV_FUNCTION(unsafemv_drop_view);
UNSAFEMV_FUNCTION(unsafemv_read_instance);
UNSAFEMV_FUNCTION(unsafemv_read_active);

/* Trigger on the table of views: tell every backend's cache. */
Datum
unsafemv_views_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");
	CacheInvalidateRelcache(trigger->tg_relation);
	return PointerGetDatum(NULL);
}

Datum
unsafemv_create_view(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		definition_version;
	int64		generation;
	text	   *base;
	Interval   *retention;
	Jsonb	   *indexes;
	DeclaredIndexes declared;
	int64		view_no;
	bool		isnull;
	Datum		values[7];
	bool		nulls[7] = {0};

	registry_require(fcinfo, 2, "definition_version");
	registry_require(fcinfo, 3, "generation");
	registry_require(fcinfo, 5, "indexes");
	registry_require(fcinfo, 6, "base");
	registry_require(fcinfo, 7, "receipt_retention");
	definition_version = PG_GETARG_INT64(2);
	generation = PG_GETARG_INT64(3);
	indexes = PG_GETARG_JSONB_P(5);
	base = PG_GETARG_TEXT_PP(6);
	retention = PG_GETARG_INTERVAL_P(7);

	if (definition_version < 1)
		RAISE(MV_VALUE_INVALID, errmsg("definition_version is less than 1"));
	if (generation < 0)
		RAISE(MV_GENERATION_INVALID, errmsg("generation is negative"),
			  errdetail("Service \"%s\", view \"%s\", generation %lld.",
						mutation_clip(service_id), mutation_clip(view_id), (long long) generation));
	if (strcmp(text_to_cstring(base), "composed") != 0 && strcmp(text_to_cstring(base), "unsafe") != 0)
		RAISE(MV_VALUE_INVALID, errmsg("base is \"%s\", neither composed nor unsafe", mutation_clip(base)));
	registry_check_interval("receipt_retention", retention);
	index_entry_declare(indexes, &declared);

	statement_begin();
	values[0] = PointerGetDatum(service_id);
	(void) statement_execute(STATEMENT_VIEW_NUMBER, values, NULL);
	view_no = DatumGetInt64(statement_value(0, 1, &isnull));

	values[1] = PointerGetDatum(view_id);
	values[2] = Int64GetDatum(view_no);
	values[3] = Int64GetDatum(generation);
	values[4] = PointerGetDatum(base);
	values[5] = JsonbPGetDatum(indexes);
	values[6] = IntervalPGetDatum(retention);
	if (statement_execute(STATEMENT_VIEW_INSERT, values, NULL) == 0)
		RAISE(MV_INSTANCE_EXISTS, errmsg("view exists already"),
			  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
			  errhint("Use begin_rebuild for another generation of it."));

	values[1] = Int64GetDatum(view_no);
	values[2] = Int64GetDatum(generation);
	values[3] = Int64GetDatum(definition_version);
	values[4] = CStringGetTextDatum("active");
	nulls[5] = PG_ARGISNULL(4);
	values[5] = PG_GETARG_DATUM(4);
	(void) statement_execute(STATEMENT_GENERATION_INSERT, values, nulls);
	statement_end();
	PG_RETURN_INT64(generation);
}

Datum
unsafemv_alter_view(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	Datum		values[4];
	bool		nulls[4] = {0};
	bool		isnull;

	if (PG_ARGISNULL(2) && PG_ARGISNULL(3) && PG_ARGISNULL(4))
		RAISE(MV_VALUE_INVALID, errmsg("nothing to change"),
			  errhint("Give receipt_retention, window_floor or window_ceiling."));
	if (!PG_ARGISNULL(2))
		registry_check_interval("receipt_retention", PG_GETARG_INTERVAL_P(2));
	if (!PG_ARGISNULL(3))
		registry_check_interval("window_floor", PG_GETARG_INTERVAL_P(3));
	if (!PG_ARGISNULL(4))
		registry_check_interval("window_ceiling", PG_GETARG_INTERVAL_P(4));
	values[0] = PointerGetDatum(service_id);
	values[1] = PointerGetDatum(view_id);
	values[2] = PG_GETARG_DATUM(2);
	nulls[2] = PG_ARGISNULL(2);
	statement_begin();
	if (statement_execute(STATEMENT_VIEW_ALTER, values, nulls) == 0)
		registry_view_missing(service_id, view_id);
	if (!PG_ARGISNULL(3) || !PG_ARGISNULL(4))
	{
		values[1] = statement_value(0, 1, &isnull);
		values[2] = PG_GETARG_DATUM(3);
		values[3] = PG_GETARG_DATUM(4);
		nulls[2] = PG_ARGISNULL(3);
		nulls[3] = PG_ARGISNULL(4);
		if (statement_execute(STATEMENT_PROJECTION_WINDOW, values, nulls) == 0)
			RAISE(MV_PROJECTION_MISSING, errmsg("view has no projection"),
				  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
				  errhint("Attach one with unsafemv.attach_projection."));
		if (!DatumGetBool(statement_value(0, 1, &isnull)))
			RAISE(MV_VALUE_INVALID, errmsg("window_floor is greater than window_ceiling"));
	}
	statement_end();
	PG_RETURN_BOOL(true);
}

/*
 * Deletes from the tables in an order that leaves no entry without its row seen by
 * a reader of the batch in between.
 */
int64
registry_drop_rows(const View *view, int64 generation, int64 *budget)
{
	static const StatementKind kinds[] = {
		STATEMENT_DROP_UNSAFE_ROWS, STATEMENT_DROP_MARKERS, STATEMENT_DROP_RECEIPTS,
		STATEMENT_DROP_INDEX_ENTRIES, STATEMENT_DROP_ROWS, STATEMENT_DROP_FINDINGS
	};
	Datum		values[4];
	int64		remaining;
	bool		isnull;

	registry_instance(values, view, generation);
	(void) statement_execute(STATEMENT_GENERATION_DROPPING, values, NULL);
	for (int i = 0; i < (int) lengthof(kinds) && *budget > 0; i++)
	{
		CHECK_FOR_INTERRUPTS();
		values[3] = Int64GetDatum(*budget);
		*budget -= statement_execute(kinds[i], values, NULL);
	}
	(void) statement_execute(STATEMENT_DROP_REMAINING, values, NULL);
	remaining = DatumGetInt64(statement_value(0, 1, &isnull));
	if (remaining == 0)
		(void) statement_execute(STATEMENT_GENERATION_DELETE, values, NULL);
	return remaining;
}

Datum
unsafemv_drop_view(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	int64		budget = PG_ARGISNULL(2) ? PG_INT64_MAX : PG_GETARG_INT64(2);
	View	   *view;
	int64	   *generations;
	int			count;
	int64		remaining = 0;
	Datum		values[3];

	if (budget < 0)
		RAISE(MV_VALUE_INVALID, errmsg("max_rows is negative"));
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("drop_view runs under READ COMMITTED only")));

	statement_begin();
	view = registry_lock_exclusive(service_id, view_id);
	values[0] = PointerGetDatum(service_id);
	values[1] = PointerGetDatum(view_id);
	if (statement_execute(STATEMENT_VIEW_LOCK, values, NULL) == 0)
		registry_view_missing(service_id, view_id);
	values[1] = Int64GetDatum(view->view_no);
	(void) statement_execute(STATEMENT_VIEW_DEACTIVATE, values, NULL);
	count = list_generations(service_id, view->view_no, &generations);
	for (int i = 0; i < count; i++)
		remaining += registry_drop_rows(view, generations[i], &budget);
	if (remaining == 0)
		(void) statement_execute(STATEMENT_VIEW_DELETE, values, NULL);
	statement_end();
	PG_RETURN_INT64(remaining);
}

static Datum
read_instance(const text *service_id, const text *view_id, bool has_generation, int64 generation)
{
	View	   *view;
	Datum		values[3];
	Datum		result;

	statement_begin();
	view = registry_read_view(service_id, view_id);
	generation = registry_resolve_generation(view, has_generation, generation);
	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = Int64GetDatum(generation);
	if (statement_read(STATEMENT_INSTANCE_READ, values, NULL) == 0)
		RAISE(MV_INSTANCE_MISSING, errmsg("generation does not exist"),
			  registry_errdetail_generation(view, generation));
	result = PointerGetDatum(SPI_returntuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc));
	statement_end();
	return result;
}

Datum
unsafemv_read_instance(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);

	registry_require(fcinfo, 2, "generation");
	return read_instance(service_id, view_id, true, PG_GETARG_INT64(2));
}

Datum
unsafemv_read_active(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);

	return read_instance(service_id, view_id, false, 0);
}
