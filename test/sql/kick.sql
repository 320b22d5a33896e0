-- Kicks: dirty, granted, renewed, finished, taken over.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA kick_test;
RESET client_min_messages;
SET search_path = kick_test, unsafemv;

CREATE FUNCTION s(n bigint) RETURNS suid LANGUAGE sql IMMUTABLE AS
$$ SELECT lpad(n::text, 30, '0')::suid $$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;

-- the code a statement is refused with
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    number text;
    word text;
BEGIN
    EXECUTE statement;
    RETURN 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, word = CONSTRAINT_NAME;
    IF word = '' THEN RETURN number; END IF;
    RETURN word || CASE WHEN number IS DISTINCT FROM (SELECT e.sqlstate FROM unsafemv.errors e WHERE e.code = word)
        THEN ' WITH SQLSTATE ' || number ELSE '' END;
END $$;

CREATE FUNCTION no(view text) RETURNS bigint LANGUAGE sql STABLE AS
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'kick' AND view_id = view $$;
-- events are named by their SUID where nothing else is said
CREATE FUNCTION put(view text, n bigint, event text = NULL, plan jsonb = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END
    FROM unsafemv.apply('kick', view, coalesce(event, 'e' || n), s(n),
        coalesce(plan, jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb)))))
$$;
CREATE FUNCTION fold(view text, "from" bigint, n bigint, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT short(last_suid) FROM unsafemv.apply_safe('kick', view, s("from"), s(n),
        jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb))),
        coalesce(event, 'e' || n))
$$;
-- a grant as one line; the moment it ends at is only said to lie ahead
CREATE FUNCTION acquire(view text, owner text, lease interval = '1 h') RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('target %s, %s, epoch %s, until %s', coalesce(short(target_suid), '-'), CASE WHEN dirty THEN 'dirty' ELSE 'clean' END,
        lease_epoch, CASE WHEN lease_until > clock_timestamp() THEN 'later' ELSE 'past' END)
    FROM unsafemv.acquire_kick('kick', view, owner, lease)
$$;
CREATE FUNCTION next(owner text, services text[] = '{kick}', lease interval = '1 h') RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s/%s target %s, %s, epoch %s', service_id, view_id, coalesce(short(target_suid), '-'),
        CASE WHEN dirty THEN 'dirty' ELSE 'clean' END, lease_epoch)
    FROM unsafemv.next_kick(owner, lease, services)
$$;
CREATE FUNCTION finish(view text, owner text, epoch bigint, reached bigint = NULL, not_before timestamptz = NULL) RETURNS boolean LANGUAGE sql AS $$
    SELECT unsafemv.finish_kick('kick', view, owner, s(reached), epoch, not_before)
$$;
CREATE FUNCTION lease(view text) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s, epoch %s, %s', coalesce(lease_owner, 'free'), lease_epoch,
        CASE WHEN lease_until IS NULL THEN 'released' WHEN lease_until > clock_timestamp() THEN 'held' ELSE 'expired' END)
    FROM unsafemv.status WHERE service_id = 'kick' AND view_id = view
