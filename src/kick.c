/*
 * kick.c
 *	  Kicks: the work a dirty view has, taken under a lease.
 *
 * Guarantees (core 9): a view has at most one unexpired lease; the epoch grows
 * with every grant, so that owner and epoch name one grant for ever.  Whether a
 * view is dirty is not stored but follows from its receipts: what arrives while a
 * lease is held makes the view dirty again by itself.  A view with a projection is
 * also due, without being dirty, when its last pass is older than its window: its
 * events may arrive by the source alone.  A lease that expired and
 * was not released can be granted even if nothing is unsettled, because its
 * holder may have died in the middle.  Only clock_timestamp() decides.
 *
 * Locks, all of them tried and none waited for when granting: first an advisory
 * lock of an own class (fourth field of the tag: KICK_LOCK_CLASS) on the view's
 * hash, because the first grant inserts and an insert would wait for another one;
 * then the kick's row (SKIP LOCKED).  What is not granted is unlocked again.  A
 * grant keeps both until the end of the transaction, hence should be committed at
 * once.  renew_kick and finish_kick update the row and may wait for each other or
 * for a takeover's commit.
 *
 * Isolation: state is read in the newest snapshot, even above READ COMMITTED, so
 * that "idle" and "held" are never answered from an old one; a row that cannot be
 * written because the transaction's snapshot is older is 40001.
 *
 * A crash rolls a grant back, or leaves it to expire.  A grant that commits after
 * drop_view looked may leave a row behind whose view is gone; nothing reads it, and
 * numbers of views are not used again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "compat.h"
#include "library.h"
#include "page.h"
#include "registry.h"
#include "statement.h"

#define KICK_LOCK_CLASS		4	/* 1 and 2 are SQL's own, 3 is the view's */

/* So many candidates are tried before all are fetched. */
#define FIRST_CANDIDATES	16

/* A view's work and lease, in one snapshot. */
typedef struct KickState
{
	bool		found;			/* the view */
	int64		view_no;
	bool		has_active;
	bool		dirty;
	Suid		target;			/* if dirty */
	bool		has_kick;
	text	   *owner;			/* NULL: released, or never granted */
	int64		epoch;
	TimestampTz until;
	bool		held;			/* unexpired */
	bool		delayed;		/* not_before lies ahead */
	bool		due;			/* last pass of its projection is too old */
} KickState;

typedef enum GrantResult
{
	GRANT_IDLE,
	GRANT_HELD,					/* or being granted, or its row locked */
	GRANT_MADE
} GrantResult;

typedef struct Grant
{
	bool		dirty;
	Suid		target;
	int64		epoch;
	TimestampTz until;
} Grant;

UNSAFEMV_FUNCTION(unsafemv_acquire_kick);
UNSAFEMV_FUNCTION(unsafemv_next_kick);
UNSAFEMV_FUNCTION(unsafemv_worker_kick);
UNSAFEMV_FUNCTION(unsafemv_renew_kick);
UNSAFEMV_FUNCTION(unsafemv_finish_kick);

/* ---------- arguments and messages ---------- */

static text *
owner_argument(FunctionCallInfo fcinfo, int argno)
{
	text	   *owner;

	registry_require(fcinfo, argno, "owner");
	owner = PG_GETARG_TEXT_PP(argno);
	if (VARSIZE_ANY_EXHDR(owner) == 0)
		RAISE(MV_VALUE_INVALID, errmsg("argument \"owner\" is empty"), errhint("Give a value."));
	return owner;
}

/* Positive, judged where months and days have a length: from now on. */
static Datum
lease_argument(FunctionCallInfo fcinfo, int argno)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz until;

	registry_require(fcinfo, argno, "lease");
	registry_check_interval("lease", PG_GETARG_INTERVAL_P(argno));
	until = DatumGetTimestampTz(DirectFunctionCall2(timestamptz_pl_interval,
													TimestampTzGetDatum(now),
													PG_GETARG_DATUM(argno)));
	if (until <= now)
		RAISE(MV_VALUE_INVALID, errmsg("lease is not positive"));
	return PG_GETARG_DATUM(argno);
}

static int64
epoch_argument(FunctionCallInfo fcinfo, int argno)
{
	registry_require(fcinfo, argno, "lease_epoch");
	return PG_GETARG_INT64(argno);
}

static int
view_detail(const text *service_id, const text *view_id)
{
	return errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id));
}

static void
serialization_failure(const text *service_id, const text *view_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access: the kick has changed since the transaction's snapshot"),
			 view_detail(service_id, view_id),
			 errhint("Retry the transaction.")));
}

