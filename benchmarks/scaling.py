"""What runs cost and how much room they take, for docs/scaling.md: `python -m benchmarks.scaling`.

Small runs are recorded and sealed in files and in PostgreSQL; what is measured there is also shown
for a million of them, as if nothing grew faster than their number.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.rows import std_events
from benchmarks.run import disk_folder
from tests.postgres_server import PostgresServer

from bernstein_client.connection import Services
from bernstein_runtime.clock import SystemClock
from bernstein_signer.key import create_key, write_new
from bernstein_signer.ledger import LEDGER_FILE, Head, Ledger, Run

EVENTS, BATCH, AT_ONCE = 50, 10, 8
MILLION = 1_000_000
FOLLOWERS = 200
LEDGERS = (2_000, 10_000)


@dataclass(frozen=True)
class Taken:
    """So much for each run."""

    what: str
    unit: str
    each: float

    def line(self) -> str:
        million = in_words(self.each * MILLION, self.unit)
        return f"| {self.what} | {self.each:.4g} {self.unit} | {million} |"


def in_words(amount: float, unit: str) -> str:
    if unit == "B":
        return f"{amount / 1e9:.3g} GB"
    if unit == "ms":
        return f"{amount / 1e3 / 3600:.3g} h"
    return f"{amount:.3g}"


class Desk:
    """A project with services of its own."""

    def __init__(self, folder: Path, **settings: str) -> None:
        (folder / ".sdd").mkdir(parents=True)
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **settings}
        self.folder = folder
        self.services = Services(folder / ".sdd", environ)

    def record(self, wanted: int) -> None:
        for _ in range(wanted):
            run_id = self.services.journal.create_run(metadata=b'{"title": "scaling"}')
            events = list(islice(std_events(EVENTS), EVENTS))
            for start in range(0, EVENTS, BATCH):
                self.services.journal.append_many(run_id, events[start : start + BATCH])
            self.services.journal.finish_run(run_id, spine_seal=False)

    def pid(self, name: str) -> int:
        status = self.services.supervisor.ask({"do": "status"})
        assert status is not None
        return next(int(each["pid"]) for each in status["services"] if each["service"] == name)

    def stop(self) -> None:
        self.services.supervisor.ask({"do": "stop"})
        self.services.close()


@contextmanager
def desk(**settings: str) -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(dir=disk_folder(), prefix="scaling-") as folder:
        made = Desk(Path(folder), **settings)
        try:
            yield made
        finally:
            made.stop()


def cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sizes(folder: Path) -> tuple[int, int, int]:
    """Bytes, bytes on the disk, and files below a folder; logs of services left out."""
    found = [
        path.stat() for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts
    ]
    return sum(f.st_size for f in found), sum(f.st_blocks * 512 for f in found), len(found)


def worked(at: Desk, runs: int) -> Iterator[Taken]:
    """What the services do for each run."""
    at.record(5)
    pids = [at.pid(name) for name in ("journal", "signer")]
    before = [cpu_ms(pid) for pid in pids]
    began = time.perf_counter()
    at.record(runs)
    yield Taken("time, one after the other", "ms", (time.perf_counter() - began) * 1000 / runs)
    for name, pid, was in zip(("journal", "signer"), pids, before, strict=True):
        yield Taken(f"processor time of the {name}", "ms", (cpu_ms(pid) - was) / runs)
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda _: at.record(1), range(runs)))
    each = (time.perf_counter() - began) * 1000 / runs
    yield Taken(f"time, {AT_ONCE} at once", "ms", each)


def in_files(runs: int) -> Iterator[Taken]:
    with desk() as at:
        yield from worked(at, runs)
        recorded = len(list((at.folder / ".sdd" / "runs").iterdir()))
        size, on_disk, files = sizes(at.folder / ".sdd")
        yield Taken("bytes in files", "B", size / recorded)
        yield Taken("bytes on the disk, in blocks of 4 KiB", "B", on_disk / recorded)
        yield Taken("files", "", files / recorded)
        (ledger,) = at.folder.rglob(LEDGER_FILE)
        yield Taken("bytes of the signer's ledger", "B", ledger.stat().st_size / recorded)
        began = time.perf_counter()
        assert len(list(at.services.journal.list_runs())) == recorded
        yield Taken("listing all runs", "ms", (time.perf_counter() - began) * 1000 / recorded)


def in_postgres(runs: int) -> Iterator[Taken]:
    server = PostgresServer()
    try:
        url = server.database()
        name = url.split("@/")[1].split("?")[0]
        with desk(BERNSTEIN_SVC_STORE_URL=url) as at:
            at.record(1)
            before, wal = database(server, name)
            yield from worked(at, runs)
            after, wal_after = database(server, name)
            stored = len(list(at.services.journal.list_runs())) - 1
            yield Taken("bytes in the database, with indexes", "B", (after - before) / stored)
            yield Taken("bytes of its log (WAL)", "B", (wal_after - wal) / stored)
            began = time.perf_counter()
            listed = len(list(at.services.journal.list_runs()))
            yield Taken("listing all runs", "ms", (time.perf_counter() - began) * 1000 / listed)
    finally:
        server.remove()


def database(server: PostgresServer, name: str) -> tuple[int, int]:
    ((size, wal),) = server.execute(
        f"select pg_database_size('{name}'), pg_current_wal_lsn() - '0/0'::pg_lsn"
    )
    return int(str(size)), int(str(wal))


def of_ledger(entries: int) -> tuple[float, float]:
    """Seconds for opening a ledger of so many entries, which verifies it, and its size."""
    with tempfile.TemporaryDirectory(dir=disk_folder(), prefix="scaling-") as text:
        folder = Path(text)
        write_new(folder / LEDGER_FILE, b"")
        key = create_key(folder / "key.pem")
        ledger = Ledger(folder, key, SystemClock())
        for number in range(entries):
            ledger.seal(Run("scaling:demo", f"run-{number}"), Head(EVENTS, "0" * 64), None)
        ledger.close()
        began = time.perf_counter()
        Ledger(folder, key, SystemClock()).close()
        return time.perf_counter() - began, (folder / LEDGER_FILE).stat().st_size


def of_followers() -> float:
    """Bytes of the journal's memory for each open follower."""
    with desk() as at:
        run_id = at.services.journal.create_run()
        at.services.journal.append(run_id, "x", {})
        streams = []
        next(at.services.journal.watch_rows(run_id))
        before = memory_bytes(at.pid("journal"))
        for _ in range(FOLLOWERS):
            stream = at.services.journal.watch_rows(run_id)
            next(stream)
            streams.append(stream)
        return (memory_bytes(at.pid("journal")) - before) / FOLLOWERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    for name, measured in (("files", in_files), ("PostgreSQL", in_postgres)):
        print(f"\n{runs} runs of {EVENTS} rows in batches of {BATCH}, in {name}\n")
        print("| | a run | a million |\n|---|---|---|")
        for taken in measured(runs):
            print(taken.line(), flush=True)
    print("\n| entries of a ledger | opening it | size |\n|---|---|---|")
    for entries in LEDGERS:
        seconds, size = of_ledger(entries)
        print(f"| {entries} | {seconds:.2f} s | {size / 1e6:.2f} MB |")
    print(f"\n{of_followers() / 1024:.0f} KiB of the journal's memory for a follower")


if __name__ == "__main__":
    main()
