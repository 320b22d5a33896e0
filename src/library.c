/*
 * library.c
 *	  One clean error where the library and the SQL objects are not of one version.
 *
 * The version stands in unsafemv.control; the build compiles it in, and
 * pg_extension says which one the SQL objects are of.  Between the installation
 * of a new package and ALTER EXTENSION UPDATE, and in sessions that still have the
 * old library after it, the two differ; then a function could read arguments that
 * nobody passed, or tables laid out otherwise.
 *
 * So the version is checked when a backend looks a function up: the server calls
 * the function's information record (pg_finfo_...) before its first call and again
 * once its pg_proc row has changed.  And it is checked whenever a statement is
 * planned (statement.c), which happens again once a table has changed.  Calls
 * themselves pay nothing.
 *
 * Not checked are the functions of type suid (they read nothing but their
 * arguments, and what is stored cannot change: backups and ANALYZE work meanwhile),
 * the scripts of CREATE and ALTER EXTENSION, which pass through other versions, and
 * pg_upgrade, which restores the old version's objects.
 *
 * Takes AccessShareLock on pg_extension for the lookup; allocates the version's text
 * in the current memory context.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

#include "library.h"

#ifndef UNSAFEMV_VERSION
#error "the build defines UNSAFEMV_VERSION, from unsafemv.control"
#endif

void
library_check(void)
{
	Relation	extensions;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (creating_extension || IsBinaryUpgrade)
		return;
	extensions = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum("unsafemv"));
	scan = systable_beginscan(extensions, ExtensionNameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		version = heap_getattr(tuple, Anum_pg_extension_extversion,
										   RelationGetDescr(extensions), &isnull);

		if (isnull || strcmp(TextDatumGetCString(version), UNSAFEMV_VERSION) != 0)
			ereport(ERROR,
					errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("library and SQL objects of extension \"unsafemv\" are of different versions"),
					errdetail("The library is of version %s, the SQL objects are of version %s.",
							  UNSAFEMV_VERSION, isnull ? "?" : TextDatumGetCString(version)),
					errhint("If the library is the newer one, run ALTER EXTENSION unsafemv UPDATE; "
							"else reconnect, or restart the server where it preloads the library."));
	}
	systable_endscan(scan);
	table_close(extensions, AccessShareLock);
}

const Pg_finfo_record *
library_function(void)
{
	static const Pg_finfo_record record = {1};

	library_check();
	return &record;
}
