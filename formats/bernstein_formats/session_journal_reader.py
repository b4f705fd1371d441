"""Reads a step journal line by line; no content makes it raise.

Rules: docs/formats/session-journal.md, section 4. Lines are counted from 1, blank ones included.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from bernstein_formats.canonical import parse_json_unique
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.journal_reader import Row, end_of_last_line, is_blank, parse_row
from bernstein_formats.session_journal import normal_row


class FaultKind(StrEnum):
    """What is wrong with a step journal or with a receipt of one."""

    INVALID_JSON = "invalid_json"
    NOT_OBJECT = "not_object"
    SEQ = "seq_mismatch"
    PREV_HASH = "prev_hash_mismatch"
    STEP_HASH = "step_hash_mismatch"
    EXPECTED_HEAD = "expected_head_mismatch"
    JOURNAL_ABSENT = "journal_absent"
    MANIFEST_HEAD = "manifest_head_mismatch"
    MANIFEST_STEPS = "manifest_steps_mismatch"
    MANIFEST_BLOBS = "manifest_blobs_mismatch"
    BLOB_DIGEST = "blob_digest_mismatch"
    BLOB_UNLISTED = "blob_unlisted"
    SIGNATURE_WITHOUT_VERIFIER = "signature_without_verifier"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_BAD = "signature_bad"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, in words, and on which physical line where there is one."""

    kind: FaultKind
    line: int | None
    text: str


def physical_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Give the lines with their ends (LF, CRLF or a lone CR); the last one may have none."""
    begun: list[bytes] = []
    for chunk in chunks:
        cut = end_of_last_line(chunk)
        if cut:
            yield from b"".join((*begun, chunk[:cut])).splitlines(keepends=True)
            begun = []
        begun.append(chunk[cut:])
    yield from b"".join(begun).splitlines(keepends=True)


def numbered_rows(chunks: Iterable[bytes]) -> Iterator[tuple[int, Row | Fault]]:
    """Give each line that is not blank with its number: a row, or why it is none."""
    for number, line in enumerate(physical_lines(chunks), 1):
        if line.strip():
            yield from _numbered(number, line)


def _numbered(number: int, line: bytes) -> Iterator[tuple[int, Row | Fault]]:
    try:
        value = parse_row(line, parse_json_unique)
    except InvalidInput as error:
        if not is_blank(line):
            yield number, Fault(FaultKind.INVALID_JSON, number, f"invalid JSON ({error.message})")
        return
    if isinstance(value, dict):
        yield number, value
    else:
        yield number, Fault(FaultKind.NOT_OBJECT, number, "entry is not a JSON object")


def entries(chunks: Iterable[bytes]) -> Iterator[Row]:
    """Give every row in normal form, in file order; what is no row is passed over.

    No hash is checked. Raises RowMalformed, with the line, for a row that has no normal form.
    """
    for number, row in numbered_rows(chunks):
        if isinstance(row, Fault) or "step_hash" not in row:
            continue
        try:
            yield normal_row(row)
        except RowMalformed as error:
            raise RowMalformed(f"line {number}: {error.message}", line=number) from None
