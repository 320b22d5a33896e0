# Reports 3, 21, 60: open and prepared transactions of other databases hold nothing back, and a
# number that was never used is waited for by nobody; overlapping maintenance, killed half-way,
# ends where a single worker ends; under an old snapshot no row of a view is written per event.
use strict;
use warnings;

use Test::More;
use IPC::Run;
use Time::HiRes qw(usleep);
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster);

my $seed = $ENV{UNSAFEMV_SEED} || int(rand(1_000_000_000));
srand($seed);
note("UNSAFEMV_SEED=$seed");

my $node = cluster('reports', "max_prepared_transactions = 10\n");
$node->safe_psql('postgres', <<'SQL');
CREATE DATABASE other;
CREATE EXTENSION unsafemv;
CREATE ROLE app;
SELECT unsafemv.grant_access('app', 'admin');
CREATE SCHEMA app AUTHORIZATION app;
SET ROLE app;
CREATE TABLE app.events (position bigint GENERATED ALWAYS AS IDENTITY, service_id text NOT NULL, event_id text NOT NULL,
	suid unsafemv.suid GENERATED ALWAYS AS (unsafemv.suid_from_position(position)) STORED, event jsonb NOT NULL,
	arrived_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON app.events (service_id, suid);
CREATE INDEX ON app.events (service_id, arrived_at);
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object('patches', jsonb_build_array(
	jsonb_build_object('kind', 'add', 'create', true, 'rowKey', 'k' || (event ->> 'k'), 'patch', jsonb_build_object('n', event -> 'n'))));
SELECT unsafemv.create_view('s', v), unsafemv.attach_projection('s', v, 'app.events', 'app.plan'), unsafemv.alter_view('s', v, window_floor => '0')
FROM unnest(ARRAY['v', 'w']) v;
SQL

sub store
{
	my ($from, $to) = @_;
	$node->safe_psql('postgres', "INSERT INTO app.events (service_id, event_id, event) "
		  . "SELECT 's', 'e' || n, jsonb_build_object('k', n % 17, 'n', n) FROM generate_series($from, $to) n");
	return;
}

# A session with this statement; the caller ends it.
sub start
{
	my ($database, $name, @commands) = @_;
	my ($in, $out) = ('', '');
	return IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr($database), '-c', "SET application_name = '$name'", map { ('-c', $_) } @commands ],
		'<', \$in, '>', \$out, '2>', \$out);
}

sub end
{
	my ($name, $session) = @_;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '$name'");
	$session->finish;
	return;
}

sub horizon
{
	my $than = shift;
	return $node->safe_psql('postgres', "SELECT late_horizon > '$than' FROM unsafemv.generations JOIN unsafemv.views USING (service_id, view_no) WHERE view_id = 'v'");
}

sub follow
{
	return $node->safe_psql('postgres', "CALL unsafemv.follow('s', 'v')");
}

# ---- report 3

store(1, 3);
$node->safe_psql('postgres', "BEGIN; INSERT INTO app.events (service_id, event_id, event) VALUES ('s', 'never', '{}'); ROLLBACK");
store(4, 6);
my $sleeper = start('postgres', 'idle', 'BEGIN; SELECT count(*) FROM app.events; SELECT pg_sleep(600)');
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'idle' AND wait_event = 'PgSleep'"), 'a transaction stays open');
like(follow(), qr/^6\|.*\|caught_up\|$/, 'report 3: neither a dead number nor an open transaction stalls the pass');
end('idle', $sleeper);

my @others = (start('other', 'elsewhere', "BEGIN; CREATE TABLE t (); SELECT pg_sleep(600)"));
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'elsewhere' AND wait_event = 'PgSleep'"), 'one is open in another database');
$node->safe_psql('other', "BEGIN; CREATE TABLE u (); PREPARE TRANSACTION 'elsewhere'");
# The horizon keeps a margin of some seconds behind the oldest transaction.
my $moment = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
ok($node->poll_query_until('postgres', "SELECT clock_timestamp() > '$moment'::timestamptz + interval '5.5 s'"), 'the margin passes');
like(follow(), qr/caught_up/, 'report 3: a pass');
is(horizon($moment), 't', 'report 3: transactions of another database, open or prepared, hold no horizon back');
$node->safe_psql('postgres', "BEGIN; CREATE TABLE u (); PREPARE TRANSACTION 'here'");
store(7, 9);
my $before = $node->safe_psql('postgres', "SELECT max(late_horizon) FROM unsafemv.generations");
like(follow(), qr/^3\|.*\|caught_up\|$/, 'report 3: a prepared transaction here does not stall the pass');
is(horizon($before), 'f', 'report 3: but the horizon stands still');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'here'");
$node->safe_psql('other', "ROLLBACK PREPARED 'elsewhere'");
end('elsewhere', $_) for @others;
like(follow(), qr/caught_up/, 'report 3: a pass');
is(horizon($before), 't', 'report 3: and goes on');

