/*
 * library.h
 *	  The library's version, held against that of the SQL objects.
 */
#ifndef UNSAFEMV_LIBRARY_H
#define UNSAFEMV_LIBRARY_H

#include "fmgr.h"

/* Raise an error unless the extension's SQL objects are of this library's version. */
extern void library_check(void);

/* What the server reads when it looks the function up; checks the version. */
extern const Pg_finfo_record *library_function(void);

/*
 * Declares an SQL function of the extension, as PG_FUNCTION_INFO_V1 does, and has
 * its lookup check the version.
 */
#define UNSAFEMV_FUNCTION(name) \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, name) (void); \
	const Pg_finfo_record * \
	CppConcat(pg_finfo_, name) (void) \
	{ \
		return library_function(); \
	} \
	extern int	no_such_variable

#endif							/* UNSAFEMV_LIBRARY_H */
