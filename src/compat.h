/*
 * compat.h
 *	  Differences between the supported PostgreSQL versions (15 to 18).
 *
 * The only file that looks at PG_VERSION_NUM: everything else is written against
 * the names defined here.
 */
#ifndef UNSAFEMV_COMPAT_H
#define UNSAFEMV_COMPAT_H

#include "fmgr.h"

/* VARDATA_ANY and its kin left postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/*
 * Report an input function's error: softly, by returning, where the caller asked
 * for that (pg_input_is_valid, COPY ... ON_ERROR; PostgreSQL 16), else raise.
 */
#if PG_VERSION_NUM >= 160000
#include "nodes/miscnodes.h"

#define COMPAT_INPUT_ERROR(fcinfo, ...) \
	ereturn((fcinfo)->context, (Datum) 0, __VA_ARGS__)
#else
#define COMPAT_INPUT_ERROR(fcinfo, ...) \
	ereport(ERROR, __VA_ARGS__)
#endif

/* May the role execute the function?  Needs utils/acl.h and catalog/pg_proc.h. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_MAY_EXECUTE(function, role) \
	(object_aclcheck(ProcedureRelationId, function, role, ACL_EXECUTE) == ACLCHECK_OK)
#else
#define COMPAT_MAY_EXECUTE(function, role) \
	(pg_proc_aclcheck(function, role, ACL_EXECUTE) == ACLCHECK_OK)
#endif

/* Run a portal to its end at top level; PostgreSQL 18 dropped "run_once". */
#if PG_VERSION_NUM >= 180000
#define COMPAT_PORTAL_RUN(portal, dest, completion) \
	PortalRun(portal, FETCH_ALL, true, dest, dest, completion)
#else
#define COMPAT_PORTAL_RUN(portal, dest, completion) \
	PortalRun(portal, FETCH_ALL, true, true, dest, dest, completion)
#endif

/* The i-th backend's status (utils/backend_status.h), and a process by its virtual transaction. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_BACKEND_STATUS(i) (&pgstat_get_local_beentry_by_index(i)->backendStatus)
#else
#define COMPAT_BACKEND_STATUS(i) pgstat_fetch_stat_beentry(i)
#endif
#if PG_VERSION_NUM >= 170000
#define COMPAT_VXID_PROCESS(vxid) ProcNumberGetProc((vxid).procNumber)
#else
#define COMPAT_VXID_PROCESS(vxid) BackendIdGetProc((vxid).backendId)
#endif

/* An index scan without order-by operators; PostgreSQL 18 adds its instrumentation. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_INDEX_BEGINSCAN(table, index, snapshot, nkeys) \
	index_beginscan(table, index, snapshot, NULL, nkeys, 0)
#else
#define COMPAT_INDEX_BEGINSCAN(table, index, snapshot, nkeys) \
	index_beginscan(table, index, snapshot, nkeys, 0)
#endif

/* A function that does not return: a prefix from 18 on. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

#endif							/* UNSAFEMV_COMPAT_H */
