"""Follows a source while it is written: what changes is looked at often, what rests now and then.

Polling, since it works on every file system and costs the same whatever happens: two looks a
second at what was written lately, and a few glances at a time at all that rests, in turn. When
nobody has written to a run for a while it is compared as a whole once more, and sealed if it has
ended; from then on little of it is kept in memory.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from bernstein_formats.errors import BernsteinError, RunNotFound, StoreFailed, Unavailable
from bernstein_importer.importer import Importer, Looks
from bernstein_importer.outcome import Outcome, Status, Subject, told
from bernstein_runtime.clock import Clock
from bernstein_runtime.metrics import IMPORT_FAILING, IMPORT_LOOKED

POLL_SECONDS: Final = 0.5
# So long nobody wrote: what says that it has ended is sealed. All else comes to rest later than the
# peer's orchestrator writes its next row when it is idle, since that costs a look at all rows.
END_SECONDS: Final = 10.0
REST_SECONDS: Final = 60.0
# Everything that rests is glanced at once in this time, as long as it is not too much.
ROUND_SECONDS: Final = 60.0
GLANCES_MAX: Final = 100
RETRY_SECONDS_MAX: Final = 300.0
AWAY_SECONDS_MAX: Final = 30.0


@dataclass(slots=True)
class _Watched:
    """One run or session that is written to, or was lately."""

    subject: Subject
    changed_at: float
    # Not before this instant, after so many failures in a row.
    retry_at: float = 0.0
    failures: int = 0
    # The glance at which it came to rest.
    looks: Looks = ()


class Following:
    """Endless, until it is stopped. Not thread-safe."""

    def __init__(
        self,
        importer: Importer,
        stop: threading.Event,
        clock: Clock,
        remark: Callable[[str], object],
    ) -> None:
        """`remark` hears, once each, that the services are away and that they are back."""
        self._importer = importer
        self._stop = stop
        self._clock = clock
        self._remark = remark
        self._active: dict[Subject, _Watched] = {}
        self._resting: deque[_Watched] = deque()
        self._known: set[Subject] = set()
        self._places: Looks = ()
        self._list_again_at = 0.0
        # Why the source could not be listed the last time.
        self._unlisted = ""
        self._told: dict[Subject, Outcome] = {}
        self._is_away = False

    def outcomes(self) -> Iterator[Outcome]:
        """Take in what is there and what comes, until stopped; nothing is told twice."""
        while not self._stop.is_set():
            yield from self.look_once()
            self._stop.wait(POLL_SECONDS)

    def look_once(self) -> Iterator[Outcome]:
        """One look at what is due."""
        yield from self._listed()
        self._wake()
        now = self._clock.monotonic_seconds()
        for watched in list(self._active.values()):
            if self._stop.is_set():
                return
            if watched.retry_at <= now:
                yield from self._look_at(watched)
        if not self._stop.is_set():
            IMPORT_LOOKED.set(self._clock.now_seconds())
            failed = (each.status is Status.FAILED for each in self._told.values())
            IMPORT_FAILING.set(sum(failed))

    def _listed(self) -> Iterator[Outcome]:
        """Begin with what is new in the source, and let go of what is gone there."""
        now, places = self._clock.monotonic_seconds(), self._importer.places()
        if places == self._places and now < self._list_again_at:
            return
        found = self._found()
        if found is None:
            return
        self._places, self._list_again_at = places, now + ROUND_SECONDS
        for subject in found:
            if subject not in self._known:
                self._active[subject] = _Watched(subject, now)
        gone = self._known.difference(found)
        self._known = set(found)
        yield from self._let_go(gone)

    def _found(self) -> list[Subject] | None:
        """What is in the source; None, once said, where it cannot be listed."""
        try:
            found = self._importer.subjects()
        except RunNotFound:
            if not self._known:
                raise
            found = []
        except StoreFailed as error:
            if error.message != self._unlisted:
                self._unlisted = error.message
                self._remark(f"{error.message}; trying again")
            return None
        self._unlisted = ""
        return found

    def _let_go(self, gone: set[Subject]) -> Iterator[Outcome]:
        if gone:
            self._resting = deque(each for each in self._resting if each.subject not in gone)
        for subject in gone:
            self._active.pop(subject, None)
            self._importer.forget(subject)
            last = self._told.pop(subject, None)
            if last is not None:
                yield replace(told(subject, Status.GONE), size_bytes=last.size_bytes)

    def _wake(self) -> None:
        """Glance at a part of what rests; what has changed is written to again."""
        count = math.ceil(len(self._resting) * POLL_SECONDS / ROUND_SECONDS)
        for _ in range(min(count, GLANCES_MAX)):
            watched = self._resting.popleft()
            if self._importer.looks(watched.subject) == watched.looks:
                self._resting.append(watched)
            else:
                watched.changed_at = self._clock.monotonic_seconds()
                self._active[watched.subject] = watched

    def _look_at(self, watched: _Watched) -> Iterator[Outcome]:
        subject = watched.subject
        outcome = self._taken(subject)
        now = self._clock.monotonic_seconds()
        if outcome is not None:
            watched.changed_at = now
            yield from self._news(outcome)
        if not self._importer.is_settled(subject) and outcome is not None:
            self._retry_later(watched, now)
            return
        watched.failures = 0
        looks = self._importer.looks(subject)
        quiet_seconds = END_SECONDS if self._importer.has_ended(subject) else REST_SECONDS
        if now - watched.changed_at < quiet_seconds and not self._is_old(looks, quiet_seconds):
            return
        outcome = self._importer.rest(subject)
        if outcome is not None:
            yield from self._news(outcome)
            if outcome.status is Status.FAILED:
                self._retry_later(watched, now)
                return
        del self._active[subject]
        watched.looks = looks
        self._resting.append(watched)

    def _taken(self, subject: Subject) -> Outcome | None:
        """Its outcome, once the services answer; None, too, when we are to stop before that."""
        retrying = Retrying(
            retry=retry_if_exception_type(Unavailable),
            wait=wait_exponential_jitter(max=AWAY_SECONDS_MAX),
            stop=lambda _: self._stop.is_set(),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._before_sleep,
            retry_error_callback=lambda _: None,
        )
        outcome = retrying(self._importer.take, subject)
        if self._is_away and not self._stop.is_set():
            self._is_away = False
            self._remark("the services answer again")
        return outcome

    def _before_sleep(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, BernsteinError):
            self._away(error)

    def _away(self, error: BernsteinError) -> None:
        if not self._is_away:
            self._is_away = True
            self._remark(f"{error.message}; trying again until it answers")

    def _retry_later(self, watched: _Watched, now: float) -> None:
        watched.failures += 1
        watched.retry_at = now + min(POLL_SECONDS * 2**watched.failures, RETRY_SECONDS_MAX)

    def _is_old(self, looks: Looks, quiet_seconds: float) -> bool:
        """Whether nobody has written for long: at the start, most of what is there rests."""
        newest = max((look.changed_ns for look in looks if look is not None), default=None)
        if newest is None:
            return False
        return self._clock.now_seconds() - newest / 1e9 >= quiet_seconds

    def _news(self, outcome: Outcome) -> Iterator[Outcome]:
        before = self._told.get(outcome.subject)
        self._told[outcome.subject] = outcome
        was_failed = before is not None and before.status is Status.FAILED
        if outcome != before and (outcome.status is not Status.UP_TO_DATE or was_failed):
            yield outcome
