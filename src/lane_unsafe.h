/*
 * lane_unsafe.h
 *	  The unsafe lane for callers within the extension.
 */
#ifndef UNSAFEMV_LANE_UNSAFE_H
#define UNSAFEMV_LANE_UNSAFE_H

#include "registry.h"

/* An event with its plan, made for the view. */
typedef struct PlannedEvent
{
	text	   *event_id;
	Suid		suid;
	MutationPlan plan;
} PlannedEvent;

/*
 * Makes an event's plan from present rows, an object of key and value; a row that
 * is absent, or hidden, is not in it.
 */
typedef struct RowsPlan
{
	int			nkeys;
	Datum	   *row_keys;		/* text, in any order */
	void		(*make) (Jsonb *rows, MutationPlan *result, void *context);
	void	   *context;
} RowsPlan;

/*
 * apply_batch on the active generation of a view whose shared lock is held (its
 * registry_locked_view), between statement_begin and statement_end.  Raises what
 * apply_batch raises.  Allocates in the current memory context.
 *
 * With "rows_plan" (else NULL) there is one event, and its plan depends on rows:
 * after its receipt is claimed, their keys are locked to the end of the transaction
 * and read, and the plan is made; not for an event that has a receipt already.
 */
extern void lane_unsafe_apply(const View *view, PlannedEvent *events, int count,
							  const RowsPlan *rows_plan);

#endif							/* UNSAFEMV_LANE_UNSAFE_H */