/* ---------- state ---------- */

static void
read_state(const text *service_id, const text *view_id, KickState *state)
{
	Datum		values[2] = {PointerGetDatum(service_id), PointerGetDatum(view_id)};
	Datum		value;
	bool		isnull;

	memset(state, 0, sizeof(KickState));
	statement_latest_begin();
	state->found = statement_read(STATEMENT_KICK_STATE, values, NULL) > 0;
	statement_snapshot_end();
	if (!state->found)
		return;
	state->view_no = DatumGetInt64(statement_value(0, 1, &isnull));
	state->has_active = DatumGetBool(statement_value(0, 2, &isnull));
	state->dirty = statement_suid(0, 3, &state->target);
	state->has_kick = DatumGetBool(statement_value(0, 4, &isnull));
	value = statement_value(0, 5, &isnull);
	state->owner = isnull ? NULL : DatumGetTextPP(value);
	value = statement_value(0, 6, &isnull);
	state->epoch = isnull ? 0 : DatumGetInt64(value);
	value = statement_value(0, 7, &isnull);
	state->until = isnull ? 0 : DatumGetTimestampTz(value);
	state->held = DatumGetBool(statement_value(0, 8, &isnull));
	state->delayed = DatumGetBool(statement_value(0, 9, &isnull));
	state->due = DatumGetBool(statement_value(0, 10, &isnull));
}

/* What a grant would find; GRANT_MADE means that nothing stands against it. */
static GrantResult
judge(const KickState *state, bool scheduled)
{
	bool		abandoned = state->owner != NULL && !state->held;

	if (!state->found || !state->has_active || (scheduled && state->delayed))
		return GRANT_IDLE;
	if (!state->dirty && !state->due && !abandoned)
		return GRANT_IDLE;
	return state->held ? GRANT_HELD : GRANT_MADE;
}

/* ---------- granting ---------- */

static void
kick_lock_tag(LOCKTAG *tag, const text *service_id, const text *view_id)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(service_id),
										   VARSIZE_ANY_EXHDR(service_id), 0);

	hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(view_id),
							   VARSIZE_ANY_EXHDR(view_id), hash);
	SET_LOCKTAG_ADVISORY(*tag, MyDatabaseId, (uint32) (hash >> 32), (uint32) hash, KICK_LOCK_CLASS);
}

/* The advisory lock is held; *state becomes what the grant was judged by. */
static GrantResult
grant_locked(const text *service_id, const text *view_id, text *owner, Datum lease,
			 bool scheduled, KickState *state, Grant *grant)
{
	Datum		values[4];
	GrantResult result;
	bool		isnull;

	/* Anew: a grant may have been committed before we got the lock. */
	read_state(service_id, view_id, state);
	result = judge(state, scheduled);
	if (result != GRANT_MADE)
		return result;

	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(state->view_no);
	if (state->has_kick)
	{
		if (statement_execute(STATEMENT_KICK_LOCK, values, NULL) == 0)
		{
			/* Locked by a finish or renewal, or not in the own snapshot. */
			if (IsolationUsesXactSnapshot())
				serialization_failure(service_id, view_id);
			return GRANT_HELD;
		}
		if (DatumGetBool(statement_value(0, 1, &isnull)))
			return GRANT_HELD;	/* renewed meanwhile */
		if (!state->dirty && !state->due && !DatumGetBool(statement_value(0, 2, &isnull)))
			return GRANT_IDLE;	/* released meanwhile */
	}
	values[2] = PointerGetDatum(owner);
	values[3] = lease;
	if (statement_execute(state->has_kick ? STATEMENT_KICK_GRANT : STATEMENT_KICK_INSERT,
						  values, NULL) == 0)
		return GRANT_HELD;		/* somebody wrote the table by hand */
	grant->dirty = state->dirty;
	grant->target = state->target;
	grant->epoch = DatumGetInt64(statement_value(0, 1, &isnull));
	grant->until = DatumGetTimestampTz(statement_value(0, 2, &isnull));
	return GRANT_MADE;
}

/*
 * Grant the view's work, never waiting.  "scheduled" heeds not_before.  *state
 * becomes what the answer rests on.
 */
