"""Streams of rows: from any position, only what is stored, woken by the writer, bounded."""

import threading
from pathlib import Path

import pytest

from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput, LimitExceeded, TooManyStreams, Unavailable
from bernstein_journal import watchers as module
from bernstein_journal.watchers import RowPart, WatchedRows, Watchers, WatchPlace
from bernstein_runtime import limits
from bernstein_store.files import FileStore

RUN = "r1"


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    made = FileStore(tmp_path)
    made.make_run(RUN)
    return made


def write(store: FileStore, content: bytes, *, sealed: bool = False) -> None:
    store.put(paths.journal_path(RUN), content)
    if sealed:
        store.put(paths.seal_path(RUN), b"{}")


def watchers(store: FileStore) -> Watchers:
    return Watchers(store, threading.Semaphore(limits.WATCHERS_MAX))


def watched(store: FileStore, start: int = 0) -> list[WatchedRows | RowPart | WatchPlace]:
    return list(watchers(store).watch(RUN, start, lambda: True))


def rows(items: list[WatchedRows | RowPart | WatchPlace]) -> list[tuple[int, list[bytes]]]:
    return [(each.first_index, each.lines) for each in items if isinstance(each, WatchedRows)]


def test_a_sealed_run_is_given_whole_and_ends(store: FileStore) -> None:
    write(store, b"a\nb\nc\n", sealed=True)

    assert watched(store) == [
        WatchPlace(0, is_sealed=True),
        WatchedRows(0, [b"a", b"b", b"c"]),
        WatchPlace(3, is_sealed=True),
    ]


@pytest.mark.parametrize(
    ("start", "given"), [(1, [(1, [b"b", b"c"])]), (2, [(2, [b"c"])]), (3, [])]
)
def test_a_stream_begins_at_any_position(
    store: FileStore, start: int, given: list[tuple[int, list[bytes]]]
) -> None:
    write(store, b"a\n\nb\nc\n", sealed=True)

    assert rows(watched(store, start)) == given


@pytest.mark.parametrize("start", [4, 99, -1])
def test_a_position_that_no_row_has_is_refused(store: FileStore, start: int) -> None:
    write(store, b"a\nb\nc\n", sealed=True)

    with pytest.raises(InvalidInput, match="3 rows") if start > 0 else pytest.raises(InvalidInput):
        watched(store, start)


def test_line_ends_of_any_kind_and_blank_lines_are_no_part_of_rows(store: FileStore) -> None:
    write(store, b"a\r\nb\rc\n \n", sealed=True)

    assert rows(watched(store)) == [(0, [b"a", b"b", b"c"])]


def test_a_row_without_its_end_waits(store: FileStore) -> None:
    write(store, b"a\nhal", sealed=True)

    assert rows(watched(store)) == [(0, [b"a"])]


def test_only_what_is_on_stable_storage_is_given(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, b"a\nb\n", sealed=True)
    monkeypatch.setattr(store, "stored_size", lambda name: 2)

    assert rows(watched(store)) == [(0, [b"a"])]


def test_rows_are_sent_in_parts_and_a_large_one_alone(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_BYTES", 10)
    write(store, b"aaaa\nbbbb\n" + b"c" * 30 + b"\nd\n", sealed=True)

    assert [first for first, _ in rows(watched(store))] == [0, 2, 3]


def test_a_row_that_no_message_carries_is_refused(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROW_BYTES_MAX", 10)
    write(store, b"a\n" + b"c" * 30 + b"\n", sealed=True)

    with pytest.raises(LimitExceeded, match="row 1"):
        watched(store)


def test_a_watcher_is_woken_when_rows_come(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bernstein_store.files.POLL_SECONDS", 60.0)
    write(store, b"a\n")
    made = watchers(store)
    stream = made.watch(RUN, 0, lambda: True)
    assert [next(stream) for _ in range(3)][1:] == [
        WatchedRows(0, [b"a"]),
        WatchPlace(1, is_sealed=False),
    ]

    def append() -> None:
        write(store, b"a\nb\n", sealed=True)
        made.wake(paths.journal_path(RUN))

    timer = threading.Timer(0.05, append)
    timer.start()
    rest = list(stream)
    timer.join()

    assert rows(rest) == [(1, [b"b"])]
    assert rest[-1] == WatchPlace(2, is_sealed=True)


def test_a_watch_ends_when_nobody_wants_it(store: FileStore) -> None:
    write(store, b"a\n")
    wanted = iter([True, False])

    items = list(watchers(store).watch(RUN, 0, lambda: next(wanted)))

    assert rows(items) == [(0, [b"a"])]


def test_a_stop_ends_every_watch_with_a_word(store: FileStore) -> None:
    write(store, b"a\n")
    made = watchers(store)
    stream = made.watch(RUN, 0, lambda: True)
    next(stream)
    made.stop()

    with pytest.raises(Unavailable):
        list(stream)


def test_watchers_are_bounded_and_make_room_when_they_end(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bernstein_runtime.limits.WATCHERS_MAX", 1)
    write(store, b"a\n", sealed=True)
    made = watchers(store)
    first = made.watch(RUN, 0, lambda: True)
    next(first)

    with pytest.raises(TooManyStreams):
        next(made.watch(RUN, 0, lambda: True))

    first.close()  # type: ignore[attr-defined]  # a generator
    assert rows(list(made.watch(RUN, 0, lambda: True))) == [(0, [b"a"])]
