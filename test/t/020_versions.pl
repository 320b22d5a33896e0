# Scenario 20, as far as it goes before the first release. An install is the same
# object by object however it came about: by another session's settings, after
# DROP EXTENSION, through dump and restore, by any update path. And where the
# library and the SQL objects are of different versions, every function answers with
# one error; nothing crashes, nothing is written, and backups still work.
use strict;
use warnings;

use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use IPC::Run;
use Test::More;

my $error = qr/library and SQL objects of extension "unsafemv" are of different versions/;
my $conf = slurp_file($ENV{UNSAFEMV_CONF});
plan skip_all => 'the server reads extensions from its own directory only' if $conf !~ m{'([^':]*/stage)};
my $stage = $1;

# A copy of the install, to add versions to.
my $copy = PostgreSQL::Test::Utils::tempdir_short();
system_or_bail('cp', '-r', $stage, "$copy/stage");
$conf =~ s{\Q$stage\E}{$copy/stage}g;
my ($control) = split /\n/, `find '$copy/stage' -name unsafemv.control`;
my $scripts = dirname($control);
my ($version) = slurp_file($control) =~ /^default_version *= *'(.*)'/m;
ok(-f "$scripts/unsafemv--$version.sql", "the install script is of the control file's version, $version");
my $script = slurp_file("$scripts/unsafemv--$version.sql");

sub write_script
{
	my ($versions, $text) = @_;
	append_to_file("$scripts/unsafemv--$versions.sql", $text);
	return;
}

my $node = PostgreSQL::Test::Cluster->new('versions');
$node->init;
$node->append_conf('postgresql.conf', $conf);
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'unsafemv'\nunsafemv.databases = 'worker'\nunsafemv.worker_naptime = '100ms'");
$node->start;
my $catalogue_query = dirname(__FILE__) . '/../data/catalogue.sql';

# The extension's objects in a database, after statements that are rolled back.
sub catalogue
{
	my ($database, @before) = @_;
	my @lines = split /\n/, $node->safe_psql($database, join("\n", 'BEGIN;', @before, slurp_file($catalogue_query), 'ROLLBACK;'));
	return \@lines;
}

# What only one of two catalogues has.
sub differences
{
	my ($one, $other) = @_;
	my %count;
	$count{$_}++ foreach @$one;
	$count{$_}-- foreach @$other;
	return grep { $count{$_} } sort keys %count;
}

sub same
{
	my ($database, $name) = @_;
	my @found = differences($_[2], catalogue($database));
	is(scalar @found, 0, $name) or diag(join "\n", map { substr($_, 0, 2000) } @found);
	return;
}

# --- installs ---

$node->safe_psql('postgres', 'CREATE DATABASE plain; CREATE DATABASE other; CREATE DATABASE restored; CREATE DATABASE updated; CREATE DATABASE worker');
$node->safe_psql('plain', 'CREATE EXTENSION unsafemv');
my $plain = catalogue('plain');
cmp_ok(scalar @$plain, '>', 1000, 'the catalogue of an install: ' . @$plain . ' rows');
is(scalar(grep { /<no such object>/ } @$plain), 0, 'every object named there is known by name');

