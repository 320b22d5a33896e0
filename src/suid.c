/*
 * suid.c
 *	  Type unsafemv.suid: the sortable unique id of an event.
 *
 * Guarantees that byte order, text order and (ticks, suffix) order are one and
 * the same total order, whatever the database's collation: a value is two
 * big-endian unsigned 64-bit halves, compared with memcmp, and its text form is
 * those halves in 19 and 11 decimal digits with leading zeros.
 *
 * A stored value always has ticks and suffix within range: every way in (text,
 * binary, constructors) checks.  Only suid_above and suid_infinity make values
 * beyond it, as bounds for comparisons.
 *
 * No locks, no catalogue access, nothing survives a call.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/hyperloglog.h"
#include "libpq/pqformat.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/sortsupport.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "suid.h"

#define TICKS_DIGITS		19
#define SUFFIX_DIGITS		11

/* The last tick of the year 9999, .NET's DateTime.MaxValue. */
#define TICKS_MAX			UINT64CONST(3155378975999999999)
#define SUFFIX_MAX			UINT64CONST(99999999999)

/* The greatest numbers the digits can print. */
#define TICKS_PRINTABLE		UINT64CONST(9999999999999999999)
#define SUFFIX_PRINTABLE	SUFFIX_MAX

#define TICKS_PER_USEC		10

/* Microseconds from 0001-01-01 to 2000-01-01, PostgreSQL's epoch. */
#define USECS_TO_POSTGRES	INT64CONST(63082281600000000)

/* 31 bits keep generated suffixes within 10 digits, as other clients make them. */
#define GENERATED_SUFFIX_MASK	0x7FFFFFFF

StaticAssertDecl(sizeof(Suid) == SUID_BYTES, "a SUID has no padding");
StaticAssertDecl(TICKS_DIGITS + SUFFIX_DIGITS == SUID_TEXT_LENGTH,
				 "the text form is ticks and suffix");

/* Working state of abbreviated key generation. */
typedef struct SuidSortSupport
{
	int64		input_count;	/* values seen */
	bool		estimating;		/* still judging whether abbreviation pays */
	hyperLogLogState cardinality;	/* of the abbreviated keys */
} SuidSortSupport;

PG_FUNCTION_INFO_V1(unsafemv_suid_in);
PG_FUNCTION_INFO_V1(unsafemv_suid_out);
PG_FUNCTION_INFO_V1(unsafemv_suid_recv);
PG_FUNCTION_INFO_V1(unsafemv_suid_send);
PG_FUNCTION_INFO_V1(unsafemv_suid_from_text);
PG_FUNCTION_INFO_V1(unsafemv_suid_to_text);
PG_FUNCTION_INFO_V1(unsafemv_suid_lt);
PG_FUNCTION_INFO_V1(unsafemv_suid_le);
PG_FUNCTION_INFO_V1(unsafemv_suid_eq);
PG_FUNCTION_INFO_V1(unsafemv_suid_ge);
PG_FUNCTION_INFO_V1(unsafemv_suid_gt);
PG_FUNCTION_INFO_V1(unsafemv_suid_ne);
PG_FUNCTION_INFO_V1(unsafemv_suid_cmp);
PG_FUNCTION_INFO_V1(unsafemv_suid_sortsupport);
PG_FUNCTION_INFO_V1(unsafemv_suid_hash);
PG_FUNCTION_INFO_V1(unsafemv_suid_hash_extended);
PG_FUNCTION_INFO_V1(unsafemv_suid_smaller);
PG_FUNCTION_INFO_V1(unsafemv_suid_larger);
PG_FUNCTION_INFO_V1(unsafemv_suid_from_timestamp);
PG_FUNCTION_INFO_V1(unsafemv_suid_from_position);
PG_FUNCTION_INFO_V1(unsafemv_suid_timestamp);
PG_FUNCTION_INFO_V1(unsafemv_suid_ticks);
PG_FUNCTION_INFO_V1(unsafemv_suid_suffix);
PG_FUNCTION_INFO_V1(unsafemv_generate_suid);
PG_FUNCTION_INFO_V1(unsafemv_suid_above);

/* ---------------------------------------------------------------------------
 * The two halves
 * ---------------------------------------------------------------------------
 */

