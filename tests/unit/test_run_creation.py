"""A run is made whole or not at all, and only where it could be finished."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bernstein_formats.errors import DiskFull, StoreFailed
from bernstein_journal.creation import RunMaker
from bernstein_journal.ledger_view import OwnLedger
from bernstein_journal.readiness import readiness
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.places import Places
from bernstein_store.files import FileStore


class FullStore(FileStore):
    """A disk that has room for folders and for nothing else."""

    def put_parts(self, name: str, parts: Iterator[bytes]) -> int:
        raise DiskFull(f"no space left for {name}")


def places_in(folder: Path) -> Places:
    return Places(folder / ".sdd", folder / "run", folder / "secrets")


def ready(places: Places) -> Callable[[], None]:
    return readiness(places, FileStore(places.sdd_dir), OwnLedger(places), lambda: None)


def test_a_run_whose_files_find_no_room_leaves_no_folder(tmp_path: Path) -> None:
    maker = RunMaker(FullStore(tmp_path), SystemClock(), lambda: None)
    with pytest.raises(DiskFull):
        maker.make("r1", "mine-1", b'{"run_id": "r1"}', b"")
    assert list((tmp_path / "runs").iterdir()) == []

    maker = RunMaker(FileStore(tmp_path), SystemClock(), lambda: None)
    assert maker.make("r1", "mine-1", b'{"run_id": "r1"}', b"") == "r1"
    assert (tmp_path / "runs" / "r1" / "metadata.json").exists()


@pytest.mark.parametrize("which", range(5))
def test_a_place_that_cannot_be_written_is_named_before_a_run_is_begun(
    tmp_path: Path, which: int
) -> None:
    places = places_in(tmp_path)
    secrets = places.secrets_dir
    folders = places.sdd_dir, places.sdd_dir / "runs", places.state_dir, secrets, secrets / "signer"
    folders[which].parent.mkdir(parents=True, exist_ok=True)
    folders[which].write_text("in the way")
    with pytest.raises(StoreFailed, match=f"{folders[which]} cannot be written"):
        ready(places)()


def test_a_ledger_that_is_no_file_is_named_before_a_run_is_begun(tmp_path: Path) -> None:
    (places_in(tmp_path).secrets_dir / "signer" / "ledger.jsonl").mkdir(parents=True)
    with pytest.raises(StoreFailed, match=r"ledger\.jsonl cannot be written"):
        ready(places_in(tmp_path))()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_named_before_a_run_is_begun(tmp_path: Path) -> None:
    secrets = places_in(tmp_path).secrets_dir
    secrets.mkdir(parents=True)
    secrets.chmod(0o500)
    with pytest.raises(StoreFailed, match=f"{secrets} cannot be written"):
        ready(places_in(tmp_path))()


def test_places_that_are_not_made_yet_are_good_enough(tmp_path: Path) -> None:
    ready(places_in(tmp_path))()
