/*
 * horizon.c
 *	  The late horizon: the start of the oldest transaction that is open now.
 *
 * Which transactions are open, the process array says: every one has a virtual
 * transaction id.  When they began, their backend status says, to this C code of
 * whatever role.  A session with track_activities off says nothing, and the start
 * of a prepared transaction is not kept anywhere; then there is no answer.
 *
 * A transaction's now() is when its first statement reached the server, a little
 * before it has a virtual transaction id.  Hence a margin.
 *
 * No locks but those of the process array; writes nothing.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/backend_status.h"

#include "compat.h"
#include "horizon.h"
#include "statement.h"

#define HORIZON_MARGIN_MS	5000

/* Transactions of this database that are open, but for our own and vacuums. */
static VirtualTransactionId *
open_transactions(int *count)
{
	return GetCurrentVirtualXIDs(InvalidTransactionId, false, false,
								 PROC_IS_AUTOVACUUM | PROC_IN_VACUUM, count);
}

/* When the transaction began that the process has open; 0: it does not say. */
static TimestampTz
transaction_start(int pid)
{
	int			count = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= count; i++)
	{
		const PgBackendStatus *status = COMPAT_BACKEND_STATUS(i);

		if (status != NULL && status->st_procpid == pid)
			return status->st_xact_start_timestamp;
	}
	return 0;
}

static bool
is_open(VirtualTransactionId transaction)
{
	int			count;
	VirtualTransactionId *now_open = open_transactions(&count);

	for (int i = 0; i < count; i++)
		if (VirtualTransactionIdEquals(now_open[i], transaction))
			return true;
	return false;
}

bool
horizon_read(TimestampTz *horizon)
{
	TimestampTz oldest = GetCurrentTimestamp();
	int			count;
	VirtualTransactionId *transactions = open_transactions(&count);

	/* The statuses are read after the list: who is gone since is visible. */
	pgstat_clear_backend_activity_snapshot();
	for (int i = 0; i < count; i++)
	{
		PGPROC	   *process = COMPAT_VXID_PROCESS(transactions[i]);
		TimestampTz start = process == NULL || process->pid == 0 ? 0 : transaction_start(process->pid);

		CHECK_FOR_INTERRUPTS();
		if (start != 0)
			oldest = Min(oldest, start);
		else if (is_open(transactions[i]))
			return false;
	}
	pgstat_clear_backend_activity_snapshot();
	if (statement_execute(STATEMENT_PREPARED_EXISTS, NULL, NULL) > 0)
		return false;
	*horizon = TimestampTzPlusMilliseconds(oldest, -HORIZON_MARGIN_MS);
	return true;
}