static uint64
suid_half(const Suid *suid, int half)
{
	uint64		value;

	memcpy(&value, suid->data + half * sizeof(uint64), sizeof(uint64));
	return pg_ntoh64(value);
}

#define suid_get_ticks(suid)	suid_half(suid, 0)
#define suid_get_suffix(suid)	suid_half(suid, 1)

static void
suid_set(Suid *suid, uint64 ticks, uint64 suffix)
{
	uint64		halves[2];

	halves[0] = pg_hton64(ticks);
	halves[1] = pg_hton64(suffix);
	memcpy(suid->data, halves, SUID_BYTES);
}

/*
 * Raise unless both halves may be stored.
 */
static void
suid_check(uint64 ticks, uint64 suffix)
{
	if (ticks > TICKS_MAX)
		RAISE(SUID_TICKS_INVALID,
			  errmsg("SUID ticks out of range: " UINT64_FORMAT, ticks),
			  errdetail("Ticks lie between 0 and " UINT64_FORMAT ".", TICKS_MAX));
	if (suffix > SUFFIX_MAX)
		RAISE(SUID_SUFFIX_INVALID,
			  errmsg("SUID suffix out of range: " UINT64_FORMAT, suffix),
			  errdetail("A suffix lies between 0 and " UINT64_FORMAT ".", SUFFIX_MAX));
}

/* ---------------------------------------------------------------------------
 * Text form
 * ---------------------------------------------------------------------------
 */

/*
 * Read "count" ASCII digits.  Returns false at anything else.
 */
static bool
scan_digits(const char *string, int count, uint64 *value)
{
	uint64		sum = 0;

	for (int i = 0; i < count; i++)
	{
		unsigned int digit = (unsigned char) string[i] - (unsigned int) '0';

		if (digit > 9)
			return false;
		sum = sum * 10 + digit;
	}
	*value = sum;
	return true;
}

/*
 * The one reader of the text form.  A suffix of 11 digits is always in range.
 */
static ErrorCode
suid_scan(const char *string, int length, Suid *result)
{
	uint64		ticks;
	uint64		suffix;

	if (length != SUID_TEXT_LENGTH ||
		!scan_digits(string, TICKS_DIGITS, &ticks) ||
		!scan_digits(string + TICKS_DIGITS, SUFFIX_DIGITS, &suffix))
		return SUID_INVALID;
	if (ticks > TICKS_MAX)
		return SUID_TICKS_INVALID;
	suid_set(result, ticks, suffix);
	return ERROR_NONE;
}

/*
 * Part of an ereport(): code and messages for a text that suid_scan refused.
 */
int
suid_errmsg(ErrorCode code, const char *string, int length)
{
	errors_code(code);
	if (code == SUID_TICKS_INVALID)
	{
		errmsg("SUID ticks out of range: \"%s\"", errors_clip(string, length));
		errdetail("The first %d digits are .NET ticks, at most " UINT64_FORMAT ".",
				  TICKS_DIGITS, TICKS_MAX);
		return errhint("Use suid_from_timestamp() or suid_from_position() to make a SUID.");
	}
	errmsg("invalid SUID: \"%s\"", errors_clip(string, length));
	if (length != SUID_TEXT_LENGTH)
		errdetail("A SUID is exactly %d ASCII digits, this text has %d bytes.",
				  SUID_TEXT_LENGTH, length);
	else
		errdetail("A SUID is exactly %d ASCII digits, this text holds other characters.",
				  SUID_TEXT_LENGTH);
	if (length == 0)
		return errhint("\"Nothing yet\" is NULL, not the empty string.");
	return errhint("Write %d digits of ticks and %d digits of suffix, with leading zeros.",
				   TICKS_DIGITS, SUFFIX_DIGITS);
}

/*
 * Parse "length" bytes of text.  Allocates nothing unless it raises.
 */
bool
suid_parse(const char *string, int length, Suid *result, ErrorCode *sink)
{
	ErrorCode	code = suid_scan(string, length, result);

	if (code == ERROR_NONE)
		return true;
	REJECT(sink, code, suid_errmsg(code, string, length));
	return false;
}

static void
print_digits(uint64 value, int count, char *buffer)
{
	for (int i = count - 1; i >= 0; i--)
	{
		buffer[i] = (char) ('0' + value % 10);
		value /= 10;
	}
}

