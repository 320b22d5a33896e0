/*
 * deliver.c
 *	  The trigger function of event tables: what is inserted is applied.
 *
 * Guarantees: every event that the statement inserted is applied to every view of
 * its service that has a projection, in the same transaction, service by service in
 * C byte order and view by view in the order of their numbers; within a view by one
 * apply_batch of the plans that the projection makes, in SUID order.  A projection
 * with a key function plans from present rows, so its events are applied one by one.
 * Events whose type a projection does not want are left out there, without a
 * receipt; a plan of NULL leaves a receipt and changes no row.  Without an attached
 * projection nothing happens.
 *
 * Policy, of a view or of all: "raise" lets the error end the INSERT.  "record" runs
 * the view in a subtransaction; after an error the events are tried again by halves,
 * each in a subtransaction, and those that fail alone become unsafe-failure
 * findings: the INSERT succeeds, and follow folds them in its time.  What says
 * nothing about the event (serialization failures, deadlocks, cancelling, the
 * server's own trouble) is raised under both.
 *
 * Roles: the plan runs as the role that attached the projection.  The rest is the
 * inserting role's, who needs what apply needs and SELECT on unsafemv.projections.
 *
 * Locks: those of apply_batch, view after view, to the end of the transaction.
 * Transactions with several inserts may deadlock unless they go in SUID order, as
 * with several calls of apply.
 *
 * A rollback or crash leaves nothing: it is all the inserting transaction.
 *
 * Memory: at most CHUNK_EVENTS events and their plans at a time.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "findings.h"
#include "lane_unsafe.h"
#include "library.h"
#include "projection.h"
#include "registry.h"
#include "statement.h"

#define CHUNK_EVENTS	10000

UNSAFEMV_FUNCTION(unsafemv_deliver);

/* What the trigger reads of a row. */
typedef enum ColumnRole
{
	COLUMN_SERVICE,
	COLUMN_EVENT_ID,
	COLUMN_SUID,
	COLUMN_EVENT,
	COLUMN_TYPE,
	COLUMN_COUNT
} ColumnRole;

static const char *const column_names[COLUMN_COUNT] = {
	[COLUMN_SERVICE] = "service_id",
	[COLUMN_EVENT_ID] = "event_id",
	[COLUMN_SUID] = "suid",
	[COLUMN_EVENT] = "event",
	[COLUMN_TYPE] = "event_type",
};

typedef struct Column
{
	const char *name;
	int			number;			/* 0: the row has none */
	Oid			type;			/* without domains */
	FmgrInfo	output;
} Column;

typedef struct Policy
{
	const char *view_id;		/* NULL: of all others */
	bool		record;
} Policy;

typedef struct DeliverTrigger
{
	TriggerData *data;
	Column		columns[COLUMN_COUNT];
	text	   *service_id;		/* of every event, instead of a column */
	bool		whole_row;		/* the event is the row as an object */
	int			npolicies;
	Policy	   *policies;
} DeliverTrigger;

typedef struct InsertedEvent
{
	text	   *service_id;
	text	   *event_id;
	text	   *type;			/* NULL: none */
	Suid		suid;
	Jsonb	   *event;			/* NULL: not made of "json" yet */
	char	   *json;
	MemoryContext memory;		/* where it goes */
} InsertedEvent;

/* One view's share of a chunk. */
typedef struct Share
{
	const DeliverTrigger *trigger;
	const text *service_id;
	const text *view_id;
	MemoryContext memory;		/* that lives as long as this */
	bool		attached;
	Projection	projection;
	int			count;
	InsertedEvent **events;		/* in SUID order */
	const text *event_id;		/* at hand, for messages */
} Share;

/* ---------- the trigger's arguments ---------- */

static void
raise_argument(const DeliverTrigger *trigger, const char *argument)
{
	RAISE(MV_VALUE_INVALID,
		  errmsg("trigger argument \"%s\" is not understood", errors_clip(argument, strlen(argument))),
		  errdetail("Trigger \"%s\" of table \"%s\".", trigger->data->tg_trigger->tgname,
					RelationGetRelationName(trigger->data->tg_relation)),
		  errhint("Arguments are service_id=COLUMN, event_id=COLUMN, suid=COLUMN, event=COLUMN, event_type=COLUMN, event=*, service=NAME, on_error=raise, on_error=record, and on_error.VIEW=raise or record."));
}

