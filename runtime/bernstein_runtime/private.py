"""Folders that nobody but their user can write to, nor put something else in the place of."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.disk import failed

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(folder: Path, holder: Path, otherwise: str) -> None:
    """Make `folder` and those between it and `holder` with mode 0700.

    Raises InvalidInput where somebody else could put a folder in their place; `otherwise` is the
    advice that leads to another place.
    """
    try:
        _make(holder)
        _check_holder(holder, otherwise)
        for each in _between(holder, folder):
            with suppress(FileExistsError):
                each.mkdir(mode=0o700)
            _check_own(each, otherwise)
            if stat.S_IMODE(each.lstat().st_mode) & _OTHERS:
                each.chmod(0o700)
    except OSError as error:
        raise failed(folder, error) from error


def check_private(folder: Path, holder: Path, otherwise: str) -> None:
    """The same without making anything. Raises FileNotFoundError where there is no folder."""
    _check_holder(holder, otherwise)
    for each in _between(holder, folder):
        _check_own(each, otherwise)


def _make(holder: Path) -> None:
    # Not `parents=True`: that one gives the folders above the mode of the umask.
    if not holder.exists():
        _make(holder.parent)
        with suppress(FileExistsError):
            holder.mkdir(mode=0o700)


def _between(holder: Path, folder: Path) -> list[Path]:
    above = [each for each in folder.parents if each != holder and each.is_relative_to(holder)]
    return [*reversed(above), folder]


def _check_own(folder: Path, otherwise: str) -> None:
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise InvalidInput(
            f"{folder} is not a folder of this user; remove it, or {otherwise}",
            path=folder,
        )
    if stat.S_IMODE(facts.st_mode) & _OTHERS_WRITE:
        raise InvalidInput(
            f"other users may write to {folder}; remove it, or {otherwise}",
            path=folder,
        )


def _check_holder(holder: Path, otherwise: str) -> None:
    """It may be the system's; a link there is followed, unless somebody else may change it."""
    trusted = {0, os.getuid()}
    facts = holder.stat()
    is_open = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
    if is_open or not {facts.st_uid, holder.lstat().st_uid} <= trusted:
        raise InvalidInput(
            f"other users may replace what is in {holder}; {otherwise}",
            path=holder,
        )