/*
 * Write the text form.  A bound beyond the digits prints as nines, so that what
 * is printed keeps the order and suid_infinity is no valid SUID.
 */
void
suid_print(const Suid *suid, char *buffer)
{
	print_digits(Min(suid_get_ticks(suid), TICKS_PRINTABLE), TICKS_DIGITS, buffer);
	print_digits(Min(suid_get_suffix(suid), SUFFIX_PRINTABLE), SUFFIX_DIGITS,
				 buffer + TICKS_DIGITS);
	buffer[SUID_TEXT_LENGTH] = '\0';
}

char *
suid_cstring(const Suid *suid)
{
	char	   *buffer;

	if (suid == NULL)
		return pstrdup("null");
	buffer = palloc(SUID_TEXT_LENGTH + 1);
	suid_print(suid, buffer);
	return buffer;
}

/*
 * The text form as a text datum, palloc'd.
 */
Datum
suid_text_datum(const Suid *suid)
{
	char		buffer[SUID_TEXT_LENGTH + 1];

	suid_print(suid, buffer);
	return PointerGetDatum(cstring_to_text_with_len(buffer, SUID_TEXT_LENGTH));
}

Datum
unsafemv_suid_in(PG_FUNCTION_ARGS)
{
	char	   *string = PG_GETARG_CSTRING(0);
	size_t		length = strlen(string);
	Suid	   *result = (Suid *) palloc(sizeof(Suid));
	ErrorCode	code = suid_scan(string, (int) length, result);

	if (code != ERROR_NONE)
		COMPAT_INPUT_ERROR(fcinfo, suid_errmsg(code, string, (int) length));
	PG_RETURN_SUID_P(result);
}

Datum
unsafemv_suid_out(PG_FUNCTION_ARGS)
{
	char	   *buffer = palloc(SUID_TEXT_LENGTH + 1);

	suid_print(PG_GETARG_SUID_P(0), buffer);
	PG_RETURN_CSTRING(buffer);
}

Datum
unsafemv_suid_recv(PG_FUNCTION_ARGS)
{
	StringInfo	message = (StringInfo) PG_GETARG_POINTER(0);
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	memcpy(result->data, pq_getmsgbytes(message, SUID_BYTES), SUID_BYTES);
	suid_check(suid_get_ticks(result), suid_get_suffix(result));
	PG_RETURN_SUID_P(result);
}

Datum
unsafemv_suid_send(PG_FUNCTION_ARGS)
{
	StringInfoData buffer;

	pq_begintypsend(&buffer);
	pq_sendbytes(&buffer, (char *) PG_GETARG_SUID_P(0)->data, SUID_BYTES);
	PG_RETURN_BYTEA_P(pq_endtypsend(&buffer));
}

/*
 * The cast from text and varchar.
 */
Datum
unsafemv_suid_from_text(PG_FUNCTION_ARGS)
{
	text	   *string = PG_GETARG_TEXT_PP(0);
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	suid_parse(VARDATA_ANY(string), (int) VARSIZE_ANY_EXHDR(string), result, NULL);
	PG_RETURN_SUID_P(result);
}

/*
 * The cast to text.
 */
Datum
unsafemv_suid_to_text(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(suid_text_datum(PG_GETARG_SUID_P(0)));
}

/* ---------------------------------------------------------------------------
 * Order
 * ---------------------------------------------------------------------------
 */

/*
 * Less than, equal to or greater than zero, as memcmp.
 */
int
suid_compare(const Suid *a, const Suid *b)
{
	return memcmp(a->data, b->data, SUID_BYTES);
}

#define compare_arguments() \
	suid_compare(PG_GETARG_SUID_P(0), PG_GETARG_SUID_P(1))

Datum
unsafemv_suid_lt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() < 0);
}

Datum
unsafemv_suid_le(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() <= 0);
}

Datum
unsafemv_suid_eq(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() == 0);
}

Datum
unsafemv_suid_ge(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() >= 0);
}

Datum
unsafemv_suid_gt(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() > 0);
}

Datum
unsafemv_suid_ne(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(compare_arguments() != 0);
}

Datum
unsafemv_suid_cmp(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(compare_arguments());
}

