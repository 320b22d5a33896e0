-- Findings: recorded, counted, resolved, read.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE SCHEMA findings_test;
RESET client_min_messages;
SET search_path = findings_test, unsafemv;

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
$$ SELECT view_no FROM unsafemv.views WHERE service_id = 'findings' AND view_id = view $$;
-- events are named by their SUID where nothing else is said
CREATE FUNCTION put(view text, n bigint, event text = NULL, plan jsonb = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT outcome || CASE WHEN duplicate THEN ' duplicate' ELSE '' END
    FROM unsafemv.apply('findings', view, coalesce(event, 'e' || n), s(n),
        coalesce(plan, jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb)))))
$$;
CREATE FUNCTION fold(view text, "from" bigint, n bigint, event text = NULL) RETURNS text LANGUAGE sql AS $$
    SELECT short(last_suid) FROM unsafemv.apply_safe('findings', view, s("from"), s(n),
        jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'k' || n, 'value', '{}'::jsonb))),
        coalesce(event, 'e' || n))
$$;
-- the findings of a view, a line each
CREATE FUNCTION found(view text, resolved boolean = false) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT format('%s %s@%s %s x%s %s%s', kind, coalesce(event_id, '-'), coalesce(short(suid), '-'), detail, attempts,
        CASE WHEN last_seen > first_seen THEN 'seen again' ELSE 'seen once' END,
        CASE WHEN resolved_at IS NOT NULL THEN ', resolved' END)
    FROM unsafemv.read_findings('findings', view, resolved) ORDER BY kind COLLATE "C", event_id COLLATE "C"
$$;
CREATE FUNCTION gate(view text, consistency text = 'composed') RETURNS text LANGUAGE sql AS $$
    SELECT gate FROM unsafemv.read_wait_state('findings', view, 'none', s(1), consistency)
$$;
SELECT create_view('findings', 'v');

-- scenario 133: a failed apply is one finding with its attempts
SELECT record_unsafe_failure('findings', 'v', 'e1', s(1), 'first');
SELECT record_unsafe_failure('findings', 'v', 'e1', s(1), 'second "quoted" ' || chr(10) || 'line');
SELECT record_unsafe_failure('findings', 'v', 'e1', s(1), 'third');
SELECT record_unsafe_failure('findings', 'v', 'e2', s(2), 'other event');
SELECT found('v');
SELECT findings FROM status WHERE service_id = 'findings';

-- it counts as open only while its event has no receipt
SELECT put('v', 1);
SELECT found('v');
SELECT found('v', true);
SELECT findings FROM status WHERE service_id = 'findings';
SELECT resolve_finding('findings', 'v', 'unsafe-failure', 'e1') AS was_open;
SELECT resolve_finding('findings', 'v', 'unsafe-failure', 'e2') AS was_open;
SELECT resolve_finding('findings', 'v', 'unsafe-failure', 'e2') AS was_open;
SELECT found('v');
-- recorded after it was resolved: a new finding in the same row
SELECT record_unsafe_failure('findings', 'v', 'e2', s(2), 'again');
SELECT found('v');
SELECT resolve_finding('findings', 'v', 'unsafe-failure');

-- scenario 136: checkpoint-ahead twice is one row with the first values
SELECT create_view('findings', 'ahead');
SELECT record_checkpoint_ahead('findings', 'ahead', s(3), '{"n": 1}') AS opened;
SELECT record_checkpoint_ahead('findings', 'ahead', s(4), '{"n": 2}') AS opened;
SELECT found('ahead');
SELECT gate('ahead'), gate('ahead', 'safe');
SELECT refused($$SELECT * FROM query_composed_page('findings', 'ahead')$$);
SELECT resolve_finding('findings', 'ahead', 'checkpoint-ahead') AS was_open;
SELECT gate('ahead'), gate('ahead', 'safe');
SELECT found('ahead', true);
-- an emptied source; opened anew it takes what is seen then
SELECT record_checkpoint_ahead('findings', 'ahead', NULL) AS opened;
SELECT found('ahead');
SELECT resolve_finding('findings', 'ahead', 'checkpoint-ahead') AS was_open;

