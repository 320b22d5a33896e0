/*
 * mutation.h
 *	  A mutation plan as checked structs.  Pure: no SPI.
 */
#ifndef UNSAFEMV_MUTATION_H
#define UNSAFEMV_MUTATION_H

#include "utils/jsonb.h"

#include "errors.h"
#include "index_entry.h"
#include "merge_patch.h"
#include "suid.h"

typedef enum OperationKind
{
	OPERATION_DELETE,
	OPERATION_UPSERT,
	OPERATION_PATCH,
	OPERATION_UNINDEX,
	OPERATION_INDEX
} OperationKind;

typedef struct Operation
{
	OperationKind kind;
	int64		row_version;	/* upsert, patch */
	Jsonb	   *value;			/* upsert: the row; patch: the operand */
	PatchKind	patch_kind;
	bool		create;			/* patch of an absent row starts from {} */
	text	   *index_id;		/* unindex; NULL: all */
	int			nentries;		/* patch, index: entries */
	IndexEntry *entries;
} Operation;

/*
 * What one event does to one key, in the order deletes, upserts, patches, index
 * deletes, index entries.
 */
typedef struct KeyOperations
{
	text	   *row_key;
	int			count;
	Operation  *operations;
} KeyOperations;

/* One event's plan; keys in C byte order. */
typedef struct MutationPlan
{
	int			nkeys;
	KeyOperations *keys;
	int64		upserts;		/* as listed in the plan */
	int64		patches;
	int64		deletes;
} MutationPlan;

/* Where a plan comes from, for messages. */
typedef struct MutationSource
{
	const text *service_id;
	const text *view_id;
	const text *event_id;
	int			position;		/* in a batch, from 0; -1: not of a batch */
} MutationSource;

/*
 * Parse and check a plan against the event's SUID and the view's declared
 * indexes.  Everything is allocated in the current memory context.  On bad input
 * raises, or with a sink returns false and leaves the code there.
 */
extern bool mutation_parse(Jsonb *plan, const Suid *suid, const DeclaredIndexes *declared,
						   const MutationSource *source, MutationPlan *result, ErrorCode *sink);

/* MV_LIMIT_EXCEEDED unless "value" has at most "limit" bytes; "name" says what it is. */
extern bool mutation_check_length(const char *name, const text *value, int limit, ErrorCode *sink);

/* ereport() part: its message. */
extern int	mutation_errmsg_limit(const char *name, const text *value, int limit);

/* A text for a message: whole characters, at most 64 bytes. */
extern char *mutation_clip(const text *value);

/* C byte order of two texts. */
extern int	mutation_compare_text(const text *a, const text *b);

/* Does the event leave nothing of the key's former state (upsert or delete)? */
extern bool mutation_is_full(const KeyOperations *operations);

#endif							/* UNSAFEMV_MUTATION_H */
