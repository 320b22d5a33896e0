# Scenario 229: the server is stopped at once, or one of its processes is killed, at
# random moments of a concurrent load: inserts with the trigger, single calls and
# batches, safe steps, follow and the worker, rebuilds with promotion, collection,
# kicks, readers.  After each recovery check() is empty, every acknowledged event is
# there with its receipt, and the rows are the ordered fold of what was committed.
#
# 5 kills; 50 with UNSAFEMV_SLOW (make check-slow); UNSAFEMV_ROUNDS says another number.
# The kill's moment and kind follow UNSAFEMV_SEED; what the load was doing then does not.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run;
use Time::HiRes qw(usleep);
use FindBin;
use lib $FindBin::RealBin;
use Application qw($application);
use Unsafemv qw(cluster poll);

my $rounds = $ENV{UNSAFEMV_ROUNDS} || ($ENV{UNSAFEMV_SLOW} ? 50 : 5);
my $seed = $ENV{UNSAFEMV_SEED} || int(rand(1_000_000_000));
srand($seed);
note("UNSAFEMV_SEED=$seed");

my $dir = PostgreSQL::Test::Utils::tempdir;
my $node = cluster('kills', <<'CONF');
fsync = on
synchronous_commit = on
full_page_writes = on
restart_after_crash = on
max_connections = 50
checkpoint_timeout = 30s
max_wal_size = 64MB
min_wal_size = 32MB
shared_preload_libraries = 'unsafemv'
unsafemv.databases = 'postgres'
unsafemv.worker_role = 'app'
unsafemv.worker_naptime = 50ms
unsafemv.worker_lease = 2s
CONF

# View v is fed by the trigger and follow; its window is short, so that events come
# late now and then, and rebuilds have something to repair.  View w is fed by calls;
# its safe lane folds only what no transaction can add to any more (advisory lock 7),
# so its reads never close; nothing of it is kept longer than needed.
$node->safe_psql('postgres', $application . <<'SQL');
CREATE SEQUENCE app.numbers;
CREATE TABLE app.events (service_id text NOT NULL DEFAULT 's', event_id text NOT NULL, suid unsafemv.suid NOT NULL, event jsonb NOT NULL,
	arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (service_id, event_id));
CREATE UNIQUE INDEX ON app.events (service_id, suid);
CREATE INDEX ON app.events (service_id, arrived_at);
CREATE TABLE app.direct (LIKE app.events INCLUDING ALL);
-- Sums and lists: the fold depends on every event, and the list on the order.
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object('patches', jsonb_build_array(
	jsonb_build_object('kind', 'add', 'create', true, 'rowKey', 'k' || (event ->> 'n')::bigint % 13, 'patch', jsonb_build_object('n', event -> 'n', 'count', 1)),
	jsonb_build_object('kind', 'json_patch', 'create', true, 'rowKey', 'last' || (event ->> 'n')::bigint % 3, 'patch', jsonb_build_object('n', event -> 'n'))));
CREATE FUNCTION app.event(n bigint) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object('n', n, 'pad', repeat('x', (n % 7)::int * 100));
CREATE FUNCTION app.element(n bigint) RETURNS jsonb IMMUTABLE RETURN
	jsonb_build_object('eventId', 'd' || n, 'suid', app.pos(n)::text, 'mutations', app.plan(app.event(n)));
