"""Answers from recorded exchanges: first in, first out by arrival, each lane by itself.

Rules: docs/formats/llm-http.md, section 5.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bernstein_formats.errors import ReplayKeySchemeMismatchError
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.http_rule_file import RULE_SET

_NO_MORE: Final = -1


class MissKind(StrEnum):
    """Why there is no answer."""

    NOT_RECORDED = "not_recorded"
    EXHAUSTED = "exhausted"
    UNKNOWN_LANE = "unknown_lane"
    # After its first miss a lane answers nothing more.
    LATCHED = "latched"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A request that the recording does not answer; `recorded_count` answers are all used."""

    kind: MissKind
    recorded_count: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """What became of a lane's recording."""

    served: int
    cut: int
    misses: int
    unused: tuple[Exchange, ...]

    @property
    def is_clean(self) -> bool:
        return not self.misses

    @property
    def is_complete(self) -> bool:
        return not self.unused


def check_rules(exchange: Exchange) -> None:
    """Raise ReplayKeySchemeMismatchError if its key was made by other rules than ours."""
    recorded = f"{exchange.rule_set} ({exchange.rules_sha256[:16]})"
    ours = f"{RULE_SET.version} ({RULE_SET.sha256_hex[:16]})"
    if recorded != ours:
        raise ReplayKeySchemeMismatchError(
            f"key scheme mismatch: the recording was made with rule set {recorded}, and this"
            f" version has rule set {ours}: record the run again, or replay it with the version"
            " that recorded it",
            recorded=recorded,
            ours=ours,
        )


class ReleaseOrder:
    """The order in which a lane's answers ended when they were recorded. Not thread-safe."""

    def __init__(self, lane: str, exchanges: Iterable[Exchange]) -> None:
        """`exchanges` are in the order of their ends, as their file has them."""
        self._waiting = [each.seq for each in exchanges if each.lane == lane]

    def has_turn(self, exchange: Exchange) -> bool:
        """Whether all that ended before it have been given out."""
        return self._waiting[:1] == [exchange.seq]

    def give_out(self, exchange: Exchange) -> None:
        """Note that it is with the agent, in its turn or not."""
        self._waiting.remove(exchange.seq)


class LaneReplay:
    """The recorded exchanges of one lane, each given out once. Not thread-safe."""

    def __init__(self, lane: str, exchanges: Iterable[Exchange]) -> None:
        """Takes what the lane recorded from `exchanges`. Raises ReplayKeySchemeMismatchError."""
        mine = sorted((each for each in exchanges if each.lane == lane), key=lambda each: each.seq)
        for each in mine:
            check_rules(each)
        self.recorded = tuple(mine)
        # Key → place of its next answer, and for each place that of the next one of its key. Less
        # than a queue a key: a long recording has a key for nearly every answer.
        self._next: dict[str, int] = {}
        self._after = [_NO_MORE] * len(mine)
        for place in reversed(range(len(mine))):
            key = mine[place].key
            self._after[place] = self._next.get(key, _NO_MORE)
            self._next[key] = place
        self._served = 0
        self._cut = 0
        self._misses = 0
        self._is_closed = False

    def take(self, key: str) -> Exchange | NoAnswer:
        """The next answer to this request; after one miss, none any more."""
        found = self._look_up(key)
        if isinstance(found, NoAnswer):
            self._misses += 1
        else:
            self._served += 1
            self._cut += not found.answer.is_whole
        return found

    def take_unasked(self, key: str) -> Exchange | NoAnswer:
        """Like `take` for what nobody asked for: that there is none is no miss."""
        found = self._look_up(key)
        if not isinstance(found, NoAnswer):
            self._served += 1
        return found

    def close(self) -> None:
        """Answer nothing more: what was recorded cannot be read, which is no miss."""
        self._is_closed = True

    @property
    def is_latched(self) -> bool:
        return self._is_closed or self._misses > 0

    def account(self) -> Account:
        left: list[int] = []
        for first in self._next.values():
            place = first
            while place != _NO_MORE:
                left.append(place)
                place = self._after[place]
        unused = tuple(self.recorded[place] for place in sorted(left))
        return Account(self._served, self._cut, self._misses, unused)

    def _look_up(self, key: str) -> Exchange | NoAnswer:
        if self._misses:
            return NoAnswer(MissKind.LATCHED)
        if not self.recorded:
            return NoAnswer(MissKind.UNKNOWN_LANE)
        place = self._next.get(key)
        if place is None:
            return NoAnswer(MissKind.NOT_RECORDED)
        if place == _NO_MORE:
            count = sum(each.key == key for each in self.recorded)
            return NoAnswer(MissKind.EXHAUSTED, count)
        self._next[key] = self._after[place]
        return self.recorded[place]
