/*
 * event.c
 *	  Parses the events of a batch.
 *
 * Guarantees: what comes out has an event id within its limit, a valid SUID and a
 * checked plan, or carries the error that says why not.  Pure: no SPI.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "event.h"
#include "jsonb_read.h"

typedef struct BatchState
{
	const text *service_id;
	const text *view_id;
	const DeclaredIndexes *declared;
	bool		safe_lane;
	int			position;
} BatchState;

#define EVENT_FAIL(state, sink, code, member, ...) \
	REJECT(sink, code, __VA_ARGS__, \
		   errdetail("Service \"%s\", view \"%s\", event \"%s\", path $[%d]%s.", \
					 mutation_clip((state)->service_id), mutation_clip((state)->view_id), \
					 event->event_id != NULL ? mutation_clip(event->event_id) : "", \
					 (state)->position, member))

/*
 * False: not a timestamp.  The caller raises in its turn, so nothing needs the
 * transaction that the input function's error has left alone.
 */
static bool
read_timestamp(char *string, TimestampTz *result)
{
	MemoryContext caller = CurrentMemoryContext;
	volatile bool good = true;

	PG_TRY();
	{
		*result = DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(string),
														  ObjectIdGetDatum(InvalidOid),
														  Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(caller);
		FlushErrorState();
		good = false;
	}
	PG_END_TRY();
	return good;
}

static bool
parse_arrived_at(BatchState *state, const JsonbValue *value, Event *event, ErrorCode *sink)
{
	char	   *string;

	if (value->type == jbvNull)
		return true;
	if (value->type != jbvString)
	{
		EVENT_FAIL(state, sink, MV_VALUE_INVALID, ".arrivedAt", errmsg("arrivedAt is not a string"));
		return false;
	}
	string = pnstrdup(value->val.string.val, value->val.string.len);
	if (!read_timestamp(string, &event->arrived_at))
	{
		EVENT_FAIL(state, sink, MV_VALUE_INVALID, ".arrivedAt",
				   errmsg("arrivedAt \"%s\" is not a timestamp", errors_clip(string, strlen(string))));
		return false;
	}
	if (TIMESTAMP_NOT_FINITE(event->arrived_at))
	{
		EVENT_FAIL(state, sink, MV_VALUE_INVALID, ".arrivedAt", errmsg("arrivedAt is not finite"));
		return false;
	}
	event->has_arrived_at = true;
	return true;
}

