# Scenarios 226, 229: eight sessions store and apply events on 50 keys, out of order
# within a batch and with redeliveries, while another folds; the server is stopped
# at once in the middle, twice.  After each recovery check() is empty and every event
# a client saw acknowledged has its receipt; in the end both lanes show the ordered
# fold of the stored events, computed by other means.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run;
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster);

my $clients = 8;
my $rounds = 3;
my $per_round = $ENV{UNSAFEMV_EVENTS} || 5000;
my $seed = $ENV{UNSAFEMV_SEED} || int(rand(1_000_000_000));
note("UNSAFEMV_SEED=$seed");

my $node = cluster('concurrent', <<'CONF');
fsync = on
synchronous_commit = on
full_page_writes = on
checkpoint_timeout = 30s
deadlock_timeout = 200ms
CONF

# An event adds one to a counter and sets or deletes another row.  Positions are
# given out under a shared lock, so that the folder's exclusive one finds a point
# below which everything is committed.
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION unsafemv;
SELECT unsafemv.create_view('s', 'v', indexes => '[{"id": "n", "type": "integer", "path": "n"}]');

CREATE TABLE store (
	n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	round int NOT NULL,
	client int NOT NULL,
	number int NOT NULL,
	counter int NOT NULL,
	target int NOT NULL,
	deletes boolean NOT NULL
);
CREATE INDEX ON store (round, client, number);

CREATE FUNCTION plan(e store) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object(
	'patches', jsonb_build_array(jsonb_build_object('kind', 'add', 'create', true,
		'rowKey', 'counter ' || e.counter, 'patch', '{"n": 1}'::jsonb)),
	CASE WHEN e.deletes THEN 'deletes' ELSE 'upserts' END,
	CASE WHEN e.deletes THEN jsonb_build_array('target ' || e.target)
		ELSE jsonb_build_array(jsonb_build_object('rowKey', 'target ' || e.target, 'value', jsonb_build_object('n', e.n))) END);

CREATE FUNCTION event(e store) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object(
	'eventId', 'e' || e.n, 'suid', unsafemv.suid_from_position(e.n)::text, 'mutations', plan(e));

-- Fold what is stored in steps, all but the newest keep events.
CREATE PROCEDURE fold(keep int) LANGUAGE plpgsql AS $$
DECLARE
	fence bigint;
	head unsafemv.suid;
	events jsonb;
BEGIN
	PERFORM pg_advisory_xact_lock(1);
	SELECT max(n) INTO fence FROM store;
	COMMIT;
	LOOP
		SELECT last_suid INTO head FROM unsafemv.read_active('s', 'v');
		SELECT jsonb_agg(event(e) ORDER BY n) INTO events FROM (
			SELECT * FROM store
			WHERE n > coalesce(unsafemv.suid_ticks(head), 0) AND n <= fence - keep
			ORDER BY n LIMIT 100) e;
		EXIT WHEN events IS NULL;
		PERFORM unsafemv.apply_safe_batch('s', 'v', head, events);
		COMMIT;
	END LOOP;
END $$;

CREATE VIEW expected AS
SELECT 'counter ' || counter AS row_key, jsonb_build_object('n', count(*)) AS value, max(n) AS n
FROM store GROUP BY counter
UNION ALL
SELECT 'target ' || target, jsonb_build_object('n', n), n
FROM (SELECT DISTINCT ON (target) * FROM store ORDER BY target, n DESC) t WHERE NOT deletes;
SQL

my $dir = PostgreSQL::Test::Utils::tempdir;
append_to_file("$dir/deliver.sql", <<'SQL');
\set number :number + 1
\set c1 random(1, 50)
\set c2 random(1, 50)
\set c3 random(1, 50)
\set t1 random(1, 50)
\set t2 random(1, 50)
\set t3 random(1, 50)
\set d random(0, 9)
BEGIN;
SELECT pg_advisory_xact_lock_shared(1);
INSERT INTO store (round, client, number, counter, target, deletes) VALUES
	(:round, :client_id, :number, :c1, :t1, :d = 0),
	(:round, :client_id, :number, :c2, :t2, :d = 1),
	(:round, :client_id, :number, :c3, :t3, false);
SELECT count(*) FROM unsafemv.apply_batch('s', 'v',
	(SELECT jsonb_agg(event(e) ORDER BY n % 5, n DESC) FROM store e
	 WHERE round = :round AND client = :client_id AND number = :number));
COMMIT;
BEGIN;
SELECT pg_advisory_xact_lock_shared(1);
INSERT INTO store (round, client, number, counter, target, deletes) VALUES
	(:round, :client_id, :number, :c2, :t3, :d = 2);
SELECT r.outcome FROM store e, unsafemv.apply('s', 'v', 'e' || n, unsafemv.suid_from_position(n), plan(e)) r
WHERE round = :round AND client = :client_id AND number = :number AND counter = :c2 AND target = :t3
ORDER BY n DESC LIMIT 1;
COMMIT;
SELECT max(n) AS greatest FROM store \gset
\set again random(1, :greatest)
SELECT count(*) FROM unsafemv.apply_batch('s', 'v',
	(SELECT coalesce(jsonb_agg(event(e) ORDER BY n DESC), '[]') FROM store e WHERE n BETWEEN :again AND :again + 5 AND n <= :greatest - 100));
