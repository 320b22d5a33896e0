# Every function that writes: rolled back to a savepoint, by an exception block, with its
# transaction, and ended by an error at each of its statements, it leaves the state as if
# it had never been called, and the caches of its session and of others right; prepared,
# it is invisible, survives an immediate stop and is complete when it is committed.  On a
# hot standby and in a read-only transaction it refuses with 25006, and every read serves;
# promoted, the standby goes on.  Scenario 232, report 55.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Calls qw($setup @writes @reads @global %other);
use Unsafemv qw(cluster answer session);

my $node = cluster('functions', "max_prepared_transactions = 100\n", allows_streaming => 1);
$node->safe_psql('postgres', $setup);

# Ends the call at the statement asked for.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION fail_point() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	seen int := coalesce(nullif(current_setting('fail_point.seen', true), ''), '0')::int + 1;
BEGIN
	IF current_setting('fail_point.at', true) <> '' THEN
		PERFORM set_config('fail_point.seen', seen::text, false);
		IF seen = current_setting('fail_point.at')::int THEN
			RAISE 'fail point' USING ERRCODE = 'UT001';
		END IF;
	END IF;
	RETURN NULL;
END $$;
DO $$
DECLARE
	t text;
	moment text;
BEGIN
	FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
		FOREACH moment IN ARRAY ARRAY['BEFORE', 'AFTER'] LOOP
			EXECUTE format('CREATE TRIGGER fail_%s %s INSERT OR UPDATE OR DELETE ON unsafemv.%I FOR EACH STATEMENT EXECUTE FUNCTION fail_point()',
				lower(moment), moment, t);
		END LOOP;
	END LOOP;
