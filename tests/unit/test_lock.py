"""Locks: one holder, and a holder that notices when its file is no longer the one in use."""

import shutil
import threading
from pathlib import Path

import pytest

from bernstein_formats.errors import Conflict, StoreFailed
from bernstein_runtime.lock import LockFile, is_held


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    assert not is_held(path)
    with LockFile(path):
        assert is_held(path)
        with pytest.raises(Conflict, match="another live process"):
            LockFile(path).acquire()
    assert not is_held(path)


def test_a_removed_folder_takes_the_lock_away(tmp_path: Path) -> None:
    folder = tmp_path / "svc"
    folder.mkdir()
    with LockFile(folder / "x.lock") as lock:
        assert lock.is_current()
        shutil.rmtree(folder)
        assert not lock.is_current()
        folder.mkdir()
        with LockFile(folder / "x.lock") as again:
            assert again.is_current()
            assert not lock.is_current()


def test_a_moved_folder_takes_the_lock_away(tmp_path: Path) -> None:
    folder = tmp_path / "svc"
    folder.mkdir()
    with LockFile(folder / "x.lock") as lock:
        folder.rename(tmp_path / "elsewhere")
        folder.write_text("no folder any more")
        assert not lock.is_current()


def test_whoever_waits_gets_the_file_that_is_there_then(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    first, second = LockFile(path), LockFile(path, wait_seconds=10.0)
    first.acquire()
    waiting = threading.Thread(target=second.acquire)
    waiting.start()
    path.unlink()
    waiting.join(10.0)

    assert second.is_current()
    assert not first.is_current()
    first.release()
    second.release()


def test_a_folder_that_is_missing_is_named_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"gone/x\.lock: No such file.*make it again"):
        LockFile(tmp_path / "gone" / "x.lock").acquire()
