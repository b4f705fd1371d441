"""How one file is shipped: compared, extended in whole lines, or refused by name."""

import json
import os
import tempfile
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.chain_growth import Growth, JournalGrowth, Lines
from bernstein_formats.errors import (
    ChainBroken,
    ForeignWriter,
    HeadMoved,
    LimitExceeded,
    RunExists,
    RunSealed,
)
from bernstein_formats.event_journal import START, next_row
from bernstein_importer.shipping import Shipment, Target
from bernstein_importer.source import Source
from bernstein_runtime import limits


class Stored:
    """The other side as its contract says it is."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def append(self, start: int, data: bytes, prefix: bytes | None = None) -> int:
        if prefix is not None and sha256(self.data[:start]).digest() != prefix:
            raise HeadMoved("other", size_bytes=len(self.data))
        if self.data[start : start + len(data)] == data and start + len(data) <= len(self.data):
            return len(self.data)
        if start != len(self.data):
            raise HeadMoved("moved", size_bytes=len(self.data))
        self.data += data
        return len(self.data)

    def shipment(self, growth: Growth | None = None, *, splits: bool = False) -> Shipment:
        size = partial(self.append, 0, b"")
        target = Target("run r1", size, self.append, growth or Lines(), takes_split_lines=splits)
        return Shipment(target)


def advanced(path: Path, shipment: Shipment, *, is_sealed: bool = False) -> int:
    with Source(path.parent.resolve()).open(path.name) as file:
        assert file is not None
        return shipment.advance(file, is_sealed=is_sealed)


def rested(path: Path, shipment: Shipment) -> None:
    with Source(path.parent.resolve()).open(path.name) as file:
        assert file is not None
        shipment.rest(file)


def journal(count: int) -> list[bytes]:
    """Rows that link."""
    lines, head = [], START
    for number in range(count):
        line, head = next_row(head, "x", b'{"n": %d}' % number, 1.0, 0.0)
        lines.append(line + b"\n")
    return lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def rewrite(path: Path, content: bytes) -> None:
    """Write in place, as a program does that keeps the file, and sets its times back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"x", b"\n")), max_size=6))