static bool
parse_event(BatchState *state, const JsonbValue *object, Event *event, ErrorCode *sink)
{
	JsonbIterator *iterator;
	JsonbValue	name;
	JsonbValue	member;
	JsonbValue	mutations;
	bool		has_suid = false;
	bool		has_mutations = false;
	ErrorCode	code = ERROR_NONE;
	MutationSource source;

	if (object->type != jbvBinary || !JsonContainerIsObject(object->val.binary.data))
	{
		EVENT_FAIL(state, sink, MV_PLAN_INVALID, "", errmsg("event is not an object"));
		return false;
	}

	/* The id first, whatever comes before it: a report names the event. */
	{
		JsonbValue	id;

		if (getKeyJsonValueFromContainer(object->val.binary.data, "eventId", 7, &id) == NULL ||
			id.type == jbvNull || (id.type == jbvString && id.val.string.len == 0))
		{
			EVENT_FAIL(state, sink, MV_VALUE_INVALID, ".eventId", errmsg("event lacks its id"));
			return false;
		}
		if (id.type != jbvString)
		{
			EVENT_FAIL(state, sink, MV_VALUE_INVALID, ".eventId", errmsg("event id is not a string"));
			return false;
		}
		event->event_id = jsonb_string_text(&id);
		if (VARSIZE_ANY_EXHDR(event->event_id) > LIMIT_EVENT_ID)
		{
			EVENT_FAIL(state, sink, MV_LIMIT_EXCEEDED, ".eventId",
					   mutation_errmsg_limit("event id", event->event_id, LIMIT_EVENT_ID));
			return false;
		}
	}

	iterator = JsonbIteratorInit(object->val.binary.data);
	(void) JsonbIteratorNext(&iterator, &name, true);
	while (JsonbIteratorNext(&iterator, &name, true) == WJB_KEY)
	{
		(void) JsonbIteratorNext(&iterator, &member, true);
		if (jsonb_string_is(&name, "eventId"))
			continue;
		if (jsonb_string_is(&name, "suid"))
		{
			if (member.type == jbvNull)
				continue;
			if (member.type != jbvString)
			{
				EVENT_FAIL(state, sink, SUID_INVALID, ".suid", errmsg("SUID is not a string of 30 digits"));
				return false;
			}
			if (!suid_parse(member.val.string.val, member.val.string.len, &event->suid, &code))
			{
				EVENT_FAIL(state, sink, code, ".suid",
						   suid_errmsg(code, member.val.string.val, member.val.string.len));
				return false;
			}
			has_suid = true;
		}
		else if (jsonb_string_is(&name, "mutations"))
		{
			mutations = member;
			has_mutations = member.type != jbvNull;
		}
		else if (!state->safe_lane && jsonb_string_is(&name, "expectedRowVersion"))
		{
			if (member.type == jbvNull)
				continue;
			if (!index_entry_integer(&member, &event->expected_row_version) ||
				event->expected_row_version < 0)
			{
				EVENT_FAIL(state, sink, MV_ROW_VERSION_INVALID, ".expectedRowVersion",
						   errmsg("expected row version is not a whole number from 0 to %lld",
								  (long long) PG_INT64_MAX));
				return false;
			}
			event->has_expected = true;
		}
		else if (state->safe_lane && jsonb_string_is(&name, "arrivedAt"))
		{
			if (!parse_arrived_at(state, &member, event, sink))
				return false;
		}
		else
		{
			EVENT_FAIL(state, sink, MV_PLAN_INVALID, "",
					   errmsg("unknown member \"%s\" of an event",
							  errors_clip(name.val.string.val, name.val.string.len)),
					   errhint("Members are eventId, suid, mutations and %s.",
							   state->safe_lane ? "arrivedAt" : "expectedRowVersion"));
			return false;
		}
	}
	if (!has_suid || !has_mutations)
	{
		EVENT_FAIL(state, sink, MV_VALUE_INVALID, "",
				   errmsg("event lacks its %s", has_suid ? "mutations" : "SUID"));
		return false;
	}

	source.service_id = state->service_id;
	source.view_id = state->view_id;
	source.event_id = event->event_id;
	source.position = state->position;
	return mutation_parse(JsonbValueToJsonb(&mutations), &event->suid, state->declared,
						  &source, &event->plan, sink);
}

void
event_parse_batch(Jsonb *events, const text *service_id, const text *view_id,
				  const DeclaredIndexes *declared, bool safe_lane, bool report,
				  int *count, Event **result)
{
	BatchState	state = {service_id, view_id, declared, safe_lane, 0};
	JsonbIterator *iterator;
	JsonbValue	element;
	int			total;

	if (!JB_ROOT_IS_ARRAY(events) || JB_ROOT_IS_SCALAR(events))
		RAISE(MV_VALUE_INVALID, errmsg("events is not a JSON array"),
			  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)));
	total = JB_ROOT_COUNT(events);
	if (total > LIMIT_BATCH)
		RAISE(MV_LIMIT_EXCEEDED,
			  errmsg("batch has %d events, the limit is %d", total, LIMIT_BATCH),
			  errdetail("Service \"%s\", view \"%s\".", mutation_clip(service_id), mutation_clip(view_id)),
			  errhint("Split it."));

	*count = total;
	*result = palloc0(Max(total, 1) * sizeof(Event));
	iterator = JsonbIteratorInit(&events->root);
	(void) JsonbIteratorNext(&iterator, &element, true);
	for (int i = 0; i < total; i++)
	{
		Event	   *event = &(*result)[i];

		CHECK_FOR_INTERRUPTS();
		(void) JsonbIteratorNext(&iterator, &element, true);
		state.position = i;
		(void) parse_event(&state, &element, event, report ? &event->error : NULL);
	}
}
