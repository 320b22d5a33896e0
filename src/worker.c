/*
 * worker.c
 *	  The background worker: takes kicks, follows, finishes, sleeps.
 *
 * No logic of its own.  What it does to a view it does through public functions,
 * as any client could:
 *
 *	 1. worker_kick, which is next_kick for views with a projection, in a
 *	    transaction of its own: a lease under an owner name never used before;
 *	 2. CALL follow with a bound on the events, which commits as it goes, and
 *	    renew_kick, until the pass comes to its end; after some calls the view is
 *	    given back all the same, so that others get their turn;
 *	 3. finish_kick with not_before = the pass's deadline.  Without one there is
 *	    nothing that could become eligible within the view's window;
 *	 4. no work: it sleeps on its latch for unsafemv.worker_naptime.
 *
 * Guarantees: several workers, of this server or clients that use next_kick, share
 * the views through leases.  An error ends the pass, not the worker: it is logged,
 * and the view is not offered again before a back-off (1 s, doubling to 60 s) has
 * passed; so does a cancel.  Termination ends the worker; one of
 * shared_preload_libraries is started again after 5 s, one of start_worker is not.
 * Without the extension in its database the worker waits for it.  It starts when
 * recovery has ended, thus on a standby at its promotion.
 *
 * It holds no transaction, snapshot or lock while it sleeps.  A crash or kill
 * leaves what follow committed, and a lease that expires; then another worker goes
 * on.  While a worker is connected, DROP DATABASE needs FORCE, and the database
 * cannot be a template.
 *
 * Memory: a context per pass.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "parser/analyze.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "errors.h"
#include "library.h"
#include "statement.h"
#include "worker.h"

#define WORKER_TYPE			"unsafemv worker"
#define RESTART_SECONDS		5
#define FIRST_BACKOFF_MS	1000
#define LAST_BACKOFF_MS		60000

/* The least time between two passes of a view is the naptime, and no more than this. */
#define LONGEST_PAUSE_MS	1000

/* A call of follow folds at most so many events, a lease lasts so many calls. */
#define EVENTS_PER_CALL		5000
#define CALLS_PER_LEASE		20

/* How long start_worker waits for its worker. */
#define START_TIMEOUT_MS	10000

/* What a worker is told, in bgw_extra. */
typedef union WorkerTarget
{
	struct
	{
		Oid			database;
		Oid			role;
	}			by_oid;			/* start_worker */
	struct
	{
		char		database[NAMEDATALEN];
		char		role[NAMEDATALEN];	/* empty: the bootstrap superuser */
	}			by_name;		/* unsafemv.databases */
} WorkerTarget;

StaticAssertDecl(sizeof(WorkerTarget) <= BGW_EXTRALEN, "worker's target does not fit");

/* Consecutive failures of a view; hash collisions do no harm. */
typedef struct Failures
{
	uint64		view;
	int			count;
} Failures;

/* The view at hand. */
typedef struct Work
{
	Datum		service_id;
	Datum		view_id;
	int64		lease_epoch;
	bool		leased;
} Work;

PGDLLEXPORT void unsafemv_worker_main(Datum main_arg);

UNSAFEMV_FUNCTION(unsafemv_start_worker);
UNSAFEMV_FUNCTION(unsafemv_stop_worker);

static char *databases_setting = NULL;
static char *role_setting = NULL;
static int	naptime_setting = 1000;
static int	lease_setting = 60000;

static MemoryContext pass_context;
static HTAB *failures;
static char owner_name[64];

/* ---------- one use of the database ---------- */

static void
report_running(const char *query)
{
	debug_query_string = query;
	pgstat_report_activity(STATE_RUNNING, query);
}

static void
report_idle(void)
{
	debug_query_string = NULL;
	pgstat_report_activity(STATE_IDLE, NULL);
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	statement_begin();
	MemoryContextSwitchTo(pass_context);
}

static void
commit_transaction(void)
{
	statement_end();
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(pass_context);
}

/* An interval of milliseconds. */
static Datum
interval_of(int milliseconds)
{
	Interval   *result = palloc0(sizeof(Interval));

	result->time = (TimeOffset) milliseconds * 1000;
	return IntervalPGetDatum(result);
}

static bool
extension_present(void)
{
	bool		present;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	present = OidIsValid(get_extension_oid("unsafemv", true));
	CommitTransactionCommand();
	MemoryContextSwitchTo(pass_context);
	return present;
}

/*
 * CALL follow as a client would: a portal of its own, because it ends transactions.
 */