def test_what_is_stored_is_the_whole_lines_of_a_growing_file(parts: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, stored = Path(folder) / "journal.jsonl", Stored()
        shipment = stored.shipment()
        content = b""
        for part in parts:
            content += part
            with path.open("ab") as file:
                file.write(part)
            advanced(path, shipment)
            whole = content[: content.rfind(b"\n") + 1]
            assert stored.data == whole
            assert (shipment.offset, shipment.rows) == (len(whole), whole.count(b"\n"))
            assert shipment.torn_bytes == len(content) - len(whole)
            afresh = stored.shipment()
            assert (advanced(path, afresh), afresh.rows) == (0, shipment.rows)


def test_a_torn_tail_is_left_for_later_and_reported(path: Path) -> None:
    path.write_bytes(b'{"a": 1}\n{"b"')
    stored = Stored()
    shipment = stored.shipment()
    advanced(path, shipment)
    assert (stored.data, shipment.torn_bytes) == (b'{"a": 1}\n', 4)
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert advanced(path, shipment) == 9
    assert (shipment.torn_bytes, shipment.rows) == (0, 2)


def test_a_line_that_is_no_row_waits_until_a_row_follows_it(path: Path) -> None:
    lines = journal(3)
    path.write_bytes(lines[0] + b"half a row\n")
    stored = Stored()
    shipment = stored.shipment(JournalGrowth())
    advanced(path, shipment)
    assert (stored.data, shipment.torn_bytes) == (lines[0], 11)
    path.write_bytes(lines[0])  # as a repair by the peer leaves it
    assert advanced(path, shipment) == 0
    path.write_bytes(lines[0] + b"half a row\n" + b"".join(lines[1:]))
    advanced(path, shipment)
    assert (stored.data, shipment.rows) == (path.read_bytes(), 4)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_row_that_does_not_link_is_named_with_what_was_expected(
    path: Path, *, at_once: bool
) -> None:
    lines = journal(4)
    path.write_bytes(b"".join(lines if at_once else lines[:2]))
    stored = Stored()
    shipment = stored.shipment(JournalGrowth())
    if not at_once:
        advanced(path, shipment)
    path.write_bytes(b"".join([*lines[:2], lines[3], lines[2]]))
    with pytest.raises(ChainBroken, match=r"run r1: .*journal.jsonl, line 3 does not link") as told:
        advanced(path, shipment)
    assert stored.data == b"".join(lines[:2])
    facts = told.value.metadata
    assert (facts["line"], facts["path"]) == ("3", str(path))
    assert facts["actual_hash"] == json.loads(lines[3])["event_hash"]
    assert facts["expected_hash"] in told.value.message


def test_another_content_is_refused_and_the_line_named(path: Path) -> None:
    path.write_bytes(b"one\nTWO\nthree\n")
    stored = Stored(b"one\ntwo\n")
    with pytest.raises(RunExists, match=r"from line 1 on"):
        advanced(path, stored.shipment())
    assert stored.data == b"one\ntwo\n"


def test_a_file_that_became_shorter_is_refused(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored(b"one\ntwo\n")
    with pytest.raises(ForeignWriter, match="it was cut"):
        advanced(path, stored.shipment())
    assert stored.data == b"one\ntwo\n"


@pytest.mark.parametrize("rests", [True, False])
@pytest.mark.parametrize("content", [b"ONE\ntwo\n", b"one\nTWO\nthree\n", b"one\n"])
def test_a_file_that_was_rewritten_between_two_looks_is_refused(
    path: Path, content: bytes, *, rests: bool
) -> None:
    path.write_bytes(b"one\ntwo\n")
    stored = Stored()
    shipment = stored.shipment()
    advanced(path, shipment)
    if rests:
        rested(path, shipment)
    rewrite(path, content)
    with pytest.raises(ForeignWriter, match="rewritten or cut in its first 8 bytes"):
        advanced(path, shipment)
    assert stored.data == b"one\ntwo\n"


def test_a_rewritten_beginning_is_found_when_the_file_comes_to_rest(path: Path) -> None:
    long = b"y" * 100 + b"\n"
    path.write_bytes(b"one\n" + long)
    stored = Stored()
    shipment = stored.shipment()
    advanced(path, shipment)
    path.write_bytes(b"ONE\n" + long * 2)  # grown, and its end is as it was
    advanced(path, shipment)
    with pytest.raises(ForeignWriter, match="from line 1 on"):
        rested(path, shipment)


def test_a_file_that_was_replaced_by_a_longer_copy_of_itself_goes_on(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored()
    shipment = stored.shipment()
    advanced(path, shipment)
    copy = path.with_name("copy")
    copy.write_bytes(b"one\ntwo\n")
    copy.replace(path)
    assert advanced(path, shipment) == 4
    rested(path, shipment)
    with path.open("ab") as file:
        file.write(b"three\n")
    assert advanced(path, shipment) == 6
    assert stored.data == b"one\ntwo\nthree\n"


def test_a_sealed_run_takes_no_more_rows_but_the_same_ones(path: Path) -> None:
    path.write_bytes(b"one\n")
    stored = Stored(b"one\n")
    assert advanced(path, stored.shipment(), is_sealed=True) == 0
    path.write_bytes(b"one\ntwo\n")
    with pytest.raises(RunSealed, match="sealed here with the first 4 bytes"):
        advanced(path, stored.shipment(), is_sealed=True)


def test_a_row_that_is_too_long_is_named_and_the_rows_before_it_are_taken(path: Path) -> None:
    path.write_bytes(b"one\n" + b"x" * limits.PIECE_BYTES_MAX + b"\nthree\n")
    stored = Stored()
    with pytest.raises(LimitExceeded, match=r"line 2 \(byte 4\)"):
        advanced(path, stored.shipment())
    assert stored.data == b"one\n"


def test_a_row_that_is_too_long_for_a_piece_goes_in_several_where_that_is_taken(
    path: Path,
) -> None:
    content = b"one\n" + b"x" * (2 * limits.PIECE_BYTES_MAX + 5) + b"\nthree\n"
    path.write_bytes(content)
    # Half of the long row is there: an import was cut off.
    stored = Stored(content[: limits.PIECE_BYTES_MAX + 4])
    shipment = stored.shipment(splits=True)
    advanced(path, shipment)
    assert (stored.data, shipment.rows) == (content, 3)


def test_a_long_file_is_sent_in_pieces_of_whole_lines(path: Path) -> None:
    line = b"y" * 299_999 + b"\n"
    path.write_bytes(line * 10)
    stored = Stored(line * 5)
    assert advanced(path, stored.shipment()) == 5 * len(line)
    assert stored.data == line * 10
