"""Relative paths that a plan or an answer may name: inside the project, away from the evidence."""

from pathlib import PurePosixPath

from bernstein_formats.errors import InvalidInput

_KEPT_AWAY = frozenset((".sdd", ".git"))


def check_relative(path: str) -> str:
    """Return the path in its plain form, or raise InvalidInput: no root, no `..`, no evidence."""
    parts = PurePosixPath(path).parts
    if not path.strip() or "\0" in path or "\\" in path or "\n" in path:
        raise _refused(path, "is not a usable file name")
    if path.startswith("/") or ".." in parts:
        raise _refused(path, "leads out of the project; use a path relative to it, without ..")
    if any(part.lower() in _KEPT_AWAY for part in parts):
        raise _refused(path, "lies inside .sdd or .git, which agents may not touch")
    return str(PurePosixPath(path))


def _refused(path: str, why: str) -> InvalidInput:
    return InvalidInput(f"the path {path!r} {why}", kind="path_refused", path=path)