END $$;
-- The call, ended at each of its statements in turn; how many there are, or what was wrong.
CREATE FUNCTION fail_everywhere(call text, service text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	before text := app.state(service);
BEGIN
	FOR at IN 1 .. 1000 LOOP
		PERFORM set_config('fail_point.seen', '0', false), set_config('fail_point.at', at::text, false);
		BEGIN
			EXECUTE call;
			RAISE 'done' USING ERRCODE = 'UT002';
		EXCEPTION
			WHEN SQLSTATE 'UT001' THEN NULL;
			WHEN SQLSTATE 'UT002' THEN
				PERFORM set_config('fail_point.at', '', false);
				RETURN at - 1;
		END;
		PERFORM set_config('fail_point.at', '', false);
		IF app.state(service) <> before THEN
			RETURN 'state differs after ' || at;
		END IF;
	END LOOP;
END $$;
SQL

my $connection = $node->connstr('postgres') . ' user=app';
sub query { return $node->safe_psql('postgres', $_[0], connstr => $connection); }
sub sql { my ($text, $service) = @_; $text =~ s/%s/$service/g; return $text; }

# Whatever the service is called.
sub same { my ($text, $service) = @_; $text =~ s/\b(typed_)?$service\b/SERVICE/g; return $text; }

sub state
{
	my ($service, $server) = @_;
	return same(($server // $node)->safe_psql('postgres', "SELECT app.state('$service')"), $service);
}

my %listed = map { $_->[0] => 1 } @writes, @reads, @global;
is(join(' ', grep { !$listed{$_} && !$other{$_} } split /\n/, query(<<'SQL')), '', 'every function is called here');
SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'unsafemv'::regnamespace AND proname !~ '^suid_' AND prokind <> 'a' ORDER BY 1
SQL

# ---- rolled back

my $number = 0;
my (%before, %after, %answer);
for my $call (@writes)
{
	my ($name, $text) = @$call;

	# What an undisturbed call does.
	my $service = 's' . ++$number . 'a';
	query("CALL app.prepare('$service')");
	$before{$name} = state($service);
	$answer{$name} = same(answer($node, 'postgres', sql($text, $service), connstr => $connection), $service);
	$after{$name} = state($service);
	unlike($answer{$name}, qr/^\w{5}$/, "$name: answers");
	isnt($after{$name}, $before{$name}, "$name: changes something");

	# The same session all along; then it makes the call.
	$service = 's' . $number . 'b';
	query("CALL app.prepare('$service')");
	my $statement = sql($text, $service);
	(my $literal = $statement) =~ s/'/''/g;
	my ($code, $out, $err) = $node->psql('postgres', <<"SQL", connstr => $connection, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
SELECT count(*) FROM unsafemv.read_rows('$service', 'v'), unsafemv.read_active('$service', 'p');
SELECT md5(app.state('$service'));
BEGIN;
SAVEPOINT s;
$statement;
ROLLBACK TO s;
SELECT md5(app.state('$service'));
$statement;
ROLLBACK TO s;
SELECT md5(app.state('$service'));
ROLLBACK;
DO \$\$ BEGIN
	FOR i IN 1 .. 3 LOOP
		BEGIN
			EXECUTE '$literal';
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
	END LOOP;
END \$\$;
SELECT md5(app.state('$service'));
BEGIN;
$statement;
ROLLBACK;
SELECT md5(app.state('$service'));
SELECT 'statements ' || fail_everywhere('$literal', '$service');
SELECT md5(app.state('$service'));
\\echo released
BEGIN;
SAVEPOINT s;
SAVEPOINT t;
RELEASE t;
$statement;
RELEASE s;
COMMIT;
SQL
	is("$code $err", '0 ', "$name: rolled back: no error");
	my @states = $out =~ /^([0-9a-f]{32})$/mg;
	my %states = map { $_ => 1 } @states;
	is(@states . ' ' . keys %states, '6 1', "$name: rolled back: as if it had never been called");
	like($out, qr/^statements \d+$/m, "$name: ended at each of its statements: as if it had never been called");
	my ($answer) = $out =~ /^released\n(.*)\z/ms;
	is(same($answer // '', $service), $answer{$name}, "$name: then it answers the same");
	is(state($service), $after{$name}, "$name: and does the same");
}
is(query('SELECT * FROM unsafemv.check()'), '', 'rolled back: check() is empty');

# The caches of views: of the session that rolled back, and of one that looked on.
query(q{CALL app.prepare('cache')});
my $other = session($node->connstr('postgres'));
sub apply { my ($view, $n) = @_; return "SELECT outcome FROM unsafemv.apply('cache', '$view', 'n$n', app.pos($n), '{\"upserts\": [{\"rowKey\": \"n$n\", \"value\": {\"n\": $n}}]}')"; }
is($other->run(apply('v', 20)), 'applied', 'caches: another session knows the view');
my $session = session($node->connstr('postgres'));
for my $case (
	[ 'drop_view', q{SELECT unsafemv.drop_view('cache', 'v')}, 'v' ],
	[ 'promote_generation', q{SELECT unsafemv.promote_generation('cache', 'v', 1, 0)}, 'v' ],
	[ 'alter_view', q{SELECT unsafemv.alter_view('cache', 'v', '0')}, 'v' ],
	[ 'drop_view and create_view', q{SELECT unsafemv.drop_view('cache', 'v'), unsafemv.create_view('cache', 'v', generation => 9, base => 'unsafe')}, 'v' ])
{
	my ($name, $sql, $view) = @$case;
	my $n = 21 + $number++;
	for my $way ([ 'BEGIN; SAVEPOINT s;', 'ROLLBACK TO s; COMMIT;' ], [ 'BEGIN;', 'ROLLBACK;' ])
	{
		my $before = state('cache');
		$session->run("$way->[0] $sql; SELECT count(*) FROM unsafemv.generations; $way->[1]");
		is(state('cache'), $before, "caches: $name rolled back");
		is($session->run(apply($view, $n)), 'applied', "caches: $name rolled back: the session goes on");
		is($other->run(apply($view, $n + 1000)), 'applied', "caches: $name rolled back: and another one");
		$n += 100;
	}
}
is($session->run("BEGIN; SAVEPOINT s; SELECT unsafemv.create_view('cache', 'mayfly'); " . apply('mayfly', 1) . '; ROLLBACK TO s; COMMIT'), "0\napplied", 'caches: a view of a subtransaction');
my ($gone) = answer($node, 'postgres', "BEGIN; SAVEPOINT s; SELECT unsafemv.create_view('cache', 'mayfly'); " . apply('mayfly', 1) . '; ROLLBACK TO s; ' . apply('mayfly', 2));
is($gone, 'UM101', 'caches: is gone with it');
is($session->run("SELECT unsafemv.create_view('cache', 'mayfly', base => 'unsafe'); " . apply('mayfly', 1)), "0\napplied", 'caches: and can be created');
is($other->run(apply('mayfly', 1)), 'no-change', 'caches: by whom it is seen');
$_->quit for $session, $other;
is(query('SELECT * FROM unsafemv.check()'), '', 'caches: check() is empty');

# ---- prepared

$number = 0;
for my $call (@writes)
{
	my $service = 'p' . ++$number;
	query("CALL app.prepare('$service')");
	query('BEGIN; ' . sql($call->[1], $service) . "; PREPARE TRANSACTION '$service'");
}
for my $moment ('prepared', 'prepared, after an immediate stop')
{
	$number = 0;
	my @wrong = grep { state('p' . ++$number) ne $before{$_} } map { $_->[0] } @writes;
	is("@wrong", '', "$moment: nothing is visible");
	is(query('SELECT count(*) FROM pg_prepared_xacts'), scalar(@writes), "$moment: all are there");
	is(query('SELECT * FROM unsafemv.check()'), '', "$moment: check() is empty");
	if ($moment eq 'prepared')
	{
		$node->stop('immediate');
		$node->start;
	}
}
$node->safe_psql('postgres', "COMMIT PREPARED 'p$_'") for 1 .. @writes;
$number = 0;
is(join(' ', grep { state('p' . ++$number) ne $after{$_} } map { $_->[0] } @writes), '', 'commit prepared: all of it is there');
is(query('SELECT * FROM unsafemv.check()'), '', 'commit prepared: check() is empty');

# ---- read-only, standby, promoted

query("CALL app.prepare('d$_')") for 1 .. @writes;
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my @procedures = map { [ $_->[0], sql($_->[1], 'd1') ] } [ follow => q{CALL unsafemv.follow('%s', 'p')} ],
  [ rebuild => q{CALL unsafemv.rebuild('%s', 'p', 1)} ], [ rebuild_and_promote => q{CALL unsafemv.rebuild_and_promote('%s', 'p', 1)} ];
my $on_standby = $standby->connstr('postgres') . ' user=app';
for my $call (@writes, @global, @procedures)
{
	my ($name, $text) = @$call;
	is(answer($standby, 'postgres', sql($text, 'd1'), connstr => $on_standby), '25006', "scenario 232: standby: $name is refused");
	next if $name eq 'start_worker';    # a process, not a write
	is(answer($node, 'postgres', 'SET default_transaction_read_only = on; ' . sql($text, 'd1'), connstr => $connection), '25006', "read-only transaction: $name is refused");
}
for my $call (@reads)
{
	my ($name, $text) = @$call;
	my $primary = answer($node, 'postgres', sql($text, 'd1'), connstr => $connection);
	unlike($primary, qr/^(\w{5}|)$/, "$name: answers");
	is(answer($standby, 'postgres', sql($text, 'd1'), connstr => $on_standby), $primary, "scenario 232: standby: $name");
	is(answer($node, 'postgres', 'SET default_transaction_read_only = on; ' . sql($text, 'd1'), connstr => $connection), $primary, "read-only transaction: $name");
}
$node->stop('immediate');
$standby->promote;
$number = 0;
my @wrong;
for my $call (@writes)
{
	my ($name, $text) = @$call;
	my $service = 'd' . ++$number;
	push @wrong, $name
	  if same(answer($standby, 'postgres', sql($text, $service), connstr => $on_standby), $service) ne $answer{$name} || state($service, $standby) ne $after{$name};
}
is("@wrong", '', 'scenario 232: promoted: every function does what it did');
is($standby->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'scenario 232: promoted: check() is empty');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, $_->name . ': no crash') for $node, $standby;
$standby->stop;
done_testing();
