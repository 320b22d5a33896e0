#!/usr/bin/env python3
"""The demo: one event per commit, one row per file of the repository.

replay.py EVENTS DIRECTORY SEED

EVENTS is either what `git log --reverse -z --raw --numstat --format='%x01%H %at'` prints, or one JSON object a line
(gzipped or not): {"commit", "authorTime", "changes": [{"status", "path", "oldPath"?, "added"?, "deleted"?}]}.

An event's place in the total order is its author time, made unique by its place in the stream. Commits do not arrive
in that order: branches are merged, patches wait for review. On top of that a tenth of the events is moved and a tenth
delivered twice. Plans do not look at the view, so only the order in which they are folded decides:

  added, copied   upsert the path             deleted   delete the path
  modified        patch the path (create)     renamed   delete the old path, upsert the new one

Every delivery appends to the event store and applies to the view in one transaction. In between, the safe lane folds
what is older than every event still to come: that is the safe window, which the demo can know, as it knows the stream.

The proof: the same plans folded here, in plain Python, in SUID order, must give the very rows the view shows; at the
snapshots on the way for the events delivered so far, at the end for all, in both lanes.
"""
import bisect
import gzip
import hashlib
import json
import random
import subprocess
import sys

UNIX_EPOCH_TICKS = 621355968000000000       # 100 ns since 0001-01-01
KEY_BYTES = 1024                            # the longest row key
KEPT_EVENTS = 256                           # patches of one key that the unsafe lane keeps apart
SNAPSHOTS = 3
SAFE_BATCH = 500


# -- the stream -------------------------------------------------------------------------------------------------------
def from_git(data):
    """Commits of `git log -z`: a header, then raw entries, then numstat entries, each NUL-terminated."""
    commits = []
    for chunk in data.decode("utf-8", "backslashreplace").split("\x01")[1:]:
        fields = chunk.split("\0")
        commit, author_time = fields[0].split()
        changes, counts, i = [], {}, 1
        while i < len(fields):
            field = fields[i].lstrip("\n")
            i += 1
            if field.startswith(":"):
                change = {"status": field.split(" ")[4][0]}
                if change["status"] in "RC":
                    change["oldPath"] = fields[i]
                    i += 1
                change["path"] = fields[i]
                i += 1
                changes.append(change)
            elif field.count("\t") >= 2:
                added, deleted, path = field.split("\t", 2)
                if not path:                                    # a rename: both names follow
                    path = fields[i + 1]
                    i += 2
                if added != "-":                                # "-": a binary file
                    counts[path] = (int(added), int(deleted))
        for change in changes:
            change["added"], change["deleted"] = counts.get(change["path"], (0, 0))
        commits.append({"commit": commit, "authorTime": int(author_time), "changes": changes})
    return commits


def read_events(name):
    with open(name, "rb") as f:
        data = f.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data[:1] == b"\x01":
        return from_git(data)
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def row_key(path):
    """The path; of one too long, its beginning and a digest."""
    raw = path.encode()
    if len(raw) <= KEY_BYTES:
        return path
    return raw[:KEY_BYTES - 70].decode(errors="ignore") + "~" + hashlib.sha256(raw).hexdigest()


def plan_of(commit):
    """One commit's mutation plan. Several changes of one path need no care: deletes come before upserts before
    patches, and a patch that may create is fine beside a delete."""
    deletes, upserts, patches = {}, {}, []
    short = commit["commit"][:10]
    for change in commit["changes"]:
        status, key = change["status"][0], row_key(change["path"])
        added, deleted = change.get("added") or 0, change.get("deleted") or 0
        if status == "D":
            deletes[key] = True
        elif status in "ACR":
            if status == "R":
                deletes[row_key(change["oldPath"])] = True
            upserts[key] = {"path": change["path"], "commit": short, "added": added, "deleted": deleted, "changes": 1,
                            "status": {"A": "added", "C": "copied", "R": "renamed"}[status]}
            if status in "CR":
                upserts[key]["from"] = change["oldPath"]
        else:
            patches.append({"kind": "json_patch", "rowKey": key, "create": True,
                            "patch": {"path": change["path"], "status": "modified", "commit": short}})
            patches.append({"kind": "add", "rowKey": key, "create": True,
                            "patch": {"added": added, "deleted": deleted, "changes": 1}})
    plan = {"rowDeletes": [{"rowKey": k} for k in deletes],
            "rowUpserts": [{"rowKey": k, "value": v} for k, v in upserts.items()],
            "rowPatches": patches}
    return {name: items for name, items in plan.items() if items}