# What the comparison would miss, it could not prove.
foreach my $change (
	"COMMENT ON FUNCTION unsafemv.read_meta(text, text) IS 'other'",
	'COMMENT ON COLUMN unsafemv.views.view_id IS NULL',
	"COMMENT ON TYPE unsafemv.suid IS 'other'",
	'ALTER FUNCTION unsafemv.read_meta(text, text) COST 7',
	'ALTER FUNCTION unsafemv.read_meta(text, text) VOLATILE',
	'ALTER FUNCTION unsafemv.read_meta(text, text) RESET search_path',
	'GRANT EXECUTE ON FUNCTION unsafemv.read_meta(text, text) TO PUBLIC',
	'GRANT SELECT ON unsafemv.views TO PUBLIC',
	'GRANT USAGE ON SCHEMA unsafemv TO PUBLIC',
	'GRANT SELECT (view_id) ON unsafemv.views TO PUBLIC',
	'ALTER TABLE unsafemv.views ADD COLUMN other int',
	'ALTER TABLE unsafemv.views ALTER view_id SET DEFAULT 1',
	'ALTER TABLE unsafemv.views ALTER view_id SET STORAGE PLAIN',
	'ALTER TABLE unsafemv.views ADD CHECK (view_no < 7)',
	'ALTER TABLE unsafemv.views SET (fillfactor = 50)',
	'ALTER TABLE unsafemv.views DISABLE TRIGGER views_changed',
	'ALTER TABLE unsafemv.views ENABLE ROW LEVEL SECURITY',
	'CREATE INDEX ON unsafemv.views (view_no)',
	'ALTER VIEW unsafemv.errors SET (security_barrier)',
	'CREATE OR REPLACE VIEW unsafemv.errors AS SELECT code, sqlstate, NOT retryable AS retryable, meaning FROM unsafemv.error_catalogue()',
	'ALTER OPERATOR unsafemv.< (unsafemv.suid, unsafemv.suid) SET (RESTRICT = NONE)',
	'ALTER OPERATOR FAMILY unsafemv.suid_hash_ops USING hash DROP FUNCTION 2 (unsafemv.suid, unsafemv.suid)',
	'ALTER EXTENSION unsafemv DROP FUNCTION unsafemv.read_meta(text, text)',
	'CREATE FUNCTION unsafemv.other() RETURNS int LANGUAGE sql RETURN 1; ALTER EXTENSION unsafemv ADD FUNCTION unsafemv.other()')
{
	isnt(scalar differences($plain, catalogue('plain', "$change;")), 0, "the comparison sees: $change");
}

$node->safe_psql('other', <<'SQL');
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.lower(text) RETURNS text LANGUAGE sql RETURN 'hostile';
CREATE TYPE hostile.text AS (hostile int);
SET search_path = hostile, pg_catalog;
SET "TimeZone" = 'Asia/Tokyo';
SET "DateStyle" = 'SQL, DMY';
SET "IntervalStyle" = 'sql_standard';
SET default_transaction_isolation = 'serializable';
SET check_function_bodies = off;
CREATE EXTENSION unsafemv;
SQL
same('other', "an install under another session's settings is the same", $plain);
$node->safe_psql('other', 'DROP EXTENSION unsafemv; DROP SCHEMA IF EXISTS unsafemv; CREATE EXTENSION unsafemv');
same('other', 'an install after DROP EXTENSION is the same', $plain);

$node->safe_psql('plain', "SELECT unsafemv.create_view('s', 'v')");
my $dump = "$copy/plain.sql";
$node->command_ok([ 'pg_dump', '--file', $dump, '--dbname', $node->connstr('plain') ], 'dump');
$node->command_ok([ 'psql', '-XqAt', '--set', 'ON_ERROR_STOP=1', '--file', $dump, '--dbname', $node->connstr('restored') ], 'restore');
same('restored', 'a restored install is the same', $plain);

