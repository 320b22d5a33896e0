"""Curves beside the bars: events a call, tentative rows, an old snapshot; and the memory of a batch."""
import time

from measure import Memory, TimedQuery, wal
from server import NAMES, QUICK, ROUNDS, Database, create_views, fill_keys, report, sides_in_turn


def batches():
    """Time and WAL per event against the events a call: apply, then apply_batch."""
    database = Database("batches")
    session = database.session()
    create_views(session, "inside")
    fill_keys(session, "inside")
    session.close()
    session = database.session()
    sizes, sides = [1, 100, 1000] if QUICK else [1, 10, 100, 1000, 10000], ["unsafemv", "peer", "floor"]
    runs = [(size, side) for size in sizes for side in sides]
    times, bytes_, first = {run: [] for run in runs}, {run: [] for run in runs}, 20001
    for round_ in range(ROUNDS + 1):            # round 0 warms up
        for size in sides_in_turn(sizes, round_):
            count = max(size, 2000 if QUICK else 10000)
            session.run(f"SELECT bench.generate({first}, {count}), bench.cut({size})")
            first += count
            for side in sides_in_turn(sides, round_):
                before = wal(session)
                spent = float(session.value(f"CALL bench.{'apply' if size == 1 else 'batch'}_{side}('inside', NULL)"))
                if round_:
                    times[size, side].append(spent / count)
                    bytes_[size, side].append((wal(session) - before) / count)
    for size, side in runs:
        report.point("batches", NAMES[side], size, times[size, side])
        report.point("wal", NAMES[side], size, bytes_[size, side])
        report.add("batches", f"{'apply' if size == 1 else f'apply_batch of {size}'}, per event, {NAMES[side]}", "us", times[size, side])
        report.add("batches", f"{'apply' if size == 1 else f'apply_batch of {size}'}, WAL per event, {NAMES[side]}", "bytes", bytes_[size, side])
    session.close()
    database.drop()


def tentative():
    """A page against the number of tentative rows, half of them over safe rows."""
    database = Database("tentative")
    session = database.session()
    safe = 100000 if QUICK else 1000000
    for side in ("unsafemv", "peer"):
        session.run(f"SELECT bench.fill_{side}('v', {safe}, 10)")
    page = ("SELECT * FROM unsafemv.query_composed_page('bench', 'v', \"limit\" => 50, descending => {descending}, with_total => {total})")
    what = {"composed page, newest first": (page.format(descending="true", total="false"), 100),
            "composed page, oldest first": (page.format(descending="false", total="false"), 100),
            "composed page with total": (page.format(descending="true", total="true"), 5),
            "the reference query": ("SELECT * FROM peer.composed_page('bench', 'v', 50, 0, true)", 1)}
    counts, last = [10, 1000, 10000] if QUICK else [10, 100, 1000, 10000, 100000], 10
    for count in counts:
        for side in ("unsafemv", "peer"):
            if count > last:
                session.run(f"CALL bench.add_{side}('v', {safe}, {last + 1}, {count})")
        last = count
        session.run("VACUUM ANALYZE")
        session.close()
        session = database.session()
        timed = {name: TimedQuery(session, sql) for name, (sql, _) in what.items() if not (QUICK and name == "the reference query")}
        times = {name: [] for name in timed}
        for round_ in range(ROUNDS + 1):        # round 0 warms up
            for name in sides_in_turn(list(timed), round_):
                spent = timed[name].run(what[name][1])
                if round_:
                    times[name].append(spent)
        for name, values in times.items():
            report.point("pages-tentative", name, count, values)
            report.add("tentative", f"{name}, {safe} safe and {count} tentative rows", "us", values)
    session.close()
    database.drop()


