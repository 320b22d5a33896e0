/*
 * access.c
 *	  Rights: what a reader, a writer and an administrator need, and the guard of
 *	  the one table that says as whom code runs.
 *
 * Guarantees: every function runs with its caller's rights, so rights on functions
 * alone open nothing; grant_access gives a role both, and a level includes the
 * levels before it.  Whoever may write a projection's row could name any role in
 * it, and its functions would run as that role; so the guard lets a row name only
 * a role whose rights the writer has anyway.
 *
 * Locks: those of GRANT.  Granting twice changes nothing; a crash leaves nothing.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "errors.h"
#include "library.h"
#include "mutation.h"
#include "registry.h"
#include "statement.h"

UNSAFEMV_FUNCTION(unsafemv_grant_access);
UNSAFEMV_FUNCTION(unsafemv_projections_guard);

/* In this order: each includes those before it. */
static const char *const levels[] = {"reader", "writer", "admin"};

typedef struct LevelGrant
{
	const char *level;
	const char *privileges;		/* what stands between GRANT and TO */
} LevelGrant;

static const LevelGrant level_grants[] = {
	{"reader", "USAGE ON SCHEMA unsafemv"},
	{"reader", "SELECT ON unsafemv.services, unsafemv.views, unsafemv.generations, unsafemv.rows, "
		"unsafemv.unsafe_rows, unsafemv.index_entries, unsafemv.receipts, unsafemv.markers, "
		"unsafemv.findings, unsafemv.kicks, unsafemv.projections, unsafemv.lags, unsafemv.rebuilds, "
	"unsafemv.progress_state"},
	{"reader", "SELECT ON unsafemv.read_gates, unsafemv.tentative_rows, unsafemv.unsafe_index_entries, "
	"unsafemv.current_rows, unsafemv.status, unsafemv.progress, unsafemv.errors"},
	{"reader", "EXECUTE ON FUNCTION unsafemv.query_composed_page, unsafemv.composed_page, unsafemv.query_rows, "
		"unsafemv.read_rows, unsafemv.read_index_entries, unsafemv.read_meta, unsafemv.read_instance, "
		"unsafemv.read_active, unsafemv.has_target_receipt, unsafemv.next_generation, unsafemv.read_findings, "
		"unsafemv.read_wait_state, unsafemv.wait_for, unsafemv.require_open_gate, unsafemv.refold, "
	"unsafemv.error_catalogue"},
	{"reader", "EXECUTE ON PROCEDURE unsafemv.wait_until"},

	{"writer", "INSERT, UPDATE, DELETE ON unsafemv.rows, unsafemv.unsafe_rows, unsafemv.index_entries, "
	"unsafemv.receipts, unsafemv.markers"},
	{"writer", "UPDATE ON unsafemv.generations"},
	{"writer", "UPDATE (attempts, last_pass, last_deadline, last_stop) ON unsafemv.projections"},
	{"writer", "INSERT, UPDATE ON unsafemv.findings, unsafemv.kicks, unsafemv.lags, unsafemv.progress_state"},
	{"writer", "EXECUTE ON FUNCTION unsafemv.apply, unsafemv.apply_batch, unsafemv.apply_safe, "
		"unsafemv.apply_safe_batch, unsafemv.observe_arrival, unsafemv.observe_safe_receipt, "
		"unsafemv.history_digest, unsafemv.acquire_kick, unsafemv.next_kick, unsafemv.renew_kick, "
		"unsafemv.finish_kick, unsafemv.garbage_collect, unsafemv.collect_eligible, "
		"unsafemv.record_checkpoint_ahead, unsafemv.record_ordering_quarantine, unsafemv.record_unsafe_failure, "
	"unsafemv.jsonb_merge_patch, unsafemv.jsonb_apply_patch, unsafemv.observe_lag, unsafemv.worker_kick"},
	{"writer", "EXECUTE ON PROCEDURE unsafemv.follow"},

	{"admin", "INSERT, UPDATE, DELETE ON unsafemv.services, unsafemv.views, unsafemv.generations, unsafemv.rows, "
		"unsafemv.unsafe_rows, unsafemv.index_entries, unsafemv.receipts, unsafemv.markers, unsafemv.findings, "
	"unsafemv.kicks, unsafemv.projections, unsafemv.lags, unsafemv.rebuilds, unsafemv.progress_state"},
	{"admin", "EXECUTE ON FUNCTION unsafemv.create_view, unsafemv.alter_view, unsafemv.drop_view, "
		"unsafemv.create_typed_view, unsafemv.begin_rebuild, unsafemv.mark_generation_rebuilt, "
		"unsafemv.promote_generation, unsafemv.reopen_generation, unsafemv.drop_generation, "
		"unsafemv.dismiss_event, unsafemv.resolve_finding, unsafemv.check, unsafemv.derived_entries, "
		"unsafemv.attach_projection, unsafemv.detach_projection, unsafemv.deliver, unsafemv.skip_event, "
	"unsafemv.retry_event, unsafemv.start_worker, unsafemv.stop_worker"},
	{"admin", "EXECUTE ON PROCEDURE unsafemv.rebuild, unsafemv.rebuild_and_promote"},
};

/*
 * The caller must be able to grant everything, else GRANT would only warn of what
 * it left out: it must have the rights of the objects' owner.
 */
static void
require_owner(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	if (!has_privs_of_role(GetUserId(), owner))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_EXTENSION, "unsafemv");
}

/* grant_access(role, access) */
Datum
unsafemv_grant_access(PG_FUNCTION_ARGS)
{
	char	   *role;
	char	   *access;
	int			level;

	registry_require(fcinfo, 0, "role");
	registry_require(fcinfo, 1, "access");
	role = text_to_cstring(PG_GETARG_TEXT_PP(0));
	access = text_to_cstring(PG_GETARG_TEXT_PP(1));
	for (level = 0; level < (int) lengthof(levels); level++)
		if (strcmp(levels[level], access) == 0)
			break;
	if (level == lengthof(levels))
		RAISE(MV_VALUE_INVALID,
			  errmsg("access is \"%s\", neither reader, writer nor admin", mutation_clip(PG_GETARG_TEXT_PP(1))));
	(void) get_role_oid(role, false);	/* not PUBLIC, nor CURRENT_USER */
	require_owner(fcinfo->flinfo->fn_oid);

	statement_begin();
	for (int i = 0; i <= level; i++)
		for (int k = 0; k < (int) lengthof(level_grants); k++)
			if (strcmp(level_grants[k].level, levels[i]) == 0)
				statement_utility(psprintf("GRANT %s TO %s", level_grants[k].privileges,
										   quote_identifier(role)));
	statement_end();
	PG_RETURN_BOOL(true);
}

/* Trigger on the table of projections, before a row that says what runs as whom. */
Datum
unsafemv_projections_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HeapTuple	row;
	TupleDesc	columns;
	char	   *role;
	Oid			role_oid;

	if (!CALLED_AS_TRIGGER(fcinfo))
		elog(ERROR, "not called as a trigger");
	row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple : trigger->tg_trigtuple;
	columns = trigger->tg_relation->rd_att;
	role = SPI_getvalue(row, columns, SPI_fnumber(columns, "attached_role"));

	/* A superuser may restore a dump before its roles are there. */
	if (role != NULL && !superuser())
	{
		role_oid = get_role_oid(role, true);
		if (!OidIsValid(role_oid) || !has_privs_of_role(GetUserId(), role_oid))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("role \"%s\" must not make a projection run as role \"%s\"",
							GetUserNameFromId(GetUserId(), false), role)));
	}
	return PointerGetDatum(row);
}
