--
-- Inputs and loops of the benchmarks.  The input is generated beforehand, the
-- same for all sides; the loops run in one session inside the server and
-- commit every 10 events (or every batch), as a busy application would.
--
CREATE SCHEMA bench;

CREATE FUNCTION bench.suid(n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT '0' || (638000000000000000 + n) || '00000000007'
$$;

CREATE UNLOGGED TABLE bench.input (
	n bigint PRIMARY KEY,
	kind text NOT NULL,
	event_id text NOT NULL,
	suid text NOT NULL,
	stored_suid unsafemv.suid NOT NULL,
	row_key text NOT NULL,
	value jsonb NOT NULL,
	entries jsonb NOT NULL,
	mutations jsonb NOT NULL
);
CREATE UNLOGGED TABLE bench.batches (
	n bigint PRIMARY KEY,
	events jsonb NOT NULL,
	kinds text[] NOT NULL,
	event_ids text[] NOT NULL,
	suids unsafemv.suid[] NOT NULL,
	row_keys text[] NOT NULL,
	row_values jsonb[] NOT NULL,
	row_entries jsonb[] NOT NULL
);
-- A caller's parameter is not compressed either.
ALTER TABLE bench.batches ALTER events SET STORAGE EXTERNAL, ALTER event_ids SET STORAGE EXTERNAL, ALTER suids SET STORAGE EXTERNAL,
	ALTER row_keys SET STORAGE EXTERNAL, ALTER row_values SET STORAGE EXTERNAL, ALTER row_entries SET STORAGE EXTERNAL;

-- Of 20 events the 8th redelivers the 4th and the 14th is older than the 10th
-- on the same key; the others upsert one of the keys with one text entry.
-- "dense" instead touches every key once.
CREATE FUNCTION bench.generate(first bigint, count bigint, dense boolean = false, keys bigint = 20000) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE bench.input;
	INSERT INTO bench.input
	SELECT s.n, s.kind, e.event_id, bench.suid(e.suid_no), bench.suid(e.suid_no)::unsafemv.suid, k.row_key, v.value,
		jsonb_build_array(jsonb_build_array('status', 'text', v.value -> 'status')),
		jsonb_build_object(
			'rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', k.row_key, 'value', v.value)),
			'indexEntries', jsonb_build_array(jsonb_build_object('indexId', 'status', 'valueType', 'text',
				'value', v.value -> 'status', 'rowKey', k.row_key)))
	FROM (SELECT n, CASE WHEN dense THEN 'applied' WHEN n % 20 = 8 THEN 'redelivery' WHEN n % 20 = 14 THEN 'older' ELSE 'applied' END AS kind
		  FROM generate_series(first, first + count - 1) n) s,
	LATERAL (SELECT CASE WHEN s.kind = 'applied' THEN s.n ELSE s.n - 4 END AS source) o,
	LATERAL (SELECT '00000000-0000-4000-a' || (1000000000000000 + CASE s.kind WHEN 'redelivery' THEN o.source ELSE s.n END) AS event_id,
		CASE s.kind WHEN 'older' THEN o.source * 10 - 1 ELSE o.source * 10 END AS suid_no) e,
	LATERAL (SELECT 'order-' || lpad((CASE WHEN dense THEN o.source % keys
		ELSE mod(abs(hashint8(o.source)::bigint), keys) END)::text, 8, '0') AS row_key) k,
	LATERAL (SELECT jsonb_build_object('status', (ARRAY['open', 'paid', 'shipped', 'closed'])[1 + o.source % 4],
		'customer', 'customer-' || o.source % 5000, 'total', (o.source % 100000)::numeric / 100) AS value) v;
	PERFORM bench.cut(100);
END $$;

