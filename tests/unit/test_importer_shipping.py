"""How one file is shipped: compared, extended in whole lines, or refused by name."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.errors import (
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunExists,
    RunSealed,
)
from bernstein_importer.shipping import Shipped, Target, ship
from bernstein_importer.source import Source
from bernstein_runtime import limits


class Stored:
    """The other side as its contract says it is."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def append(self, start: int, data: bytes) -> int:
        if self.data[start : start + len(data)] == data and start + len(data) <= len(self.data):
            return len(self.data)
        if start != len(self.data):
            raise HeadMoved("moved", size_bytes=len(self.data))
        self.data += data
        return len(self.data)

    def target(self, **facts: bool) -> Target:
        return Target(lambda: len(self.data), self.append, **facts)


def shipped(path: Path, stored: Stored, before: Shipped | None = None, **target: bool) -> Shipped:
    with Source(path.parent.resolve()).open(path.name) as file:
        assert file is not None
        return ship(file, stored.target(**target), "r1", before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def rewrite(path: Path, content: bytes) -> None:
    """Write in place, as a program does that keeps the file; the clock is seen to move."""
    before = path.stat()
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"x", b"\n")), max_size=6))
def test_what_is_stored_is_the_whole_lines_of_a_growing_file(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, stored, before = Path(folder) / "journal.jsonl", Stored(), None
        content = b""
        for part in parts:
            content += part
            with path.open("ab") as file:
                file.write(part)
            before = shipped(path, stored, before)
            whole = content[: content.rfind(b"\n") + 1]
            assert stored.data == whole
            assert (before.offset, before.rows) == (len(whole), whole.count(b"\n"))
            assert before.torn_bytes == len(content) - len(whole)
            afresh = shipped(path, stored)
            assert (afresh.new_bytes, afresh.rows) == (0, before.rows)


def test_a_torn_tail_is_left_for_later_and_reported(path: Path) -> None:
    path.write_bytes(b'{"a": 1}\n{"b"')
    stored = Stored()
    first = shipped(path, stored)
    assert (stored.data, first.torn_bytes) == (b'{"a": 1}\n', 4)
    with path.open("ab") as file:
        file.write(b": 2}\n")
    second = shipped(path, stored, first)
    assert (second.new_bytes, second.torn_bytes, second.rows) == (9, 0, 2)


def test_another_content_is_refused_and_the_line_named(path: Path) -> None:
    path.write_bytes(b"one\nTWO\nthree\n")
    stored = Stored(b"one\ntwo\n")
    with pytest.raises(RunExists, match=r"from line 1 on") as refused:
        shipped(path, stored)
    assert refused.value.reason == "RUN_EXISTS"
    assert stored.data == b"one\ntwo\n"


def test_a_file_that_became_shorter_is_refused(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored(b"one\ntwo\n")
    with pytest.raises(ForeignWriter, match="it was cut"):
        shipped(path, stored)
    assert stored.data == b"one\ntwo\n"


@pytest.mark.parametrize("content", [b"ONE\ntwo\n", b"one\nTWO\nthree\n", b"one\n"])
def test_a_file_that_was_rewritten_between_two_looks_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(b"one\ntwo\n")
    stored = Stored()
    first = shipped(path, stored)
    rewrite(path, content)
    with pytest.raises((ForeignWriter, RunExists)):
        shipped(path, stored, first)
    assert stored.data == b"one\ntwo\n"


def test_a_file_that_was_replaced_by_a_longer_copy_of_itself_goes_on(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored()
    first = shipped(path, stored)
    copy = path.with_name("copy")
    copy.write_bytes(b"one\ntwo\n")
    copy.replace(path)
    assert shipped(path, stored, first).new_bytes == 4
    assert stored.data == b"one\ntwo\n"


def test_a_sealed_run_takes_no_more_rows_but_the_same_ones(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored(b"one\n")
    assert shipped(path, stored, is_sealed=True).new_bytes == 0
    path.write_bytes(b"one\ntwo\n")
    with pytest.raises(RunSealed, match="sealed here with 1 rows"):
        shipped(path, stored, is_sealed=True)


def test_a_row_that_is_too_long_is_named_and_the_rows_before_it_are_taken(path: Path) -> None:
    path.write_bytes(b"one\n" + b"x" * limits.PIECE_BYTES_MAX + b"\nthree\n")
    stored = Stored()
    with pytest.raises(LimitExceeded, match=r"line 2 \(byte 4\)"):
        shipped(path, stored)
    assert stored.data == b"one\n"


def test_a_row_that_is_too_long_for_a_piece_goes_in_several_where_that_is_taken(
    path: Path,
) -> None:
    content = b"one\n" + b"x" * (2 * limits.PIECE_BYTES_MAX + 5) + b"\nthree\n"
    path.write_bytes(content)
    stored = Stored()
    assert shipped(path, stored, takes_split_lines=True).rows == 3
    assert stored.data == content


def test_a_long_file_is_sent_in_pieces_of_whole_lines(path: Path) -> None:
    line = b"y" * 299_999 + b"\n"
    path.write_bytes(line * 10)
    stored = Stored(line * 5)
    assert shipped(path, stored).new_bytes == 5 * len(line)
    assert stored.data == line * 10
