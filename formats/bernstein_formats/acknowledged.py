"""What was acknowledged of an append-only file, as its marks beside it say; what of it is missing.

A mark is a line `base size time number request_id answer`. One that begins where it ends, without a
request id, was written once the bytes before it were durable: they were there, whoever comes later.
The answer names the hash of the last row, which every chain stores as a member of that row.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import InvalidInput
from bernstein_formats.receipt_lines import read_object

MARKS_FOLDER: Final = "svc/marks"
_MARKS_SUFFIX: Final = ".marks"
WHAT_TO_DO: Final = (
    "restore it from a copy; if there is none, `bernstein services accept-loss` records that and"
    " goes on with what is there"
)
_TAIL_BYTES: Final = 64 * 1024
_HASH_CHARACTERS: Final = 64
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A file's first bytes, which were stored and said to be."""

    size: int = 0
    # What was answered with the last of them; "" where that is not known any more.
    answer: str = ""

    @property
    def head(self) -> str:
        """The hash of the last row; "" where it is not known."""
        words = self.answer.split(" ")
        return next((word for word in words if len(word) >= _HASH_CHARACTERS), "")


@dataclass(frozen=True, slots=True)
class MarkLine:
    """One line of a marks file."""

    base: int
    size: int
    written: int
    number: int
    request_id: str
    answer: str

    @property
    def is_confirmation(self) -> bool:
        """Whether the bytes before it were durable when it was written."""
        return self.base == self.size and not self.request_id

    def as_line(self) -> bytes:
        text = f"{self.base} {self.size} {self.written} {self.number}"
        return f"{text} {self.request_id} {self.answer}\n".encode("ascii")


def marks_path(name: str) -> str:
    """Name the marks of a file of the state folder."""
    return f"{MARKS_FOLDER}/{name.replace('/', '__')}{_MARKS_SUFFIX}"


def marked_in(folder: str, marks_names: Iterable[str]) -> list[str]:
    """The names of files directly in `folder` that are among those with marks."""
    prefix = f"{folder.replace('/', '__')}__"
    return [
        f"{folder}/{name.removeprefix(prefix).removesuffix(_MARKS_SUFFIX)}"
        for name in marks_names
        if name.startswith(prefix) and name.endswith(_MARKS_SUFFIX)
    ]


def read_marks(data: bytes) -> list[MarkLine]:
    """All lines but those torn by a crash: their bytes were not acknowledged."""
    found = []
    for line in data.splitlines():
        fields = line.decode("ascii", "replace").split(" ", 5)
        if len(fields) == 6 and all(_NUMBER.fullmatch(field) for field in fields[:4]):
            base, size, written, number = (int(field) for field in fields[:4])
            found.append(MarkLine(base, size, written, number, fields[4], fields[5]))
    return found


def acknowledged(marks: Iterable[MarkLine]) -> Acknowledged:
    """What was answered for certain: what is confirmed, and everything before the last batch."""
    found = Acknowledged()
    for mark in marks:
        if mark.is_confirmation:
            found = Acknowledged(mark.size, mark.answer)
        elif mark.number == 0 and mark.base != found.size:
            found = Acknowledged(mark.base)
    return found


def last_line(read: Callable[[int, int], bytes], end: int) -> bytes:
    """The line that ends at an offset, without its line feed; `read` gives bytes of the file."""
    length = _TAIL_BYTES
    while True:
        start = max(end - length, 0)
        tail = read(start, end).removesuffix(b"\n")
        if not start or b"\n" in tail:
            return tail.rpartition(b"\n")[2]
        length *= 4


def missing(known: Acknowledged, size: int, last_line: bytes) -> str:
    """What is gone from a file of `size` bytes; "" if nothing is.

    `last_line` is the one that ends where the acknowledged bytes do.
    """
    if size < known.size:
        return f"{known.size} bytes were acknowledged, {size} are there"
    if not known.head:
        return ""
    try:
        row = read_object(last_line)
    except InvalidInput:
        row = {}
    if known.head in row.values():
        return ""
    return f"the row {known.head} was acknowledged and is not in its place"


def unreadable(known: Acknowledged, why: str) -> str:
    """What is gone from a file that cannot be read: as far as anybody can tell, all of it."""
    return f"{known.size} bytes were acknowledged and cannot be read: {why}" if known.size else ""
