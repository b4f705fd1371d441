"""A turn as the audit ledger holds it: one row of the run's journal, of type `turn_recorded`.

Rules: docs/formats/determinism.md, section 9. No text of a prompt or an answer is in it, only
digests; the answers are in the run's recording.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeAlias

from bernstein_determinism.failures import Failure
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.fingerprint import turn_composite
from bernstein_formats.journal_reader import accepted_rows
from bernstein_formats.modes import RuntimeMode
from bernstein_formats.strict_json import canonicalize

TURN_EVENT: Final = "turn_recorded"
SESSION_EVENT: Final = "agent_session"
SCORE_EVENT: Final = "turn_scored"

VerdictRecord: TypeAlias = tuple[int, str, str, JsonValue]


@dataclass(frozen=True, slots=True)
class AskRecord:
    """A model call of a node."""

    prompt_sha256: str
    static_sha256: str
    included: tuple[str, ...]
    composite: str
    components: Mapping[str, str]
    # The recording's key.
    call_key: str
    answer_sha256: str
    chunk_lengths: tuple[int, ...]
    verdicts: tuple[VerdictRecord, ...]
    source: str
    stored_mode: str
    # Of a call that failed, which has no answer.
    failure: Failure | None = None

    def payload(self) -> dict[str, JsonValue]:
        return _with_failure(self._answered(), self.failure)

    def _answered(self) -> dict[str, JsonValue]:
        return {
            "kind": "ask",
            "prompt_sha256": self.prompt_sha256,
            "static_sha256": self.static_sha256,
            "included": [*self.included],
            "fingerprint": self.composite,
            "components": dict(self.components),
            "call_key": self.call_key,
            "answer_sha256": self.answer_sha256,
            "chunk_lengths": [*self.chunk_lengths],
            "verdicts": [[*each] for each in self.verdicts],
            "source": self.source,
            "stored_mode": self.stored_mode,
        }

    def repeated(self) -> dict[str, JsonValue]:
        """What a replay must repeat of it: nothing of the mode, and of where the answer was."""
        left_out = ("fingerprint", "source", "stored_mode")
        members = {name: each for name, each in self.payload().items() if name not in left_out}
        parts: dict[str, JsonValue] = {**self.components}
        parts.pop("mode", None)
        return {**members, "components": parts}


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool call of a node; a replay takes the result, or the failure, from here."""

    name: str
    arguments_sha256: str
    result: JsonValue
    failure: Failure | None = None

    def payload(self) -> dict[str, JsonValue]:
        called: dict[str, JsonValue] = {
            "kind": "tool",
            "name": self.name,
            "arguments_sha256": self.arguments_sha256,
            "result": self.result,
        }
        return _with_failure(called, self.failure)

    def repeated(self) -> dict[str, JsonValue]:
        """What a replay must repeat of it."""
        return self.payload()


Action: TypeAlias = AskRecord | ToolRecord


def _with_failure(members: dict[str, JsonValue], failure: Failure | None) -> dict[str, JsonValue]:
    """Only an action that failed has the member."""
    return members if failure is None else {**members, "failure": failure.payload()}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Nodes that ran side by side, what they did, and the channels afterwards, as digests."""

    nodes: Mapping[str, tuple[Action, ...]]
    writes: Mapping[str, str]
    channels: Mapping[str, str]

    def payload(self) -> dict[str, JsonValue]:
        return self._with({name: [a.payload() for a in made] for name, made in self.nodes.items()})

    def repeated(self) -> dict[str, JsonValue]:
        """What a replay must repeat of it."""
        return self._with({name: [a.repeated() for a in made] for name, made in self.nodes.items()})

    def _with(self, nodes: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {"nodes": nodes, "writes": dict(self.writes), "channels": dict(self.channels)}


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn; `record_id` is new in every replay, and says where the replayed one is."""

    record_id: str
    replay_of_event_id: str | None
    turn_id: str
    mode: RuntimeMode
    version: str
    input: JsonValue
    steps: tuple[StepRecord, ...]
    views: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def fingerprint_composite(self) -> str:
        return turn_composite([each.composite for each in self.asks()])

    def asks(self) -> Iterator[AskRecord]:
        """All model calls: step by step, then by the nodes' names."""
        for step in self.steps:
            for name in sorted(step.nodes):
                yield from (each for each in step.nodes[name] if isinstance(each, AskRecord))

    def content_sha256(self) -> str:
        """One hash over what a replay must repeat: all but ids, the mode, and the stores."""
        steps = [step.repeated() for step in self.steps]
        content = [self.turn_id, self.version, self.input, steps, dict(self.views)]
        return sha256(canonicalize(content)).hexdigest()

    def payload(self) -> dict[str, JsonValue]:
        """The row's members."""
        return {
            "record_id": self.record_id,
            "replay_of_event_id": self.replay_of_event_id,
            "fingerprint_composite": self.fingerprint_composite,
            "mode": self.mode.value,
            "turn_id": self.turn_id,
            "version": self.version,
            "content_sha256": self.content_sha256(),
            "input": self.input,
            "steps": [step.payload() for step in self.steps],
            "views": dict(self.views),
        }


