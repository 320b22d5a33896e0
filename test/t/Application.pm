# The SQL of an ordinary application, for tests that need one; uses nothing of
# PostgreSQL's test modules.
package Application;
use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw($application $event_table);

# The extension, and an ordinary role with a schema of its own, which the session goes on as.
our $application = <<'SQL';
CREATE EXTENSION unsafemv;
CREATE ROLE app LOGIN;
GRANT USAGE ON SCHEMA unsafemv TO app;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO app;
GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO app;
CREATE SCHEMA app AUTHORIZATION app;
SET ROLE app;
CREATE FUNCTION app.pos(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);
SQL

our $event_table = <<'SQL';
CREATE TABLE app.events (service_id text NOT NULL, event_id text NOT NULL, suid unsafemv.suid NOT NULL, event jsonb NOT NULL,
	arrived_at timestamptz NOT NULL DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON app.events (service_id, suid);
CREATE INDEX ON app.events (service_id, arrived_at);
SQL

1;
