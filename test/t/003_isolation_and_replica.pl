# Scenario 232, report 51: a hot standby serves every read and refuses every write
# cleanly; dump and restore, and logical replication of the tables, keep rows and
# invariants, and the next event applies; a session that looked a view up before a
# restore uses the restored one.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster);

my $dir = PostgreSQL::Test::Utils::tempdir;
my $primary = cluster('primary', '', allows_streaming => 'logical');

# Two views, two generations, both lanes, entries, markers, a closed gate (view w).
$primary->safe_psql('postgres', <<'SQL');
CREATE EXTENSION unsafemv;
CREATE FUNCTION pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);
SELECT unsafemv.create_view('s', 'w');
SELECT unsafemv.create_view('s', 'v', indexes => '[{"id": "n", "type": "integer", "path": "n"}]');
INSERT INTO unsafemv.generations (service_id, view_no, generation, definition_version, status, last_suid)
	SELECT service_id, view_no, 1, 2, 'candidate', NULL FROM unsafemv.views WHERE view_id = 'v';
UPDATE unsafemv.views SET last_generation = 1 WHERE view_id = 'v';
SELECT unsafemv.apply_safe('s', 'v', NULL, pos(3), '{"upserts": [{"rowKey": "a", "value": {"n": 3}}, {"rowKey": "b", "value": {"n": 3}}]}', 'e3');
SELECT unsafemv.apply_safe('s', 'v', NULL, pos(3), '{"upserts": [{"rowKey": "a", "value": {"n": 3}}]}', 'e3', generation => 1);
SELECT unsafemv.apply('s', 'v', 'e5', pos(5), '{"patches": [{"kind": "json_patch", "rowKey": "a", "patch": {"p": 5}}]}');
SELECT unsafemv.apply('s', 'v', 'e7', pos(7), '{"deletes": ["b"], "upserts": [{"rowKey": "c", "value": {"n": 7}}]}');
SELECT unsafemv.apply('s', 'v', 'e6', pos(6), '{"upserts": [{"rowKey": "c", "value": {"n": 6}}]}');
SELECT unsafemv.apply_safe('s', 'w', NULL, pos(9), '{"upserts": [{"rowKey": "a", "value": {"n": 9}}]}', 'e9');
SELECT unsafemv.apply('s', 'w', 'e1', pos(1), '{"upserts": [{"rowKey": "a", "value": {"n": 1}}]}');
SQL

my @reads = (
	q{SELECT * FROM unsafemv.query_composed_page('s', 'v')},
	q{SELECT * FROM unsafemv.query_composed_page('s', 'v', consistency => 'safe')},
	q{SELECT unsafemv.composed_page('s', 'v', 2)},
	q{SELECT * FROM unsafemv.current_rows WHERE service_id = 's' AND view_id = 'v' ORDER BY row_key},
	q{SELECT * FROM unsafemv.query_rows('s', 'v', 'n', 'integer')},
	q{SELECT * FROM unsafemv.read_rows('s', 'v')},
	q{SELECT * FROM unsafemv.read_index_entries('s', 'v', 'n')},
	q{SELECT * FROM unsafemv.read_active('s', 'v')},
	q{SELECT * FROM unsafemv.read_instance('s', 'v', 1)},
	q{SELECT * FROM unsafemv.read_meta('s', 'v')},
	q{SELECT unsafemv.has_target_receipt('s', 'v', 'e6', pos(6)), unsafemv.has_target_receipt('s', 'v', 'e6', pos(7))},
	q{SELECT service_id, view_id, generation, head, tentative_rows, unsettled, receipts, gate, findings FROM unsafemv.status ORDER BY view_id},
	q{SELECT * FROM unsafemv.check()},
	q{SELECT count(*) FROM unsafemv.errors},
	q{SELECT unsafemv.query_composed_page('s', 'w')},
	q{SELECT unsafemv.query_composed_page('s', 'nobody')},
	q{SELECT * FROM unsafemv.current_rows WHERE service_id = 's' AND view_id = 'w'},
);

