"""The line of those who wait for their appends: who leaves together, and what each is told.

Pure: how somebody waits, a thread or a task, is for its appender.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import BernsteinError, InvalidInput, LimitExceeded
from bernstein_runtime import limits

Event = tuple[str, Mapping[str, JsonValue]]
EncodedEvent = tuple[str, bytes]
# Around a payload in its message.
_FRAME_BYTES = 64


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where events landed: the first one's position, the head and the row count after the last."""

    first_index: int
    head_hash_hex: str
    row_count: int


class Waiting(Protocol):
    """One caller's events until they are answered."""

    events: Sequence[EncodedEvent]
    size: int

    def answered(self, result: AppendResult) -> None:
        """They are durable."""

    def refused(self, error: BernsteinError) -> None:
        """They are not, or it is not known."""


One = TypeVar("One", bound=Waiting)


class Line(Generic[One]):
    """First come, first served."""

    def __init__(self) -> None:
        self.waiting: deque[One] = deque()

    def take(self) -> list[One]:
        """Those who leave with the next message."""
        batch: list[One] = []
        count = size = 0
        while self.waiting:
            following = self.waiting[0]
            count += len(following.events)
            size += following.size
            if batch and _is_over(count, size):
                break
            batch.append(self.waiting.popleft())
        return batch


def encoded(events: Iterable[Event]) -> list[EncodedEvent]:
    """As they are sent. Raises InvalidInput."""
    return [(event, spelled(dict(payload)).encode()) for event, payload in events]


def size_of(events: Sequence[EncodedEvent]) -> int:
    """About what they take in a message. Raises LimitExceeded where they cannot land together."""
    if len(events) > limits.BATCH_EVENTS_MAX:
        raise LimitExceeded(
            f"{len(events)} events at once; at most {limits.BATCH_EVENTS_MAX} land together"
        )
    return sum(len(payload) + _FRAME_BYTES for _, payload in events)


def pages(events: Iterable[Event]) -> Iterator[list[EncodedEvent]]:
    """Any number of events, by what can land together. Raises InvalidInput."""
    page: list[EncodedEvent] = []
    size = 0
    for each in events:
        following = encoded([each])
        more = size_of(following)
        if page and _is_over(len(page) + 1, size + more):
            yield page
            page, size = [], 0
        page += following
        size += more
    if page:
        yield page


def joined(results: Sequence[AppendResult]) -> AppendResult:
    """Of pages that followed each other."""
    last = results[-1]
    return AppendResult(results[0].first_index, last.head_hash_hex, last.row_count)


def share_out(batch: Iterable[Waiting], answer: AppendResult) -> None:
    """Tell everybody in a message what came of it."""
    index = answer.first_index
    for waiting in batch:
        after = index + len(waiting.events)
        waiting.answered(AppendResult(index, answer.head_hash_hex, after))
        index = after


def may_send_again(batch: Sequence[Waiting], error: BernsteinError) -> bool:
    """Whether those in a refused message are to be sent one by one: one bad event must not fail
    its neighbours.

    Only after a refusal, which says that nothing landed. After anything else the batch may be
    there, and to send it again under other request ids would double it.
    """
    return len(batch) > 1 and isinstance(error, InvalidInput)


def _is_over(count: int, size: int) -> bool:
    return count > limits.BATCH_EVENTS_MAX or size > limits.BATCH_BYTES_MAX
