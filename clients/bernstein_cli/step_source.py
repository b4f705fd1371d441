"""Where a command's step journals come from: the project's services, or its files."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, Protocol

from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.local_rows import LocalRows, local_path
from bernstein_formats import paths
from bernstein_formats.acknowledged import WHAT_TO_DO
from bernstein_formats.errors import Broken, NotFound, RowsMissing, StoreFailed
from bernstein_runtime.regular_file import open_regular

_CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class Steps:
    """An agent's journal as it was when it was opened; it may grow meanwhile."""

    agent_id: str
    file: IO[bytes]
    size: int
    # What was acknowledged and is gone, by the marks beside it; a service refuses to send such.
    missing: str = ""

    def whole(self) -> "Steps":
        """Itself. Raises RowsMissing where steps are gone."""
        if self.missing:
            raise RowsMissing(f"{self.missing}; {WHAT_TO_DO}", agent_id=self.agent_id)
        return self

    def chunks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The stored bytes in parts, as often as they are wanted."""
        stop = self.size if end is None else end
        while start < stop:
            chunk = os.pread(self.file.fileno(), min(_CHUNK_BYTES, stop - start), start)
            if not chunk:
                raise StoreFailed(f"the journal of {self.agent_id} became shorter; try again")
            start += len(chunk)
            yield chunk


class StepReader(Protocol):
    """Opens step journals for reading; each is closed with the reader."""

    def open(self, agent_id: str) -> Steps:
        """Raises NotFound, RowsMissing, and InvalidInput for an id that no agent can have."""
        ...


class _LocalSteps:
    def __init__(self, sdd_dir: Path) -> None:
        self._sdd_dir = Path(os.path.realpath(sdd_dir))
        self._files: list[IO[bytes]] = []

    def open(self, agent_id: str) -> Steps:
        name = paths.steps_path(agent_id)
        rows = LocalRows(self._sdd_dir)
        try:
            file = open_regular(local_path(self._sdd_dir, name))
        except FileNotFoundError:
            rows.check(name)
            raise NotFound(f"no journal for agent {agent_id}", agent_id=agent_id) from None
        self._files.append(file)
        missing = rows.missing(name)
        missing = missing and f"{name}: {missing}"
        return Steps(agent_id, file, os.fstat(file.fileno()).st_size, missing)

    def close(self) -> None:
        for file in self._files:
            file.close()


class _ServiceSteps(_LocalSteps):
    """What the service sends is kept in a nameless file, so that it can be read again."""

    def open(self, agent_id: str) -> Steps:
        from bernstein_client.connection import Services  # noqa: PLC0415 - gRPC, only where needed

        paths.check_agent_id(agent_id)
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the reader
        self._files.append(file)
        with Services(self._sdd_dir) as services:
            file.writelines(services.steps.read(agent_id))
        file.flush()
        return Steps(agent_id, file, file.tell())


@contextmanager
def open_steps(sdd_dir: Path, *, offline: bool) -> Iterator[StepReader]:
    """The journals below a state folder; one that is not there is not made."""
    is_local = offline or not (sdd_dir.is_dir() or in_fleet(sdd_dir))
    reader = _LocalSteps(sdd_dir) if is_local else _ServiceSteps(sdd_dir)
    try:
        yield reader
    finally:
        reader.close()


def read_blob(sdd_dir: Path, digest: str) -> bytes | None:
    """A blob of the store, if it is there. Raises Broken when it is not what its name says."""
    path = sdd_dir / paths.blob_path(digest)
    try:
        with open_regular(path, os.O_NOFOLLOW) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Broken(f"blob {path} cannot be read: {error.strerror}", path=path) from error
    if sha256(content).hexdigest() != digest:
        raise Broken(f"blob {path} does not hash to its name; restore it", path=path)
    return content