static GrantResult
try_grant(const text *service_id, const text *view_id, text *owner, Datum lease,
		  bool scheduled, KickState *state, Grant *grant)
{
	LOCKTAG		tag;
	GrantResult result;

	read_state(service_id, view_id, state);
	result = judge(state, scheduled);
	if (result != GRANT_MADE)
		return result;
	kick_lock_tag(&tag, service_id, view_id);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return GRANT_HELD;
	result = grant_locked(service_id, view_id, owner, lease, scheduled, state, grant);
	if (result != GRANT_MADE)
		(void) LockRelease(&tag, ExclusiveLock, false);
	return result;
}

static void
put_grant(FunctionCallInfo fcinfo, const Grant *grant, const text *service_id, const text *view_id)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		values[6];
	bool		nulls[6] = {0};
	int			column = 0;

	if (service_id != NULL)
	{
		values[column++] = PointerGetDatum(service_id);
		values[column++] = PointerGetDatum(view_id);
	}
	nulls[column] = !grant->dirty;
	values[column++] = grant->dirty ? suid_text_datum(&grant->target) : (Datum) 0;
	values[column++] = BoolGetDatum(grant->dirty);
	values[column++] = Int64GetDatum(grant->epoch);
	values[column++] = TimestampTzGetDatum(grant->until);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

Datum
unsafemv_acquire_kick(PG_FUNCTION_ARGS)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	text	   *owner = owner_argument(fcinfo, 2);
	Datum		lease = lease_argument(fcinfo, 3);
	KickState	state;
	Grant		grant;

	InitMaterializedSRF(fcinfo, 0);
	statement_begin();
	switch (try_grant(service_id, view_id, owner, lease, false, &state, &grant))
	{
		case GRANT_MADE:
			put_grant(fcinfo, &grant, NULL, NULL);
			break;
		case GRANT_HELD:
			RAISE(UNSAFE_KICK_LEASE_HELD, errmsg("kick is leased, or being granted"),
				  state.held ?
				  errdetail("Service \"%s\", view \"%s\", owner \"%s\", epoch %lld, until %s.",
							mutation_clip(service_id), mutation_clip(view_id),
							mutation_clip(state.owner), (long long) state.epoch,
							timestamptz_to_str(state.until)) :
				  view_detail(service_id, view_id),
				  errhint("Retry when the lease has expired, or take another view with next_kick."));
			break;
		case GRANT_IDLE:
			if (!state.found)
				registry_view_missing(service_id, view_id);
			if (!state.has_active)
				registry_not_active(service_id, view_id);
			break;
	}
	statement_end();
	return (Datum) 0;
}

/*
 * The services to look at as ranges for $1 and $2 of the candidates: each given
 * one, once, or all of them.
 */
static void
service_ranges(FunctionCallInfo fcinfo, int argno, Datum *values)
{
	Datum	   *ids;
	bool	   *nulls;
	int			count;
	int			kept = 0;

	if (PG_ARGISNULL(argno))
	{
		Datum		first = CStringGetTextDatum("");
		Datum		last = PointerGetDatum(page_last_text(LIMIT_SERVICE_ID));

		values[0] = statement_text_array(&first, NULL, 1);
		values[1] = statement_text_array(&last, NULL, 1);
		return;
	}
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argno), TEXTOID, -1, false, TYPALIGN_INT,
					  &ids, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		int			j;

		CHECK_FOR_INTERRUPTS();
		if (nulls[i])
			RAISE(MV_VALUE_INVALID, errmsg("argument \"service_ids\" contains null"));
		for (j = 0; j < kept; j++)
			if (mutation_compare_text(DatumGetTextPP(ids[i]), DatumGetTextPP(ids[j])) == 0)
				break;
		if (j == kept)
			ids[kept++] = ids[i];
	}
	values[0] = statement_text_array(ids, NULL, kept);
	values[1] = values[0];
}

/*
 * Try the candidates of a statement in their order; true if one was granted.
 * *found becomes the number of candidates.
 */
static bool
grant_first(FunctionCallInfo fcinfo, StatementKind kind, Datum *values, const bool *nulls,
			text *owner, Datum lease, uint64 *found)
{
	SPITupleTable *candidates;

	statement_latest_begin();
	*found = statement_read(kind, values, nulls);
	statement_snapshot_end();
	candidates = SPI_tuptable;
	for (uint64 row = 0; row < *found; row++)
	{
		bool		isnull;
		text	   *service_id = DatumGetTextPP(SPI_getbinval(candidates->vals[row], candidates->tupdesc, 1, &isnull));
		text	   *view_id = DatumGetTextPP(SPI_getbinval(candidates->vals[row], candidates->tupdesc, 2, &isnull));
		KickState	state;
		Grant		grant;

		CHECK_FOR_INTERRUPTS();
		if (try_grant(service_id, view_id, owner, lease, true, &state, &grant) == GRANT_MADE)
		{
			put_grant(fcinfo, &grant, service_id, view_id);
			return true;
		}
	}
	return false;
}