# Every update path that the tree ships leads to what an install makes.
my @paths = split /\n/, $node->safe_psql('postgres',
	"SELECT p.source FROM pg_extension_update_paths('unsafemv') p WHERE p.target = '$version' AND p.path IS NOT NULL
	 AND EXISTS (SELECT FROM pg_available_extension_versions v WHERE v.name = 'unsafemv' AND v.version = p.source) ORDER BY 1");
foreach my $from (@paths)
{
	$node->safe_psql('updated', "CREATE EXTENSION unsafemv VERSION '$from'; ALTER EXTENSION unsafemv UPDATE");
	same('updated', "an update from $from makes what an install makes", $plain);
	$node->safe_psql('updated', 'DROP EXTENSION unsafemv');
}

# The same with versions made up here: one whose update is complete, one that forgets something.
my $older = "COMMENT ON TABLE unsafemv.views IS 'older';\nCREATE TABLE unsafemv.obsolete (n int);\nALTER FUNCTION unsafemv.read_meta(text, text) COST 7;\n";
my ($cost) = $node->safe_psql('plain', "SELECT procost FROM pg_proc WHERE oid = 'unsafemv.read_meta(text, text)'::regprocedure");
my $comment = $node->safe_psql('plain', "SELECT quote_literal(obj_description('unsafemv.views'::regclass))");
write_script($_, $script . $older) foreach '0.0.1', '0.0.2';
write_script("0.0.1--$version", "COMMENT ON TABLE unsafemv.views IS $comment;\nDROP TABLE unsafemv.obsolete;\n"
	. "ALTER FUNCTION unsafemv.read_meta(text, text) COST $cost;\n");
write_script("0.0.2--$version", "DROP TABLE unsafemv.obsolete;\nALTER FUNCTION unsafemv.read_meta(text, text) COST $cost;\n");
$node->safe_psql('updated', "CREATE EXTENSION unsafemv VERSION '0.0.1'; ALTER EXTENSION unsafemv UPDATE");
same('updated', 'a complete update makes what an install makes', $plain);
$node->safe_psql('updated', "DROP EXTENSION unsafemv; CREATE EXTENSION unsafemv VERSION '0.0.2'; ALTER EXTENSION unsafemv UPDATE");
is(scalar differences($plain, catalogue('updated')), 2, "an incomplete one is found out (the comment, before and after)");

# --- library and SQL objects of different versions ---

my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

# Calls each function in C with NULL for every argument; those that answered otherwise.
my $call_all = <<'SQL';
CREATE FUNCTION pg_temp.answers() RETURNS TABLE (function text, answer text) LANGUAGE plpgsql AS $$
DECLARE p record;
BEGIN
	FOR p IN
		SELECT f.oid::regprocedure::text AS name, f.oid::regproc AS proc, f.prokind,
			(SELECT string_agg(format('NULL::%s AS a%s', format_type(t, NULL), i), ', ' ORDER BY i) FROM unnest(f.proargtypes::oid[]) WITH ORDINALITY u(t, i)) AS nulls,
			(SELECT string_agg('a' || i, ', ' ORDER BY i) FROM generate_series(1, f.pronargs) i) AS arguments,
			(SELECT string_agg('NULL', ', ') FROM generate_series(1, f.pronargs) i) AS plain
		FROM pg_proc f JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = f.oid AND d.deptype = 'e'
		JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'unsafemv'
		WHERE f.prolang = (SELECT oid FROM pg_language WHERE lanname = 'c') AND f.prosrc !~ '^unsafemv_(suid_|generate_suid)'
			AND f.prorettype <> 'trigger'::regtype
	LOOP
		BEGIN
			IF p.prokind = 'p' THEN
				EXECUTE format('CALL %s(%s)', p.proc, p.plain);
			ELSE
				EXECUTE format('SELECT %s(%s) FROM (SELECT %s OFFSET 0) s', p.proc, p.arguments, coalesce(p.nulls, '1'));
			END IF;
			function := p.name; answer := 'success'; RETURN NEXT;
		EXCEPTION WHEN OTHERS THEN
			function := p.name; answer := SQLSTATE || ' ' || SQLERRM; RETURN NEXT;
		END;
	END LOOP;
END $$;
SQL
my $refused = '55000 library and SQL objects of extension "unsafemv" are of different versions';

sub refuses_everything
{
	my ($database, $which) = @_;
	my $total = $node->safe_psql($database, "$call_all SELECT count(*) FROM pg_temp.answers()");
	cmp_ok($total, '>', 40, "$which: $total functions called");
	is($node->safe_psql($database, "$call_all SELECT function, answer FROM pg_temp.answers() WHERE answer <> '$refused' ORDER BY 1"),
		'', "$which: each refused with the one error");
	return;
}

is($node->safe_psql('plain', "$call_all SELECT count(*) FROM pg_temp.answers() WHERE answer = '$refused'"), '0', 'one version: no function refused so');

# The library is newer.
$node->safe_psql('updated', "DROP EXTENSION unsafemv; CREATE EXTENSION unsafemv VERSION '0.0.1'");
refuses_everything('updated', 'a newer library');
my ($code, $out, $err) = $node->psql('updated', "SELECT unsafemv.create_view('s', 'v')");
like($err, qr/DETAIL:  The library is of version \Q$version\E, the SQL objects are of version 0\.0\.1/, 'it names both versions');
like($err, qr/HINT: .*ALTER EXTENSION unsafemv UPDATE/, 'and says what to do');
$node->safe_psql('updated', 'ALTER EXTENSION unsafemv UPDATE');
is($node->safe_psql('updated', "SELECT unsafemv.create_view('s', 'v')"), '0', 'after ALTER EXTENSION UPDATE it works');

# The library is older: a new version's SQL objects, and the old library still in the server's sessions.
write_script("$version--99.0.0", <<'SQL');
DROP FUNCTION unsafemv.history_digest;
CREATE FUNCTION unsafemv.history_digest() RETURNS bytea LANGUAGE c AS 'MODULE_PATHNAME', 'unsafemv_history_digest';
ALTER TABLE unsafemv.views ADD COLUMN added int NOT NULL DEFAULT 0;
SQL
write_script("99.0.0--$version", <<'SQL');
DROP FUNCTION unsafemv.history_digest;
ALTER TABLE unsafemv.views DROP COLUMN added;
SQL
$node->safe_psql('plain', 'CREATE TABLE kept (suid unsafemv.suid)');
my ($sin, $sout, $serr) = ('', '', '');
my $timer = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
my $old = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('plain') ], '<', \$sin, '>', \$sout, '2>', \$serr, $timer);

