/*
 * source.c
 *	  Reads the source of a projection.
 *
 * Guarantees: everything runs as the role that attached, with that role's rights
 * and row level security; nothing of a value becomes part of an SQL text, only the
 * source's qualified and quoted name.  Reads follow (service_id, suid) or
 * (service_id, arrived_at), so that they cost what they return.
 *
 * Takes the locks of a SELECT, writes nothing.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "errors.h"
#include "source.h"

#define BY_TYPE(projection, n) \
	((projection)->has_types ? " AND s.event_type = ANY ($" n ") AND s.event_type COLLATE \"C\" = ANY ($" n ")" : "")

/*
 * Names are bytes: a column's own collation may take others for equal.  The plain
 * comparisons are for indexes.
 */
#define OF_SERVICE(alias) \
	alias ".service_id = $1 AND " alias ".service_id COLLATE \"C\" = $1"

/* The columns of a source without the event itself. */
#define PLACE_COLUMNS	"s.event_id::text, s.suid, NULL::jsonb, s.arrived_at"

static uint64
query(const Projection *projection, const char *sql, const char *arguments, Datum *values)
{
	ProjectionRole before;
	uint64		found;

	projection_enter(projection, &before);
	found = statement_query(sql, arguments, values, NULL);
	projection_leave(&before);
	return found;
}

static Portal
open_cursor(const Projection *projection, const char *sql, const char *arguments, Datum *values)
{
	ProjectionRole before;
	Portal		cursor;

	projection_enter(projection, &before);
	cursor = statement_cursor_open(sql, arguments, values, NULL);
	projection_leave(&before);
	return cursor;
}

static void
broken(const Projection *projection, const char *column)
{
	RAISE(MV_VALUE_INVALID,
		  errmsg("source %s has an event without %s", projection->source, column),
		  registry_errdetail(projection->view),
		  errhint("Declare the columns NOT NULL."));
}

/* The last result's rows. */
static int
take_events(const Projection *projection, uint64 found, bool with_event, SourceEvent **events)
{
	*events = palloc0(Max(found, 1) * sizeof(SourceEvent));
	for (uint64 row = 0; row < found; row++)
	{
		SourceEvent *event = &(*events)[row];
		bool		isnull;
		Datum		value = statement_value(row, 1, &isnull);

		if (isnull || VARSIZE_ANY_EXHDR(DatumGetTextPP(value)) == 0)
			broken(projection, "event_id");
		event->event_id = DatumGetTextPP(value);
		(void) mutation_check_length("event_id", event->event_id, LIMIT_EVENT_ID, NULL);
		if (!statement_suid(row, 2, &event->suid))
			broken(projection, "suid");
		value = statement_value(row, 3, &isnull);
		if (with_event)
		{
			if (isnull)
				broken(projection, "event");
			event->event = DatumGetJsonbP(value);
		}
		value = statement_value(row, 4, &isnull);
		if (isnull)
			broken(projection, "arrived_at");
		event->arrived_at = DatumGetTimestampTz(value);
	}
	return found;
}

/* Events after a SUID, in order, with or without what they say. */
static int
read_after(const Projection *projection, const Suid *after, int64 limit, bool with_event, SourceEvent **events)
{
	Datum		values[4];
	Suid		bound;
	char	   *sql;

	suid_above(after, &bound);
	sql = psprintf("SELECT %s FROM %s s "
				   "WHERE " OF_SERVICE("s") " AND s.suid OPERATOR(unsafemv.>=) $2%s ORDER BY s.suid LIMIT $3",
				   with_event ? "s.event_id::text, s.suid, s.event, s.arrived_at" : PLACE_COLUMNS,
				   projection->source, BY_TYPE(projection, "4"));
	values[0] = PointerGetDatum(projection->view->service_id);
	values[1] = SuidPGetDatum(&bound);
	values[2] = Int64GetDatum(limit);
	values[3] = projection->event_types;
	return take_events(projection,
					   query(projection, sql, projection->has_types ? "tsnT" : "tsn", values),
					   with_event, events);
}

/* May an event's own value be to blame, as where a view casts it? */
static bool
is_of_an_event(const ErrorData *failure)
{
	switch (ERRCODE_TO_CATEGORY(failure->sqlerrcode))
	{
		case ERRCODE_DATA_EXCEPTION:
		case ERRCODE_PLPGSQL_ERROR:
			return true;
		default:
			return false;
	}
}

/* The same in a subtransaction; how many, or -1 with an event's *failure. */
static int
try_read(const Projection *projection, const Suid *after, int64 limit, SourceEvent **events, ErrorData **failure)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile int count = -1;

	*failure = NULL;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		count = read_after(projection, after, limit, true, events);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		*failure = errors_roll_back(caller, owner);
		if (!is_of_an_event(*failure))
			ReThrowError(*failure);
	}
	PG_END_TRY();
	return count;
}

