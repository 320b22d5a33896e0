-- Type suid: text and binary form, order, indexes, hashing, aggregates, helpers.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
RESET client_min_messages;
SET search_path = public, unsafemv;
SET timezone = 'UTC';
SET datestyle = 'ISO, YMD';

-- What a statement raises: SQLSTATE, the code word and all messages.
CREATE FUNCTION pg_temp.provoke(statement text)
RETURNS TABLE (state text, code text, message text, detail text, hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, code = CONSTRAINT_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;

-- Does a statement's plan hold this text?
CREATE FUNCTION pg_temp.plan_has(statement text, wanted text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || statement LOOP
        IF strpos(line, wanted) > 0 THEN RETURN true; END IF;
    END LOOP;
    RETURN false;
END $$;

-- scenario 1: thirty digits with leading zeros round-trip unchanged
SELECT s, s::text = '000000000000000000700000000042' AS unchanged, suid_ticks(s), suid_suffix(s)
FROM (VALUES ('000000000000000000700000000042'::suid)) AS v (s);
SELECT '000000000000000000000000000000'::suid AS least;

-- scenario 2: everything else is refused, with a typed error
\set VERBOSITY sqlstate
SELECT '00000000000000000070000000004'::suid;
SELECT '0000000000000000007000000000042'::suid;
SELECT '00000000000000000070000000004a'::suid;
SELECT U&'00000000000000000070000000004\0662'::suid;
SELECT U&'\0660\0661\0662\0663\0664\0665\0666\0667\0668\0669\0660\0661\0662\0663\0664'::suid;
SELECT ''::suid;
SELECT ' 00000000000000000070000000004'::suid;
SELECT '-00000000000000000070000000004'::suid;
SELECT '00000000000000000070000000004'::text::suid;
SELECT ''::varchar::suid;
\set VERBOSITY default
\x on
SELECT * FROM pg_temp.provoke($$SELECT '00000000000000000070000000004'::suid$$);
SELECT * FROM pg_temp.provoke($$SELECT '00000000000000000070000000004a'::suid$$);
SELECT * FROM pg_temp.provoke($$SELECT ''::suid$$);
SELECT * FROM pg_temp.provoke($$SELECT ''::text::suid$$);
-- long text is cut between two characters
SELECT detail, message = 'invalid SUID: "x' || repeat(U&'\00e9', 31) || '..."' AS cut
FROM pg_temp.provoke(format('SELECT %L::text::suid', 'x' || repeat(U&'\00e9', 500)));
\x off

-- scenario 3: the greatest tick, and one more
SELECT '315537897599999999999999999999'::suid, suid_timestamp('315537897599999999999999999999');
\set VERBOSITY sqlstate
SELECT '315537897600000000000000000000'::suid;
SELECT '999999999999999999999999999999'::text::suid;
SELECT suid_from_position(3155378975999999999), suid_from_position(3155378975999999999)::text;
SELECT suid_from_position(3155378976000000000);
SELECT suid_from_position(9223372036854775807);
SELECT suid_from_position(-1);
SELECT suid_from_position(0), suid_from_position(7);
\set VERBOSITY default
\x on
SELECT * FROM pg_temp.provoke($$SELECT '315537897600000000000000000000'::suid$$);
SELECT * FROM pg_temp.provoke($$SELECT suid_from_position(-1)$$);
\x off

-- scenario 4: timestamps
SELECT suid_from_timestamp('epoch'), suid_ticks(suid_from_timestamp('epoch'));
SELECT suid_from_timestamp('2026-02-03 04:05:06.789012+00', 7) AS s,
       suid_timestamp(suid_from_timestamp('2026-02-03 04:05:06.789012+00', 7)) AS back;
SELECT suid_from_timestamp(moment => '2026-02-03 06:05:06.789012+02', suffix => 99999999999);
SELECT moment, suid_from_timestamp(moment), suid_timestamp(suid_from_timestamp(moment)) = moment AS same
FROM (VALUES (timestamptz '0001-01-01 00:00:00+00'),
             ('0001-01-01 00:00:00.000001+00'),
             ('1999-12-31 23:59:59.999999+00'),
             ('2000-01-01 00:00:00+00'),
             ('9999-12-31 23:59:59.999999+00')) AS v (moment);
-- below a microsecond is cut
SELECT suid_timestamp('000000000000000000900000000000'), suid_timestamp('000000000000000001000000000000');
SELECT suid_from_timestamp(NULL), suid_from_timestamp('epoch', NULL), suid_from_position(NULL),
       suid_timestamp(NULL), suid_ticks(NULL), suid_suffix(NULL);
\set VERBOSITY sqlstate
SELECT suid_from_timestamp('0001-12-31 23:59:59.999999+00 BC');
SELECT suid_from_timestamp('4000-01-01 00:00:00+00 BC');
SELECT suid_from_timestamp('10000-01-01 00:00:00+00');
SELECT suid_from_timestamp('294276-12-31 23:59:59.999999+00');
SELECT suid_from_timestamp('infinity');
SELECT suid_from_timestamp('-infinity');
SELECT suid_from_timestamp('epoch', -1);
SELECT suid_from_timestamp('epoch', 100000000000);
\set VERBOSITY default
\x on
SELECT * FROM pg_temp.provoke($$SELECT suid_from_timestamp('infinity')$$);
SELECT * FROM pg_temp.provoke($$SELECT suid_from_timestamp('epoch', 100000000000)$$);
\x off

-- generate_suid: the clock, not the transaction's start; no two alike
SELECT suid_timestamp(s) BETWEEN statement_timestamp() AND clock_timestamp() AS now,
       suid_suffix(s) BETWEEN 0 AND 2147483647 AS bits
FROM generate_suid() AS s;
SELECT count(DISTINCT generate_suid()) FROM generate_series(1, 10000);

-- scenario 5: order is byte order and (ticks, suffix) order, under any collation
SELECT typlen, typbyval, typalign, typstorage, typcollation
FROM pg_type WHERE oid = 'suid'::regtype;
\set VERBOSITY sqlstate
SELECT '000000000000000000700000000042'::suid COLLATE "C";
\set VERBOSITY default
SELECT a.s < b.s AS lt, a.s <= b.s AS le, a.s = b.s AS eq, a.s >= b.s AS ge, a.s > b.s AS gt, a.s <> b.s AS ne,
       sign(suid_cmp(a.s, b.s)) AS cmp
FROM (VALUES (1, '000000000000000000100000000009'::suid),
             (2, '000000000000000000200000000001'),
             (3, '000000000000000000200000000001'),
             (4, '000000000000000025600000000000')) AS a (n, s)
JOIN (VALUES (2, '000000000000000000200000000001'::suid)) AS b (n, s) ON true
ORDER BY a.n;

CREATE TABLE events (n int, s suid NOT NULL, few suid NOT NULL);
INSERT INTO events
SELECT g,
       (lpad(((g * 7919::bigint % 100003) * 31553789759::bigint)::text, 19, '0') || lpad((g * 104729::bigint % 1009)::text, 11, '0'))::suid,
       (lpad((g % 3)::text, 19, '0') || lpad((g * 7919::bigint % 100003)::text, 11, '0'))::suid
FROM generate_series(1, 100000) AS g;
SET max_parallel_workers_per_gather = 0;
-- abbreviated keys that tell everything apart, and such that tell nothing apart
SELECT count(*) FILTER (WHERE a IS DISTINCT FROM b) AS s, count(*) FILTER (WHERE c IS DISTINCT FROM d) AS few
FROM (SELECT row_number() OVER (ORDER BY s, n) AS a,
             row_number() OVER (ORDER BY s::text COLLATE "C", n) AS b,
             row_number() OVER (ORDER BY few DESC, n) AS c,
             row_number() OVER (ORDER BY few::text COLLATE "C" DESC, n) AS d
      FROM events) AS r;
SELECT count(*) FILTER (WHERE a IS DISTINCT FROM b) AS ticks_and_suffix
FROM (SELECT row_number() OVER (ORDER BY few) AS a,
             row_number() OVER (ORDER BY suid_ticks(few), suid_suffix(few)) AS b FROM events) AS r;
SET work_mem = '64kB';      -- the same on disk
SELECT count(*) FILTER (WHERE a IS DISTINCT FROM b) AS s
FROM (SELECT row_number() OVER (ORDER BY s, n) AS a,
             row_number() OVER (ORDER BY s::text COLLATE "C", n) AS b FROM events) AS r;
RESET work_mem;

-- Index use
CREATE UNIQUE INDEX events_s ON events (s);
CREATE INDEX events_few ON events (few);
VACUUM ANALYZE events;
SELECT pg_temp.plan_has($$SELECT s FROM events WHERE s = '000000000000000000000000000000'$$, 'Index Only Scan using events_s') AS equal,
       pg_temp.plan_has($$SELECT s FROM events WHERE s > '000315000000000000000000000000'$$, 'Index Only Scan using events_s') AS range,
       pg_temp.plan_has($$SELECT s FROM events WHERE s >= suid_above(NULL) ORDER BY s LIMIT 5$$, 'Index Only Scan using events_s') AS ordered,
       pg_temp.plan_has($$SELECT s FROM events WHERE s = '000000000000000000000000000000'::text$$, 'Index Only Scan using events_s') AS text_parameter,
       pg_temp.plan_has($$SELECT max(s) FROM events$$, 'Index Only Scan Backward using events_s') AS max;
SELECT n, s, few FROM events WHERE s = (SELECT s FROM events WHERE n = 4711);
SELECT count(*) FROM events WHERE s > (SELECT s FROM events WHERE n = 4711);
SELECT count(*) FROM events WHERE s::text COLLATE "C" > (SELECT s::text FROM events WHERE n = 4711);
\set VERBOSITY sqlstate
INSERT INTO events SELECT 0, s, few FROM events WHERE n = 1;
\set VERBOSITY default

-- Hashing: join (one that no version eliminates), aggregation, index, partitions; the extended hash agrees with seed 0
SET enable_mergejoin = off;
SET enable_nestloop = off;
SET enable_sort = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT pg_temp.plan_has($$SELECT * FROM events AS a JOIN (SELECT s FROM events OFFSET 0) AS b ON a.s = b.s$$, 'Hash Join') AS hash_join,
       pg_temp.plan_has($$SELECT DISTINCT few FROM events$$, 'HashAggregate') AS hash_aggregate;
SELECT count(*) FROM events AS a JOIN (SELECT s FROM events OFFSET 0) AS b ON a.s = b.s;
SELECT count(*) FROM (SELECT DISTINCT few FROM events) AS d;
RESET enable_mergejoin;
RESET enable_nestloop;
RESET enable_sort;
RESET enable_indexscan;
RESET enable_indexonlyscan;
SELECT count(*) FILTER (WHERE suid_hash(s)::bit(32) <> suid_hash_extended(s, 0)::bit(32)) AS differ,
       count(*) FILTER (WHERE suid_hash_extended(s, 0) = suid_hash_extended(s, 1)) AS same_with_seed
FROM events;
CREATE INDEX events_hash ON events USING hash (few);
DROP INDEX events_few;
SELECT pg_temp.plan_has(format('SELECT n FROM events WHERE few = %L', few), 'events_hash') AS hash_index FROM events WHERE n = 42;
SELECT n FROM events WHERE few = (SELECT few FROM events WHERE n = 42);
CREATE TABLE parts (s suid PRIMARY KEY) PARTITION BY HASH (s);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parts SELECT s FROM events WHERE n <= 1000;
SELECT count(DISTINCT tableoid), count(*) FROM parts;

-- Aggregates, also in parallel, of nothing and of NULLs
SELECT min(s), max(s), min(few), max(few) FROM events;
SELECT min(s), max(s) FROM events WHERE n < 0;
SELECT max(s) FROM (VALUES (NULL::suid), ('000000000000000000100000000001'), (NULL)) AS v (s);
SELECT min(s ORDER BY n) = min(s::text COLLATE "C")::suid AS same FROM events;
BEGIN;
SET LOCAL max_parallel_workers_per_gather = 2;
SET LOCAL parallel_setup_cost = 0;
SET LOCAL parallel_tuple_cost = 0;
SET LOCAL min_parallel_table_scan_size = 0;
SELECT pg_temp.plan_has('SELECT min(few), max(few) FROM events', 'Partial Aggregate') AS parallel;
SELECT min(few), max(few) FROM events;
COMMIT;

-- Every operator function is leakproof; a policy's table keeps using the index
SELECT count(*) AS operators, bool_and(p.proleakproof) AS leakproof, bool_and(o.oprcom <> 0 AND o.oprnegate <> 0) AS linked,
       bool_and(o.oprrest <> 0 AND o.oprjoin <> 0) AS estimated
FROM pg_operator AS o JOIN pg_proc AS p ON p.oid = o.oprcode
WHERE o.oprleft = 'suid'::regtype AND o.oprright = 'suid'::regtype;
SELECT opcname, opcdefault, amvalidate(oid) AS valid
FROM pg_opclass WHERE opcintype = 'suid'::regtype ORDER BY opcname;

-- Casts: implicit from text and varchar, on assignment to text; strings among themselves stay strings
SELECT castsource::regtype, casttarget::regtype, castcontext
FROM pg_cast WHERE 'suid'::regtype IN (castsource, casttarget) ORDER BY 1, 2;
SELECT suid_ticks('000000000000000000700000000042'::text), suid_ticks('000000000000000000700000000042'::varchar);
PREPARE typed(text, varchar) AS SELECT suid_suffix($1), suid_suffix($2), $1 = $2 AS strings;
EXECUTE typed('000000000000000000700000000042', '000000000000000000700000000043');
SELECT 'b'::varchar < 'c'::varchar AS lt, 'a'::text = 'a'::varchar AS eq, max(v) FROM (VALUES ('x'::varchar), ('y')) AS t (v);
CREATE TABLE texts (t text, v varchar);
INSERT INTO texts SELECT s, s FROM events WHERE n = 42;
SELECT t, t = v AS same FROM texts;

-- Binary form: two big-endian halves; COPY both ways
SELECT suid_send('000000000000000000100000000002'), suid_send('315537897599999999999999999999');
CREATE TABLE copied (s suid);
\copy (SELECT s FROM events ORDER BY n) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
SELECT count(*), count(*) FILTER (WHERE e.s IS NULL) AS foreign_ones FROM copied AS c LEFT JOIN events AS e USING (s);
SELECT (SELECT sum(hashtextextended(s::text, 0)) FROM copied) = (SELECT sum(hashtextextended(s::text, 0)) FROM events) AS same;
-- 16 bytes from a client that did not check
TRUNCATE copied;
\set VERBOSITY sqlstate
\copy (SELECT decode('2bca2875f4373fff000000174876e7ff', 'hex')) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
\copy (SELECT decode('2bca2875f43740000000000000000000', 'hex')) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
\copy (SELECT decode('0000000000000001000000174876e800', 'hex')) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
\copy (SELECT decode('ffffffffffffffffffffffffffffffff', 'hex')) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
\copy (SELECT decode('000000000000000100000000000000', 'hex')) TO 'results/suid.data' (FORMAT binary)
\copy copied FROM 'results/suid.data' (FORMAT binary)
\set VERBOSITY default
SELECT s FROM copied;

-- Bounds: just above a head, and below everything that follows it
SELECT suid_above(NULL), suid_above('000000000000000000700000000042');
SELECT suid_above(h) > h AS above, suid_above(h) < next AS below
FROM (VALUES ('000000000000000000799999999999'::suid, '000000000000000000800000000000'::suid),
             ('000000000000000000700000000042', '000000000000000000700000000044')) AS v (h, next);
-- one without a text form prints as the greatest suffix; its suffix is refused
SELECT suid_above('000000000000000000799999999999');
\set VERBOSITY sqlstate
SELECT suid_suffix(suid_above('000000000000000000799999999999'));
\set VERBOSITY default

-- Everything carries a comment
SELECT pg_describe_object(d.classid, d.objid, 0) AS uncommented
FROM pg_depend AS d
WHERE d.refclassid = 'pg_extension'::regclass
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'unsafemv')
  AND d.deptype = 'e'
  AND pg_describe_object(d.classid, d.objid, 0) ~ 'suid'
  AND (d.classid <> 'pg_type'::regclass OR EXISTS (SELECT 1 FROM pg_type AS t WHERE t.oid = d.objid AND t.typcategory <> 'A'))
  AND (d.classid <> 'pg_proc'::regclass OR EXISTS (SELECT 1 FROM pg_proc AS p WHERE p.oid = d.objid AND p.proname ~ 'suid|^(min|max)$'))
  AND obj_description(d.objid, d.classid::regclass::name) IS NULL
ORDER BY 1;

-- The error catalogue
SELECT code, sqlstate, retryable, meaning FROM errors WHERE sqlstate >= 'UM401' ORDER BY sqlstate;
SELECT count(*) > 40 AS many, count(*) = count(DISTINCT code) AS codes_differ,
       count(*) = count(DISTINCT sqlstate) AS sqlstates_differ, bool_and(sqlstate ~ '^UM[0-9]{3}$') AS class
FROM errors;

DROP TABLE events, parts, texts, copied;