/* on_error=POLICY or on_error.VIEW=POLICY; false: it is neither. */
static bool
read_policy(DeliverTrigger *trigger, const char *name, const char *value)
{
	Policy	   *policy = &trigger->policies[trigger->npolicies];

	if (strcmp(name, "on_error") == 0)
		policy->view_id = NULL;
	else if (strncmp(name, "on_error.", 9) == 0 && name[9] != '\0')
		policy->view_id = name + 9;
	else
		return false;
	policy->record = strcmp(value, "record") == 0;
	if (!policy->record && strcmp(value, "raise") != 0)
		return false;
	trigger->npolicies++;
	return true;
}

static void
read_argument(DeliverTrigger *trigger, const char *argument)
{
	const char *equals = strchr(argument, '=');
	const char *value = equals == NULL ? "" : equals + 1;
	char	   *name;

	if (*value == '\0')
		raise_argument(trigger, argument);
	name = pnstrdup(argument, equals - argument);
	for (int i = 0; i < COLUMN_COUNT; i++)
		if (strcmp(name, column_names[i]) == 0)
		{
			trigger->columns[i].name = value;
			if (i == COLUMN_EVENT)
				trigger->whole_row = strcmp(value, "*") == 0;
			return;
		}
	if (strcmp(name, "service") == 0)
		trigger->service_id = cstring_to_text(value);
	else if (!read_policy(trigger, name, value))
		raise_argument(trigger, argument);
}

/* Look the columns up in the row type. */
static void
find_columns(DeliverTrigger *trigger)
{
	TupleDesc	row = RelationGetDescr(trigger->data->tg_relation);

	for (int i = 0; i < COLUMN_COUNT; i++)
	{
		Column	   *column = &trigger->columns[i];
		Oid			output;
		bool		varlena;

		if ((i == COLUMN_SERVICE && trigger->service_id != NULL) ||
			(i == COLUMN_EVENT && trigger->whole_row))
			continue;
		for (int j = 0; j < row->natts; j++)
		{
			Form_pg_attribute attribute = TupleDescAttr(row, j);

			if (attribute->attisdropped || strcmp(NameStr(attribute->attname), column->name) != 0)
				continue;
			if (attribute->attgenerated != '\0' && attribute->attgenerated != ATTRIBUTE_GENERATED_STORED)
				RAISE(MV_VALUE_INVALID, errmsg("column \"%s\" is not stored", column->name),
					  errhint("Make it GENERATED ... STORED, or name another column in the trigger's arguments."));
			column->number = j + 1;
			column->type = getBaseType(attribute->atttypid);
			getTypeOutputInfo(column->type, &output, &varlena);
			fmgr_info(output, &column->output);
		}
		if (column->number == 0 && i != COLUMN_TYPE)
			RAISE(MV_VALUE_INVALID,
				  errmsg("table \"%s\" has no column \"%s\"",
						 RelationGetRelationName(trigger->data->tg_relation), column->name),
				  errhint("Name the column in the trigger's arguments: '%s=COLUMN'.", column_names[i]));
	}
	if (!trigger->whole_row && trigger->columns[COLUMN_EVENT].type != JSONBOID &&
		trigger->columns[COLUMN_EVENT].type != JSONOID)
		RAISE(MV_VALUE_INVALID,
			  errmsg("column \"%s\" is neither jsonb nor json", trigger->columns[COLUMN_EVENT].name),
			  errhint("Name another column with 'event=COLUMN', or take the whole row with 'event=*'."));
}

