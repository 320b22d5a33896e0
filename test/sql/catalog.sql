-- The catalogue: what the extension's objects have in common.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
RESET client_min_messages;

-- the extension's own objects
CREATE TEMP VIEW functions AS
SELECT p.*, p.oid AS function_oid FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'unsafemv';
CREATE TEMP VIEW relations AS
SELECT c.*, c.oid AS relation_oid FROM pg_class c JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'unsafemv';
SELECT (SELECT count(*) FROM functions) > 50 AS functions, (SELECT count(*) FROM relations WHERE relkind = 'r') > 8 AS tables, (SELECT count(*) FROM relations WHERE relkind = 'v') > 4 AS views;

-- all of it lives in one schema
SELECT p.function_oid::regprocedure AS elsewhere FROM functions p WHERE pronamespace <> 'unsafemv'::regnamespace ORDER BY p.proname;
SELECT relname AS elsewhere FROM relations WHERE relnamespace <> 'unsafemv'::regnamespace ORDER BY 1;
SELECT extrelocatable, (SELECT nspname FROM pg_namespace n WHERE n.oid = extnamespace) AS schema FROM pg_extension WHERE extname = 'unsafemv';

-- everything is explained
SELECT p.proname AS function_without_comment FROM functions p WHERE coalesce(obj_description(p.function_oid, 'pg_proc'), '') = '' ORDER BY 1;
SELECT relname AS relation_without_comment FROM relations WHERE relkind IN ('r', 'v') AND coalesce(obj_description(relation_oid, 'pg_class'), '') = '' ORDER BY 1;
SELECT relname, attname AS column_without_comment FROM relations JOIN pg_attribute ON attrelid = relation_oid
WHERE relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped AND coalesce(col_description(relation_oid, attnum), '') = '' ORDER BY 1, 2;
SELECT t.typname AS type_without_comment FROM pg_type t JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
WHERE t.typrelid = 0 AND t.typcategory <> 'A' AND coalesce(obj_description(t.oid, 'pg_type'), '') = '' ORDER BY 1;
SELECT obj_description((SELECT oid FROM pg_extension WHERE extname = 'unsafemv'), 'pg_extension') <> '' AS extension;

-- one name, one signature; results a driver can read
SELECT proname, count(*) AS signatures FROM functions GROUP BY 1 HAVING count(*) > 1 ORDER BY 1;
-- (the server asks for void of a sort support function)
SELECT proname AS returns_void FROM functions WHERE prorettype = 'void'::regtype AND NOT 'internal'::regtype = ANY (proargtypes::oid[]) ORDER BY 1;
-- no column of a result has a type of the extension
SELECT DISTINCT p.proname, (p.proargnames)[i] AS output FROM functions p, generate_subscripts(p.proargmodes, 1) i
WHERE p.proargmodes[i] IN ('o', 'b', 't') AND p.proallargtypes[i] IN (SELECT oid FROM pg_type WHERE typnamespace = 'unsafemv'::regnamespace) ORDER BY 1;
-- every argument has a name, and the names are the contract's
SELECT p.proname FROM functions p WHERE p.pronargs > 0 AND p.proargnames IS NULL AND p.proname !~ '^suid' AND p.prokind <> 'a' ORDER BY 1;
CREATE TEMP TABLE contract (function text, arguments text);
INSERT INTO contract VALUES
    ('apply', 'service_id, view_id, event_id, suid, mutations, generation?, definition_version?, safe_head?, expected_row_version?, record_arrival?, observed_at?'),
    ('apply_batch', 'service_id, view_id, events, generation?, definition_version?, record_arrival?, on_error?'),
    ('observe_arrival', 'service_id, view_id, event_id, suid'),
    ('observe_safe_receipt', 'service_id, view_id, event_id, suid'),
    ('read_meta', 'service_id, view_id'),
    ('has_target_receipt', 'service_id, view_id, event_id, suid'),
    ('create_view', 'service_id, view_id, definition_version?, generation?, last_suid?, indexes?, base?, receipt_retention?'),
    ('drop_view', 'service_id, view_id, max_rows?'),
    ('begin_rebuild', 'service_id, view_id, definition_version, generation?, last_suid?'),
    ('drop_generation', 'service_id, view_id, generation, max_rows?'),
    ('apply_safe', 'service_id, view_id, expected_last_suid, last_suid, mutations, event_id, generation?, definition_version?'),
    ('apply_safe_batch', 'service_id, view_id, expected_last_suid, events, generation?, definition_version?'),
    ('promote_generation', 'service_id, view_id, candidate_generation, expected_active_generation, force?'),
    ('dismiss_event', 'service_id, view_id, event_id, suid, reason'),
    ('reopen_generation', 'service_id, view_id, generation'),
    ('mark_generation_rebuilt', 'service_id, view_id, generation, source_event_count, source_max_suid, source_history_digest'),
    ('history_digest', 'previous, event_id, suid'),
    ('query_composed_page', 'service_id, view_id, limit?, offset?, descending?, after_suid?, after_key?, with_total?, consistency?'),
    ('composed_page', 'service_id, view_id, limit?, offset?, descending?, after_suid?, after_key?, with_total?, consistency?'),
    ('query_rows', 'service_id, view_id, index_id, value_type, equals?, from_value?, to_value?, limit?, offset?, descending?, consistency?'),
    ('wait_for', 'service_id, view_id, event_id, suid, timeout?, consistency?'),
    ('acquire_kick', 'service_id, view_id, owner, lease'),
    ('next_kick', 'owner, lease, service_ids?'),
    ('renew_kick', 'service_id, view_id, owner, lease_epoch, lease'),
    ('finish_kick', 'service_id, view_id, owner, reached_suid, lease_epoch, not_before?'),
    ('garbage_collect', 'service_id, view_id, generation, definition_version, row_key, expected_row_version, expected_source_suid, safe_head, strict?'),
    ('collect_eligible', 'service_id, view_id, generation, definition_version, safe_head, max_rows?'),
    ('attach_projection', 'service_id, view_id, source, plan_function, key_function?, event_types?'),
    ('observe_lag', 'service_id, lag'),
    ('jsonb_merge_patch', 'target, patch'),
    ('check', 'service_id?');