def turns_of(chunks: Iterable[bytes]) -> list[TurnRecord]:
    """The turns of a journal, in its order. Raises RowMalformed."""
    rows = accepted_rows(chunks)
    return [parse_turn(row, line + 1) for line, row in rows if row.get("event") == TURN_EVENT]


def parse_turn(row: Mapping[str, JsonValue], line: int = 0) -> TurnRecord:
    """Read a row. Raises RowMalformed, also where its own hash or fingerprint does not fit it."""
    try:
        turn = _turn(row)
        made = (turn.content_sha256(), turn.fingerprint_composite)
    except (AttributeError, KeyError, TypeError, ValueError, InvalidInput) as error:
        raise _malformed(line, f"{type(error).__name__}: {error}") from error
    if made != (row.get("content_sha256"), row.get("fingerprint_composite")):
        raise _malformed(line, "its hash or its fingerprint is not that of its content")
    return turn


def _turn(row: Mapping[str, Any]) -> TurnRecord:
    link = row["replay_of_event_id"]
    return TurnRecord(
        record_id=_text(row["record_id"]),
        replay_of_event_id=None if link is None else _text(link),
        turn_id=_text(row["turn_id"]),
        mode=RuntimeMode(row["mode"]),
        version=_text(row["version"]),
        input=row["input"],
        steps=tuple(map(_step, row["steps"])),
        views=dict(row["views"]),
    )


def _step(row: Mapping[str, Any]) -> StepRecord:
    nodes = {name: tuple(map(_action, made)) for name, made in row["nodes"].items()}
    return StepRecord(nodes, _texts(row["writes"]), _texts(row["channels"]))


def _action(row: Mapping[str, Any]) -> Action:
    failure = _failure(row["failure"]) if "failure" in row else None
    if row["kind"] == "tool":
        digest = _text(row["arguments_sha256"])
        return ToolRecord(_text(row["name"]), digest, row["result"], failure)
    return AskRecord(
        prompt_sha256=_text(row["prompt_sha256"]),
        static_sha256=_text(row["static_sha256"]),
        included=tuple(map(_text, row["included"])),
        composite=_text(row["fingerprint"]),
        components=_texts(row["components"]),
        call_key=_text(row["call_key"]),
        answer_sha256=_text(row["answer_sha256"]),
        chunk_lengths=tuple(map(_size, row["chunk_lengths"])),
        verdicts=tuple(_verdict(each) for each in row["verdicts"]),
        source=_text(row["source"]),
        stored_mode=_text(row["stored_mode"]),
        failure=failure,
    )


def _failure(row: Mapping[str, Any]) -> Failure:
    return Failure(_text(row["type"]), _text(row["text"]), _texts(row["facts"]))


def _verdict(row: Any) -> VerdictRecord:
    chunk, observer, kind, value = row
    return _size(chunk), _text(observer), _text(kind), value


def _texts(row: Mapping[Any, Any]) -> dict[str, str]:
    return {_text(name): _text(each) for name, each in row.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in the place of text")
    return value


def _size(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{type(value).__name__} in the place of a size")
    return value


def _malformed(line: int, what: str) -> RowMalformed:
    where = f"line {line}: " if line else ""
    return RowMalformed(f"{where}the turn cannot be read ({what[:200]})", line=line)
