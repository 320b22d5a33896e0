# The worker: started by hand and with the server, cancelled, terminated, killed,
# without its extension, without a slot, sharing the views with another, on a standby
# that is promoted.  Scenarios 208, 215, 216, 223, 260.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster poll);

my $node = cluster('worker', <<'CONF', allows_streaming => 1);
max_worker_processes = 4
max_parallel_workers = 0
max_logical_replication_workers = 0
unsafemv.worker_naptime = 50ms
unsafemv.worker_lease = 2s
CONF

$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = public, unsafemv');

sub query { return $node->safe_psql('postgres', $_[0]); }

# The SQLSTATE of what must fail.
sub refused
{
	my ($server, $sql) = @_;
	my ($code, $out, $err) = $server->psql('postgres', $sql, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $err =~ /ERROR:\s+(\w+)/ ? $1 : "not refused: $out $err";
}

sub eventually
{
	my ($sql, $name) = @_;
	ok($node->poll_query_until('postgres', $sql), $name)
	  or diag(query('SELECT * FROM projections; SELECT * FROM kicks; SELECT * FROM findings; SELECT * FROM status'));
	return;
}

my $workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'unsafemv worker'";

# The plan waits where the test holds advisory lock 1 exclusively and the event says so.
my $objects = <<'SQL';
CREATE ROLE app;
CREATE TABLE events (
	service_id text NOT NULL,
	event_id text NOT NULL,
	suid unsafemv.suid NOT NULL,
	event jsonb NOT NULL,
	arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (service_id, event_id)
);
CREATE UNIQUE INDEX ON events (service_id, suid);
CREATE INDEX ON events (service_id, arrived_at);
GRANT SELECT ON events TO app;
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF event ? 'wait' THEN
		PERFORM pg_advisory_xact_lock_shared(1);
	END IF;
	RETURN CASE
		WHEN event ? 'create' THEN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event->>'create', 'value', event - 'create')))
		WHEN event ? 'rename' THEN jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'json_patch', 'rowKey', event->>'rename', 'patch', event - 'rename')))
		WHEN event ? 'delete' THEN jsonb_build_object('deletes', jsonb_build_array(event->>'delete'))
		WHEN event ? 'add' THEN jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'create', true, 'rowKey', event->>'add', 'patch', '{"n": 1}'::jsonb)))
	END;
END $$;
SQL

# The service "live" delivers by the trigger, all others by the source alone.
my $extension = <<'SQL';
CREATE EXTENSION unsafemv;
GRANT USAGE ON SCHEMA unsafemv TO app;
GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO app;
SQL
my $attach = <<'SQL';
CREATE FUNCTION put(service text, first bigint, last bigint, event jsonb) RETURNS bigint LANGUAGE sql AS $$
	WITH put AS (INSERT INTO events SELECT service, 'e' || n, unsafemv.suid_from_position(n), event FROM generate_series(first, last) n RETURNING 1)
	SELECT count(*) FROM put
$$;
CREATE FUNCTION attach(service text, view text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM unsafemv.create_view(service, view);
	SET LOCAL ROLE app;
	PERFORM unsafemv.attach_projection(service, view, 'events', 'plan');
	RESET ROLE;
	UPDATE unsafemv.projections SET window_floor = '200 ms', window_ceiling = '1 s' WHERE service_id = service;
END $$;
CREATE FUNCTION seen(service text, view text, consistency text) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(format('%s=%s%s', row_key, value, CASE WHEN unsafe THEN ' unsafe' ELSE '' END), ', ' ORDER BY row_key), '')
	FROM unsafemv.query_composed_page(service, view, NULL, consistency => consistency)
$$;
-- the whole view is settled up to a position
CREATE FUNCTION settled(service text, view text, last bigint) RETURNS boolean LANGUAGE sql AS $$
	SELECT coalesce((SELECT last_suid::unsafemv.suid OPERATOR(unsafemv.=) unsafemv.suid_from_position(last)
		FROM unsafemv.read_active(service, view)), false)
	AND NOT EXISTS (SELECT FROM unsafemv.status s WHERE s.service_id = service AND s.view_id = view AND (s.unsettled > 0 OR s.tentative_rows > 0))
