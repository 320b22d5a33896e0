# Scenarios 76, 77: the server is killed between any two statements of apply,
# apply_batch, apply_safe and apply_safe_batch, and right after the commit.  After
# the restart there is all or nothing; a redelivery completes it; check() is empty.
#
# Test-only statement triggers on the extension's tables count the statements of
# the call and wait at the one asked for, for an advisory lock that a prepared
# transaction holds (it outlives the crash).  Kills take turns: an immediate stop
# of the server, or signal 9 to the backend, which restarts all of it.
use strict;
use warnings;

use Test::More;
use IPC::Run;
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster poll);

my $node = cluster('crash', <<'CONF');
fsync = on
synchronous_commit = on
full_page_writes = on
restart_after_crash = on
max_prepared_transactions = 5
autovacuum = off
CONF

$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION unsafemv;

CREATE FUNCTION pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);

CREATE FUNCTION wait_point() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	seen int := coalesce(nullif(current_setting('wait_point.seen', true), ''), '0')::int + 1;
BEGIN
	IF current_setting('wait_point.at', true) <> '' THEN
		PERFORM set_config('wait_point.seen', seen::text, false);
		IF seen = current_setting('wait_point.at')::int THEN
			PERFORM pg_advisory_xact_lock(1);
		END IF;
	END IF;
	RETURN NULL;
END $$;

DO $$
DECLARE
	t text;
	moment text;
BEGIN
	FOREACH t IN ARRAY ARRAY['views', 'generations', 'rows', 'unsafe_rows', 'index_entries', 'receipts', 'markers', 'findings'] LOOP
		FOREACH moment IN ARRAY ARRAY['BEFORE', 'AFTER'] LOOP
			EXECUTE format('CREATE TRIGGER wait_%s %s INSERT OR UPDATE OR DELETE ON unsafemv.%I FOR EACH STATEMENT EXECUTE FUNCTION wait_point()',
				lower(moment), moment, t);
		END LOOP;
	END LOOP;
END $$;

-- A view with a row and entries in both lanes, a remembered patch, a marker.
CREATE PROCEDURE prepare(service text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM unsafemv.create_view(service, 'v');
	PERFORM unsafemv.apply_safe(service, 'v', NULL, pos(1),
		'{"upserts": [{"rowKey": "a", "value": {"n": 1}}, {"rowKey": "b", "value": {"n": 1}}, {"rowKey": "c", "value": {"n": 1}}],
		"indexEntries": [{"indexId": "i", "valueType": "text", "value": "x", "rowKey": "a"}]}', 'e1');
	PERFORM unsafemv.apply(service, 'v', 'e4', pos(4), '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}}], "upserts": [{"rowKey": "d", "value": {"n": 4}}]}');
	PERFORM unsafemv.apply(service, 'v', 'e3', pos(3), '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}');
	PERFORM unsafemv.apply(service, 'v', 'e9', pos(9), '{"patches": [{"kind": "json_patch", "rowKey": "f", "patch": {"p": 9}}]}');
END $$;

-- Everything about a service, but times and numbers that differ by service.
CREATE FUNCTION state(service text) RETURNS text LANGUAGE sql AS $$
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
	SELECT 'view ' || (to_jsonb(t) - 'service_id' - 'view_no' - 'created_at')::text AS line FROM unsafemv.views t WHERE service_id = $1
	UNION ALL SELECT 'generation ' || (to_jsonb(t) - 'service_id' - 'view_no' - 'created_at' - 'updated_at')::text FROM unsafemv.generations t WHERE service_id = $1
	UNION ALL SELECT 'row ' || (to_jsonb(t) - 'service_id' - 'view_no')::text FROM unsafemv.rows t WHERE service_id = $1
	UNION ALL SELECT 'tentative ' || (to_jsonb(t) - 'service_id' - 'view_no')::text FROM unsafemv.unsafe_rows t WHERE service_id = $1
	UNION ALL SELECT 'entry ' || (to_jsonb(t) - 'service_id' - 'view_no')::text FROM unsafemv.index_entries t WHERE service_id = $1
	UNION ALL SELECT 'receipt ' || (to_jsonb(t) - 'service_id' - 'view_no' - 'observed_at')::text FROM unsafemv.receipts t WHERE service_id = $1
	UNION ALL SELECT 'marker ' || (to_jsonb(t) - 'service_id' - 'view_no')::text FROM unsafemv.markers t WHERE service_id = $1
	UNION ALL SELECT 'finding ' || (to_jsonb(t) - 'service_id' - 'view_no' - 'first_seen' - 'last_seen')::text FROM unsafemv.findings t WHERE service_id = $1
) x $$;

