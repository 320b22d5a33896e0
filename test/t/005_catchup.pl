# Scenarios 163, 164, 180, 223, 225, reports 26, 30: sessions that follow and rebuild are
# killed, and the server is stopped at once, at random moments; what is resumed ends in
# the ordered fold of all events, each folded once, and check() stays empty.
use strict;
use warnings;

use Test::More;
use IPC::Run;
use Time::HiRes qw(usleep);
use FindBin;
use lib $FindBin::RealBin;
use Application qw($application $event_table);
use Unsafemv qw(cluster);

my $rounds = $ENV{UNSAFEMV_ROUNDS} || 12;
my $seed = $ENV{UNSAFEMV_SEED} || int(rand(1_000_000_000));
srand($seed);
note("UNSAFEMV_SEED=$seed");

my $node = cluster('catchup', "fsync = on\nsynchronous_commit = on\nfull_page_writes = on\n");
$node->safe_psql('postgres', $application . $event_table . <<'SQL');
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object('patches', jsonb_build_array(
	jsonb_build_object('kind', 'add', 'create', true, 'rowKey', 'k' || (event ->> 'k'), 'patch', jsonb_build_object('n', event -> 'n', 'count', 1))));
SELECT unsafemv.create_view('s', 'v'), unsafemv.attach_projection('s', 'v', 'app.events', 'app.plan');
SQL

my $stored = 0;

sub store
{
	my $count = shift;
	$node->safe_psql('postgres', "INSERT INTO app.events SELECT 's', 'e' || n, unsafemv.suid_from_position(n), "
		  . "jsonb_build_object('k', n % 17, 'n', n) FROM generate_series($stored + 1, $stored + $count) n");
	$stored += $count;
}

# The active generation, or the candidate, is the ordered fold of the first events.
sub is_fold
{
	my ($status, $name) = @_;
	is($node->safe_psql('postgres', <<SQL), '', $name);
WITH g AS (SELECT * FROM unsafemv.generations WHERE status = '$status'),
expected AS (SELECT 'k' || (event ->> 'k') AS row_key, jsonb_build_object('n', sum((event ->> 'n')::bigint), 'count', count(*)) AS value
	FROM app.events, g WHERE suid OPERATOR(unsafemv.<=) g.last_suid GROUP BY 1),
found AS (SELECT row_key, value FROM unsafemv.rows JOIN g USING (service_id, view_no, generation))
(TABLE expected EXCEPT TABLE found) UNION ALL (TABLE found EXCEPT TABLE expected)
UNION ALL SELECT 'history', to_jsonb(history_count) FROM g WHERE history_count <> (SELECT count(*) FROM app.events WHERE suid OPERATOR(unsafemv.<=) g.last_suid)
UNION ALL SELECT 'check ' || invariant, to_jsonb(detail) FROM unsafemv.check()
SQL
}

sub start
{
	my $sql = shift;
	my ($in, $out) = ('', '');
	return IPC::Run::start([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c', "SET application_name = 'victim'", '-c', $sql ],
		'<', \$in, '>', \$out, '2>', \$out);
}

my %call = (
	follow => sub { 'CALL unsafemv.follow(\'s\', \'v\', chunk => ' . (1 + int(rand(40))) . ')' },
	rebuild => sub { "CALL unsafemv.rebuild('s', 'v', 2)" },
);

for my $round (1 .. $rounds)
{
	store(1500);
	my $what = $round % 2 ? 'follow' : 'rebuild';
	my @sessions = map { start($call{$what}->()) } $what eq 'follow' ? (1, 2) : (1);
	usleep(int(rand(150_000)));
	if ($round % 3)
	{
		$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim' LIMIT 1");
	}
	else
	{
		$node->stop('immediate');
		$node->start;
	}
	$_->finish for @sessions;
	is_fold($what eq 'follow' ? 'active' : 'candidate', "round $round: $what interrupted");
}

is($node->safe_psql('postgres', "CALL unsafemv.follow('s', 'v')") =~ /caught_up/, 1, 'follow ends');
is_fold('active', 'followed to the end');
like($node->safe_psql('postgres', "CALL unsafemv.rebuild('s', 'v', 2)"), qr/caught_up/, 'rebuild ends');
is_fold('candidate', 'rebuilt to the end');
is($node->safe_psql('postgres', "SELECT count(*) FROM unsafemv.generations WHERE status = 'candidate' AND rebuilt_at IS NOT NULL AND history_count = $stored"), 1, 'one candidate, proven');
like($node->safe_psql('postgres', "CALL unsafemv.rebuild_and_promote('s', 'v', 2)"), qr/promoted/, 'promoted');
is_fold('active', 'what was promoted');
is($node->safe_psql('postgres', "SELECT count(*) FROM unsafemv.findings"), 0, 'nothing to report');

$node->stop;
done_testing();