SQL
append_to_file("$dir/fold.sql", "CALL fold(150);\n");

# With the operators of type suid in reach.
sub query { return $node->safe_psql('postgres', "SET search_path = public, unsafemv;\n$_[0]"); }

for my $round (1 .. $rounds)
{
	my $last = $round == $rounds;
	my $stored = query('SELECT count(*) FROM store');
	my @connection = ('-h', $node->host, '-p', $node->port, '-n', 'postgres');
	my ($delivered, $folded) = ('', '');
	my $deliver = IPC::Run::start(
		[
			'pgbench', '-c', $clients, '-j', 2, '-T', $last ? 4 : 120, '-f', "$dir/deliver.sql",
			'-D', "round=$round", '-D', 'number=0', "--random-seed=" . ($seed + $round),
			'-l', "--log-prefix=$dir/round$round", @connection
		],
		'<', '/dev/null', '>&', \$delivered);
	my $fold = IPC::Run::start(
		[ 'pgbench', '-c', 1, '-T', $last ? 4 : 120, '-f', "$dir/fold.sql", @connection ],
		'<', '/dev/null', '>&', \$folded);

	if (!$last)
	{
		$node->poll_query_until('postgres', "SELECT count(*) >= $stored + $per_round FROM store")
		  or die "too few events: $delivered";
		$node->stop('immediate');
	}
	$deliver->finish;
	$fold->finish;
	unlike("$delivered$folded", qr/ERROR: /, "round $round: no error in any session")
	  or diag($delivered, $folded);
	$node->start if !$last;

	# What the clients were told is there.
	my %acknowledged;
	for my $log (glob("$dir/round$round.*"))
	{
		my $lines = slurp_file($log);
		$acknowledged{$1}++ while $lines =~ /^(\d+) /gm;
	}
	my $total = 0;
	my @values = map { $total += $acknowledged{$_}; "($_, $acknowledged{$_})" } sort keys %acknowledged;
	note("round $round: ", query('SELECT count(*) FROM store') - $stored, " events stored, $total transactions acknowledged, head ",
		query("SELECT unsafemv.suid_ticks(safe_contiguous_head::unsafemv.suid) FROM unsafemv.read_meta('s', 'v')"));
	cmp_ok($total, '>', 100, "round $round: transactions were acknowledged");
	is(query("WITH a(client, number) AS (VALUES " . join(', ', @values) . ")
		SELECT count(*) FROM a, generate_series(1, a.number) i
		WHERE (SELECT count(*) FROM store s JOIN unsafemv.receipts r
			ON r.service_id = 's' AND r.event_id = 'e' || s.n AND r.suid = unsafemv.suid_from_position(s.n)
			WHERE s.round = $round AND s.client = a.client AND s.number = i) <> 4"),
		'0', "scenario 229: round $round: every acknowledged event is stored and has its receipt");
	is(query("SELECT count(*) FILTER (WHERE s.n IS NULL), count(*) FILTER (WHERE r.event_id IS NULL)
		FROM store s FULL JOIN unsafemv.receipts r ON r.event_id = 'e' || s.n"),
		'0|0', "round $round: receipts exactly of the events stored");
	is(query('SELECT * FROM unsafemv.check()'), '', "scenario 229: round $round: check() is empty");
	is(query("SELECT rebuild_required FROM unsafemv.read_meta('s', 'v')"), 'f', "round $round: reads are open");
	is(query("SELECT bool_and(settled = (suid <= g.last_suid)) FROM unsafemv.receipts r JOIN unsafemv.generations g USING (service_id, view_no, generation)"),
		't', "round $round: settled is what lies at or below the head");
	is(query("SELECT g.last_suid = max(r.suid) AND g.history_count = count(*) FROM unsafemv.receipts r JOIN unsafemv.generations g USING (service_id, view_no, generation) WHERE settled GROUP BY g.last_suid, g.history_count"),
		't', "round $round: the head is the greatest event folded");
	is(query("(TABLE expected EXCEPT SELECT row_key, value, unsafemv.suid_ticks(source_suid::unsafemv.suid) FROM unsafemv.query_composed_page('s', 'v', NULL))
		UNION ALL (SELECT row_key, value, unsafemv.suid_ticks(source_suid::unsafemv.suid) FROM unsafemv.query_composed_page('s', 'v', NULL) EXCEPT TABLE expected)"),
		'', "scenario 226: round $round: the composed rows are the ordered fold");
}

query('CALL fold(0)');
is(query("SELECT count(*) FROM unsafemv.receipts WHERE NOT settled"), '0', 'drained');
is(query("(TABLE expected EXCEPT SELECT row_key, value, unsafemv.suid_ticks(source_suid::unsafemv.suid) FROM unsafemv.query_composed_page('s', 'v', NULL, consistency => 'safe'))
	UNION ALL (SELECT row_key, value, unsafemv.suid_ticks(source_suid::unsafemv.suid) FROM unsafemv.query_composed_page('s', 'v', NULL, consistency => 'safe') EXCEPT TABLE expected)"),
	'', 'scenario 226: drained: the safe rows are the ordered fold');
is(query('SELECT * FROM unsafemv.check()'), '', 'drained: check() is empty');
unlike(slurp_file($node->logfile), qr/deadlock detected/, 'scenario 226: no deadlock');
$node->stop;
done_testing();
