-- Waiting for an event, in one session; test/specs and test/bin/waiters have the others.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA wait_test;
RESET client_min_messages;
SET search_path = wait_test, unsafemv;

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
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'wait' AND view_id = view $$;
-- events are named by their SUID where nothing else is said
CREATE FUNCTION put(view text, n bigint, event text = NULL, plan jsonb = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END
    FROM unsafemv.apply('wait', view, coalesce(event, 'e' || n), s(n),
        coalesce(plan, jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb)))))
$$;
CREATE FUNCTION fold(view text, "from" bigint, n bigint, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT short(last_suid) FROM unsafemv.apply_safe('wait', view, s("from"), s(n),
        jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb))),
        coalesce(event, 'e' || n))
$$;
CREATE FUNCTION wait(view text, n bigint, event text = NULL, timeout interval = '0', consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT unsafemv.wait_for('wait', view, coalesce(event, 'e' || n), s(n), timeout, consistency)
$$;
CREATE FUNCTION state(view text, n bigint, event text = NULL, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT format('%s: receipt %s, settled %s, outcome %s, head %s, floor %s, gate %s, failure %s', verdict, receipt, settled,
        coalesce(outcome, '-'), coalesce(short(head), '-'), coalesce(short(receipt_floor), '-'), gate, failure)
    FROM unsafemv.read_wait_state('wait', view, coalesce(event, 'e' || n), s(n), consistency)
$$;
SELECT create_view('wait', 'v');

-- nothing there: a timeout at the asked time
SELECT wait('v', 5), state('v', 5);
CREATE TABLE clock AS SELECT clock_timestamp() AS began;
SELECT wait('v', 5, timeout => '300 ms');
SELECT clock_timestamp() - began >= interval '300 ms' AS not_early, clock_timestamp() - began < interval '5 s' AS not_late FROM clock;

-- scenario 181: a receipt is visible at once, without a sleep; safe: a settled one
SELECT put('v', 5);
SELECT wait('v', 5), state('v', 5);
SELECT wait('v', 5, consistency => 'safe'), state('v', 5, consistency => 'safe');
SELECT fold('v', NULL, 5);
SELECT wait('v', 5, consistency => 'safe'), state('v', 5, consistency => 'safe');
UPDATE clock SET began = clock_timestamp();
SELECT wait('v', 5, timeout => '1 h'), wait('v', 5, timeout => '1 h', consistency => 'safe');
SELECT clock_timestamp() - began < interval '1 s' AS at_once FROM clock;

-- scenario 183, report 33: every outcome leaves a receipt that satisfies the wait
SELECT put('v', 6, plan => '{}'), wait('v', 6);
SELECT put('v', 7, plan => '{"patches": [{"kind": "json_patch", "rowKey": "none", "patch": {"a": 1}}]}'), wait('v', 7);
SELECT put('v', 8, plan => '{"deletes": ["nothing"]}'), wait('v', 8);
SELECT put('v', 10, plan => '{"upserts": [{"rowKey": "k", "value": {}}]}'),
    put('v', 9, plan => '{"upserts": [{"rowKey": "k", "value": {}}]}'), wait('v', 9);

-- an event whose append was rolled back is not there
BEGIN;
SELECT put('v', 11), wait('v', 11);
ROLLBACK;
SELECT wait('v', 11);

-- scenario 184, report 32: a head above the SUID does not say that this event was applied
SELECT create_view('wait', 'seeded', last_suid => s(20));
SELECT create_view('wait', 'head');
SELECT fold('head', NULL, 20);
SELECT wait('head', 12), state('head', 12);
SELECT wait('head', 12, consistency => 'safe');
-- scenario 182: head and receipt floor have both passed it
SELECT wait('seeded', 12), state('seeded', 12), wait('seeded', 12, consistency => 'safe');
SELECT wait('seeded', 20), wait('seeded', 21);
UPDATE unsafemv.generations SET receipt_floor = s(15) WHERE service_id = 'wait' AND view_no = no('head');
SELECT wait('head', 12), wait('head', 16);

-- scenario 185: an open failure finding, until the event has a receipt or it is resolved
SELECT record_unsafe_failure('wait', 'v', 'e30', s(30), 'no');
SELECT wait('v', 30, timeout => '1 h'), state('v', 30);
SELECT wait('v', 31), 'another event';
SELECT put('v', 30), wait('v', 30), state('v', 30);
SELECT record_unsafe_failure('wait', 'v', 'e32', s(32), 'no');
SELECT resolve_finding('wait', 'v', 'unsafe-failure', 'e32'), wait('v', 32);

-- scenario 186: the SUID is another event's, or the event has another SUID
SELECT wait('v', 5, 'other', '1 h'), state('v', 5, 'other');
SELECT wait('v', 30, 'other', '1 h'), state('v', 30, 'other');
SELECT wait('v', 33, 'e30', '1 h'), state('v', 33, 'e30');

-- gates: a quarantine closes safe waits only
SELECT record_ordering_quarantine('wait', 'v', 'q', s(5));
SELECT wait('v', 5), wait('v', 5, consistency => 'safe', timeout => '1 h'), state('v', 5, consistency => 'safe');
SELECT resolve_finding('wait', 'v', 'ordering-quarantine');
-- checkpoint-ahead closes both, also for what is there
SELECT record_checkpoint_ahead('wait', 'v', s(1));
SELECT wait('v', 5), wait('v', 5, consistency => 'safe'), state('v', 5);
SELECT resolve_finding('wait', 'v', 'checkpoint-ahead');
SELECT wait('v', 5);
-- an event behind the head
SELECT put('v', 2);
SELECT wait('v', 5), wait('v', 2, timeout => '1 h'), state('v', 2);

-- scenario 188: a receipt of the former generation counts if it was carried or the candidate has it, and no other
CREATE FUNCTION has(view text, n bigint) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s in %s', CASE WHEN settled THEN 'settled' ELSE 'unsettled' END, generation), ', ' ORDER BY generation), '-')
    FROM unsafemv.receipts WHERE service_id = 'wait' AND view_no = no(view) AND event_id = 'e' || n
$$;
CREATE FUNCTION rebuild(view text, n bigint, version bigint, force boolean = false) RETURNS text LANGUAGE sql AS $$
    SELECT format('generation %s, carried %s, redeliver %s', p.generation, p.carried, p.redeliver)
    FROM unsafemv.begin_rebuild('wait', view, version) c,
    LATERAL unsafemv.apply_safe('wait', view, NULL, s(n), jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb))),
        'e' || n, c) f,
    LATERAL unsafemv.promote_generation('wait', view, c, (SELECT a.generation FROM unsafemv.read_active('wait', view) a), force AND f.last_suid IS NOT NULL) p
