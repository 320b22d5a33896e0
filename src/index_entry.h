/*
 * index_entry.h
 *	  Index entries of rows and the declarations that derive them.  Pure: no SPI.
 */
#ifndef UNSAFEMV_INDEX_ENTRY_H
#define UNSAFEMV_INDEX_ENTRY_H

#include "utils/jsonb.h"

#include "errors.h"

/*
 * Limits in bytes (core 5); a batch in events, the declarations of a view, and the
 * entries that one plan gives one row, by number.
 */
#define LIMIT_ROW_KEY		1024
#define LIMIT_EVENT_ID		1024
#define LIMIT_TEXT_VALUE	1024
#define LIMIT_INDEX_ID		63
#define LIMIT_SERVICE_ID	255
#define LIMIT_VIEW_ID		255
#define LIMIT_NESTING		1000
#define LIMIT_BATCH			100000
#define LIMIT_DECLARED		256
#define LIMIT_ROW_ENTRIES	1000

typedef enum IndexType
{
	INDEX_TEXT,
	INDEX_INTEGER,
	INDEX_REAL
} IndexType;

/* One index entry of a row: a set member. */
typedef struct IndexEntry
{
	text	   *index_id;
	IndexType	type;
	bool		derived;		/* follows from a declaration */
	text	   *text_value;
	int64		integer_value;
	double		real_value;
} IndexEntry;

/* An index the view declares; path as member names. */
typedef struct DeclaredIndex
{
	text	   *index_id;
	IndexType	type;
	int			path_length;
	text	  **path;
} DeclaredIndex;

typedef struct DeclaredIndexes
{
	int			count;
	DeclaredIndex *indexes;
} DeclaredIndexes;

extern const char *index_entry_type_name(IndexType type);
extern bool index_entry_type(const char *name, int length, IndexType *type);

/* A JSON number as an entry's value; false if it does not fit. */
extern bool index_entry_integer(const JsonbValue *number, int64 *result);
extern bool index_entry_real(const JsonbValue *number, double *result);

/* Order of two entries as set members (index, type, value). */
extern int	index_entry_compare(const IndexEntry *a, const IndexEntry *b);

/* Sort entries and drop duplicates in place; the number left. */
extern int	index_entry_set(IndexEntry *entries, int count);

/*
 * The entries the declared indexes derive from a value, into "entries" (room for
 * declared->count); their number.
 */
extern int	index_entry_derive(Jsonb *value, const DeclaredIndexes *declared, IndexEntry *entries);

/* The declaration of create_view's "indexes"; raises on bad input. */
extern void index_entry_declare(Jsonb *indexes, DeclaredIndexes *result);

#endif							/* UNSAFEMV_INDEX_ENTRY_H */
