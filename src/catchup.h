/*
 * catchup.h
 *	  One pass over a source: what follow and rebuild have in common.
 */
#ifndef UNSAFEMV_CATCHUP_H
#define UNSAFEMV_CATCHUP_H

#include "projection.h"

#define CATCHUP_CAUGHT_UP	"caught_up"
#define CATCHUP_POISON		"poison_event"

/*
 * What a pass is to do and what it did.  Texts must outlive transactions.
 */
typedef struct CatchUp
{
	text	   *service_id;
	text	   *view_id;
	bool		rebuild;		/* into "generation", a candidate; else the
								 * active one */
	int64		generation;
	bool		has_max_events;
	int64		max_events;
	int			chunk;
	bool		has_maximum;
	Suid		maximum;

	/* the answer */
	int64		folded;
	bool		has_head;
	Suid		head;
	const char *stop;			/* NULL: goes on */
	bool		has_deadline;
	TimestampTz deadline;

	/* the pass's own */
	MemoryContext context;		/* outlives transactions */
	TimestampTz started_at;
	int64		total;			/* -1: not counted */
	int			tries;			/* of the next event that failed, in this pass */
	int			collisions;		/* with other transactions, in a row */
	bool		pause;			/* before the next chunk */
	ErrorCode	refusal;		/* to be raised once its finding is committed */
	char	   *refusal_message;
} CatchUp;

/* A step of a committing procedure: one transaction. */
typedef void (*CatchUpStep) (void *argument);

/*
 * Refuse a transaction block, a function and isolation above READ COMMITTED
 * (25001), then begin the work of a committing procedure; and end it.
 */
extern void catchup_begin(FunctionCallInfo fcinfo, const char *procedure);
extern void catchup_end(void);

/*
 * Run a step with search_path pinned and a snapshot, between statement_begin and
 * statement_end, and commit.  "place": of the wait points before and after the commit.
 */
extern void catchup_transaction(CatchUpStep step, void *argument, int place);

/*
 * A pass: look for what is wrong and what came late, fold chunk by chunk until
 * something stops it.  Raises whatever is not an event's fault.
 */
extern void catchup_pass(CatchUp *pass);

/*
 * Raise MV_CHECKPOINT_AHEAD or MV_ORDERING_QUARANTINED if the pass was refused with
 * it; the finding is committed.
 */
extern void catchup_raise(const CatchUp *pass);

/* Sleep without a transaction. */
extern void catchup_sleep(int milliseconds);

/* How long a rebuild's lease is; and renew it, MV_REBUILD_RUNNING if it is lost. */
extern Interval *catchup_lease(void);
extern void catchup_renew(const View *view, int64 generation);

#endif							/* UNSAFEMV_CATCHUP_H */
