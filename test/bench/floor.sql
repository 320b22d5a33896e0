--
-- The floor: the bare physical writes.  The same final tuples as the extension
-- writes (receipt, tentative row with its index entries in a column, marker of
-- an older event), put into tables of the same shape and indexes by plain
-- statements.  No plan is parsed and nothing is checked: the input says what to
-- write.  A redelivery writes nothing.  Row at a time is bench.apply_floor in
-- loops.sql: its statements stand in the loop itself.
--
CREATE SCHEMA floor;
CREATE TABLE floor.receipts (LIKE unsafemv.receipts INCLUDING ALL);
CREATE TABLE floor.unsafe_rows (LIKE unsafemv.unsafe_rows INCLUDING ALL);
CREATE TABLE floor.markers (LIKE unsafemv.markers INCLUDING ALL);

-- One statement per table.  Of several events of a batch on one key the newest is the final tuple.
CREATE FUNCTION floor.apply_batch(view bigint, kinds text[], events text[], suids unsafemv.suid[], keys text[],
								  row_values jsonb[], row_entries jsonb[])
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO floor.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at)
	SELECT 'bench', view, 0, e.event, e.event_suid, e.kind, false, now()
	FROM unnest(kinds, events, suids) e (kind, event, event_suid) WHERE e.kind <> 'redelivery';
	IF 'older' = ANY (kinds) THEN
		INSERT INTO floor.markers (service_id, view_no, generation, row_key, event_id, suid, reason)
		SELECT 'bench', view, 0, e.key, e.event, e.event_suid, e.kind
		FROM unnest(kinds, events, suids, keys) e (kind, event, event_suid, key) WHERE e.kind = 'older';
	END IF;
	INSERT INTO floor.unsafe_rows AS u
		(service_id, view_no, generation, row_key, value, row_version, source_suid, tombstone, entries)
	SELECT DISTINCT ON (e.key) 'bench', view, 0, e.key, e.row_value, 1, e.event_suid, false, e.entries
	FROM unnest(kinds, suids, keys, row_values, row_entries) e (kind, event_suid, key, row_value, entries)
	WHERE e.kind = 'applied' ORDER BY e.key, e.event_suid DESC
	ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE SET
		value = excluded.value, row_version = excluded.row_version, source_suid = excluded.source_suid,
		tombstone = excluded.tombstone, entries = excluded.entries;
	RETURN cardinality(events);
END $$;
