-- What a worker takes, and who may start one.  The worker itself: test/t/004_worker.pl.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA worker_test;
RESET client_min_messages;
SET search_path = worker_test, unsafemv;
CREATE ROLE worker_owner;
GRANT USAGE ON SCHEMA worker_test, unsafemv TO worker_owner;
GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO worker_owner;
GRANT EXECUTE ON FUNCTION unsafemv.attach_projection(text, text, text, text, text, text[]) TO worker_owner;

CREATE TABLE events (
    service_id text NOT NULL,
    event_id text NOT NULL,
    suid suid NOT NULL,
    event jsonb NOT NULL,
    arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (service_id, event_id)
);
CREATE UNIQUE INDEX ON events (service_id, suid);
CREATE INDEX ON events (service_id, arrived_at);
GRANT SELECT ON events TO worker_owner;
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION attach(service text, view text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    attached boolean;
BEGIN
    SET LOCAL ROLE worker_owner;
    attached := unsafemv.attach_projection(service, view, 'worker_test.events', 'worker_test.plan');
    RESET ROLE;
    RETURN attached;
END $$;
-- how long ago the last pass of all projections was; all leases are released
CREATE FUNCTION passed(ago interval) RETURNS void LANGUAGE sql AS $$
    UPDATE unsafemv.projections SET last_pass = clock_timestamp() - ago;
    DELETE FROM unsafemv.kicks;
$$;
CREATE FUNCTION acquired(view text) RETURNS TABLE(target text, dirty boolean) LANGUAGE sql AS $$
    SELECT target_suid, dirty FROM unsafemv.acquire_kick('w1', view, 'me', '1 min')
$$;

-- a view with a projection is due when its last pass is older than its window
SELECT create_view('w1', 'v');
SELECT * FROM acquired('v');
SELECT attach('w1', 'v');
SELECT * FROM acquired('v');
SELECT passed('10 s');
SELECT * FROM acquired('v');
SELECT passed('30 s');
SELECT * FROM acquired('v');
-- the window follows the lag, up to the ceiling
SELECT observe_lag('w1', '1 min');
SELECT passed('30 s');
SELECT * FROM acquired('v');
SELECT passed('75 s');
SELECT * FROM acquired('v');
SELECT observe_lag('w1', '1 hour');
SELECT passed('100 s');
SELECT * FROM acquired('v');
SELECT passed('140 s');
SELECT * FROM acquired('v');
DELETE FROM lags WHERE service_id = 'w1';
-- dirty says more
SELECT passed('30 s');
SELECT outcome FROM apply('w1', 'v', 'e', '000000000000000000000000000005', '{}');
SELECT * FROM acquired('v');

-- next_kick: dirty or due, the oldest work of a service first; services take turns
SELECT create_view('w1', 'never'), create_view('w1', 'dirty only'), create_view('w1', 'idle'), create_view('w2', 'v');
SELECT attach('w1', 'never'), attach('w1', 'idle'), attach('w2', 'v');
SELECT passed('1 min');
UPDATE projections SET last_pass = NULL WHERE view_no = (SELECT view_no FROM views WHERE service_id = 'w1' AND view_id = 'never');
UPDATE projections SET last_pass = clock_timestamp() WHERE view_no = (SELECT view_no FROM views WHERE service_id = 'w1' AND view_id = 'idle');
SELECT outcome FROM apply('w1', 'dirty only', 'e', '000000000000000000000000000006', '{}');
SELECT service_id, view_id, target_suid, dirty FROM next_kick('me', '1 min', '{w1,w2}');
SELECT service_id, view_id, target_suid, dirty FROM next_kick('me', '1 min', '{w1,w2}');
SELECT service_id, view_id, target_suid, dirty FROM next_kick('me', '1 min', '{w1,w2}');
SELECT service_id, view_id, target_suid, dirty FROM next_kick('me', '1 min', '{w1,w2}');
SELECT service_id, view_id, target_suid, dirty FROM next_kick('me', '1 min', '{w1,w2}');
-- not before its time
SELECT passed('1 min');
SELECT finish_kick(service_id, view_id, 'me', NULL, lease_epoch, clock_timestamp() + interval '1 hour') FROM next_kick('me', '1 min', '{w2}');
SELECT view_id FROM next_kick('me', '1 min', '{w2}');
SELECT target_suid, dirty FROM acquire_kick('w2', 'v', 'me', '1 min');

-- what a worker takes has a projection, also when a lease was abandoned
DELETE FROM kicks;
UPDATE projections SET last_pass = clock_timestamp();
SELECT view_id FROM worker_kick('me', '1 min', '{w1,w2}');
SELECT view_id FROM worker_kick('me', '1 min', '{w1,w2}');
SELECT view_id FROM next_kick('me', '1 min', '{w1,w2}');
UPDATE kicks SET lease_until = clock_timestamp() - interval '1 s';
SELECT view_id FROM worker_kick('me', '1 min', '{w1,w2}');
SELECT view_id FROM worker_kick('me', '1 min', '{w1,w2}');
-- a view that is being dropped, or detached, is not due
SELECT detach_projection('w2', 'v');
SELECT passed('1 min');
SELECT count(*) FROM worker_kick('me', '1 min', '{w2}');

-- who may start and stop
SET ROLE worker_owner;
SELECT unsafemv.start_worker();
SELECT unsafemv.stop_worker();
SELECT count(*) FROM unsafemv.worker_kick('me', '1 min');
RESET ROLE;
SELECT stop_worker(), stop_worker(1);
SELECT name, setting, unit, context FROM pg_settings WHERE name LIKE 'unsafemv.worker%' OR name = 'unsafemv.databases' ORDER BY name;

SET client_min_messages = warning;
DROP SCHEMA worker_test CASCADE;
SELECT count(drop_view(service_id, view_id)) FROM unsafemv.views WHERE service_id IN ('w1', 'w2');
DROP OWNED BY worker_owner;
DROP ROLE worker_owner;