-- The ordered fold of a table's events up to a head (NULL: all of them).
CREATE FUNCTION app.fold(events regclass, head unsafemv.suid) RETURNS TABLE (row_key text, value jsonb) LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE format('SELECT ''k'' || (event ->> ''n'')::bigint %% 13, jsonb_build_object(''n'', sum((event ->> ''n'')::bigint), ''count'', count(*))
		FROM %1$s WHERE $1 IS NULL OR suid OPERATOR(unsafemv.<=) $1 GROUP BY 1
		UNION ALL SELECT ''last'' || (event ->> ''n'')::bigint %% 3, jsonb_build_object(''n'', max((event ->> ''n'')::bigint))
		FROM %1$s WHERE $1 IS NULL OR suid OPERATOR(unsafemv.<=) $1 GROUP BY 1', events) USING head;
END $$;
-- A safe step of w: at most 40 events above the head, none above a position.
CREATE FUNCTION app.step(upto bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	head text := (SELECT last_suid FROM unsafemv.read_active('s', 'w'));
BEGIN
	RETURN (SELECT a.last_suid FROM unsafemv.apply_safe_batch('s', 'w', head, (SELECT coalesce(jsonb_agg(app.element((event ->> 'n')::bigint) ORDER BY suid), '[]')
		FROM (SELECT * FROM app.direct WHERE suid OPERATOR(unsafemv.<=) app.pos(upto) AND (head IS NULL OR suid OPERATOR(unsafemv.>) head::unsafemv.suid) ORDER BY suid LIMIT 40) d)) a);
END $$;
SELECT unsafemv.create_view('s', 'v'), unsafemv.create_view('s', 'w', receipt_retention => '0');
SELECT unsafemv.attach_projection('s', 'v', 'app.events', 'app.plan');
SELECT unsafemv.alter_view('s', 'v', window_floor => '100 ms', window_ceiling => '1 s');
CREATE TRIGGER deliver AFTER INSERT ON app.events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
SQL

# ---- the load: psql scripts; a line "ack TABLE NUMBER" stands behind a commit

my %script = (
	insert => <<'SQL',
SELECT nextval('app.numbers') AS n \gset
INSERT INTO app.events (event_id, suid, event) VALUES ('e' || :n, app.pos(:n), app.event(:n));
\echo ack events :n
SQL
	insert_some => <<'SQL',
SELECT nextval('app.numbers') AS a, nextval('app.numbers') AS b, nextval('app.numbers') AS c \gset
BEGIN;
INSERT INTO app.events (event_id, suid, event) SELECT 'e' || n, app.pos(n), app.event(n) FROM unnest(ARRAY[:a, :b, :c]::bigint[]) n;
COMMIT;
\echo ack events :a
\echo ack events :b
\echo ack events :c
SQL
	apply => <<'SQL',
BEGIN;
SELECT pg_advisory_xact_lock_shared(7);
SELECT nextval('app.numbers') AS n \gset
INSERT INTO app.direct (event_id, suid, event) VALUES ('d' || :n, app.pos(:n), app.event(:n));
SELECT unsafemv.apply('s', 'w', 'd' || :n, app.pos(:n), app.plan(app.event(:n)));
COMMIT;
\echo ack direct :n
SQL
	apply_batch => <<'SQL',
BEGIN;
SELECT pg_advisory_xact_lock_shared(7);
SELECT nextval('app.numbers') AS a, nextval('app.numbers') AS b, nextval('app.numbers') AS c \gset
INSERT INTO app.direct (event_id, suid, event) SELECT 'd' || n, app.pos(n), app.event(n) FROM unnest(ARRAY[:a, :b, :c]::bigint[]) n;
SELECT count(*) FROM unsafemv.apply_batch('s', 'w', jsonb_build_array(app.element(:c), app.element(:a), app.element(:b), app.element(:a)));
COMMIT;
\echo ack direct :a
\echo ack direct :b
\echo ack direct :c
SQL
	step => <<'SQL',
BEGIN;
SELECT pg_advisory_xact_lock(7);
SELECT coalesce(max((event ->> 'n')::bigint), 0) AS upto FROM app.direct \gset
COMMIT;
SELECT app.step(:upto);
SELECT unsafemv.collect_eligible('s', 'w', 0, 1, (SELECT last_suid FROM unsafemv.read_active('s', 'w')));
\echo did step
SQL
	kick => <<'SQL',
SELECT lease_epoch AS epoch FROM unsafemv.acquire_kick('s', 'w', 'kicker', '200 ms') UNION ALL SELECT 0 ORDER BY 1 DESC LIMIT 1 \gset
SELECT unsafemv.renew_kick('s', 'w', 'kicker', :epoch, '200 ms');
SELECT unsafemv.finish_kick('s', 'w', 'kicker', NULL, :epoch);
\echo did kick
SQL
	follow => <<'SQL',
CALL unsafemv.follow('s', 'v', chunk => 20);
\echo did follow
SQL
	rebuild => <<'SQL',
CALL unsafemv.rebuild_and_promote('s', 'v', 1);
SELECT min(unsafemv.drop_generation('s', 'v', generation)) FROM unsafemv.generations JOIN unsafemv.views USING (service_id, view_no)
	WHERE view_id = 'v' AND status IN ('retired', 'dropping');
\echo did rebuild
SQL
	read => <<'SQL',
SELECT count(*) <> coalesce(max(total_count), 0) AS wrong FROM unsafemv.query_composed_page('s', 'w', NULL) \gset
\if :wrong
\warn 'ERROR:  rows and total differ'
\endif
SELECT count(*) FROM unsafemv.query_composed_page('s', 'v', 10);
\echo did read
SQL
);
# What may be answered besides success: leases and steps lost to others, closed reads,
# rows of v that a promotion or its own worker is at; nothing else.
my %allowed = (
	insert => 'UM115', insert_some => 'UM115|40P01', apply => '', apply_batch => '40P01', step => 'UM106', kick => 'UM006|UM007',
	follow => '', rebuild => 'UM10[349]|UM11[0125]', read => 'UM005');

my (%acked, %did, @unexpected);

sub start_load
{
	my ($round) = @_;
	my @clients;
	for my $name (sort keys %script, 'insert', 'apply')
	{
		my $file = "$dir/" . scalar(@clients);
		PostgreSQL::Test::Utils::append_to_file("$file.sql", $script{$name} x 3000) unless -e "$file.sql";
		unlink("$file.out", "$file.err");
		push @clients, {
			name => $name, file => $file,
			run => IPC::Run::start([ 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-o', '/dev/null', '-f', "$file.sql", $node->connstr('postgres') . ' user=app' ],
				'<', '/dev/null', '>', "$file.out", '2>', "$file.err") };
	}
	return @clients;
}

# The end of a client whose server is gone: what it was told before counts.
sub finish_load
{
	for my $client (@_)
	{
		$client->{run}->finish;
		for (split /\n/, slurp_file("$client->{file}.out"))
		{
			if (/^ack (\w+) (\d+)$/) { $acked{$1}{$2} = 1; }
			elsif (/^did (\w+)$/) { $did{$1}++; }
		}
		for (split /\n/, slurp_file("$client->{file}.err"))
		{
			next if !/(ERROR|FATAL|PANIC):\s+(.*)/;
			my $code = $2;
			push @unexpected, "$client->{name}: $_"
			  unless $code =~ /^57P0[123]/ || ($allowed{$client->{name}} && $code =~ /^($allowed{$client->{name}})/);
		}
	}
	return;
}

sub crash
{
	my $kind = shift;
	if ($kind eq 'stop')
	{
		$node->stop('immediate');
	}
	else
	{
		my ($victim) = split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE "
			  . ($kind eq 'worker' ? "backend_type = 'unsafemv worker'" : $kind eq 'checkpointer' ? "backend_type = 'checkpointer'" :
				"backend_type = 'client backend' AND pid <> pg_backend_pid()") . ' ORDER BY random() LIMIT 1');
		kill('KILL', $victim) if $victim;
	}
	return;
}

# What must hold whenever the server is up again, one line per violation.
my $violations = <<'SQL';
SELECT 'check ' || invariant || ': ' || detail FROM unsafemv.check()
UNION ALL SELECT 'v: no receipt of ' || event_id FROM app.events e WHERE NOT unsafemv.has_target_receipt('s', 'v', event_id, suid)
UNION ALL SELECT 'v: no receipt in the active generation of ' || event_id FROM app.events e JOIN unsafemv.views w ON w.view_id = 'v'
	WHERE NOT EXISTS (SELECT FROM unsafemv.receipts r WHERE r.service_id = w.service_id AND r.view_no = w.view_no AND r.generation = w.active_generation
		AND r.event_id = e.event_id AND r.suid OPERATOR(unsafemv.=) e.suid)
UNION ALL SELECT 'w: ' || gate FROM unsafemv.status WHERE view_id = 'w' AND gate <> 'open'
UNION ALL SELECT 'w: history ' || history_count FROM unsafemv.read_active('s', 'w')
	WHERE history_count <> (SELECT count(*) FROM app.direct WHERE suid OPERATOR(unsafemv.<=) last_suid::unsafemv.suid)
UNION ALL (SELECT 'w: composed ' || row_key || value FROM
	((SELECT row_key, value FROM unsafemv.query_composed_page('s', 'w', NULL) EXCEPT SELECT * FROM app.fold('app.direct', NULL))
	UNION ALL (SELECT * FROM app.fold('app.direct', NULL) EXCEPT SELECT row_key, value FROM unsafemv.query_composed_page('s', 'w', NULL))) d)
UNION ALL (SELECT 'w: safe ' || row_key || value FROM (SELECT last_suid::unsafemv.suid AS head FROM unsafemv.read_active('s', 'w') WHERE last_suid IS NOT NULL) h,
	LATERAL ((SELECT row_key, value FROM unsafemv.query_composed_page('s', 'w', NULL, consistency => 'safe') EXCEPT SELECT * FROM app.fold('app.direct', head))
	UNION ALL (SELECT * FROM app.fold('app.direct', head) EXCEPT SELECT row_key, value FROM unsafemv.query_composed_page('s', 'w', NULL, consistency => 'safe'))) d)
SQL
my $open_violations = <<'SQL';
SELECT 'v: ' || row_key || value FROM
	((SELECT row_key, value FROM unsafemv.query_composed_page('s', 'v', NULL) EXCEPT SELECT * FROM app.fold('app.events', NULL))
	UNION ALL (SELECT * FROM app.fold('app.events', NULL) EXCEPT SELECT row_key, value FROM unsafemv.query_composed_page('s', 'v', NULL))) d
SQL

sub lost
{
	my @lost;
	for my $table (qw(events direct))
	{
		my %there = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', "SELECT event ->> 'n' FROM app.$table");
		push @lost, map { "$table $_" } grep { !$there{$_} } keys %{ $acked{$table} };
	}
	return @lost;
}

# An event of a killed session's may close the candidate too: then it is begun anew.
sub promoted
{
	for (1 .. 20)
	{
		my ($code, $out) = $node->psql('postgres', "CALL unsafemv.rebuild_and_promote('s', 'v', 1)");
		return 1 if $code == 0 && $out =~ /promoted/;
	}
	return 0;
}

my $closed = 0;
for my $round (1 .. $rounds)
{
	my $kind = $round % 3 ? 'stop' : (qw(backend worker backend checkpointer))[ $round / 3 % 4 ];
	my $moment = 300 + int(rand(1700));
	my @clients = start_load($round);
	usleep($moment * 1000);
	crash($kind);
	if ($kind ne 'stop')
	{
		# The others go on, or find the server gone; what is left of the load ends here.
		usleep(100_000);
		$_->{run}->signal('INT') for @clients;
	}
	finish_load(@clients);
	$node->start if $kind eq 'stop';
	poll($node, 'SELECT true') or die 'the server did not come back';
	my $name = "scenario 229: round $round, $kind after $moment ms";
	# The worker is at it again: one snapshot for everything.
	is($node->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; $violations; COMMIT"), '', "$name: no violation");
	is(join(' ', lost()), '', "$name: no acknowledged event is lost");
	# Closed by a late event: repaired first.
	if ($node->safe_psql('postgres', "SELECT gate FROM unsafemv.status WHERE view_id = 'v'") ne 'open')
	{
		$closed++;
		ok(promoted(), "$name: v is rebuilt");
	}
	is($node->safe_psql('postgres', $open_violations), '', "$name: v is the fold of its events");
}
is(join("\n", @unexpected), '', 'no client was answered anything unexpected');
note(join(', ', map { "$_ $did{$_}" } sort keys %did), ', acknowledged ', join(', ', map { "$_ " . keys %{ $acked{$_} } } sort keys %acked),
	"; reads of v closed after $closed of $rounds kills");
cmp_ok($did{$_} // 0, '>=', $rounds >= 50 ? 20 : 1, "the load did its share: $_") for qw(step kick follow rebuild read);
cmp_ok(scalar(keys %{ $acked{$_} // {} }), '>=', 20 * $rounds, "events were acknowledged: $_") for qw(events direct);

# What is left is folded and, if an event was late, rebuilt: everything is there, once.
ok(promoted(), 'v: rebuilt and promoted');
is($node->safe_psql('postgres', $open_violations), '', 'v: the fold of all its events');
$node->safe_psql('postgres', "SELECT app.step(9223372036854775807 / 1000) FROM generate_series(1, 1 + (SELECT count(*) / 40 FROM app.direct))");
is($node->safe_psql('postgres', $violations), '', 'no violation at the end');
is($node->safe_psql('postgres', "SELECT history_count - (SELECT count(*) FROM app.direct) FROM unsafemv.read_active('s', 'w')"), 0, 'w: every event folded once');
unlike(slurp_file($node->logfile), qr/PANIC:|TRAP:|terminated by signal (4|6|7|8|11)\b/, 'nothing but the kills crashed the server');
$node->stop;
done_testing();
