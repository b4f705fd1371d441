"""What each figure should be: a ratio to reach, or a value not to pass."""

from dataclasses import dataclass

from benchmarks.measuring import Figure


@dataclass(frozen=True, slots=True)
class Goal:
    """One of the two; none: the figure is for information."""

    ratio: float | None = None
    at_most: float | None = None

    def is_met(self, figure: Figure) -> bool:
        if self.ratio is not None:
            return figure.ratio is not None and figure.ratio >= self.ratio
        return self.at_most is None or figure.ours <= self.at_most

    def text(self) -> str:
        if self.ratio is not None:
            return f">= {self.ratio:g}x"
        return "" if self.at_most is None else f"<= {self.at_most:g}"


NO_GOAL = Goal()
GOALS = {
    "verify receipt, whole command": Goal(ratio=40),
    "replay --verify --offline, whole command": Goal(ratio=40),
    "replay --verify, services warm": Goal(ratio=18),
    "first command, services cold": Goal(at_most=1000),
    "idle services, PSS": Goal(at_most=200),
    "append of others, p99, hostile writer": Goal(ratio=0.5),
    "append of others, p99, hostile slow-reader": Goal(ratio=0.5),
    "verify std": Goal(ratio=4.0),
    "verify mixed": Goal(ratio=3.0),
    "verify jcs-v2": Goal(ratio=10),
    "canonical bytes from text": Goal(ratio=4.0),
    "canonical bytes from value": Goal(ratio=3.8),
    "jcs bytes from text": Goal(ratio=14),
    "re-derive, one plan row": Goal(ratio=10),
    "re-derive, 500 plan rows": Goal(ratio=3.0),
    "receipt build": Goal(ratio=4.0),
    "receipt verify": Goal(ratio=2.7),
    "replay open, index there": Goal(ratio=1000),
    "replay open, no index yet": Goal(ratio=1.8),
    "replay look-ups": Goal(ratio=0.45),
    "resume a journal of 10,000 rows": Goal(ratio=12),
    "local append, synced per 64 rows": Goal(ratio=3.0),
    "local append, synced per 256 rows": Goal(ratio=4.5),
    "local append, not synced, row by row": Goal(ratio=3.5),
    "memory of verify, short journal": Goal(at_most=16),
    "memory of verify, long journal": Goal(at_most=16),
    "memory of receipt build, short journal": Goal(at_most=16),
    "memory of receipt build, long journal": Goal(at_most=16),
    "memory of replay open, index there": Goal(at_most=8),
    "memory of 1000 followers, files": Goal(at_most=128),
    "memory of 1000 followers, PostgreSQL": Goal(at_most=128),
    "append, 64 producers": Goal(ratio=1.3),
    "append, 64 producers, p99": Goal(at_most=5),
    "append, 8 streams x 64 rows": Goal(ratio=3.0),
    "append, 8 streams x 256 rows": Goal(ratio=4.0),
    "append, one row a message, to echo": Goal(ratio=0.85),
    "append, 64 runs to one run": Goal(ratio=0.9),
    "agent proxy, 1 stream, first byte": Goal(at_most=1),
    "agent proxy, 100 streams, first byte": Goal(at_most=15),
    "recording of 41 calls, of its JSON": Goal(at_most=5),
    "open a long recording, CPU": Goal(at_most=10_000),
    "memory of a long recording, proxy": Goal(at_most=160),
    "memory of a long recording, recorder": Goal(at_most=48),
    "PostgreSQL, 1 x 64 rows, to the raw engine": Goal(ratio=0.8),
    "PostgreSQL, 8 x 64 rows, to the raw engine": Goal(ratio=0.8),
    "PostgreSQL, 64 x 64 rows, to the raw engine": Goal(ratio=0.8),
    **{
        f"mTLS, {store}, {clients} x 64 rows, to raw": Goal(ratio=0.8)
        for store in ("files", "PostgreSQL")
        for clients in (1, 8, 64)
    },
}


def goal_of(figure: Figure) -> Goal:
    return GOALS.get(figure.name, NO_GOAL)