# A result, or the SQLSTATE of the error.
sub answer
{
	my ($node, $database, $sql) = @_;
	my ($code, $out, $err) =
	  $node->psql($database, $sql, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $code == 0 ? $out : $err =~ /ERROR:\s+(\w+)/ ? $1 : $err;
}

my $tables = join(' UNION ALL ', map {
	"SELECT '$_ ' || to_jsonb(t)::text AS line FROM unsafemv.$_ t" }
	qw(services views generations rows unsafe_rows index_entries receipts markers findings));
my $everything = "SELECT line FROM ($tables) x ORDER BY line COLLATE \"C\"";

sub same_reads
{
	my ($name, $node, $database) = @_;
	for my $sql (@reads)
	{
		is(answer($node, $database, $sql), answer($primary, 'postgres', $sql), "$name: $sql");
	}
	return;
}

for my $sql (@reads[0 .. 11])
{
	unlike(answer($primary, 'postgres', $sql), qr/^(\w{5}|)$/, "primary answers: $sql");
}
is(answer($primary, 'postgres', $reads[12]), '', 'primary: check() is empty');
is(answer($primary, 'postgres', $reads[$_]), 'UM005', "primary: closed: $reads[$_]") for 14, 16;

# ---- hot standby

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->safe_psql('postgres', q{SELECT unsafemv.apply('s', 'v', 'e8', pos(8), '{"upserts": [{"rowKey": "d", "value": {"n": 8}}]}')});
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
same_reads('scenario 232: standby', $standby, 'postgres');

for my $write (
	q{apply('s', 'v', 'e10', pos(10), '{"upserts": [{"rowKey": "a", "value": {}}]}')},
	q{apply('s', 'v', 'e8', pos(8), '{"upserts": [{"rowKey": "d", "value": {"n": 8}}]}')},
	q{apply_batch('s', 'v', jsonb_build_array(jsonb_build_object('eventId', 'e10', 'suid', pos(10)::text, 'mutations', '{}'::jsonb)))},
	q{apply_safe('s', 'v', pos(3), pos(5), '{}', 'e5')},
	q{apply_safe_batch('s', 'v', pos(3), '[]')},
	q{observe_arrival('s', 'v', 'e2', pos(2))},
	q{observe_safe_receipt('s', 'v', 'e5', pos(5))},
	q{create_view('s', 'x')},
	q{alter_view('s', 'v', '2 days')},
	q{drop_view('s', 'v')})
{
	is(answer($standby, 'postgres', "SELECT unsafemv.$write"), '25006', "standby refuses $write");
}
is(answer($standby, 'postgres', "BEGIN; SELECT count(*) FROM unsafemv.query_composed_page('s', 'v'); COMMIT"), '3', 'standby: still serves');
unlike(slurp_file($standby->logfile), qr/PANIC|TRAP|terminated by signal/, 'standby: no crash');

$standby->promote;
is(answer($standby, 'postgres', q{SELECT * FROM unsafemv.apply('s', 'v', 'e8', pos(8), '{"upserts": [{"rowKey": "d", "value": {"n": 8}}]}')}),
	'no-change|t', 'promoted: a redelivery is recognised');
is(answer($standby, 'postgres', q{SELECT * FROM unsafemv.apply('s', 'v', 'e10', pos(10), '{"upserts": [{"rowKey": "a", "value": {}}]}')}),
	'applied|f', 'promoted: the next event applies');
is(answer($standby, 'postgres', 'SELECT * FROM unsafemv.check()'), '', 'promoted: check() is empty');
$standby->stop;

# ---- dump and restore

my @connection = ('-h', $primary->host, '-p', $primary->port);
command_ok([ 'pg_dump', @connection, '-Fc', '-f', "$dir/all.dump", 'postgres' ], 'report 51: pg_dump');
command_ok([ 'pg_dump', @connection, '--data-only', '-f', "$dir/data.sql", 'postgres' ], 'report 51: pg_dump --data-only');

my $apply = q{SELECT * FROM unsafemv.apply('s', 'v', 'e10', pos(10), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}')};

sub next_event
{
	my ($name, $node, $database) = @_;
	is(answer($node, $database, $apply), 'applied|f', "$name: the next event applies");
	is(answer($node, $database, q{SELECT value FROM unsafemv.query_composed_page('s', 'v') WHERE row_key = 'a'}),
		'{"n": 4, "p": 5}', "$name: on the restored row");
	is(answer($node, $database, q{SELECT row_upserts FROM unsafemv.apply_safe('s', 'v', pos(3), pos(5), '{"upserts": [{"rowKey": "z", "value": {"n": 0}}]}', 'e5')}),
		'1', "$name: the next step folds");
	is(answer($node, $database, q{SELECT unsafemv.create_view('s', 'x'); SELECT view_no FROM unsafemv.views WHERE view_id = 'x'}),
		"0\n3", "$name: numbers go on");
	is(answer($node, $database, 'SELECT * FROM unsafemv.check()'), '', "$name: check() is empty");
}

for my $there (0, 1)
{
	my $database = "restored$there";
	my $name = 'report 51: restored' . ($there ? ' where the extension is' : '');
	$primary->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE template0");
	$primary->safe_psql($database, 'CREATE EXTENSION unsafemv') if $there;
	# The schema belongs to CREATE EXTENSION, so it is there already then.
	my ($out, $err) = run_command([ 'pg_restore', @connection, '-d', $database, "$dir/all.dump" ]);
	my @errors = $err =~ /error: (?!could not execute query: ERROR:  schema "unsafemv" already exists).*/g;
	is("@errors", '', $name);
	is(answer($primary, $database, $everything), answer($primary, 'postgres', $everything), "$name: every row is the same");
	same_reads($name, $primary, $database);
	next_event($name, $primary, $database);
}

# A session that has looked v up, under another number, goes on after the restore.
$primary->safe_psql('postgres', 'CREATE DATABASE cached TEMPLATE template0');
$primary->safe_psql('cached', <<'SQL');
CREATE EXTENSION unsafemv;
CREATE FUNCTION pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);
SELECT unsafemv.create_view('s', 'v', generation => 5, base => 'unsafe');
SQL
my $connstr = $primary->connstr('cached');
my $session = $primary->safe_psql('cached', <<"SQL");
SELECT outcome FROM unsafemv.apply('s', 'v', 'e10', pos(10), '{"upserts": [{"rowKey": "q", "value": {}}]}');
\\! psql -Xq "$connstr" -c "TRUNCATE unsafemv.services, unsafemv.views, unsafemv.generations, unsafemv.rows, unsafemv.unsafe_rows, unsafemv.index_entries, unsafemv.receipts, unsafemv.markers, unsafemv.findings"
\\! psql -Xq "$connstr" -v ON_ERROR_STOP=1 -f "$dir/data.sql" >"$dir/data.log" 2>&1 || echo failed
SELECT outcome FROM unsafemv.apply('s', 'v', 'e10', pos(10), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}');
SELECT view_no, generation, value->>'n' FROM unsafemv.unsafe_rows WHERE row_key = 'a';
SQL
is($session, "applied\napplied\n2|0|4", 'a session that looked the view up before a restore uses the restored one');
is(answer($primary, 'cached', 'SELECT * FROM unsafemv.check()'), '', 'restored under a session: check() is empty');

# ---- logical replication

my $subscriber = cluster('subscriber');
$subscriber->safe_psql('postgres', 'CREATE EXTENSION unsafemv; CREATE FUNCTION pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n)');
$primary->safe_psql('postgres', 'CREATE PUBLICATION everything FOR TABLES IN SCHEMA unsafemv');
my $source = $primary->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION everything CONNECTION '$source' PUBLICATION everything");
$subscriber->wait_for_subscription_sync($primary, 'everything');
is(answer($subscriber, 'postgres', $everything), answer($primary, 'postgres', $everything), 'scenario 232: replicated: every row is the same');

# Changes of every kind go through; entries and rows are deleted.
is(answer($primary, 'postgres', q{SELECT unsafemv.apply('s', 'v', 'e9', pos(9), '{"patches": [{"kind": "json_patch", "rowKey": "c", "patch": {"p": 9}}]}')}),
	'(applied,f)', 'scenario 232: published: apply');
is(answer($primary, 'postgres', q{SELECT row_deletes FROM unsafemv.apply_safe_batch('s', 'v', pos(3), jsonb_build_array(
	jsonb_build_object('eventId', 'e5', 'suid', pos(5)::text, 'mutations', '{"patches": [{"kind": "json_patch", "rowKey": "a", "patch": {"p": 5, "n": 5}}]}'::jsonb),
	jsonb_build_object('eventId', 'e6', 'suid', pos(6)::text, 'mutations', '{"upserts": [{"rowKey": "c", "value": {"n": 6}}]}'::jsonb),
	jsonb_build_object('eventId', 'e7', 'suid', pos(7)::text, 'mutations', '{"deletes": ["b"], "upserts": [{"rowKey": "c", "value": {"n": 7}}]}'::jsonb)))}),
	'1', 'scenario 232: published: a safe step that deletes rows and entries');
is(answer($primary, 'postgres', q{SELECT unsafemv.apply('s', 'w', 'e2', pos(2), '{}')}), '(behind-frontier,f)', 'scenario 232: published: a late event');
is(answer($primary, 'postgres', q{SELECT rebuild.last_suid IS NOT NULL FROM unsafemv.apply_safe_batch('s', 'w', pos(9), '[]') rebuild}),
	't', 'scenario 232: published: a step that writes a finding');
$primary->wait_for_catchup('everything');
is(answer($subscriber, 'postgres', $everything), answer($primary, 'postgres', $everything), 'scenario 232: replicated: changes too');
same_reads('scenario 232: subscriber', $subscriber, 'postgres');

# Switched over.
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
is(answer($subscriber, 'postgres', q{SELECT * FROM unsafemv.apply('s', 'v', 'e9', pos(9), '{"patches": [{"kind": "json_patch", "rowKey": "c", "patch": {"p": 9}}]}')}),
	'no-change|t', 'scenario 232: switched over: a redelivery is recognised');
is(answer($subscriber, 'postgres', $apply), 'applied|f', 'scenario 232: switched over: the next event applies');
is(answer($subscriber, 'postgres', 'SELECT * FROM unsafemv.check()'), '', 'scenario 232: switched over: check() is empty');

$subscriber->stop;
$primary->stop;
done_testing();
