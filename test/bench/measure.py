"""What every benchmark uses: figures with their spread, WAL, buffers, pgbench."""
import csv
import ctypes
import json
import os
import re
import statistics
import subprocess
import tempfile
import threading


def figure(values):
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values), "rounds": len(values)}


class Report:
    """The table: one figure a line, with its bar where there is one."""

    def __init__(self):
        self.lines, self.points = [], []

    def add(self, number, what, unit, values, bar=""):
        self.lines.append({"number": number, "what": what, "unit": unit, "bar": bar, **figure(values)})

    def ratio(self, number, what, above, below, bar=""):
        """Round by round, so that what slows the machine down slows both sides."""
        self.add(number, what, "x", [a / b for a, b in zip(above, below)], bar)

    def point(self, plot, series, x, values):
        """A point of a plot (test/bench/publish draws them)."""
        self.points.append({"plot": plot, "series": series, "x": x, **figure(values)})

    def print(self):
        show = lambda v: f"{v:.0f}" if abs(v) >= 1000 else f"{v:.1f}" if abs(v) >= 100 else f"{v:.2f}"
        rows = [("", "what", "median", "least", "greatest", "unit", "bar")]
        rows += [(x["number"], x["what"], show(x["median"]), show(x["least"]), show(x["greatest"]), x["unit"], x["bar"]) for x in self.lines]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        for r in rows:
            print("  ".join(v.rjust(w) if 2 <= i <= 4 else v.ljust(w) for i, (v, w) in enumerate(zip(r, widths))).rstrip())

    def write(self, directory, settings):
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "results.csv"), "w", newline="") as f:
            out = csv.DictWriter(f, ["number", "what", "unit", "median", "least", "greatest", "rounds", "bar"])
            out.writeheader()
            out.writerows(self.lines)
        with open(os.path.join(directory, "points.csv"), "w", newline="") as f:
            out = csv.DictWriter(f, ["plot", "series", "x", "median", "least", "greatest", "rounds"])
            out.writeheader()
            out.writerows(self.points)
        with open(os.path.join(directory, "settings.csv"), "w", newline="") as f:
            csv.writer(f).writerows([("setting", "value"), *settings])


def wal(session):
    return int(session.value("SELECT pg_current_wal_insert_lsn() - '0/0'").split(".")[0])


def schema_size(session, schema):
    return int(session.value("SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
                             f" WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind = 'r'"))


def explain(session, sql):
    """Shared buffers touched and milliseconds of one execution, all statements inside functions included."""
    plan = json.loads("".join(session.run(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {sql}")))[0]
    node = plan["Plan"]
    return {"hit": node["Shared Hit Blocks"], "read": node["Shared Read Blocks"], "dirtied": node["Shared Dirtied Blocks"],
            "buffers": node["Shared Hit Blocks"] + node["Shared Read Blocks"], "milliseconds": plan["Execution Time"],
            "rows": node["Actual Rows"]}


class TimedQuery:
    """A query as a loop in PL/pgSQL: planned once, its result fetched and thrown away."""
    made = 0

    def __init__(self, session, sql):
        TimedQuery.made += 1
        self.session, self.name = session, f"pg_temp.timed_{TimedQuery.made}"
        session.run(f"""CREATE FUNCTION {self.name}(loops int) RETURNS double precision LANGUAGE plpgsql AS $timed$
            DECLARE started timestamptz := clock_timestamp();
            BEGIN
                FOR i IN 1..loops LOOP
                    PERFORM * FROM ({sql}) q;
                END LOOP;
                RETURN bench.microseconds(started) / loops;
            END $timed$""")

    def run(self, loops):
        return float(self.session.value(f"SELECT {self.name}({loops})"))


# Of 20 events one redelivers the previous, one is older than it on the same key.
EVENT = r"""\set r random(1, 20)
\if :r > 2
\set i :i + 1
\set k {key}
\set s (:i * 100 + :client_id) * 10
\elif :r = 2
\set s :s - 1
\endif
SELECT outcome FROM {side}.apply('bench', {view}, '00000000-0000-4000-a' || (1000000000000000 + :s), '0' || (638000000000000000 + :s) || '00000000007', ('{{"rowUpserts":[{{"rowKey":"order-' || :k::bigint || '","value":{{"status":"open","customer":"customer-17","total":12.5}}}}],"indexEntries":[{{"indexId":"status","valueType":"text","value":"open","rowKey":"order-' || :k::bigint || '"}}]}}')::jsonb);
"""


def pgbench(database, script, seconds, clients=1, **variables):
    """Transactions per second of a script, with the prepared protocol."""
    with tempfile.NamedTemporaryFile("w", suffix=".pgbench") as f:
        f.write(script)
        f.flush()
        command = ["pgbench", "-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)), "-T", str(seconds), "-f", f.name]
        for name, value in variables.items():
            command += ["-D", f"{name}={value}"]
        done = subprocess.run(command + [database], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.M)
    if done.returncode or not found or not re.search(r"number of failed transactions: 0 ", done.stdout):
        raise RuntimeError("pgbench failed:\n" + done.stdout)
    return float(found.group(1))


class Client:
    """libpq itself: prepared statements, text parameters, a round trip and a transaction each."""

    def __init__(self, database):
        pq = self.pq = ctypes.CDLL("libpq.so.5")
        for function in (pq.PQconnectdb, pq.PQprepare, pq.PQexecPrepared):
            function.restype = ctypes.c_void_p
        for function in (pq.PQerrorMessage, pq.PQgetvalue):
            function.restype = ctypes.c_char_p
        self.connection = ctypes.c_void_p(pq.PQconnectdb(f"dbname={database} application_name=bench".encode()))
        self.prepared = {}
        if pq.PQstatus(self.connection) != 0:
            raise RuntimeError(pq.PQerrorMessage(self.connection).decode())

    def run(self, sql, *values):
        """The rows, as text."""
        name = self.prepared.get(sql)
        if not name:
            name = self.prepared[sql] = b"s%d" % len(self.prepared)
            self.answer(self.pq.PQprepare(self.connection, name, sql.encode(), 0, None))
        texts = (ctypes.c_char_p * len(values))(*[None if v is None else v.encode() for v in values])
        return self.answer(self.pq.PQexecPrepared(self.connection, name, len(values), texts, None, None, 0))

    def answer(self, result):
        pq, result = self.pq, ctypes.c_void_p(result)
        if pq.PQresultStatus(result) not in (1, 2):
            raise RuntimeError(pq.PQerrorMessage(self.connection).decode())
        rows = [[pq.PQgetvalue(result, i, j).decode() for j in range(pq.PQnfields(result))] for i in range(pq.PQntuples(result))]
        pq.PQclear(result)
        return rows

    def close(self):
        self.pq.PQfinish(self.connection)


class Memory:
    """The memory of a session's own process while something runs in it: anonymous pages, so no shared buffers."""

    def __init__(self, pid):
        self.pid = pid

    def now(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return int(re.search(r"^RssAnon:\s+(\d+) kB", f.read(), re.M).group(1)) * 1024

    def __enter__(self):
        self.before = self.most = self.now()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.done.wait(0.02):
            self.most = max(self.most, self.now())

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()
        self.most = max(self.most, self.now())