$$;
SELECT create_view('wait', 'old');
SELECT put('old', 4, plan => '{}'), put('old', 5), put('old', 9), fold('old', NULL, 5);
SELECT record_unsafe_failure('wait', 'old', 'e30', s(30), 'no');
SELECT n, wait('old', n), wait('old', n, consistency => 'safe') AS safe FROM unnest(ARRAY[4, 5, 9, 30]) n;
SELECT rebuild('old', 5, 1);
SELECT n, has('old', n), has_target_receipt('wait', 'old', 'e' || n, s(n)), wait('old', n), wait('old', n, consistency => 'safe') AS safe FROM unnest(ARRAY[4, 5, 9, 30]) n;
SELECT state('old', 4), state('old', 30);
-- a failure of the generation that is active now does count
SELECT record_unsafe_failure('wait', 'old', 'e31', s(31), 'no'), wait('old', 31), wait('old', 30);
-- another definition: nothing is carried, so not until it has been delivered again
SELECT begin_rebuild('wait', 'old', 2, last_suid => s(5)), (promote_generation('wait', 'old', 2, 1)).redeliver;
SELECT n, has('old', n), wait('old', n) FROM unnest(ARRAY[5, 9, 31]) n;
SELECT put('old', 9), wait('old', 9);
-- below head and floor of the generation that is active now no receipt is asked for
SELECT create_view('wait', 'floor');
SELECT put('floor', 5), fold('floor', NULL, 5), put('floor', 9), wait('floor', 9);
SELECT begin_rebuild('wait', 'floor', 1, last_suid => s(5)), promote_generation('wait', 'floor', 1, 0);
SELECT n, has('floor', n), wait('floor', n), wait('floor', n, consistency => 'safe') AS safe FROM unnest(ARRAY[5, 9]) n;
-- forced: what the candidate lacks is carried unsettled, which closes the reads, and so the waits
SELECT create_view('wait', 'forced');
SELECT put('forced', 3), put('forced', 5), fold('forced', NULL, 3), fold('forced', 3, 5);
SELECT refused($$SELECT rebuild('forced', 5, 1)$$), rebuild('forced', 5, 1, true);
SELECT n, has('forced', n), wait('forced', n) FROM unnest(ARRAY[3, 5]) n;

-- safe within the transaction that wrote the receipt: refused at once, not waited for
SELECT create_view('wait', 'own');
BEGIN;
SELECT put('own', 1), wait('own', 1);
SELECT refused($$SELECT wait('own', 1, timeout => '1 h', consistency => 'safe')$$);
SELECT refused($$SELECT wait('own', 1, consistency => 'safe')$$);
COMMIT;
SELECT wait('own', 1, consistency => 'safe'), 'committed';