BEGIN;
SELECT pg_advisory_xact_lock(1), pg_advisory_xact_lock(2);
PREPARE TRANSACTION 'wait points';
SQL

# The calls; %s stands for the service.  Each with the outcome a first delivery
# and a redelivery have.
my @calls = (
	{
		name => 'apply',
		sql => q{SELECT outcome, duplicate FROM unsafemv.apply('%s', 'v', 'e6', pos(6),
			'{"deletes": ["b"], "upserts": [{"rowKey": "d", "value": {"n": 6}}, {"rowKey": "e", "value": {"n": 6}}],
			"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 6}}, {"kind": "json_patch", "rowKey": "g", "patch": {"p": 6}}],
			"indexEntries": [{"indexId": "i", "valueType": "text", "value": "y", "rowKey": "e"}]}')},
		first => 'patch-not-found|f',
		again => 'no-change|t',
	},
	{
		name => 'apply of an upsert',
		sql => q{SELECT outcome, duplicate FROM unsafemv.apply('%s', 'v', 'e6', pos(6),
			'{"upserts": [{"rowKey": "e", "value": {"n": 6}}]}')},
		first => 'applied|f',
		again => 'no-change|t',
	},
	{
		name => 'apply_batch',
		sql => q{SELECT string_agg(outcome || '|' || duplicate, ' ' ORDER BY position) FROM unsafemv.apply_batch('%s', 'v', jsonb_build_array(
			jsonb_build_object('eventId', 'e7', 'suid', pos(7)::text, 'mutations', '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 7}}]}'::jsonb),
			jsonb_build_object('eventId', 'e5', 'suid', pos(5)::text, 'mutations', '{"upserts": [{"rowKey": "e", "value": {"n": 5}}]}'::jsonb),
			jsonb_build_object('eventId', 'e2', 'suid', pos(2)::text, 'mutations', '{"upserts": [{"rowKey": "d", "value": {"n": 2}}]}'::jsonb),
			jsonb_build_object('eventId', 'e8', 'suid', pos(8)::text, 'mutations', '{"deletes": ["nobody"]}'::jsonb),
			jsonb_build_object('eventId', 'e6', 'suid', pos(6)::text, 'mutations', '{}'::jsonb)))},
		first => 'applied|false applied|false older|false delete-without-row|false no-change|false',
		again => join(' ', ('no-change|true') x 5),
	},
	{
		name => 'apply_safe',
		# passes over 3, so that every table is written
		sql => q{SELECT unsafemv.suid_ticks(last_suid::unsafemv.suid) FROM unsafemv.apply_safe('%s', 'v', pos(1), pos(4),
			'{"deletes": ["b"], "patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}, "indexEntries": [{"indexId": "i", "valueType": "text", "value": "z", "rowKey": "a"}]}],
			"upserts": [{"rowKey": "d", "value": {"n": 4}}]}', 'e4')},
		first => '4',
		again => 'UM106',
	},
	{
		name => 'apply_safe_batch',
		sql => q{SELECT unsafemv.suid_ticks(last_suid::unsafemv.suid) FROM unsafemv.apply_safe_batch('%s', 'v', pos(1), jsonb_build_array(
			jsonb_build_object('eventId', 'e3', 'suid', pos(3)::text, 'mutations', '{"upserts": [{"rowKey": "d", "value": {"n": 3}}]}'::jsonb),
			jsonb_build_object('eventId', 'e4', 'suid', pos(4)::text, 'mutations', '{"patches": [{"kind": "add", "rowKey": "a", "patch": {"n": 4}}], "upserts": [{"rowKey": "d", "value": {"n": 4}}]}'::jsonb),
			jsonb_build_object('eventId', 'e5', 'suid', pos(5)::text, 'mutations', '{"upserts": [{"rowKey": "f", "value": {"n": 5}}]}'::jsonb)))},
		first => '5',
		again => 'UM106',
	},
);

# Run a call; its result, or the SQLSTATE of its error.
sub call
{
	my ($sql) = @_;
	my ($code, $out, $err) =
	  $node->psql('postgres', $sql, extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	return $code == 0 ? $out : $err =~ /ERROR:\s+(\w+)/ ? $1 : $err;
}

sub state { return $node->safe_psql('postgres', "SELECT state('$_[0]')"); }

# Start a call that waits at the given statement, or after its commit; returns
# which of the two once it waits.
my ($client, $client_out);

sub start_call
{
	my ($sql, $at) = @_;
	$client_out = '';
	$client = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1',
			'-c', "SET wait_point.at = '$at'", '-c', $sql,
			'-c', "SET wait_point.at = ''", '-c', 'SELECT pg_advisory_xact_lock(2)',
			$node->connstr('postgres') . ' application_name=victim'
		],
		'<', '/dev/null', '>&', \$client_out);
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
	  or die "the call did not reach a wait point: $client_out";
	return $node->safe_psql('postgres',
		"SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
}

my $kills = 0;

sub crash
{
	if ($kills++ % 2)
	{
		my $pid = $node->safe_psql('postgres',
			"SELECT pid FROM pg_stat_activity WHERE application_name = 'victim'");
		kill 'KILL', $pid;
		IPC::Run::finish($client);
		poll($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'victim'")
		  or die 'the server did not come back';
	}
	else
	{
		$node->stop('immediate');
		IPC::Run::finish($client);
		$node->start;
	}
}

my $number = 0;
for my $call (@calls)
{
	my $name = $call->{name};

	# What an undisturbed call does.
	my $reference = 'reference' . ++$number;
	$node->safe_psql('postgres', "CALL prepare('$reference')");
	my $before = state($reference);
	is(call(sprintf($call->{sql}, $reference)), $call->{first}, "$name: undisturbed");
	my $after = state($reference);
	isnt($before, $after, "$name: changes something");

	my $points = 0;
	my (@not_nothing, @not_completed, @not_once, @violations);
	for (my $at = 1;; $at++)
	{
		my $service = "s$number.$at";
		my $sql = sprintf($call->{sql}, $service);
		$node->safe_psql('postgres', "CALL prepare('$service')");
		my $where = start_call($sql, $at);
		crash();
		if ($where == 2)
		{
			# scenario 77: killed right after the commit
			is(state($service), $after, "scenario 77: $name: all of it is there after the commit");
			is(call($sql), $call->{again}, "scenario 77: $name: a redelivery finds it");
			is(state($service), $after, "scenario 77: $name: and changes nothing");
			last;
		}
		$points++;
		push @not_nothing, $at if state($service) ne $before;
		push @not_completed, $at if call($sql) ne $call->{first} or state($service) ne $after;
		push @not_once, $at if call($sql) ne $call->{again} or state($service) ne $after;
		push @violations, $at if $node->safe_psql('postgres', "SELECT count(*) FROM unsafemv.check('$service')") ne '0';
	}
	note("$name: $points wait points");
	cmp_ok($points, '>=', 4, "$name: killed at each of its statements");
	is("@not_nothing", '', "scenario 76: $name: nothing is left of it");
	is("@not_completed", '', "scenario 76: $name: a redelivery completes it");
	is("@not_once", '', "scenario 76: $name: once");
	is("@violations", '', "scenario 76: $name: check() is empty");
}

is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'check() is empty');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'wait points'");
$node->stop;
done_testing();
