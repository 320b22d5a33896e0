/*
 * horizon.h
 *	  Since when may events have arrived that are not visible yet?
 */
#ifndef UNSAFEMV_HORIZON_H
#define UNSAFEMV_HORIZON_H

#include "utils/timestamp.h"

/*
 * Whatever becomes visible in this database after the call began, with an
 * arrived_at that is now() or clock_timestamp() of its transaction, has an
 * arrived_at of *horizon or later.  False: nobody can tell, because a prepared
 * transaction exists, or a session hides when its transaction began.  Between
 * statement_begin and statement_end; take the snapshot to look with afterwards.
 */
extern bool horizon_read(TimestampTz *horizon);

#endif							/* UNSAFEMV_HORIZON_H */
