"""What every store promises; each driver runs the same suite."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bernstein_formats.acknowledged import Acknowledged
from bernstein_formats.errors import ForeignWriter, InvalidInput, RunExists, StoreFailed
from bernstein_store.store import Mark, Store

NAME = "runs/r1/journal.jsonl"


def mark(request_id: str, size: int) -> Mark:
    return Mark(request_id, size, f"answer of {request_id}")


def test_appended_bytes_are_read_back_in_order(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [])
    log.append(b"two\n", [])

    assert log.size == 8
    assert b"".join(store.read(NAME)) == b"one\ntwo\n"
    assert b"".join(store.read(NAME, 4)) == b"two\n"
    assert b"".join(store.read(NAME, 2, 6)) == b"e\ntw"
    assert store.size(NAME) == 8


def test_a_reopened_log_knows_its_marks_and_goes_on_behind_its_bytes(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"two\nthree\n", [mark("b", 8), mark("c", 14)])
    log.close()

    again = store.open_log(NAME)

    assert again.size == 14
    assert list(again.marks) == [mark("a", 4), mark("b", 8), mark("c", 14)]


def test_a_run_is_made_once(store: Store) -> None:
    store.make_run("r1")

    with pytest.raises(RunExists):
        store.make_run("r1")
    assert store.run_ids() == ["r1"]


def test_a_rewritten_log_is_gone_on_with_and_keeps_its_marks(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\ntwo\nthree\n", [mark("a", 4), mark("b", 14)])
    log.close()

    store.rewrite_log(NAME, lambda: iter([b"one\n", b"two\n"]))

    again = store.open_log(NAME)
    assert again.size == 8
    assert [each.request_id for each in again.marks] == ["a", "b"]
    again.append(b"four\n", [])
    assert store.get(NAME) == b"one\ntwo\nfour\n"


def test_the_names_in_a_folder_are_its_files_sorted(store: Store) -> None:
    for name in ("audit/b.jsonl", "audit/a.jsonl", "audit/archive/c.jsonl.gz"):
        store.put(name, b"x")
    assert store.names("audit") == ["a.jsonl", "b.jsonl"]
    assert store.names("nowhere") == []


def test_a_reader_gives_pieces_and_sees_the_file_grow(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\ntwo\n", [])
    reader = store.open_reader(NAME)
    assert reader is not None

    assert reader.read(4, 4) == b"two\n"
    assert reader.facts()[0] == 8
    log.append(b"three\n", [])
    assert reader.facts()[0] == 14
    assert reader.read(8, 100) == b"three\n"
    assert store.open_reader("runs/r1/other") is None


def test_a_removed_file_is_gone_and_may_be_removed_again(store: Store) -> None:
    store.put("runs/r1/note.json", b"{}")
    store.remove("runs/r1/note.json")
    store.remove("runs/r1/note.json")
    assert store.get("runs/r1/note.json") is None


def test_a_small_file_is_replaced_whole_or_not_at_all(store: Store) -> None:
    store.put("runs/r1/seal.json", b"old")

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise StoreFailed("the source broke")

    with pytest.raises(StoreFailed, match="the source broke"):
        store.put_parts("runs/r1/seal.json", parts())

    assert store.get("runs/r1/seal.json") == b"old"
    assert store.names_below("runs/r1") == ["seal.json"]


def test_what_is_not_there_reads_as_nothing_and_nothing_is_made(store: Store) -> None:
    assert store.get(NAME) is None
    assert store.size(NAME) is None
    assert store.stored_size(NAME) == 0
    assert store.changed_at(NAME) == 0
    assert list(store.read(NAME)) == []
    assert store.marks_of(NAME) == []
    assert store.open_reader(NAME) is None
    assert not store.has_run("r1")
    assert store.run_ids() == []
    assert store.names_below("runs") == []


def test_a_run_is_there_as_soon_as_one_of_its_files_is(store: Store) -> None:
    store.put("runs/r1/metadata.json", b"{}")
    store.open_log("runs/r2/journal.jsonl").close()

    assert sorted(store.run_ids()) == ["r1", "r2"]
    assert store.has_run("r1")
    with pytest.raises(RunExists):
        store.make_run("r2")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "r1\0", "runs"])
def test_no_other_name_is_a_run(store: Store, name: str) -> None:
    store.put("runs/r1/metadata.json", b"{}")

    assert not store.has_run(name)


def test_a_removed_run_leaves_what_is_kept_and_nothing_else(store: Store) -> None:
    for run_id in ("r1", "r11"):
        for name in ("journal.jsonl", "other/deep"):
            store.put(f"runs/{run_id}/{name}", b"x")
    store.put("runs/r1/seal.json", b"x")
    store.make_run("r2")

    for run_id in ("r1", "r2"):
        assert store.is_own_folder(run_id)
        store.remove_run(run_id, {"seal.json"}, "journal.jsonl")

    assert store.names_below("runs") == ["r1/seal.json", "r11/journal.jsonl", "r11/other/deep"]
    assert sorted(store.run_ids()) == ["r1", "r11"]
    with pytest.raises(InvalidInput):
        store.remove_run("r2", {"seal.json"}, "journal.jsonl")


def test_what_came_torn_is_set_aside_and_kept(store: Store) -> None:
    store.put(NAME, b"good\ntorn")
    log = store.open_log(NAME)

    log.set_aside(5)
    log.append(b"next\n", [mark("a", 10)])

    assert store.get(f"{NAME}.torn-1") == b"torn"
    assert store.get(NAME) == b"good\nnext\n"


def test_what_was_acknowledged_is_not_set_aside(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])
    log.append(b"two\n", [mark("b", 8)])
    log.close()

    with pytest.raises(ForeignWriter):
        store.open_log(NAME).set_aside(2)
    assert store.get(NAME) == b"one\ntwo\n"


def test_large_appends_and_files_come_back_as_they_were(store: Store) -> None:
    data = bytes(range(256)) * 5000
    log = store.open_log(NAME)
    log.append(data, [])
    log.append(b"end", [])
    store.put_parts("runs/r1/big", iter([data, b"", b"middle", data]))

    assert store.get(NAME) == data + b"end"
    assert store.get("runs/r1/big") == data + b"middle" + data
    assert b"".join(store.read(NAME, 700_000, 1_100_000)) == data[700_000:1_100_000]


def test_bytes_are_never_taken_for_text(store: Store) -> None:
    data = b"\x00\xff\xed\xa0\x80'\\;\n"
    store.open_log(NAME).append(data, [])

    assert store.get(NAME) == data


def test_an_ended_log_has_its_note_and_takes_nothing_more(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [])

    with pytest.raises(ForeignWriter):
        store.end_log(NAME, 3, "runs/r1/seal.json", b"too early")
    assert store.get("runs/r1/seal.json") is None
    store.end_log(NAME, 4, "runs/r1/seal.json", b"seal")

    assert store.get("runs/r1/seal.json") == b"seal"
    assert store.get(NAME) == b"one\n"


def test_with_nobody_else_there_is_nothing_to_catch_up_with(store: Store) -> None:
    log = store.open_log(NAME)
    log.append(b"one\n", [mark("a", 4)])

    assert list(log.catch_up()) == []
    assert log.size == 4


def test_changes_are_told_to_who_asked(store: Store) -> None:
    heard: list[str] = []
    store.tell(heard.append)
    log = store.open_log(NAME)
    log.append(b"one\n", [])
    store.put("runs/r1/seal.json", b"seal")

    assert list(dict.fromkeys(heard)) == [NAME, "runs/r1/seal.json"]


def test_a_lock_is_held_by_one_thread(store: Store) -> None:
    entered = []

    def enter(number: int) -> None:
        with store.locked("audit/.chain.lock"):
            entered.append(number)
            store.put(f"audit/{number}", b"x")  # work goes on while it is held
            entered.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(enter, range(8)))

    assert entered[::2] == entered[1::2]


def test_where_a_file_is_can_be_told(store: Store) -> None:
    assert store.where(NAME).endswith(f"/{NAME}")
    store.check()


def test_what_was_acknowledged_is_known_with_its_answer(store: Store) -> None:
    for name in ("audit/b.jsonl", "audit/a.jsonl", "runs/r1/journal.jsonl"):
        log = store.open_log(name)
        log.append(b"one\n", [mark("a", 4)])
        log.append(b"two\n", [mark("b", 8)])
    store.put("audit/put.jsonl", b"theirs\n")

    assert sorted(store.logs_in("audit")) == ["audit/a.jsonl", "audit/b.jsonl"]
    assert store.acknowledged("audit/a.jsonl") == Acknowledged(8, "answer of b")
    assert store.acknowledged("audit/put.jsonl") == Acknowledged()
    assert store.acknowledged("audit/none.jsonl") == Acknowledged()
    log.close()
    store.accept_log("runs/r1/journal.jsonl")
    assert store.open_log("runs/r1/journal.jsonl").size == 8