# What the old session answers to a statement.
my $asked = 0;
sub ask
{
	my ($sql) = @_;
	my $mark = 'answered ' . ++$asked;
	($sout, $serr) = ('', '');
	$sin .= "$sql\n\\echo $mark\n\\warn $mark\n";
	pump $old until $sout =~ /\Q$mark\E/ && $serr =~ /\Q$mark\E/;
	return $serr =~ /^(.*?)\n?\Q$mark\E/s && $1 ne '' ? $1 : $sout =~ s/\n?\Q$mark\E\n$//r;
}

my $apply = sub { "SELECT outcome FROM unsafemv.apply('s', 'v', 'e$_[0]', unsafemv.suid_from_position($_[0]), '{\"upserts\": [{\"rowKey\": \"k\", \"value\": 1}]}');" };
my $digest = "SELECT length(unsafemv.history_digest(NULL, 'e', unsafemv.suid_from_position(1)));";
is(ask($digest), '32', 'a session under the old version works');
unlike(ask($apply->(1)), qr/ERROR/, 'and applies');
$node->safe_psql('plain', "ALTER EXTENSION unsafemv UPDATE TO '99.0.0'");
like(ask('SELECT unsafemv.history_digest();'), $error, 'a function that takes fewer arguments now is refused, it does not crash');
like(ask("SELECT unsafemv.create_view('s', 'w');"), $error, 'functions of a changed table are refused');
like(ask($apply->(2)), $error, 'also in a session that has called and planned them before');
refuses_everything('plain', 'an older library');
like(ask("SELECT unsafemv.suid_from_position(7) OPERATOR(unsafemv.<) unsafemv.suid_from_position(8);"), qr/^t$/, 'type suid works meanwhile');
$node->command_ok([ 'pg_dump', '--file', "$copy/between.sql", '--dbname', $node->connstr('plain') ], 'and so does a backup');
$node->safe_psql('plain', "ANALYZE; ALTER EXTENSION unsafemv UPDATE TO '$version'");
unlike(ask($apply->(2)), qr/ERROR/, 'back to one version, the same session works');
is(ask("SELECT count(*) FROM unsafemv.receipts;"), '2', 'with every event acknowledged before, and no other');
$sin .= "\\q\n";
$old->finish;

# A worker logs the error, backs off and goes on once the versions agree.
my $offset = -s $node->logfile;
$node->safe_psql('worker', "CREATE EXTENSION unsafemv VERSION '0.0.1'");
$node->wait_for_log($error, $offset);
$node->safe_psql('worker', 'ALTER EXTENSION unsafemv UPDATE');
$node->poll_query_until('worker', "SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'worker' AND backend_type ~ 'unsafemv'")
	or die 'the worker is gone';
pass('a worker logs the error and lives on');

is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server never restarted');
unlike(slurp_file($node->logfile), qr/terminated by signal|server process .* was terminated|TRAP/, 'and no backend crashed');
$node->stop;
done_testing();
