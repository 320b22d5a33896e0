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
