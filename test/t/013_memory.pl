# Out of memory: a backend's address space is limited to what it has plus a little more
# each time (prlimit; how much more is random), until the call succeeds.  Every refused call
# ends with 53200, leaves the state as if it had never been called, blames no event, and the
# session goes on.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use FindBin;
use lib $FindBin::RealBin;
use Application qw($application $event_table);
use Unsafemv qw(cluster session);

plan skip_all => 'prlimit (util-linux) and /proc are needed'
  if system('prlimit --pid $$ --as >/dev/null 2>&1') != 0 || !-r "/proc/$$/status";

my $seed = $ENV{UNSAFEMV_SEED} || int(rand(1_000_000_000));
srand($seed);
note("UNSAFEMV_SEED=$seed");

my $node = cluster('memory', "autovacuum = off\njit = off\nmax_parallel_workers_per_gather = 0\n");
$node->safe_psql('postgres', $application . $event_table . <<'SQL');
CREATE FUNCTION app.plan(event jsonb) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object(
	'upserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || (event ->> 'n'), 'value', jsonb_build_object('n', event -> 'n', 'pad', repeat('x', 500)))),
	'patches', jsonb_build_array(jsonb_build_object('kind', 'append', 'create', true, 'rowKey', 'p' || (event ->> 'n')::bigint % 50, 'patch', jsonb_build_object('l', event -> 'n'))));
CREATE FUNCTION app.batch(first bigint, last bigint) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', app.pos(n)::text, 'mutations', app.plan(jsonb_build_object('n', n)))) FROM generate_series(first, last) n $$;
CREATE TABLE app.batches AS SELECT 'low' AS name, app.batch(1, 5000) AS events UNION ALL SELECT 'high', app.batch(5001, 10000);
INSERT INTO app.events SELECT 'f', 'e' || n, app.pos(n), jsonb_build_object('n', n) FROM generate_series(1, 5000) n;
SELECT unsafemv.create_view('s', 'v', indexes => '[{"id": "n", "type": "integer", "path": "n"}]');
SELECT unsafemv.create_view('f', 'v'), unsafemv.attach_projection('f', 'v', 'app.events', 'app.plan');
SELECT unsafemv.create_view('raise', 'v'), unsafemv.attach_projection('raise', 'v', 'app.events', 'app.plan');
SELECT unsafemv.create_view('record', 'v'), unsafemv.attach_projection('record', 'v', 'app.events', 'app.plan');
SQL

# The state is read by another session: this one may be short of memory still.
my $session = session($node->connstr('postgres') . ' user=app');
my $other = session($node->connstr('postgres'));
my $state = sub {
	return $other->run(join(' ', map { "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM unsafemv.$_ t WHERE service_id = '$_[0]';" }
		  qw(views rows unsafe_rows index_entries receipts markers findings)) .
	  "SELECT to_jsonb(t) - 'updated_at' FROM unsafemv.generations t WHERE service_id = '$_[0]' ORDER BY generation;"
	  . "SELECT to_jsonb(t) FROM unsafemv.projections t WHERE service_id = '$_[0]';"
	  . "SELECT count(*) FROM app.events WHERE service_id = '$_[0]'");
};

sub limit
{
	my $bytes = shift;
	system('prlimit', '--pid', $session->{pid}, "--as=$bytes:unlimited") == 0 or die 'prlimit';
	return;
}

# A number of the backend's status, in kB.
sub memory
{
	my ($kilobytes) = slurp_file("/proc/$session->{pid}/status") =~ /^$_[0]:\s+(\d+)/m;
	return $kilobytes;
}

# A new session: what it has of memory is not what earlier calls left to it.
sub renew
{
	my $work_mem = shift;
	$session->quit;
	$session = session($node->connstr('postgres') . ' user=app');
	$session->run("SET work_mem = '$work_mem'; SELECT count(*) FROM unsafemv.query_composed_page('s', 'v', 1)");
	return;
}