Datum
unsafemv_suid_smaller(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(compare_arguments() <= 0 ? PG_GETARG_DATUM(0) : PG_GETARG_DATUM(1));
}

Datum
unsafemv_suid_larger(PG_FUNCTION_ARGS)
{
	PG_RETURN_DATUM(compare_arguments() >= 0 ? PG_GETARG_DATUM(0) : PG_GETARG_DATUM(1));
}

static int
suid_sort_compare(Datum x, Datum y, SortSupport ssup)
{
	(void) ssup;
	return suid_compare(DatumGetSuidP(x), DatumGetSuidP(y));
}

/*
 * The first bytes as an unsigned integer: on 64-bit machines exactly the ticks.
 */
static Datum
suid_abbreviate(Datum original, SortSupport ssup)
{
	SuidSortSupport *state = (SuidSortSupport *) ssup->ssup_extra;
	Datum		key;

	memcpy(&key, DatumGetSuidP(original)->data, sizeof(Datum));
	state->input_count++;

	if (state->estimating)
	{
		uint32		folded;

#if SIZEOF_DATUM == 8
		folded = (uint32) key ^ (uint32) ((uint64) key >> 32);
#else
		folded = (uint32) key;
#endif
		addHyperLogLog(&state->cardinality, DatumGetUInt32(hash_uint32(folded)));
	}

	/* Machine order, so that an integer comparison is a byte comparison. */
	return DatumBigEndianToNative(key);
}

/*
 * Many events of one tick (or a store that numbers them all in the suffix) make
 * abbreviated keys worthless: give up where they hardly tell values apart.
 */
static bool
suid_abbreviate_abort(int memtupcount, SortSupport ssup)
{
	SuidSortSupport *state = (SuidSortSupport *) ssup->ssup_extra;
	double		cardinality;

	if (memtupcount < 10000 || state->input_count < 10000 || !state->estimating)
		return false;

	cardinality = estimateHyperLogLog(&state->cardinality);

	/* Plenty of distinct keys already: stop counting, abbreviation has paid. */
	if (cardinality > 100000.0)
	{
		state->estimating = false;
		return false;
	}

	/* Below one distinct key in 2,000 values it costs more than it saves. */
	return cardinality < state->input_count / 2000.0 + 0.5;
}

Datum
unsafemv_suid_sortsupport(PG_FUNCTION_ARGS)
{
	SortSupport ssup = (SortSupport) PG_GETARG_POINTER(0);

	ssup->comparator = suid_sort_compare;
	ssup->ssup_extra = NULL;

	if (ssup->abbreviate)
	{
		MemoryContext old_context = MemoryContextSwitchTo(ssup->ssup_cxt);
		SuidSortSupport *state = palloc(sizeof(SuidSortSupport));

		state->input_count = 0;
		state->estimating = true;
		initHyperLogLog(&state->cardinality, 10);

		ssup->ssup_extra = state;
		ssup->comparator = ssup_datum_unsigned_cmp;
		ssup->abbrev_converter = suid_abbreviate;
		ssup->abbrev_abort = suid_abbreviate_abort;
		ssup->abbrev_full_comparator = suid_sort_compare;
		MemoryContextSwitchTo(old_context);
	}

	PG_RETURN_VOID();
}

Datum
unsafemv_suid_hash(PG_FUNCTION_ARGS)
{
	return hash_any(PG_GETARG_SUID_P(0)->data, SUID_BYTES);
}

Datum
unsafemv_suid_hash_extended(PG_FUNCTION_ARGS)
{
	return hash_any_extended(PG_GETARG_SUID_P(0)->data, SUID_BYTES,
							 (uint64) PG_GETARG_INT64(1));
}

/* ---------------------------------------------------------------------------
 * Time, position, parts
 * ---------------------------------------------------------------------------
 */

/*
 * A moment's ticks.  Raises where .NET has none.
 */
