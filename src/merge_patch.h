/*
 * merge_patch.h
 *	  RFC 7396 merge patch and the other total patch kinds, on jsonb.  Pure: no
 *	  SPI, no catalogue access.
 */
#ifndef UNSAFEMV_MERGE_PATCH_H
#define UNSAFEMV_MERGE_PATCH_H

#include "utils/jsonb.h"

typedef enum PatchKind
{
	PATCH_JSON_PATCH,
	PATCH_ADD,
	PATCH_MIN,
	PATCH_MAX,
	PATCH_APPEND,
	PATCH_UNION
} PatchKind;

/* Name <-> kind; merge_patch_kind returns false for an unknown name. */
extern bool merge_patch_kind(const char *name, int length, PatchKind *kind);
extern const char *merge_patch_kind_name(PatchKind kind);

/*
 * Is every leaf of the operand of a kind it takes?  (add, min, max: numbers.)
 * An operand that is no object is valid for json_patch only.
 */
extern bool merge_patch_operand_valid(PatchKind kind, Jsonb *patch);

/*
 * Apply "patch", a valid operand, to "target" (NULL: absent).  Never fails on the
 * target's value.  The result is palloc'd in the current memory context, and so
 * is scratch space in proportion to the target and the patch.
 */
extern Jsonb *merge_patch_apply(PatchKind kind, Jsonb *target, Jsonb *patch);

#endif							/* UNSAFEMV_MERGE_PATCH_H */
