# Scenario 232, report 52: logical replication of the tables README names: every change of
# the lanes, of generations (promotion, way back, dropping), of collection and of operators
# arrives; sessions of the subscriber see a promotion that was replicated; the trigger of a
# replicated event table does not deliver twice; switched over, everything goes on, with
# leases void.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Calls qw($setup @writes @reads);
use Unsafemv qw(cluster answer session);

my @nodes = map { cluster($_, '', allows_streaming => 'logical') } qw(publisher subscriber);
$_->safe_psql('postgres', $setup) for @nodes;
my ($publisher, $subscriber) = @nodes;
my @tables = qw(services views generations rows unsafe_rows index_entries receipts markers findings projections lags);

is($publisher->safe_psql('postgres', <<'SQL'), '', 'every table of the extension knows its rows: a primary key, or replica identity full');
SELECT relname FROM pg_class c WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' AND relreplident <> 'f'
	AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)
SQL
my $left_out = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' AND relname <> ALL ('{" . join(',', @tables) . "}')";
is($publisher->safe_psql('postgres', $left_out), 'kicks progress_state rebuilds', 'left out are leases and progress');

my $everything = 'SELECT line FROM (' . join(' UNION ALL ', map { "SELECT '$_ ' || to_jsonb(t)::text AS line FROM unsafemv.$_ t" } @tables) . ') x ORDER BY line COLLATE "C"';
my $on = { map { $_->name => $_->connstr('postgres') . ' user=app' } @nodes };
sub on { my ($node, $sql) = @_; return answer($node, 'postgres', $sql, connstr => $on->{ $node->name }); }
sub replaced { my ($sql, $service) = @_; $sql =~ s/%s/$service/g; return $sql; }

sub same
{
	my ($name) = @_;
	$publisher->wait_for_catchup('mv');
	is(on($subscriber, $everything), on($publisher, $everything), "$name: every row is the same");
	is(on($subscriber, "SELECT * FROM unsafemv.check()"), '', "$name: check() is empty on the subscriber");
	return;
}

# What is there before, copied; event table and its trigger on both sides.
on($publisher, q{CALL app.prepare('before')});
$publisher->safe_psql('postgres', 'CREATE PUBLICATION mv FOR TABLE app.events, ' . join(', ', map { "unsafemv.$_" } @tables));
$publisher->safe_psql('postgres', 'ALTER TABLE app.events REPLICA IDENTITY FULL');
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION mv CONNECTION '" . $publisher->connstr . " dbname=postgres' PUBLICATION mv");
$subscriber->wait_for_subscription_sync($publisher, 'mv');
same('the initial copy');

# A session of the subscriber that knows the view before each promotion.
on($publisher, q{CALL app.prepare('s')});
$publisher->wait_for_catchup('mv');
my $reader = session($on->{subscriber});
my $page = q{SELECT string_agg(row_key || ' ' || value, ', ' ORDER BY row_key) FROM unsafemv.query_composed_page('s', 'v'); SELECT generation FROM unsafemv.read_active('s', 'v')};
isnt($reader->run($page), '', 'a session of the subscriber reads');

# Every function that writes.
my $number = 0;
for my $call (@writes)
{
	next if $call->[0] eq 'create_typed_view';    # DDL is not replicated
	my $service = 'f' . ++$number;
	on($publisher, "CALL app.prepare('$service')");
	my $said = on($publisher, replaced($call->[1], $service));
	fail("$call->[0]: $said") if $said =~ /^\w{5}$/;
}
same('every function');
my @differ = grep { on($subscriber, replaced($_->[1], 's')) ne on($publisher, replaced($_->[1], 's')) } @reads;
is(join(' ', map { $_->[0] } @differ), '', 'reads answer the same');
is(on($subscriber, q{SELECT count(*), count(DISTINCT (service_id, view_no, generation, event_id)) FROM unsafemv.receipts WHERE view_no = (SELECT view_no FROM unsafemv.views WHERE service_id = 's' AND view_id = 'p') AND service_id = 's'}), '2|2', 'the trigger of the subscriber delivered nothing');

for my $step (
	[ 'a promotion', q{SELECT unsafemv.promote_generation('s', 'v', 1, 0)} ],
	[ 'an apply behind it', q{SELECT unsafemv.apply('s', 'v', 'e11', app.pos(11), '{"upserts": [{"rowKey": "x", "value": {"n": 11}}]}')} ],
	[ 'a safe step', q{SELECT unsafemv.apply_safe('s', 'v', app.pos(1), app.pos(3), '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}', 'e3')} ],
	[ 'the way back', q{SELECT unsafemv.reopen_generation('s', 'v', 0); SELECT unsafemv.apply_safe('s', 'v', app.pos(1), app.pos(3), '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}', 'e3', generation => 0); SELECT unsafemv.promote_generation('s', 'v', 0, 1)} ],
	[ 'dropping', q{SELECT unsafemv.drop_generation('s', 'v', 1)} ],
	[ 'a view replaced', q{SELECT unsafemv.drop_view('s', 'v'); SELECT unsafemv.create_view('s', 'v', generation => 7); SELECT unsafemv.apply('s', 'v', 'e1', app.pos(1), '{"upserts": [{"rowKey": "new", "value": 1}]}')} ])
{
	my ($name, $sql) = @$step;
	my $said = on($publisher, $sql);
	unlike($said, qr/^\w{5}$/, "$name: published");
	same($name);
	is($reader->run($page), on($publisher, $page), "$name: the session of the subscriber sees it");
}
$reader->quit;

# Switched over.
on($publisher, q{SELECT unsafemv.acquire_kick('before', 'o', 'worker of the publisher', '1 hour')});
$publisher->wait_for_catchup('mv');
$publisher->stop('immediate');
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION mv DISABLE; ALTER SUBSCRIPTION mv SET (slot_name = NONE); DROP SUBSCRIPTION mv');
is(on($subscriber, q{SELECT lease_epoch FROM unsafemv.acquire_kick('before', 'o', 'another', '1 hour')}), '1', 'switched over: leases are void');
is(on($subscriber, q{SELECT outcome FROM unsafemv.apply('before', 'v', 'e4', app.pos(4), '{}')}), 'no-change', 'switched over: a redelivery is recognised');
is(on($subscriber, q{SELECT outcome FROM unsafemv.apply('before', 'v', 'e10', app.pos(10), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}'); SELECT value FROM unsafemv.query_composed_page('before', 'v') WHERE row_key = 'a'}),
	"applied\n{\"n\": 6}", 'switched over: the next event applies');
is(on($subscriber, q{SELECT unsafemv.alter_view('before', 'p', window_floor => '0'), unsafemv.retry_event('before', 'p', 'e2'); INSERT INTO app.events VALUES ('before', 'e3', app.pos(3), '{"plan": {"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 1}}]}}'); SELECT value, unsafe FROM unsafemv.query_composed_page('before', 'p')}),
	"t|t\n{\"n\": 3}|t", 'switched over: the trigger delivers');
like(on($subscriber, q{CALL unsafemv.follow('before', 'p')}), qr/^2\|.*caught_up/, 'switched over: the next pass folds');
like(on($subscriber, q{CALL unsafemv.rebuild_and_promote('before', 'p', 2)}), qr/promoted/, 'switched over: and a rebuild is promoted');
is(on($subscriber, q{SELECT value FROM unsafemv.query_composed_page('before', 'p')}), '{"n": 3}', 'switched over: each event once');
is(on($subscriber, 'SELECT * FROM unsafemv.check()'), '', 'switched over: check() is empty');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, $_->name . ': no crash') for @nodes;
$subscriber->stop;
done_testing();