SELECT c.function, c.arguments AS contract, a.arguments AS found
FROM contract c JOIN functions p ON p.proname = c.function, LATERAL (
    SELECT string_agg(p.proargnames[i] || CASE WHEN i > p.pronargs - p.pronargdefaults THEN '?' ELSE '' END, ', ' ORDER BY i) AS arguments FROM generate_series(1, p.pronargs) i) a
WHERE c.arguments <> a.arguments ORDER BY 1;
-- and its defaults
SELECT p.proname, pg_get_expr(p.proargdefaults, 0) AS defaults FROM functions p JOIN contract c ON c.function = p.proname WHERE p.pronargdefaults > 0
    AND p.proname IN ('apply', 'apply_batch', 'apply_safe', 'apply_safe_batch', 'create_view', 'query_composed_page', 'composed_page', 'query_rows', 'check') ORDER BY 1;

-- SECURITY INVOKER; not STRICT unless NULL means something (what works on the type suid alone)
SELECT proname AS security_definer FROM functions WHERE prosecdef ORDER BY 1;
SELECT proname AS strict FROM functions WHERE proisstrict AND proname !~ 'suid' AND NOT EXISTS (SELECT FROM pg_aggregate WHERE aggfnoid = function_oid) ORDER BY 1;
SELECT relname AS not_security_invoker FROM relations WHERE relkind = 'v' AND relname <> 'errors' AND NOT coalesce(reloptions @> ARRAY['security_invoker=true'], false) ORDER BY 1;
-- the reads are STABLE, so that they run on a standby
SELECT proname AS volatile_read FROM functions WHERE proname IN ('query_composed_page', 'composed_page', 'query_rows', 'read_rows', 'read_index_entries', 'read_meta', 'has_target_receipt', 'read_instance', 'read_active', 'check') AND provolatile <> 's' ORDER BY 1;

-- what works on the type suid alone is for everybody
CREATE TEMP VIEW for_public AS
SELECT * FROM functions WHERE EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE a.grantee = 0 AND a.privilege_type = 'EXECUTE');
SELECT proname FROM for_public ORDER BY 1;
SELECT relname AS granted_to_public FROM relations WHERE relkind IN ('r', 'v', 'S') AND EXISTS (SELECT FROM aclexplode(coalesce(relacl, acldefault('r', relowner))) a WHERE a.grantee = 0) ORDER BY 1;

