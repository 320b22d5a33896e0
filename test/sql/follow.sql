-- follow: projections, the safe window, late and failing events.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE follow_owner;
GRANT USAGE ON SCHEMA unsafemv TO follow_owner;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO follow_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unsafemv TO follow_owner;
CREATE SCHEMA follow_test AUTHORIZATION follow_owner;
RESET client_min_messages;
SET search_path = follow_test, unsafemv;
\set VERBOSITY sqlstate

SET ROLE follow_owner;
CREATE FUNCTION s(n bigint) RETURNS suid LANGUAGE sql IMMUTABLE AS $$ SELECT lpad(n::text, 30, '0')::unsafemv.suid $$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;
CREATE TABLE events (service_id text NOT NULL, event_id text NOT NULL, suid suid NOT NULL, event jsonb NOT NULL,
    arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(), event_type text NOT NULL DEFAULT 'kept');
-- an event: upserts, or whatever plan it carries itself
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF event ? 'raise' THEN RAISE EXCEPTION 'cannot plan %', event ->> 'raise'; END IF;
    IF event ? 'plan' THEN RETURN event -> 'plan'; END IF;
    IF NOT event ? 'k' THEN RETURN NULL; END IF;
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'k', 'value', event)));
END $$;
CREATE PROCEDURE store(service text, n bigint, event jsonb, age interval = '1 hour', type text = 'kept') LANGUAGE sql AS
$$ INSERT INTO follow_test.events VALUES (service, 'e' || n, follow_test.s(n), event, clock_timestamp() - age, type) $$;
CREATE FUNCTION shown(service text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('%s@%s %s', row_key, short(source_suid), value), ', ' ORDER BY row_key COLLATE "C"), '-')
    FROM unsafemv.query_composed_page(service, 'v', NULL, consistency => shown.consistency)
$$;
CREATE VIEW found AS SELECT service_id, kind, event_id, short(f.suid::text) AS suid, attempts, resolved_at IS NOT NULL AS resolved, detail
    FROM unsafemv.findings f ORDER BY service_id, kind, event_id;