$$;
-- until the database clock says that the view's lease has expired
CREATE FUNCTION expired(view text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := (SELECT lease_until FROM unsafemv.kicks WHERE service_id = 'kick' AND view_no = no(view));
BEGIN
    WHILE clock_timestamp() <= until LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN lease(view);
END $$;
SELECT create_view('kick', 'v');

-- scenario 96: idle is no row
SELECT acquire('v', 'a');
SELECT next('a');
SELECT lease('v');

-- scenario 94: nobody drained; a later owner gets the target
SELECT put('v', 3), put('v', 5);
SELECT acquire('v', 'cron');
SELECT lease('v');
SELECT finish('v', 'cron', 1, 5);

-- scenarios 95, 92: finish says true; dirty follows from the receipts alone
SELECT lease('v');
SELECT acquire('v', 'a');
SELECT put('v', 7);
SELECT finish('v', 'a', 2, 5);
SELECT acquire('v', 'b');
SELECT fold('v', NULL, 3), fold('v', 3, 5), fold('v', 5, 7);
SELECT finish('v', 'b', 3, 7);
SELECT acquire('v', 'b');

-- scenario 91: held, also for its own owner; not by name but by grant
SELECT put('v', 8);
SELECT acquire('v', 'a');
SELECT refused($$SELECT acquire('v', 'b')$$), refused($$SELECT acquire('v', 'a')$$), (SELECT retryable FROM errors WHERE code = 'UNSAFE_KICK_LEASE_HELD');
SELECT next('b');

-- scenario 96: not the owner, an old epoch, a later one, another view's
SELECT finish('v', 'b', 4), finish('v', 'a', 3), finish('v', 'a', 5);
SELECT lease('v');
SELECT renew_kick('kick', 'v', 'a', 4, '2 h') > clock_timestamp() + interval '1 h' AS renewed;
SELECT refused($$SELECT renew_kick('kick', 'v', 'b', 4, '1 h')$$), refused($$SELECT renew_kick('kick', 'v', 'a', 3, '1 h')$$);
SELECT finish('v', 'a', 4);
SELECT finish('v', 'a', 4) AS twice, refused($$SELECT renew_kick('kick', 'v', 'a', 4, '1 h')$$) AS released;

-- scenario 93: a short lease; the newest target and a greater epoch after it
SELECT acquire('v', 'a', '100 ms');
SELECT put('v', 9);
SELECT expired('v');
SELECT acquire('v', 'b');

-- scenario 98, report 14: the expired holder of before is nobody any more
SELECT finish('v', 'a', 5), refused($$SELECT renew_kick('kick', 'v', 'a', 5, '1 h')$$);
SELECT lease('v');
-- report 17: the same name is not the same owner
SELECT finish('v', 'b', 6);
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 5), finish('v', 'a', 7);

-- scenario 97: the holder crashed with everything settled; the lease is grantable still
SELECT acquire('v', 'a', '50 ms');
SELECT fold('v', 7, 8), fold('v', 8, 9);
SELECT expired('v');
SELECT refused($$SELECT renew_kick('kick', 'v', 'a', 8, '1 h')$$) AS expired_not_taken;
SELECT acquire('v', 'b', '50 ms');
SELECT expired('v');
SELECT next('c');
SELECT acquire('v', 'd');
SELECT finish('v', 'c', 10);
SELECT acquire('v', 'd');
-- an expired lease is finished by its token as long as nobody else has one
SELECT put('v', 10);
SELECT acquire('v', 'a', '50 ms');
SELECT expired('v');
SELECT finish('v', 'a', 11), lease('v');

-- not_before holds next_kick back, not acquire_kick
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 12, NULL, clock_timestamp() + interval '1 h');
SELECT next('a');
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 13, NULL, clock_timestamp() - interval '1 s');
SELECT next('a');
SELECT finish('v', 'a', 14);

-- report 16: expiry by the clock, also in a transaction that began before
BEGIN;
SELECT acquire('v', 'a', '50 ms');
SELECT expired('v');
SELECT lease_until > now() AS after_the_start, lease_until < clock_timestamp() AS expired FROM status WHERE service_id = 'kick';
SELECT refused($$SELECT renew_kick('kick', 'v', 'a', 15, '1 h')$$);
SELECT acquire('v', 'b');
SELECT finish('v', 'a', 15), finish('v', 'b', 16);
COMMIT;

-- a grant that is rolled back leaves the former epoch
BEGIN;
SELECT acquire('v', 'a');
ROLLBACK;
SELECT lease('v');

-- what is dirty: any outcome; with rebuild_required only what lies above the head
SELECT fold('v', 9, 10);
SELECT put('v', 11, plan => '{}');
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 17), fold('v', 10, 12);
SELECT acquire('v', 'a'), 'settled by the step that passed it';
SELECT put('v', 4, 'late');
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 18);
UPDATE unsafemv.generations SET rebuild_required = true, behind_frontier_event_id = 'late', behind_frontier_suid = s(4)
WHERE service_id = 'kick' AND view_no = no('v');
SELECT acquire('v', 'a'), 'nothing above the head';
SELECT next('a'), 'nothing above the head';
SELECT put('v', 13);
SELECT acquire('v', 'a');
SELECT finish('v', 'a', 19);
SELECT next('a');
SELECT finish('v', 'a', 20), drop_view('kick', 'v');