static void
read_trigger(FunctionCallInfo fcinfo, DeliverTrigger *trigger)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("deliver() is a trigger function")));
	if (!TRIGGER_FIRED_AFTER(data->tg_event) || !TRIGGER_FIRED_BY_INSERT(data->tg_event) ||
		!TRIGGER_FIRED_FOR_STATEMENT(data->tg_event) || data->tg_newtable == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" is not made as deliver() needs it", data->tg_trigger->tgname),
				 errhint("CREATE TRIGGER ... AFTER INSERT ON ... REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver().")));
	memset(trigger, 0, sizeof(DeliverTrigger));
	trigger->data = data;
	trigger->policies = palloc((data->tg_trigger->tgnargs + 1) * sizeof(Policy));
	for (int i = 0; i < COLUMN_COUNT; i++)
		trigger->columns[i].name = column_names[i];
	for (int i = 0; i < data->tg_trigger->tgnargs; i++)
		read_argument(trigger, data->tg_trigger->tgargs[i]);
	find_columns(trigger);
}

/* A view's own policy, else that of all, else raise. */
static bool
records_errors(const DeliverTrigger *trigger, const text *view_id)
{
	bool		record = false;
	char	   *name = text_to_cstring(view_id);

	for (int i = 0; i < trigger->npolicies; i++)
		if (trigger->policies[i].view_id == NULL)
			record = trigger->policies[i].record;
	for (int i = 0; i < trigger->npolicies; i++)
		if (trigger->policies[i].view_id != NULL && strcmp(trigger->policies[i].view_id, name) == 0)
			record = trigger->policies[i].record;
	return record;
}

/* ---------- the inserted rows ---------- */

static Datum
column_value(DeliverTrigger *trigger, TupleTableSlot *slot, ColumnRole role, bool *isnull)
{
	const Column *column = &trigger->columns[role];
	Datum		value = slot_getattr(slot, column->number, isnull);

	if (*isnull && role != COLUMN_TYPE)
		RAISE(MV_VALUE_INVALID,
			  errmsg("column \"%s\" of an inserted event is null", column->name),
			  errdetail("Trigger \"%s\" of table \"%s\".", trigger->data->tg_trigger->tgname,
						RelationGetRelationName(trigger->data->tg_relation)));
	return value;
}

static char *
column_string(DeliverTrigger *trigger, TupleTableSlot *slot, ColumnRole role)
{
	bool		isnull;
	Datum		value = column_value(trigger, slot, role, &isnull);

	return isnull ? NULL : OutputFunctionCall(&trigger->columns[role].output, value);
}

/* An identifier of at most "limit" bytes. */
static text *
column_text(DeliverTrigger *trigger, TupleTableSlot *slot, ColumnRole role, int limit)
{
	text	   *value = cstring_to_text(column_string(trigger, slot, role));

	if (VARSIZE_ANY_EXHDR(value) == 0)
		RAISE(MV_VALUE_INVALID,
			  errmsg("column \"%s\" of an inserted event is empty", trigger->columns[role].name));
	(void) mutation_check_length(column_names[role], value, limit, NULL);
	return value;
}

/* A SUID, its text, or a position. */
static void
column_suid(DeliverTrigger *trigger, TupleTableSlot *slot, Suid *result)
{
	bool		isnull;
	Datum		value = column_value(trigger, slot, COLUMN_SUID, &isnull);
	Oid			type = trigger->columns[COLUMN_SUID].type;

	if (type == statement_suid_type())
		*result = *DatumGetSuidP(value);
	else if (type == INT8OID || type == INT4OID)
	{
		Datum		position = type == INT8OID ? value : Int64GetDatum(DatumGetInt32(value));

		*result = *DatumGetSuidP(DirectFunctionCall1(unsafemv_suid_from_position, position));
	}
	else
	{
		char	   *string = column_string(trigger, slot, COLUMN_SUID);

		(void) suid_parse(string, strlen(string), result, NULL);
	}
}

/* What an event says, as jsonb or as the text of one. */
static void
column_event(DeliverTrigger *trigger, TupleTableSlot *slot, InsertedEvent *event)
{
	bool		isnull;
	Datum		value;

	event->event = NULL;
	event->json = NULL;
	event->memory = CurrentMemoryContext;
	if (trigger->whole_row)
	{
		value = DirectFunctionCall1(row_to_json, ExecFetchSlotHeapTupleDatum(slot));
		event->json = TextDatumGetCString(value);
		return;
	}
	value = column_value(trigger, slot, COLUMN_EVENT, &isnull);
	if (trigger->columns[COLUMN_EVENT].type == JSONBOID)
		event->event = DatumGetJsonbPCopy(value);
	else
		event->json = TextDatumGetCString(value);
}

