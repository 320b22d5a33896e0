/*
 * findings.h
 *	  What an operator should know about a generation.
 */
#ifndef UNSAFEMV_FINDINGS_H
#define UNSAFEMV_FINDINGS_H

#include "utils/jsonb.h"

#include "registry.h"

typedef enum FindingKind
{
	FINDING_CHECKPOINT_AHEAD,	/* one per generation; closes all reads */
	FINDING_ORDERING_QUARANTINE,	/* one per generation; closes safe reads */
	FINDING_UNSAFE_FAILURE,		/* open only while its event has no receipt */
	FINDING_POISON_EVENT,
	FINDING_SKIPPED_EVENT,
	FINDING_LATE_EVENT,
	FINDING_DISMISSED_EVENT,
	FINDING_FORCED_PROMOTION
} FindingKind;

/* Stored name of a kind ("checkpoint-ahead"), static storage. */
extern const char *findings_kind_name(FindingKind kind);

/* A finding's detail from JSON text, in the current memory context. */
extern Jsonb *findings_detail(const char *json);

/*
 * Record a finding: a new row, or another attempt of the open one, or, if it had
 * been resolved, that row as a new finding.  Returns the number of attempts since
 * it was opened (1: opened now).  event_id and suid may be NULL.  Between
 * statement_begin and statement_end; the caller keeps the generation from being
 * dropped (the view's shared lock, or the generation's row).  Above READ
 * COMMITTED a lost race is 40001.
 */
extern int64 findings_record(const View *view, int64 generation, FindingKind kind,
							 const text *event_id, const Suid *suid, Jsonb *detail);

/*
 * Resolve the findings of a kind, of one event or (event_id NULL) of any; true if
 * one was open.  Locks and isolation as findings_record.
 */
extern bool findings_resolve(const View *view, int64 generation, FindingKind kind,
							 const text *event_id);

#endif							/* UNSAFEMV_FINDINGS_H */
