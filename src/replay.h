/*
 * replay.h
 *	  Tentative events anew, through the attached projection.
 */
#ifndef UNSAFEMV_REPLAY_H
#define UNSAFEMV_REPLAY_H

#include "registry.h"

/* An event to be replayed. */
typedef struct ReplayEvent
{
	text	   *event_id;
	Suid		suid;
	bool		replayed;
} ReplayEvent;

/*
 * Apply events, in SUID order, to the active generation of a view whose lock is
 * held, with plans made by its projection; what is not in the source, or fails, is
 * left.  Without a projection nothing is replayed.  Between statement_begin and
 * statement_end; needs an active snapshot.
 */
extern void replay_events(const text *service_id, const text *view_id,
						  ReplayEvent *events, int count);

#endif							/* UNSAFEMV_REPLAY_H */