-- report 34: levels that show one snapshot are refused; the state is readable there
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT state('own', 1);
SELECT refused($$SELECT wait('own', 1)$$);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT refused($$SELECT wait('own', 1)$$);
COMMIT;
BEGIN READ ONLY;
SELECT wait('own', 1), state('own', 1);
COMMIT;

-- the procedure
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1));
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1), timeout => '0', consistency => 'safe');
CALL unsafemv.wait_until('wait', 'own', 'e2', s(2), '100 ms', 'composed', NULL);
CALL unsafemv.wait_until(service_id => 'wait', view_id => 'v', event_id => 'e5', suid => s(5), result => NULL);
DO $$
DECLARE
    answer text;
BEGIN
    CALL unsafemv.wait_until('wait', 'own', 'e1', s(1), result => answer);
    RAISE NOTICE '%', answer;
    CALL unsafemv.wait_until('wait', 'own', 'e2', s(2), timeout => '60 ms', result => answer);
    RAISE NOTICE '%', answer;
END $$;
\set VERBOSITY sqlstate
BEGIN;
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1));
ROLLBACK;
SELECT refused($$CALL unsafemv.wait_until('wait', 'own', 'e1', wait_test.s(1))$$);
DO $$
DECLARE
    answer text;
BEGIN
    CALL unsafemv.wait_until('wait', 'own', 'e1', s(1), result => answer);
EXCEPTION WHEN no_data_found THEN
    NULL;
END $$;
SET default_transaction_isolation = 'repeatable read';
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1));
RESET default_transaction_isolation;
CALL unsafemv.wait_until('wait', 'none', 'e1', s(1));
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1), timeout => '-1 s');
CALL unsafemv.wait_until('wait', NULL, 'e1', s(1));
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1), consistency => 'strong');
\set VERBOSITY default
-- it reads the extension's tables, whatever the caller's path says, and leaves the path alone
CREATE TEMP TABLE receipts (x int);
CREATE OPERATOR wait_test.= (LEFTARG = text, RIGHTARG = text, FUNCTION = textne);
SET search_path = wait_test, pg_catalog, unsafemv;
DISCARD PLANS;
CALL unsafemv.wait_until('wait', 'own', 'e1', s(1));
SHOW search_path;
DROP OPERATOR wait_test.= (text, text);
SET search_path = wait_test, unsafemv;
DROP TABLE receipts;

-- errors
SELECT n, refused(statement) FROM (VALUES
    (1, $$SELECT wait_for('wait', 'none', 'e', s(1), '0')$$),
    (2, $$SELECT wait_for('wait', 'own', 'e', s(1), '-1 ms')$$),
    (3, $$SELECT wait_for('wait', 'own', 'e', s(1), NULL)$$),
    (4, $$SELECT wait_for('wait', 'own', 'e', s(1), '0', NULL)$$),
    (5, $$SELECT wait_for('wait', 'own', 'e', s(1), '0', 'strong')$$),
    (6, $$SELECT wait_for('wait', 'own', 'e', NULL, '0')$$),
    (7, $$SELECT wait_for('wait', 'own', '', s(1), '0')$$),
    (8, $$SELECT wait_for('wait', 'own', repeat('e', 1025), s(1), '0')$$),
    (9, $$SELECT wait_for(NULL, 'own', 'e', s(1), '0')$$),
    (10, $$SELECT * FROM read_wait_state('wait', 'none', 'e', s(1))$$),
    (11, $$SELECT * FROM read_wait_state('wait', 'own', 'e', NULL)$$),
    (12, $$SELECT * FROM read_wait_state('wait', 'own', 'e', s(1), NULL)$$),
    (13, $$SELECT * FROM read_wait_state('wait', 'own', 'e', s(1), 'strong')$$)
) AS c(n, statement) ORDER BY n;

-- a cancelled wait is over within a second and leaves the session usable
SET statement_timeout = '200 ms';
UPDATE clock SET began = clock_timestamp();
SELECT wait('own', 9, timeout => '1 h');
CALL unsafemv.wait_until('wait', 'own', 'e9', s(9), '1 h');
RESET statement_timeout;
SELECT clock_timestamp() - began < interval '2 s' AS soon FROM clock;
SELECT wait('own', 1);

-- a view that is being dropped
SELECT drop_view('wait', 'own', 0) > 0 AS in_parts;
SELECT refused($$SELECT wait('own', 1)$$), refused($$SELECT state('own', 1)$$);

SELECT * FROM unsafemv.check('wait');
SET client_min_messages = warning;
DO $$ BEGIN PERFORM unsafemv.drop_view(service_id, view_id) FROM unsafemv.views WHERE service_id = 'wait'; END $$;
DROP SCHEMA wait_test CASCADE;
