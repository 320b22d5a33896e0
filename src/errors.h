/*
 * errors.h
 *	  The error catalogue: the one table behind the C code, the SQL view
 *	  unsafemv.errors and the README.
 *
 * The code word stands in the error's constraint-name field, so that a client
 * reads it without parsing text.  A condition is either raised (RAISE) or, where
 * a caller collects verdicts instead of aborting (apply_batch with on_error =>
 * 'report'), written into the caller's sink (REJECT with a sink that is not NULL).
 */
#ifndef UNSAFEMV_ERRORS_H
#define UNSAFEMV_ERRORS_H

#include "utils/resowner.h"

/* X(code word, SQLSTATE, retryable, meaning) */
#define UNSAFEMV_ERRORS(X) \
	X(UNSAFE_ROW_CAS_MISMATCH, "UM001", true, "expected_row_version differs from the locked base row") \
	X(UNSAFE_DUPLICATE_RACE, "UM002", true, "never raised: a lost race gets the duplicate answer, or 40001 above READ COMMITTED") \
	X(UNSAFE_SUID_CONTRADICTION, "UM003", false, "one event id with two SUIDs, or one SUID with two event ids") \
	X(UNSAFE_SAFE_AHEAD, "UM004", false, "the head, or the caller's safe_head, covers an event that no receipt knows") \
	X(UNSAFE_BEHIND_FRONTIER, "UM005", false, "reads are closed: an event lies behind the head; rebuild") \
	X(UNSAFE_KICK_LEASE_HELD, "UM006", true, "another owner's lease has not expired") \
	X(UNSAFE_KICK_LEASE_LOST, "UM007", false, "renewing a lease that is not held any more") \
	X(UNSAFE_GC_GUARD_FAILED, "UM008", false, "a guard of garbage_collect failed and the caller asked for an error instead of false") \
	X(UNSAFE_RECEIPT_MISSING, "UM009", false, "observe_safe_receipt without that exact receipt") \
	X(UNSAFE_RECEIPT_EXPIRED, "UM010", false, "event at or below the receipt floor: redelivery or news, nobody can tell") \
	X(MV_VIEW_MISSING, "UM101", false, "no such service and view") \
	X(MV_INSTANCE_EXISTS, "UM102", false, "view or generation exists") \
	X(MV_INSTANCE_MISSING, "UM103", false, "no such generation, or nothing active") \
	X(MV_GENERATION_INVALID, "UM104", false, "generation negative, or in a state that forbids the call") \
	X(MV_DEFINITION_MISMATCH, "UM105", false, "definition version differs from the generation's") \
	X(MV_CAS_MISMATCH, "UM106", true, "head is not expected_last_suid") \
	X(MV_ORDER_VIOLATION, "UM107", false, "SUIDs of a safe batch do not strictly increase from the head") \
	X(MV_PATCH_ROW_MISSING, "UM108", false, "safe patch of an absent row") \
	X(MV_PROMOTION_CAS_MISMATCH, "UM109", true, "active generation is not the expected one, or target is not promotable") \
	X(MV_PROMOTION_BEHIND, "UM110", true, "candidate has not reached what readers have seen, or is gated; DETAIL gives the distance") \
	X(MV_REBUILD_NOT_VERIFIED, "UM111", false, "proof incomplete or not matching") \
	X(MV_REBUILD_RUNNING, "UM112", true, "somebody rebuilds this view") \
	X(MV_CHECKPOINT_AHEAD, "UM113", false, "source is behind the head: restore or rebuild") \
	X(MV_ORDERING_QUARANTINED, "UM114", false, "source order broke; safe reads closed") \
	X(MV_PROMOTION_BUSY, "UM115", true, "in-flight applies did not finish within the bounded wait") \
	X(MV_SAFE_LANE_IN_USE, "UM116", false, "observe_safe_receipt on a generation that has safe rows") \
	X(MV_VALUE_INVALID, "UM201", false, "argument out of its domain (limit, offset, NULL where a value is required)") \
	X(MV_PLAN_INVALID, "UM202", false, "mutation plan malformed; DETAIL gives the JSON path") \
	X(MV_ROW_KEY_REQUIRED, "UM203", false, "empty row key") \
	X(MV_ROW_VERSION_INVALID, "UM204", false, "row version negative or not whole") \
	X(MV_PATCH_OBJECT_REQUIRED, "UM205", false, "patch is not a JSON object") \
	X(MV_PATCH_KIND_INVALID, "UM206", false, "unknown patch kind") \
	X(MV_INDEX_DUPLICATE, "UM207", false, "index declared twice") \
	X(MV_INDEX_UNDECLARED, "UM208", false, "entry names an index the view does not declare") \
	X(MV_INDEX_VALUE_TYPE_MISMATCH, "UM209", false, "entry's type differs from the declared one") \
	X(MV_INDEX_VALUE_INVALID, "UM210", false, "value does not fit its type (NaN, infinity, fraction, range)") \
	X(MV_INDEX_ROW_KEY_MISMATCH, "UM211", false, "a patch's entry names another row, or a plan's entry or index delete a row the plan does not touch") \
	X(MV_LIMIT_EXCEEDED, "UM212", false, "key, id, nesting, batch, declarations or entries above their limit") \
	X(MV_PROJECTION_MISSING, "UM301", false, "follow or rebuild without an attached projection") \
	X(MV_PLAN_FUNCTION_FAILED, "UM302", false, "plan function raised or returned a malformed plan; DETAIL names the event") \
	X(SUID_INVALID, "UM401", false, "not 30 ASCII digits") \
	X(SUID_TICKS_INVALID, "UM402", false, "tick field beyond .NET's range") \
	X(SUID_SUFFIX_INVALID, "UM403", false, "suffix outside 0..99999999999")

