-- The trigger function of event tables.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA deliver_test;
DROP ROLE IF EXISTS deliver_owner;
DROP ROLE IF EXISTS deliver_writer;
RESET client_min_messages;
SET search_path = deliver_test, unsafemv;
CREATE ROLE deliver_owner;
GRANT USAGE ON SCHEMA deliver_test, unsafemv TO deliver_owner;
GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO deliver_owner;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unsafemv TO deliver_owner;
GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA unsafemv TO deliver_owner;

CREATE FUNCTION s(n bigint) RETURNS suid LANGUAGE sql IMMUTABLE AS
$$ SELECT lpad(n::text, 30, '0')::suid $$;
CREATE FUNCTION short(suid text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT ltrim(suid, '0') $$;

-- the code a statement is refused with
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    number text;
    word text;
    detail text;
    context text;
BEGIN
    EXECUTE statement;
    RETURN 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS number = RETURNED_SQLSTATE, word = CONSTRAINT_NAME, detail = PG_EXCEPTION_DETAIL, context = PG_EXCEPTION_CONTEXT;
    RETURN concat_ws(' | ', CASE WHEN word = '' THEN number ELSE word END, nullif(detail, ''),
        substring(context FROM 'delivering [^\n]*'));
END $$;

CREATE TABLE events (
    service_id text NOT NULL,
    event_id text NOT NULL,
    suid suid NOT NULL,
    event_type text,
    event jsonb,
    arrived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (service_id, event_id)
);
CREATE UNIQUE INDEX ON events (service_id, suid);
CREATE INDEX ON events (service_id, arrived_at);
GRANT ALL ON events TO deliver_owner;
CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();

-- {"create"|"rename"|"delete": key}; anything else does nothing, "fail" fails
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF event ? 'fail' THEN
        RAISE EXCEPTION 'cannot plan %', event->>'fail' USING ERRCODE = '22023';
    END IF;
    RETURN CASE
        WHEN event ? 'malformed' THEN '{"rowUpsets": []}'
        WHEN event ? 'create' THEN jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object(
            'rowKey', event->>'create', 'value', event - 'create')))
        WHEN event ? 'rename' THEN jsonb_build_object('patches', jsonb_build_array(jsonb_build_object(
            'kind', 'json_patch', 'rowKey', event->>'rename', 'patch', event - 'rename')))
        WHEN event ? 'delete' THEN jsonb_build_object('deletes', jsonb_build_array(event->>'delete'))
    END;