-- every other function pins its search_path, pg_temp last; triggers and committing procedures have none,
-- and attach_projection looks names up with the caller's
SELECT proname, proconfig FROM functions
WHERE prorettype <> 'trigger'::regtype AND prokind <> 'p' AND proname <> 'attach_projection' AND function_oid NOT IN (SELECT function_oid FROM for_public) AND NOT coalesce(proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false) ORDER BY 1;

-- the tables: all dumped but for leases, without a condition
SELECT relname AS not_dumped FROM relations WHERE relkind = 'r' AND NOT relation_oid = ANY ((SELECT extconfig FROM pg_extension WHERE extname = 'unsafemv')::oid[]) AND relname NOT IN ('kicks', 'progress_state', 'rebuilds') ORDER BY 1;
SELECT condition FROM pg_extension, unnest(extcondition) AS condition WHERE extname = 'unsafemv' AND condition <> '';
-- every unique key leads with the service; counters are eight bytes; no transaction id or OID is stored
SELECT i.indexrelid::regclass AS index FROM relations JOIN pg_index i ON i.indrelid = relation_oid WHERE i.indisunique
    AND (SELECT attname FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = i.indkey[0]) <> 'service_id' ORDER BY 1;
SELECT relname, attname, atttypid::regtype FROM relations JOIN pg_attribute ON attrelid = relation_oid
WHERE relkind = 'r' AND attnum > 0 AND atttypid IN ('int2'::regtype, 'int4'::regtype, 'oid'::regtype, 'xid'::regtype, 'xid8'::regtype, 'regclass'::regtype, 'regproc'::regtype, 'regprocedure'::regtype, 'regrole'::regtype) ORDER BY 1, 2;
-- what the unsafe lane writes has no foreign key and no trigger
SELECT conname FROM pg_constraint JOIN relations ON conrelid = relation_oid WHERE contype = 'f' AND relname IN ('unsafe_rows', 'receipts', 'markers') ORDER BY 1;
SELECT tgname FROM pg_trigger JOIN relations ON tgrelid = relation_oid WHERE relname IN ('unsafe_rows', 'receipts', 'markers') ORDER BY 1;
-- the facts can be read under these names
SELECT relation, columns FROM (VALUES
    ('views', 'service_id view_id view_no active_generation base receipt_retention created_at'),
    ('generations', 'service_id view_no generation status definition_version last_suid receipt_floor row_count rebuild_required behind_frontier_event_id behind_frontier_suid updated_at'),
    ('rows', 'service_id view_no generation row_key value row_version source_suid'),
    ('unsafe_rows', 'service_id view_no generation row_key value row_version source_suid tombstone'),
    ('index_entries', 'service_id view_no generation index_id value_type text_value integer_value real_value row_key'),
    ('unsafe_index_entries', 'service_id view_no generation index_id value_type text_value integer_value real_value row_key'),
    ('receipts', 'service_id view_no generation event_id suid outcome settled observed_at'),
    ('markers', 'service_id view_no generation row_key event_id suid reason'),
    ('findings', 'service_id view_no generation kind event_id suid detail first_seen last_seen attempts resolved_at'),
    ('current_rows', 'service_id view_id row_key value row_version source_suid unsafe'),
    ('errors', 'code sqlstate retryable meaning')) AS c (relation, columns)
WHERE EXISTS (SELECT FROM unnest(string_to_array(columns, ' ')) AS n WHERE NOT EXISTS (
    SELECT FROM relations JOIN pg_attribute ON attrelid = relation_oid WHERE relname = relation AND attname = n)) ORDER BY 1;
-- text is kept in byte order
SELECT relname, attname FROM relations JOIN pg_attribute ON attrelid = relation_oid WHERE relkind = 'r' AND atttypid = 'text'::regtype AND attcollation <> 'pg_catalog."C"'::regcollation ORDER BY 1, 2;

-- a role without rights can use the type and nothing else
SET client_min_messages = warning;
DROP ROLE IF EXISTS regress_unsafemv_nobody;
RESET client_min_messages;
CREATE ROLE regress_unsafemv_nobody;
SELECT proname AS allowed FROM functions WHERE has_function_privilege('regress_unsafemv_nobody', function_oid, 'EXECUTE') AND function_oid NOT IN (SELECT function_oid FROM for_public) ORDER BY 1;
SELECT relname AS allowed FROM relations WHERE relkind IN ('r', 'v') AND has_table_privilege('regress_unsafemv_nobody', relation_oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') ORDER BY 1;
DROP ROLE regress_unsafemv_nobody;
