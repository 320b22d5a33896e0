--
-- Collection.
--

CREATE FUNCTION unsafemv.garbage_collect(
	service_id text,
	view_id text,
	generation bigint,
	definition_version bigint,
	row_key text,
	expected_row_version bigint,
	expected_source_suid unsafemv.suid,
	safe_head unsafemv.suid,
	strict boolean DEFAULT false)
	RETURNS boolean
	AS 'MODULE_PATHNAME', 'unsafemv_garbage_collect' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.garbage_collect(text, text, bigint, bigint, text, bigint, unsafemv.suid, unsafemv.suid, boolean) IS
	'Collects one tentative row, with its entries and its markers at or below the head, if every guard holds: the generation is active with this definition version, the read gate is open, the stored head and safe_head reach expected_source_suid, the row has exactly this version and SUID, and its event is settled (or its receipt gone below the floor). Returns true, or false with nothing changed; strict raises UNSAFE_GC_GUARD_FAILED naming the guard instead of false. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: any; judged and deleted by one statement.';

CREATE FUNCTION unsafemv.collect_eligible(
	service_id text,
	view_id text,
	generation bigint,
	definition_version bigint,
	safe_head unsafemv.suid,
	max_rows bigint DEFAULT NULL)
	RETURNS bigint
	AS 'MODULE_PATHNAME', 'unsafemv_collect_eligible' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.collect_eligible(text, text, bigint, bigint, unsafemv.suid, bigint) IS
	'Collects every tentative row that garbage_collect would, skipping rows that an unsafe transaction holds; refolds rows a safe step had to skip; then deletes settled receipts older than the view''s retention in SUID order and raises the receipt floor. max_rows bounds each of these (NULL: no bound). safe_head NULL: nothing. Returns the number of tentative rows collected; 0 where a guard does not hold. While a candidate exists, receipts observed since it began, and those it has not settled itself, are kept: promotion compares the two. Errors: MV_VIEW_MISSING, MV_INSTANCE_MISSING, MV_GENERATION_INVALID, MV_VALUE_INVALID. Isolation: any; queues for the generation''s row, never for an unsafe transaction.';

REVOKE ALL ON FUNCTION
	unsafemv.garbage_collect(text, text, bigint, bigint, text, bigint, unsafemv.suid, unsafemv.suid, boolean),
	unsafemv.collect_eligible(text, text, bigint, bigint, unsafemv.suid, bigint)
	FROM PUBLIC;