/* json takes what jsonb does not: that is the fault of this event, for the views that want it. */
static Jsonb *
event_jsonb(InsertedEvent *event)
{
	if (event->event == NULL)
	{
		MemoryContext caller = MemoryContextSwitchTo(event->memory);

		event->event = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(event->json)));
		MemoryContextSwitchTo(caller);
	}
	return event->event;
}

static void
read_event(DeliverTrigger *trigger, TupleTableSlot *slot, InsertedEvent *event)
{
	char	   *type;

	event->service_id = trigger->service_id != NULL ? trigger->service_id :
		column_text(trigger, slot, COLUMN_SERVICE, LIMIT_SERVICE_ID);
	event->event_id = column_text(trigger, slot, COLUMN_EVENT_ID, LIMIT_EVENT_ID);
	column_suid(trigger, slot, &event->suid);
	column_event(trigger, slot, event);
	type = trigger->columns[COLUMN_TYPE].number == 0 ? NULL : column_string(trigger, slot, COLUMN_TYPE);
	event->type = type == NULL ? NULL : cstring_to_text(type);
}

static int
compare_events(const void *a, const void *b)
{
	const InsertedEvent *event_a = a;
	const InsertedEvent *event_b = b;
	int			order = mutation_compare_text(event_a->service_id, event_b->service_id);

	return order != 0 ? order : suid_compare(&event_a->suid, &event_b->suid);
}

/* ---------- one view ---------- */

static void
describe_share(void *argument)
{
	const Share *share = argument;

	if (share->event_id != NULL)
		errcontext("delivering event \"%s\" to service \"%s\", view \"%s\"", mutation_clip(share->event_id),
				   mutation_clip(share->service_id), mutation_clip(share->view_id));
	else
		errcontext("delivering %d events to service \"%s\", view \"%s\"", share->count,
				   mutation_clip(share->service_id), mutation_clip(share->view_id));
}

/* A keyed projection's event at hand. */
typedef struct KeyedEvent
{
	Projection *projection;
	InsertedEvent *event;
} KeyedEvent;

/* The plan of an event, from the present rows of its keys if it depends on them. */
static void
make_plan(Projection *projection, InsertedEvent *event, Jsonb *rows, MutationPlan *result)
{
	projection_parse(projection, event->event_id, &event->suid,
					 projection_plan(projection, event->event_id, event_jsonb(event), rows), result);
}

static void
make_keyed_plan(Jsonb *rows, MutationPlan *result, void *context)
{
	KeyedEvent *keyed = context;

	make_plan(keyed->projection, keyed->event, rows, result);
}

static void
apply_keyed(Share *share, InsertedEvent *event)
{
	KeyedEvent	keyed = {&share->projection, event};
	PlannedEvent planned = {event->event_id, event->suid};
	RowsPlan	rows_plan = {0};

	projection_keys(&share->projection, event->event_id, event_jsonb(event),
					&rows_plan.nkeys, &rows_plan.row_keys);
	rows_plan.make = make_keyed_plan;
	rows_plan.context = &keyed;
	lane_unsafe_apply(share->projection.view, &planned, 1, &rows_plan);
}

/* Does the projection want events of this type? */
static bool
wants(const Projection *projection, const text *type)
{
	Datum	   *types;
	bool	   *nulls;
	int			count;

	if (!projection->has_types)
		return true;
	deconstruct_array(DatumGetArrayTypeP(projection->event_types), TEXTOID, -1, false, TYPALIGN_INT,
					  &types, &nulls, &count);
	for (int i = 0; type != NULL && i < count; i++)
		if (!nulls[i] && mutation_compare_text(DatumGetTextPP(types[i]), type) == 0)
			return true;
	return false;
}

/*
 * Read the view's projection, and drop the events that it does not want.  The
 * view's lock is held.
 */
