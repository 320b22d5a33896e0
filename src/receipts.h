/*
 * receipts.h
 *	  Receipts: the fact that a generation has processed an event.
 */
#ifndef UNSAFEMV_RECEIPTS_H
#define UNSAFEMV_RECEIPTS_H

#include "registry.h"
#include "utils/timestamp.h"

typedef enum Outcome
{
	OUTCOME_APPLIED,
	OUTCOME_OLDER,
	OUTCOME_PATCH_NOT_FOUND,
	OUTCOME_DELETE_WITHOUT_ROW,
	OUTCOME_NO_CHANGE,
	OUTCOME_BEHIND_FRONTIER
} Outcome;

/* What claiming the receipt of an event found. */
typedef enum ClaimState
{
	CLAIM_NEW,					/* it is ours, to be undone if the event is
								 * refused */
	CLAIM_DUPLICATE,			/* the event has its receipt already */
	CLAIM_CONTRADICTION			/* its id has another SUID, or its SUID
								 * another id */
} ClaimState;

typedef struct Claim
{
	const text *event_id;
	const Suid *suid;
	Outcome		expected;		/* written with the claim */
	ClaimState	state;
	bool		behind_frontier;	/* CLAIM_DUPLICATE: the receipt says so */
	char	   *other;			/* CLAIM_CONTRADICTION: what stands in the way */
} Claim;

extern const char *receipts_outcome_name(Outcome outcome);

/*
 * Claim the receipts of distinct events, in SUID order ("claims" gets sorted).
 * Waits for concurrent claims of the same events.
 */
extern void receipts_claim(const View *view, int64 generation, Claim *claims, int count,
						   TimestampTz observed_at);

/*
 * Where receipts settled above the head exist: turn claims into contradictions
 * whose SUID another event's settled receipt has.
 */
extern void receipts_check_settled(const View *view, int64 generation, const Generation *state,
								   Claim *claims, int count);

/* Change outcomes of receipts this call claimed; give claims up. */
extern void receipts_set_outcomes(const View *view, int64 generation,
								  Datum *event_ids, Datum *suids, const Outcome *outcomes, int count);
extern void receipts_give_up(const View *view, int64 generation, Datum *event_ids, int count);

/* Markers, as arrays; and the end of those of events with these SUIDs. */
extern void receipts_mark(const View *view, int64 generation, Datum *event_ids, Datum *suids,
						  Datum *row_keys, Datum *reasons, int count);
extern void receipts_unmark(const View *view, int64 generation, Datum *suids, int count);

#endif							/* UNSAFEMV_RECEIPTS_H */