def old_snapshot():
    """apply, in transactions of ten, while another session keeps a snapshot of before: none of the versions written since
    can go, and an apply passes those of its key. So one key is the worst case. The peer updates the same two rows for
    every event: it is stopped early."""
    keys, last = (1000, 10000) if QUICK else (20000, 200000)
    # side, snapshot held, keys: events a block, events in all
    runs = {("unsafemv", True, keys): (last // 10, last), ("unsafemv", False, keys): (last // 10, last)}
    if not QUICK:
        runs.update({("unsafemv", True, 1): (500, 5000), ("peer", True, keys): (2000, 10000)})
    rates = {run: {} for run in runs}
    for round_ in range(ROUNDS):
        for run in sides_in_turn(list(runs), round_):
            side, held, keys_ = run
            block, end = runs[run]
            database = Database("snapshot")
            session, other = database.session(), database.session()
            create_views(session, "v")
            session.run(f"SELECT bench.generate(1, {keys_}, true, {keys_})")
            session.run(f"CALL bench.batch_{side}('v', NULL)")
            if held:
                other.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            for first in range(1, end, block):
                session.run(f"SELECT bench.generate({keys_ + first}, {block}, false, {keys_})")
                spent = float(session.value(f"CALL bench.apply_{side}('v', NULL)"))
                rates[run].setdefault(first + block - 1, []).append(block / spent * 1e6)
            session.close()
            other.close()
            database.drop()
    for (side, held, keys_), blocks in rates.items():
        name = f"{NAMES[side]}, {'an old snapshot held' if held else 'no old snapshot'}"
        if keys_ > 1:
            for x, values in blocks.items():
                report.point("old-snapshot", name, x, values)
        name, start, end = f"{keys_} key{'s' * (keys_ > 1)}, {name}", min(blocks), max(blocks)
        report.add("snapshot", f"apply, events up to {start}, {name}", "per s", blocks[start])
        report.add("snapshot", f"apply, events up to {end}, {name}", "per s", blocks[end])
        report.ratio("snapshot", f"rate after {end} events over the start's, {name}", blocks[end], blocks[start],
                     ">= 0.5" if side == "unsafemv" and held and keys_ > 1 else "none" if held and not QUICK else "")


def memory():
    """The greatest memory of a backend during one batch, beside what it had before; the argument's is in it."""
    database = Database("memory")
    session = database.session()
    create_views(session, "v", "w")
    for size in [10000] if QUICK else [10000, 100000]:
        growth, kept = {"apply_batch": [], "apply_safe_batch": []}, {"apply_batch": [], "apply_safe_batch": []}
        for round_ in range(ROUNDS):
            first = 1 + (round_ + (ROUNDS if size > 10000 else 0)) * 100000
            session.run(f"SELECT bench.generate({first}, {size}, true), bench.cut({size})")
            head = "NULL" if first == 1 else session.value("SELECT last_suid::text FROM unsafemv.read_active('bench', 'w')").join("''")
            for what, sql in (("apply_batch", "SELECT count(*) FROM bench.batches b, unsafemv.apply_batch('bench', 'v', b.events)"),
                              ("apply_safe_batch", f"SELECT * FROM bench.batches b, unsafemv.apply_safe_batch('bench', 'w', {head}, b.events)")):
                fresh = database.session()      # no memory that an earlier batch has left behind
                fresh.run("SELECT count(*) FROM bench.batches b, unsafemv.apply_batch('bench', 'v', '[]')")
                with Memory(fresh.value("SELECT pg_backend_pid()")) as used:
                    fresh.run(sql)
                    fresh.run("SELECT 1")
                    time.sleep(0.05)            # after the answer the backend frees what it had
                    left = used.now()
                growth[what].append((used.most - used.before) / 2**20)
                kept[what].append((left - used.before) / 2**20)
                fresh.close()
        for what in growth:
            report.add("memory", f"{what} of {size} events, backend memory at its peak", "MB", growth[what])
            report.add("memory", f"{what} of {size} events, backend memory afterwards", "MB", kept[what])
    session.close()
    database.drop()