$$;
SQL
my $trigger = <<'SQL';
CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
SQL

(my $extension_first = $extension) =~ s/^(CREATE EXTENSION.*?;)\n//;
query("$1\n$objects$extension_first$attach");

# Started by hand: one worker, as this role, in this database.
my $pid = query('SELECT start_worker()');
is(query("SELECT datname, usename FROM pg_stat_activity WHERE backend_type = 'unsafemv worker' AND pid = $pid"),
	'postgres|' . query('SELECT current_user'), 'start_worker gives the process id of a connected worker');

# 260: the source alone
query(q{SELECT attach('source', 'v'); SELECT put('source', 1, 1000, '{"add": "k"}');});
eventually(q{SELECT settled('source', 'v', 1000)}, 'scenario 260: events that only the source has are folded');
is(query(q{SELECT seen('source', 'v', 'safe')}), 'k={"n": 1000}', 'scenario 260: each once');
query(q{SELECT put('source', 1001, 1010, '{"add": "k"}')});
eventually(q{SELECT settled('source', 'v', 1010)}, 'scenario 260: and those that come later, without any delivery');
query(q{INSERT INTO events VALUES ('source', 'late', suid_from_text('000000000000000050000000000001'), '{"add": "k"}')});
eventually(q{SELECT EXISTS (SELECT FROM read_findings('source', 'v') WHERE kind = 'late-event' AND event_id = 'late')},
	'scenario 260: a late event is found');
is(refused($node, q{SELECT * FROM unsafemv.query_composed_page('source', 'v')}), 'UM005', 'scenario 260: it closes the reads');

# 208, 215, 216: delivered by the trigger; the worker waits while the test looks.
query("SELECT attach('live', 'v'); $trigger");
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
query(q{ALTER TABLE events DISABLE TRIGGER deliver; INSERT INTO events VALUES ('live', 'e0', suid_from_position(0), '{"wait": 1}'); ALTER TABLE events ENABLE TRIGGER deliver});
query(q{SELECT put('live', 1, 1, '{"create": "a", "name": "old"}'); SELECT put('live', 2, 2, '{"rename": "a", "name": "new"}')});
is(query(q{SELECT seen('live', 'v', 'composed')}), 'a={"name": "new"} unsafe', 'scenarios 208, 215: visible at once');
is(query(q{SELECT seen('live', 'v', 'safe')}), '', 'scenario 215: nothing safe');
is(query(q{SELECT unsettled FROM status WHERE service_id = 'live'}), '2', 'scenario 208: the view is dirty');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
eventually(q{SELECT settled('live', 'v', 2)}, 'scenarios 208, 215: a later pass settles');
is(query(q{SELECT seen('live', 'v', 'safe')}), 'a={"name": "new"}', 'scenario 215: the safe rows have it');
is(query(q{SELECT composed_page('live', 'v')->>'totalCount'}), '1', 'scenario 215: total 1');
query(q{SELECT put('live', 3, 3, '{"delete": "a"}')});
is(query(q{SELECT seen('live', 'v', 'composed')}), '', 'scenario 216: hidden at once');
is(query(q{SELECT composed_page('live', 'v')->>'totalCount'}), '0', 'scenario 216: total 0');
eventually(q{SELECT settled('live', 'v', 3)}, 'scenario 216: settled');
is(query(q{SELECT seen('live', 'v', 'composed')}), '', 'scenario 216: still hidden');
# In one transaction: the worker is quick.
like(query(q{BEGIN; SELECT put('live', 4, 4, '{"create": "a", "color": "red"}'); SELECT seen('live', 'v', 'composed'); COMMIT}),
	qr/^a=\{"color": "red"\} unsafe$/m, 'scenario 216: live again, nothing of the old value');
eventually(q{SELECT settled('live', 'v', 4)}, 'scenario 216: settled again');
is(query(q{SELECT seen('live', 'v', 'composed')}), 'a={"color": "red"}', 'scenario 216: the same then');

# A view without a projection is nobody's business.
query(q{SELECT create_view('foreign', 'v'); SELECT apply('foreign', 'v', 'e', suid_from_position(1), '{}')});

