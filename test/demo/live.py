#!/usr/bin/env python3
"""The live demo: inserts into an event table, and nothing else.

live.py EVENTS DIRECTORY

The stream is the one of replay.py, whose oracle and proof this uses too. The events are inserted in the order of the
stream, some at a time; their place in the total order is their author time, so they arrive out of order. The trigger
deliver() applies them in the transaction that inserts them; a worker folds them once they are older than the safe
window. Plans are made in the database, by a function of the event.

An event that arrives behind the head would close the view. So the window is longer than the insertion takes; the demo
measures that and fails if it is not so. It also means that the worker has folded nothing when the last event has just
been inserted: the page is then right by the tentative rows alone.
"""
import json
import subprocess
import sys

sys.dont_write_bytecode = True
from replay import KEPT_EVENTS, copied, differences, escape, out_of_place, plan_of, read_events, replay, suid_of, touched  # noqa: E402
from replay import ROWS, SNAPSHOT  # noqa: E402

BATCHES = 20
PAUSE = 0.05                                # seconds between two batches
PATIENCE = 90                               # seconds until the worker must be done

SETUP = r"""
\set ON_ERROR_STOP on
\set QUIET on
\pset footer off
\pset null '-'
SET client_min_messages = warning;
CREATE EXTENSION unsafemv;
SET search_path = public, unsafemv;    -- for the operators of suid
CREATE ROLE demo LOGIN;                -- a superuser cannot attach
GRANT USAGE ON SCHEMA unsafemv TO demo;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA unsafemv TO demo;
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA unsafemv TO demo;
CREATE SCHEMA demo AUTHORIZATION demo;
SET ROLE demo;
CREATE TABLE demo.stream (position bigint PRIMARY KEY, event_id text, suid unsafemv.suid, event jsonb);
\copy demo.stream FROM '%(directory)s/stream.events'
ANALYZE demo.stream;

CREATE TABLE demo.events (service_id text DEFAULT 'demo', event_id text PRIMARY KEY, suid unsafemv.suid NOT NULL,
	event jsonb NOT NULL, arrived_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE UNIQUE INDEX ON demo.events (service_id, suid);
CREATE INDEX ON demo.events (service_id, arrived_at);

-- the path; of one too long, its beginning and a digest
CREATE FUNCTION demo.row_key(path text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN octet_length(path) <= 1024 THEN path
		ELSE (SELECT left(path, max(n)) FROM generate_series(1, 954) n WHERE octet_length(left(path, n)) <= 954)
			|| '~' || encode(sha256(convert_to(path, 'UTF8')), 'hex') END
$$;
CREATE FUNCTION demo.plan(event jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
	WITH change AS (
		SELECT n, demo.row_key(c ->> 'path') AS key, demo.row_key(c ->> 'oldPath') AS old_key, left(c ->> 'status', 1) AS status,
			c ->> 'path' AS path, c ->> 'oldPath' AS old_path, left(event ->> 'commit', 10) AS short,
			coalesce((c ->> 'added')::bigint, 0) AS added, coalesce((c ->> 'deleted')::bigint, 0) AS deleted
		FROM jsonb_array_elements(event -> 'changes') WITH ORDINALITY x (c, n)
	), upsert AS (
		SELECT DISTINCT ON (key) key, jsonb_build_object('path', path, 'commit', short, 'added', added, 'deleted', deleted,
			'changes', 1, 'status', CASE status WHEN 'A' THEN 'added' WHEN 'C' THEN 'copied' ELSE 'renamed' END,
			'from', CASE WHEN status <> 'A' THEN old_path END) AS value
		FROM change WHERE status IN ('A', 'C', 'R') ORDER BY key, n DESC
	), patch AS (
		SELECT n, kind, jsonb_build_object('kind', kind, 'rowKey', key, 'create', true, 'patch', patch) AS item
		FROM change, LATERAL (VALUES
			('json_patch', jsonb_build_object('path', path, 'status', 'modified', 'commit', short)),
			('add', jsonb_build_object('added', added, 'deleted', deleted, 'changes', 1))) AS p (kind, patch)
		WHERE status NOT IN ('A', 'C', 'R', 'D')
	)
	SELECT jsonb_strip_nulls(jsonb_build_object(
		'rowDeletes', (SELECT jsonb_agg(DISTINCT jsonb_build_object('rowKey', CASE status WHEN 'D' THEN key ELSE old_key END))
			FROM change WHERE status IN ('D', 'R')),
		'rowUpserts', (SELECT jsonb_agg(jsonb_build_object('rowKey', key, 'value', value)) FROM upsert),
		'rowPatches', (SELECT jsonb_agg(item ORDER BY n, kind DESC) FROM patch)))
$$;

SELECT FROM unsafemv.create_view('demo', 'files', indexes => '[{"id":"status","type":"text","path":"status"}]') \g /dev/null
SELECT FROM unsafemv.attach_projection('demo', 'files', 'demo.events', 'demo.plan') \g /dev/null
SELECT FROM unsafemv.alter_view('demo', 'files', window_floor => '%(window)s s') \g /dev/null
CREATE TRIGGER deliver AFTER INSERT ON demo.events REFERENCING NEW TABLE AS inserted
	FOR EACH STATEMENT EXECUTE FUNCTION unsafemv.deliver();
SELECT FROM unsafemv.start_worker() \g /dev/null
PREPARE insert(bigint, bigint) AS
	INSERT INTO demo.events (event_id, suid, event)
	SELECT event_id, suid, event FROM demo.stream WHERE position >= $1 AND position < $2 ORDER BY position;
CREATE VIEW demo.lag AS SELECT extract(epoch FROM max(arrived_at) - min(arrived_at)) AS seconds FROM demo.events;
"""

