"""One run's journal, open for appending: where its chain ends, and what it answered to whom."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bernstein_formats import paths
from bernstein_formats.canonical import Profile
from bernstein_formats.errors import (
    BernsteinError,
    HeadMoved,
    InvalidInput,
    JournalError,
    LimitExceeded,
    RequestIdReused,
    RunNotFound,
    RunSealed,
)
from bernstein_formats.event_journal import START, ChainHead, next_row
from bernstein_formats.journal_verify import Finding, JournalVerification, verify_journal
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.sealing import was_sealed
from bernstein_runtime import limits
from bernstein_runtime.clock import Clock
from bernstein_store.store import Log, Mark, Store

REQUESTS_REMEMBERED_MAX = 100_000
INCOMPLETE = b'{"complete": false}\n'


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append."""

    first_index: int
    head_hash: str
    row_count: int

    def as_text(self) -> str:
        return f"{self.first_index} {self.head_hash} {self.row_count}"

    @classmethod
    def from_text(cls, text: str) -> "Appended":
        first_index, head_hash, row_count = text.split(" ")
        return cls(int(first_index), head_hash, int(row_count))


@dataclass(frozen=True, slots=True)
class Append:
    """A request to append events: event type and payload text of each."""

    run_id: str
    events: Sequence[tuple[str, bytes]]
    request_id: str
    # Hex; None: not checked.
    expected_head: str | None

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        return sum(len(payload) for _, payload in self.events)


@dataclass(slots=True)
class Batch:
    """Rows of several requests, made but not stored yet."""

    head: ChainHead
    size: int
    lines: list[bytes] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    answers: dict[str, Appended] = field(default_factory=dict)


class RunLog:
    """Used by the writer thread alone."""

    def __init__(self, store: Store, run_id: str, clock: Clock) -> None:
        """Raises RunNotFound, and JournalError when the chain cannot be continued (fail closed)."""
        if not store.has_run(run_id):
            raise RunNotFound(
                f"there is no run {run_id}; see `bernstein replay list`", run_id=run_id
            )
        self._store = store
        self._name = paths.journal_path(run_id)
        self.run_id = run_id
        self._check_unsealed()
        if store.size(paths.incomplete_path(run_id)) is None:
            # Before the first row: nothing could be written any more should the disk become full.
            store.put(paths.incomplete_path(run_id), INCOMPLETE)
        self._clock = clock
        self._began: float | None = None
        self._log: Log = store.open_log(self._name)
        try:
            AcknowledgedRows(store).check(self._name)
            self._head = self._walked(0, START)
        except BernsteinError:
            self._log.close()
            raise
        self._answers = {
            mark.request_id: Appended.from_text(mark.answer) for mark in self._log.marks
        }

    @property
    def size(self) -> int:
        """Bytes on stable storage."""
        return self._log.size

    def is_at(self, request: Append) -> bool:
        """Whether the run ends where the request believes, as far as we know."""
        return request.expected_head in {None, self._head.head_hash}

    def begin_batch(self) -> Batch:
        """An empty batch behind what is stored."""
        return Batch(self._head, self._log.size)

    def add(self, batch: Batch, request: Append) -> Appended:
        """Make the rows of one request. Raises without a trace in `batch`."""
        known = self._answers.get(request.request_id) or batch.answers.get(request.request_id)
        if known is not None:
            return self._same_request(request, known)
        if request.expected_head is not None and request.expected_head != batch.head.head_hash:
            raise HeadMoved(
                f"run {self.run_id} has moved on to row {batch.head.index}; read its head again",
                run_id=self.run_id,
                head_hash=batch.head.head_hash,
            )
        ts, elapsed_s = self._times()
        lines, head = [], batch.head
        for event, payload in request.events:
            if not event:
                raise InvalidInput("an event needs a type; its text is empty", field="event")
            line, head = next_row(head, event, payload, ts, elapsed_s)
            if len(line) > limits.ROW_BYTES_MAX:
                raise LimitExceeded(
                    f"event {event!r} makes a row of {len(line)} bytes; "
                    f"at most {limits.ROW_BYTES_MAX} are taken",
                )
            lines.append(line)
        answer = Appended(batch.head.index, head.head_hash, head.index)
        batch.lines += lines
        batch.head = head
        batch.size += sum(map(len, lines)) + len(lines)
        batch.marks.append(Mark(request.request_id, batch.size, answer.as_text()))
        batch.answers[request.request_id] = answer
        return answer

    def store(self, batch: Batch) -> None:
        """Have the batch on stable storage; only then is it part of the run."""
        if not batch.lines:
            return
        self._log.append(b"\n".join(batch.lines) + b"\n", batch.marks)
        self._head = batch.head
        self._answers.update(batch.answers)
        while len(self._answers) > REQUESTS_REMEMBERED_MAX:
            self._answers.pop(next(iter(self._answers)))

    def catch_up(self) -> None:
        """Go to where other journals have brought the run: their rows, verified, and answers.

        Raises ForeignWriter where no other journal appended, RunSealed, JournalError.
        """
        self._check_unsealed()
        start = self._log.size
        marks = self._log.catch_up()
        self._head = self._walked(start, self._head)
        self._answers.update((mark.request_id, Appended.from_text(mark.answer)) for mark in marks)

    def close(self) -> None:
        self._log.close()

    def _check_unsealed(self) -> None:
        if was_sealed(self._store, self.run_id):
            raise RunSealed(
                f"run {self.run_id} is finished and sealed; start a new one", run_id=self.run_id
            )

    def _walked(self, start: int, head: ChainHead) -> ChainHead:
        """The head after the stored rows that follow `head`. Raises JournalError."""
        stored = self._store.read(self._name, start, self._log.size)
        return _continued(self.run_id, verify_journal(stored, after=head))

    def _same_request(self, request: Append, known: Appended) -> Appended:
        if len(request.events) != known.row_count - known.first_index:
            raise RequestIdReused(
                f"request id {request.request_id!r} was used for other events; take a new one",
                request_id=request.request_id,
            )
        return known

    def _times(self) -> tuple[float, float]:
        monotonic = self._clock.monotonic_seconds()
        if self._began is None:
            self._began = monotonic
        return self._clock.now_seconds(), round(monotonic - self._began, 3)


def _continued(run_id: str, verification: JournalVerification) -> ChainHead:
    """Where a journal goes on. Raises JournalError unless all of it is in order."""
    wrong = [*verification.errors, *(_described(finding) for finding in verification.findings)]
    if wrong or not verification.chain_consistent or verification.coverage != "complete":
        raise JournalError(
            f"run {run_id}: the journal cannot be continued: {'; '.join(wrong[:5])}; "
            f"look at it with `bernstein replay {run_id} --verify`",
            run_id=run_id,
        )
    return ChainHead(verification.count, verification.head, verification.profile or Profile.PY_JSON)


def _described(finding: Finding) -> str:
    return f"row {finding.index}: {finding.reason}"
