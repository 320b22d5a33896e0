/*
 * registry.h
 *	  Views and generations.
 */
#ifndef UNSAFEMV_REGISTRY_H
#define UNSAFEMV_REGISTRY_H

#include "fmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "mutation.h"

/* What a view is; fixed while its shared lock is held. */
typedef struct View
{
	text	   *service_id;
	text	   *view_id;
	int64		view_no;
	bool		has_active;
	int64		active_generation;
	int64		definition_version; /* of the active generation */
	bool		base_composed;
	DeclaredIndexes declared;
} View;

/* What a generation's row says, as far as the lanes need it. */
typedef struct Generation
{
	bool		has_head;
	Suid		head;
	bool		has_floor;
	Suid		floor;
	bool		has_settled_max;
	Suid		settled_max;

	/* filled by registry_lock_generation only */
	char	   *status;
	int64		definition_version;
	int64		row_count;
	int64		history_count;
	bytea	   *history_digest; /* NULL: nothing folded yet */
	bool		rebuild_required;
	Interval   *retention;		/* of the view */
	bool		has_late_horizon;
	TimestampTz late_horizon;
} Generation;

/* unsafemv.promotion_timeout, in milliseconds */
extern int	registry_promotion_timeout;

/* Registers the cache's invalidation callback; from _PG_init. */
extern void registry_init(void);

/* Take the view's lock shared until the end of the transaction (core 6.2). */
extern void registry_lock_shared(const text *service_id, const text *view_id);

/*
 * Take the view's lock exclusively, then its generation rows in number order, or
 * raise MV_PROMOTION_BUSY after unsafemv.promotion_timeout.  The view as it is then.
 */
extern View *registry_lock_exclusive(const text *service_id, const text *view_id);

/*
 * The view, or MV_VIEW_MISSING.  With the shared lock held, the answer holds
 * until the end of the transaction; 40001 if the transaction's own snapshot shows
 * another active generation.  Cached; lives to the end of the transaction.
 */
extern const View *registry_locked_view(const text *service_id, const text *view_id);

/*
 * The view as a fresh statement (or, for reads, the active snapshot) sees it, or
 * MV_VIEW_MISSING; allocated in the current context.
 */
extern View *registry_current_view(const text *service_id, const text *view_id);
extern View *registry_read_view(const text *service_id, const text *view_id);

/*
 * Head and floor, by a statement begun now; or, with "in_snapshot", in the active
 * snapshot.  Above READ COMMITTED: 40001 if the newest snapshot differs from the
 * transaction's.  Raises MV_INSTANCE_MISSING.
 */
extern void registry_head(const View *view, int64 generation, bool in_snapshot, Generation *result);

/* The whole row, locked against the safe lane until the end of the transaction; false: none. */
extern bool registry_lock_generation(const View *view, int64 generation, Generation *result);

/*
 * Delete at most *budget rows (lowered by what was deleted) of a generation that
 * is given up, and it itself when nothing is left.  The number of rows remaining.
 * Expects the exclusive lock.
 */
extern int64 registry_drop_rows(const View *view, int64 generation, int64 *budget);

/*
 * The active generation with its row locked; MV_INSTANCE_MISSING if another one
 * became active while we waited.
 */
extern int64 registry_lock_active(const View *view, Generation *result);

/*
 * The generation to write: "generation" if has_generation, else the active one.
 * Raises MV_INSTANCE_MISSING if there is none.
 */
extern int64 registry_resolve_generation(const View *view, bool has_generation, int64 generation);

/* $1 to $3 of most statements: service, view number, generation. */
extern void registry_instance(Datum *values, const View *view, int64 generation);

/* Argument checks shared by the public functions; all raise MV_VALUE_INVALID on NULL. */
extern void registry_require(FunctionCallInfo fcinfo, int argno, const char *name);

/* MV_VALUE_INVALID unless an interval is from 0 to 1000 years, hence can be added to now. */
extern void registry_check_interval(const char *name, const Interval *value);
extern text *registry_service_argument(FunctionCallInfo fcinfo, int argno);
extern text *registry_view_argument(FunctionCallInfo fcinfo, int argno);
extern text *registry_event_argument(FunctionCallInfo fcinfo, int argno);
extern const Suid *registry_suid_argument(FunctionCallInfo fcinfo, int argno, const char *name);

/* Raise MV_VIEW_MISSING; MV_INSTANCE_MISSING for a view that is being dropped. */
pg_noreturn extern void registry_view_missing(const text *service_id, const text *view_id);
pg_noreturn extern void registry_not_active(const text *service_id, const text *view_id);

/* Raise 40001: what the transaction's snapshot says of the view is out of date. */
extern void registry_serialization_failure(const text *service_id, const text *view_id);

/* errdetail("Service \"...\", view \"...\".") and with a generation. */
extern int	registry_errdetail(const View *view);
extern int	registry_errdetail_generation(const View *view, int64 generation);

/* And with an event and its SUID (NULL: not named). */
extern int	registry_errdetail_event(const View *view, int64 generation,
									 const text *event_id, const Suid *suid);

#endif							/* UNSAFEMV_REGISTRY_H */
