/*
 * suid.h
 *	  Sortable unique id of an event: 19 digits of .NET ticks, 11 digits of
 *	  suffix; stored as two big-endian unsigned 64-bit halves.
 */
#ifndef UNSAFEMV_SUID_H
#define UNSAFEMV_SUID_H

#include "fmgr.h"

#include "errors.h"

#define SUID_TEXT_LENGTH	30
#define SUID_BYTES			16

typedef struct Suid
{
	unsigned char data[SUID_BYTES];
} Suid;

#define DatumGetSuidP(X)		((Suid *) DatumGetPointer(X))
#define SuidPGetDatum(X)		PointerGetDatum(X)
#define PG_GETARG_SUID_P(X)		DatumGetSuidP(PG_GETARG_DATUM(X))
#define PG_RETURN_SUID_P(X)		return SuidPGetDatum(X)

/*
 * Parse "length" bytes of text (not terminated).  Returns false with the code in
 * *sink, or raises if sink is NULL.
 */
extern bool suid_parse(const char *string, int length, Suid *result, ErrorCode *sink);

/* ereport() parts: message, detail and hint of a code that suid_parse gave. */
extern int	suid_errmsg(ErrorCode code, const char *string, int length);

/*
 * Write SUID_TEXT_LENGTH digits and a terminating zero into "buffer".  A bound
 * (suid_above, suid_infinity) prints each field as at most its greatest digits.
 */
extern void suid_print(const Suid *suid, char *buffer);

/* The same, palloc'd; "null" for NULL. */
extern char *suid_cstring(const Suid *suid);

/* memcmp order = text order = (ticks, suffix) order. */
extern int	suid_compare(const Suid *a, const Suid *b);

/* The 30-digit text datum of a SUID, in the current memory context. */
extern Datum suid_text_datum(const Suid *suid);

/*
 * The least value above "head" (NULL: the least value of all): a bound for
 * comparisons, not to be stored (its suffix may lie beyond 11 digits).
 * "source_suid >= suid_above(head)" is indexable with an absent head too.
 */
extern void suid_above(const Suid *head, Suid *result);

/* The greatest value of all, above every SUID; never a stored SUID. */
extern void suid_infinity(Suid *result);

/* The SQL function, for a direct call. */
extern Datum unsafemv_suid_from_position(PG_FUNCTION_ARGS);

#endif							/* UNSAFEMV_SUID_H */