-- The input as batches of another size.
CREATE FUNCTION bench.cut(size bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE bench.batches;
	INSERT INTO bench.batches
	SELECT min(n), jsonb_agg(jsonb_build_object('eventId', event_id, 'suid', suid, 'mutations', mutations) ORDER BY n),
		array_agg(kind ORDER BY n), array_agg(event_id ORDER BY n), array_agg(stored_suid ORDER BY n),
		array_agg(row_key ORDER BY n), array_agg(value ORDER BY n), array_agg(entries ORDER BY n)
	FROM bench.input GROUP BY (n - (SELECT min(n) FROM bench.input)) / size;
	ANALYZE bench.input, bench.batches;
END $$;

CREATE FUNCTION bench.microseconds(since timestamptz) RETURNS double precision LANGUAGE sql AS $$
	SELECT extract(epoch FROM clock_timestamp() - since)::double precision * 1e6
$$;

-- What the loop itself costs: fetch the input, commit.
CREATE PROCEDURE bench.apply_nothing(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	i record;
	answer text;
BEGIN
	FOR i IN SELECT * FROM bench.input ORDER BY n LOOP
		answer := i.kind;
		IF i.n % 10 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
	COMMIT;
	spent := bench.microseconds(started);
END $$;

CREATE PROCEDURE bench.apply_unsafemv(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	i record;
	answer text;
BEGIN
	FOR i IN SELECT * FROM bench.input ORDER BY n LOOP
		answer := (unsafemv.apply('bench', view, i.event_id, i.suid, i.mutations)).outcome;
		IF i.n % 10 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
	COMMIT;
	spent := bench.microseconds(started);
END $$;

CREATE PROCEDURE bench.apply_peer(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	i record;
	answer text;
BEGIN
	FOR i IN SELECT * FROM bench.input ORDER BY n LOOP
		answer := (peer.apply('bench', view, i.event_id, i.suid, i.mutations)).outcome;
		IF i.n % 10 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
	COMMIT;
	spent := bench.microseconds(started);
END $$;

-- The statements stand in the loop itself: no call, no parsing, only writes.
CREATE PROCEDURE bench.apply_floor(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	i record;
BEGIN
	FOR i IN SELECT * FROM bench.input ORDER BY n LOOP
		IF i.kind <> 'redelivery' THEN
			INSERT INTO floor.receipts (service_id, view_no, generation, event_id, suid, outcome, settled, observed_at)
			VALUES ('bench', 1, 0, i.event_id, i.stored_suid, i.kind, false, now());
			IF i.kind = 'older' THEN
				INSERT INTO floor.markers (service_id, view_no, generation, row_key, event_id, suid, reason)
				VALUES ('bench', 1, 0, i.row_key, i.event_id, i.stored_suid, i.kind);
			ELSE
				INSERT INTO floor.unsafe_rows AS u
					(service_id, view_no, generation, row_key, value, row_version, source_suid, tombstone, entries)
				VALUES ('bench', 1, 0, i.row_key, i.value, 1, i.stored_suid, false, i.entries)
				ON CONFLICT (service_id, view_no, generation, row_key) DO UPDATE SET
					value = excluded.value, row_version = excluded.row_version, source_suid = excluded.source_suid,
					tombstone = excluded.tombstone, entries = excluded.entries;
			END IF;
		END IF;
		IF i.n % 10 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
	COMMIT;
	spent := bench.microseconds(started);
END $$;

CREATE PROCEDURE bench.batch_unsafemv(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	b record;
	answers bigint;
BEGIN
	FOR b IN SELECT events FROM bench.batches ORDER BY n LOOP
		SELECT count(*) INTO answers FROM unsafemv.apply_batch('bench', view, b.events);
		COMMIT;
	END LOOP;
	spent := bench.microseconds(started);
END $$;

CREATE PROCEDURE bench.batch_peer(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	b record;
	answers bigint;
BEGIN
	FOR b IN SELECT events FROM bench.batches ORDER BY n LOOP
		SELECT count(*) INTO answers FROM peer.apply_batch('bench', view, b.events);
		COMMIT;
	END LOOP;
	spent := bench.microseconds(started);
END $$;

CREATE PROCEDURE bench.batch_floor(view text, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
	b record;
BEGIN
	FOR b IN SELECT kinds, event_ids, suids, row_keys, row_values, row_entries FROM bench.batches ORDER BY n LOOP
		PERFORM floor.apply_batch(1, b.kinds, b.event_ids, b.suids, b.row_keys, b.row_values, b.row_entries);
		COMMIT;
	END LOOP;
	spent := bench.microseconds(started);
END $$;

-- Many applies in one session: what the backend's memory does meanwhile.
CREATE PROCEDURE bench.many(view text, events bigint, INOUT bytes_before bigint, INOUT bytes_after bigint,
							INOUT plans_before bigint, INOUT plans_after bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..events + 1000 LOOP
		PERFORM FROM unsafemv.apply('bench', view, '00000000-0000-4000-a' || (1000000000000000 + i), bench.suid(i),
			jsonb_build_object(
				'rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'order-' || i % 20000, 'value', jsonb_build_object('status', 'open', 'n', i))),
				'indexEntries', jsonb_build_array(jsonb_build_object('indexId', 'status', 'valueType', 'text', 'value', 'open', 'rowKey', 'order-' || i % 20000))));
		IF i % 10 = 0 THEN
			COMMIT;
		END IF;
		-- one place measures, so that its own plans are there before it counts
		IF i IN (500, 1000, events + 1000) THEN
			SELECT sum(total_bytes), count(*) FILTER (WHERE name LIKE 'CachedPlan%') INTO bytes_after, plans_after
			FROM pg_backend_memory_contexts;
			IF i <= 1000 THEN
				bytes_before := bytes_after;
				plans_before := plans_after;
			END IF;
		END IF;
	END LOOP;
END $$;

-- Many tentative rows more: half of them on keys that have a safe row, half on new ones.
CREATE PROCEDURE bench.add_unsafemv(view text, safe bigint, first bigint, last bigint) LANGUAGE plpgsql AS $$
BEGIN
	FOR g IN first..last BY 1000 LOOP
		PERFORM unsafemv.apply_batch('bench', view, (
			SELECT jsonb_agg(jsonb_build_object('eventId', '00000000-0000-4000-a' || (1000000000000000 + n), 'suid', bench.suid(safe + n),
				'mutations', jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object(
					'rowKey', 'order-' || lpad((CASE WHEN n % 2 = 0 THEN n * 7919 % safe ELSE safe + n END)::text, 8, '0'),
					'value', jsonb_build_object('status', 'paid', 'customer', 'customer-' || n % 5000, 'total', n % 1000))))))
			FROM generate_series(g::bigint, least(g + 999, last)) n));
	END LOOP;
END $$;

CREATE PROCEDURE bench.add_peer(view text, safe bigint, first bigint, last bigint) LANGUAGE sql AS $$
	INSERT INTO peer.unsafe_rows
	SELECT 'bench', view, 0, 'order-' || lpad((CASE WHEN n % 2 = 0 THEN n * 7919 % safe ELSE safe + n END)::text, 8, '0'),
		jsonb_build_object('status', 'paid', 'customer', 'customer-' || n % 5000, 'total', n % 1000), 1, bench.suid(safe + n)
	FROM generate_series(first, last) n;
$$;

-- Safe rows of a view put straight into the tables, and tentative rows above
-- them.  Keys are in another order than SUIDs: 7919 is prime, hence a permutation
-- of powers of ten.
CREATE FUNCTION bench.fill_unsafemv(view text, safe bigint, tentative bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	no bigint;
BEGIN
	PERFORM unsafemv.create_view('bench', view, last_suid => bench.suid(safe));
	SELECT v.view_no INTO no FROM unsafemv.views v WHERE v.service_id = 'bench' AND v.view_id = view;
	INSERT INTO unsafemv.rows (service_id, view_no, generation, row_key, value, row_version, source_suid)
	SELECT 'bench', no, 0, 'order-' || lpad((n * 7919 % safe)::text, 8, '0'),
		jsonb_build_object('status', 'open', 'customer', 'customer-' || n % 5000, 'total', n % 1000), 1, bench.suid(n)::unsafemv.suid
	FROM generate_series(1, safe) n;
	UPDATE unsafemv.generations SET row_count = safe WHERE service_id = 'bench' AND view_no = no;
	CALL bench.add_unsafemv(view, safe, 1, tentative);
END $$;

CREATE FUNCTION bench.fill_peer(view text, safe bigint, tentative bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM peer.create_view('bench', view, bench.suid(safe));
	INSERT INTO peer.rows
	SELECT 'bench', view, 0, 'order-' || lpad((n * 7919 % safe)::text, 8, '0'),
		jsonb_build_object('status', 'open', 'customer', 'customer-' || n % 5000, 'total', n % 1000), 1, bench.suid(n)
	FROM generate_series(1, safe) n;
	CALL bench.add_peer(view, safe, 1, tentative);
END $$;

-- P9: a view whose tentative rows are all folded and settled, but not collected yet.
CREATE FUNCTION bench.fill_eligible(view text, count bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	no bigint;
BEGIN
	PERFORM unsafemv.create_view('bench', view);
	SELECT v.view_no INTO no FROM unsafemv.views v WHERE v.service_id = 'bench' AND v.view_id = view;
	INSERT INTO unsafemv.receipts (service_id, view_no, generation, event_id, suid, settled, outcome, observed_at)
	SELECT 'bench', no, 0, 'event-' || i, bench.suid(i)::unsafemv.suid, true, 'applied', clock_timestamp()
	FROM generate_series(1, count) i;
	INSERT INTO unsafemv.unsafe_rows (service_id, view_no, generation, row_key, source_suid, row_version, tombstone, value)
	SELECT 'bench', no, 0, 'order-' || i, bench.suid(i)::unsafemv.suid, 1, false, '{"status": "open", "total": 12.5}'
	FROM generate_series(1, count) i;
	UPDATE unsafemv.generations g SET last_suid = bench.suid(count)::unsafemv.suid WHERE g.service_id = 'bench' AND g.view_no = no;
END $$;

CREATE FUNCTION bench.collect_all(view text, count bigint) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	IF unsafemv.collect_eligible('bench', view, 0, 1, bench.suid(count)) <> count THEN
		RAISE EXCEPTION 'not all rows were collected';
	END IF;
	RETURN bench.microseconds(started);
END $$;

CREATE FUNCTION bench.collect_singly(view text, count bigint) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	FOR i IN 1..count LOOP
		IF NOT unsafemv.garbage_collect('bench', view, 0, 1, 'order-' || i, 1, bench.suid(i), bench.suid(count)) THEN
			RAISE EXCEPTION 'row % was not collected', i;
		END IF;
	END LOOP;
	RETURN bench.microseconds(started);
END $$;

-- Applies on other keys, each its own (versions of one key would pile up under the
-- snapshot of the collecting transaction), a transaction each: the time of one. The first event is number "first".
CREATE PROCEDURE bench.apply_beside(view text, first bigint, count bigint, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz;
BEGIN
	spent := 0;
	FOR i IN first..first + count - 1 LOOP
		started := clock_timestamp();
		PERFORM unsafemv.apply('bench', view, 'beside-' || i, bench.suid(i),
			jsonb_build_object('rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'beside-' || i, 'value', 1))));
		spent := spent + bench.microseconds(started) / count;
		COMMIT;
	END LOOP;
END $$;

-- P8: the same events for both safe lanes, in order.
CREATE FUNCTION bench.safe_events(first bigint, count bigint) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_agg(jsonb_build_object('eventId', 'safe-' || i, 'suid', bench.suid(i), 'mutations', jsonb_build_object(
		'rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', 'order-' || i * 7919 % 20000, 'value', jsonb_build_object('status', 'open', 'n', i))),
		'indexEntries', jsonb_build_array(jsonb_build_object('rowKey', 'order-' || i * 7919 % 20000, 'indexId', 'status', 'valueType', 'text', 'value', 'open')))) ORDER BY i)
	FROM generate_series(first, first + count - 1) i
$$;

CREATE FUNCTION bench.fold_batch(view text, first bigint, count bigint) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
	events jsonb := bench.safe_events(first, count);
	started timestamptz := clock_timestamp();
BEGIN
	PERFORM unsafemv.apply_safe_batch('bench', view, CASE WHEN first > 1 THEN bench.suid(first - 1)::unsafemv.suid END, events);
	RETURN bench.microseconds(started);
END $$;

CREATE FUNCTION bench.fold_peer(view text, first bigint, count bigint) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
	events jsonb := bench.safe_events(first, count);
	event jsonb;
	head text := CASE WHEN first > 1 THEN bench.suid(first - 1) END;
	started timestamptz := clock_timestamp();
BEGIN
	FOR event IN SELECT * FROM jsonb_array_elements(events) LOOP
		PERFORM peer.apply_safe('bench', view, head, event ->> 'suid', event -> 'mutations', event ->> 'eventId');
		head := event ->> 'suid';
	END LOOP;
	RETURN bench.microseconds(started);
END $$;

-- P10 and the rebuild: a source of events, the plan function, the view they are attached to.
CREATE TABLE bench.events (service_id text NOT NULL, event_id text NOT NULL, suid unsafemv.suid NOT NULL, event jsonb NOT NULL,
	arrived_at timestamptz NOT NULL);
CREATE FUNCTION bench.plan(event jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	SELECT jsonb_build_object(
		'rowUpserts', jsonb_build_array(jsonb_build_object('rowKey', event -> 'order', 'value', event - 'order')),
		'indexEntries', jsonb_build_array(jsonb_build_object('rowKey', event -> 'order', 'indexId', 'status', 'valueType', 'text',
			'value', event -> 'status')))
$$;
CREATE PROCEDURE bench.fill_source(view text, count bigint) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO bench.events
	SELECT 'bench', '00000000-0000-4000-a' || (1000000000000000 + n), bench.suid(n)::unsafemv.suid,
		jsonb_build_object('order', 'order-' || n * 7919 % 20000, 'status', 'open', 'n', n), clock_timestamp() - interval '1 hour'
	FROM generate_series(1, count) n;
	ALTER TABLE bench.events ADD PRIMARY KEY (service_id, event_id);
	CREATE UNIQUE INDEX ON bench.events (service_id, suid);
	CREATE INDEX ON bench.events (service_id, arrived_at);
	IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'bench_owner') THEN
		CREATE ROLE bench_owner;
	END IF;
	GRANT USAGE ON SCHEMA bench, unsafemv TO bench_owner;
	GRANT SELECT ON bench.events TO bench_owner;
	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unsafemv TO bench_owner;
	GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO bench_owner;
	PERFORM unsafemv.create_view('bench', view);
	SET LOCAL ROLE bench_owner;
	PERFORM unsafemv.attach_projection('bench', view, 'bench.events', 'bench.plan');
	RESET ROLE;
	COMMIT;
END $$;

-- Live applies beside a rebuild, a transaction each, on 20,000 keys: the time of one.
CREATE PROCEDURE bench.apply_live(view text, first bigint, count bigint, INOUT spent double precision) LANGUAGE plpgsql AS $$
DECLARE
	started timestamptz := clock_timestamp();
BEGIN
	FOR i IN first..first + count - 1 LOOP
		PERFORM FROM unsafemv.apply('bench', view, '00000000-0000-4000-b' || (1000000000000000 + i), bench.suid(i),
			bench.plan(jsonb_build_object('order', 'order-' || i::bigint * 7919 % 20000, 'status', 'paid', 'n', i)));
		COMMIT;
	END LOOP;
	spent := bench.microseconds(started) / count;
END $$;
