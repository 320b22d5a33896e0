# Report 51: dumps of every kind (plain, custom, schema only, data only, one schema),
# into an empty database and into one that has the extension, taken while a view is
# leased and another one is being rebuilt: all rows are the same, leases are void, reads
# answer the same, and the next event, pass and rebuild work.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Calls qw($setup @reads);
use Unsafemv qw(cluster answer poll session);

my $dir = PostgreSQL::Test::Utils::tempdir;
my $node = cluster('copies');
$node->safe_psql('postgres', $setup);
$node->safe_psql('postgres', <<'SQL');
SET ROLE app;
CALL app.prepare('s');
SELECT unsafemv.create_typed_view('s', 'v', 'app.typed', 'n bigint, p bigint');
SELECT unsafemv.alter_view('s', 'p', window_floor => '0'), unsafemv.retry_event('s', 'p', 'e2');
-- its plan waits for whoever holds lock 77 of the database
CREATE FUNCTION app.slow_plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN event -> 'plan'; END $$;
SELECT unsafemv.create_view('s', 'q'), unsafemv.attach_projection('s', 'q', 'app.events', 'app.slow_plan');
RESET ROLE;
CREATE SCHEMA other;
CREATE TABLE other.plain AS SELECT 1 AS n;
SQL

# Dumped in the middle of a rebuild, under a lease.
my $holder = session($node->connstr('postgres'));
$holder->run('SELECT pg_advisory_lock(77)');
my ($in, $out) = ('', '');
my $rebuild = IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres') . ' user=app', '-c', "CALL unsafemv.rebuild('s', 'q', 2)" ], '<', \$in, '>&', \$out);
poll($node, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted)") or die "no rebuild: $out";
my @connection = ('-h', $node->host, '-p', $node->port);
my %dump = (
	plain => [], custom => ['-Fc'], schema => ['-s'], data => ['-a'], 'data-disable' => [ '-a', '--disable-triggers' ],
	user => [ '-n', 'app', '-n', 'other' ], extension => [ '-n', 'unsafemv' ]);
command_ok([ 'pg_dump', @connection, @{ $dump{$_} }, '-f', "$dir/$_", 'postgres' ], "report 51: pg_dump @{$dump{$_}}") for sort keys %dump;

my $lines = sub {
	return 'SELECT line FROM (' . join(' UNION ALL ', map { "SELECT '$_ ' || to_jsonb(t)::text AS line FROM unsafemv.$_ t" } @_) . ') x ORDER BY line COLLATE "C"';
};
my $everything = $lines->(qw(services views generations rows unsafe_rows index_entries receipts markers findings projections lags));
my $void = 'SELECT (SELECT count(*) FROM unsafemv.kicks), (SELECT count(*) FROM unsafemv.rebuilds), (SELECT count(*) FROM unsafemv.progress_state)';
my %wanted = map { $_->[0] => answer($node, 'postgres', replaced($_->[1])) } @reads;
my $all = $node->safe_psql('postgres', $everything);
isnt($node->safe_psql('postgres', "SELECT count(*) FROM ($void) x(k, r, p) WHERE k > 0 AND r > 0"), '0', 'the source has leases and a rebuild');

sub replaced { my $sql = shift; $sql =~ s/%s/s/g; return $sql; }

# Restores a dump with psql, or pg_restore if it is one of its own; the errors.
sub restore
{
	my ($name, $database) = @_;
	my ($stdout, $stderr) = run_command($name eq 'custom' ? [ 'pg_restore', @connection, '-d', $database, "$dir/$name" ] :
		  [ 'psql', '-Xq', @connection, '-d', $database, '-f', "$dir/$name" ]);
	return join("\n", grep { /error:|ERROR:/i } split /\n/, $stderr);
}

sub create
{
	my ($database, $with) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0");
	$node->safe_psql($database, 'CREATE EXTENSION unsafemv') if $with;
	return;
}

sub complete
{
	my ($name, $database) = @_;
	my $own = $node->connstr($database) . ' user=app';
	is(answer($node, $database, $everything), $all, "$name: every row is the same");
	is(answer($node, $database, $void), '0|0|0', "$name: leases are void");
	my @differ = grep { answer($node, $database, replaced($_->[1])) ne $wanted{ $_->[0] } } @reads;
	is(join(' ', map { $_->[0] } @differ), '', "$name: reads answer the same");
	is(answer($node, $database, 'SELECT * FROM unsafemv.check()'), '', "$name: check() is empty");
	return;
}

