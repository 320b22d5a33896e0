# What several TAP tests need.
package Unsafemv;
use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

our @EXPORT_OK = qw(cluster poll answer session);

# A server that runs and finds the extension, with more lines of configuration.
sub cluster
{
	my ($name, $conf, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%init);
	$node->append_conf('postgresql.conf', slurp_file($ENV{UNSAFEMV_CONF}) . ($conf // ''));
	$node->start;
	return $node;
}

# poll_query_until for a server that is going down or coming up: that one writes the
# query to psql's standard input and dies of a broken pipe when psql cannot connect.
sub poll
{
	my ($node, $sql, $wanted) = @_;
	$wanted //= 't';
	my ($out, $err) = ('', '');
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		($out, $err) = ('', '');
		IPC::Run::run([ 'psql', '-XqAt', '-d', $node->connstr('postgres'), '-c', $sql ], '<', '/dev/null', '>', \$out, '2>', \$err);
		chomp $out;
		return 1 if $out eq $wanted && $err eq '';
		usleep(100_000);
	}
	Test::More::diag("poll: $sql\nwanted: $wanted\ngot: $out\n$err");
	return 0;
}

# A result, or the SQLSTATE of the error.
sub answer
{
	my ($node, $database, $sql, %parameters) = @_;
	my ($code, $out, $err) = $node->psql($database, $sql, extra_params => [ '-v', 'VERBOSITY=sqlstate' ], %parameters);
	return $code == 0 ? $out : $err =~ /(?:ERROR|FATAL):\s+(\w+)/ ? $1 : $err;
}

# A psql session: $session->run(sql) gives its output, errors (SQLSTATE only) included.
sub session
{
	my ($connstr) = @_;
	my $self = { in => '', out => '' };
	$self->{run} = IPC::Run::start([ 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-d', $connstr ],
		'<', \$self->{in}, '>&', \$self->{out}, IPC::Run::timer(10 * $PostgreSQL::Test::Utils::timeout_default));
	bless $self, 'Unsafemv::Session';
	$self->{pid} = $self->run('SELECT pg_backend_pid()');
	return $self;
}

package Unsafemv::Session;

sub run
{
	my ($self, $sql) = @_;
	$self->{in} .= "$sql\n;\n\\echo end of answer\n";
	$self->{run}->pump until $self->{out} =~ /^end of answer\n/m || !$self->{run}->pumpable;
	my ($answer) = $self->{out} =~ /\A(.*?)^end of answer\n/ms or die "session lost: $self->{out}";
	$self->{out} = '';
	chomp $answer;
	return $answer;
}

sub quit
{
	my $self = shift;
	$self->{in} .= "\\q\n";
	$self->{run}->finish;
	return;
}

1;
