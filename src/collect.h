/*
 * collect.h
 *	  Collection for callers within the extension.
 */
#ifndef UNSAFEMV_COLLECT_H
#define UNSAFEMV_COLLECT_H

#include "registry.h"

/*
 * collect_eligible with at most "budget" of each kind; *more: another call would
 * find more.  Locks the generation's row.  Between statement_begin and
 * statement_end.
 */
extern int64 collect_generation(const View *view, int64 generation, int64 definition_version,
								const Suid *safe_head, int64 budget, bool *more);

#endif							/* UNSAFEMV_COLLECT_H */