# Cancelled in the middle of a chunk: logged, and it goes on.
my $log = -s $node->logfile;
$holder->query_safe('SELECT pg_advisory_lock(1)');
query(q{SELECT attach('cancel', 'v'); ALTER TABLE events DISABLE TRIGGER deliver; SELECT put('cancel', 1, 10, '{"wait": 1, "add": "k"}'); ALTER TABLE events ENABLE TRIGGER deliver});
eventually("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $pid AND NOT granted)", 'the worker waits in the middle of a chunk');
query("SELECT pg_cancel_backend($pid)");
$node->wait_for_log(qr/canceling statement due to user request/, $log);
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
eventually(q{SELECT settled('cancel', 'v', 10)}, 'cancelled: goes on');
is(query(q{SELECT seen('cancel', 'v', 'safe')}), 'k={"n": 10}', 'cancelled: each event once');
is(query("$workers AND pid = $pid"), '1', 'cancelled: the same process');

# A view that fails does not stop the others, and is left alone for a while.
$log = -s $node->logfile;
query('ALTER FUNCTION plan(jsonb) RENAME TO plan_away');
query(q{SELECT create_view('good', 'v'); SET ROLE app; SELECT attach_projection('good', 'v', 'events', 'plan_away'); RESET ROLE;
	UPDATE projections SET window_floor = '200 ms', window_ceiling = '1 s' WHERE service_id = 'good'});
query(q{ALTER TABLE events DISABLE TRIGGER deliver; SELECT put('cancel', 11, 20, '{"add": "k"}'), put('good', 1, 10, '{"add": "k"}'); ALTER TABLE events ENABLE TRIGGER deliver});
eventually(q{SELECT settled('good', 'v', 10)}, 'failing view: another one goes on');
$node->wait_for_log(qr/ERROR: .*plan function public\.plan/, $log);
eventually(q{SELECT not_before > clock_timestamp() FROM kicks JOIN views USING (service_id, view_no) WHERE service_id = 'cancel'}, 'failing view: not offered again at once');
query(q{ALTER FUNCTION plan_away(jsonb) RENAME TO plan; SET ROLE app; SELECT attach_projection('good', 'v', 'events', 'plan')});
eventually(q{SELECT settled('cancel', 'v', 20)}, 'failing view: goes on when it can');

# A changed configuration wakes it up.
$node->append_conf('postgresql.conf', 'unsafemv.worker_naptime = 60s');
$node->reload;
query(q{SELECT put('live', 5, 5, '{"add": "b"}')});
$node->append_conf('postgresql.conf', 'unsafemv.worker_naptime = 50ms');
$node->reload;
eventually(q{SELECT settled('live', 'v', 5)}, 'reloaded');

# Without its extension, and with it again.
$log = -s $node->logfile;
query('DROP EXTENSION unsafemv CASCADE');
is(query("$workers AND pid = $pid"), '1', 'dropped extension: the worker waits');
query('DROP TABLE IF EXISTS events CASCADE; DROP FUNCTION plan(jsonb), put, attach, seen, settled; DROP OWNED BY app; DROP ROLE app');
query("CREATE EXTENSION unsafemv");
query("$objects$extension_first$attach$trigger");
query(q{SELECT attach('again', 'v')});
like(query(q{BEGIN; SELECT put('again', 1, 100, '{"add": "k"}'); SELECT seen('again', 'v', 'composed'); COMMIT}),
	qr/^k=\{"n": 100\} unsafe$/m, 'created again: the trigger delivers');
eventually(q{SELECT settled('again', 'v', 100)}, 'created again: the same worker settles');
is(query("$workers AND pid = $pid"), '1', 'created again: the same process');

# Policy record: what cannot be applied is a finding, until a pass has folded it.
query(q{SELECT attach('recorded', 'v');
	DROP TRIGGER deliver ON events;
	CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION deliver('on_error=record');
	BEGIN;
	ALTER FUNCTION plan(jsonb) RENAME TO plan_away;
	SELECT put('recorded', 1, 3, '{"add": "k"}');
	ALTER FUNCTION plan_away(jsonb) RENAME TO plan;
	COMMIT});
