-- rebuild and rebuild_and_promote: a candidate beside the live view.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE rebuild_owner;
GRANT USAGE ON SCHEMA unsafemv TO rebuild_owner;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO rebuild_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unsafemv TO rebuild_owner;
CREATE SCHEMA rebuild_test AUTHORIZATION rebuild_owner;
RESET client_min_messages;
SET search_path = rebuild_test, unsafemv;
\set VERBOSITY sqlstate

SET ROLE rebuild_owner;
CREATE FUNCTION s(n bigint) RETURNS suid LANGUAGE sql IMMUTABLE AS $$ SELECT lpad(n::text, 30, '0')::unsafemv.suid $$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;
CREATE TABLE events (service_id text NOT NULL, event_id text NOT NULL, suid suid NOT NULL, event jsonb NOT NULL,
    arrived_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON events (service_id, suid);
CREATE INDEX ON events (service_id, arrived_at);
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF event ? 'raise' THEN RAISE EXCEPTION 'cannot plan %', event ->> 'raise'; END IF;
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'k', 'value', event || '{"version": 1}')));
END $$;
CREATE FUNCTION plan2(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'k', 'value', event || '{"version": 2}')))
$$;
CREATE PROCEDURE store(service text, n bigint, event jsonb, age interval = '1 hour') LANGUAGE sql AS
$$ INSERT INTO rebuild_test.events VALUES (service, 'e' || n, rebuild_test.s(n), event, clock_timestamp() - age) $$;
CREATE FUNCTION shown(service text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s', row_key, short(source_suid), value), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page(service, 'v', NULL, consistency => shown.consistency)
$$;
CREATE FUNCTION attach(service text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$
    SELECT unsafemv.create_view(service, 'v') IS NOT NULL AND unsafemv.attach_projection(service, 'v', 'rebuild_test.events', 'rebuild_test.plan')
$$;
CREATE FUNCTION attach2(service text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$
    SELECT unsafemv.attach_projection(service, 'v', 'rebuild_test.events', 'rebuild_test.plan2')
$$;
CREATE VIEW builds AS SELECT service_id, generation, status, definition_version AS version, short(last_suid::text) AS head, row_count AS rows, history_count AS events, rebuilt_at IS NOT NULL AS proven
    FROM unsafemv.generations ORDER BY service_id, generation;
RESET ROLE;

-- refused
SELECT create_view('none', 'v');
CALL rebuild('none', 'v', 1);
CALL rebuild('nothing', 'v', 1);
CALL rebuild('none', 'v', 0);
CALL rebuild('none', 'v', NULL);
BEGIN;
CALL rebuild('none', 'v', 1);
ROLLBACK;
SELECT * FROM builds WHERE service_id = 'none';

-- report 26: an empty source, and one without events of this service
SELECT attach('empty');
CALL rebuild('empty', 'v', 1);
CALL rebuild_and_promote('empty', 'v', 1);
SELECT * FROM builds WHERE service_id = 'empty';

-- beside the live view, twice in a row; a proof at the end; nobody is told of a generation that is not live (report 29)
SELECT attach('twice');
INSERT INTO events SELECT 'twice', 'e' || n, s(n), jsonb_build_object('k', 'k' || n % 5), clock_timestamp() - interval '1 hour' FROM generate_series(1, 2500) n;
CALL follow('twice', 'v');
CALL rebuild('twice', 'v', 2);
SELECT kind, generation, done, total, remaining FROM progress WHERE service_id = 'twice';
SELECT shown('twice'), generation, findings FROM status WHERE service_id = 'twice';
SELECT * FROM next_kick('worker', '1 minute', '{twice}') WHERE dirty;
CALL store('twice', 2501, '{"k": "new"}');
SELECT * FROM builds WHERE service_id = 'twice';
CALL rebuild('twice', 'v', 2);
SELECT * FROM builds WHERE service_id = 'twice';
-- another definition drops it and begins anew
CALL rebuild('twice', 'v', 3);
SELECT * FROM builds WHERE service_id = 'twice';
CALL rebuild_and_promote('twice', 'v', 3);
SELECT * FROM builds WHERE service_id = 'twice';
SELECT shown('twice');
SELECT count(*) AS leased FROM rebuilds WHERE lease_until IS NOT NULL;

-- scenario 176: stopped by a fence, resumed; the source changed during it
SELECT attach('fence');
CALL store('fence', 1, '{"k": "a"}');
CALL store('fence', 2, '{"k": "b"}', '0 s');
CALL rebuild('fence', 'v', 1);
SELECT * FROM builds WHERE service_id = 'fence';
SELECT alter_view('fence', 'v', window_floor => '0 s', window_ceiling => '0 s');
CALL rebuild('fence', 'v', 1);
SELECT * FROM builds WHERE service_id = 'fence';
DELETE FROM events WHERE service_id = 'fence' AND event_id = 'e1';
CALL store('fence', 3, '{"k": "c"}');
CALL rebuild('fence', 'v', 1);
SELECT * FROM builds WHERE service_id = 'fence';
CALL rebuild('fence', 'v', 1);
SELECT * FROM builds WHERE service_id = 'fence';
-- a late event closes the candidate
CALL store('fence', 1, '{"k": "a"}', '0 s');
CALL rebuild('fence', 'v', 1);
CALL rebuild('fence', 'v', 1);
SELECT * FROM builds WHERE service_id = 'fence';

-- report 7: a late event closes the reads, rebuild_and_promote opens them
SELECT attach('rlate'), alter_view('rlate', 'v', window_floor => '0 s', window_ceiling => '0 s');
CALL store('rlate', 2, '{"k": "a", "n": 2}');
CALL follow('rlate', 'v');
CALL store('rlate', 1, '{"k": "b", "n": 1}', '0 s');
CALL follow('rlate', 'v');
SELECT shown('rlate');
CALL rebuild_and_promote('rlate', 'v', 1);
SELECT shown('rlate');
CALL follow('rlate', 'v');

-- promotion to a new definition replays what is tentative; what cannot be is redelivered
SELECT attach('replay');
CALL store('replay', 1, '{"k": "a"}');
CALL follow('replay', 'v');
CALL store('replay', 2, '{"k": "b"}', '0 s');
CALL store('replay', 3, '{"k": "c"}', '0 s');
SELECT apply('replay', 'v', event_id, suid, plan(event)) FROM events WHERE service_id = 'replay' AND event_id <> 'e1';
SELECT apply('replay', 'v', 'elsewhere', s(4), plan('{"k": "d"}'));
SELECT shown('replay');
SELECT attach2('replay');
CALL rebuild('replay', 'v', 2);
SELECT * FROM promote_generation('replay', 'v', 1, 0);
SELECT shown('replay'), shown('replay', 'safe');
SELECT event_id, generation, settled FROM receipts r JOIN views USING (service_id, view_no) WHERE service_id = 'replay' ORDER BY event_id, generation;

-- what says nothing about the event fails the promotion as it is, and nothing has changed; what is the function's own
-- fault leaves the event to be redelivered
SET ROLE rebuild_owner;
CREATE FUNCTION raising(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'k'; END $$;
CREATE FUNCTION raising_keys(event jsonb) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'k'; END $$;
CREATE FUNCTION keyed(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION promoted(service text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
    answer text;
BEGIN
    SELECT p::text INTO answer FROM unsafemv.promote_generation(service, 'v', 1, 0) p;
    RETURN answer;
EXCEPTION WHEN query_canceled OR OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;
SELECT create_view('rcodes plan', 'v'), attach_projection('rcodes plan', 'v', 'events', 'raising'), create_view('rcodes keys', 'v'), attach_projection('rcodes keys', 'v', 'events', 'keyed', 'raising_keys');
CREATE TEMP TABLE answers (n bigint, code text, service text, answer text);
DO $$
DECLARE
    code text;
    n bigint;
    service text;
BEGIN
    FOREACH service IN ARRAY ARRAY['rcodes plan', 'rcodes keys'] LOOP
        PERFORM unsafemv.begin_rebuild(service, 'v', 2);
        INSERT INTO events VALUES (service, 'e1', s(1), '{}');
        PERFORM unsafemv.apply(service, 'v', 'e1', s(1), '{"upserts": [{"rowKey": "k", "value": 1}]}');
        FOR code, n IN SELECT * FROM unnest(ARRAY['40001', '40P01', '53100', '53200', '55P03', '57014', '58030', 'P0001']) WITH ORDINALITY LOOP
            UPDATE events SET event = jsonb_build_object('k', code) WHERE service_id = service;
            INSERT INTO answers VALUES (n, code, service, promoted(service));
            IF code = '58030' THEN
                INSERT INTO answers SELECT n, 'state', service, string_agg(generation || ' ' || status, ', ' ORDER BY generation) || '; ' || shown(service) FROM unsafemv.generations g WHERE g.service_id = service;
            END IF;
        END LOOP;
    END LOOP;
END $$;
RESET ROLE;
SELECT a.code, a.answer AS plan, b.answer AS keys FROM answers a JOIN answers b USING (n, code) WHERE a.service = 'rcodes plan' AND b.service = 'rcodes keys' ORDER BY n, code;
SELECT count(*) FROM findings WHERE service_id LIKE 'rcodes%';

-- a poison event stops a rebuild; a skip and a second call go on
SELECT attach('rpoison');
CALL store('rpoison', 1, '{"k": "a"}');
CALL store('rpoison', 2, '{"raise": "this"}');
CALL store('rpoison', 3, '{"k": "b"}');
CALL rebuild_and_promote('rpoison', 'v', 1);
SELECT generation, kind, event_id FROM findings f JOIN views USING (service_id, view_no) WHERE service_id = 'rpoison';
SELECT skip_event('rpoison', 'v', 'e2', 'no use');
CALL rebuild_and_promote('rpoison', 'v', 1);
SELECT shown('rpoison');
CALL follow('rpoison', 'v');
-- taken back and repaired: the next rebuild folds it
SELECT retry_event('rpoison', 'v', 'e2');
UPDATE events SET event = '{"k": "repaired"}' WHERE service_id = 'rpoison' AND event_id = 'e2';
CALL rebuild_and_promote('rpoison', 'v', 1);
SELECT shown('rpoison');
CALL follow('rpoison', 'v');

-- somebody else's lease: of a process that is gone, then of one that is there
UPDATE rebuilds SET lease_until = clock_timestamp() + interval '1 hour', holder_pid = 2147483647, holder_started = now() FROM views v WHERE v.service_id = 'twice' AND (rebuilds.service_id, rebuilds.view_no) = (v.service_id, v.view_no);
CALL rebuild('twice', 'v', 3);
UPDATE rebuilds SET lease_until = clock_timestamp() + interval '1 hour', holder_started = now(),
    holder_pid = (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() UNION ALL SELECT pid FROM pg_stat_activity WHERE backend_type IN ('logical replication launcher', 'autovacuum launcher') LIMIT 1)
    FROM views v WHERE v.service_id = 'twice' AND (rebuilds.service_id, rebuilds.view_no) = (v.service_id, v.view_no);
CALL rebuild('twice', 'v', 3);
UPDATE rebuilds SET lease_until = clock_timestamp() - interval '1 s' FROM views v WHERE v.service_id = 'twice' AND (rebuilds.service_id, rebuilds.view_no) = (v.service_id, v.view_no);
CALL rebuild('twice', 'v', 3);

SELECT * FROM unsafemv.check();
