"""The files that agents read and write: the project, or a scratch folder laid over it in replay.

Nothing outside the project is touched, nothing in .sdd and .git, and no symbolic link is followed
out of it. Files are replaced whole.
"""

import os
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from bernstein_formats.errors import InvalidInput, LimitExceeded, StoreFailed
from bernstein_orchestrator.paths import check_relative

READ_LIMIT: Final = 1024 * 1024
_READABLE_BY_ALL: Final = 0o666


class Workspace:
    """A project folder; with `scratch`, writes go there and reads look there first."""

    def __init__(self, project: Path, scratch: Path | None = None) -> None:
        """Work on a folder that exists."""
        self.project = project.resolve()
        self.top = self.project if scratch is None else scratch.resolve()
        self.layers = (self.top,) if scratch is None else (self.top, self.project)
        self._written: set[str] = set()

    def wrote(self, path: str) -> bool:
        """Tell whether this run wrote the file."""
        return str(PurePosixPath(path)) in self._written

    def written(self) -> frozenset[str]:
        """Return the files that this run wrote, relative to the project."""
        return frozenset(self._written)

    def read(self, path: str) -> bytes | None:
        """Return a file's content, None when it is no regular file inside the project."""
        for layer in self.layers:
            found = _regular_file(layer, path)
            if found is not None:
                return _content(found, path)
        return None

    def exists(self, path: str) -> bool:
        return any(_contained(layer, path) is not None for layer in self.layers)

    def matches(self, pattern: str) -> bool:
        """Tell whether any file or folder outside .sdd matches a glob pattern."""
        if pattern.startswith("/") or ".." in pattern.split("/"):
            return False
        try:
            return any(
                ".sdd" not in found.relative_to(layer).parts
                for layer in self.layers
                for found in layer.glob(pattern)
            )
        except (ValueError, NotImplementedError, OSError):
            return False

    def write(self, path: str, content: bytes) -> None:
        """Replace a file whole; its folders are made."""
        path = check_relative(path)
        target = self.top / path
        parent = target.parent
        if not parent.resolve().is_relative_to(self.top):
            raise StoreFailed(
                f"{path} would be written outside the project, through a symbolic link;"
                " replace the link by a folder",
                path=path,
            )
        try:
            parent.mkdir(parents=True, exist_ok=True)
            _replace(target, content)
        except OSError as error:
            raise StoreFailed(f"{path} cannot be written: {error.strerror}", path=path) from error
        self._written.add(path)


def _contained(layer: Path, path: str) -> Path | None:
    """Return where a relative path leads, if that exists and lies inside the layer."""
    try:
        found = (layer / check_relative(path)).resolve()
        inside = found.is_relative_to(layer) and found.exists()
    except (InvalidInput, OSError, RuntimeError):
        return None
    return found if inside else None


def _regular_file(layer: Path, path: str) -> Path | None:
    found = _contained(layer, path)
    return found if found is not None and found.is_file() else None


def _content(found: Path, path: str) -> bytes:
    try:
        with found.open("rb") as file:
            content = file.read(READ_LIMIT + 1)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror}", path=path) from error
    if len(content) > READ_LIMIT:
        text = f"{path} is larger than {READ_LIMIT} bytes; list a smaller file"
        raise LimitExceeded(text, path=path)
    return content


def _replace(target: Path, content: bytes) -> None:
    mode = target.stat().st_mode & 0o777 if target.is_file() else _READABLE_BY_ALL & ~_umask()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
