"""What files promise beyond the contract of all stores: other programs, links, crashes."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bernstein_formats.acknowledged import Acknowledged, marks_path
from bernstein_formats.errors import (
    DiskFull,
    ForeignWriter,
    InvalidInput,
    RowsMissing,
    StoreFailed,
)
from bernstein_store import file_log
from bernstein_store.files import FileStore
from bernstein_store.store import Mark

NAME = "runs/r1/journal.jsonl"


@pytest.fixture
def sdd(tmp_path: Path) -> Path:
    return tmp_path / ".sdd"


@pytest.fixture
def store(sdd: Path) -> FileStore:
    sdd.mkdir()
    return FileStore(sdd)


def mark(request_id: str, size: int) -> Mark:
    return Mark(request_id, size, f"answer of {request_id}")


def before_the_confirmation(sdd: Path, name: str = NAME) -> None:
    """Undo what an append does last, as if it had been killed before."""
    marks = sdd / marks_path(name)
    marks.write_bytes(b"".join(marks.read_bytes().splitlines(keepends=True)[:-1]))


def test_a_torn_tail_of_our_own_is_moved_aside_and_nothing_acknowledged_is_lost(
    store: FileStore, sdd: Path
) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"two\nthree\n", [mark("b", 8), mark("c", 14)])
    log.close()
    # Killed while the second batch was written: its marks are there, half of its bytes too.
    before_the_confirmation(sdd)
    os.truncate(sdd / NAME, 10)

    again = store.open_log(NAME)

    assert again.size == 8
    assert list(again.marks) == [mark("a", 4), mark("b", 8)]
    assert (sdd / NAME).read_bytes() == b"one\ntwo\n"
    assert (sdd / f"{NAME}.torn-1").read_bytes() == b"th"


def test_a_withdrawn_mark_is_not_taken_for_a_later_append(store: FileStore, sdd: Path) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"lost\n", [mark("lost", 9)])
    log.close()
    before_the_confirmation(sdd)
    os.truncate(sdd / NAME, 4)  # the crash came before the bytes
    log = store.open_log(NAME)
    log.append(b"other bytes\n", [mark("b", 16)])
    log.close()

    assert list(store.open_log(NAME).marks) == [mark("a", 4), mark("b", 16)]


def test_whole_lines_whose_mark_is_lost_stay(store: FileStore, sdd: Path) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.close()
    with (sdd / NAME).open("ab") as file:
        file.write(b"two\n")

    again = store.open_log(NAME)

    assert again.size == 8
    assert (sdd / NAME).read_bytes() == b"one\ntwo\n"


def test_a_file_shorter_than_what_was_acknowledged_is_refused(store: FileStore, sdd: Path) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [])
    log.append(b"two\n", [])
    log.close()
    os.truncate(sdd / NAME, 2)

    with pytest.raises(RowsMissing, match="shorter than it was: 8 bytes"):
        store.open_log(NAME)


@pytest.mark.parametrize("left", [None, 0, 4])
def test_the_last_append_is_missed_too_and_nothing_is_made_in_its_place(
    store: FileStore, sdd: Path, left: int | None
) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"two\n", [mark("b", 8)])
    log.close()
    if left is None:
        (sdd / NAME).unlink()
    else:
        os.truncate(sdd / NAME, left)

    with pytest.raises(RowsMissing, match="8 bytes were acknowledged"):
        store.open_log(NAME)
    assert store.size(NAME) == left
    assert store.acknowledged(NAME) == Acknowledged(8, "answer of b")


def test_what_is_left_is_gone_on_with_once_the_loss_was_accepted(
    store: FileStore, sdd: Path
) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"two\n", [mark("b", 8)])
    log.close()
    os.truncate(sdd / NAME, 4)
    store.accept_log(NAME)
    assert store.acknowledged(NAME) == Acknowledged(4)
    log = store.open_log(NAME)
    log.append(b"three\n", [mark("c", 10)])
    assert store.acknowledged(NAME) == Acknowledged(10, "answer of c")


def test_logs_are_known_by_their_marks_when_their_files_are_gone(
    store: FileStore, sdd: Path
) -> None:
    for name in ("audit/b.jsonl", "audit/a.jsonl", "runs/r1/journal.jsonl"):
        store.open_log(name).append(b"one\n", [])
    (sdd / "audit/a.jsonl").unlink()
    assert sorted(store.logs_in("audit")) == ["audit/a.jsonl", "audit/b.jsonl"]
    assert store.acknowledged("audit/a.jsonl").size == 4
    assert store.acknowledged("audit/none.jsonl") == Acknowledged()


def test_a_mark_that_could_not_be_written_leaves_none_of_it(
    store: FileStore, sdd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(file_log, "write_all", half)
        with pytest.raises(DiskFull):
            log.append(b"two\n", [mark("b", 8)])
    log.append(b"three\n", [mark("c", 10)])
    log.close()
    assert list(store.open_log(NAME).marks) == [mark("a", 4), mark("c", 10)]


@pytest.mark.parametrize("change", ["append", "truncate", "replace", "remove"])
def test_another_program_at_the_file_is_noticed_before_the_next_append(
    store: FileStore, sdd: Path, change: str
) -> None:
    path = sdd / NAME
    log = store.open_log(NAME)
    log.append(b"one\n", [])
    if change == "append":
        with path.open("ab") as file:
            file.write(b"foreign\n")
    elif change == "truncate":
        os.truncate(path, 1)
    elif change == "replace":
        path.with_suffix(".new").write_bytes(b"one\n")
        path.with_suffix(".new").replace(path)
    else:
        path.unlink()

    with pytest.raises(ForeignWriter):
        log.append(b"two\n", [])
    with pytest.raises(ForeignWriter):
        log.append(b"two\n", [])


def test_a_link_that_leads_out_is_not_followed(store: FileStore, sdd: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (sdd / "runs").mkdir()
    (sdd / "runs" / "linked").symlink_to(tmp_path / "elsewhere")

    assert store.run_ids() == []
    with pytest.raises(InvalidInput, match="leads out of"):
        store.size("runs/linked/journal.jsonl")
    with pytest.raises(InvalidInput, match="leads out of"):
        store.open_log("runs/linked/journal.jsonl")


def test_a_link_inside_the_runs_is_another_name_of_that_run(store: FileStore, sdd: Path) -> None:
    store.make_run("r1")
    store.open_log(NAME).append(b"one\n", [])
    (sdd / "runs" / "alias").symlink_to("r1")

    assert sorted(store.run_ids()) == ["alias", "r1"]
    assert b"".join(store.read("runs/alias/journal.jsonl")) == b"one\n"


def test_a_folder_in_a_files_place_is_named(store: FileStore, sdd: Path) -> None:
    (sdd / NAME).mkdir(parents=True)

    with pytest.raises(StoreFailed, match="is a folder"):
        store.size(NAME)


def test_a_log_of_another_program_is_rewritten_too(store: FileStore, sdd: Path) -> None:
    store.make_run("r1")
    (sdd / NAME).write_bytes(b"one\ntw")

    store.rewrite_log(NAME, lambda: iter([b"one\n"]))

    assert store.open_log(NAME).size == 4


def test_a_private_log_is_its_owners_alone(store: FileStore, sdd: Path) -> None:
    (sdd / NAME).parent.mkdir(parents=True)
    (sdd / NAME).write_bytes(b"theirs\n")
    store.open_log(NAME, private=True).close()
    assert (sdd / NAME).stat().st_mode & 0o777 == 0o600
    assert (sdd / NAME).parent.stat().st_mode & 0o777 == 0o700


def test_a_lock_is_one_that_other_programs_see(store: FileStore, sdd: Path) -> None:
    path = sdd / "audit/.chain.lock"
    with store.locked("audit/.chain.lock"), path.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_to_a_run_is_that_run_and_any_other_link_is_refused(
    store: FileStore, sdd: Path
) -> None:
    store.make_run("r1")
    (sdd / "runs" / "r1" / "below").mkdir()
    for name, target in (("alias", "r1"), ("below", "r1/below"), ("out", sdd.parent)):
        (sdd / "runs" / name).symlink_to(target)
    assert (store.real_run("r1"), store.real_run("alias")) == ("r1", "r1")
    assert store.real_run("not-there") == "not-there"
    for name in ("below", "out"):
        with pytest.raises(InvalidInput, match="is a link"):
            store.real_run(name)


def test_nothing_is_written_through_a_link(store: FileStore, sdd: Path) -> None:
    store.put("runs/r1/note.json", b"mine")
    (sdd / "runs" / "alias").symlink_to("r1")
    (sdd / "runs" / "r2").mkdir()
    (sdd / "runs" / "r2" / "note.json").symlink_to("../r1/note.json")
    for name in ("runs/alias/note.json", "runs/r2/note.json"):
        assert store.get(name) == b"mine"
        for write in (
            lambda name: store.put(name, b"other"),
            store.remove,
            store.open_log,
            lambda name: store.rewrite_log(name, lambda: iter([b"other"])),
        ):
            with pytest.raises(InvalidInput, match="through a link"):
                write(name)
    assert store.get("runs/r1/note.json") == b"mine"


def test_a_state_folder_whose_parts_are_elsewhere_is_written_to(
    store: FileStore, sdd: Path, tmp_path: Path
) -> None:
    (tmp_path / "large-disk").mkdir()
    (sdd / "runs").symlink_to(tmp_path / "large-disk")
    store.put("runs/r1/note.json", b"mine")
    assert (tmp_path / "large-disk" / "r1" / "note.json").read_bytes() == b"mine"


def test_what_is_no_regular_file_is_refused_at_once(store: FileStore, sdd: Path) -> None:
    (sdd / NAME).parent.mkdir(parents=True)
    os.mkfifo(sdd / NAME)
    uses: tuple[Callable[[str], object], ...] = (
        lambda name: list(store.read(name)),
        store.size,
        store.get,
        store.open_reader,
        store.open_log,
    )
    for use in uses:
        with pytest.raises(StoreFailed, match="not a regular file"):
            use(NAME)
