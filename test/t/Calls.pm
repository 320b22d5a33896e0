# One call of every function of the extension, with what it needs, for tests that must
# hold for all of them.  %s stands for the service.
package Calls;
use strict;
use warnings;

use Application qw($application $event_table);
use Exporter 'import';

our @EXPORT_OK = qw($setup @writes @reads @global %other);

# Roles, an event table, procedure prepare(service) and function state(service).
our $setup = $application . $event_table . <<'SQL';
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN event -> 'plan';
CREATE TRIGGER deliver AFTER INSERT ON app.events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();

-- v: both lanes, entries, a marker, a remembered patch, a candidate as far as the
-- active generation; o: no safe rows, a settled tentative row; r: a retired
-- generation; p: a projection, one event folded, one delivered.
CREATE PROCEDURE app.prepare(service text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM unsafemv.create_view(service, 'v', indexes => '[{"id": "n", "type": "integer", "path": "n"}]');
	PERFORM unsafemv.apply_safe(service, 'v', NULL, app.pos(1),
		'{"upserts": [{"rowKey": "a", "value": {"n": 1}}, {"rowKey": "b", "value": {"n": 1}}, {"rowKey": "c", "value": {"n": 1}}]}', 'e1');
	PERFORM unsafemv.apply(service, 'v', 'e4', app.pos(4), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}}], "upserts": [{"rowKey": "d", "value": {"n": 4}}]}');
	PERFORM unsafemv.apply(service, 'v', 'e3', app.pos(3), '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}');
	PERFORM unsafemv.apply(service, 'v', 'e9', app.pos(9), '{"patches": [{"kind": "json_patch", "rowKey": "f", "patch": {"p": 9}}]}');
	PERFORM unsafemv.begin_rebuild(service, 'v', 1);
	PERFORM unsafemv.apply_safe(service, 'v', NULL, app.pos(1),
		'{"upserts": [{"rowKey": "a", "value": {"n": 1}}, {"rowKey": "b", "value": {"n": 1}}, {"rowKey": "c", "value": {"n": 1}}]}', 'e1', generation => 1);
	PERFORM unsafemv.create_view(service, 'o', receipt_retention => '0');
	PERFORM unsafemv.apply(service, 'o', 'e5', app.pos(5), '{"upserts": [{"rowKey": "a", "value": {"n": 5}}]}');
	PERFORM unsafemv.apply(service, 'o', 'e6', app.pos(6), '{"upserts": [{"rowKey": "b", "value": {"n": 6}}]}');
	PERFORM unsafemv.observe_safe_receipt(service, 'o', 'e5', app.pos(5));
	PERFORM unsafemv.create_view(service, 'r');
	PERFORM unsafemv.begin_rebuild(service, 'r', 1);
	PERFORM unsafemv.promote_generation(service, 'r', 1, 0);
	PERFORM unsafemv.record_unsafe_failure(service, 'r', 'e7', app.pos(7), 'broken');
	PERFORM unsafemv.create_view(service, 'p');
	PERFORM unsafemv.attach_projection(service, 'p', 'app.events', 'app.plan');
	INSERT INTO app.events VALUES (service, 'e1', app.pos(1), '{"plan": {"upserts": [{"rowKey": "a", "value": {"n": 1}}]}}');
	PERFORM unsafemv.apply_safe(service, 'p', NULL, app.pos(1), '{"upserts": [{"rowKey": "a", "value": {"n": 1}}]}', 'e1');
	INSERT INTO app.events VALUES (service, 'e2', app.pos(2), '{"plan": {"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}}');
	PERFORM unsafemv.skip_event(service, 'p', 'e2', 'why');
	PERFORM unsafemv.acquire_kick(service, 'v', 'worker', '1 hour');
	PERFORM unsafemv.observe_lag(service, '3 s');
END $$;

