/*
 * page.h
 *	  Reads: their gate, their common arguments, pages made of parts.
 */
#ifndef UNSAFEMV_PAGE_H
#define UNSAFEMV_PAGE_H

#include "tcop/dest.h"
#include "utils/jsonb.h"

#include "statement.h"

/* A view's active generation and what closes its reads, in one snapshot. */
typedef struct ReadState
{
	text	   *service_id;
	text	   *view_id;
	int64		view_no;
	int64		generation;
	Jsonb	   *indexes;		/* declared */
	bool		has_head;
	Suid		head;
	int64		row_count;
	bool		rebuild_required;
	text	   *offender_event; /* NULL: none known */
	bool		has_offender;	/* an unsettled receipt at or below the head */
	Suid		offender_suid;
	bool		checkpoint_ahead;
	bool		ordering_quarantined;
} ReadState;

/*
 * Read the state in the active snapshot (MV_VIEW_MISSING, MV_INSTANCE_MISSING);
 * between statement_begin and statement_end, where the result lives.  Takes no
 * lock.
 */
extern void page_read_state(text *service_id, text *view_id, ReadState *state);

/* Is the gate itself (UNSAFE_BEHIND_FRONTIER) closed? */
extern bool page_gate_closed(const ReadState *state);

/* Raise what closes composed reads, or, with "safe", safe reads. */
extern void page_gate_check(const ReadState *state, bool safe);

/*
 * The first two arguments, and the state, of a read that starts with them; the
 * gate has been checked.  The bound is the least SUID of a tentative row that
 * counts: infinity for safe reads.
 */
extern void page_open(FunctionCallInfo fcinfo, bool safe, ReadState *state, Suid *bound);

/* Common arguments; errors are MV_VALUE_INVALID.  No limit is -1. */
extern int64 page_limit(FunctionCallInfo fcinfo, int argno);
extern int64 page_offset(FunctionCallInfo fcinfo, int argno);
extern bool page_flag(FunctionCallInfo fcinfo, int argno, const char *name);
extern bool page_safe(FunctionCallInfo fcinfo, int argno);

/* A text above every text of at most "limit" bytes; for comparisons only. */
extern text *page_last_text(int limit);

/*
 * One ordered part of a result: a statement whose last but "passed" arguments
 * are offset and limit.
 */
#define READ_PART_ARGUMENTS 10

typedef struct ReadPart
{
	StatementKind kind;
	int			offset_argument;	/* from 0; the limit is the next one */
	const ReadState *state;
	bool		cursor;			/* of a page: the condition on the key matters */
	Datum		values[READ_PART_ARGUMENTS];
	bool		nulls[READ_PART_ARGUMENTS];
} ReadPart;

/* The first four arguments, which all parts share. */
extern void page_part(ReadPart *part, StatementKind kind, const ReadState *state, const Suid *bound);

/*
 * Send rows "offset" to "offset + limit" of the parts, one after the other, to
 * "dest"; how many they were.
 */
extern uint64 page_run(ReadPart *parts, int count, int64 offset, int64 limit, DestReceiver *dest);

/* The receiver that fills a set-returning function's tuplestore. */
extern DestReceiver *page_receiver(FunctionCallInfo fcinfo);

#endif							/* UNSAFEMV_PAGE_H */