static void
prepare(Share *share, int first, int count)
{
	const DeliverTrigger *trigger = share->trigger;
	MemoryContext caller = MemoryContextSwitchTo(share->memory);
	int			wanted = 0;

	share->attached = projection_read(registry_locked_view(share->service_id, share->view_id),
									  &share->projection);
	MemoryContextSwitchTo(caller);
	if (!share->attached || !share->projection.has_types)
		return;
	if (trigger->columns[COLUMN_TYPE].number == 0)
		RAISE(MV_VALUE_INVALID,
			  errmsg("table \"%s\" has no column \"%s\"", RelationGetRelationName(trigger->data->tg_relation),
					 trigger->columns[COLUMN_TYPE].name),
			  registry_errdetail(share->projection.view),
			  errhint("The projection wants some types of events: name the column with 'event_type=COLUMN'."));
	for (int i = 0; i < share->count; i++)
		if (wants(&share->projection, share->events[i]->type))
			share->events[wanted++] = share->events[i];
	share->count = wanted;
}

/* Apply the events from "first" on. */
static void
apply_events(Share *share, int first, int count)
{
	PlannedEvent *planned;

	if (share->projection.key_name != NULL)
	{
		for (int i = first; i < first + count; i++)
		{
			CHECK_FOR_INTERRUPTS();
			share->event_id = share->events[i]->event_id;
			apply_keyed(share, share->events[i]);
		}
		share->event_id = NULL;
		return;
	}
	planned = palloc(Max(count, 1) * sizeof(PlannedEvent));
	for (int i = 0; i < count; i++)
	{
		InsertedEvent *event = share->events[first + i];

		CHECK_FOR_INTERRUPTS();
		share->event_id = event->event_id;
		planned[i].event_id = event->event_id;
		planned[i].suid = event->suid;
		make_plan(&share->projection, event, NULL, &planned[i].plan);
	}
	share->event_id = count == 1 ? share->events[first]->event_id : NULL;
	lane_unsafe_apply(share->projection.view, planned, count, NULL);
	share->event_id = NULL;
}

/* {"error": message, "code": SQLSTATE} */
static Jsonb *
error_detail(const ErrorData *error)
{
	const char *const members[][2] = {
		{"code", unpack_sql_state(error->sqlerrcode)},
		{"error", error->message},
		{"detail", error->detail},
	};
	JsonbParseState *state = NULL;

	(void) pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < (int) lengthof(members); i++)
	{
		JsonbValue	member;

		if (members[i][1] == NULL)
			continue;
		member.type = jbvString;
		member.val.string.val = pstrdup(members[i][0]);
		member.val.string.len = strlen(members[i][0]);
		(void) pushJsonbValue(&state, WJB_KEY, &member);
		member.val.string.val = pstrdup(members[i][1]);
		member.val.string.len = strlen(members[i][1]);
		(void) pushJsonbValue(&state, WJB_VALUE, &member);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* Take a step in a subtransaction; its error, or NULL. */
static ErrorData *
try_step(void (*step) (Share *share, int first, int count), Share *share, int first, int count)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		statement_begin();
		step(share, first, count);
		statement_end();
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(caller);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		error = errors_roll_back(caller, owner);
	}
	PG_END_TRY();
	share->event_id = NULL;
	if (error != NULL && errors_no_events_fault(error->sqlerrcode))
		ReThrowError(error);
	return error;
}

static void
record_failure(const Share *share, const InsertedEvent *event, const ErrorData *error)
{
	const View *view = registry_locked_view(share->service_id, share->view_id);

	statement_begin();
	(void) findings_record(view, registry_resolve_generation(view, false, 0), FINDING_UNSAFE_FAILURE,
						   event->event_id, &event->suid, error_detail(error));
	statement_end();
}

static void
apply_or_record(Share *share, int first, int count)
{
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	error = try_step(apply_events, share, first, count);
	if (error == NULL)
		return;
	if (count == 1)
		record_failure(share, share->events[first], error);
	else
	{
		apply_or_record(share, first, count / 2);
		apply_or_record(share, first + count / 2, count - count / 2);
	}
}

