"""What others notice of a hostile caller: the 99th percentile of their durable appends, in a fleet
over mutual TLS, beside what it is without one."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from benchmarks.measuring import Figure, Setting
from benchmarks.project import PeerEnvironment
from tests.conftest import Project
from tests.fleet import fleet_in

CALLERS = 4
SECONDS = 6.0
# What the orchestrators of a fleet do: an event now and then, not as fast as they can.
PAUSE_SECONDS = 0.01
PAYLOAD = {"text": "x" * 200}


def fairness(setting: Setting, peer: PeerEnvironment) -> Iterator[Figure]:
    seconds = SECONDS / 2 if setting.quick else SECONDS
    origin = {"BERNSTEIN_SVC_FLEET_ORIGIN": "fleet:demo"}
    with fleet_in(setting.folder / "fleet", **origin) as fleet:
        host = fleet.host("one")
        host.start("journal", "signer")
        others = [fleet.client(f"other-{number}", host) for number in range(CALLERS)]
        hostile = fleet.client("hostile", host)
        percentile(others, seconds / 3)  # warm
        quiet = percentile(others, seconds)
        yield Figure("append of others, p99, quiet", "ms", quiet * 1e3)
        for kind in "writer", "slow-reader":
            with at_it(kind, hostile):
                loud = percentile(others, seconds)
            name = f"append of others, p99, hostile {kind}"
            yield Figure(name, "ms", loud * 1e3, ratio=quiet / loud)


@contextmanager
def at_it(kind: str, client: Project) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.hostile", kind, str(client.sdd)]
    with subprocess.Popen(command, env=dict(client.environ), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"at it\n"
        try:
            yield
        finally:
            process.kill()


def percentile(callers: list[Project], seconds: float) -> float:
    """Seconds that all but one in a hundred appends took at most."""
    took: list[float] = []

    def work(caller: Project) -> None:
        with caller.services() as services:
            run_id = services.journal.create_run()
            until = time.perf_counter() + seconds
            while (began := time.perf_counter()) < until:
                services.journal.append(run_id, "x", PAYLOAD)
                took.append(time.perf_counter() - began)
                time.sleep(PAUSE_SECONDS)

    threads = [threading.Thread(target=work, args=(each,)) for each in callers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return quantiles(took, n=100)[98]