# Each poll is a transaction of its own: an old one would hold the worker's horizon back.
SETTLE = r"""
DO $$
DECLARE
	until timestamptz := clock_timestamp() + interval '%(patience)s s';
BEGIN
	LOOP
		COMMIT;
		EXIT WHEN clock_timestamp() > until OR EXISTS (SELECT FROM unsafemv.status s WHERE s.service_id = 'demo'
			AND s.unsettled = 0 AND s.tentative_rows = 0 AND s.head = (SELECT max(e.suid::text) FROM demo.events e));
		PERFORM pg_sleep(0.1);
	END LOOP;
END $$;
\echo 'The worker has done the rest:'
SELECT gate, unsettled, tentative_rows, findings, (SELECT last_stop FROM unsafemv.projections) AS "last stop",
	round(extract(epoch FROM clock_timestamp() - max(arrived_at)), 1) AS "seconds since the last insert"
	FROM unsafemv.status, demo.events GROUP BY 1, 2, 3, 4;
SELECT FROM unsafemv.stop_worker() \g /dev/null
RESET ROLE;
"""

FINISH = r"""
\copy (""" + ROWS % ", consistency => 'safe'" + r""") TO '%(directory)s/safe'
\copy (SELECT c::text FROM unsafemv.check() c) TO '%(directory)s/check'
\copy (SELECT s.unsettled, s.tentative_rows, s.findings, s.gate, s.head, max(e.suid::text), count(*) FROM unsafemv.status s, demo.events e WHERE s.service_id = 'demo' GROUP BY 1, 2, 3, 4, 5) TO '%(directory)s/status'
\copy (SELECT seconds FROM demo.lag) TO '%(directory)s/lag'
"""


