"""One turn of an agent: steps of nodes that run side by side, and what is recorded of them.

Nodes read the channels as they were before their step and write with keys of their own, so that
neither threads nor timing show in the result. In a replay each link is compared as soon as it is
made, and nothing later runs.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any, TypeAlias

from bernstein_determinism import links
from bernstein_determinism.channels import Reducer, Write, fold
from bernstein_determinism.links import Difference
from bernstein_determinism.node import Expected, Node, Place
from bernstein_determinism.surroundings import Surroundings
from bernstein_determinism.symptoms import Kind
from bernstein_determinism.turn_record import StepRecord, TurnRecord
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import DeterminismError
from bernstein_formats.strict_json import canonical_copy, canonicalize

# What it returns does not count: a node says what it has to say on channels.
NodeFunction: TypeAlias = Callable[[Node], object]
Agent: TypeAlias = "Callable[[Turn], None]"


class Turn:
    """What an agent is given: `agent(turn)`."""

    def __init__(
        self,
        around: Surroundings,
        turn_id: str,
        turn_input: JsonValue,
        recorded: TurnRecord | None = None,
    ) -> None:
        """`recorded` is the turn that this one replays. Raises CanonicalizationError."""
        self.turn_id = turn_id
        self._input = canonical_copy(turn_input)
        self.recorded = recorded
        self._around = around
        self._steps: list[StepRecord] = []
        self._ended_by: Exception | None = None
        self._states = {name: each.empty() for name, each in around.channels.items()}

    @property
    def input(self) -> JsonValue:
        """What the turn is about; a copy each time, as is all that an agent is given."""
        return canonical_copy(self._input)

    def read(self, channel: str) -> JsonValue:
        """A channel as it is after the last step."""
        return canonical_copy(self._around.reducer(channel).view(self._states[channel]))

    def step(self, nodes: Mapping[str, NodeFunction]) -> None:
        """Run nodes side by side; their writes are joined when all have ended.

        Raises what the first node, by name, ended with, and ReplayDivergenceError. Either ends the
        turn, whatever the agent catches.
        """
        self._check_end()
        try:
            self._run(nodes)
        except Exception as error:
            self._ended_by = error
            raise

    def _run(self, nodes: Mapping[str, NodeFunction]) -> None:
        views = {name: self.read(name) for name in self._states}
        made = {name: self._node(name, views) for name in nodes}
        with ThreadPoolExecutor(max_workers=max(1, len(made))) as pool:
            running = {name: pool.submit(made[name].run, run) for name, run in nodes.items()}
        for name in sorted(running):  # not whoever failed first: the same error every time
            running[name].result()
        self._end_step(made)

    def record(self, record_id: str) -> TurnRecord:
        """What the ledger keeps. Raises what ended a step, and ReplayDivergenceError where recorded
        steps are left."""
        self._check_end()
        if self.recorded is not None and len(self.recorded.steps) != len(self._steps):
            raise self._other_steps(self.recorded, len(self._steps))
        return TurnRecord(
            record_id=record_id,
            replay_of_event_id=self.recorded.record_id if self.recorded else None,
            turn_id=self.turn_id,
            mode=self._around.mode,
            version=self._around.version,
            input=self._input,
            steps=tuple(self._steps),
            views={name: self.read(name) for name in sorted(self._states)},
        )

    def _check_end(self) -> None:
        """A step that did not end well is in no record, and what came after it would not fit."""
        if self._ended_by is not None:
            raise self._ended_by

    def _node(self, name: str, views: Mapping[str, JsonValue]) -> Node:
        place = Place(self.turn_id, len(self._steps), name)
        expected = None
        if self.recorded is not None:
            actions = self._recorded_step(self.recorded).nodes.get(name, ())
            expected = Expected(self.recorded, actions)
        return Node(self._around, place, views, expected)

    def _end_step(self, nodes: Mapping[str, Node]) -> None:
        writes = [each for name in sorted(nodes) for each in nodes[name].writes]
        by_channel = {
            name: [write for channel, write in writes if channel == name]
            for name in sorted(self._states)
        }
        for name, own in by_channel.items():
            self._states[name] = _joined(self._around.reducer(name), self._states[name], own, name)
        step = StepRecord(
            nodes={name: tuple(node.actions) for name, node in nodes.items()},
            writes={name: _digest_of_writes(own) for name, own in by_channel.items()},
            channels={name: digest(self.read(name)) for name in by_channel},
        )
        if self.recorded is not None:
            place = f"turn {self.turn_id}, step {len(self._steps)}"
            found = links.compare_steps(self._recorded_step(self.recorded), step, place)
            if found is not None:
                raise found.error(self.recorded)
        self._steps.append(step)

    def _recorded_step(self, recorded: TurnRecord) -> StepRecord:
        number = len(self._steps)
        if number >= len(recorded.steps):
            raise self._other_steps(recorded, number + 1)
        return recorded.steps[number]

    def _other_steps(self, recorded: TurnRecord, count: int) -> Exception:
        place = f"turn {self.turn_id}"
        return Difference(Kind.ACTIONS, place, ("steps",), len(recorded.steps), count).error(
            recorded
        )


def digest(value: JsonValue) -> str:
    """SHA-256 of a value's canonical bytes, in hex."""
    return sha256(canonicalize(value)).hexdigest()


def _joined(reducer: Reducer[Any], state: Any, writes: Sequence[Write], channel: str) -> Any:
    """The state with some writes, joined in both directions: they must come to the same.

    Cheap beside a model call, and a reducer that does not commute is told at once and not at the
    replay that goes wrong.
    """
    forward = reducer.join(state, fold(reducer, writes))
    if len(writes) > 1:
        backward = reducer.join(fold(reducer, writes[::-1]), state)
        if canonicalize(reducer.view(forward)) != canonicalize(reducer.view(backward)):
            raise DeterminismError(
                f"the reducer of channel {channel!r} gives another state for the same writes in"
                " another order: contract 4 is broken; check it with check_reducer_laws",
                contract=4,
                channel=channel,
            )
    return forward


def _digest_of_writes(writes: Sequence[Write]) -> str:
    keyed: list[JsonValue] = [
        [each.key.step, each.key.writer, each.key.seq, each.value]
        for each in sorted(writes, key=lambda each: each.key)
    ]
    return digest(keyed)