END $$;
CREATE FUNCTION count_plan(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT '{"patches": [{"kind": "add", "create": true, "rowKey": "events", "patch": {"n": 1}}]}'::jsonb
$$;
-- what is there decides
CREATE FUNCTION keys(event jsonb) RETURNS text[] LANGUAGE sql AS $$
    SELECT ARRAY[event->>'create', event->>'rename', event->>'create', 'total']
$$;
CREATE FUNCTION keyed_plan(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(
        jsonb_build_object('rowKey', coalesce(event->>'create', event->>'rename'), 'value',
            jsonb_build_object('seen', rows, 'name', event->>'name')),
        jsonb_build_object('rowKey', 'total', 'value', coalesce((rows->>'total')::int, 0) + 1)))
$$;

-- what readers see, a row each
CREATE FUNCTION seen(service text, view text, consistency text = 'composed') RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s: %s @%s%s', row_key, value, short(source_suid), CASE WHEN unsafe THEN ' unsafe' ELSE '' END)
    FROM unsafemv.query_composed_page(service, view, NULL, consistency => seen.consistency) ORDER BY row_key COLLATE "C"
$$;
CREATE FUNCTION found(service text, view text) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s %s@%s x%s: %s', kind, event_id, short(suid), attempts, detail)
    FROM unsafemv.read_findings(service, view) ORDER BY kind COLLATE "C", event_id COLLATE "C"
$$;

-- nothing attached: nothing happens
SELECT create_view('shop', 'items');
INSERT INTO events VALUES ('shop', 'e1', s(1), 'item', '{"create": "a", "name": "before"}');
SELECT count(*) FROM receipts WHERE service_id = 'shop';

SET ROLE deliver_owner;
SELECT attach_projection('shop', 'items', 'events', 'plan');
RESET ROLE;

-- scenario 208: a stored event is visible at once, the view is dirty
INSERT INTO events VALUES ('shop', 'e2', s(2), 'item', '{"create": "a", "name": "old"}');
SELECT * FROM seen('shop', 'items');
SELECT * FROM seen('shop', 'items', 'safe');
SELECT short(target_suid), dirty FROM acquire_kick('shop', 'items', 'me', '1 min');
SELECT finish_kick('shop', 'items', 'me', NULL, 1);

-- scenario 215, the part before the pass: create and rename
INSERT INTO events VALUES ('shop', 'e3', s(3), 'item', '{"rename": "a", "name": "new"}');
SELECT * FROM seen('shop', 'items');
SELECT * FROM seen('shop', 'items', 'safe');

-- scenario 216, the part of the trigger: delete hides, creating again shows nothing of the old row
SELECT short(last_suid) FROM apply_safe_batch('shop', 'items', NULL, (
    SELECT jsonb_agg(jsonb_build_object('eventId', event_id, 'suid', suid::text, 'mutations', plan(event)) ORDER BY short(suid::text)::int) FROM events WHERE event_id IN ('e2', 'e3')));
SELECT * FROM seen('shop', 'items');
INSERT INTO events VALUES ('shop', 'e4', s(4), 'item', '{"delete": "a"}');
SELECT * FROM seen('shop', 'items');
SELECT composed_page('shop', 'items')->'totalCount' AS total;
INSERT INTO events VALUES ('shop', 'e5', s(5), 'item', '{"create": "a", "color": "red"}');
SELECT * FROM seen('shop', 'items');

-- scenario 210: the safe lane was first, then the event is delivered
SELECT short(last_suid) FROM apply_safe('shop', 'items', s(3), s(4), '{"deletes": ["a"]}', 'e4');
SELECT short(last_suid) FROM apply_safe('shop', 'items', s(4), s(5), '{"upserts": [{"rowKey": "a", "value": {"color": "red"}}]}', 'e5');
SELECT short(last_suid) FROM apply_safe('shop', 'items', s(5), s(6), plan('{"create": "b"}'), 'e6');
INSERT INTO events VALUES ('shop', 'e6', s(6), 'item', '{"create": "b"}');
SELECT gate FROM read_wait_state('shop', 'items', 'e6', s(6));
SELECT * FROM seen('shop', 'items');

-- a plan of NULL: a receipt and no row
INSERT INTO events VALUES ('shop', 'e7', s(7), 'item', '{"look": "a"}');
SELECT event_id, outcome FROM receipts WHERE service_id = 'shop' AND event_id = 'e7';

-- several rows, out of order, INSERT ... SELECT, COPY, RETURNING, ON CONFLICT, none
INSERT INTO events VALUES
    ('shop', 'e12', s(12), 'item', '{"rename": "c", "x": 12}'),
    ('shop', 'e10', s(10), 'item', '{"create": "c", "x": 10}'),
    ('shop', 'e11', s(11), 'item', '{"rename": "c", "y": 11}');
SELECT * FROM seen('shop', 'items');
INSERT INTO events SELECT 'shop', 'e' || n, s(n), 'item', jsonb_build_object('rename', 'c', 'n', n)
    FROM generate_series(20, 29) n;
COPY events (service_id, event_id, suid, event_type, event) FROM stdin;
shop	e30	000000000000000000000000000030	item	{"rename": "c", "copied": 30}
shop	e31	000000000000000000000000000031	item	{"rename": "c", "copied": 31}
\.
INSERT INTO events VALUES ('shop', 'e31', s(31), 'item', '{"delete": "c"}'), ('shop', 'e32', s(32), 'item', '{"create": "d"}')
    ON CONFLICT DO NOTHING RETURNING event_id;
INSERT INTO events SELECT * FROM events WHERE false;
SELECT * FROM seen('shop', 'items');
SELECT event_id, outcome FROM receipts WHERE service_id = 'shop' AND suid > s(6) ORDER BY suid;

-- more views, in the order they were made; event types; keys
SELECT create_view('shop', 'counter');
SELECT create_view('shop', 'a_late_name');
SELECT create_view('shop', 'keyed');
SELECT create_view('other', 'items');
SELECT create_view('other', 'nothing attached');
SET ROLE deliver_owner;
SELECT attach_projection('shop', 'counter', 'events', 'count_plan');
SELECT attach_projection('shop', 'a_late_name', 'events', 'count_plan', event_types => '{order, refund}');
SELECT attach_projection('shop', 'keyed', 'events', 'keyed_plan', 'keys');
SELECT attach_projection('other', 'items', 'events', 'plan');
RESET ROLE;
-- several services in one statement
INSERT INTO events VALUES
    ('shop', 'e42', s(42), 'order', '{"rename": "k", "name": "second"}'),
    ('other', 'e41', s(41), 'order', '{"create": "o", "name": "of another"}'),
    ('nobody', 'e41', s(41), 'order', '{"create": "o"}'),
    ('shop', 'e41', s(41), 'item', '{"create": "k", "name": "first"}'),
    ('other', 'e43', s(43), NULL, '{"create": "p"}'),
    ('shop', 'e43', s(43), 'refund', '{"create": "m"}');
SELECT * FROM seen('shop', 'counter');
SELECT * FROM seen('shop', 'a_late_name');
SELECT * FROM seen('shop', 'keyed');
SELECT * FROM seen('other', 'items');
SELECT view_id, string_agg(event_id || ' ' || outcome, ', ' ORDER BY suid) FROM receipts JOIN views USING (service_id, view_no)
    WHERE service_id = 'shop' AND suid > s(40) GROUP BY view_id ORDER BY view_id;
SELECT service_id, event_id FROM receipts WHERE service_id NOT IN ('shop', 'other') AND service_id IN (SELECT service_id FROM events);
-- locks on absent keys leave nothing behind
SELECT count(*) FROM unsafe_rows WHERE tombstone IS NULL;

-- policy raise: the INSERT fails and names event and view
SELECT refused($$INSERT INTO events VALUES ('shop', 'e50', s(50), 'item', '{"create": "z"}'), ('shop', 'e51', s(51), 'item', '{"fail": "it"}')$$);
SELECT refused($$INSERT INTO events VALUES ('shop', 'e52', s(52), 'item', '{"malformed": 1}')$$);
SELECT refused($$INSERT INTO events VALUES ('shop', 'e53', s(53), 'item', '{"create": ""}')$$);
SELECT refused($$INSERT INTO events VALUES ('shop', 'e54', s(42), 'item', '{"create": "a"}')$$);
SELECT refused($$INSERT INTO events VALUES ('shop', 'e55', s(55), 'item', NULL)$$);
SELECT count(*) FROM events WHERE suid > s(43);
SELECT count(*) FROM receipts WHERE suid > s(43) AND service_id IN (SELECT service_id FROM events);

-- policy record: the INSERT succeeds, the other events and views are applied
DROP TRIGGER deliver ON events;
CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=record');
INSERT INTO events VALUES
    ('shop', 'e60', s(60), 'item', '{"create": "f"}'),
    ('shop', 'e61', s(61), 'item', '{"fail": "it"}'),
    ('shop', 'e62', s(62), 'item', '{"rename": "f", "x": 62}'),
    ('shop', 'e63', s(63), 'item', '{"malformed": "it"}'),
    ('shop', 'e64', s(64), 'item', '{"rename": "f", "y": 64}');
SELECT row_key, value FROM query_composed_page('shop', 'items', NULL) WHERE row_key = 'f';
SELECT * FROM found('shop', 'items');
SELECT * FROM found('shop', 'counter');
SELECT value FROM query_composed_page('shop', 'counter', NULL);
SELECT event_id, outcome FROM receipts JOIN views USING (service_id, view_no)
    WHERE service_id = 'shop' AND view_id = 'items' AND suid > s(43) ORDER BY suid;
-- an open finding until the event has its receipt
SELECT verdict, failure FROM read_wait_state('shop', 'items', 'e61', s(61));
-- a function that is gone: every event of that view
ALTER FUNCTION count_plan(jsonb) RENAME TO count_plan_away;
INSERT INTO events VALUES ('shop', 'e65', s(65), 'order', '{"create": "g"}');
ALTER FUNCTION count_plan_away(jsonb) RENAME TO count_plan;
SELECT row_key FROM query_composed_page('shop', 'items', NULL) WHERE row_key = 'g';
SELECT event_id, detail->>'code' AS code, detail->>'error' AS error FROM read_findings('shop', 'counter');

-- a policy for one view
DROP TRIGGER deliver ON events;
CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver('on_error=record', 'on_error.items=raise');
SELECT refused($$INSERT INTO events VALUES ('shop', 'e66', s(66), 'item', '{"fail": "it"}')$$);

-- a cancel is not recorded
CREATE FUNCTION cancelled(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = '57014'; END $$;
SELECT create_view('cancel', 'v');
SET ROLE deliver_owner;
SELECT attach_projection('cancel', 'v', 'events', 'cancelled');
RESET ROLE;
\set VERBOSITY terse
INSERT INTO events VALUES ('cancel', 'e1', s(1), 'item', '{}');

-- nor is what says nothing about the event: raised as it is under either policy, and nothing is written; the last two
-- are the function's own
CREATE FUNCTION raising(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'code'; END $$;
CREATE FUNCTION keyed_raising(event jsonb, rows jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION raising_keys(event jsonb) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop' USING ERRCODE = event ->> 'code'; END $$;
CREATE FUNCTION raised(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
BEGIN
    EXECUTE statement;
    RETURN 'recorded';
EXCEPTION WHEN query_canceled OR OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;
-- policies: of view items raise, of the others record
SELECT create_view('codes plan', 'v'), create_view('codes plan raise', 'items'), create_view('codes keys', 'v'), create_view('codes keys raise', 'items');
SET ROLE deliver_owner;
SELECT attach_projection('codes plan', 'v', 'events', 'raising'), attach_projection('codes plan raise', 'items', 'events', 'raising'),
    attach_projection('codes keys', 'v', 'events', 'keyed_raising', 'raising_keys'), attach_projection('codes keys raise', 'items', 'events', 'keyed_raising', 'raising_keys');
RESET ROLE;
SELECT code, a[1] AS plan_record, a[2] AS plan_raise, a[3] AS keys_record, a[4] AS keys_raise
FROM unnest(ARRAY['40001', '40P01', '40003', '55P03', '53000', '53100', '53200', '53300', '57014', '57P01', '58000', '58030', '22012', 'P0001']) WITH ORDINALITY AS c(code, n), LATERAL (SELECT array_agg(raised(
    format('INSERT INTO events VALUES (%L, %L, s(%s), %L, %L)', service, 'e' || n, n, 'item', jsonb_build_object('code', code))) ORDER BY k) AS a
    FROM unnest(ARRAY['codes plan', 'codes plan raise', 'codes keys', 'codes keys raise']) WITH ORDINALITY AS s(service, k)) x ORDER BY n;
SELECT service_id, event_id, kind, attempts, detail ->> 'error' AS error FROM findings WHERE service_id LIKE 'codes%' ORDER BY service_id COLLATE "C", event_id;
SELECT (SELECT count(*) FROM receipts WHERE service_id LIKE 'codes%') AS receipts, (SELECT string_agg(service_id || ' ' || event_id, ', ' ORDER BY service_id COLLATE "C", event_id) FROM events WHERE service_id LIKE 'codes%') AS events;

-- other names and types of columns
CREATE TABLE store (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    dropped int,
    kind text NOT NULL,
    payload json NOT NULL
);
ALTER TABLE store DROP COLUMN dropped;
ALTER TABLE store ADD name text DEFAULT 'N';
GRANT SELECT ON store TO deliver_owner;
CREATE TRIGGER deliver AFTER INSERT ON store REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT
    EXECUTE FUNCTION unsafemv.deliver('service=solo', 'event_id=id', 'suid=position', 'event=payload', 'event_type=kind');
CREATE TABLE wide (LIKE store INCLUDING ALL);
CREATE TRIGGER deliver AFTER INSERT ON wide REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT
    EXECUTE FUNCTION unsafemv.deliver('service=wide', 'event_id=id', 'suid=position', 'event=*', 'event_type=kind');
CREATE FUNCTION row_plan(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', event->>'id', 'value', event)))
$$;
CREATE VIEW source AS SELECT 'solo' AS service_id, id AS event_id, suid_from_position(position) AS suid,
    kind AS event_type, payload::jsonb AS event, now() AS arrived_at FROM store;
GRANT SELECT ON source TO deliver_owner;
SELECT create_view('solo', 'v');
SELECT create_view('wide', 'v');
SET ROLE deliver_owner;
SELECT attach_projection('solo', 'v', 'source', 'plan', event_types => '{good}');
SELECT attach_projection('wide', 'v', 'source', 'row_plan');
RESET ROLE;
INSERT INTO store (id, kind, payload) VALUES
    ('00000000-0000-0000-0000-000000000001', 'good', '{"create": "a", "x": 1}'),
    ('00000000-0000-0000-0000-000000000002', 'bad', '{"create": "b"}');
INSERT INTO wide (id, kind, payload) VALUES ('00000000-0000-0000-0000-000000000003', 'good', '{"x": 1}');
SELECT event_id, suid FROM receipts WHERE service_id IN ('solo', 'wide') ORDER BY service_id, suid;
SELECT row_key, value FROM query_composed_page('solo', 'v', NULL);
SELECT row_key, value FROM query_composed_page('wide', 'v', NULL);

-- a partitioned table, by its root and by a partition
CREATE TABLE parts (service_id text, event_id text, suid text, event jsonb) PARTITION BY LIST (event_id);
CREATE TABLE part PARTITION OF parts FOR VALUES IN ('p1', 'p2');
CREATE TRIGGER deliver AFTER INSERT ON parts REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
INSERT INTO parts VALUES ('other', 'p1', '000000000000000000000000000071', '{"create": "part"}');
SELECT refused($$INSERT INTO parts VALUES ('other', 'p2', '72', '{"create": "part"}')$$);
SELECT row_key FROM query_composed_page('other', 'items', NULL) WHERE row_key = 'part';

-- triggers that are made in another way, or whose arguments are wrong
CREATE TABLE wrong (service_id text, event_id text, suid suid, event jsonb);
CREATE FUNCTION wrong(timing text, arguments text = '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    EXECUTE format('CREATE TRIGGER deliver %s EXECUTE FUNCTION unsafemv.deliver(%s)', timing, arguments);
    answer := refused($i$INSERT INTO wrong VALUES ('shop', 'w', s(99), '{}')$i$);
    DROP TRIGGER deliver ON wrong;
    RETURN answer;
END $$;
SELECT wrong('AFTER INSERT ON wrong FOR EACH STATEMENT');
SELECT wrong('BEFORE INSERT ON wrong FOR EACH STATEMENT');
SELECT wrong('AFTER INSERT ON wrong FOR EACH ROW');
SELECT wrong('AFTER INSERT ON wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT', a)
    FROM unnest(ARRAY['''nonsense''', '''suid=''', '''suid=missing''', '''event=suid''', '''on_error=ignore''', '''on_error.=record''', '''colour=red''']) a;
-- no column for the types that a projection wants
SELECT wrong('AFTER INSERT ON wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT');

-- many events: set-wise, and the same as one by one
SELECT create_view('many', 'v');
SET ROLE deliver_owner;
SELECT attach_projection('many', 'v', 'events', 'count_plan');
RESET ROLE;
INSERT INTO events SELECT 'many', 'm' || n, s(n), 'item', '{}' FROM generate_series(1, 25000) n;
SELECT value, short(source_suid) FROM query_composed_page('many', 'v', NULL);
SELECT count(*) FROM receipts WHERE service_id = 'many';

-- the inserting role needs the rights of a writer; the plan runs as the one that attached
CREATE ROLE deliver_writer;
GRANT USAGE ON SCHEMA deliver_test TO deliver_writer;
GRANT INSERT ON events TO deliver_writer;
SET ROLE deliver_writer;
INSERT INTO deliver_test.events (service_id, event_id, suid, event) VALUES ('other', 'r1', '000000000000000000000000000081', '{}');
RESET ROLE;
GRANT USAGE ON SCHEMA unsafemv TO deliver_writer;
GRANT SELECT ON ALL TABLES IN SCHEMA unsafemv TO deliver_writer;
GRANT INSERT, UPDATE, DELETE ON unsafemv.unsafe_rows, unsafemv.receipts, unsafemv.markers, unsafemv.findings TO deliver_writer;
CREATE FUNCTION who(event jsonb) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_object('upserts', jsonb_build_array(jsonb_build_object('rowKey', current_user, 'value', 1)))
$$;
SELECT create_view('who', 'v');
SET ROLE deliver_owner;
SELECT attach_projection('who', 'v', 'events', 'who');
SET ROLE deliver_writer;
INSERT INTO deliver_test.events (service_id, event_id, suid, event) VALUES ('who', 'r1', '000000000000000000000000000081', '{}');
RESET ROLE;
SELECT row_key FROM query_composed_page('who', 'v', NULL);

SELECT deliver();
SELECT * FROM unsafemv.check();

SET client_min_messages = warning;
DROP SCHEMA deliver_test CASCADE;
SELECT drop_view(service_id, view_id) FROM unsafemv.views WHERE service_id IN ('shop', 'other', 'cancel', 'solo', 'wide', 'many', 'who') OR service_id LIKE 'codes%' ORDER BY service_id, view_no;
DROP OWNED BY deliver_owner;
DROP OWNED BY deliver_writer;
DROP ROLE deliver_owner, deliver_writer;
