/*
 * source.h
 *	  The events of a projection's source.
 */
#ifndef UNSAFEMV_SOURCE_H
#define UNSAFEMV_SOURCE_H

#include "projection.h"
#include "statement.h"

typedef struct SourceEvent
{
	text	   *event_id;
	Suid		suid;
	Jsonb	   *event;			/* source_read only */
	TimestampTz arrived_at;
} SourceEvent;

/*
 * The first "limit" events above "after" (NULL: of all), in SUID order.  All of
 * source.c reads as the role that attached, sees what was committed before the
 * call, and allocates in the current memory context; between statement_begin and
 * statement_end.  Where an event cannot be read (a view that casts it fails), only
 * "readable" events, maybe fewer than could be, carry what they say, and *failure
 * says why; else NULL.
 */
extern int	source_read(const Projection *projection, const Suid *after, int64 limit,
						SourceEvent **events, int *readable, ErrorData **failure);

/* How many events lie above "after" (NULL: all there are) and not above "upto" (NULL: no bound). */
extern int64 source_count(const Projection *projection, const Suid *after, const Suid *upto);

/* The greatest SUID of the service, whatever the event types; false: no events. */
extern bool source_maximum(const Projection *projection, Suid *maximum);

/* The events with these SUIDs. */
extern int	source_find(const Projection *projection, Datum *suids, int count, SourceEvent **events);

/*
 * Cursors: events that arrived since "since" and lie at or below "head", in order
 * of arrival; and all events up to "head" in SUID order.  Their batches lie in the
 * last result until statement_free.
 */
extern Portal source_arrived(const Projection *projection, TimestampTz since, const Suid *head);
extern Portal source_history(const Projection *projection, const Suid *head);
extern int	source_fetch(const Projection *projection, Portal cursor, int limit, SourceEvent **events);

#endif							/* UNSAFEMV_SOURCE_H */
