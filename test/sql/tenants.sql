-- Row level security by a setting: in one session, with one role, another tenant's
-- view does not exist, whatever the session did before.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_tenant;
RESET client_min_messages;
CREATE FUNCTION pg_temp.said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;
GRANT USAGE ON SCHEMA unsafemv TO regress_tenant;
GRANT ALL ON ALL TABLES IN SCHEMA unsafemv TO regress_tenant;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unsafemv TO regress_tenant;
BEGIN;
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'unsafemv'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE unsafemv.%I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON unsafemv.%I TO regress_tenant USING (service_id = current_setting(''app.service'', true))', name);
    END LOOP;
END $$;
SET LOCAL ROLE regress_tenant;
SET LOCAL app.service = 'tenant a';
SELECT unsafemv.create_view('tenant a', 'v', indexes => '[{"id":"n","type":"integer","path":"n"}]');
SELECT * FROM unsafemv.apply('tenant a', 'v', 'e1', '000000000000000000100000000000', '{"upserts":[{"rowKey":"k","value":{"n":1}}]}');
SELECT count(*) FROM unsafemv.query_composed_page('tenant a', 'v');
SET LOCAL app.service = 'tenant b';
SELECT pg_temp.said(format(statement, 'tenant a')) AS other, count(*) FROM (VALUES
    ($$SELECT unsafemv.apply(%L, 'v', 'e2', '000000000000000000200000000000', '{}')$$),
    ($$SELECT unsafemv.apply(%L, 'v', 'e2', '000000000000000000200000000000', '{}', generation => 7)$$),
    ($$SELECT unsafemv.apply(%L, 'v', 'e2', '000000000000000000200000000000', '{}', definition_version => 7)$$),
    ($$SELECT unsafemv.apply(%L, 'v', 'e2', '000000000000000000200000000000', '{"upserts":[{"rowKey":"k","value":1}],"indexEntries":[{"rowKey":"k","indexId":"x","valueType":"text","value":"y"}]}')$$),
    ($$SELECT unsafemv.apply_batch(%L, 'v', '[]')$$),
    ($$SELECT unsafemv.apply_safe_batch(%L, 'v', NULL, '[]')$$),
    ($$SELECT unsafemv.observe_arrival(%L, 'v', 'e2', '000000000000000000200000000000')$$),
    ($$SELECT unsafemv.observe_safe_receipt(%L, 'v', 'e1', '000000000000000000100000000000')$$),
    ($$SELECT unsafemv.read_meta(%L, 'v')$$),
    ($$SELECT unsafemv.read_active(%L, 'v')$$),
    ($$SELECT unsafemv.has_target_receipt(%L, 'v', 'e1', '000000000000000000100000000000')$$),
    ($$SELECT unsafemv.query_composed_page(%L, 'v')$$),
    ($$SELECT unsafemv.query_rows(%L, 'v', 'n', 'integer')$$),
    ($$SELECT unsafemv.begin_rebuild(%L, 'v', 2)$$),
    ($$SELECT unsafemv.promote_generation(%L, 'v', 1, 0)$$),
    ($$SELECT unsafemv.collect_eligible(%L, 'v', 0, 1, NULL)$$),
    ($$SELECT unsafemv.acquire_kick(%L, 'v', 'me', '1 s')$$),
    ($$SELECT unsafemv.wait_for(%L, 'v', 'e1', '000000000000000000100000000000', '0')$$),
    ($$SELECT unsafemv.drop_view(%L, 'v')$$)) AS c(statement)
GROUP BY 1;
SELECT count(*) AS rows, (SELECT count(*) FROM unsafemv.current_rows) AS current, (SELECT count(*) FROM unsafemv.status) AS views FROM unsafemv.next_kick('me', '1 s');
SET LOCAL app.service = 'tenant a';
SELECT pg_temp.said($$SELECT unsafemv.apply('tenant a', 'v', 'e2', '000000000000000000200000000000', '{}')$$) AS own;
ROLLBACK;
DROP OWNED BY regress_tenant;
DROP ROLE regress_tenant;
