-- A call inside another call: plan functions that call the extension, triggers on its tables that come back while its plans are
-- invalid or another role's turn comes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_reentry;
SELECT unsafemv.grant_access('regress_reentry', 'admin');
CREATE SCHEMA reentry_test AUTHORIZATION regress_reentry;
RESET client_min_messages;
SET search_path = reentry_test, pg_catalog;
SET ROLE regress_reentry;

CREATE FUNCTION s(n bigint) RETURNS unsafemv.suid IMMUTABLE RETURN unsafemv.suid_from_position(n);
CREATE FUNCTION said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; word text; detail text;
BEGIN
    EXECUTE statement;
    RETURN 'answered';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, word = CONSTRAINT_NAME, detail = PG_EXCEPTION_DETAIL;
    RETURN coalesce(nullif(word, ''), state) || ': ' || SQLERRM || coalesce(substring(detail FROM ', SQLSTATE \w+'), '');
END $$;

-- a plan function moves its view from under the call that runs it
CREATE TABLE events (service_id text, event_id text, suid unsafemv.suid, event jsonb, arrived_at timestamptz DEFAULT clock_timestamp() - interval '1 hour');
CREATE INDEX ON events (service_id, suid);
CREATE INDEX ON events (service_id, arrived_at);
CREATE FUNCTION plan(event jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF event ? 'run' THEN
        EXECUTE event ->> 'run';
    END IF;
    RETURN '{"upserts": [{"rowKey": "k", "value": 1}]}';
END $$;
CREATE TRIGGER deliver AFTER INSERT ON events REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
SELECT unsafemv.create_view('reentry', 'v'), unsafemv.attach_projection('reentry', 'v', 'reentry_test.events', 'reentry_test.plan');
SELECT unsafemv.begin_rebuild('reentry', 'v', 2);
SELECT said(format($$INSERT INTO events VALUES ('reentry', 'e1', s(1), jsonb_build_object('run', %L))$$, run)) AS said, run FROM unnest(ARRAY[
    $$SELECT unsafemv.promote_generation('reentry', 'v', 1, 0, true)$$,
    $$SELECT unsafemv.drop_generation('reentry', 'v', 1)$$,
    $$SELECT unsafemv.drop_view('reentry', 'v')$$,
    $$CALL unsafemv.rebuild_and_promote('reentry', 'v', 2)$$]) run;
SELECT said($$INSERT INTO events VALUES ('reentry', 'e1', s(1), '{}')$$);
SELECT row_key, unsafe FROM unsafemv.query_composed_page('reentry', 'v');
SELECT * FROM unsafemv.check('reentry');

-- a trigger on the extension's own table: the same statement runs inside itself, its plan invalid, and under more roles than
-- plans are kept for
RESET ROLE;
DO $$
BEGIN
    FOR i IN 1 .. 12 LOOP
        EXECUTE format('CREATE ROLE regress_reentry_%s', i);
        PERFORM unsafemv.grant_access('regress_reentry_' || i, 'writer');
        EXECUTE format('GRANT USAGE ON SCHEMA reentry_test TO regress_reentry_%s', i);
    END LOOP;
END $$;
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() < 4 AND NEW.service_id = 'reentry' AND NEW.event_id NOT LIKE '% %' THEN
        ANALYZE unsafemv.receipts, unsafemv.unsafe_rows, unsafemv.generations, unsafemv.rows;
        PERFORM unsafemv.apply('reentry', 'audit', NEW.event_id || '+', reentry_test.s(abs(hashtext(NEW.event_id || '+'))), '{"upserts": [{"rowKey": "a", "value": 1}], "patches": [{"kind": "add", "create": true, "rowKey": "count", "patch": {"n": 1}}]}');
        FOR i IN 1 .. 12 LOOP
            EXECUTE format('SET ROLE regress_reentry_%s', i);
            PERFORM unsafemv.apply('reentry', 'roles', NEW.event_id || ' ' || i, reentry_test.s(abs(hashtext(NEW.event_id || ' ' || i))), '{"upserts": [{"rowKey": "r", "value": 1}]}') WHERE pg_trigger_depth() = 1;
            RESET ROLE;
        END LOOP;
    END IF;
    RETURN NEW;
END $$;
SELECT unsafemv.create_view('reentry', view) FROM unnest(ARRAY['audit', 'roles', 'outer']) view;
CREATE TRIGGER audit AFTER INSERT ON unsafemv.receipts FOR EACH ROW EXECUTE FUNCTION audit();
SELECT n, (unsafemv.apply('reentry', 'outer', 'o' || n, s(n), '{"upserts": [{"rowKey": "o", "value": 1}]}')).outcome FROM generate_series(1, 3) n;
SELECT (b).event_id, (b).outcome FROM (SELECT unsafemv.apply_batch('reentry', 'outer', (SELECT jsonb_agg(jsonb_build_object('eventId', 'b' || n, 'suid', s(10 + n)::text, 'mutations', '{"upserts": [{"rowKey": "b", "value": 1}]}'::jsonb))
    FROM generate_series(1, 3) n)) b) x;
DROP TRIGGER audit ON unsafemv.receipts;
SELECT view_id COLLATE "C" AS view_id, count(*) FROM unsafemv.receipts JOIN unsafemv.views USING (service_id, view_no) WHERE service_id = 'reentry' GROUP BY 1 ORDER BY 1;
SELECT row_key, value FROM unsafemv.query_composed_page('reentry', 'audit');
SELECT * FROM unsafemv.check('reentry');

SET client_min_messages = warning;
SELECT sum(unsafemv.drop_view(service_id, view_id)) AS remaining FROM unsafemv.views WHERE service_id = 'reentry';
DROP SCHEMA reentry_test CASCADE;
DO $$
BEGIN
    FOR i IN 1 .. 12 LOOP
        EXECUTE format('DROP OWNED BY regress_reentry_%s', i);
        EXECUTE format('DROP ROLE regress_reentry_%s', i);
    END LOOP;
END $$;
DROP OWNED BY regress_reentry;
DROP ROLE regress_reentry;