static void
call_follow(const Work *work)
{
	static const char *const query =
	"CALL unsafemv.follow($1, $2, max_events => $3)";
	Oid			types[] = {TEXTOID, TEXTOID, INT8OID};
	Datum		values[] = {work->service_id, work->view_id, Int64GetDatum(EVENTS_PER_CALL)};
	ParamListInfo params = makeParamList(lengthof(types));
	List	   *parsed;
	List	   *plans;
	Portal		portal;
	QueryCompletion completion;

	for (int i = 0; i < (int) lengthof(types); i++)
	{
		params->params[i].value = values[i];
		params->params[i].isnull = false;
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = types[i];
	}
	debug_query_string = query;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(pass_context);
	parsed = pg_parse_query(query);
	PushActiveSnapshot(GetTransactionSnapshot());
	plans = pg_plan_queries(pg_analyze_and_rewrite_fixedparams(linitial_node(RawStmt, parsed), query,
															   types, lengthof(types), NULL),
							query, CURSOR_OPT_PARALLEL_OK, params);
	PopActiveSnapshot();
	portal = CreatePortal("", true, true);
	portal->visible = false;
	PortalDefineQuery(portal, NULL, query, CMDTAG_CALL, plans, NULL);
	PortalStart(portal, params, 0, InvalidSnapshot);
	(void) COMPAT_PORTAL_RUN(portal, None_Receiver, &completion);
	PortalDrop(portal, false);
	CommitTransactionCommand();
	MemoryContextSwitchTo(pass_context);
}

/* ---------- failures ---------- */

static uint64
view_hash(const Work *work)
{
	text	   *service_id = DatumGetTextPP(work->service_id);
	text	   *view_id = DatumGetTextPP(work->view_id);

	return hash_bytes_extended((const unsigned char *) VARDATA_ANY(view_id), VARSIZE_ANY_EXHDR(view_id),
							   hash_bytes_extended((const unsigned char *) VARDATA_ANY(service_id),
												   VARSIZE_ANY_EXHDR(service_id), 0));
}

static int
backoff(int count)
{
	return count > 6 ? LAST_BACKOFF_MS : Min(LAST_BACKOFF_MS, FIRST_BACKOFF_MS << Max(count - 1, 0));
}

/* Count a failure of the view; how long to leave it alone. */
static int
count_failure(const Work *work)
{
	uint64		key = view_hash(work);
	bool		found;
	Failures   *entry = hash_search(failures, &key, HASH_ENTER, &found);

	entry->count = found ? entry->count + 1 : 1;
	return backoff(entry->count);
}

static void
forget_failures(const Work *work)
{
	uint64		key = view_hash(work);

	(void) hash_search(failures, &key, HASH_REMOVE, NULL);
}

static void
describe_work(void *argument)
{
	const Work *work = argument;

	if (work->leased)
		errcontext("service \"%s\", view \"%s\"",
				   TextDatumGetCString(work->service_id), TextDatumGetCString(work->view_id));
}

/* ---------- the pass ---------- */

/* Take the work of a view under a lease; false: there is none. */
static bool
take_work(Work *work)
{
	Datum		values[2];
	bool		isnull;

	begin_transaction();
	values[0] = CStringGetTextDatum(owner_name);
	values[1] = interval_of(lease_setting);
	if (statement_execute(STATEMENT_WORKER_KICK, values, NULL) > 0)
	{
		work->service_id = PointerGetDatum(DatumGetTextPCopy(statement_value(0, 1, &isnull)));
		work->view_id = PointerGetDatum(DatumGetTextPCopy(statement_value(0, 2, &isnull)));
		work->lease_epoch = DatumGetInt64(statement_value(0, 3, &isnull));
		work->leased = true;
	}
	commit_transaction();
	return work->leased;
}

/* $1 to $4 of what is done with the lease. */
static void
lease_values(const Work *work, Datum *values)
{
	values[0] = work->service_id;
	values[1] = work->view_id;
	values[2] = CStringGetTextDatum(owner_name);
	values[3] = Int64GetDatum(work->lease_epoch);
}

static void
finish_work(Work *work, bool has_deadline, TimestampTz deadline)
{
	Datum		values[5];
	bool		nulls[5] = {0};

	begin_transaction();
	lease_values(work, values);
	values[4] = TimestampTzGetDatum(deadline);
	nulls[4] = !has_deadline;
	(void) statement_execute(STATEMENT_WORKER_FINISH, values, nulls);
	commit_transaction();
	work->leased = false;
}

