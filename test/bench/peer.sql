--
-- The peer: what a user would write instead of the extension.  The same unsafe
-- apply (outcomes, duplicates, contradiction, late) in PL/pgSQL on the prior
-- art's schema: text keys, text SUIDs in COLLATE "C", one statement per fact, a
-- kick row and an arrivals row per view updated per event, wait receipts in
-- their own table.  Tuned: ON CONFLICT instead of guard rows, a fast path for
-- the plan of one upsert, no index that no statement needs.
--
-- Its rule is the prior art's coarse one (base 'unsafe'): it keeps no
-- operations, so it does less work per event than the extension does.
--
CREATE SCHEMA peer;

CREATE TABLE peer.instances (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	status text NOT NULL CHECK (status IN ('active', 'candidate', 'retired')),
	definition_version bigint NOT NULL DEFAULT 1,
	last_suid text COLLATE "C",
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (service_id, view_id, generation)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX ON peer.instances (service_id, view_id) WHERE status = 'active';

CREATE TABLE peer.rows (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	value jsonb NOT NULL,
	row_version bigint NOT NULL,
	source_suid text COLLATE "C" NOT NULL,
	PRIMARY KEY (service_id, view_id, generation, row_key)
);

CREATE TABLE peer.unsafe_rows (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	value jsonb NOT NULL,
	row_version bigint NOT NULL,
	source_suid text COLLATE "C" NOT NULL,
	tombstone boolean NOT NULL DEFAULT false,
	PRIMARY KEY (service_id, view_id, generation, row_key)
);

-- Collection finds the tentative rows at or below the head by it.
CREATE INDEX ON peer.unsafe_rows (service_id, view_id, generation, source_suid, row_key);

-- One shape for both lanes' entries: a set member found by value, and by row.
CREATE TABLE peer.index_entries (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	index_id text COLLATE "C" NOT NULL,
	value_type text COLLATE "C" NOT NULL,
	text_value text COLLATE "C",
	integer_value bigint,
	real_value double precision,
	row_key text COLLATE "C" NOT NULL,
	UNIQUE NULLS NOT DISTINCT (service_id, view_id, generation, index_id, value_type,
							   text_value, integer_value, real_value, row_key)
);
CREATE INDEX ON peer.index_entries (service_id, view_id, generation, row_key);
CREATE TABLE peer.unsafe_index_entries (LIKE peer.index_entries INCLUDING ALL);

CREATE TABLE peer.unsafe_receipts (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	suid text COLLATE "C" NOT NULL,
	outcome text NOT NULL,
	observed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (service_id, view_id, event_id)
);
CREATE INDEX ON peer.unsafe_receipts (service_id, view_id, suid);

CREATE TABLE peer.wait_receipts (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	definition_version bigint NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	suid text COLLATE "C" NOT NULL,
	observed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (service_id, view_id, generation, event_id)
);

CREATE TABLE peer.markers (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	suid text COLLATE "C" NOT NULL,
	reason text NOT NULL,
	PRIMARY KEY (service_id, view_id, generation, row_key, event_id)
);

CREATE TABLE peer.arrivals (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	generation bigint NOT NULL,
	watermark text COLLATE "C",
	behind_frontier_event_id text COLLATE "C",
	behind_frontier_suid text COLLATE "C",
	rebuild_required boolean NOT NULL DEFAULT false,
	PRIMARY KEY (service_id, view_id, generation)
) WITH (fillfactor = 50);

CREATE TABLE peer.kicks (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	target_suid text COLLATE "C",
	dirty boolean NOT NULL DEFAULT false,
	lease_owner text,
	lease_until timestamptz,
	PRIMARY KEY (service_id, view_id)
) WITH (fillfactor = 50);

CREATE FUNCTION peer.create_view(service text, view text, head text = NULL) RETURNS bigint LANGUAGE sql AS $$
	INSERT INTO peer.instances (service_id, view_id, generation, status, last_suid)
	VALUES (service, view, 0, 'active', head) RETURNING generation
$$;

CREATE FUNCTION peer.merge(target jsonb, patch jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	merged jsonb := CASE WHEN jsonb_typeof(target) = 'object' THEN target ELSE '{}' END;
	member record;
BEGIN
	IF jsonb_typeof(patch) <> 'object' THEN
		RETURN patch;
	END IF;
	FOR member IN SELECT key, value FROM jsonb_each(patch) LOOP
		IF member.value = 'null' THEN
			merged := merged - member.key;
		ELSE
			merged := merged || jsonb_build_object(member.key, peer.merge(merged -> member.key, member.value));
		END IF;
	END LOOP;
	RETURN merged;
END $$;

CREATE PROCEDURE peer.add_entry(service text, view text, gen bigint, entry jsonb, safe boolean)
LANGUAGE plpgsql AS $$
BEGIN
	IF safe THEN
		INSERT INTO peer.index_entries VALUES (service, view, gen, entry ->> 'indexId', entry ->> 'valueType',
			CASE entry ->> 'valueType' WHEN 'text' THEN entry ->> 'value' END,
			CASE entry ->> 'valueType' WHEN 'integer' THEN (entry ->> 'value')::bigint END,
			CASE entry ->> 'valueType' WHEN 'real' THEN (entry ->> 'value')::float8 END, entry ->> 'rowKey')
		ON CONFLICT DO NOTHING;
	ELSE
		INSERT INTO peer.unsafe_index_entries VALUES (service, view, gen, entry ->> 'indexId', entry ->> 'valueType',
			CASE entry ->> 'valueType' WHEN 'text' THEN entry ->> 'value' END,
			CASE entry ->> 'valueType' WHEN 'integer' THEN (entry ->> 'value')::bigint END,
			CASE entry ->> 'valueType' WHEN 'real' THEN (entry ->> 'value')::float8 END, entry ->> 'rowKey')
		ON CONFLICT DO NOTHING;
	END IF;
END $$;

CREATE FUNCTION peer.apply(service text, view text, event text, event_suid text, mutations jsonb,
						   OUT outcome text, OUT duplicate boolean)
LANGUAGE plpgsql AS $$
DECLARE
	gen bigint;
	version bigint;
	head text COLLATE "C";
	known text COLLATE "C";
	upserts jsonb := mutations -> 'rowUpserts';
	patches jsonb := mutations -> 'rowPatches';
	deletes jsonb := mutations -> 'rowDeletes';
	entries jsonb := mutations -> 'indexEntries';
	single boolean := jsonb_array_length(upserts) = 1 AND patches IS NULL AND deletes IS NULL;
	key text COLLATE "C";
	keys text[];
	touched bigint;
	newer bigint;
	item jsonb;
BEGIN
	duplicate := false;
	SELECT i.generation, i.definition_version, i.last_suid INTO gen, version, head
	FROM peer.instances i WHERE i.service_id = service AND i.view_id = view AND i.status = 'active';
	IF NOT FOUND THEN
		RAISE EXCEPTION 'view does not exist' USING CONSTRAINT = 'MV_VIEW_MISSING';
	END IF;

	-- claim the receipt: waits for a concurrent delivery of the same event
	outcome := CASE WHEN event_suid <= head THEN 'behind-frontier' ELSE 'applied' END;
	INSERT INTO peer.unsafe_receipts (service_id, view_id, event_id, suid, outcome)
	VALUES (service, view, event, event_suid, apply.outcome) ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		SELECT r.suid, CASE r.outcome WHEN 'behind-frontier' THEN r.outcome ELSE 'no-change' END INTO known, outcome
		FROM peer.unsafe_receipts r WHERE r.service_id = service AND r.view_id = view AND r.event_id = event;
		IF known <> event_suid THEN
			RAISE EXCEPTION 'event has another suid' USING CONSTRAINT = 'UNSAFE_SUID_CONTRADICTION';
		END IF;
		duplicate := true;
		RETURN;
	END IF;
	IF EXISTS (SELECT FROM peer.unsafe_receipts r
			   WHERE r.service_id = service AND r.view_id = view AND r.suid = event_suid AND r.event_id <> event) THEN
		RAISE EXCEPTION 'suid belongs to another event' USING CONSTRAINT = 'UNSAFE_SUID_CONTRADICTION';
	END IF;

	INSERT INTO peer.arrivals AS a VALUES (service, view, gen, event_suid,
		CASE WHEN outcome = 'behind-frontier' THEN event END,
		CASE WHEN outcome = 'behind-frontier' THEN event_suid END, outcome = 'behind-frontier')
	ON CONFLICT (service_id, view_id, generation) DO UPDATE SET
		watermark = greatest(a.watermark, excluded.watermark),
		behind_frontier_event_id = coalesce(a.behind_frontier_event_id, excluded.behind_frontier_event_id),
		behind_frontier_suid = coalesce(a.behind_frontier_suid, excluded.behind_frontier_suid),
		rebuild_required = a.rebuild_required OR excluded.rebuild_required;
	IF outcome = 'behind-frontier' THEN
		RETURN;
	END IF;

	IF single THEN
		-- the common plan: one upsert
		key := upserts #>> '{0,rowKey}';
		INSERT INTO peer.unsafe_rows AS u VALUES (service, view, gen, key, upserts #> '{0,value}',
			coalesce((upserts #>> '{0,rowVersion}')::bigint, 1), event_suid, false)
		ON CONFLICT (service_id, view_id, generation, row_key) DO UPDATE SET
			value = excluded.value, row_version = excluded.row_version, source_suid = excluded.source_suid, tombstone = false
		WHERE u.source_suid < excluded.source_suid;
		IF NOT FOUND THEN
			outcome := 'older';
			INSERT INTO peer.markers VALUES (service, view, gen, key, event, event_suid, outcome);
		ELSE
			DELETE FROM peer.unsafe_index_entries e
			WHERE e.service_id = service AND e.view_id = view AND e.generation = gen AND e.row_key = key;
			IF jsonb_array_length(entries) = 1 AND entries #>> '{0,valueType}' = 'text' THEN
				INSERT INTO peer.unsafe_index_entries VALUES (service, view, gen, entries #>> '{0,indexId}', 'text',
					entries #>> '{0,value}', NULL, NULL, key) ON CONFLICT DO NOTHING;
			ELSE
				FOR item IN SELECT jsonb_array_elements(entries) LOOP
					CALL peer.add_entry(service, view, gen, item, false);
				END LOOP;
			END IF;
		END IF;
	ELSE
		SELECT array_agg(DISTINCT k ORDER BY k) INTO keys FROM (
			SELECT d ->> 'rowKey' COLLATE "C" AS k FROM jsonb_array_elements(deletes) d
			UNION ALL SELECT u ->> 'rowKey' FROM jsonb_array_elements(upserts) u
			UNION ALL SELECT p ->> 'rowKey' FROM jsonb_array_elements(patches) p) x;
		IF keys IS NULL THEN
			outcome := 'no-change';
			keys := ARRAY[event];
		ELSE
			SELECT count(*), count(*) FILTER (WHERE locked.source_suid > event_suid) INTO touched, newer
			FROM (SELECT u.source_suid FROM peer.unsafe_rows u
				  WHERE u.service_id = service AND u.view_id = view AND u.generation = gen AND u.row_key = ANY (keys)
				  ORDER BY u.row_key FOR UPDATE) locked;
			IF newer > 0 THEN
				outcome := 'older';
			ELSIF EXISTS (SELECT FROM jsonb_array_elements(patches) p WHERE NOT EXISTS (
							SELECT FROM peer.unsafe_rows u WHERE u.service_id = service AND u.view_id = view
							AND u.generation = gen AND u.row_key = p ->> 'rowKey' AND NOT u.tombstone)) THEN
				outcome := 'patch-not-found';
			ELSIF touched < cardinality(keys) AND deletes IS NOT NULL AND upserts IS NULL THEN
				outcome := 'delete-without-row';
			END IF;
		END IF;
		IF outcome <> 'applied' THEN
			INSERT INTO peer.markers SELECT service, view, gen, k, event, event_suid, outcome FROM unnest(keys) k;
		ELSE
			FOR item IN SELECT jsonb_array_elements(deletes) LOOP
				UPDATE peer.unsafe_rows u SET tombstone = true, value = 'null', source_suid = event_suid
				WHERE u.service_id = service AND u.view_id = view AND u.generation = gen AND u.row_key = item ->> 'rowKey';
				DELETE FROM peer.unsafe_index_entries e
				WHERE e.service_id = service AND e.view_id = view AND e.generation = gen AND e.row_key = item ->> 'rowKey';
			END LOOP;
			FOR item IN SELECT jsonb_array_elements(upserts) LOOP
				INSERT INTO peer.unsafe_rows AS u VALUES (service, view, gen, item ->> 'rowKey', item -> 'value',
					coalesce((item ->> 'rowVersion')::bigint, 1), event_suid, false)
				ON CONFLICT (service_id, view_id, generation, row_key) DO UPDATE SET
					value = excluded.value, row_version = excluded.row_version, source_suid = excluded.source_suid, tombstone = false;
				DELETE FROM peer.unsafe_index_entries e
				WHERE e.service_id = service AND e.view_id = view AND e.generation = gen AND e.row_key = item ->> 'rowKey';
			END LOOP;
			FOR item IN SELECT jsonb_array_elements(patches) LOOP
				UPDATE peer.unsafe_rows u SET value = peer.merge(u.value, item -> 'patch'),
					row_version = coalesce((item ->> 'rowVersion')::bigint, 1), source_suid = event_suid
				WHERE u.service_id = service AND u.view_id = view AND u.generation = gen AND u.row_key = item ->> 'rowKey';
			END LOOP;
			FOR item IN SELECT jsonb_array_elements(entries) LOOP
				CALL peer.add_entry(service, view, gen, item, false);
			END LOOP;
		END IF;
	END IF;

	IF outcome <> 'applied' THEN
		UPDATE peer.unsafe_receipts r SET outcome = apply.outcome
		WHERE r.service_id = service AND r.view_id = view AND r.event_id = event;
	END IF;
	INSERT INTO peer.wait_receipts VALUES (service, view, gen, version, event, event_suid);
	INSERT INTO peer.kicks AS k VALUES (service, view, event_suid, true)
	ON CONFLICT (service_id, view_id) DO UPDATE SET
		target_suid = greatest(k.target_suid, excluded.target_suid), dirty = true;
END $$;

CREATE FUNCTION peer.apply_batch(service text, view text, events jsonb)
RETURNS TABLE ("position" int, event_id text, outcome text, duplicate boolean)
LANGUAGE plpgsql AS $$
DECLARE
	e jsonb;
BEGIN
	"position" := 0;
	FOR e IN SELECT jsonb_array_elements(events) LOOP
		"position" := "position" + 1;
		event_id := e ->> 'eventId';
		SELECT a.outcome, a.duplicate INTO outcome, duplicate
		FROM peer.apply(service, view, e ->> 'eventId', e ->> 'suid', e -> 'mutations') a;
		RETURN NEXT;
	END LOOP;
END $$;

-- One event of the safe lane: compare-and-set on the head, then statement by statement.
CREATE FUNCTION peer.apply_safe(service text, view text, expected text, event_suid text, mutations jsonb, event text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	gen bigint;
	item jsonb;
BEGIN
	UPDATE peer.instances i SET last_suid = event_suid, updated_at = clock_timestamp()
	WHERE i.service_id = service AND i.view_id = view AND i.status = 'active'
		AND i.last_suid IS NOT DISTINCT FROM expected COLLATE "C" AND (expected IS NULL OR event_suid > expected COLLATE "C")
	RETURNING i.generation INTO gen;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'head is another one' USING CONSTRAINT = 'MV_CAS_MISMATCH';
	END IF;
	FOR item IN SELECT jsonb_array_elements(mutations -> 'rowDeletes') LOOP
		DELETE FROM peer.rows r
		WHERE r.service_id = service AND r.view_id = view AND r.generation = gen AND r.row_key = item ->> 'rowKey';
		DELETE FROM peer.index_entries e
		WHERE e.service_id = service AND e.view_id = view AND e.generation = gen AND e.row_key = item ->> 'rowKey';
	END LOOP;
	FOR item IN SELECT jsonb_array_elements(mutations -> 'rowUpserts') LOOP
		INSERT INTO peer.rows VALUES (service, view, gen, item ->> 'rowKey', item -> 'value',
			coalesce((item ->> 'rowVersion')::bigint, 1), event_suid)
		ON CONFLICT (service_id, view_id, generation, row_key) DO UPDATE SET
			value = excluded.value, row_version = excluded.row_version, source_suid = excluded.source_suid;
		DELETE FROM peer.index_entries e
		WHERE e.service_id = service AND e.view_id = view AND e.generation = gen AND e.row_key = item ->> 'rowKey';
	END LOOP;
	FOR item IN SELECT jsonb_array_elements(mutations -> 'rowPatches') LOOP
		UPDATE peer.rows r SET value = peer.merge(r.value, item -> 'patch'),
			row_version = coalesce((item ->> 'rowVersion')::bigint, 1), source_suid = event_suid
		WHERE r.service_id = service AND r.view_id = view AND r.generation = gen AND r.row_key = item ->> 'rowKey';
		IF NOT FOUND THEN
			RAISE EXCEPTION 'row to patch does not exist' USING CONSTRAINT = 'MV_PATCH_ROW_MISSING';
		END IF;
	END LOOP;
	FOR item IN SELECT jsonb_array_elements(mutations -> 'indexEntries') LOOP
		CALL peer.add_entry(service, view, gen, item, true);
	END LOOP;
	INSERT INTO peer.unsafe_receipts (service_id, view_id, event_id, suid, outcome)
	VALUES (service, view, event, event_suid, 'applied') ON CONFLICT DO NOTHING;
	DELETE FROM peer.markers m
	WHERE m.service_id = service AND m.view_id = view AND m.generation = gen
		AND m.row_key IN (SELECT u ->> 'rowKey' FROM jsonb_array_elements(mutations -> 'rowUpserts') u) AND m.event_id = event;
	RETURN event_suid;
END $$;

-- The reference query: the prior art's composed page.
CREATE FUNCTION peer.composed_page(service text, view text, page_limit bigint, page_offset bigint = 0, descending boolean = false)
RETURNS TABLE (row_key text, value jsonb, row_version bigint, source_suid text, unsafe boolean, total_count bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
	gen bigint;
	head text COLLATE "C";
BEGIN
	SELECT i.generation, coalesce(i.last_suid, '') INTO gen, head
	FROM peer.instances i WHERE i.service_id = service AND i.view_id = view AND i.status = 'active';
	IF EXISTS (SELECT FROM peer.arrivals a
			   WHERE a.service_id = service AND a.view_id = view AND a.generation = gen AND a.rebuild_required) THEN
		RAISE EXCEPTION 'reads are closed' USING CONSTRAINT = 'UNSAFE_BEHIND_FRONTIER';
	END IF;
	RETURN QUERY EXECUTE format($query$
		WITH lanes AS (
			SELECT r.row_key, r.value, r.row_version, r.source_suid, false AS tombstone, false AS unsafe, 1 AS lane
			FROM peer.rows r WHERE r.service_id = $1 AND r.view_id = $2 AND r.generation = $3
			UNION ALL
			SELECT u.row_key, u.value, u.row_version, u.source_suid, u.tombstone, true, 0
			FROM peer.unsafe_rows u
			WHERE u.service_id = $1 AND u.view_id = $2 AND u.generation = $3 AND u.source_suid > $4 COLLATE "C"),
		ranked AS (
			SELECT l.*, row_number() OVER (PARTITION BY l.row_key ORDER BY l.source_suid DESC, l.lane) AS nth FROM lanes l)
		SELECT k.row_key, k.value, k.row_version, k.source_suid, k.unsafe, count(*) OVER ()
		FROM ranked k WHERE k.nth = 1 AND NOT k.tombstone
		ORDER BY k.source_suid %1$s, k.row_key %1$s LIMIT $5 OFFSET $6 $query$,
		CASE WHEN descending THEN 'DESC' ELSE 'ASC' END)
	USING service, view, gen, head, page_limit, page_offset;
END $$;
