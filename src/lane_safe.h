/*
 * lane_safe.h
 *	  The safe lane for callers within the extension.
 */
#ifndef UNSAFEMV_LANE_SAFE_H
#define UNSAFEMV_LANE_SAFE_H

#include "event.h"
#include "registry.h"

/*
 * apply_safe_batch of parsed events on a generation whose row the caller has
 * locked and whose status it has checked.  Raises what apply_safe_batch raises.
 * Without events only looks for receipts that were passed over.  Allocates in the
 * current memory context.
 */
extern void lane_safe_fold(const View *view, int64 generation, Event *events, int count);

/*
 * One link of the history digest: SHA-256 over the previous digest (if there is
 * one), the digits of the SUID and the event id; in place, 32 bytes.
 */
extern void lane_safe_digest(uint8 *digest, bool has_digest, const text *event_id, const Suid *suid);

/* A digest as it is stored. */
extern bytea *lane_safe_digest_value(const uint8 *digest);

#endif							/* UNSAFEMV_LANE_SAFE_H */