static void
follow_view(Work *work)
{
	TimestampTz deadline = 0;
	bool		more = true;

	for (int calls = 0; more && calls < CALLS_PER_LEASE; calls++)
	{
		Datum		values[5];
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		call_follow(work);

		/* What came of it; and the lease for what is left. */
		begin_transaction();
		more = false;
		values[0] = work->service_id;
		values[1] = work->view_id;
		values[2] = interval_of(Min(naptime_setting, LONGEST_PAUSE_MS));
		if (statement_execute(STATEMENT_WORKER_PASS, values, NULL) > 0)
		{
			more = DatumGetBool(statement_value(0, 1, &isnull));
			deadline = DatumGetTimestampTz(statement_value(0, 2, &isnull));
		}
		lease_values(work, values);
		values[4] = interval_of(lease_setting);
		(void) statement_execute(STATEMENT_WORKER_RENEW, values, NULL);
		commit_transaction();
	}
	forget_failures(work);
	finish_work(work, !more && deadline != 0, deadline);
}

/* After an error: no transaction, and nothing of the pass remains. */
static void
clean_up_error(void)
{
	HOLD_INTERRUPTS();
	QueryCancelPending = false;
	EmitErrorReport();
	AbortCurrentTransaction();
	PortalErrorCleanup();
	MemoryContextSwitchTo(pass_context);
	FlushErrorState();
	RESUME_INTERRUPTS();
}

/*
 * One view, if one is due.  Returns how long to sleep, in milliseconds: 0 after a
 * pass.  Errors are logged here.
 */
static long
run_once(int *loop_failures)
{
	Work		work = {0};
	Work	   *volatile held = &work;
	ErrorContextCallback context;
	ErrorContextCallback *outer = error_context_stack;
	volatile long nap = naptime_setting;

	context.callback = describe_work;
	context.arg = &work;
	context.previous = outer;
	PG_TRY();
	{
		error_context_stack = &context;
		CHECK_FOR_INTERRUPTS();
		report_running("unsafemv worker: looking for work");
		if (extension_present() && take_work(&work))
		{
			report_running(psprintf("CALL unsafemv.follow(%s, %s)",
									quote_literal_cstr(TextDatumGetCString(work.service_id)),
									quote_literal_cstr(TextDatumGetCString(work.view_id))));
			follow_view(&work);
			nap = 0;
		}
		*loop_failures = 0;
	}
	PG_CATCH();
	{
		error_context_stack = outer;
		clean_up_error();
		if (!held->leased)
			nap = backoff(++*loop_failures);
	}
	PG_END_TRY();

	if (held->leased)
	{
		/* Give the view back, not to be tried again at once. */
		PG_TRY();
		{
			int			pause = count_failure(held);

			finish_work(held, true, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), pause));
			nap = 0;
		}
		PG_CATCH();
		{
			clean_up_error();
			nap = backoff(++*loop_failures);
		}
		PG_END_TRY();
	}
	error_context_stack = outer;
	report_idle();
	(void) pgstat_report_stat(true);
	return nap;
}

static void
connect_database(bool by_name)
{
	WorkerTarget target;

	memcpy(&target, MyBgworkerEntry->bgw_extra, sizeof(target));
	if (by_name)
		BackgroundWorkerInitializeConnection(target.by_name.database,
											 target.by_name.role[0] == '\0' ? NULL : target.by_name.role,
											 0);
	else
		BackgroundWorkerInitializeConnectionByOid(target.by_oid.database, target.by_oid.role, 0);
}

void
unsafemv_worker_main(Datum main_arg)
{
	HASHCTL		control = {0};
	int			loop_failures = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	connect_database(DatumGetBool(main_arg));

	/*
	 * As the functions of the extension want it, whatever role and database
	 * say.
	 */
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_deferrable", "off", PGC_SUSET, PGC_S_OVERRIDE);

	snprintf(owner_name, sizeof(owner_name), "worker %d of " INT64_FORMAT,
			 MyProcPid, (int64) GetCurrentTimestamp());
	pass_context = AllocSetContextCreate(TopMemoryContext, "unsafemv worker", ALLOCSET_DEFAULT_SIZES);
	control.keysize = sizeof(uint64);
	control.entrysize = sizeof(Failures);
	control.hcxt = TopMemoryContext;
	failures = hash_create("unsafemv failures", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	report_idle();

	for (;;)
	{
		long		nap;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextReset(pass_context);
		MemoryContextSwitchTo(pass_context);
		nap = run_once(&loop_failures);

		/* A lock wait within the pass may have consumed the latch. */
		if (nap == 0 || ConfigReloadPending)
			continue;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, nap,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/* ---------- starting and stopping ---------- */

static void
describe_worker(BackgroundWorker *worker, bool by_name)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = by_name ? RESTART_SECONDS : BGW_NEVER_RESTART;
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name), "unsafemv");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "unsafemv_worker_main");
	snprintf(worker->bgw_type, sizeof(worker->bgw_type), WORKER_TYPE);
	worker->bgw_main_arg = BoolGetDatum(by_name);
}