-- the oldest unsettled event of a service goes first
SELECT create_view('kick', 'x'), create_view('kick', 'y'), create_view('kick', 'z');
SELECT put('x', 30), put('y', 20), put('y', 40), put('z', 25);
SELECT next('a');
SELECT next('a');
SELECT next('a');
SELECT next('a'), 'all are leased';
SELECT finish('y', 'a', 1), finish('z', 'a', 1);
BEGIN;
SELECT next('b', NULL) IS NOT NULL AS of_all_services;
ROLLBACK;
SELECT next('b', '{none}'), 'no such service';
SELECT next('b', '{}'), 'no service';
SELECT next('b', '{none,kick,kick}');
SELECT drop_view('kick', view_id) FROM (SELECT view_id FROM views WHERE service_id = 'kick' ORDER BY view_id LIMIT 3) v;
SELECT count(*) AS leases_left FROM unsafemv.kicks WHERE service_id = 'kick';

-- scenario 247: one service with 1,000 dirty views, another with one
SELECT count(create_view('kick many', 'v' || n)) FROM generate_series(1, 1000) n;
SELECT count(a) FROM generate_series(1, 1000) n, apply('kick many', 'v' || n, 'e', s(n), '{}') a;
SELECT create_view('kick one', 'w');
SELECT outcome FROM apply('kick one', 'w', 'e', s(5000), '{}');
SELECT next('a', '{kick many,kick one}');
SELECT next('b', '{kick many,kick one}');
SELECT next('c', '{kick many,kick one}');
SELECT finish_kick('kick one', 'w', 'b', NULL, 1);
SELECT next('b', '{kick many,kick one}');
SELECT next('c', '{kick many,kick one}');
-- never asked for: the one served longest ago
SELECT create_view('kick two', 'w');
SELECT outcome FROM apply('kick two', 'w', 'e', s(9000), '{}');
SELECT next('c', '{kick many,kick one,kick two}');

-- its cost follows the dirty views: how many are granted by one session in one go
SELECT count(DISTINCT view_id) AS views, min(lease_epoch), max(lease_epoch), bool_and(dirty) AS dirty
FROM generate_series(1, 100) n, next_kick('d' || n, '1 h', '{kick many}');

-- SERIALIZABLE and REPEATABLE READ work where nobody interferes
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM next_kick('e', '1 h', '{kick many}');
SELECT service_id, view_id, lease_epoch, dirty FROM next_kick('e', '1 h', '{kick many}');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(*) FROM next_kick('e', '1 h', '{kick many}');
COMMIT;

-- scenario 100 and other errors
SELECT create_view('kick', 'v');
SELECT put('v', 1);
SELECT n, refused(statement) FROM (VALUES
    (1, $$SELECT * FROM acquire_kick('kick', 'none', 'a', '1 s')$$),
    (2, $$SELECT renew_kick('kick', 'none', 'a', 1, '1 s')$$),
    (3, $$SELECT finish_kick('kick', 'none', 'a', NULL, 1)$$),
    (4, $$SELECT * FROM acquire_kick('kick', 'v', '', '1 s')$$),
    (5, $$SELECT * FROM acquire_kick('kick', 'v', NULL, '1 s')$$),
    (6, $$SELECT * FROM acquire_kick('kick', 'v', 'a', NULL)$$),
    (7, $$SELECT * FROM acquire_kick('kick', 'v', 'a', '0')$$),
    (8, $$SELECT * FROM acquire_kick('kick', 'v', 'a', '-1 s')$$),
    (9, $$SELECT * FROM acquire_kick(NULL, 'v', 'a', '1 s')$$),
    (10, $$SELECT * FROM next_kick('', '1 s')$$),
    (11, $$SELECT * FROM next_kick(NULL, '1 s')$$),
    (12, $$SELECT * FROM next_kick('a', NULL)$$),
    (13, $$SELECT * FROM next_kick('a', '-1 s')$$),
    (14, $$SELECT * FROM next_kick('a', '1 s', '{kick,NULL}')$$),
    (15, $$SELECT renew_kick('kick', 'v', NULL, 1, '1 s')$$),
    (16, $$SELECT renew_kick('kick', 'v', 'a', NULL, '1 s')$$),
    (17, $$SELECT renew_kick('kick', 'v', 'a', 1, '0')$$),
    (18, $$SELECT renew_kick('kick', 'v', 'a', 1, '1 s')$$),
    (19, $$SELECT finish_kick('kick', 'v', '', NULL, 1)$$),
    (20, $$SELECT finish_kick('kick', 'v', 'a', NULL, NULL)$$)
) AS c(n, statement) ORDER BY n;

