/*
 * fold.h
 *	  Ordered events on row images.  Pure: no SPI.
 */
#ifndef UNSAFEMV_FOLD_H
#define UNSAFEMV_FOLD_H

#include "mutation.h"

/* A row's content, or its absence. */
typedef struct RowImage
{
	bool		present;
	Jsonb	   *value;
	int64		row_version;
	Suid		source_suid;
	int			nentries;		/* explicit entries only, a sorted set */
	IndexEntry *entries;

	/*
	 * Made by the fold and pointed to by nobody else: the next step may free
	 * it.  Do not fold on in a copy of an image and in the image itself.
	 */
	bool		owns_value;
	bool		owns_entries;
} RowImage;

/* What one event above the head did to the key. */
typedef struct KeptEvent
{
	Suid		suid;
	KeyOperations operations;
	bool		owns_value;		/* of the first operation, as RowImage */
} KeptEvent;

/*
 * The tentative state of a key: an ordered fold of kept events on the base.  A
 * state that begins with an upsert or delete and nothing after it is "pure": it
 * needs no kept events.
 */
typedef struct TentativeRow
{
	bool		exists;			/* there is such a row at all */
	Suid		source_suid;	/* newest event */
	int64		row_version;	/* of the newest operation */
	RowImage	image;			/* folded; absent: hidden */
	int			nkept;			/* 0: pure */
	int			kept_allocated;
	KeptEvent  *kept;			/* ascending */
	bool		has_base;
	Suid		base_suid;
} TentativeRow;

/* The list of kept events is capped (core 6.3). */
#define FOLD_MAX_KEPT_EVENTS	256
#define FOLD_MAX_KEPT_BYTES		(256 * 1024)

/* What became of one event on one key. */
typedef enum KeyVerdict
{
	KEY_APPLIED,
	KEY_SUPERSEDED,
	KEY_PATCH_NOT_FOUND,
	KEY_DELETE_WITHOUT_ROW
} KeyVerdict;

/*
 * Apply one event's operations to an image.  With "strict", a patch without
 * create of an absent row returns false and leaves the image as it is.
 */
extern bool fold_step(RowImage *image, const Suid *suid, const KeyOperations *operations, bool strict);

/* The verdict of operations on a row that is or is not there. */
extern KeyVerdict fold_verdict(bool present, const KeyOperations *operations);

/* Does the row count above "head" (NULL: everything does)? */
extern bool fold_counts(const TentativeRow *row, const Suid *head);

/* Is the folded image out of date for this head and base? */
extern bool fold_stale(const TentativeRow *row, const Suid *head, const RowImage *base);

/*
 * Refold on "base" what is left above "head"; exists = false if nothing is.
 */
extern void fold_refresh(TentativeRow *row, const Suid *head, const RowImage *base);

/*
 * The verdict of an event on a key under base => 'composed', before it is taken
 * in (*left_as_is: no row before it and none after it); and taking it in, at its
 * place (not for KEY_SUPERSEDED).
 */
extern KeyVerdict fold_judge(const TentativeRow *row, const Suid *head, const RowImage *base,
							 const Suid *suid, const KeyOperations *operations,
							 bool *left_as_is);
extern void fold_insert(TentativeRow *row, const Suid *head, const RowImage *base,
						const Suid *suid, const KeyOperations *operations);

/* All entries of an image: explicit and derived, a sorted set. */
extern void fold_entries(const RowImage *image, const DeclaredIndexes *declared,
						 int *count, IndexEntry **entries);

#endif							/* UNSAFEMV_FOLD_H */