# Destructive: the last thing done to a database.
sub goes_on
{
	my ($name, $database) = @_;
	my $run = sub { return answer($node, $database, $_[0], connstr => $node->connstr($database) . ' user=app'); };
	is($run->(q{SELECT lease_epoch FROM unsafemv.acquire_kick('s', 'v', 'another', '1 hour')}), '1', "$name: anybody gets the lease");
	is($run->(q{SELECT outcome FROM unsafemv.apply('s', 'v', 'e4', app.pos(4), '{}')}), 'no-change', "$name: a redelivery is recognised");
	is($run->(q{SELECT outcome FROM unsafemv.apply('s', 'v', 'e10', app.pos(10), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}')}), 'applied', "$name: the next event applies");
	is($run->(q{SELECT n FROM app.typed WHERE row_key = 'a'}), '6', "$name: and the typed view shows it");
	is($run->(q{INSERT INTO app.events VALUES ('s', 'e3', app.pos(3), '{"plan": {"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}}'); SELECT value, unsafe FROM unsafemv.query_composed_page('s', 'p')}),
		'{"n": 3}|t', "$name: the trigger delivers");
	like($run->(q{CALL unsafemv.follow('s', 'p')}), qr/^2\|.*caught_up/, "$name: the next pass folds");
	is($run->(q{SELECT value, unsafe FROM unsafemv.query_composed_page('s', 'p')}), '{"n": 3}|f', "$name: each event once");
	like($run->(q{CALL unsafemv.rebuild_and_promote('s', 'q', 2)}), qr/promoted/, "$name: the next rebuild is not held up by the one that was running");
	is($run->(q{SELECT generation, carried FROM unsafemv.promote_generation('s', 'v', 1, 0)}), '1|4', "$name: the candidate is promoted");
	is($run->(q{SELECT unsafemv.create_view('s', 'x'); SELECT view_no = (SELECT last_view_no FROM unsafemv.services) FROM unsafemv.views WHERE view_id = 'x'}), "0\nt", "$name: numbers go on");
	is(answer($node, $database, 'SELECT * FROM unsafemv.check()'), '', "$name: check() is empty then");
	return;
}

my $exists = qr/schema "unsafemv" already exists/;
for my $form (qw(plain custom))
{
	create("empty_$form");
	is(restore($form, "empty_$form"), '', "report 51: $form, into an empty database");
	complete("$form", "empty_$form");
	goes_on("$form", "empty_$form");

	# The schema belongs to CREATE EXTENSION, so it is there already.
	create("with_$form", 1);
	is(join("\n", grep { !/$exists/ } split /\n/, restore($form, "with_$form")), '', "report 51: $form, where the extension is");
	complete("$form, where the extension is", "with_$form");
	goes_on("$form, where the extension is", "with_$form");
}

# Schema only is a system without views; the data follow.
create('parts');
is(restore('schema', 'parts'), '', 'report 51: schema only');
is(answer($node, 'parts', "SELECT count(*) FROM ($everything) x"), '0', 'schema only: the extension is empty');
is(answer($node, 'parts', q{SET ROLE app; SELECT unsafemv.create_view('t', 'v'), unsafemv.attach_projection('t', 'v', 'app.events', 'app.plan');
	INSERT INTO app.events VALUES ('t', 'e1', app.pos(1), '{"plan": {"upserts": [{"rowKey": "a", "value": 1}]}}'); SELECT value FROM unsafemv.query_composed_page('t', 'v'); SELECT unsafemv.drop_view('t', 'v'); DELETE FROM app.events}),
	"0|t\n1\n0", 'schema only: and works');
$node->safe_psql('parts', 'DELETE FROM unsafemv.services; DELETE FROM unsafemv.findings');
is(restore('data-disable', 'parts'), '', 'report 51: data only, --disable-triggers, into a schema');
complete('data only', 'parts');
goes_on('data only', 'parts');

# One schema: what is the user's goes without the extension, into a database that has it;
# the views' rows are in the dump of the extension's schema.
create('one', 1);
is(restore('user', 'one'), '', 'report 51: the schemas of the application, where the extension is');
is(answer($node, 'one', "SELECT count(*) FROM ($everything) x"), '0', 'one schema: no view');
is(answer($node, 'one', 'SELECT count(*) FROM app.events'), '2', 'one schema: the events');
is(join("\n", grep { !/$exists/ } split /\n/, restore('extension', 'one')), '', 'report 51: the schema of the extension, where the extension is');
complete('one schema', 'one');
# Rights on the extension's objects are in a whole dump only.
$node->safe_psql('one', 'GRANT USAGE ON SCHEMA unsafemv TO app; GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO app; GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO app');
goes_on('one schema', 'one');

$holder->run('SELECT pg_advisory_unlock(77)');
$rebuild->finish;
like($out, qr/caught_up/, 'the rebuild that was dumped ends');
is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'check() is empty');
$holder->quit;
$node->stop;
done_testing();