CREATE FUNCTION attach(service text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$
    SELECT unsafemv.create_view(service, 'v') IS NOT NULL AND unsafemv.attach_projection(service, 'v', 'follow_test.events', 'follow_test.plan')
$$;

-- what attach_projection refuses
SELECT create_view('a', 'v');
\set VERBOSITY default
SELECT attach_projection('a', 'nothing', 'events', 'plan');
SELECT attach_projection('a', 'v', 'nothing', 'plan');
SELECT attach_projection('a', 'v', 'events', 'plan');
CREATE INDEX ON events (service_id, suid);
SELECT attach_projection('a', 'v', 'events', 'plan');
CREATE INDEX ON events (service_id, arrived_at);
SELECT attach_projection('a', 'v', 'events', 'nothing');
SELECT attach_projection('a', 'v', 'events', 'plan', 'nothing');
SELECT attach_projection('a', 'v', 'events', 'short');
CREATE VIEW narrow AS SELECT service_id, event_id, suid, event FROM events;
SELECT attach_projection('a', 'v', 'narrow', 'plan');
CREATE VIEW texts AS SELECT service_id, event_id, suid::text, event, arrived_at FROM events;
SELECT attach_projection('a', 'v', 'texts', 'plan');
RESET ROLE;
SELECT attach_projection('a', 'v', 'events', 'plan');
SET ROLE follow_owner;
\set VERBOSITY sqlstate
SELECT attach_projection('a', 'v', 'events', 'plan');
SELECT source, plan_function, key_function, event_types, attached_role, window_floor, window_ceiling FROM projections;
SELECT detach_projection('a', 'v'), detach_projection('a', 'v');
RESET ROLE;

-- scenario 162
CALL follow('a', 'v');
CALL follow('nothing', 'v');
-- scenarios 152 to 155: the lag, of each service by itself, decays and is never lowered
SELECT observe_lag('lag', '5 s') = '5 s', observe_lag('lag', '3 s') BETWEEN '4 s' AND '5 s', observe_lag('lag2', '1 s') = '1 s', observe_lag('lag3', NULL);
UPDATE lags SET observed_at = observed_at - interval '4 s' WHERE service_id = 'lag';
SELECT observe_lag('lag', NULL) BETWEEN '0 s' AND '1 s';
UPDATE lags SET observed_at = observed_at - interval '4 s' WHERE service_id = 'lag';
SELECT observe_lag('lag', NULL);
SELECT observe_lag('lag', '-1 s');

-- what follow refuses
BEGIN;
CALL follow('a', 'v');
ROLLBACK;
CALL follow('a', 'v', max_events => -1);
CALL follow('a', 'v', chunk => 0);
CALL follow('a', 'v', chunk => NULL);
CALL follow(NULL, 'v');

-- scenarios 156, 157, 159: it stops at the first that is too young
SELECT attach('window');
CALL store('window', 1, '{"k": "a"}', '20 s');
CALL store('window', 2, '{"k": "b"}', '10 s');
CALL store('window', 3, '{"k": "c"}', '30 s');
CALL follow('window', 'v') \gset
SELECT :folded AS folded, short(:'head') AS head, :'stop' AS stop, :'deadline'::timestamptz - arrived_at AS window FROM events WHERE service_id = 'window' AND event_id = 'e2';
SELECT shown('window');
SELECT last_stop, last_pass IS NOT NULL AS passed, last_deadline = :'deadline' AS deadline FROM projections p JOIN views USING (service_id, view_no) WHERE service_id = 'window';
-- scenario 158
SELECT observe_lag('window', '2 hours');
CALL follow('window', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, :'deadline'::timestamptz > clock_timestamp() AS deadline;
-- the window follows the lag
SELECT alter_view('window', 'v', window_ceiling => '1 day', window_floor => '0 s');
CALL follow('window', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop;
DELETE FROM lags;
CALL follow('window', 'v');
SELECT alter_view('window', 'v', window_floor => '2 days');
SELECT alter_view('window', 'v');
SELECT alter_view('a', 'v', window_floor => '1 s');

-- scenario 168, max_events, and no event at all
SELECT attach('bounds');
CALL follow('bounds', 'v');
CALL store('bounds', 4, '{"k": "a"}');
CALL store('bounds', 6, '{"k": "b"}');
CALL store('bounds', 7, '{}');
CALL follow('bounds', 'v', maximum_suid => s(5));
CALL follow('bounds', 'v', max_events => 0);
CALL follow('bounds', 'v', max_events => 1);
CALL follow('bounds', 'v', max_events => 1);
SELECT shown('bounds', 'safe');

-- scenarios 166, 208, 210, 215, 216: what was applied before is settled and collected
SELECT attach('both');
CALL store('both', 1, '{"k": "a", "name": "one"}');
CALL store('both', 2, '{"plan": {"patches": [{"kind": "json_patch", "rowKey": "a", "patch": {"name": "two"}}]}}');
SELECT apply('both', 'v', event_id, suid, plan(event)) FROM events WHERE service_id = 'both' ORDER BY suid DESC;
SELECT shown('both'), shown('both', 'safe');
CALL follow('both', 'v');
SELECT shown('both'), shown('both', 'safe'), (SELECT count(*) FROM unsafe_rows), (SELECT count(*) FROM markers),
    (SELECT string_agg(event_id || outcome || settled, ' ' ORDER BY event_id) FROM receipts r JOIN views USING (service_id, view_no) WHERE service_id = 'both');
CALL store('both', 3, '{"plan": {"deletes": ["a"]}}');
SELECT apply('both', 'v', event_id, suid, plan(event)), shown('both') FROM events WHERE service_id = 'both' AND event_id = 'e3';
CALL follow('both', 'v');
SELECT shown('both');
CALL store('both', 4, '{"k": "a", "again": true}');
CALL follow('both', 'v');
SELECT apply('both', 'v', event_id, suid, plan(event)), shown('both') FROM events WHERE service_id = 'both' AND event_id = 'e4';

-- report 6: an event of the future holds the head back and nothing else
SELECT attach('future');
INSERT INTO events SELECT 'future', 'f' || n, suid_from_timestamp(clock_timestamp() - interval '1 minute' + n * interval '1 s'), '{"k": "a"}', clock_timestamp() - interval '1 minute' FROM generate_series(1, 3) n;
INSERT INTO events VALUES ('future', 'tomorrow', suid_from_timestamp(clock_timestamp() + interval '1 day'), '{"k": "b"}', clock_timestamp() - interval '1 minute');
INSERT INTO events VALUES ('future', 'never', suid_from_timestamp('9999-01-01'), '{"k": "b"}', 'infinity');
CALL follow('future', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, :'deadline'::timestamptz - clock_timestamp() BETWEEN '1 day' AND '1 day 20 s' AS deadline;
INSERT INTO events SELECT 'future', 'f' || n, suid_from_timestamp(clock_timestamp() - interval '30 s' + n * interval '1 s'), '{"k": "a"}', clock_timestamp() - interval '1 minute' FROM generate_series(4, 5) n;
CALL follow('future', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, count(*) AS late FROM findings WHERE kind = 'late-event';
INSERT INTO events VALUES ('future', 'later', suid_from_timestamp(clock_timestamp() - interval '24 s'), '{"k": "a"}', 'infinity');
CALL follow('future', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, EXISTS (SELECT FROM projections p JOIN views USING (service_id, view_no) WHERE service_id = 'future' AND last_deadline IS NULL) AS no_deadline;

-- scenario 171, reports 1 and 7: an event that turns up behind the head closes the reads
SELECT attach('late');
CALL store('late', 10, '{"k": "a"}');
CALL follow('late', 'v');
CALL store('late', 5, '{"k": "b"}', '0 s', 'kept');
CALL follow('late', 'v');
SELECT service_id, kind, event_id, suid, attempts, resolved FROM found WHERE service_id = 'late';
SELECT event_id, outcome, settled FROM receipts r JOIN views USING (service_id, view_no) WHERE service_id = 'late' ORDER BY event_id;
SELECT shown('late');
-- and is found once
CALL follow('late', 'v');
SELECT kind, event_id, attempts FROM found WHERE service_id = 'late';

-- a view that began at a head has no late events below it, but later ones
SELECT create_view('seeded', 'v', last_suid => s(10));
SET ROLE follow_owner;
SELECT attach_projection('seeded', 'v', 'events', 'plan');
RESET ROLE;
CALL store('seeded', 9, '{"k": "a"}', '0 s');
CALL store('seeded', 11, '{"k": "a"}');
CALL follow('seeded', 'v');
CALL follow('seeded', 'v');
CALL store('seeded', 8, '{"k": "a"}', '0 s');
CALL follow('seeded', 'v');
SELECT kind, event_id FROM found WHERE service_id = 'seeded';

-- scenario 160, report 5: two events with one SUID, in one chunk or between two
SELECT attach('order'), attach('order2');
CALL store('order', 1, '{"k": "a"}');
CALL store('order', 2, '{"k": "a"}');
INSERT INTO events VALUES ('order', 'other', s(2), '{"k": "b"}', clock_timestamp() - interval '1 hour');
CALL follow('order', 'v');
CALL follow('order', 'v');
SELECT shown('order'), (SELECT count(*) FROM rows r JOIN views USING (service_id, view_no) WHERE service_id = 'order');
SELECT shown('order', 'safe');
SELECT kind, event_id IN ('e2', 'other') AS event, suid, attempts, detail FROM found WHERE service_id = 'order';
INSERT INTO events SELECT 'order2', event_id, suid, event, arrived_at FROM events WHERE service_id = 'order';
CALL follow('order2', 'v', chunk => 1);
SELECT last_suid, last_stop FROM views v JOIN generations USING (service_id, view_no) JOIN projections USING (service_id, view_no) WHERE service_id LIKE 'order%' ORDER BY service_id;

-- scenario 161: the source ends behind the head
SELECT attach('ahead');
CALL store('ahead', 1, '{"k": "a"}');
CALL store('ahead', 9, '{"k": "a"}');
CALL follow('ahead', 'v');
DELETE FROM events WHERE service_id = 'ahead' AND event_id = 'e9';
CALL follow('ahead', 'v');
DELETE FROM events WHERE service_id = 'ahead';
CALL follow('ahead', 'v');
SELECT kind, suid, attempts, detail FROM found WHERE service_id = 'ahead';
SELECT shown('ahead');
SELECT short(last_suid) FROM read_active('ahead', 'v');
CALL store('ahead', 9, '{"k": "a"}');
CALL follow('ahead', 'v');
SELECT resolve_finding('ahead', 'v', 'checkpoint-ahead');
CALL follow('ahead', 'v');

-- scenarios 177, 225, report 31: an event that cannot be folded stops its view, and what lies before it is kept
SELECT attach('poison'), attach('healthy');
INSERT INTO events SELECT x.service, 'e' || n, s(n), jsonb_build_object('k', 'k' || n % 5, 'n', n), clock_timestamp() - interval '1 hour'
    FROM generate_series(1, 100) n, (VALUES ('poison'), ('healthy')) AS x (service);
UPDATE events SET event = '{"plan": {"patches": [{"kind": "json_patch", "rowKey": "absent", "patch": {}}]}}' WHERE service_id = 'poison' AND event_id = 'e50';
UPDATE events SET event = '{"raise": "this"}' WHERE service_id = 'poison' AND event_id = 'e60';
UPDATE events SET event = '{"plan": {"nonsense": 1}}' WHERE service_id = 'poison' AND event_id = 'e70';
CALL follow('poison', 'v', chunk => 30) \gset
SELECT :folded AS folded, short(:'head') AS head, :'stop' AS stop, :'deadline'::timestamptz > clock_timestamp() AS deadline;
CALL follow('healthy', 'v');
SELECT kind, event_id, suid, attempts, resolved, detail FROM found WHERE service_id = 'poison';
-- at once again: it is not even tried
CALL follow('poison', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, attempts FROM found WHERE service_id = 'poison';
-- when it is due: one more attempt
UPDATE findings SET last_seen = last_seen - interval '1 hour' WHERE kind = 'poison-event';
CALL follow('poison', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop, attempts FROM found WHERE service_id = 'poison';
SELECT p.attempts FROM projections p JOIN views USING (service_id, view_no) WHERE service_id = 'poison';
-- fixed: the event, then skipped ones
UPDATE events SET event = '{}' WHERE service_id = 'poison' AND event_id = 'e50';
SELECT retry_event('poison', 'v', 'e50'), retry_event('poison', 'v', 'e51');
CALL follow('poison', 'v') \gset
SELECT :folded AS folded, short(:'head') AS head, :'stop' AS stop;
SELECT skip_event('poison', 'v', 'e60', 'no use'), skip_event('poison', 'v', 'e70', 'nonsense');
CALL follow('poison', 'v') \gset
SELECT :folded AS folded, short(:'head') AS head, :'stop' AS stop;
SELECT kind, event_id, suid, attempts > 0 AS attempts, resolved, detail - 'role' AS detail FROM found WHERE service_id = 'poison';
SELECT shown('poison') = replace(shown('healthy'), 'none', '') AS same, findings FROM status WHERE service_id = 'poison';
-- a skip can be taken back, which counts for the next rebuild
SELECT retry_event('poison', 'v', 'e60');
SELECT kind, event_id, resolved, detail - 'role' AS detail FROM found WHERE service_id = 'poison' AND event_id = 'e60';
SELECT skip_event('poison', 'v', NULL, 'reason');
SELECT skip_event('poison', 'v', 'e', NULL);

-- what says nothing about the event comes out as it is, is not counted, and leaves nothing
SET ROLE follow_owner;
CREATE FUNCTION raising(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'code'; END $$;
SELECT create_view('codes', 'v'), attach_projection('codes', 'v', 'events', 'raising');
RESET ROLE;
CALL store('codes', 1, '{"code": "53000"}');
CALL follow('codes', 'v');
UPDATE events SET event = '{"code": "53100"}' WHERE service_id = 'codes';
CALL follow('codes', 'v');
UPDATE events SET event = '{"code": "53200"}' WHERE service_id = 'codes';
CALL follow('codes', 'v');
UPDATE events SET event = '{"code": "57014"}' WHERE service_id = 'codes';
CALL follow('codes', 'v');
UPDATE events SET event = '{"code": "58030"}' WHERE service_id = 'codes';
CALL follow('codes', 'v');
CALL rebuild('codes', 'v', 1);
SELECT (SELECT count(*) FROM found WHERE service_id = 'codes') AS findings, p.attempts, p.last_stop, (SELECT count(*) FROM receipts r WHERE r.service_id = 'codes') AS receipts,
    (SELECT string_agg(coalesce(last_suid::text, '-'), ' ') FROM generations g WHERE g.service_id = 'codes') AS heads FROM projections p WHERE p.service_id = 'codes';
SELECT drop_view('codes', 'v');
-- a collision is tried again, more often than an event that fails is
SET ROLE follow_owner;
CREATE SEQUENCE tries;
CREATE FUNCTION colliding(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('follow_test.tries') % 4 > 0 THEN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'code'; END IF;
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'code', 'value', 1)));
END $$;
SELECT create_view('collisions', 'v'), attach_projection('collisions', 'v', 'events', 'colliding');
RESET ROLE;
CALL store('collisions', 1, '{"code": "40001"}');
CALL store('collisions', 2, '{"code": "40P01"}');
CALL store('collisions', 3, '{"code": "55P03"}');
CALL follow('collisions', 'v', chunk => 1);
SELECT shown('collisions'), (SELECT count(*) FROM found WHERE service_id = 'collisions') AS findings, attempts, (SELECT last_value FROM tries) AS calls FROM projections WHERE service_id = 'collisions';

-- a source that is a view, and event types
SET ROLE follow_owner;
CREATE VIEW adapted AS SELECT service_id, event_id, suid, event, arrived_at, event_type FROM events WHERE NOT event ? 'hidden';
SELECT create_view('types', 'v'), attach_projection('types', 'v', 'adapted', 'plan', event_types => '{kept, other}');
RESET ROLE;
CALL store('types', 1, '{"k": "a"}');
CALL store('types', 2, '{"k": "b"}', '1 hour', 'left out');
CALL store('types', 3, '{"k": "c", "hidden": true}');
CALL store('types', 4, '{"k": "d"}', '1 hour', 'other');
CALL follow('types', 'v');
SELECT shown('types');
-- those left out are not late
CALL store('types', 3, '{"k": "b"}', '0 s', 'left out');
CALL follow('types', 'v');
SELECT * FROM found WHERE service_id = 'types';

-- scenario 249: with a key function, plans depend on what was folded so far
SET ROLE follow_owner;
CREATE FUNCTION account(event jsonb) RETURNS text[] LANGUAGE sql AS $$ SELECT ARRAY[event ->> 'account', NULL] $$;
CREATE FUNCTION balance(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'account',
        'value', jsonb_build_object('sum', coalesce((rows -> (event ->> 'account') ->> 'sum')::int, 0) + (event ->> 'amount')::int,
        'count', coalesce((rows -> (event ->> 'account') ->> 'count')::int, 0) + 1))))
$$;
SELECT create_view('sums', 'v'), attach_projection('sums', 'v', 'events', 'balance', 'account');
RESET ROLE;
INSERT INTO events SELECT 'sums', 'e' || n, s(n), jsonb_build_object('account', 'a' || n % 3, 'amount', n), clock_timestamp() - interval '1 hour' FROM generate_series(1, 200) n;
CALL follow('sums', 'v', chunk => 7);
SELECT row_key, value, value = jsonb_build_object('sum', (SELECT sum(n) FROM generate_series(1, 200) n WHERE 'a' || n % 3 = row_key),
    'count', (SELECT count(*) FROM generate_series(1, 200) n WHERE 'a' || n % 3 = row_key)) AS right FROM query_composed_page('sums', 'v') ORDER BY row_key;

-- scenario 246: events that arrived before the retention leave no receipts
SELECT attach('old');
CALL store('old', 1, '{"k": "a"}', '2 days');
CALL store('old', 2, '{"k": "a"}');
CALL follow('old', 'v');
SELECT event_id FROM receipts r JOIN views USING (service_id, view_no) WHERE service_id = 'old';
SELECT short(receipt_floor) AS floor FROM read_active('old', 'v');
-- scenario 179, 180: what a pass reads and how it commits
SELECT attach('many');
INSERT INTO events SELECT 'many', 'e' || n, s(n), jsonb_build_object('k', 'k' || n % 100, 'n', n), clock_timestamp() - interval '1 hour' FROM generate_series(1, 3000) n;
CALL follow('many', 'v', chunk => 1000);
SELECT kind, done, total, rate > 0 AS rate, remaining FROM progress WHERE service_id = 'many';
SELECT count(DISTINCT r.xmin::text) AS commits FROM receipts r JOIN views v ON (v.service_id, v.view_no) = (r.service_id, r.view_no) WHERE v.service_id = 'many';

-- dropping leaves nothing
SELECT drop_view('many', 'v');
SELECT (SELECT count(*) FROM projections p WHERE NOT EXISTS (SELECT FROM views v WHERE (v.service_id, v.view_no) = (p.service_id, p.view_no))) AS projections,
    (SELECT count(*) FROM progress_state p WHERE NOT EXISTS (SELECT FROM views v WHERE (v.service_id, v.view_no) = (p.service_id, p.view_no))) AS progress;

-- what was attached and has changed since
SET ROLE follow_owner;
ALTER FUNCTION plan(jsonb) RENAME TO renamed;
CALL follow('bounds', 'v');
ALTER FUNCTION renamed(jsonb) RENAME TO plan;
ALTER TABLE events RENAME TO moved;
CALL follow('bounds', 'v');
ALTER TABLE moved RENAME TO events;
ALTER TABLE events RENAME COLUMN arrived_at TO came;
CALL follow('bounds', 'v');
ALTER TABLE events RENAME COLUMN came TO arrived_at;
RESET ROLE;
ALTER ROLE follow_owner SUPERUSER;
CALL follow('bounds', 'v');
ALTER ROLE follow_owner NOSUPERUSER;
CALL follow('bounds', 'v');

SELECT * FROM unsafemv.check();

-- what a plan function does to the session, and what it may not do
SET ROLE follow_owner;
CREATE FUNCTION hostile(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'follow_test', false);
    IF event ? 'role' THEN SET ROLE NONE; END IF;
    RETURN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', current_user, 'value', '{}')));
END $$;
CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'captured'; END $$;
CREATE VIEW pg_prepared_xacts AS SELECT 1 / 0 AS database;
SELECT create_view('hostile', 'v'), attach_projection('hostile', 'v', 'events', 'hostile');
RESET ROLE;
INSERT INTO events VALUES ('hostile', 'e1', s(1), '{}', now() - interval '1 hour'), ('hostile', 'e2', s(2), '{}', now() - interval '1 hour'), ('hostile', 'e3', s(3), '{"role": 1}', now() - interval '1 hour');
CALL follow('hostile', 'v', chunk => 1) \gset
SELECT :folded AS folded, :'stop' AS stop, current_setting('search_path') AS path, current_user AS "user", detail ->> 'error' AS error FROM found WHERE service_id = 'hostile';
SELECT shown('hostile');

-- a source that breaks the rules: one id with two SUIDs, a moment beyond reckoning
SET ROLE follow_owner;
CREATE TABLE loose (service_id text, event_id text, suid suid, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp());
CREATE INDEX ON loose (service_id, suid);
CREATE INDEX ON loose (service_id, arrived_at);
CREATE FUNCTION keyed(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event ->> 'k', 'value', event))) $$;
SELECT create_view(service, 'v'), attach_projection(service, 'v', 'loose', 'keyed') FROM unnest(ARRAY['loose twice', 'loose far', 'loose cut']) AS service;
RESET ROLE;
INSERT INTO loose VALUES ('loose twice', 'x', s(5), '{"k": "a"}', now() - interval '1 hour'), ('loose twice', 'y', s(6), '{"k": "b"}', now() - interval '1 hour'),
    ('loose far', 'x', s(1), '{"k": "a"}', now() - interval '1 hour'), ('loose far', 'y', s(2), '{"k": "b"}', '294276-12-30 00:00:00+00'),
    ('loose cut', 'x', s(1), '{"k": "a"}', now() - interval '1 hour'), ('loose cut', 'y', s(9), '{"k": "b"}', now() - interval '1 hour');
-- late, and the id is known with another SUID: it cannot have a receipt, the reads close all the same
CALL follow('loose twice', 'v') \gset
SELECT :folded AS folded, :'stop' AS stop;
INSERT INTO loose VALUES ('loose twice', 'x', s(3), '{"k": "c"}');
CALL follow('loose twice', 'v') \gset
SELECT :folded AS folded, kind, event_id, short(suid) AS suid, detail FROM read_findings('loose twice', 'v');
SELECT gate FROM status WHERE service_id = 'loose twice';
-- no window can be added to it: a fence without a deadline
CALL follow('loose far', 'v');
-- a source cut behind the active head: a rebuild ends, and its promotion is refused
CALL follow('loose cut', 'v') \gset
DELETE FROM loose WHERE service_id = 'loose cut' AND event_id = 'y';
CALL rebuild_and_promote('loose cut', 'v', 1);
CALL rebuild('loose cut', 'v', 1);
SELECT observe_lag('loose cut', '2000 years');
SELECT * FROM unsafemv.check();