int
source_read(const Projection *projection, const Suid *after, int64 limit, SourceEvent **events,
			int *readable, ErrorData **failure)
{
	int			count = try_read(projection, after, limit, events, failure);
	SourceEvent *first = NULL;
	ErrorData  *ignored;

	*readable = count;
	if (*failure == NULL)
		return count;
	count = read_after(projection, after, limit, false, events);
	for (*readable = -1, limit /= 2; *readable < 0 && limit > 0; limit /= 2)
		*readable = try_read(projection, after, limit, &first, &ignored);
	*readable = Min(Max(*readable, 0), count);
	for (int i = 0; i < *readable; i++)
		(*events)[i] = first[i];
	return count;
}

int64
source_count(const Projection *projection, const Suid *after, const Suid *upto)
{
	Datum		values[4];
	Suid		bound;
	Suid		end;
	bool		isnull;
	char	   *sql;

	suid_above(after, &bound);
	if (upto == NULL)
		suid_infinity(&end);
	else
		end = *upto;
	sql = psprintf("SELECT pg_catalog.count(*) FROM %s s WHERE " OF_SERVICE("s") " "
				   "AND s.suid OPERATOR(unsafemv.>=) $2 AND s.suid OPERATOR(unsafemv.<=) $3%s",
				   projection->source, BY_TYPE(projection, "4"));
	values[0] = PointerGetDatum(projection->view->service_id);
	values[1] = SuidPGetDatum(&bound);
	values[2] = SuidPGetDatum(&end);
	values[3] = projection->event_types;
	(void) query(projection, sql, projection->has_types ? "tssT" : "tss", values);
	return DatumGetInt64(statement_value(0, 1, &isnull));
}

bool
source_maximum(const Projection *projection, Suid *maximum)
{
	Datum		values[1] = {PointerGetDatum(projection->view->service_id)};
	char	   *sql = psprintf("SELECT s.suid FROM %s s WHERE " OF_SERVICE("s") " AND s.suid IS NOT NULL "
							   "ORDER BY s.suid DESC LIMIT 1", projection->source);

	return query(projection, sql, "t", values) > 0 && statement_suid(0, 1, maximum);
}

int
source_find(const Projection *projection, Datum *suids, int count, SourceEvent **events)
{
	Datum		values[3];
	char	   *sql = psprintf("SELECT s.event_id::text, s.suid, s.event, s.arrived_at "
							   "FROM pg_catalog.unnest($2) AS k(suid), LATERAL (SELECT x.* FROM %s x "
							   "WHERE " OF_SERVICE("x") " AND x.suid OPERATOR(unsafemv.=) k.suid OFFSET 0) s WHERE true%s",
							   projection->source, BY_TYPE(projection, "3"));

	values[0] = PointerGetDatum(projection->view->service_id);
	values[1] = statement_suid_array(suids, NULL, count);
	values[2] = projection->event_types;
	return take_events(projection,
					   query(projection, sql, projection->has_types ? "tST" : "tS", values),
					   true, events);
}

Portal
source_arrived(const Projection *projection, TimestampTz since, const Suid *head)
{
	Datum		values[4];
	char	   *sql = psprintf("SELECT " PLACE_COLUMNS " FROM %s s WHERE " OF_SERVICE("s") " "
							   "AND s.arrived_at >= $2 AND s.suid OPERATOR(unsafemv.<=) $3%s ORDER BY s.arrived_at",
							   projection->source, BY_TYPE(projection, "4"));

	values[0] = PointerGetDatum(projection->view->service_id);
	values[1] = TimestampTzGetDatum(since);
	values[2] = SuidPGetDatum(head);
	values[3] = projection->event_types;
	return open_cursor(projection, sql, projection->has_types ? "tzsT" : "tzs", values);
}

Portal
source_history(const Projection *projection, const Suid *head)
{
	Datum		values[3];
	char	   *sql = psprintf("SELECT " PLACE_COLUMNS " FROM %s s WHERE " OF_SERVICE("s") " "
							   "AND s.suid OPERATOR(unsafemv.<=) $2%s ORDER BY s.suid",
							   projection->source, BY_TYPE(projection, "3"));

	values[0] = PointerGetDatum(projection->view->service_id);
	values[1] = SuidPGetDatum(head);
	values[2] = projection->event_types;
	return open_cursor(projection, sql, projection->has_types ? "tsT" : "ts", values);
}

int
source_fetch(const Projection *projection, Portal cursor, int limit, SourceEvent **events)
{
	ProjectionRole before;
	uint64		found;

	projection_enter(projection, &before);
	found = statement_cursor_fetch(cursor, limit);
	projection_leave(&before);
	return take_events(projection, found, false, events);
}