sub starve
{
	my ($name, $service, $sql, %how) = @_;
	renew('64MB');
	my $before = $state->($service);
	my ($refused, $more, %wrong, @changed) = (0, 0);
	for (;;)
	{
		limit(memory('VmSize') * 1024 + $more);
		my $out = $session->run($sql);
		limit('unlimited');
		my ($code) = $out =~ /^ERROR:\s+(\w+)/m;
		last if !$code;
		$wrong{"$code at $more"}++ if $code ne '53200';
		last if $code ne '53200' || $more > 2_000_000_000;
		$refused++;
		push @changed, $more if !$how{commits} && $state->($service) ne $before;
		$more = int($more * 1.1) + int(rand(50_000));
	}
	note("$name: refused $refused times, needs at most $more bytes");
	is(join(' ', %wrong), '', "$name: refused with 53200");
	cmp_ok($refused, '>=', 1, "$name: was refused");
	is("@changed", '', "$name: as if it had never been called");
	is($other->run("SELECT kind FROM unsafemv.findings WHERE service_id = '$service'; SELECT attempts FROM unsafemv.projections WHERE service_id = '$service' AND attempts > 0"),
		'', "$name: no event is blamed");
	is($other->run("SELECT * FROM unsafemv.check('$service')"), '', "$name: check() is empty");
	return;
}

my $batch = sub { "(SELECT events FROM app.batches WHERE name = '$_[0]')" };
starve('apply_batch', 's', "SELECT count(*) FROM unsafemv.apply_batch('s', 'v', " . $batch->('low') . ')');
starve('query_composed_page', 's', "SELECT count(*) FROM unsafemv.query_composed_page('s', 'v', NULL)");
starve('composed_page', 's', "SELECT length(unsafemv.composed_page('s', 'v', NULL)::text)");
starve('query_rows', 's', "SELECT count(*) FROM unsafemv.query_rows('s', 'v', 'n', 'integer', \"limit\" => NULL)");
starve('apply_safe_batch', 's', "SELECT unsafemv.apply_safe_batch('s', 'v', NULL, " . $batch->('low') . ')');
$session->run("SELECT unsafemv.begin_rebuild('s', 'v', 1); SELECT unsafemv.apply_safe_batch('s', 'v', NULL, " . $batch->('low') . ', generation => 1); '
	  . "SELECT count(*) FROM unsafemv.apply_batch('s', 'v', " . $batch->('high') . ')');
starve('promote_generation', 's', "SELECT unsafemv.promote_generation('s', 'v', 1, 0)");
starve('check', 's', "SELECT count(*) FROM unsafemv.check('s')");
starve('follow', 'f', "CALL unsafemv.follow('f', 'v', chunk => 100000)", commits => 1);
is($other->run("SELECT history_count FROM unsafemv.read_active('f', 'v')"), 5000, 'follow: every event folded once');
starve('rebuild_and_promote', 'f', "CALL unsafemv.rebuild_and_promote('f', 'v', 1)", commits => 1);
is($other->run("SELECT generation > 0, history_count FROM unsafemv.read_active('f', 'v')"), 't|5000', 'rebuild_and_promote: every event folded once');
for my $policy (qw(raise record))
{
	$node->safe_psql('postgres', "CREATE TRIGGER deliver AFTER INSERT ON app.events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=$policy')");
	starve("deliver, on_error=$policy", $policy, "INSERT INTO app.events SELECT '$policy', 'e' || n, app.pos(n), jsonb_build_object('n', n) FROM generate_series(1, 5000) n");
	$node->safe_psql('postgres', 'DROP TRIGGER deliver ON app.events');
}
$session->run("SELECT unsafemv.begin_rebuild('raise', 'v', 2)");
starve('promote_generation that replays', 'raise', "SELECT generation, carried, redeliver FROM unsafemv.promote_generation('raise', 'v', 1, 0)");
# What a call takes is in proportion to its events, not to its events times the row they
# change: what a fold makes on the way is freed.
sub lean
{
	my ($name, $megabytes, $sql) = @_;
	renew('4MB');
	my $size = memory('VmSize');
	limit($size * 1024 + $megabytes * 1024 * 1024);
	my $out = $session->run($sql);
	limit('unlimited');
	note(sprintf('%s: %d MB', $name, (memory('VmPeak') - $size) / 1024));
	unlike($out, qr/ERROR/, "$name: done in $megabytes MB");
	return;
}

