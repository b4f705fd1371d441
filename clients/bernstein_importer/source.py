"""A peer's folder as a source: read and never written, no link followed out of it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    ForeignWriter,
    InvalidInput,
    LimitExceeded,
    StoreFailed,
)
from bernstein_runtime.limits import PIECE_BYTES_MAX
from bernstein_runtime.regular_file import regular_files_below

METADATA_BYTES_MAX = 1024 * 1024
STATE_FOLDER = ".sdd"
BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What a file looks like from outside; equal looks: nobody has written to it since."""

    device: int
    inode: int
    size: int
    changed_ns: int

    def is_same_file(self, other: "Look") -> bool:
        return (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True)
class Source:
    """A state folder that somebody else owns; `sdd_dir` has no links in it."""

    sdd_dir: Path

    def run_ids(self) -> list[str]:
        """Names below `runs` that may be runs, oldest first as the peer names them."""
        return self._folders_in(paths.RUNS_FOLDER)

    def agent_ids(self) -> list[str]:
        """Names of the agents and sessions that have a step journal, or may get one."""
        return self._folders_in(paths.STEPS_FOLDER)

    def _folders_in(self, folder: str) -> list[str]:
        top = self.sdd_dir / folder
        try:
            found = [each.name for each in os.scandir(top) if each.is_dir() or each.is_symlink()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(top, error) from error
        return sorted(found)

    def glance(self, name: str) -> Look | None:
        """Like `look`, and quicker: whether anything has changed, for what is looked at often."""
        try:
            return _look((self.sdd_dir / name).stat())
        except (OSError, ValueError):
            return None

    def files_below(self, folder: str) -> list[str]:
        """Names of the regular files in a folder and below, sorted; hidden ones are left out."""
        top = self._inside(folder)
        try:
            return [f"{folder}/{name}" for name in regular_files_below(top)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(top, error) from error

    def look(self, name: str) -> Look | None:
        """None when there is no such file."""
        path = self._inside(name)
        try:
            facts = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(path, error) from error
        return _look(facts)

    @contextmanager
    def open(self, name: str) -> Iterator["SourceFile | None"]:
        """The file as it is now; None when there is none. Raises InvalidInput, StoreFailed."""
        path = self._inside(name)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise _unreadable(path, error) from error
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            os.close(descriptor)
            raise InvalidInput(f"{path} is not a regular file; it is not read", path=path)
        with os.fdopen(descriptor, "rb") as file:
            yield SourceFile(path, file, _look(facts))

    def pieces(self, name: str) -> Iterator[bytes]:
        """A file whole, in pieces as large as a request takes. Raises ForeignWriter."""
        with self.open(name) as file:
            if file is None:
                raise ForeignWriter(f"{self.sdd_dir / name} was removed while it was copied")
            for start in range(0, file.look.size, PIECE_BYTES_MAX):
                yield file.read(start, min(file.look.size, start + PIECE_BYTES_MAX))

    def small(self, name: str) -> bytes:
        """A small file whole; empty when there is none."""
        with self.open(name) as file:
            if file is None:
                return b""
            if file.look.size > METADATA_BYTES_MAX:
                raise LimitExceeded(
                    f"{file.path} has {file.look.size} bytes; at most {METADATA_BYTES_MAX} are"
                    " taken; it is not what a run writes",
                    path=file.path,
                )
            return file.read(0, file.look.size)

    def _inside(self, name: str) -> Path:
        """Where `name` is. Raises InvalidInput when a link leads out of the source."""
        path = Path(os.path.realpath(self.sdd_dir / name))
        if not path.is_relative_to(self.sdd_dir):
            raise InvalidInput(
                f"{self.sdd_dir / name} is a link that leads out of the folder;"
                " it is not followed: import the folder that it leads to",
                path=self.sdd_dir / name,
            )
        return path


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One open file and how it looked when it was opened."""

    path: Path
    file: BinaryIO
    look: Look

    def read(self, start: int, end: int) -> bytes:
        """Bytes from `start` to `end`; fewer when the file was cut meanwhile."""
        try:
            self.file.seek(start)
            return self.file.read(end - start)
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def whole_size(self) -> int:
        """Bytes up to and with the last line feed: what follows is being written, or torn."""
        end = self.look.size
        while end > 0:
            start = max(0, end - BLOCK_BYTES)
            found = self.read(start, end).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0


def find_source(folder: Path) -> Source:
    """The state folder in a project folder, or the folder itself. Raises InvalidInput."""
    top = Path(os.path.realpath(folder))
    inner = Path(os.path.realpath(top / STATE_FOLDER))
    if inner.is_dir():
        if not inner.is_relative_to(top):
            raise InvalidInput(
                f"{folder / STATE_FOLDER} is a link that leads out of {folder};"
                f" import {inner} itself if that is meant",
                path=folder,
            )
        return Source(inner)
    if (top / paths.RUNS_FOLDER).is_dir():
        return Source(top)
    raise InvalidInput(
        f"{folder} has neither a {STATE_FOLDER} nor a {paths.RUNS_FOLDER} folder;"
        " name a project folder or its .sdd",
        path=folder,
    )


def check_apart(source: Source, sdd_dir: Path) -> None:
    """Refuse an import that would write into its own source."""
    ours = Path(os.path.realpath(sdd_dir))
    if ours == source.sdd_dir or ours.is_relative_to(source.sdd_dir):
        raise InvalidInput(
            f"{source.sdd_dir} cannot be imported into itself; name another state folder with"
            " --sdd-dir, or read its runs where they are",
            path=source.sdd_dir,
        )


def _look(facts: os.stat_result) -> Look:
    # Not the time of the last write, which whoever wrote can set back.
    return Look(facts.st_dev, facts.st_ino, facts.st_size, facts.st_ctime_ns)


def _unreadable(path: Path, error: OSError) -> BernsteinError:
    return StoreFailed(f"{path} cannot be read: {error.strerror}", path=path)
