# Report 17: the backend of a lease's holder is killed (signal 9: the server restarts).
# The lease lasts until it expires, then anybody gets it with a greater epoch; the same
# owner name with the old epoch is not the owner.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use IPC::Run;
use FindBin;
use lib $FindBin::RealBin;
use Unsafemv qw(cluster poll);

my $node = cluster('leases', "fsync = on\nsynchronous_commit = on\nrestart_after_crash = on\n");

$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION unsafemv;
SELECT unsafemv.create_view('s', 'v');
SELECT unsafemv.apply('s', 'v', 'e5', unsafemv.suid_from_position(5), '{"upserts": [{"rowKey": "k", "value": 1}]}');
SQL

# What a statement answers, or its code word.
sub said
{
	my ($sql) = @_;
	my ($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql", on_error_stop => 1);
	return $out if $code == 0;
	return $err =~ /CONSTRAINT NAME:\s*(\S+)/ ? $1 : $err;
}

my $acquire = sub { "SELECT lease_epoch, target_suid IS NOT NULL, dirty FROM unsafemv.acquire_kick('s', 'v', '$_[0]', '$_[1]')" };

# A worker acquires, commits, and works on until it is killed.
my ($in, $out, $err) = ('', '', '');
my $worker = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
	'<', \$in, '>', \$out, '2>', \$err,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
$in .= $acquire->('worker', '8 s') . ";\nSELECT pg_backend_pid();\nSELECT pg_sleep(600);\n";
$worker->pump until $out =~ /^1\|t\|t\n(\d+)\n/;
my ($pid) = $out =~ /\n(\d+)\n/;

is(said($acquire->('other', '1 s')), 'UNSAFE_KICK_LEASE_HELD', 'report 17: held while the holder works');
kill 'KILL', $pid;
eval { $worker->finish };
poll($node, 'SELECT true');

is(said($acquire->('worker', '1 s')), 'UNSAFE_KICK_LEASE_HELD',
	'report 17: after the crash the lease lasts until it expires, also for the same name');
is(said("SELECT lease_owner || ' ' || lease_epoch FROM unsafemv.status"), 'worker 1', 'report 17: visible in status');
$node->poll_query_until('postgres', 'SELECT lease_until < clock_timestamp() FROM unsafemv.kicks')
  or die 'the lease does not expire';
is(said($acquire->('worker', '60 s')), '2|t|t', 'report 17: reclaimed after it expired, with a greater epoch');
is(said("SELECT unsafemv.renew_kick('s', 'v', 'worker', 1, '60 s')"), 'UNSAFE_KICK_LEASE_LOST',
	'report 17: the same name with the old epoch cannot renew');
is(said("SELECT unsafemv.finish_kick('s', 'v', 'worker', unsafemv.suid_from_position(5), 1)"), 'f',
	'report 17: nor finish');
is(said("SELECT lease_owner || ' ' || lease_epoch FROM unsafemv.status"), 'worker 2', 'report 17: the new lease is intact');

# An immediate stop of the server: the lease is data like any other.
$node->stop('immediate');
$node->start;
is(said($acquire->('other', '1 s')), 'UNSAFE_KICK_LEASE_HELD', 'report 17: held across an immediate stop');
is(said("SELECT unsafemv.finish_kick('s', 'v', 'worker', unsafemv.suid_from_position(5), 2)"), 't', 'report 17: the holder finishes');
is(said($acquire->('other', '1 s')), '3|t|t', 'report 17: the view is dirty still and free for anybody');
is($node->safe_psql('postgres', 'SELECT * FROM unsafemv.check()'), '', 'check() is empty');

$node->stop;
done_testing();