is(query(q{SELECT string_agg(event_id, ' ' ORDER BY event_id) FROM findings WHERE service_id = 'recorded' AND kind = 'unsafe-failure'}),
	'e1 e2 e3', 'policy record: a finding for each event');
eventually(q{SELECT settled('recorded', 'v', 3)}, 'policy record: a pass folds them');
is(query(q{SELECT count(*) FROM read_findings('recorded', 'v')}), '0', 'policy record: no finding is open then');
is(query(q{SELECT seen('recorded', 'v', 'safe')}), 'k={"n": 3}', 'policy record: each once');

# A plan that depends on rows sees them locked: every event another count, also of
# a row that is not there yet.
query(q{CREATE FUNCTION count_keys(event jsonb) RETURNS text[] LANGUAGE sql AS $$ SELECT ARRAY[event->>'counter'] $$;
	CREATE FUNCTION count_plan(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT jsonb_build_object(
			'patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'create', true, 'rowKey', event->>'counter', 'patch', 1)),
			'upserts', jsonb_build_array(jsonb_build_object('rowKey', event->>'id', 'value', coalesce(rows->(event->>'counter'), '0'))))
	$$;
	SELECT create_view('keyed', 'v'); SET ROLE app; SELECT attach_projection('keyed', 'v', 'events', 'count_plan', 'count_keys')});
my $dir = PostgreSQL::Test::Utils::tempdir;
append_to_file("$dir/insert.sql", <<'SQL');
\set counter random(1, 3)
INSERT INTO events SELECT 'keyed', id::text, unsafemv.suid_from_position(id), jsonb_build_object('counter', 'counter ' || :counter, 'id', id)
FROM nextval('ids') AS id;
SQL
query('CREATE SEQUENCE ids');
$node->command_ok([ 'pgbench', '-n', '-c', 6, '-j', 2, '-t', 50, '-f', "$dir/insert.sql", '-h', $node->host, '-p', $node->port, 'postgres' ],
	'keys: six sessions insert');
is(query(q{SELECT c.row_key FROM read_rows('keyed', 'v', "limit" => NULL) c WHERE c.row_key LIKE 'counter%' AND
	(SELECT array_agg(s.value::text::int ORDER BY s.value::text::int) FROM read_rows('keyed', 'v', "limit" => NULL) s JOIN events e ON e.event_id = s.row_key AND e.service_id = 'keyed'
		WHERE e.event->>'counter' = c.row_key) IS DISTINCT FROM (SELECT array_agg(n) FROM generate_series(0, c.value::text::int - 1) n)}),
	'', 'keys: every count was seen by one event');
is(query('SELECT * FROM unsafemv.check()'), '', 'keys: check() is empty');

# Terminated, it is not started again; stop_worker says how many.
query("SELECT pg_terminate_backend($pid)");
eventually("SELECT ($workers) = 0", 'terminated: gone');
is(query('SELECT stop_worker()'), '0', 'stop_worker: nobody there');
my $first = query('SELECT start_worker()');
my $second = query('SELECT start_worker()');
is(query("SELECT stop_worker($first), stop_worker($first + 100000)"), '1|0', 'stop_worker: the one named');
eventually("SELECT ($workers) = 1", 'stop_worker: the other one stays');
is(query('SELECT stop_worker()'), '1', 'stop_worker: all of them');
eventually("SELECT ($workers) = 0", 'stop_worker: gone');

# No slot.
query('SELECT count(start_worker()) FROM generate_series(1, 3)');
is(refused($node, 'SELECT count(unsafemv.start_worker()) FROM generate_series(1, 4)'), '53400', 'a full table of workers is an error');
query('SELECT stop_worker()');
eventually("SELECT ($workers) = 0", 'stopped');

# A role that may not log in.
is(refused($node, 'SET ROLE app; SELECT unsafemv.start_worker()'), '57P03', 'a worker that cannot connect is an error');

# DROP DATABASE needs FORCE.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION unsafemv; SELECT unsafemv.start_worker()');
is(refused($node, 'DROP DATABASE other'), '55006', 'DROP DATABASE is refused while a worker is connected');
$node->safe_psql('postgres', 'DROP DATABASE other WITH (FORCE)');
eventually("SELECT ($workers) = 0", 'DROP DATABASE WITH (FORCE) ends it');

# 223: two workers, started with the server, share the views; one is killed in the
# middle of a chunk, which restarts the server; the views go on where they were.
query('CREATE ROLE runner LOGIN; GRANT USAGE ON SCHEMA unsafemv TO runner; GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO runner; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO runner');
$node->append_conf('postgresql.conf', <<'CONF');
shared_preload_libraries = 'unsafemv'
unsafemv.databases = 'postgres, postgres'
unsafemv.worker_role = 'runner'
restart_after_crash = on
CONF
# A restart would start what runs, without its instrument (test/bin/instrument).
$node->stop;
$node->start;
eventually("SELECT ($workers) = 2", 'shared_preload_libraries: a worker for each name');
is(query("SELECT DISTINCT usename FROM pg_stat_activity WHERE backend_type = 'unsafemv worker'"), 'runner', 'as the role that is set');
query(q{SELECT attach('shared', 'v' || n) FROM generate_series(1, 6) n});
query(q{SELECT put('shared', 1, 500, '{"add": "k"}')});
eventually(q{SELECT bool_and(settled('shared', 'v' || n, 500)) FROM generate_series(1, 6) n}, 'scenario 223: two workers settle six views');
is(query(q{SELECT DISTINCT seen('shared', 'v' || n, 'safe') FROM generate_series(1, 6) n}), 'k={"n": 500}', 'scenario 223: each event once in each');

$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
query(q{ALTER TABLE events DISABLE TRIGGER deliver; SELECT put('shared', 501, 2000, '{"add": "k"}'); SELECT put('shared', 2001, 2010, '{"add": "k", "wait": 1}'); SELECT put('shared', 2011, 2500, '{"add": "k"}'); ALTER TABLE events ENABLE TRIGGER deliver});
eventually(q{SELECT count(*) = 2 FROM pg_locks WHERE NOT granted AND locktype = 'advisory'}, 'scenario 223: both workers are in the middle of a chunk');
my $victim = query(q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'unsafemv worker'});
kill('KILL', $victim);
ok(poll($node, "SELECT count(*) = 2 AND bool_and(pid <> $victim) FROM pg_stat_activity WHERE backend_type = 'unsafemv worker'"),
	'scenario 223: killed; both workers are back');