def main():
    source, directory = sys.argv[1:]
    commits = read_events(source)
    if not commits:
        sys.exit("demo: the stream is empty")
    events = [{"position": n, "suid": suid_of(n, c), "plan": plan_of(c)} for n, c in enumerate(commits)]
    with open(f"{directory}/stream.events", "w", encoding="utf-8", newline="\n") as f:
        for e, commit in zip(events, commits):
            fields = [str(e["position"]), commit["commit"], e["suid"], json.dumps(commit, ensure_ascii=False)]
            f.write("\t".join(map(escape, fields)) + "\n")

    changes = sum(len(c["changes"]) for c in commits)
    window = 3 + changes // 2000
    print(f"{len(events):,} commits, {changes:,} changes of files; "
          f"{out_of_place(events, range(len(events))):,} events arrive out of order.")
    print(f"They are inserted in {BATCHES} batches. The safe window is {window} s: longer than that takes, so that no event "
          "is late.", flush=True)
    text, snapshots, arrived, kept = [SETUP % {"directory": directory, "window": window}], [], 0, {}

    def snapshot(title):
        # What the unsafe lane had to fold together early, it may show out of order until the safe lane is there.
        exempt = {key for key, count in kept.items() if count > KEPT_EVENTS} if "settled" not in title else set()
        name = f"{directory}/{len(snapshots)}.composed"
        snapshots.append((title, name, replay(events[:arrived]), exempt, False))
        text.append(SNAPSHOT % {"name": name, "title": f"{title}: {arrived:,} events"})

    for batch in range(1, BATCHES + 1):
        upto = len(events) * batch // BATCHES
        text.append(f"EXECUTE insert({arrived}, {upto});")
        for event in events[arrived:upto]:
            for key in touched(event["plan"]):
                kept[key] = kept.get(key, 0) + 1
        arrived = upto
        if batch == BATCHES // 2:
            snapshot("Half inserted")
        elif batch < BATCHES:
            text.append(f"SELECT FROM pg_sleep({PAUSE}) \\g /dev/null")
    snapshot("All just inserted")
    text.append('SELECT round(seconds, 1) AS "seconds from the first insert to the last" FROM demo.lag;')
    text.append(SETTLE % {"patience": PATIENCE})
    snapshot("All settled")
    text.append(FINISH % {"directory": directory})
    if subprocess.run(["psql", "-X", "-q", "-f", "-"], input="\n".join(text).encode(), check=False).returncode != 0:
        sys.exit("demo: FAILED, see above")

    wrong = 0
    print("Proof, row by row against an ordered replay outside the database (value, source_suid, order, total):")
    parts = [*snapshots, ("All settled, safe rows only", f"{directory}/safe", snapshots[-1][2], frozenset(), True)]
    for title, name, rows, exempt, safe in parts:
        wrong_here = differences(name, rows, exempt, safe)
        wrong += len(wrong_here)
        left_out = f" ({len(exempt)} keys with more than {KEPT_EVENTS} kept patches left out)" if exempt else ""
        print(f"  {title}: " + (f"{len(wrong_here)} differences" if wrong_here else f"{len(rows):,} rows equal") + left_out)
        for line in wrong_here[:5]:
            print("    " + line)
    violations = ["\t".join(row) for row in copied(f"{directory}/check")]
    wrong += len(violations)
    print("  unsafemv.check(): " + ("no violation" if not violations else f"{len(violations)} violations"))
    for line in violations[:5]:
        print("    " + line)
    unsettled, tentative, findings, gate, head, last, count = next(copied(f"{directory}/status"))
    settled = (unsettled, tentative, findings, gate, head, count) == ("0", "0", "0", "open", last, str(len(events)))
    wrong += not settled
    print("  unsafemv.status: " + ("nothing unsettled, no finding, the head is the last event" if settled else
          f"{unsettled} unsettled, {tentative} tentative rows, {findings} findings, gate {gate}, head {head} of {last}"))
    seconds = float(next(copied(f"{directory}/lag"))[0])
    if seconds >= window:
        wrong += 1
        print(f"  The insertion took {seconds:.1f} s, longer than the safe window: this machine is too slow for it")
    if wrong:
        sys.exit("NOT PROVED")
    print("PROVED")


if __name__ == "__main__":
    main()
