"""Where a command's runs come from: the project's services, or its files read by ourselves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.local_run import LocalRuns, OneFile
from bernstein_client.values import Progress, Rederived, RunDifference, RunInfo, Verification
from bernstein_formats.canonical import JsonValue

if TYPE_CHECKING:
    from bernstein_client.connection import Services


class RunReader(Protocol):
    """What can be asked of recorded runs. Raises RunNotFound; "latest" is an id, too."""

    def list_runs(self) -> Iterator[RunInfo]: ...

    def get_run(self, run_id: str) -> RunInfo: ...

    def read_journal(self, run_id: str) -> Iterator[bytes]: ...

    def verify_run(self, run_id: str, progress: Progress) -> Verification: ...

    def rebuild_state(self, run_id: str, from_step: int) -> tuple[str, Mapping[str, JsonValue]]: ...

    def diff_runs(self, run_id_a: str, run_id_b: str) -> RunDifference: ...

    def rederive_run(self, run_id: str, progress: Callable[[int], None]) -> Rederived: ...


class ServiceRuns:
    """Runs as the services know them."""

    def __init__(self, services: "Services") -> None:
        self._services = services

    def list_runs(self) -> Iterator[RunInfo]:
        return self._services.journal.list_runs()

    def get_run(self, run_id: str) -> RunInfo:
        return self._services.journal.get_run(run_id)

    def read_journal(self, run_id: str) -> Iterator[bytes]:
        return self._services.journal.read_journal(run_id)

    def verify_run(self, run_id: str, progress: Progress) -> Verification:
        return self._services.journal.verify_run(run_id, progress)

    def rebuild_state(self, run_id: str, from_step: int) -> tuple[str, Mapping[str, JsonValue]]:
        return self._services.journal.rebuild_state(run_id, from_step)

    def diff_runs(self, run_id_a: str, run_id_b: str) -> RunDifference:
        return self._services.journal.diff_runs(run_id_a, run_id_b)

    def rederive_run(self, run_id: str, progress: Callable[[int], None]) -> Rederived:
        return self._services.rederiver.rederive_run(run_id, progress)


@contextmanager
def open_runs(sdd_dir: Path, *, offline: bool, file: Path | None) -> Iterator[RunReader]:
    """The runs below `sdd_dir`, or the one that is `file`. A folder that is not there is not made:
    it holds no runs, and no service starts for it."""
    if file is not None:
        yield OneFile(file)
    elif offline or not (sdd_dir.is_dir() or in_fleet(sdd_dir)):
        yield LocalRuns(sdd_dir)
    else:
        from bernstein_client.connection import Services  # noqa: PLC0415 - gRPC, only where needed

        with Services(sdd_dir) as services:
            yield ServiceRuns(services)