$other->run(<<'SQL');
SET ROLE app;
CREATE FUNCTION app.patches(view text, first bigint, last bigint, kind text, patch text) RETURNS void LANGUAGE sql AS $$
	INSERT INTO app.batches SELECT view, jsonb_agg(jsonb_build_object('eventId', 'e' || n, 'suid', app.pos(n)::text, 'mutations', jsonb_build_object('patches', jsonb_build_array(
		jsonb_build_object('kind', kind, 'create', true, 'rowKey', 'k', 'patch', format(patch, n)::jsonb))))) FROM generate_series(first, last) n $$;
SELECT app.patches('append', 1, 4000, 'append', '{"l": %s}'), app.patches('large', 2, 1001, 'json_patch', '{"n": %s}');
INSERT INTO app.batches SELECT 'one', jsonb_build_object('patches', jsonb_agg(jsonb_build_object('kind', 'append', 'create', true, 'rowKey', 'k', 'patch', jsonb_build_object('l', n)))) FROM generate_series(1, 4000) n;
INSERT INTO app.batches SELECT 'entries', jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'value', 1)),
	'indexEntries', (SELECT jsonb_agg(jsonb_build_object('rowKey', 'k', 'indexId', 'i', 'valueType', 'integer', 'value', n)) FROM generate_series(1, 1000) n),
	'indexDeletes', (SELECT jsonb_agg(jsonb_build_object('rowKey', 'k', 'indexId', 'i' || n)) FROM generate_series(1, 5000) n));
CREATE FUNCTION app.key(event jsonb) RETURNS text[] IMMUTABLE RETURN ARRAY['k'];
CREATE FUNCTION app.plan_of_row(event jsonb, present jsonb) RETURNS jsonb IMMUTABLE RETURN jsonb_build_object('patches', jsonb_build_array(
	jsonb_build_object('kind', 'json_patch', 'create', true, 'rowKey', 'k', 'patch', jsonb_build_object('n', coalesce((present #>> '{k,n}')::bigint, 0) + 1))));
INSERT INTO app.events SELECT 'rows', 'e' || n, app.pos(n), '{}' FROM generate_series(2, 501) n;
SELECT unsafemv.create_view('lean', v) FROM unnest(ARRAY['append', 'append safe', 'one', 'large', 'large safe', 'entries']) v;
SELECT unsafemv.apply_safe('lean', v, NULL, app.pos(1), jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'value', jsonb_build_object('pad', repeat('x', 1000000))))), 'e1') FROM unnest(ARRAY['large', 'large safe']) v;
SELECT unsafemv.create_view('rows', 'v'), unsafemv.attach_projection('rows', 'v', 'app.events', 'app.plan_of_row', 'app.key');
SELECT unsafemv.apply_safe('rows', 'v', NULL, app.pos(1), jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', 'k', 'value', jsonb_build_object('pad', repeat('x', 1000000))))), 'e1');
SQL
lean('apply_batch, 4,000 elements appended to a row', 48, "SELECT count(*) FROM unsafemv.apply_batch('lean', 'append', " . $batch->('append') . ')');
lean('apply_safe_batch, 4,000 elements appended to a row', 48, "SELECT unsafemv.apply_safe_batch('lean', 'append safe', NULL, " . $batch->('append') . ')');
lean('apply, a plan of 4,000 patches of a row', 48, "SELECT unsafemv.apply('lean', 'one', 'e', app.pos(1), " . $batch->('one') . ')');
lean('apply_batch, 1,000 patches of 1 MB', 48, "SELECT count(*) FROM unsafemv.apply_batch('lean', 'large', " . $batch->('large') . ')');
lean('apply_safe_batch, 1,000 patches of 1 MB', 48, "SELECT unsafemv.apply_safe_batch('lean', 'large safe', app.pos(1), " . $batch->('large') . ')');
lean('apply, 1,000 entries and 5,000 entry deletes of a row', 48, "SELECT unsafemv.apply('lean', 'entries', 'e', app.pos(1), " . $batch->('entries') . ')');
lean('follow, 500 plans made of a row of 1 MB', 48, "CALL unsafemv.follow('rows', 'v')");
is($other->run("SELECT value -> 'n' FROM unsafemv.query_composed_page('rows', 'v')"), 500, 'follow: each plan saw the row that the one before left');

is($other->run('SELECT * FROM unsafemv.check()'), '', 'check() is empty');
$_->quit for $session, $other;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'no crash');
$node->stop;
done_testing();