static uint64
ticks_from_timestamp(TimestampTz moment)
{
	/* Compared before anything is added: a sum could overflow. */
	if (TIMESTAMP_NOT_FINITE(moment) ||
		moment < -USECS_TO_POSTGRES ||
		moment > (int64) (TICKS_MAX / TICKS_PER_USEC) - USECS_TO_POSTGRES)
		RAISE(SUID_TICKS_INVALID,
			  errmsg("timestamp has no SUID ticks: %s", timestamptz_to_str(moment)),
			  errdetail("SUID ticks count from the year 1 to the end of the year 9999 (UTC)."));
	return (uint64) (moment + USECS_TO_POSTGRES) * TICKS_PER_USEC;
}

Datum
unsafemv_suid_from_timestamp(PG_FUNCTION_ARGS)
{
	uint64		ticks = ticks_from_timestamp(PG_GETARG_TIMESTAMPTZ(0));
	int64		suffix = PG_GETARG_INT64(1);
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	if (suffix < 0 || (uint64) suffix > SUFFIX_MAX)
		RAISE(SUID_SUFFIX_INVALID,
			  errmsg("SUID suffix out of range: " INT64_FORMAT, suffix),
			  errdetail("A suffix lies between 0 and " UINT64_FORMAT ".", SUFFIX_MAX));
	suid_set(result, ticks, (uint64) suffix);
	PG_RETURN_SUID_P(result);
}

Datum
unsafemv_suid_from_position(PG_FUNCTION_ARGS)
{
	int64		position = PG_GETARG_INT64(0);
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	if (position < 0 || (uint64) position > TICKS_MAX)
		RAISE(SUID_TICKS_INVALID,
			  errmsg("position out of range for a SUID: " INT64_FORMAT, position),
			  errdetail("A position lies between 0 and " UINT64_FORMAT ".", TICKS_MAX));
	suid_set(result, (uint64) position, 0);
	PG_RETURN_SUID_P(result);
}

/*
 * The parts are asked of stored values; a bound has none that could be returned.
 */
Datum
unsafemv_suid_timestamp(PG_FUNCTION_ARGS)
{
	uint64		ticks = suid_get_ticks(PG_GETARG_SUID_P(0));

	suid_check(ticks, 0);
	PG_RETURN_TIMESTAMPTZ((int64) (ticks / TICKS_PER_USEC) - USECS_TO_POSTGRES);
}

Datum
unsafemv_suid_ticks(PG_FUNCTION_ARGS)
{
	uint64		ticks = suid_get_ticks(PG_GETARG_SUID_P(0));

	suid_check(ticks, 0);
	PG_RETURN_INT64((int64) ticks);
}

Datum
unsafemv_suid_suffix(PG_FUNCTION_ARGS)
{
	uint64		suffix = suid_get_suffix(PG_GETARG_SUID_P(0));

	suid_check(0, suffix);
	PG_RETURN_INT64((int64) suffix);
}

/*
 * The clock now, not the transaction's start: one transaction makes many SUIDs.
 */
Datum
unsafemv_generate_suid(PG_FUNCTION_ARGS)
{
	uint32		suffix;
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	(void) fcinfo;
	if (!pg_strong_random(&suffix, sizeof(suffix)))
		elog(ERROR, "could not generate random values");
	suid_set(result, ticks_from_timestamp(GetCurrentTimestamp()),
			 suffix & GENERATED_SUFFIX_MASK);
	PG_RETURN_SUID_P(result);
}

/* ---------------------------------------------------------------------------
 * Bounds
 * ---------------------------------------------------------------------------
 */

/*
 * The least value above "head", or of all.  No valid suffix lies between a
 * suffix and its successor, and none above the greatest, so that adding one
 * never reaches into the next tick.
 */
void
suid_above(const Suid *head, Suid *result)
{
	uint64		suffix;

	if (head == NULL)
	{
		suid_set(result, 0, 0);
		return;
	}
	suffix = suid_get_suffix(head);
	suid_set(result, suid_get_ticks(head),
			 suffix < PG_UINT64_MAX ? suffix + 1 : suffix);
}

/*
 * Above every SUID and every other bound.
 */
void
suid_infinity(Suid *result)
{
	memset(result->data, 0xFF, SUID_BYTES);
}

Datum
unsafemv_suid_above(PG_FUNCTION_ARGS)
{
	Suid	   *result = (Suid *) palloc(sizeof(Suid));

	suid_above(PG_ARGISNULL(0) ? NULL : PG_GETARG_SUID_P(0), result);
	PG_RETURN_SUID_P(result);
}