-- scenario 137: a quarantine twice is one open row, newest details, earliest first_seen
SELECT create_view('findings', 'order');
SELECT record_ordering_quarantine('findings', 'order', 'a', s(5), '{"n": 1}') AS opened;
CREATE TABLE seen AS SELECT first_seen, last_seen FROM read_findings('findings', 'order');
SELECT record_ordering_quarantine('findings', 'order', 'b', s(6), '{"n": 2}') AS opened;
SELECT found('order');
SELECT f.first_seen = s.first_seen AS first_seen_kept, f.last_seen > s.last_seen AS last_seen_moved
FROM read_findings('findings', 'order') f, seen s;
SELECT gate('order'), gate('order', 'safe');
SELECT resolve_finding('findings', 'order', 'ordering-quarantine', 'a') AS other_event;
SELECT resolve_finding('findings', 'order', 'ordering-quarantine', 'b') AS was_open;
SELECT gate('order', 'safe');
SELECT found('order'), 'nothing is open';
SELECT record_ordering_quarantine('findings', 'order', 'b', s(6), '{"n": 3}') AS opened;
SELECT found('order');
SELECT f.first_seen > s.last_seen AS fresh_first_seen, f.resolved_at IS NULL AS open
FROM read_findings('findings', 'order') f, seen s;

-- findings of another generation do not show
UPDATE unsafemv.findings SET generation = 7 WHERE service_id = 'findings' AND view_no = no('order');
SELECT found('order', true);

-- recorded and rolled back: nothing is left
BEGIN;
SELECT record_checkpoint_ahead('findings', 'order', NULL) AS opened;
ROLLBACK;
SELECT found('order', true);

-- above READ COMMITTED
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT record_ordering_quarantine('findings', 'order', 'c', s(7)) AS opened;
SELECT resolve_finding('findings', 'order', 'ordering-quarantine') AS was_open;
COMMIT;

-- errors
SELECT n, refused(statement) FROM (VALUES
    (1, $$SELECT resolve_finding('findings', 'v', 'unsafe')$$),
    (2, $$SELECT resolve_finding('findings', 'v', NULL)$$),
    (3, $$SELECT resolve_finding('findings', 'v', 'poison-event', '')$$),
    (4, $$SELECT resolve_finding('findings', 'none', 'poison-event')$$),
    (5, $$SELECT record_checkpoint_ahead('findings', 'none', NULL)$$),
    (6, $$SELECT record_checkpoint_ahead('findings', 'v', NULL, NULL)$$),
    (7, $$SELECT record_checkpoint_ahead(NULL, 'v', NULL)$$),
    (8, $$SELECT record_ordering_quarantine('findings', 'v', NULL, s(1))$$),
    (9, $$SELECT record_ordering_quarantine('findings', 'v', 'e', NULL)$$),
    (10, $$SELECT record_ordering_quarantine('findings', 'v', 'e', s(1), NULL)$$),
    (11, $$SELECT record_unsafe_failure('findings', 'v', 'e', s(1), NULL)$$),
    (12, $$SELECT record_unsafe_failure('findings', 'v', 'e', NULL, 'x')$$),
    (13, $$SELECT record_unsafe_failure('findings', 'v', repeat('e', 1025), s(1), 'x')$$),
    (14, $$SELECT record_unsafe_failure('findings', 'none', 'e', s(1), 'x')$$),
    (15, $$SELECT * FROM read_findings('findings', 'none')$$),
    (16, $$SELECT * FROM read_findings('findings', 'v', NULL)$$),
    (17, $$SELECT * FROM read_findings('findings', NULL)$$)
) AS c(n, statement) ORDER BY n;

-- dropping a view leaves no finding
SELECT drop_view('findings', view_id) FROM (SELECT view_id FROM views WHERE service_id = 'findings' ORDER BY view_id LIMIT 2) v;
DELETE FROM unsafemv.findings WHERE generation = 7;
SELECT drop_view('findings', 'v');
SELECT count(*) FROM unsafemv.findings WHERE service_id = 'findings';
SELECT * FROM unsafemv.check('findings');
SET client_min_messages = warning;
DROP SCHEMA findings_test CASCADE;
