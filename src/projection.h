/*
 * projection.h
 *	  What is attached to a view: source of events, functions, and the role they
 *	  run as.
 */
#ifndef UNSAFEMV_PROJECTION_H
#define UNSAFEMV_PROJECTION_H

#include "fmgr.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "registry.h"

typedef struct Projection
{
	const View *view;
	char	   *source;			/* names, qualified and quoted */
	char	   *plan_name;
	char	   *key_name;		/* NULL: none */
	bool		has_types;
	Datum		event_types;	/* text[] */
	Oid			role;
	Interval   *window_floor;
	Interval   *window_ceiling;
	FmgrInfo	plan;
	FmgrInfo	keys;			/* with key_name */
} Projection;

/*
 * The projection attached to a view, in the current memory context and good
 * until the end of the transaction; false: none.  Between statement_begin and
 * statement_end.  Its functions and role are looked up: MV_PROJECTION_MISSING or
 * MV_VALUE_INVALID if they are not what they were; the source is not looked at.
 */
extern bool projection_read(const View *view, Projection *result);

/* MV_PROJECTION_MISSING: nothing is attached. */
pg_noreturn extern void projection_missing(const View *view);

/*
 * Look the source up as projection_attach did: MV_PROJECTION_MISSING or
 * MV_VALUE_INVALID.
 */
extern void projection_check_source(const Projection *projection);

/*
 * The mutation plan of an event; NULL: no mutation.  rows: with a key function
 * the object of the keys' present values, else NULL.  Runs as the role that
 * attached; needs an active snapshot.  MV_PLAN_FUNCTION_FAILED with the event in
 * DETAIL if it raises; cancelling and the server's own trouble pass through.
 */
extern Jsonb *projection_plan(Projection *projection, const text *event_id,
							  Jsonb *event, Jsonb *rows);

/* The keys an event's plan depends on, as text datums without nulls; errors as above. */
extern void projection_keys(Projection *projection, const text *event_id, Jsonb *event,
							int *count, Datum **keys);

/*
 * Parse a plan (NULL: no mutation) for an event; one that is malformed is
 * MV_PLAN_FUNCTION_FAILED.
 */
extern void projection_parse(Projection *projection, const text *event_id, const Suid *suid,
							 Jsonb *plan, MutationPlan *result);

/*
 * Work as the role that attached; projection_leave ends it, and takes back what
 * settings were changed meanwhile.
 */
typedef struct ProjectionRole
{
	Oid			user;
	int			context;
	int			guc_level;
} ProjectionRole;

extern void projection_enter(const Projection *projection, ProjectionRole *before);
extern void projection_leave(const ProjectionRole *before);

#endif							/* UNSAFEMV_PROJECTION_H */
