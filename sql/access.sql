--
-- Rights.
--

CREATE FUNCTION unsafemv.grant_access(role text, access text) RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_grant_access' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.grant_access(text, text) IS
	'Grants a role all that an access needs, on functions, tables and SQL views. role: its exact name. access: reader (reads, waits, status), writer (also both lanes, kicks, collection, follow, inserting into event tables with the trigger) or admin (also creating, attaching, rebuilding, promoting, dropping, checking, workers). Adds, never revokes. Returns true. Needs the rights of the extension''s owner. Errors: MV_VALUE_INVALID (NULL, another access); 42704 (no such role), 42501. Isolation: any.';
REVOKE ALL ON FUNCTION unsafemv.grant_access(text, text) FROM PUBLIC;

--
-- Nothing is granted to PUBLIC beyond the type suid and what works on it alone.
--

REVOKE ALL ON FUNCTION
	unsafemv.error_catalogue(),
	unsafemv.jsonb_merge_patch(jsonb, jsonb),
	unsafemv.jsonb_apply_patch(text, jsonb, jsonb),
	unsafemv.views_changed(),
	unsafemv.create_view(text, text, bigint, bigint, unsafemv.suid, jsonb, text, interval),
	unsafemv.alter_view(text, text, interval, interval, interval),
	unsafemv.drop_view(text, text, bigint),
	unsafemv.read_instance(text, text, bigint),
	unsafemv.read_active(text, text),
	unsafemv.apply(text, text, text, unsafemv.suid, jsonb, bigint, bigint, unsafemv.suid, bigint, boolean, timestamptz),
	unsafemv.apply_batch(text, text, jsonb, bigint, bigint, boolean, text),
	unsafemv.apply_safe(text, text, unsafemv.suid, unsafemv.suid, jsonb, text, bigint, bigint),
	unsafemv.apply_safe_batch(text, text, unsafemv.suid, jsonb, bigint, bigint),
	unsafemv.history_digest(bytea, text, unsafemv.suid),
	unsafemv.observe_arrival(text, text, text, unsafemv.suid),
	unsafemv.observe_safe_receipt(text, text, text, unsafemv.suid),
	unsafemv.read_meta(text, text),
	unsafemv.has_target_receipt(text, text, text, unsafemv.suid)
	FROM PUBLIC;