/* Deliver to a view without letting its errors out. */
static void
deliver_or_record(Share *share)
{
	ErrorData  *error = try_step(prepare, share, 0, share->count);

	/*
	 * What concerns the view, as a function that is gone: none can be
	 * applied.
	 */
	for (int i = 0; error != NULL && i < share->count; i++)
		record_failure(share, share->events[i], error);
	if (error == NULL && share->attached && share->count > 0)
		apply_or_record(share, 0, share->count);
}

/* Deliver events of one service to one view. */
static void
deliver_to_view(const DeliverTrigger *trigger, const text *service_id, const text *view_id,
				InsertedEvent *events, int count)
{
	Share		share = {.trigger = trigger,.service_id = service_id,.view_id = view_id};
	ErrorContextCallback context;

	context.callback = describe_share;
	context.arg = &share;
	context.previous = error_context_stack;
	error_context_stack = &context;
	statement_begin();
	share.memory = CurrentMemoryContext;
	share.count = count;
	share.events = palloc(Max(count, 1) * sizeof(InsertedEvent *));
	for (int i = 0; i < count; i++)
		share.events[i] = &events[i];
	registry_lock_shared(service_id, view_id);
	if (records_errors(trigger, view_id))
		deliver_or_record(&share);
	else
	{
		prepare(&share, 0, count);
		if (share.attached && share.count > 0)
			apply_events(&share, 0, share.count);
	}
	statement_end();
	error_context_stack = context.previous;
}

/* Deliver a chunk: sorted by service, then SUID. */
static void
deliver_events(const DeliverTrigger *trigger, InsertedEvent *events, int count)
{
	qsort(events, count, sizeof(InsertedEvent), compare_events);
	for (int first = 0, next; first < count; first = next)
	{
		text	   *service_id = events[first].service_id;
		Datum		values[1] = {PointerGetDatum(service_id)};
		uint64		found;
		text	  **views;

		for (next = first + 1; next < count; next++)
			if (mutation_compare_text(events[next].service_id, service_id) != 0)
				break;
		statement_begin();
		found = statement_execute(STATEMENT_DELIVER_VIEWS, values, NULL);
		views = palloc(Max(found, 1) * sizeof(text *));
		for (uint64 row = 0; row < found; row++)
		{
			bool		isnull;

			views[row] = DatumGetTextPP(statement_value(row, 1, &isnull));
		}
		for (uint64 row = 0; row < found; row++)
			deliver_to_view(trigger, service_id, views[row], &events[first], next - first);
		statement_end();
	}
}

Datum
unsafemv_deliver(PG_FUNCTION_ARGS)
{
	DeliverTrigger trigger;
	TupleTableSlot *slot;
	MemoryContext caller;
	MemoryContext chunk;
	InsertedEvent *events;
	int			pointer;
	bool		more = true;

	read_trigger(fcinfo, &trigger);
	chunk = AllocSetContextCreate(CurrentMemoryContext, "unsafemv deliver", ALLOCSET_DEFAULT_SIZES);
	caller = CurrentMemoryContext;
	events = palloc(CHUNK_EVENTS * sizeof(InsertedEvent));
	slot = MakeSingleTupleTableSlot(RelationGetDescr(trigger.data->tg_relation), &TTSOpsMinimalTuple);
	pointer = tuplestore_alloc_read_pointer(trigger.data->tg_newtable, EXEC_FLAG_REWIND);
	tuplestore_select_read_pointer(trigger.data->tg_newtable, pointer);
	tuplestore_rescan(trigger.data->tg_newtable);
	while (more)
	{
		int			count = 0;

		tuplestore_select_read_pointer(trigger.data->tg_newtable, pointer);
		MemoryContextSwitchTo(chunk);
		while (count < CHUNK_EVENTS &&
			   (more = tuplestore_gettupleslot(trigger.data->tg_newtable, true, false, slot)))
		{
			CHECK_FOR_INTERRUPTS();
			read_event(&trigger, slot, &events[count++]);
		}
		ExecClearTuple(slot);
		deliver_events(&trigger, events, count);
		MemoryContextSwitchTo(caller);
		MemoryContextReset(chunk);
	}
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(chunk);
	return PointerGetDatum(NULL);
}