typedef enum ErrorCode
{
	ERROR_NONE = 0,
#define UNSAFEMV_ERROR_ENUM(code, sqlstate, retryable, meaning) code,
	UNSAFEMV_ERRORS(UNSAFEMV_ERROR_ENUM)
#undef UNSAFEMV_ERROR_ENUM
} ErrorCode;

/* ereport() part: sets SQLSTATE and the constraint-name field of a code. */
extern int	errors_code(ErrorCode code);

/* The code word ("MV_VIEW_MISSING"), static storage. */
extern const char *errors_name(ErrorCode code);

/*
 * A user's text, clipped between two characters, for use in a message; palloc'd.
 */
#define ERRORS_CLIP_BYTES	64
extern char *errors_clip(const char *text, int length);

/*
 * In a PG_CATCH: roll back the internal subtransaction that failed, go back to
 * the memory context and resource owner outside it, and take the error, which is
 * copied there.
 */
extern ErrorData *errors_roll_back(MemoryContext caller, ResourceOwner owner);

/* Does the error say nothing about an event, or is it a matter of trying again? */
extern bool errors_no_events_fault(int sqlstate);

/* RAISE(MV_VIEW_MISSING, errmsg(...), errdetail(...), errhint(...)) */
#define RAISE(code, ...) \
	ereport(ERROR, errors_code(code), __VA_ARGS__)

/* What is in a table cannot be what the extension wrote. */
#define RAISE_CORRUPTED(...) \
	ereport(ERROR, errcode(ERRCODE_DATA_CORRUPTED), __VA_ARGS__, \
			errhint("Only the extension's functions write its tables; rebuild the view."))

/* Raise, or, with a sink (ErrorCode *), leave the code there and go on. */
#define REJECT(sink, code, ...) \
	do { \
		if ((sink) != NULL) \
			*(sink) = (code); \
		else \
			RAISE(code, __VA_ARGS__); \
	} while (0)

#endif							/* UNSAFEMV_ERRORS_H */
