"""What all benchmarks share: the settings of the server, the size of the run, a database for each."""
import os

from measure import Report
from session import Session

here = os.path.dirname(os.path.abspath(__file__))

SETTINGS = {"shared_buffers": "1GB", "synchronous_commit": "off", "jit": "off", "autovacuum": "on", "fsync": "on",
            "full_page_writes": "on", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "work_mem": "64MB"}
QUICK = os.environ.get("QUICK", "0") not in ("", "0")
ROUNDS = max(5, int(os.environ.get("ROUNDS", 5)))
NAMES = {"unsafemv": "unsafemv", "peer": "the peer", "floor": "the floor", "nothing": "the empty loop"}
report = Report()


class Database:
    """A database per benchmark: no benchmark's dead rows slow down another."""

    def __init__(self, name):
        self.name = "unsafemv_bench_" + name
        admin = Session("postgres", name="bench")
        admin.run(f"DROP DATABASE IF EXISTS {self.name}")
        admin.run(f"CREATE DATABASE {self.name}")
        admin.close()
        session = self.session()
        session.run("CREATE EXTENSION unsafemv")
        for part in ("peer.sql", "floor.sql", "loops.sql"):
            session.file(os.path.join(here, part))
        session.close()

    def session(self):
        return Session(self.name, name="bench")

    def drop(self):
        admin = Session("postgres", name="bench")
        admin.run(f"DROP DATABASE {self.name}")
        admin.close()


def sides_in_turn(sides, number):
    """Every round begins with another side."""
    number %= len(sides)
    return sides[number:] + sides[:number]


def create_views(session, *views):
    for view in views:
        session.run(f"SELECT unsafemv.create_view('bench', '{view}')")
        session.run(f"SELECT peer.create_view('bench', '{view}')")


def fill_keys(session, view):
    """All sides get their 20,000 rows; the next event is number 20,001."""
    session.run("SELECT bench.generate(1, 20000, true)")
    for side in ("unsafemv", "peer", "floor"):
        session.run(f"CALL bench.batch_{side}('{view}', NULL)")
    session.run("VACUUM ANALYZE")
