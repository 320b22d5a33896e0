# Prepared transactions (reports 3, 60; core 6.2, 11): one that applied or folded holds the
# view, also across an immediate stop; a promotion meets it within its timeout and names
# it; a redelivery waits for it; the late horizon stands still while one exists, so that
# what it brings behind the head is found late when it is committed.
use strict;
use warnings;

use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Application qw($application);
use Unsafemv qw(cluster answer);

my $node = cluster('prepared', "max_prepared_transactions = 10\n");
$node->safe_psql('postgres', $application . <<'SQL');
CREATE TABLE app.events (service_id text NOT NULL DEFAULT 's', event_id text NOT NULL, suid unsafemv.suid NOT NULL, event jsonb NOT NULL DEFAULT '{}',
	arrived_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON app.events (service_id, suid);
CREATE INDEX ON app.events (service_id, arrived_at);
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN '{"patches": [{"kind": "add", "create": true, "rowKey": "k", "patch": {"n": 1}}]}'::jsonb;
SELECT unsafemv.create_view('s', 'v'), unsafemv.create_view('s', 'p'), unsafemv.attach_projection('s', 'p', 'app.events', 'app.plan');
SELECT unsafemv.alter_view('s', 'p', window_floor => '0');
SELECT unsafemv.apply_safe('s', 'v', NULL, app.pos(1), '{"upserts": [{"rowKey": "a", "value": 1}]}', 'e1');
SELECT unsafemv.begin_rebuild('s', 'v', 1);
SELECT unsafemv.apply_safe('s', 'v', NULL, app.pos(1), '{"upserts": [{"rowKey": "a", "value": 1}]}', 'e1', generation => 1);
SQL
my $connection = $node->connstr('postgres') . ' user=app';
sub said { return answer($node, 'postgres', $_[0], connstr => $connection); }
sub stop_and_start { $node->stop('immediate'); $node->start; return; }

# The refusal and the DETAIL of a promotion that does not wait long.
sub busy
{
	my ($generation, $active) = @_;
	my ($code, $out, $err) = $node->psql('postgres', "SET unsafemv.promotion_timeout = '50ms'; SELECT unsafemv.promote_generation('s', 'v', $generation, $active)",
		connstr => $connection, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $err =~ /ERROR:\s+(\w+).*^DETAIL:\s+(.*?)$/ms ? "$1 $2" : "$out $err";
}

# ---- an apply

my $apply = q{SELECT outcome, duplicate FROM unsafemv.apply('s', 'v', 'e5', app.pos(5), '{"upserts": [{"rowKey": "b", "value": 5}]}')};
is(said("BEGIN; $apply; PREPARE TRANSACTION 'the apply'"), 'applied|f', 'an apply is prepared');
for my $moment ('', ' after an immediate stop')
{
	like(busy(1, 0), qr/^UM115 .*the apply/, "promotion$moment: busy, and says with whom");
	is(said("SET lock_timeout = '50ms'; $apply"), '55P03', "redelivery$moment: waits");
	is(said(q{SELECT outcome FROM unsafemv.apply('s', 'v', 'other' || (SELECT count(*) FROM unsafemv.receipts), app.pos(6 + (SELECT count(*) FROM unsafemv.receipts)), '{"upserts": [{"rowKey": "c", "value": 6}]}')}), 'applied', "another key$moment: applies");
	is(said(q{SELECT string_agg(row_key, ' ' ORDER BY row_key) FROM unsafemv.query_composed_page('s', 'v')}), 'a c', "reads$moment: serve");
	is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', "check()$moment is empty");
	stop_and_start() if $moment eq '';
}
is(said("COMMIT PREPARED 'the apply'"), '', 'committed');
is(said($apply), 'no-change|t', 'committed: a redelivery finds it');
is(said(q{SELECT generation, carried FROM unsafemv.promote_generation('s', 'v', 1, 0)}), '1|3', 'committed: the promotion carries it');
is(said(q{SELECT string_agg(row_key, ' ' ORDER BY row_key) FROM unsafemv.query_composed_page('s', 'v')}), 'a b c', 'committed: all of it is there');
is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'committed: check() is empty');

# ---- a safe step, rolled back in the end

said(q{SELECT unsafemv.begin_rebuild('s', 'v', 1); SELECT unsafemv.apply_safe('s', 'v', NULL, app.pos(1), '{"upserts": [{"rowKey": "a", "value": 1}]}', 'e1', generation => 2)});
my $step = q{SELECT unsafemv.suid_ticks(last_suid::unsafemv.suid) FROM unsafemv.apply_safe('s', 'v', app.pos(1), app.pos(5), '{"upserts": [{"rowKey": "b", "value": 5}]}', 'e5')};
is(said("BEGIN; $step; PREPARE TRANSACTION 'the step'"), '5', 'a safe step is prepared');
stop_and_start();
like(busy(2, 1), qr/^UM115 .*the step/, 'promotion: busy, and says with whom');
is(said("SET lock_timeout = '50ms'; $step"), '55P03', 'the same step: waits');
is(said(q{SELECT outcome FROM unsafemv.apply('s', 'v', 'e20', app.pos(20), '{"upserts": [{"rowKey": "d", "value": 20}]}')}), 'applied', 'an apply: does not');
is(said("ROLLBACK PREPARED 'the step'"), '', 'rolled back');
is(said($step), '5', 'rolled back: the step can be taken');
is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'rolled back: check() is empty');

# ---- the late horizon

my $horizon = q{SELECT late_horizon FROM unsafemv.generations JOIN unsafemv.views USING (service_id, view_no) WHERE view_id = 'p'};
sub follow { return said(q{CALL unsafemv.follow('s', 'p')}); }
said(q{INSERT INTO app.events (event_id, suid) VALUES ('p1', app.pos(1))});
like(follow(), qr/^1\|.*caught_up/, 'a pass');
my $first = said($horizon);
follow();
isnt(said($horizon), $first, 'the horizon moves with every pass');
said(q{BEGIN; INSERT INTO app.events (event_id, suid) VALUES ('p2', app.pos(2)); PREPARE TRANSACTION 'the insert'});
follow();
my $still = said($horizon);
my $folded = 0;
for my $n (3 .. 6)
{
	said("INSERT INTO app.events (event_id, suid) VALUES ('p$n', app.pos($n))");
	$folded++ if follow() =~ /^1\|/;
	stop_and_start() if $n == 4;
}
is($folded, 4, 'the head goes on past what is prepared');
is(said($horizon), $still, 'the horizon stands still while a transaction is prepared');
is(said(q{SELECT gate FROM unsafemv.status WHERE view_id = 'p'}), 'open', 'reads are open');
said("COMMIT PREPARED 'the insert'");
follow();
is(said(q{SELECT kind, event_id FROM unsafemv.read_findings('s', 'p') WHERE kind = 'late-event'}), 'late-event|p2', 'committed: found late');
is(said(q{SELECT * FROM unsafemv.query_composed_page('s', 'p')}), 'UM005', 'committed: reads close');
follow();
isnt(said($horizon), $still, 'committed: the horizon moves again');
like(said(q{CALL unsafemv.rebuild_and_promote('s', 'p', 1)}), qr/promoted/, 'rebuilt');
is(said(q{SELECT value FROM unsafemv.query_composed_page('s', 'p')}), '{"n": 6}', 'rebuilt: with it');
is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'rebuilt: check() is empty');

$node->stop;
done_testing();
