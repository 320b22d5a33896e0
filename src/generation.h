/*
 * generation.h
 *	  Candidates for callers within the extension.
 */
#ifndef UNSAFEMV_GENERATION_H
#define UNSAFEMV_GENERATION_H

#include "registry.h"

/*
 * All between statement_begin and statement_end, with the errors of the public
 * functions of like names.
 */

/* begin_rebuild; the view's shared lock is held. */
extern int64 generation_begin(const View *view, int64 definition_version, bool has_generation,
							  int64 generation, const Suid *last_suid);

/* mark_generation_rebuilt; locks the generation's row. */
extern void generation_prove(const View *view, int64 generation, int64 count,
							 const Suid *maximum, const bytea *digest);

/* Is a generation's gate closed? */
extern bool generation_closed(const View *view, int64 generation);

/* promote_generation; *redeliver: text[]. */
extern void generation_promote(text *service_id, text *view_id, int64 candidate, int64 active,
							   bool force, int64 *carried, Datum *redeliver);

#endif							/* UNSAFEMV_GENERATION_H */
