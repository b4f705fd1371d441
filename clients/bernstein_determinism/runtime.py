"""A runtime: takes turns of an agent in one mode, and writes one audit row for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from bernstein_determinism.ids import UlidFactory
from bernstein_determinism.links import Difference, compare_turns
from bernstein_determinism.ports import Ledger
from bernstein_determinism.scores import is_usable
from bernstein_determinism.surroundings import Surroundings
from bernstein_determinism.symptoms import Kind
from bernstein_determinism.turn import Agent, Turn
from bernstein_determinism.turn_record import (
    SCORE_EVENT,
    SESSION_EVENT,
    TURN_EVENT,
    TurnRecord,
)
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import Conflict, InvalidInput


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of replaying a turn: the new row, linked to the recorded one."""

    row: TurnRecord
    links_compared: int
    # Model calls that reached a provider: none, or the replay was none.
    provider_calls: int
    # Recorded calls that nobody asked for.
    unused: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.unused and not self.provider_calls


class Runtime:
    """Not for several threads: turns follow one another."""

    def __init__(self, around: Surroundings, ledger: Ledger, ids: UlidFactory) -> None:
        self.around = around
        self._ledger = ledger
        self._ids = ids
        self._count = 0
        self._turn_ids: set[str] = set()

    def begin(self, facts: Mapping[str, JsonValue]) -> None:
        """Write the row that says what this runtime is."""
        model = self.around.model
        self._ledger.append(
            SESSION_EVENT,
            {
                "mode": self.around.mode.value,
                "version": self.around.version,
                "seed": self.around.answers.seed,
                "model": model.model,
                "provider": model.provider,
                "channels": [*sorted(self.around.channels)],
                **facts,
            },
        )

    def take_turn(self, agent: Agent, turn_input: JsonValue, turn_id: str = "") -> TurnRecord:
        """Have the agent take one turn and write its row.

        In headless-replay it is answered from what is stored, or raises ReplayDivergenceError.
        Raises Conflict for an id that this runtime has used, by which nobody could tell two turns.
        """
        turn_id = turn_id or self._next_id()
        if turn_id in self._turn_ids:
            raise Conflict(f"turn {turn_id!r} is taken already; give another id", turn_id=turn_id)
        turn = Turn(self.around, turn_id, turn_input)
        self._turn_ids.add(turn_id)
        return self._taken(agent, turn)

    def replay(self, recorded: TurnRecord, agent: Agent) -> ReplayResult:
        """Replay a recorded turn; see `replay_turn`."""
        if not self.around.mode.is_hermetic:
            raise InvalidInput(
                f"a runtime of mode {self.around.mode} replays nothing; make one of mode"
                " headless-replay",
                field="mode",
            )
        turn = Turn(self.around, recorded.turn_id, recorded.input, recorded)
        row = self._taken(agent, turn)
        live = sum(each.source == "live" for each in row.asks())
        used = len(list(row.asks()))
        unused = [each.call_key or each.composite for each in list(recorded.asks())[used:]]
        return ReplayResult(row, _link_count(row), live, tuple(unused))

    def score(
        self, turn: TurnRecord, metric: str, value: Decimal, *, scorer: str, scorer_version: str
    ) -> None:
        """Record a score of a turn. Raises InvalidInput for what could not be compared."""
        if not is_usable(value):
            raise InvalidInput(
                f"the score {str(value)[:40]} is no finite Decimal of a usable size", field=metric
            )
        payload: dict[str, JsonValue] = {
            "record_id": turn.record_id,
            "turn_id": turn.turn_id,
            "metric": metric,
            "value": str(value),
            "scorer": scorer,
            "scorer_version": scorer_version,
        }
        self._ledger.append(SCORE_EVENT, payload)

    def _taken(self, agent: Agent, turn: Turn) -> TurnRecord:
        recorded = turn.recorded
        if recorded is not None and recorded.version != self.around.version:
            place, versions = f"turn {recorded.turn_id}", (recorded.version, self.around.version)
            raise Difference(Kind.VERSION, place, ("version",), *versions).error(recorded)
        agent(turn)
        row = turn.record(self._ids.new())
        if recorded is not None:
            found = compare_turns(recorded, row)
            if found is not None:
                raise found.error(recorded)
        self._ledger.append(TURN_EVENT, row.payload())
        return row

    def _next_id(self) -> str:
        self._count += 1
        return f"turn-{self._count:04}"


def replay_turn(recorded: TurnRecord, agent: Agent, runtime: Runtime) -> ReplayResult:
    """Walk the chain of a recorded turn again and compare every link.

    Compose, fingerprint, take the recorded answer, run observers over the recorded chunks, reduce,
    write a linked row. Raises ReplayDivergenceError at the first difference; nothing later runs.
    """
    return runtime.replay(recorded, agent)


def assert_turn_deterministic(
    runtimes: Sequence[Runtime], agent: Agent, turn_input: JsonValue
) -> None:
    """Take one turn in fresh runtimes and assert that it is the same turn each time.

    Equal composites, equal channels, and record ids of their own.
    """
    rows = [runtime.take_turn(agent, turn_input) for runtime in runtimes]
    for row in rows[1:]:
        found = compare_turns(rows[0], row)
        if found is not None:
            raise AssertionError(found.text())
        assert row.fingerprint_composite == rows[0].fingerprint_composite
    ids = [row.record_id for row in rows]
    assert len(set(ids)) == len(ids), "a record id was made twice"


def _link_count(row: TurnRecord) -> int:
    """Links that were compared: four for each model call, two for each channel of each step."""
    asks = sum(1 for _ in row.asks())
    return 4 * asks + sum(2 * len(step.channels) for step in row.steps)