/* A worker for each name in unsafemv.databases; a name given twice gets two. */
static void
register_workers(void)
{
	List	   *names;
	ListCell   *cell;

	if (databases_setting == NULL || databases_setting[0] == '\0')
		return;
	if (!SplitGUCList(pstrdup(databases_setting), ',', &names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("parameter \"unsafemv.databases\" is not a list of names")));
	foreach(cell, names)
	{
		BackgroundWorker worker;
		WorkerTarget target;
		const char *name = lfirst(cell);

		describe_worker(&worker, true);
		snprintf(worker.bgw_name, sizeof(worker.bgw_name), WORKER_TYPE " for %s", name);
		memset(&target, 0, sizeof(target));
		strlcpy(target.by_name.database, name, NAMEDATALEN);
		strlcpy(target.by_name.role, role_setting != NULL ? role_setting : "", NAMEDATALEN);
		memcpy(worker.bgw_extra, &target, sizeof(target));
		RegisterBackgroundWorker(&worker);
	}
}

void
worker_init(void)
{
	/* Only the server's start reads these two. */
	GucContext	context = process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomStringVariable("unsafemv.databases",
							   "Databases in which a worker lets views catch up, separated by commas.",
							   "Takes effect when the server starts with unsafemv in shared_preload_libraries.",
							   &databases_setting, "", context, GUC_LIST_INPUT, NULL, NULL, NULL);
	DefineCustomStringVariable("unsafemv.worker_role",
							   "Role of the workers in unsafemv.databases.",
							   "Empty: the superuser that initialized the cluster.",
							   &role_setting, "", context, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("unsafemv.worker_naptime",
							"How long a worker sleeps when it has found no work.",
							NULL,
							&naptime_setting, 1000, 10, 60000, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	DefineCustomIntVariable("unsafemv.worker_lease",
							"How long a worker leases a view before it renews the lease or another takes over.",
							"It is renewed after every few thousand events.",
							&lease_setting, 60000, 1000, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
	if (process_shared_preload_libraries_in_progress)
		register_workers();
}

/* Is a worker of this database, with this process id, connected? */
static bool
worker_connected(pid_t pid)
{
	Datum		values[1] = {Int64GetDatum(pid)};
	bool		connected;

	pgstat_clear_snapshot();
	statement_begin();
	connected = statement_execute(STATEMENT_WORKER_CONNECTED, values, NULL) > 0;
	statement_end();
	return connected;
}

static void
raise_not_started(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("worker ended before it was connected"),
			 errhint("See the server's log; the role must be allowed to log in to this database.")));
}

Datum
unsafemv_start_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;
	WorkerTarget target;
	TimestampTz deadline;
	pid_t		pid;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot start a worker during recovery"),
				 errhint("Start it after the promotion, or use shared_preload_libraries and unsafemv.databases: such workers start by themselves then.")));
	describe_worker(&worker, false);
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), WORKER_TYPE);
	memset(&target, 0, sizeof(target));
	target.by_oid.database = MyDatabaseId;
	target.by_oid.role = GetUserId();
	memcpy(worker.bgw_extra, &target, sizeof(target));
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a worker: all slots for background workers are taken"),
				 errhint("Raise max_worker_processes, or stop another worker.")));
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		raise_not_started();

	/*
	 * Started means forked: wait until it is connected, so that it can be
	 * stopped.
	 */
	deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), START_TIMEOUT_MS);
	while (!worker_connected(pid))
	{
		if (GetBackgroundWorkerPid(handle, &pid) == BGWH_STOPPED)
			raise_not_started();
		if (GetCurrentTimestamp() >= deadline)
		{
			TerminateBackgroundWorker(handle);
			raise_not_started();
		}
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_INT32(pid);
}

Datum
unsafemv_stop_worker(PG_FUNCTION_ARGS)
{
	Datum		values[1] = {PG_ARGISNULL(0) ? (Datum) 0 : Int64GetDatum(PG_GETARG_INT32(0))};
	bool		nulls[1] = {PG_ARGISNULL(0)};
	bool		isnull;
	int64		stopped;

	pgstat_clear_snapshot();
	statement_begin();
	(void) statement_execute(STATEMENT_WORKER_STOP, values, nulls);
	stopped = DatumGetInt64(statement_value(0, 1, &isnull));
	statement_end();
	PG_RETURN_INT32((int32) stopped);
}
