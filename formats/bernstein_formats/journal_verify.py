"""Verifies a journal in one pass and in little memory: chain, coverage, identity, and findings.

The verdict on the chain is the peer's (docs/formats/event-journal.md, section 8); what it does not
look at, and what an auditor would believe all the same, is a finding.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from bernstein_formats.canonical import (
    Profile,
    canonical_bytes,
    judge,
    judged_bytes,
    parse_json_unique,
    parse_to_write,
)
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.event_journal import (
    ENVELOPE_NAMES,
    START,
    ChainHead,
    event_hash,
    payload_hash,
)
from bernstein_formats.journal_reader import LineBlocks, Row, accepted_rows, is_blank, parse_row
from bernstein_formats.journal_verdict import (
    MAX_LISTED,
    Finding,
    Identity,
    JournalSeal,
    JournalVerification,
    Reason,
)

__all__ = [
    "MAX_LISTED",
    "Finding",
    "Identity",
    "JournalSeal",
    "JournalVerification",
    "Reason",
    "RebuiltState",
    "Watch",
    "rebuild_state",
    "verify_journal",
]

# Event types of this size, and so many, are kept in canonical form.
_USUAL_EVENT_SIZE = 100
_USUAL_EVENT_COUNT = 500
_ENVELOPE_SIZE = len(ENVELOPE_NAMES)

# Gets each row's position and the row, in order; the envelope may be gone from it.
Watch: TypeAlias = Callable[[int, Row], None]


def verify_journal(
    chunks: Iterable[bytes],
    seal: JournalSeal | None = None,
    *,
    missing: bool = False,
    watch: Watch | None = None,
    after: ChainHead = START,
) -> JournalVerification:
    """Verify a journal given as chunks of any size; `missing` says that there is no file.

    `after` is where rows that were verified before end, when the chunks are what follows them.
    """
    walk = _Walk(watch, after)
    blocks = LineBlocks(chunks)
    for lines in blocks:
        walk.take(lines)
    if walk.last_line_is_row and not blocks.ends_with_newline:
        walk.find(Reason.FINAL_NEWLINE_MISSING, walk.count - 1, None)
    return walk.verdict(seal, missing=missing)


def _carefully(line: bytes, profile: Profile) -> tuple[Row, bytes]:
    """Parse a row exactly; give it without its envelope, and its canonical bytes."""
    row = parse_row(line)
    if not isinstance(row, dict):
        raise InvalidInput("not an object")
    for name in ENVELOPE_NAMES:
        row.pop(name, None)
    return row, canonical_bytes(row, profile)


class _Walk:
    """The state after some lines; its size does not depend on their number."""

    def __init__(self, watch: Watch | None, after: ChainHead) -> None:
        self._watch = watch
        self._line = 0  # physical, from 1 once a line is taken
        self._profile = after.profile if after.index else None
        self._judge = judge(after.profile)
        self._write = judged_bytes(after.profile)
        self._event_texts: dict[str, bytes] = {}  # in canonical form, of the usual event types
        self._head = after.head_hash
        self._broken = False
        self._divergent_index: int | None = None
        self._divergent_line: int | None = None
        self._expected_hash: str | None = None
        self._actual_hash: str | None = None
        self._errors: list[str] = []
        self._discarded: list[int] = []
        self._discarded_count = 0
        self._findings: list[Finding] = []
        self._findings_count = 0
        self.count = after.index
        self.last_line_is_row = False

    def take(self, lines: Iterable[bytes]) -> None:
        """Take whole lines without their ends."""
        remaining = iter(lines)
        for doubtful in iter(lambda: self._first_doubtful(remaining), None):
            self._take_one(doubtful)

    def _first_doubtful(self, lines: Iterator[bytes]) -> bytes | None:
        """Take lines while all is plainly right; give the first that is not, untaken.

        This is the loop that decides the speed of a verification.
        """
        if self._broken or not self.count:
            return next(lines, None)
        watch, judge, write = self._watch, self._judge, self._write
        event_texts = self._event_texts
        head, count = self._head, self.count
        doubtful = None
        for line in lines:
            try:
                row: Row = parse_to_write(line)  # type: ignore[assignment]  # else a TypeError follows
                event_text = event_texts[row["event"]]  # type: ignore[index]  # likewise
                del row["ts"], row["elapsed_s"]
                take = row.pop
                index, prev_hash = take("index"), take("prev_hash")
                stored_payload, stored_event = take("payload_hash"), take("event_hash")
                if judge(row.values()):
                    payload = write(row)
                else:
                    row, payload = _carefully(line, self._profile or Profile.PY_JSON)
                payload_hex = sha256(payload).hexdigest()
            except (InvalidInput, KeyError, TypeError, RecursionError):
                doubtful = line
                break
            link = b'{"event_type":%b,"index":%d,"payload_hash":"%b","prev_hash":"%b"}' % (
                event_text,
                count,
                payload_hex.encode(),
                head.encode(),
            )
            event_hex = sha256(link).hexdigest()
            if (
                event_hex != stored_event
                or payload_hex != stored_payload
                or prev_hash != head
                or index != count
                or type(index) is not int
                # members_are_unique, without the call
                or line.count(b":") - payload.count(b":") != _ENVELOPE_SIZE
                or (line.find(b"\\") >= 0 and line.find(b"\\u003") >= 0)
            ):
                doubtful = line
                break
            if watch:
                watch(count, row)
            head = event_hex
            count += 1
        if count > self.count:
            self._line += count - self.count
            self._head, self.count = head, count
            self.last_line_is_row = True
        return doubtful

    def _take_one(self, line: bytes) -> None:
        """Take a line by the definition."""
        self._line += 1
        self.last_line_is_row = False
        try:
            row = parse_row(line)
        except InvalidInput:
            if not is_blank(line):
                self._discard()
            return
        if not isinstance(row, dict):
            self._discard()
            return
        if not self.count:
            self._choose_profile(row)
        if not self._broken:
            self._examine(line, row)
        if self._watch:
            self._watch(self.count, row)
        self.count += 1
        self.last_line_is_row = True

    def _discard(self) -> None:
        self._discarded_count += 1
        if self._discarded_count <= MAX_LISTED:
            self._discarded.append(self._line - 1)

    def find(self, reason: Reason, index: int, member: str | None) -> None:
        """Note a finding."""
        self._findings_count += 1
        if self._findings_count <= MAX_LISTED:
            self._findings.append(Finding(reason, index, member))

    def _choose_profile(self, first: Row) -> None:
        """Take the journal's profile from its first row."""
        name = str(first.get("hash_profile", Profile.PY_JSON.value))
        try:
            self._profile = Profile(name)
        except ValueError:
            self._broken = True
            self._errors.append(f"unknown hash_profile {name!r}")
            return
        self._judge, self._write = judge(self._profile), judged_bytes(self._profile)

    def _examine(self, line: bytes, row: Row) -> None:
        event, stored = str(row.get("event", "")), str(row.get("event_hash", ""))
        profile = self._profile or Profile.PY_JSON
        try:
            payload_hex = payload_hash(row, event, profile)
            expected = event_hash(self._head, event, payload_hex, self.count, profile)
        except InvalidInput as error:
            self._diverge(None, stored, f"cannot be hashed under {profile}: {error.message}")
            return
        if str(row.get("prev_hash", "")) != self._head:
            self._diverge(expected, stored, "prev_hash break")
        elif stored != expected:
            self._diverge(expected, stored, "event_hash mismatch")
        else:
            self._head = expected
            if len(event) <= _USUAL_EVENT_SIZE and len(self._event_texts) < _USUAL_EVENT_COUNT:
                self._event_texts[event] = canonical_bytes(event, profile)
            self._find_all(line, row, payload_hex)

    def _diverge(self, expected: str | None, actual: str, what: str) -> None:
        self._broken = True
        self._errors.append(f"step {self.count}: {what}")
        self._divergent_index, self._divergent_line = self.count, self._line
        self._expected_hash, self._actual_hash = expected, actual

    def _find_all(self, line: bytes, row: Row, payload_hex: str) -> None:
        """Look at what the chain does not cover."""
        index = row.get("index")
        if index != self.count or type(index) is not int:
            self.find(Reason.INDEX_WRONG, self.count, "index")
        if row.get("payload_hash") != payload_hex:
            self.find(Reason.PAYLOAD_HASH_WRONG, self.count, "payload_hash")
        if not isinstance(row.get("event"), str):
            self.find(Reason.EVENT_NOT_TEXT, self.count, "event")
        if "prev_hash" not in row:
            self.find(Reason.PREV_HASH_MISSING, self.count, "prev_hash")
        try:
            parse_row(line, parse_json_unique)
        except InvalidInput as error:
            self.find(Reason.DUPLICATE_MEMBER, self.count, error.metadata.get("member"))

    def verdict(self, seal: JournalSeal | None, *, missing: bool) -> JournalVerification:
        """Sum up."""
        errors = [*self._errors, *self._discarded_text()]
        identity = self._identity(seal, errors, missing=missing)
        return JournalVerification(
            chain_consistent=not self._broken,
            coverage="partial" if self._discarded_count else "complete",
            identity=identity,
            count=self.count,
            divergent_index=self._divergent_index,
            expected_hash=self._expected_hash,
            actual_hash=self._actual_hash,
            head=self._head,
            discarded_line_indices=tuple(self._discarded),
            errors=tuple(errors),
            findings=tuple(self._findings),
            discarded_count=self._discarded_count,
            findings_count=self._findings_count,
            divergent_line=self._divergent_line,
            profile=self._profile,
        )

    def _discarded_text(self) -> list[str]:
        if not self._discarded:
            return []
        listed = ", ".join(map(str, self._discarded))
        more = self._discarded_count - len(self._discarded)
        tail = f" and {more} more" if more else ""
        return [f"reader discarded unparsable or non-object physical line(s): {listed}{tail}"]

    def _identity(self, seal: JournalSeal | None, errors: list[str], *, missing: bool) -> Identity:
        """Compare with the seal and add what differs to `errors`."""
        if seal is None:
            return Identity.UNVERIFIABLE
        if missing:
            errors.append("journal file is missing but an external seal exists")
        if self.count != seal.event_count:
            errors.append(
                f"journal holds {self.count} events but the seal commits to {seal.event_count}"
            )
        if self._head != seal.head:
            errors.append(
                f"journal head {self._head or '(empty)'} does not match"
                f" sealed head {seal.head or '(empty)'}"
            )
        return Identity.MISMATCHED if errors else Identity.VERIFIED


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """What a journal says up to some step, its hashes computed anew."""

    step_count: int
    head_hash: str
    events: tuple[str, ...]


def rebuild_state(chunks: Iterable[bytes], from_step: int) -> RebuiltState:
    """Recompute head and event types of the first `from_step` rows, comparing nothing.

    RowMalformed when the profile has no form for one of them.
    """
    events: list[str] = []
    head = ""
    profile = Profile.PY_JSON
    for number, row in accepted_rows(chunks):
        if len(events) >= from_step:
            break
        if not events and row.get("hash_profile") == Profile.JCS:
            profile = Profile.JCS
        event = str(row.get("event", ""))
        try:
            payload_hex = payload_hash(row, event, profile)
            head = event_hash(head, event, payload_hex, len(events), profile)
        except InvalidInput as error:
            raise RowMalformed(
                f"line {number + 1} (step {len(events)}) has no hash under {profile}:"
                f" {error.message}",
                line=number + 1,
            ) from None
        events.append(event)
    return RebuiltState(len(events), head, tuple(events))
