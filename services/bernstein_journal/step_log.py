"""One agent's step journal, open for appending: where its chain ends, and what it answered.

Opening walks the whole chain and fails closed. What a crash left torn is put aside, and a missing
line end is written with the next step: nothing that was acknowledged is ever glued to or lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, HeadMoved, InvalidInput, RequestIdReused
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal import StepHead, next_step
from bernstein_formats.session_journal_verify import recover_steps
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_runtime import limits
from bernstein_runtime.clock import Clock
from bernstein_store.store import Mark, Store


@dataclass(frozen=True, slots=True)
class AppendSteps:
    """A request to append steps, each of them checked."""

    agent_id: str
    steps: Sequence[Row]
    request_id: str
    # Hex; None: not checked.
    expected_head: str | None
    # Whether these are the session's first steps.
    start: bool


@dataclass(frozen=True, slots=True)
class AppendedSteps:
    """The answer to an append."""

    first_seq: int
    head_hash: str
    step_count: int

    def as_text(self) -> str:
        return f"{self.first_seq} {self.head_hash} {self.step_count}"

    @classmethod
    def from_text(cls, text: str) -> "AppendedSteps":
        first_seq, head_hash, step_count = text.split(" ")
        return cls(int(first_seq), head_hash, int(step_count))


class StepLog:
    """Used by one thread at a time."""

    def __init__(self, store: Store, agent_id: str, clock: Clock) -> None:
        """Raises JournalError, with the line, when the chain cannot be continued."""
        name = paths.steps_path(agent_id)
        self._agent_id = agent_id
        self._clock = clock
        self._log = store.open_log(name, private=True)
        try:
            AcknowledgedRows(store).check(name)
            recovered = recover_steps(store.read(name), f"agent {agent_id}")
            if recovered.torn_line is not None:
                self._log.set_aside(recovered.size)
        except BernsteinError:
            self._log.close()
            raise
        self._head = recovered.head
        self._before = b"\n" if recovered.newline_missing else b""
        self._answers = {
            mark.request_id: AppendedSteps.from_text(mark.answer) for mark in self._log.marks
        }

    @property
    def head(self) -> StepHead:
        """Where the next step goes."""
        return self._head

    def known(self, request: AppendSteps) -> AppendedSteps | None:
        """What this request was answered before. Raises RequestIdReused for another's id."""
        known = self._answers.get(request.request_id)
        if known is not None and len(request.steps) != known.step_count - known.first_seq:
            raise RequestIdReused(
                f"request id {request.request_id!r} was used for other steps; take a new one",
                request_id=request.request_id,
            )
        return known

    def append(self, request: AppendSteps) -> AppendedSteps:
        """Have the steps on stable storage, all of them or none."""
        if request.expected_head not in {None, self._head.head_hash}:
            raise HeadMoved(
                f"agent {self._agent_id} has moved on to step {self._head.seq}; read its head"
                " again: somebody else records this session",
                agent_id=self._agent_id,
                head_hash=self._head.head_hash,
            )
        lines, head = self._made(request.steps)
        data = self._before + b"".join(lines)
        answer = AppendedSteps(self._head.seq, head.head_hash, head.seq)
        size = self._log.size + len(data)
        self._log.append(data, [Mark(request.request_id, size, answer.as_text())])
        self._head, self._before = head, b""
        self._answers[request.request_id] = answer
        while len(self._answers) > limits.BATCH_EVENTS_MAX:
            self._answers.pop(next(iter(self._answers)))
        return answer

    def is_current(self) -> bool:
        """Whether no other journal appended since. Raises ForeignWriter for anybody else."""
        size = self._log.size
        self._log.catch_up()
        return self._log.size == size

    def close(self) -> None:
        self._log.close()

    def _made(self, steps: Sequence[Row]) -> tuple[list[bytes], StepHead]:
        lines, head, ts = [], self._head, self._clock.now_seconds()
        for step in steps:
            line, head = next_step(head, step, ts)
            if len(line) > limits.STEP_BYTES_MAX:
                raise InvalidInput(
                    f"a step makes a row of {len(line)} bytes; at most {limits.STEP_BYTES_MAX} are"
                    " taken: keep large content in the blob store"
                )
            lines.append(line + b"\n")
        return lines, head
