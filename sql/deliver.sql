--
-- Delivery: what is inserted into the event table is applied.
--

CREATE FUNCTION unsafemv.deliver() RETURNS trigger
	AS 'MODULE_PATHNAME', 'unsafemv_deliver' LANGUAGE C
	SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION unsafemv.deliver() IS
	'Trigger function of an event table: AFTER INSERT ... REFERENCING NEW TABLE AS ... FOR EACH STATEMENT. Applies the inserted events, set-wise and in the same transaction, to every view of their service that has a projection, in the order in which the views were created. Arguments name columns that differ: ''service_id=COLUMN'', ''event_id=COLUMN'', ''suid=COLUMN'' (a suid, its text, or a whole number: the position), ''event=COLUMN'' (jsonb or json; ''event=*'': the row as an object), ''event_type=COLUMN'' (only if a projection wants some types); ''service=NAME'' is the service of all events; ''on_error=raise'' (default) lets an error of a view end the INSERT, ''on_error=record'' records it as an unsafe-failure finding of each event that fails and lets the INSERT succeed, ''on_error.VIEW=...'' says so for one view. What a trigger gives must be what the projection''s source gives. Roles: plan functions run as the role that attached; the inserting role needs the rights of a writer. Errors: those of apply_batch, MV_PLAN_FUNCTION_FAILED, MV_PROJECTION_MISSING, MV_VALUE_INVALID (arguments, columns, a null), with the event and the view in DETAIL or CONTEXT; serialization failures, deadlocks and cancels are raised under either policy. Isolation and locks as apply_batch.';
REVOKE ALL ON FUNCTION unsafemv.deliver() FROM PUBLIC;