# ---- report 21

for my $round (1 .. 4)
{
	my $from = 10 + ($round - 1) * 1000;
	store($from, $from + 999);
	$node->safe_psql('postgres', "SELECT count(*) FROM app.events e, unsafemv.apply('s', 'v', e.event_id, e.suid, app.plan(e.event)) WHERE e.position > $from AND e.position % 3 = 0");
	my @workers = map { start('postgres', 'worker', "CALL unsafemv.follow('s', 'v', chunk => " . (1 + int(rand(60))) . ')') } 1 .. 2;
	my $collect = "DO \$\$ BEGIN FOR i IN 1 .. 60 LOOP PERFORM unsafemv.collect_eligible(service_id, view_id, g.generation, g.definition_version, g.last_suid, 7) "
	  . "FROM unsafemv.views JOIN unsafemv.generations g USING (service_id, view_no) WHERE view_id = 'v'; COMMIT; END LOOP; END \$\$";
	push @workers, start('postgres', 'collector', $collect), start('postgres', 'collector', $collect);
	usleep(int(rand(150_000)));
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" . ($round % 2 ? 'worker' : 'collector') . "' LIMIT 1");
	$_->finish for @workers;
}
like(follow(), qr/caught_up/, 'report 21: followed to the end');
like($node->safe_psql('postgres', "CALL unsafemv.follow('s', 'w')"), qr/^4009\|.*caught_up/, 'report 21: a single worker');
is($node->safe_psql('postgres', <<'SQL'), '', 'report 21: killed and overlapping runs leave the table of a single one');
WITH found AS (SELECT view_id, row_key, value, row_version, source_suid::text, unsafe FROM unsafemv.current_rows)
SELECT row_key, 'differs' FROM (SELECT * FROM found WHERE view_id = 'v') v FULL JOIN (SELECT * FROM found WHERE view_id = 'w') w
	USING (row_key, value, row_version, source_suid, unsafe) WHERE v.view_id IS NULL OR w.view_id IS NULL
UNION ALL SELECT x.row_key, 'is not the sum' FROM (SELECT 'k' || (event ->> 'k') AS row_key, sum((event ->> 'n')::bigint) AS n FROM app.events GROUP BY 1) x
	LEFT JOIN found f ON f.row_key = x.row_key AND f.value = jsonb_build_object('n', x.n) AND view_id = 'v' WHERE f.row_key IS NULL
UNION ALL SELECT 'history', view_no::text FROM unsafemv.generations WHERE history_count <> (SELECT count(*) FROM app.events)
UNION ALL SELECT 'check', detail FROM unsafemv.check()
SQL

# ---- report 60

my $old = start('postgres', 'old', "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM app.events; SELECT pg_sleep(600)");
ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'old' AND wait_event = 'PgSleep'"), 'an old snapshot stays open');
sub updates
{
	return $node->safe_psql('postgres', "SELECT string_agg(relname || ' ' || n_tup_upd + n_tup_del, ', ' ORDER BY relname) FROM pg_stat_user_tables WHERE schemaname = 'unsafemv' AND relname IN ('services', 'views', 'generations', 'kicks', 'projections')");
}
my $applied = $node->safe_psql('postgres', "SELECT n_tup_ins FROM pg_stat_user_tables WHERE schemaname = 'unsafemv' AND relname = 'receipts'");
my $written = updates();
store(5001, 9000);
my @appliers = map { start('postgres', 'applier', "DO \$\$ DECLARE e record; BEGIN FOR e IN SELECT * FROM app.events WHERE position > 4010 AND position % 4 = $_ LOOP "
	  . "PERFORM unsafemv.apply('s', 'v', e.event_id, e.suid, app.plan(e.event)); COMMIT; END LOOP; END \$\$") } 0 .. 3;
$_->finish for @appliers;
ok($node->poll_query_until('postgres', "SELECT n_tup_ins >= $applied + 4000 FROM pg_stat_user_tables WHERE schemaname = 'unsafemv' AND relname = 'receipts'"), 'report 60: 4,000 events in a transaction each, by four sessions');
is(updates(), $written, 'report 60: no row of the view was written');
like(follow(), qr/^4000\|.*caught_up/, 'report 60: folded');
my ($writes) = $node->safe_psql('postgres', q{SELECT sum(n_tup_upd) FROM (SELECT pg_stat_force_next_flush()) f, pg_stat_user_tables WHERE schemaname = 'unsafemv' AND relname = 'generations'}) =~ /(\d+)/;
my ($earlier) = $written =~ /generations (\d+)/;
cmp_ok($writes - $earlier, '<', 100, 'report 60: and the head was written per chunk, not per event');
end('old', $old);
is($node->safe_psql('postgres', 'SELECT count(*) FROM unsafemv.check()'), 0, 'check() is empty');

$node->stop;
done_testing();
