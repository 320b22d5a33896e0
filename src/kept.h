/*
 * kept.h
 *	  Kept events and index entries as the jsonb columns of unsafe_rows.  Pure: no
 *	  SPI.
 */
#ifndef UNSAFEMV_KEPT_H
#define UNSAFEMV_KEPT_H

#include "fold.h"

/* [[index id, value type, value(, true if derived)], ...]; NULL if none. */
extern Jsonb *kept_entries_to_jsonb(const IndexEntry *entries, int count);

/* One of its elements. */
extern Jsonb *kept_entry_to_jsonb(const IndexEntry *entry);

/* Its inverse; explicit entries only, unless "derived" is asked for too. */
extern void kept_entries_from_jsonb(Jsonb *array, bool derived, int *count, IndexEntry **entries);

/* [{"suid", "ops": [...]}, ...] <-> kept events, ascending. */
extern Jsonb *kept_to_jsonb(const KeptEvent *events, int count);
extern void kept_from_jsonb(Jsonb *array, int *count, KeptEvent **events);

#endif							/* UNSAFEMV_KEPT_H */
