--
-- The ordered fold, written a second time: what the view must show once every
-- event is there.  Plain PL/pgSQL over a table of events, one operation after
-- the other in SUID order, with nothing of the extension in it.
--
CREATE SCHEMA oracle;
CREATE TABLE oracle.events (
	n bigint PRIMARY KEY,
	event_id text COLLATE "C" NOT NULL,
	suid text COLLATE "C" NOT NULL UNIQUE,
	mutations jsonb NOT NULL
);

-- RFC 7396
CREATE FUNCTION oracle.merge(target jsonb, patch jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	merged jsonb := '{}';
	member record;
BEGIN
	IF jsonb_typeof(patch) <> 'object' THEN
		RETURN patch;
	END IF;
	IF jsonb_typeof(target) = 'object' THEN
		merged := target;
	END IF;
	FOR member IN SELECT key, value FROM jsonb_each(patch) LOOP
		IF member.value = 'null' THEN
			merged := merged - member.key;
		ELSE
			merged := merged || jsonb_build_object(member.key, oracle.merge(merged -> member.key, member.value));
		END IF;
	END LOOP;
	RETURN merged;
END $$;

-- add, min, max, append, union: by member, whatever the target is (NULL: absent)
CREATE FUNCTION oracle.patch(kind text, target jsonb, operand jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	patched jsonb := '{}';
	member record;
	element jsonb;
	numeric_target boolean := coalesce(jsonb_typeof(target) = 'number', false);
BEGIN
	IF kind = 'json_patch' THEN
		RETURN oracle.merge(target, operand);
	END IF;
	IF jsonb_typeof(operand) = 'object' THEN
		IF jsonb_typeof(target) = 'object' THEN
			patched := target;
		END IF;
		FOR member IN SELECT key, value FROM jsonb_each(operand) LOOP
			patched := patched || jsonb_build_object(member.key, oracle.patch(kind, patched -> member.key, member.value));
		END LOOP;
		RETURN patched;
	END IF;
	CASE kind
	WHEN 'add' THEN
		RETURN to_jsonb(operand::numeric + CASE WHEN numeric_target THEN target::numeric ELSE 0 END);
	WHEN 'min' THEN
		RETURN CASE WHEN numeric_target AND target::numeric <= operand::numeric THEN target ELSE operand END;
	WHEN 'max' THEN
		RETURN CASE WHEN numeric_target AND target::numeric >= operand::numeric THEN target ELSE operand END;
	ELSE
		patched := CASE WHEN jsonb_typeof(target) = 'array' THEN target ELSE '[]' END;
		FOR element IN SELECT jsonb_array_elements(CASE WHEN jsonb_typeof(operand) = 'array' THEN operand
													ELSE jsonb_build_array(operand) END) LOOP
			IF kind = 'append' OR NOT EXISTS (SELECT FROM jsonb_array_elements(patched) p WHERE p = element) THEN
				patched := patched || jsonb_build_array(element);
			END IF;
		END LOOP;
		RETURN patched;
	END CASE;
END $$;

-- An index entry as a set member: [index id, value type, value].
CREATE FUNCTION oracle.entry(e jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	SELECT jsonb_build_array(e -> 'indexId', e -> 'valueType', e -> 'value')
$$;

-- Folds the events but the missing ones, which nobody has delivered yet.
CREATE FUNCTION oracle.fold(missing bigint[])
RETURNS TABLE (row_key text, value jsonb, row_version bigint, source_suid text, entries jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
	e record;
	o jsonb;
	k text;
	old record;
BEGIN
	CREATE TEMP TABLE IF NOT EXISTS folded (
		row_key text COLLATE "C" PRIMARY KEY, value jsonb, row_version bigint, source_suid text, entries jsonb);
	TRUNCATE folded;
	FOR e IN SELECT * FROM oracle.events v
		WHERE NOT EXISTS (SELECT FROM unnest(missing) m WHERE m = v.n) ORDER BY suid LOOP
		FOR o IN SELECT jsonb_array_elements(e.mutations -> 'rowDeletes') LOOP
			DELETE FROM folded f WHERE f.row_key = coalesce(o ->> 'rowKey', o #>> '{}');
		END LOOP;
		FOR o IN SELECT jsonb_array_elements(e.mutations -> 'rowUpserts') LOOP
			INSERT INTO folded VALUES (o ->> 'rowKey', o -> 'value', coalesce((o ->> 'rowVersion')::bigint, 1), e.suid, '[]')
			ON CONFLICT (row_key) DO UPDATE SET value = excluded.value, row_version = excluded.row_version,
				source_suid = excluded.source_suid, entries = excluded.entries;
		END LOOP;
		FOR o IN SELECT jsonb_array_elements(e.mutations -> 'rowPatches') LOOP
			k := o ->> 'rowKey';
			IF (o -> 'create')::boolean THEN
				INSERT INTO folded VALUES (k, '{}', 1, e.suid, '[]') ON CONFLICT (row_key) DO NOTHING;
			END IF;
			UPDATE folded f SET value = oracle.patch(o ->> 'kind', f.value, o -> 'patch'),
				row_version = coalesce((o ->> 'rowVersion')::bigint, 1), source_suid = e.suid,
				entries = CASE WHEN jsonb_array_length(o -> 'indexEntries') > 0
					THEN (SELECT jsonb_agg(DISTINCT oracle.entry(i)) FROM jsonb_array_elements(o -> 'indexEntries') i)
					ELSE f.entries END
			WHERE f.row_key = k;
		END LOOP;
		FOR o IN SELECT jsonb_array_elements(e.mutations -> 'indexDeletes') LOOP
			UPDATE folded f SET entries = coalesce((
				SELECT jsonb_agg(i) FROM jsonb_array_elements(f.entries) i
				WHERE o ->> 'indexId' IS NOT NULL AND i ->> 0 <> o ->> 'indexId'), '[]')
			WHERE f.row_key = o ->> 'rowKey';
		END LOOP;
		FOR o IN SELECT jsonb_array_elements(e.mutations -> 'indexEntries') LOOP
			UPDATE folded f SET entries = f.entries || jsonb_build_array(oracle.entry(o))
			WHERE f.row_key = o ->> 'rowKey' AND NOT f.entries @> jsonb_build_array(oracle.entry(o));
		END LOOP;
	END LOOP;
	RETURN QUERY SELECT * FROM folded f ORDER BY f.source_suid, f.row_key;
END $$;

-- One line per difference between the fold and what the view shows: rows by the
-- page, entries by the index.
CREATE FUNCTION oracle.differences(service text, view text, which text, missing bigint[]) RETURNS SETOF text
LANGUAGE sql AS $$
	WITH expected AS MATERIALIZED (SELECT * FROM oracle.fold(missing)),
	shown AS MATERIALIZED (
		SELECT p.row_key, p.value, p.row_version, p.source_suid
		FROM unsafemv.query_composed_page(service, view, "limit" => NULL, consistency => which) p),
	entries_expected AS (
		SELECT e.row_key, i ->> 0 AS index_id, i ->> 2 AS index_value FROM expected e, jsonb_array_elements(e.entries) i),
	entries_shown AS (
		SELECT q.row_key, x.index_id, q.index_value
		FROM (VALUES ('tag', 'text'), ('n', 'integer')) x (index_id, value_type),
			unsafemv.query_rows(service, view, x.index_id, x.value_type, "limit" => NULL, consistency => which) q)
	SELECT format('row %s of %s: expected %s version %s at %s, shown %s version %s at %s', row_key, which,
		e.value, e.row_version, e.source_suid, s.value, s.row_version, s.source_suid)
	FROM expected e FULL JOIN shown s USING (row_key)
	WHERE (e.value, e.row_version, e.source_suid COLLATE "C") IS DISTINCT FROM (s.value, s.row_version, s.source_suid COLLATE "C")
	UNION ALL
	SELECT format('entry %s = %s of row %s of %s: expected %s, shown %s', index_id, index_value, row_key, which,
		e IS NOT NULL, s IS NOT NULL)
	FROM entries_expected e FULL JOIN entries_shown s USING (row_key, index_id, index_value)
	WHERE e IS NULL OR s IS NULL
$$;
