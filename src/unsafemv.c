/*
 * unsafemv.c
 *	  Module magic, settings, and registration of invalidation callbacks.
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "utils/guc.h"

#include "compat.h"
#include "index_scan.h"
#include "registry.h"
#include "statement.h"
#include "worker.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	DefineCustomIntVariable("unsafemv.promotion_timeout",
							"How long promoting, reopening and dropping wait for transactions that use the view.",
							NULL,
							&registry_promotion_timeout,
							2000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
	worker_init();
	MarkGUCPrefixReserved("unsafemv");
	statement_init();
	index_scan_init();
	registry_init();
}
