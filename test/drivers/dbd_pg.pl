# DBD::Pg: placeholders that the driver prepares on the server, without a type unless told; errors, arrays, CALL.
use strict;
use warnings;
use DBI;
use DBD::Pg ':pg_types';

my $apply = 'SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?)';
my $options = { AutoCommit => 1, RaiseError => 1, PrintError => 0 };
my $dsn = "dbi:Pg:dbname=$ENV{PGDATABASE};host=$ENV{PGHOST};port=$ENV{PGPORT}";
my $dbh = DBI->connect($dsn, $ENV{PGUSER}, '', $options);
my $other = DBI->connect($dsn, $ENV{PGUSER}, '', $options);

sub verdict
{
	my ($name, $ok, $detail) = @_;
	print $ok ? "ok      DBD::Pg: $name\n" : "not ok  DBD::Pg: $name (" . ($detail // '') . ")\n";
}
sub suid { return sprintf('%019d%011d', shift, 0) }
sub upsert { return sprintf('{"upserts": [{"rowKey": "%s", "value": {"n": %s}}]}', @_) }
sub one { my ($sql, @arguments) = @_; return join '|', map { $_ // 'NULL' } $dbh->selectrow_array($sql, undef, @arguments) }
sub result { my ($name, $got, $expected) = @_; verdict($name, $got eq $expected, $got) }

result('create_view', one('SELECT unsafemv.create_view(?, ?)', 'Perl', 'v'), '0');
result('apply: plain strings', one($apply, 'Perl', 'v', 'e1', suid(1), upsert('a', 1533947986218845197)), 'applied|0');
result('apply: undef for every optional argument', one('SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
	'Perl', 'v', 'e2', suid(2), upsert('b', 2), undef, undef, undef, undef, 1, undef), 'applied|0');
my $typed = $dbh->prepare('SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?::jsonb)');
$typed->bind_param($_, undef, { pg_type => PG_TEXT }) for 1 .. 5;
$typed->execute('Perl', 'v', 'e2', suid(2), upsert('b', 2));
result('apply: strings bound as text', join('|', $typed->fetchrow_array), 'no-change|1');
result('apply_batch', one('SELECT * FROM unsafemv.apply_batch(?, ?, ?)', 'Perl', 'v', '[{"eventId": "e3", "suid": "' . suid(3) . '", "mutations": ' . upsert('c', 3) . '}]'),
	'1|e3|applied|0|NULL');
result('apply_safe: undef for no head', one('SELECT * FROM unsafemv.apply_safe(?, ?, ?, ?, ?, ?)', 'Perl', 'v', undef, suid(1), upsert('a', 1533947986218845197), 'e1'),
	suid(1) . '|1|0|0|0');
result('page', one('SELECT * FROM unsafemv.query_composed_page(?, ?, "limit" => ?, after_suid => ?, after_key => ?)', 'Perl', 'v', 1, suid(1), 'a'),
	'b|{"n": 2}|1|' . suid(2) . '|1|3');
result('read_rows: an array of keys', join(',', @{$dbh->selectcol_arrayref('SELECT row_key FROM unsafemv.read_rows(?, ?, ?)', undef, 'Perl', 'v', ['c', 'none', 'a'])}), 'a,c');
result('every digit of a number', one('SELECT value FROM unsafemv.read_rows(?, ?, ?)', 'Perl', 'v', ['a']), '{"n": 1533947986218845197}');
result('wait_for: an interval as a string', one('SELECT unsafemv.wait_for(?, ?, ?, ?, ?)', 'Perl', 'v', 'e3', suid(3), '1 min'), 'visible');
result('CALL wait_until', one('CALL unsafemv.wait_until(?, ?, ?, ?, ?)', 'Perl', 'v', 'e3', suid(3), '1 min'), 'visible');
my $epoch = one('SELECT lease_epoch FROM unsafemv.acquire_kick(?, ?, ?, ?)', 'Perl', 'v', 'me', '1 min');
result('acquire_kick, finish_kick', one('SELECT unsafemv.finish_kick(?, ?, ?, ?, ?)', 'Perl', 'v', 'me', suid(3), $epoch), '1');
one('SELECT unsafemv.create_view(?, ?)', 'Perl', 'g');
one($apply, 'Perl', 'g', 'e1', suid(1), upsert('k', 1));
one('SELECT unsafemv.begin_rebuild(?, ?, ?)', 'Perl', 'g', 2);
my ($redeliver) = $dbh->selectrow_array('SELECT redeliver FROM unsafemv.promote_generation(?, ?, ?, ?)', undef, 'Perl', 'g', 1, 0);
result('promote_generation: an array comes back', ref $redeliver ? join(',', @$redeliver) : $redeliver, 'e1');

for (['UM101', 'MV_VIEW_MISSING', 'SELECT * FROM unsafemv.read_meta(?, ?)', 'Perl', 'none'],
	['UM202', 'MV_PLAN_INVALID', $apply, 'Perl', 'v', 'e9', suid(9), '{"x": 1}'])
{
	my ($state, $word, @call) = @$_;
	eval { one(@call) };
	my $field = $dbh->pg_error_field('constraint') // 'none';
	verdict("$word: SQLSTATE and code word", $dbh->state eq $state && $field eq $word, $dbh->state . " $field");
}

$dbh->begin_work;
one($apply, 'Perl', 'v', 'undone', suid(20), upsert('undone', 1));
$dbh->rollback;
result('what a rollback took is applied by the redelivery', one($apply, 'Perl', 'v', 'undone', suid(20), upsert('undone', 1)), 'applied|0');

my ($failures, $outcome) = (0);
while (!defined $outcome && $failures < 5)
{
	$dbh->begin_work;
	$outcome = eval {
		$dbh->do('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ');
		one('SELECT count(*) FROM unsafemv.read_rows(?, ?)', 'Perl', 'v');
		$other->do($apply, undef, 'Perl', 'v', 'theirs', suid(30), upsert('hot', 1)) unless $failures;
		my $answer = one($apply, 'Perl', 'v', 'mine', suid(31), upsert('hot', 2));
		$dbh->commit;
		$answer;
	};
	next if defined $outcome;
	my $state = $dbh->state;
	$dbh->rollback;
	die "SQLSTATE $state" if $state ne '40001';
	$failures++;
}
verdict('REPEATABLE READ: 40001, the second try applies', $failures == 1 && $outcome eq 'applied|0', "$failures $outcome");

my $prepared = $dbh->prepare($apply, { pg_prepare_now => 1 });
my $applied = 0;
for my $n (100 .. 119)
{
	$prepared->execute('Perl', 'v', "r$n", suid($n), upsert('again', $n));
	$applied += join('|', $prepared->fetchrow_array) eq 'applied|0';
}
my $generic = one("SELECT coalesce(sum(generic_plans), 0) FROM pg_prepared_statements WHERE statement ~ 'FROM unsafemv.apply\\('");
verdict('twenty prepared applies, the later ones with the generic plan', $applied == 20 && $generic >= 10, "$applied $generic");

one('SELECT unsafemv.create_view(?, ?), unsafemv.attach_projection(?, ?, ?, ?)', 'Perl', 'p', 'Perl', 'p', 'public.event', 'public.plan');
one('SELECT unsafemv.alter_view(?, ?, window_floor => ?)', 'Perl', 'p', '0 s');
my $insert = $dbh->prepare('INSERT INTO event (service_id, event_id, suid, event) VALUES (?, ?, ?, ?)');
$insert->execute_array({}, 'Perl', [map { "e$_" } 1 .. 30], [map { suid($_) } 1 .. 30], [map { qq({"key": "k$_"}) } 1 .. 30]);
result('execute_array: what is inserted is rows', one('SELECT total_count FROM unsafemv.query_composed_page(?, ?, "limit" => ?)', 'Perl', 'p', 1), '30');
result('CALL follow in autocommit', one('CALL unsafemv.follow(?, ?)', 'Perl', 'p'), '30|' . suid(30) . '|caught_up|NULL');
result('CALL rebuild_and_promote', one('CALL unsafemv.rebuild_and_promote(?, ?, ?)', 'Perl', 'p', 2), '1|promoted');
result('check finds nothing', one('SELECT count(*) FROM unsafemv.check(?)', 'Perl'), '0');
undef $_ for $typed, $prepared, $insert;
$dbh->disconnect;
$other->disconnect;
print "done\n";