-- Everything about a service, but times.
CREATE FUNCTION app.state(service text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(line, E'\n' ORDER BY line COLLATE "C") FROM (
	SELECT 'service ' || to_jsonb(t)::text AS line FROM unsafemv.services t WHERE service_id = $1
	UNION ALL SELECT 'view ' || (to_jsonb(t) - 'created_at')::text FROM unsafemv.views t WHERE service_id = $1
	UNION ALL SELECT 'generation ' || (to_jsonb(t) - 'created_at' - 'updated_at' - 'candidate_since' - 'rebuilt_at')::text FROM unsafemv.generations t WHERE service_id = $1
	UNION ALL SELECT 'row ' || to_jsonb(t)::text FROM unsafemv.rows t WHERE service_id = $1
	UNION ALL SELECT 'tentative ' || to_jsonb(t)::text FROM unsafemv.unsafe_rows t WHERE service_id = $1
	UNION ALL SELECT 'entry ' || to_jsonb(t)::text FROM unsafemv.index_entries t WHERE service_id = $1
	UNION ALL SELECT 'receipt ' || (to_jsonb(t) - 'observed_at')::text FROM unsafemv.receipts t WHERE service_id = $1
	UNION ALL SELECT 'marker ' || to_jsonb(t)::text FROM unsafemv.markers t WHERE service_id = $1
	UNION ALL SELECT 'finding ' || (to_jsonb(t) - 'first_seen' - 'last_seen' - 'resolved_at' || jsonb_build_object('open', resolved_at IS NULL))::text FROM unsafemv.findings t WHERE service_id = $1
	UNION ALL SELECT 'kick ' || (to_jsonb(t) - 'lease_until' - 'granted_at' - 'not_before' || jsonb_build_object('until', lease_until > clock_timestamp() + interval '30 minutes'))::text FROM unsafemv.kicks t WHERE service_id = $1
	UNION ALL SELECT 'projection ' || (to_jsonb(t) - 'last_pass' - 'last_deadline')::text FROM unsafemv.projections t WHERE service_id = $1
	UNION ALL SELECT 'lag ' || (to_jsonb(t) - 'observed_at')::text FROM unsafemv.lags t WHERE service_id = $1
	UNION ALL SELECT 'event ' || (to_jsonb(t) - 'arrived_at')::text FROM app.events t WHERE service_id = $1
	UNION ALL SELECT 'relation ' || relname FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relname = 'typed_' || $1
) x $$;
SQL

our @writes = (
	[ create_view => q{SELECT unsafemv.create_view('%s', 'new')} ],
	[ alter_view => q{SELECT unsafemv.alter_view('%s', 'p', '2 days', '1 s', '2 s')} ],
	[ drop_view => q{SELECT unsafemv.drop_view('%s', 'v')} ],
	[ apply => q{SELECT unsafemv.apply('%s', 'v', 'e6', app.pos(6), '{"deletes": ["b"], "upserts": [{"rowKey": "d", "value": {"n": 6}}, {"rowKey": "e", "value": {"n": 6}}],
		"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 6}}, {"kind": "json_patch", "rowKey": "g", "patch": {"p": 6}}]}')} ],
	[ apply_batch => q{SELECT unsafemv.apply_batch('%s', 'v', jsonb_build_array(
		jsonb_build_object('eventId', 'e7', 'suid', app.pos(7)::text, 'mutations', '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 7}}]}'::jsonb),
		jsonb_build_object('eventId', 'e5', 'suid', app.pos(5)::text, 'mutations', '{"upserts": [{"rowKey": "e", "value": {"n": 5}}]}'::jsonb),
		jsonb_build_object('eventId', 'e2', 'suid', app.pos(2)::text, 'mutations', '{"upserts": [{"rowKey": "d", "value": {"n": 2}}]}'::jsonb),
		jsonb_build_object('eventId', 'e0', 'suid', app.pos(0)::text, 'mutations', '{}'::jsonb)))} ],
	[ apply_safe => q{SELECT unsafemv.apply_safe('%s', 'v', app.pos(1), app.pos(4), '{"deletes": ["b"], "patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}}],
		"upserts": [{"rowKey": "d", "value": {"n": 4}}]}', 'e4')} ],
	[ apply_safe_batch => q{SELECT unsafemv.apply_safe_batch('%s', 'v', app.pos(1), jsonb_build_array(
		jsonb_build_object('eventId', 'e3', 'suid', app.pos(3)::text, 'mutations', '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}'::jsonb),
		jsonb_build_object('eventId', 'e4', 'suid', app.pos(4)::text, 'mutations', '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}}], "upserts": [{"rowKey": "d", "value": {"n": 4}}]}'::jsonb)))} ],
	[ observe_arrival => q{SELECT unsafemv.observe_arrival('%s', 'v', 'e0', app.pos(0))} ],
	[ observe_safe_receipt => q{SELECT unsafemv.observe_safe_receipt('%s', 'o', 'e6', app.pos(6))} ],
	[ begin_rebuild => q{SELECT unsafemv.begin_rebuild('%s', 'v', 2)} ],
	[ mark_generation_rebuilt => q{SELECT unsafemv.mark_generation_rebuilt('%s', 'v', 1, 1, app.pos(1), unsafemv.history_digest(NULL, 'e1', app.pos(1)))} ],
	[ promote_generation => q{SELECT unsafemv.promote_generation('%s', 'v', 1, 0)} ],
	[ reopen_generation => q{SELECT unsafemv.reopen_generation('%s', 'r', 0)} ],
	[ drop_generation => q{SELECT unsafemv.drop_generation('%s', 'v', 1)} ],
	[ dismiss_event => q{SELECT unsafemv.dismiss_event('%s', 'v', 'e4', app.pos(4), 'why')} ],
	[ garbage_collect => q{SELECT unsafemv.garbage_collect('%s', 'o', 0, 1, 'a', 1, app.pos(5), app.pos(5), strict => true)} ],
	[ collect_eligible => q{SELECT unsafemv.collect_eligible('%s', 'o', 0, 1, app.pos(5))} ],
	[ attach_projection => q{SELECT unsafemv.attach_projection('%s', 'o', 'app.events', 'app.plan')} ],
	[ detach_projection => q{SELECT unsafemv.detach_projection('%s', 'p')} ],
	[ observe_lag => q{SELECT unsafemv.observe_lag('%s', '1 hour') > '59 min'} ],
	[ deliver => q{INSERT INTO app.events VALUES ('%s', 'e3', app.pos(3), '{"plan": {"upserts": [{"rowKey": "b", "value": {"n": 3}}]}}')} ],
	[ skip_event => q{SELECT unsafemv.skip_event('%s', 'p', 'e3', 'why')} ],
	[ retry_event => q{SELECT unsafemv.retry_event('%s', 'p', 'e2')} ],
	[ acquire_kick => q{SELECT dirty, lease_epoch FROM unsafemv.acquire_kick('%s', 'o', 'another', '1 hour')} ],
	[ next_kick => q{SELECT view_id, lease_epoch FROM unsafemv.next_kick('another', '1 hour', ARRAY['%s'])} ],
	[ renew_kick => q{SELECT unsafemv.renew_kick('%s', 'v', 'worker', 1, '1 min') > clock_timestamp()} ],
	[ finish_kick => q{SELECT unsafemv.finish_kick('%s', 'v', 'worker', app.pos(9), 1)} ],
	[ record_checkpoint_ahead => q{SELECT unsafemv.record_checkpoint_ahead('%s', 'v', app.pos(0))} ],
	[ record_ordering_quarantine => q{SELECT unsafemv.record_ordering_quarantine('%s', 'v', 'e0', app.pos(0))} ],
	[ record_unsafe_failure => q{SELECT unsafemv.record_unsafe_failure('%s', 'v', 'e8', app.pos(8), 'why')} ],
	[ resolve_finding => q{SELECT unsafemv.resolve_finding('%s', 'r', 'unsafe-failure')} ],
	[ create_typed_view => q{SELECT unsafemv.create_typed_view('%s', 'v', 'app.typed_%s', 'n bigint')} ],
);

# Not of one service.
our @global = (
	[ worker_kick => q{SELECT view_id FROM unsafemv.worker_kick('another', '1 hour')} ],
	[ start_worker => q{SELECT unsafemv.start_worker()} ],
);

our @reads = (
	[ read_instance => q{SELECT * FROM unsafemv.read_instance('%s', 'v', 1)} ],
	[ read_active => q{SELECT * FROM unsafemv.read_active('%s', 'v')} ],
	[ next_generation => q{SELECT unsafemv.next_generation('%s', 'v')} ],
	[ read_findings => q{SELECT * FROM unsafemv.read_findings('%s', 'r')} ],
	[ read_meta => q{SELECT * FROM unsafemv.read_meta('%s', 'v')} ],
	[ has_target_receipt => q{SELECT unsafemv.has_target_receipt('%s', 'v', 'e4', app.pos(4))} ],
	[ read_wait_state => q{SELECT * FROM unsafemv.read_wait_state('%s', 'v', 'e4', app.pos(4))} ],
	[ wait_for => q{SELECT unsafemv.wait_for('%s', 'v', 'e4', app.pos(4)), unsafemv.wait_for('%s', 'v', 'e4', app.pos(4), '0', 'safe')} ],
	[ wait_until => q{CALL unsafemv.wait_until('%s', 'v', 'e4', app.pos(4))} ],
	[ query_composed_page => q{SELECT * FROM unsafemv.query_composed_page('%s', 'v')} ],
	[ composed_page => q{SELECT unsafemv.composed_page('%s', 'v', 2)} ],
	[ query_rows => q{SELECT * FROM unsafemv.query_rows('%s', 'v', 'n', 'integer')} ],
	[ read_rows => q{SELECT * FROM unsafemv.read_rows('%s', 'v')} ],
	[ read_index_entries => q{SELECT * FROM unsafemv.read_index_entries('%s', 'v')} ],
	[ require_open_gate => q{SELECT row_key, value FROM unsafemv.current_rows WHERE service_id = '%s' AND view_id = 'v' ORDER BY 1} ],
	[ history_digest => q{SELECT unsafemv.history_digest(NULL, '%s', app.pos(1))} ],
	[ check => q{SELECT count(*) FROM unsafemv.check('%s')} ],
	[ error_catalogue => q{SELECT count(*) FROM unsafemv.errors} ],
	[ status => q{SELECT view_id, generation, head, tentative_rows, unsettled, gate, findings FROM unsafemv.status WHERE service_id = '%s' ORDER BY 1} ],
);

# Those without a call here: procedures that commit, what works on values alone, what
# other functions and the server call, and what is about processes or rights.
our %other = map { $_ => 1 } qw(follow rebuild rebuild_and_promote stop_worker
  jsonb_merge_patch jsonb_apply_patch derived_entries refold views_changed generate_suid suid_above grant_access projections_guard);

1;