/* "projected": only views with a projection. */
static Datum
next_kick(FunctionCallInfo fcinfo, bool projected)
{
	text	   *owner = owner_argument(fcinfo, 0);
	Datum		lease = lease_argument(fcinfo, 1);
	Datum		values[4];
	bool		nulls[4] = {0};
	uint64		found;
	bool		granted;

	InitMaterializedSRF(fcinfo, 0);
	statement_begin();
	service_ranges(fcinfo, 2, values);
	values[2] = Int64GetDatum(FIRST_CANDIDATES);
	values[3] = BoolGetDatum(projected);
	granted = grant_first(fcinfo, STATEMENT_KICK_CANDIDATES, values, nulls, owner, lease, &found);
	if (!granted && found == FIRST_CANDIDATES)
	{
		/* All contested, and there may be more. */
		nulls[2] = true;
		granted = grant_first(fcinfo, STATEMENT_KICK_CANDIDATES, values, nulls, owner, lease, &found);
	}
	if (!granted)
	{
		values[2] = BoolGetDatum(projected);
		(void) grant_first(fcinfo, STATEMENT_KICK_ABANDONED, values, NULL, owner, lease, &found);
	}
	statement_end();
	return (Datum) 0;
}

Datum
unsafemv_next_kick(PG_FUNCTION_ARGS)
{
	return next_kick(fcinfo, false);
}

Datum
unsafemv_worker_kick(PG_FUNCTION_ARGS)
{
	return next_kick(fcinfo, true);
}

/* ---------- holding ---------- */

/*
 * Update the kick that owner and epoch name; false: they hold nothing.  $5 of the
 * statement is "value".  The result's first row is the updated kick.
 */
static bool
update_held(FunctionCallInfo fcinfo, StatementKind kind, text *owner, int64 epoch,
			Datum value, bool isnull)
{
	text	   *service_id = registry_service_argument(fcinfo, 0);
	text	   *view_id = registry_view_argument(fcinfo, 1);
	View	   *view = registry_current_view(service_id, view_id);
	Datum		values[5];
	bool		nulls[5] = {0};
	KickState	state;

	values[0] = PointerGetDatum(service_id);
	values[1] = Int64GetDatum(view->view_no);
	values[2] = PointerGetDatum(owner);
	values[3] = Int64GetDatum(epoch);
	values[4] = value;
	nulls[4] = isnull;
	if (statement_execute(kind, values, nulls) > 0)
		return true;
	if (IsolationUsesXactSnapshot())
	{
		/* Not held, or granted after the transaction's snapshot? */
		read_state(service_id, view_id, &state);
		if (state.held && state.epoch == epoch && mutation_compare_text(state.owner, owner) == 0)
			serialization_failure(service_id, view_id);
	}
	return false;
}

Datum
unsafemv_renew_kick(PG_FUNCTION_ARGS)
{
	text	   *owner = owner_argument(fcinfo, 2);
	int64		epoch = epoch_argument(fcinfo, 3);
	Datum		lease = lease_argument(fcinfo, 4);
	Datum		until;
	bool		isnull;

	statement_begin();
	if (!update_held(fcinfo, STATEMENT_KICK_RENEW, owner, epoch, lease, false))
		RAISE(UNSAFE_KICK_LEASE_LOST, errmsg("lease is not held any more"),
			  errdetail("Service \"%s\", view \"%s\", owner \"%s\", epoch %lld.",
						mutation_clip(PG_GETARG_TEXT_PP(0)), mutation_clip(PG_GETARG_TEXT_PP(1)),
						mutation_clip(owner), (long long) epoch),
			  errhint("Stop working on the view; what was committed stays."));
	until = statement_value(0, 1, &isnull);
	statement_end();
	return until;
}

Datum
unsafemv_finish_kick(PG_FUNCTION_ARGS)
{
	text	   *owner = owner_argument(fcinfo, 2);
	int64		epoch = epoch_argument(fcinfo, 4);
	bool		finished;

	statement_begin();
	finished = update_held(fcinfo, STATEMENT_KICK_FINISH, owner, epoch,
						   PG_GETARG_DATUM(5), PG_ARGISNULL(5));
	statement_end();
	PG_RETURN_BOOL(finished);
}
