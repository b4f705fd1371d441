"""The live thread of a run: each journal row as one server-sent event, and whether both agree.

Rules: docs/formats/event-journal.md, section 16, and docs/formats/live-thread.md.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.event_journal import ENVELOPE_NAMES
from bernstein_formats.journal_reader import Row, accepted_rows, parse_row
from bernstein_formats.journal_verdict import Finding
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.provider_state import whole_number

STEP_EVENT = "thread.step"
_NOT_PAYLOAD = frozenset((*ENVELOPE_NAMES, "event"))


@dataclass(frozen=True, slots=True)
class ThreadStep:
    """One row as a viewer gets it; `data` is one line of ASCII."""

    index: int
    event_hash: str
    data: bytes

    def frame(self) -> bytes:
        """The server-sent event; its id is the resume point behind this row."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.index, STEP_EVENT.encode(), self.data)


def project(chunks: Iterable[bytes], after_index: int = -1) -> Iterator[ThreadStep]:
    """Give the rows of a journal whose stored index is beyond `after_index`, as the peer does.

    Lines that are no rows, and rows whose index is no number, are passed over in silence: what is
    shown to people goes through `step_at` instead.
    """
    for _, row in accepted_rows(chunks):
        index = whole_number(row.get("index", 0))
        if index is not None and index > after_index:
            yield _step(index, row)


def step_at(position: int, line: bytes) -> ThreadStep:
    """The row on a line, which must say of itself that it is at `position`; else RowMalformed."""
    try:
        row = parse_row(line)
    except InvalidInput as error:
        raise _refused(position, error.message) from None
    if not isinstance(row, dict):
        raise _refused(position, "it is no object")
    index = row.get("index")
    if type(index) is not int or index != position:
        raise _refused(position, f"its stored index is {index!r}")
    return _step(position, row)


def _refused(position: int, what: str) -> RowMalformed:
    return RowMalformed(
        f"the row at position {position} cannot be shown: {what};"
        " see `bernstein replay RUN --verify`",
        index=position,
    )


def _step(index: int, row: Row) -> ThreadStep:
    stored = str(row.get("event_hash", ""))
    data: dict[str, JsonValue] = {
        "event_hash": stored,
        "journal_event": str(row.get("event", "")),
        "journal_index": index,
        "payload": {name: value for name, value in row.items() if name not in _NOT_PAYLOAD},
    }
    return ThreadStep(index, stored, canonical_bytes(data, Profile.PY_JSON))


@dataclass(frozen=True, slots=True)
class ThreadVerdict:
    """Whether a viewer of the whole thread sees exactly the journal's rows; findings are ours."""

    ok: bool
    count: int
    divergent_index: int | None
    errors: tuple[str, ...]
    findings: tuple[Finding, ...]


def verify_thread(chunks: Iterable[bytes]) -> ThreadVerdict:
    """Compare the projection with the journal that it comes from.

    They agree when the chain holds, every line is a row, and each row's stored index, which becomes
    the frame's id, is its position.
    """
    found = verify_journal(chunks)
    divergent = found.divergent_index
    if divergent is None and found.findings:
        divergent = found.findings[0].index
    is_whole = found.chain_consistent and not found.discarded_count
    return ThreadVerdict(
        ok=is_whole and not found.findings,
        count=found.count,
        divergent_index=divergent,
        errors=found.errors,
        findings=found.findings,
    )
