/*
 * event.h
 *	  Events as the callers give them.
 */
#ifndef UNSAFEMV_EVENT_H
#define UNSAFEMV_EVENT_H

#include "utils/timestamp.h"

#include "mutation.h"

typedef struct Event
{
	text	   *event_id;		/* NULL only with an error */
	Suid		suid;
	MutationPlan plan;
	bool		has_expected;	/* unsafe lane */
	int64		expected_row_version;
	bool		has_arrived_at; /* safe lane */
	TimestampTz arrived_at;
	ErrorCode	error;			/* why it cannot be applied; collected, not
								 * raised */
} Event;

/*
 * Parse the "events" argument of a batch: an array of {"eventId", "suid",
 * "mutations"} with "expectedRowVersion" or, for the safe lane, "arrivedAt".
 * With "report", an event that is no good is left with its error; otherwise it
 * raises.  Results are of the current memory context.
 */
extern void event_parse_batch(Jsonb *events, const text *service_id, const text *view_id,
							  const DeclaredIndexes *declared, bool safe_lane, bool report,
							  int *count, Event **result);

#endif							/* UNSAFEMV_EVENT_H */
