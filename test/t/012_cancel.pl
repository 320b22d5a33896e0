# Every call that takes long is cancelled (statement_timeout) again and again, a little
# later each time, until it succeeds: each time it ends soon, with 57014, leaves the state
# as if it had never been called, blames no event, and its session goes on.  What waits
# for a lock gives up with lock_timeout (55P03) alike.
#
# "Soon" is judged by the least of three tries, because the machine may be busy; what
# cannot be interrupted is late in each of them.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Application qw($application $event_table);
use Unsafemv qw(cluster session);

my $events = $ENV{UNSAFEMV_SLOW} ? 20000 : 4000;
my $node = cluster('cancel', "shared_buffers = 256MB\nautovacuum = off\nmax_wal_size = 4GB\nfsync = off\n");
$node->safe_psql('postgres', $application . $event_table . <<"SQL");
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN CASE WHEN (event ->> 'n')::bigint % 2 = 0
	THEN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || (event ->> 'n'), 'value', jsonb_build_object('n', event -> 'n', 'pad', repeat('x', 100)))))
	ELSE jsonb_build_object('patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'create', true, 'rowKey', 'k' || (event ->> 'n')::bigint % 5000, 'patch', jsonb_build_object('n', event -> 'n')))) END;
CREATE FUNCTION app.batch(first bigint, last bigint) RETURNS jsonb LANGUAGE sql AS \$\$
	SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', app.pos(n)::text, 'mutations', app.plan(jsonb_build_object('n', n)))) FROM generate_series(first, last) n \$\$;
CREATE TABLE app.batches (name text, events jsonb);
INSERT INTO app.batches VALUES ('low', app.batch(1, $events)), ('high', app.batch($events + 1, 2 * $events));
SQL

my $session = session($node->connstr('postgres') . ' user=app');
my $indexes = q{indexes => '[{"id": "n", "type": "integer", "path": "n"}]'};
my $batch = sub { "(SELECT events FROM app.batches WHERE name = '$_[0]')" };
$session->run("SET work_mem = '64MB'");

# Of a service: enough to tell any two states apart, but times.
my $state = sub {
	return join(' ', map { "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM unsafemv.$_ t WHERE service_id = '$_[0]';" }
		  qw(views rows unsafe_rows index_entries receipts markers findings kicks rebuilds)) .
	  "SELECT to_jsonb(t) - 'updated_at' FROM unsafemv.generations t WHERE service_id = '$_[0]' ORDER BY generation;"
	  . "SELECT to_jsonb(t) FROM unsafemv.projections t WHERE service_id = '$_[0]';"
	  . "SELECT count(*) FROM app.events WHERE service_id = '$_[0]'";
};

# Runs a call with a timeout; SQLSTATE or '', milliseconds, output.
sub timed
{
	my ($sql, $timeout) = @_;
	my $out = $session->run("SET statement_timeout = '${timeout}ms';\n\\timing on\n$sql;\n\\timing off\nSET statement_timeout = 0");
	my ($time) = $out =~ /^Time: ([\d.]+) ms/m or die $out;
	return ($out =~ /^ERROR:\s+(\w+)/m ? $1 : '', $time, $out);
}

sub cancel
{
	my ($name, $service, $sql, %how) = @_;
	my $before = $how{commits} ? '' : $session->run($state->($service));
	my ($timeout, $cancelled, $late, $took) = (5, 0, 0);
	my (%wrong, @changed);
	for (;;)
	{
		my ($code, $time, $out) = timed($sql, $timeout);
		if ($code eq '')
		{
			$took = $time;
			last;
		}
		$wrong{$code}++ if $code ne '57014';
		last if $code ne '57014';
		$cancelled++;
		my $over = $time - $timeout;
		for (1, 2)
		{
			last if $over < 250;
			($code, $time) = timed($sql, $timeout);
			last if $code ne '57014';
			$over = $time - $timeout if $time - $timeout < $over;
		}
		if ($code eq '')
		{
			$took = $time;    # this time the machine was not busy
			last;
		}
		$late = $over if $over > $late;
		push @changed, $timeout if !$how{commits} && $session->run($state->($service)) ne $before;
		$timeout = int($timeout * 1.7) + 1;
	}
	note(sprintf('%s: cancelled %d times, at most %d ms late; took %d ms', $name, $cancelled, $late, $took // -1));
	is(join(' ', %wrong), '', "$name: cancelled with 57014");
	cmp_ok($cancelled, '>=', 1, "$name: was cancelled");
	cmp_ok($late, '<', 250, "$name: ended soon");
	cmp_ok($took - $timeout, '<', 250, "$name: no cancel was swallowed");
	is("@changed", '', "$name: as if it had never been called");
	like($session->run("SELECT kind, suid FROM unsafemv.findings WHERE service_id = '$service'; SELECT 'attempts' FROM unsafemv.projections WHERE service_id = '$service' AND attempts > 0"),
		$how{blamed} // qr/^$/, "$name: no event is blamed for it");
	return;
}

# The lanes, and a promotion that carries what lies above the candidate's head.
$session->run("SELECT unsafemv.create_view('s', 'v', $indexes)");
cancel('apply_batch', 's', "SELECT count(*) FROM unsafemv.apply_batch('s', 'v', " . $batch->('low') . ')');
cancel('apply_batch of duplicates', 's', "SELECT count(*) FROM unsafemv.apply_batch('s', 'v', " . $batch->('low') . ')') if $ENV{UNSAFEMV_SLOW};
cancel('query_composed_page, tentative', 's', "SELECT count(*) FROM unsafemv.query_composed_page('s', 'v', NULL)");
# While somebody holds the tentative rows, a step skips them; collection is left to do it.
my $holder = session($node->connstr('postgres'));
$holder->run('BEGIN; SELECT count(*) FROM (SELECT FROM unsafemv.unsafe_rows FOR UPDATE) x');
cancel('apply_safe_batch', 's', "SELECT unsafemv.apply_safe_batch('s', 'v', NULL, " . $batch->('low') . ')');
$holder->run('COMMIT');
cancel('collect_eligible', 's', "SELECT unsafemv.collect_eligible('s', 'v', 0, 1, app.pos($events))");
is($session->run("SELECT count(*) FROM unsafemv.unsafe_rows"), 0, 'collect_eligible: collected everything');
$session->run("SELECT unsafemv.begin_rebuild('s', 'v', 1)");
cancel('apply_safe_batch of a candidate', 's', "SELECT unsafemv.apply_safe_batch('s', 'v', NULL, " . $batch->('low') . ', generation => 1)');
$session->run("SELECT count(*) FROM unsafemv.apply_batch('s', 'v', " . $batch->('high') . ')');
cancel('promote_generation', 's', "SELECT unsafemv.promote_generation('s', 'v', 1, 0)");
cancel('drop_generation', 's', "SELECT unsafemv.drop_generation('s', 'v', 0)");
is($session->run("SELECT row_count > 0 FROM unsafemv.read_active('s', 'v')"), 't', 'a generation was promoted');

# Reads.
cancel($_->[0], 's', $_->[1])
  for [ query_composed_page => "SELECT count(*) FROM unsafemv.query_composed_page('s', 'v', NULL)" ],
  [ composed_page => "SELECT length(unsafemv.composed_page('s', 'v', NULL)::text)" ],
  [ query_rows => "SELECT count(*) FROM unsafemv.query_rows('s', 'v', 'n', 'integer', \"limit\" => NULL)" ],
  [ read_rows => "SELECT count(*) FROM unsafemv.read_rows('s', 'v', \"limit\" => NULL)" ],
  [ read_index_entries => "SELECT count(*) FROM unsafemv.read_index_entries('s', 'v', \"limit\" => NULL)" ],
  [ current_rows => "SELECT count(*), max(value::text) FROM unsafemv.current_rows WHERE service_id = 's' AND view_id = 'v'" ],
  [ check => q{SELECT count(*) FROM unsafemv.check('s')} ];

# Waits.
for my $wait ([ wait_for => q{SELECT unsafemv.wait_for('s', 'v', 'never', app.pos(900000000), '3 s')} ], [ wait_until => q{CALL unsafemv.wait_until('s', 'v', 'never', app.pos(900000000), '3 s')} ])
{
	cancel(@{$wait}[0], 's', $wait->[1]);
}

# Catching up: nothing is delivered, one chunk holds everything; what the cancel leaves
# of a rebuild is what the next call resumes.
$session->run("SELECT unsafemv.create_view('f', 'v', $indexes), unsafemv.attach_projection('f', 'v', 'app.events', 'app.plan'); INSERT INTO app.events SELECT 'f', 'e' || n, app.pos(n), jsonb_build_object('n', n) FROM generate_series(1, $events) n");
cancel('follow', 'f', "CALL unsafemv.follow('f', 'v', chunk => 100000)", commits => 1);
is($session->run("SELECT history_count FROM unsafemv.read_active('f', 'v')"), $events, 'follow: every event folded once');
cancel('rebuild_and_promote', 'f', "CALL unsafemv.rebuild_and_promote('f', 'v', 1)", commits => 1);
is($session->run("SELECT generation > 0, history_count FROM unsafemv.read_active('f', 'v')"), "t|$events", 'rebuild_and_promote: every event folded once');

# An event that its source cannot show (a view casts it) is looked for in halves, whose
# failures are the event's; a cancel is not.
$session->run("CREATE TABLE app.texts AS SELECT 'c' AS service_id, 'e' || n AS event_id, app.pos(n) AS suid, CASE n WHEN $events - 5 THEN 'no json' ELSE jsonb_build_object('n', n)::text END AS event, "
	  . "clock_timestamp() - interval '1 hour' AS arrived_at FROM generate_series(1, $events) n; CREATE INDEX ON app.texts (service_id, suid); CREATE INDEX ON app.texts (service_id, arrived_at); "
	  . 'CREATE VIEW app.casts AS SELECT service_id, event_id, suid, event::jsonb, arrived_at FROM app.texts; '
	  . "SELECT unsafemv.create_view('c', 'v'), unsafemv.attach_projection('c', 'v', 'app.casts', 'app.plan')");
cancel('follow up to an event that cannot be read', 'c', "CALL unsafemv.follow('c', 'v', chunk => 100000)", commits => 1, blamed => qr/^poison-event\|.*\nattempts$/);
is($session->run("SELECT history_count FROM unsafemv.read_active('c', 'v')"), $events - 6, 'follow up to an event that cannot be read: every event before it folded once');

# The trigger, under either policy; then a promotion to another definition, which replays.
for my $policy (qw(raise record))
{
	$node->safe_psql('postgres', "CREATE TRIGGER deliver AFTER INSERT ON app.events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=$policy')");
	$session->run("SELECT unsafemv.create_view('$policy', 'v'), unsafemv.attach_projection('$policy', 'v', 'app.events', 'app.plan')");
	cancel("deliver, on_error=$policy", $policy, "INSERT INTO app.events SELECT '$policy', 'e' || n, app.pos(n), jsonb_build_object('n', n) FROM generate_series(1, $events) n");
	$node->safe_psql('postgres', 'DROP TRIGGER deliver ON app.events');
}
$session->run("SELECT unsafemv.begin_rebuild('raise', 'v', 2)");
cancel('promote_generation that replays', 'raise', "SELECT generation, carried, redeliver FROM unsafemv.promote_generation('raise', 'v', 1, 0)");
is($session->run("SELECT count(*) FROM unsafemv.query_composed_page('raise', 'v', NULL, with_total => false)"),
	$session->run("SELECT count(*) FROM unsafemv.query_composed_page('record', 'v', NULL, with_total => false)"), 'promote_generation that replays: the rows are those of the other view');
cancel('drop_view', 'raise', "SELECT unsafemv.drop_view('raise', 'v')");

# Waits for locks.
$holder->run("BEGIN; SELECT unsafemv.apply('s', 'v', 'lock', app.pos(800000000), '{\"upserts\": [{\"rowKey\": \"lock\", \"value\": 1}]}')");
$session->run("SET lock_timeout = '20ms'");
for my $call (
	[ 'apply of a locked key' => q{SELECT unsafemv.apply('s', 'v', 'other', app.pos(800000001), '{"upserts": [{"rowKey": "lock", "value": 2}]}')} ],
	[ 'apply_batch with a locked key' => q{SELECT unsafemv.apply_batch('s', 'v', '[{"eventId": "other", "suid": "000000000000000000000000000001", "mutations": {}}, {"eventId": "another", "suid": "000000008000000010000000000001", "mutations": {"upserts": [{"rowKey": "lock", "value": 2}]}}]')} ],
	[ 'apply of an event under way' => q{SELECT unsafemv.apply('s', 'v', 'lock', app.pos(800000000), '{}')} ])
{
	my $before = $session->run($state->('s'));
	like($session->run($call->[1]), qr/^ERROR:\s+55P03$/, "$call->[0]: lock_timeout");
	is($session->run($state->('s')), $before, "$call->[0]: as if it had never been called");
}
$session->run("SET unsafemv.promotion_timeout = '1 min'; SELECT unsafemv.begin_rebuild('s', 'v', 1)");
like($session->run("SELECT unsafemv.promote_generation('s', 'v', 2, 1, true)"), qr/^ERROR:\s+(55P03|UM115)$/, 'promote_generation behind an apply: lock_timeout');
$session->run('SET lock_timeout = 0');
my ($code, $time) = timed("SELECT unsafemv.promote_generation('s', 'v', 2, 1, true)", 300);
is($code, '57014', 'promote_generation behind an apply: cancelled');
$holder->run('COMMIT');
is($session->run(q{SELECT outcome FROM unsafemv.apply('s', 'v', 'other', app.pos(800000001), '{"upserts": [{"rowKey": "lock", "value": 2}]}')}), 'applied', 'and the session goes on');

is($session->run('SELECT * FROM unsafemv.check()'), '', 'check() is empty');
$_->quit for $session, $holder;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'no crash');
$node->stop;
done_testing();