eventually(q{SELECT bool_and(settled('shared', 'v' || n, 2500)) FROM generate_series(1, 6) n}, 'scenario 223: all views go on');
is(query(q{SELECT DISTINCT seen('shared', 'v' || n, 'safe') FROM generate_series(1, 6) n}), 'k={"n": 2500}', 'scenario 223: each event folded once');
is(query(q{SELECT DISTINCT history_count FROM read_active('shared', 'v1')}), '2500', 'scenario 223: by the history too');
is(query('SELECT * FROM unsafemv.check()'), '', 'scenario 223: check() is empty');

# One that was started with the server comes back.
is(query('SELECT stop_worker()'), '2', 'both are told to stop');
eventually("SELECT ($workers) = 2", 'they are started again');

# A standby: no worker before the promotion.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
query(q{SELECT put('again', 101, 110, '{"add": "k"}')});
$node->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $workers), '0', 'standby: no worker');
is(refused($standby, 'SELECT unsafemv.start_worker()'), '25006', 'standby: none can be started');
$node->stop('immediate');
$standby->promote;
ok($standby->poll_query_until('postgres', "SELECT ($workers) = 2"), 'promoted: the workers start');
$standby->safe_psql('postgres', q{SELECT put('again', 111, 120, '{"add": "k"}')});
ok($standby->poll_query_until('postgres', q{SELECT settled('again', 'v', 120)}), 'promoted: they settle');
is($standby->safe_psql('postgres', q{SELECT seen('again', 'v', 'safe')}), 'k={"n": 120}', 'promoted: each event once');
is($standby->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'promoted: check() is empty');
$standby->stop;
done_testing();
