"""The `.sdd` tree as a store: exactly the peer's files, our own bookkeeping in `.sdd/svc`."""

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from bernstein_formats.acknowledged import MARKS_FOLDER, Acknowledged, marked_in, marks_path
from bernstein_formats.errors import (
    ForeignWriter,
    InvalidInput,
    RunExists,
    RunNotFound,
    StoreFailed,
)
from bernstein_runtime.disk import check_room, failed
from bernstein_runtime.lock import LockFile
from bernstein_runtime.regular_file import NOT_REGULAR, open_regular, regular_files_below
from bernstein_store.durable import make_folder, remove_entries, replace, sync_folder
from bernstein_store.file_log import FileLog, accept, acknowledged_in, fulfilled_marks, rewrite
from bernstein_store.file_reader import FileReader
from bernstein_store.store import LOCK_WAIT_SECONDS, Mark

CHUNK_BYTES = 256 * 1024
# How soon is seen what another program wrote.
POLL_SECONDS = 0.5
NAME_BYTES_MAX = 255


class FileStore:
    """See `bernstein_store.store.Store`."""

    def __init__(self, sdd_dir: Path) -> None:
        self._root = Path(os.path.realpath(sdd_dir))
        # What is open for appending may hold bytes that are not synced yet.
        self._open: WeakValueDictionary[str, FileLog] = WeakValueDictionary()
        self._on_changed: Callable[[str], None] = lambda _: None

    def path(self, name: str) -> Path:
        """Where `name` is, links resolved. Raises InvalidInput when that is outside of its tree."""
        found = Path(os.path.realpath(self._root / name))
        top = self._root / Path(name).parts[0]
        if not found.is_relative_to(os.path.realpath(top)):
            raise InvalidInput(
                f"{name!r} is a link that leads out of {top}; it is not followed", path=name
            )
        return found

    def open_log(self, name: str, *, private: bool = False) -> FileLog:
        opened = self._open[name] = FileLog(
            self._own_path(name),
            self._marks_path(name),
            private=private,
            changed=lambda: self._on_changed(name),
        )
        return opened

    def marks_of(self, name: str) -> Sequence[Mark]:
        return fulfilled_marks(self.path(name), self._marks_path(name))

    def acknowledged(self, name: str) -> Acknowledged:
        return acknowledged_in(self._marks_path(name))

    def logs_in(self, folder: str) -> list[str]:
        return marked_in(folder, self.names(MARKS_FOLDER))

    def accept_log(self, name: str) -> None:
        accept(self._own_path(name), self._marks_path(name))

    def rewrite_log(self, name: str, parts: Callable[[], Iterator[bytes]]) -> None:
        rewrite(self._own_path(name), self._marks_path(name), parts)

    def end_log(self, name: str, size: int, note: str, data: bytes) -> None:
        # Nobody else appends to our files, and our own owner of the log looks for the note.
        found = self.size(name)
        if found != size:
            raise ForeignWriter(
                f"{self.path(name)} was to end with {size} bytes, and {found} are there;"
                " find who else writes to it, and verify the run",
                path=name,
            )
        self.put(note, data)

    def _own_path(self, name: str) -> Path:
        """Where `name` is written: two names for one file would let one run change another."""
        found = self.path(name)
        top, *rest = Path(name).parts
        if found != Path(os.path.realpath(self._root / top), *rest):
            raise InvalidInput(
                f"{self._root / name} leads through a link to {found}; nothing is written there:"
                " use the name that it leads to",
                path=name,
            )
        return found

    def _marks_path(self, name: str) -> Path:
        return self._root / marks_path(name)

    def read(self, name: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        path = self.path(name)
        try:
            with open_regular(path) as file:
                file.seek(start)
                left = end - start if end is not None else None
                while left is None or left > 0:
                    size = CHUNK_BYTES if left is None else min(left, CHUNK_BYTES)
                    chunk = file.read(size)
                    if not chunk:
                        return
                    if left is not None:
                        left -= len(chunk)
                    yield chunk
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(path, error) from error

    def open_reader(self, name: str) -> FileReader | None:
        try:
            return FileReader(self.path(name))
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        facts = self._stat(name)
        return facts.st_size if facts else None

    def stored_size(self, name: str) -> int:
        # In this order: what is in the file before the log is looked at is in an open log, too.
        size = self.size(name) or 0
        log = self._open.get(name)
        return size if log is None else min(size, log.size)

    def changed_at(self, name: str) -> float:
        facts = self._stat(name)
        return facts.st_mtime if facts else 0.0

    def get(self, name: str) -> bytes | None:
        return b"".join(self.read(name)) if self.size(name) is not None else None

    def put(self, name: str, data: bytes) -> None:
        self.put_parts(name, iter([data]))

    def put_parts(self, name: str, parts: Iterator[bytes]) -> int:
        path = self._own_path(name)
        make_folder(path.parent)
        size = replace(path, parts)
        self._on_changed(name)
        return size

    def remove(self, name: str) -> None:
        path = self._own_path(name)
        try:
            path.unlink()
            sync_folder(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(path, error) from error

    def names(self, folder: str) -> list[str]:
        path = self.path(folder)
        try:
            with os.scandir(path) as entries:
                return sorted(entry.name for entry in entries if entry.is_file())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(path, error) from error

    def names_below(self, folder: str) -> list[str]:
        top = self.path(folder)
        try:
            return regular_files_below(top)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(top, error) from error

    def locked(self, name: str) -> LockFile:
        path = self.path(name)
        make_folder(path.parent)
        return LockFile(path, LOCK_WAIT_SECONDS)

    def run_ids(self) -> list[str]:
        runs = self._root / "runs"
        try:
            found = [entry.name for entry in os.scandir(runs) if entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failed(runs, error) from error
        return [name for name in found if self._is_inside(runs, name)]

    def has_run(self, run_id: str) -> bool:
        runs = self._root / "runs"
        is_name = run_id not in {"", ".", ".."} and "/" not in run_id and _can_be_asked_for(run_id)
        return is_name and (runs / run_id).is_dir() and self._is_inside(runs, run_id)

    def real_run(self, run_id: str) -> str:
        runs = self._root / "runs"
        if not _can_be_asked_for(run_id):
            raise RunNotFound(f"there is no run {run_id[:64]!r}: no run can have this id")
        if not (runs / run_id).is_symlink():
            return run_id
        found = Path(os.path.realpath(runs / run_id))
        if found.parent != Path(os.path.realpath(runs)):
            raise InvalidInput(
                f"run {run_id} is a link to {found}, which is no run of {runs}; it is not followed",
                run_id=run_id,
            )
        return found.name

    def make_run(self, run_id: str) -> None:
        folder = self._root / "runs" / run_id
        make_folder(folder.parent)
        try:
            folder.mkdir()
            sync_folder(folder.parent)
        except FileExistsError:
            raise RunExists(
                f"run {run_id} exists already; choose another id", run_id=run_id
            ) from None
        except OSError as error:
            raise failed(folder, error) from error

    def is_own_folder(self, run_id: str) -> bool:
        folder = self._root / "runs" / run_id
        return folder.is_dir() and not folder.is_symlink()

    def remove_run(self, run_id: str, keep: Collection[str], last: str) -> None:
        folder = self._root / "runs" / run_id
        if not self.is_own_folder(run_id):
            raise InvalidInput(f"{folder} is a link or no folder; it is not removed", path=folder)
        try:
            remove_entries(folder, keep, last)
        except OSError as error:
            raise failed(folder, error) from error

    def tell(self, on_changed: Callable[[str], None]) -> float:
        self._on_changed = on_changed
        return POLL_SECONDS

    def check(self) -> None:
        check_room(self._root / "runs")

    def where(self, name: str) -> str:
        return str(self._root / name)

    def close(self) -> None:
        """Nothing is held."""

    def _is_inside(self, runs: Path, name: str) -> bool:
        return Path(os.path.realpath(runs / name)).is_relative_to(os.path.realpath(runs))

    def _stat(self, name: str) -> os.stat_result | None:
        path = self.path(name)
        try:
            facts = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed(path, error) from error
        if stat.S_ISDIR(facts.st_mode):
            raise StoreFailed(f"{path} is a folder, not a file", path=path)
        if not stat.S_ISREG(facts.st_mode):
            raise StoreFailed(f"{path}: {NOT_REGULAR}", path=path)
        return facts


def _can_be_asked_for(run_id: str) -> bool:
    """Whether the system takes it for a name at all."""
    return "\0" not in run_id and len(os.fsencode(run_id)) <= NAME_BYTES_MAX
