/*
 * wait_point.h
 *	  Places where a test can hold a session: compiled with -DUNSAFEMV_WAIT_POINTS
 *	  only.  Whoever holds pg_advisory_lock(21869, n) holds the session at place n.
 */
#ifndef UNSAFEMV_WAIT_POINT_H
#define UNSAFEMV_WAIT_POINT_H

#ifdef UNSAFEMV_WAIT_POINTS
#include "miscadmin.h"
#include "storage/lock.h"

static inline void
wait_point(int place)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, 21869, place, 2);
	(void) LockAcquire(&tag, ShareLock, true, false);
	(void) LockRelease(&tag, ShareLock, true);
}

#define WAIT_POINT(place) wait_point(place)
#else
#define WAIT_POINT(place) ((void) (place))
#endif

#endif							/* UNSAFEMV_WAIT_POINT_H */