def suid_of(position, commit):
    return f"{UNIX_EPOCH_TICKS + max(commit['authorTime'], 0) * 10**7:019d}{position:011d}"


# -- the oracle -------------------------------------------------------------------------------------------------------
def replay(events):
    """The ordered fold: {row key: (value, SUID)}."""
    rows = {}
    for event in sorted(events, key=lambda e: e["suid"]):
        plan, suid = event["plan"], event["suid"]
        for item in plan.get("rowDeletes", []):
            rows.pop(item["rowKey"], None)
        for item in plan.get("rowUpserts", []):
            rows[item["rowKey"]] = (item["value"], suid)
        for item in plan.get("rowPatches", []):
            value = dict(rows.get(item["rowKey"], ({}, None))[0])
            for name, operand in item["patch"].items():
                value[name] = value.get(name, 0) + operand if item["kind"] == "add" else operand
            rows[item["rowKey"]] = (value, suid)
    return rows


# -- the delivery -----------------------------------------------------------------------------------------------------
def schedule(count, rnd):
    """Stream positions in the order of delivery: a tenth moved, a tenth delivered once more."""
    tenth, reach = -(-count // 10), max(2, min(count // 4, 200))
    place = {n: float(n) for n in range(count)}
    for n in rnd.sample(range(count), tenth):
        place[n] += rnd.uniform(-reach, reach)
    again = [(place[n] + rnd.uniform(0, reach), n) for n in rnd.sample(range(count), tenth)]
    return [n for _, n in sorted([(p, n) for n, p in place.items()] + again)], tenth


def out_of_place(events, deliveries):
    """How many first deliveries would have to move for all to be in order: those outside the longest rising run."""
    tails = []
    for position in dict.fromkeys(deliveries):
        suid = events[position]["suid"]
        at = bisect.bisect_left(tails, suid)
        tails[at:at + 1] = [suid]
    return len(events) - len(tails)


class Script:
    """Writes the psql script and keeps what must hold at each snapshot."""

    def __init__(self, events, deliveries, directory):
        self.events, self.deliveries, self.directory = events, deliveries, directory
        self.lines, self.snapshots = [], []
        self.head, self.folded, self.max_behind = None, 0, 0        # max_behind: most events that ever waited
        self.order = sorted(events, key=lambda e: e["suid"])
        self.arrived = set()
        self.kept, self.capped = {}, set()

    def add(self, text):
        self.lines.append(text)

    def run(self):
        self.add(SETUP % {"stream": f"{self.directory}/stream"})
        batches = len(self.events) >= 200
        block = max(1, min(100, len(self.events) // 10))
        cuts = {len(self.deliveries) * i // SNAPSHOTS for i in range(1, SNAPSHOTS + 1)} - {0}
        at = 0
        while at < len(self.deliveries):
            end = min([at + block] + [c for c in cuts if c > at])
            self.deliver(at, end, batches and at // block % 2 == 1)
            at = end
            if at in cuts:
                self.snapshot(f"{at:,} of {len(self.deliveries):,} deliveries")
            self.fold()
        self.snapshot("Caught up")
        self.add(FINISH % {"directory": self.directory})
        return "\n".join(self.lines) + "\n"

    def deliver(self, start, end, as_batch):
        """One transaction a delivery, or one for the whole block: append to the store, apply to the view."""
        for n in range(start, end):
            event = self.events[self.deliveries[n]]
            if event["position"] not in self.arrived:
                self.arrived.add(event["position"])
                for key in touched(event["plan"]):
                    self.kept.setdefault(key, set()).add(event["suid"])
                    if len(self.kept[key]) > KEPT_EVENTS:
                        self.capped.add(key)
        if as_batch:
            self.add(f"BEGIN; EXECUTE append({start}, {end}); EXECUTE apply_batch({start}, {end}); COMMIT;")
        else:
            for n in range(start, end):
                self.add(f"BEGIN; EXECUTE append({n}, {n + 1}); EXECUTE apply({n}); COMMIT;")

    def fold(self):
        """The safe lane, up to the oldest event that has not arrived."""
        ready = self.folded
        while ready < len(self.order) and self.order[ready]["position"] in self.arrived:
            ready += 1
        self.max_behind = max(self.max_behind, len(self.arrived) - ready)
        while self.folded < ready:
            upto = min(ready, self.folded + SAFE_BATCH)
            last = self.order[upto - 1]["suid"]
            head = f"'{self.head}'" if self.head else "NULL"
            self.add(f"EXECUTE fold({head}, '{last}');")
            for event in self.order[self.folded:upto]:
                for key in touched(event["plan"]):
                    self.kept[key].discard(event["suid"])
            self.head, self.folded = last, upto

    def snapshot(self, title):
        # What the unsafe lane had to fold together early, it may show out of order until the safe lane is there.
        exempt = set() if self.folded == len(self.order) else set(self.capped)
        name = f"{self.directory}/{len(self.snapshots)}.composed"
        self.snapshots.append((title, name, replay([self.events[p] for p in self.arrived]), exempt))
        self.add(SNAPSHOT % {"name": name, "title": f"{title}: {len(self.arrived):,} events have arrived, "
                                                    f"the safe lane has folded {self.folded:,}"})


def touched(plan):
    return {item["rowKey"] for items in plan.values() for item in items}


SETUP = r"""
\set ON_ERROR_STOP on
\set QUIET on
\pset footer off
\pset null '-'
SET client_min_messages = warning;
CREATE EXTENSION unsafemv;
SET search_path = public, unsafemv;    -- for the operators of suid
CREATE SCHEMA demo;
CREATE TABLE demo.stream (position bigint PRIMARY KEY, event_id text, suid unsafemv.suid, author_time bigint, plan jsonb);
CREATE TABLE demo.deliveries (n bigint PRIMARY KEY, position bigint);
CREATE TABLE demo.event_store (event_id text PRIMARY KEY, suid unsafemv.suid UNIQUE, plan jsonb);
CREATE TABLE demo.outcomes (outcome text, duplicate boolean);
\copy demo.stream FROM '%(stream)s.events'
\copy demo.deliveries FROM '%(stream)s.deliveries'
ANALYZE demo.stream, demo.deliveries;
DO $$ BEGIN
	IF EXISTS (SELECT FROM demo.stream
			WHERE suid <> unsafemv.suid_from_timestamp(to_timestamp(author_time), position)) THEN
		RAISE 'a SUID is not its author time';
	END IF;
END $$;
SELECT FROM unsafemv.create_view('demo', 'files', indexes => '[{"id":"status","type":"text","path":"status"}]') \g /dev/null
PREPARE append(bigint, bigint) AS
	INSERT INTO demo.event_store SELECT s.event_id, s.suid, s.plan
	FROM demo.deliveries d JOIN demo.stream s USING (position) WHERE d.n >= $1 AND d.n < $2 ORDER BY d.n
	ON CONFLICT (event_id) DO NOTHING;
PREPARE apply(bigint) AS
	INSERT INTO demo.outcomes SELECT a.outcome, a.duplicate
	FROM demo.deliveries d JOIN demo.stream s USING (position),
		LATERAL unsafemv.apply('demo', 'files', s.event_id, s.suid, s.plan) a WHERE d.n = $1;
PREPARE apply_batch(bigint, bigint) AS
	INSERT INTO demo.outcomes SELECT a.outcome, a.duplicate FROM unsafemv.apply_batch('demo', 'files', (
		SELECT jsonb_agg(jsonb_build_object('eventId', s.event_id, 'suid', s.suid::text, 'mutations', s.plan) ORDER BY d.n)
		FROM demo.deliveries d JOIN demo.stream s USING (position) WHERE d.n >= $1 AND d.n < $2)) a;
CREATE TABLE demo.folds (last_suid text);
PREPARE fold(unsafemv.suid, unsafemv.suid) AS
	INSERT INTO demo.folds SELECT a.last_suid FROM unsafemv.apply_safe_batch('demo', 'files', $1, (
		SELECT jsonb_agg(jsonb_build_object('eventId', event_id, 'suid', suid::text, 'mutations', plan) ORDER BY suid)
		FROM demo.event_store WHERE ($1 IS NULL OR suid > $1) AND suid <= $2)) a;
"""

ROWS = ("SELECT row_key, value::text, source_suid, unsafe, total_count FROM "
        "unsafemv.query_composed_page('demo', 'files', NULL%s)")

SNAPSHOT = r"""
\echo '%(title)s'
SELECT CASE WHEN length(row_key) > 40 THEN '...' || right(row_key, 37) ELSE row_key END AS "newest files",
	value ->> 'status' AS status, value ->> 'changes' AS changes,
	to_char(unsafemv.suid_timestamp(source_suid::unsafemv.suid) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS "author time",
	unsafe, total_count AS "of"
	FROM unsafemv.query_composed_page('demo', 'files', 5, descending => true);
\copy (""" + ROWS % "" + r""") TO '%(name)s'
"""

FINISH = r"""
SELECT outcome, duplicate, count(*) AS deliveries FROM demo.outcomes GROUP BY 1, 2 ORDER BY 2, 3 DESC;
\copy (""" + ROWS % ", consistency => 'safe'" + r""") TO '%(directory)s/safe'
\copy (SELECT c::text FROM unsafemv.check() c) TO '%(directory)s/check'
\copy (SELECT count(*) FROM demo.outcomes) TO '%(directory)s/deliveries'
"""


# -- the proof --------------------------------------------------------------------------------------------------------
def copied(name):
    """Rows of a COPY text file."""
    escapes = {"\\\\": "\\", "\\t": "\t", "\\n": "\n", "\\r": "\r", "\\b": "\b", "\\f": "\f", "\\v": "\v"}
    with open(name, encoding="utf-8", newline="\n") as f:
        for line in f:
            yield [unescape(field, escapes) for field in line.rstrip("\n").split("\t")]


def unescape(field, escapes):
    out, i = [], 0
    while i < len(field):
        step = 2 if field[i] == "\\" else 1
        out.append(escapes.get(field[i:i + step], field[i:i + step]))
        i += step
    return "".join(out)


def escape(text):
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def differences(name, expected, exempt=frozenset(), safe=False):
    """What the view showed against what the replay gives: row by row, the value and the SUID it comes from."""
    found, total, last = {}, None, ("", "")
    out = []
    for key, value, suid, unsafe, total in copied(name):
        if (suid, key.encode()) <= (last[0], last[1].encode()):
            out.append(f"out of order: {key}")
        last = (suid, key)
        found[key] = (json.loads(value), suid)
        if safe and unsafe != "f":
            out.append(f"still tentative: {key}")
    if exempt:
        expected = {k: v for k, v in expected.items() if k not in exempt}
        found = {k: v for k, v in found.items() if k not in exempt}
    elif total is not None and int(total) != len(found):
        out.append(f"total_count says {total}, there are {len(found)} rows")
    for key in sorted(expected.keys() | found.keys()):
        if expected.get(key) != found.get(key):
            out.append(f"{key}\n    replay {expected.get(key)}\n    view   {found.get(key)}")
    return out


def main():
    source, directory, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    commits = read_events(source)
    if not commits:
        sys.exit("demo: the stream is empty")
    events = [{"position": n, "event_id": c["commit"], "suid": suid_of(n, c), "time": max(c["authorTime"], 0),
               "plan": plan_of(c)} for n, c in enumerate(commits)]
    deliveries, tenth = schedule(len(events), random.Random(seed))
    with open(f"{directory}/stream.events", "w", encoding="utf-8", newline="\n") as f:
        for e in events:
            fields = [str(e["position"]), e["event_id"], e["suid"], str(e["time"]), json.dumps(e["plan"], ensure_ascii=False)]
            f.write("\t".join(map(escape, fields)) + "\n")
    with open(f"{directory}/stream.deliveries", "w", encoding="utf-8") as f:
        f.writelines(f"{n}\t{p}\n" for n, p in enumerate(deliveries))

    script = Script(events, deliveries, directory)
    text = script.run()
    print(f"{len(events):,} commits, {sum(len(c['changes']) for c in commits):,} changes of files; seed {seed}: "
          f"{tenth:,} events moved, {tenth:,} delivered twice.")
    print(f"{out_of_place(events, deliveries):,} events arrive out of order; the safe window holds back up to "
          f"{script.max_behind:,} events so that none is late.", flush=True)
    if subprocess.run(["psql", "-X", "-q", "-f", "-"], input=text.encode(), check=False).returncode != 0:
        sys.exit("demo: FAILED, see above")

    wrong = 0
    print("Proof, row by row against an ordered replay outside the database (value, source_suid, order, total):")
    parts = [(*snapshot, False) for snapshot in script.snapshots]
    parts.append(("Caught up, safe rows only", f"{directory}/safe", script.snapshots[-1][2], frozenset(), True))
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
    counted = int(next(copied(f"{directory}/deliveries"))[0])
    if counted != len(deliveries) or script.folded != len(events):
        wrong += 1
        print(f"  {counted} outcomes of {len(deliveries)} deliveries, {script.folded} of {len(events)} events folded")
    if wrong:
        sys.exit("NOT PROVED")
    print("PROVED")


if __name__ == "__main__":
    main()