-- every interval argument: from 0 to 1000 years, in each of its parts, so that a moment can be reckoned from it
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT create_view('kick', 'intervals');
SELECT p.proname AS not_tried FROM pg_proc p WHERE pronamespace = 'unsafemv'::regnamespace AND 'interval'::regtype = ANY (p.proargtypes) AND probin IS NOT NULL
    AND proname NOT IN ('create_view', 'alter_view', 'observe_lag', 'acquire_kick', 'next_kick', 'worker_kick', 'renew_kick', 'wait_for', 'wait_until');
SET statement_timeout = '1min';
SELECT said(replace(statement, 'I', quote_literal(value))) AS said, string_agg(DISTINCT substring(statement FROM '\w+\('), ' ') AS functions, count(DISTINCT value) AS intervals
FROM unnest(ARRAY['1001 years', '200000 years', '178000000 years', '2147483647 months', '2147483647 days', '2000000000 hours', '75000000 months -2147483648 days', '-1 s', '-178000000 years', '-2147483648 days 75000000 hours']) value,
    unnest(ARRAY['create_view(''kick'', ''bad'', receipt_retention => I)', 'alter_view(''kick'', ''intervals'', I)', 'alter_view(''kick'', ''intervals'', window_floor => I)',
    'alter_view(''kick'', ''intervals'', window_ceiling => I)', 'observe_lag(''kick'', I)', 'acquire_kick(''kick'', ''intervals'', ''a'', I)', 'next_kick(''a'', I)', 'worker_kick(''a'', I)',
    'renew_kick(''kick'', ''intervals'', ''a'', 1, I)', 'wait_for(''kick'', ''intervals'', ''e'', s(1), I)']) f, LATERAL (SELECT 'SELECT * FROM unsafemv.' || f) x(statement) GROUP BY 1 ORDER BY 1;
\set VERBOSITY terse
CALL wait_until('kick', 'intervals', 'e', s(1), '178000000 years');
CALL wait_until('kick', 'intervals', 'e', s(1), '-178000000 years');
\set VERBOSITY default
-- the longest, as a year has it and as days and hours have it
SELECT put('intervals', 1);
SELECT observe_lag('kick', '1000 years'), observe_lag('kick intervals', '359999 days 24:00:00'), alter_view('kick', 'intervals', '1000 years'),
    wait_for('kick', 'intervals', 'e1', s(1), '1000 years'), acquire('intervals', 'a', '1000 years'), renew_kick('kick', 'intervals', 'a', 1, '350000 days 240000 hours') > clock_timestamp() AS renewed;
SELECT fold('intervals', NULL, 1);
SELECT drop_view('kick', 'intervals');
DELETE FROM lags WHERE service_id LIKE 'kick%';
RESET statement_timeout;

-- a view that is being dropped: missing for acquire, nothing for next
SELECT drop_view('kick', 'v', 0) > 0 AS in_parts;
SELECT refused($$SELECT acquire('v', 'a')$$);
SELECT next('a'), 'skipped';
SELECT drop_view('kick', 'v');
SELECT refused($$SELECT acquire('v', 'a')$$);

SELECT * FROM unsafemv.check('kick');
SELECT * FROM unsafemv.check('kick many');
SET client_min_messages = warning;
DO $$ BEGIN PERFORM unsafemv.drop_view(service_id, view_id) FROM unsafemv.views WHERE service_id LIKE 'kick%'; END $$;
DROP SCHEMA kick_test CASCADE;
