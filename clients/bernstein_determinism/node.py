"""A node of a step: asks models, calls tools, reads and writes channels; all of it is recorded."""

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from bernstein_determinism import links
from bernstein_determinism.channels import Write, WriteKey
from bernstein_determinism.failures import Failure
from bernstein_determinism.links import Difference
from bernstein_determinism.observers import Chunk, Observed
from bernstein_determinism.ports import Answered, ModelSettings, Question
from bernstein_determinism.prompts import (
    ComposedPrompt,
    PromptContribution,
    compose_budgeted_prompt,
)
from bernstein_determinism.surroundings import Surroundings
from bernstein_determinism.symptoms import Kind
from bernstein_determinism.turn_record import Action, AskRecord, ToolRecord, TurnRecord
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import BernsteinError, DeterminismError, ProviderFailed
from bernstein_formats.fingerprint import (
    Fingerprint,
    FingerprintMetadata,
    compute_fingerprint,
)
from bernstein_formats.strict_json import canonical_copy, canonicalize

CHUNK_CHARACTERS: Final = 32
DEFAULT_BUDGET: Final = 8192


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node runs: its turn, the step counted from 0, and its own name."""

    turn_id: str
    step: int
    node: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What a node did in the recorded turn."""

    turn: TurnRecord
    actions: Sequence[Action]


class Node:
    """What a node's function is given. For the thread of that function alone."""

    def __init__(
        self,
        around: Surroundings,
        place: Place,
        views: Mapping[str, JsonValue],
        expected: Expected | None,
    ) -> None:
        """`views` are the channels before the step; `expected` is there in a replay only."""
        self.name = place.node
        self.actions: list[Action] = []
        self.writes: list[tuple[str, Write]] = []
        self._around = around
        self._turn_id = place.turn_id
        self._step = place.step
        self._views = views
        self._expected = expected
        self._thread: int | None = None
        self._ended_by: BernsteinError | None = None
        self._tool = ""

    def run(self, function: Callable[["Node"], object]) -> None:
        """Run the node's function here. Raises DeterminismError for one that only gives something
        to wait for, what ended the node though the function went on, and what it raises."""
        self._thread = threading.get_ident()
        try:
            given = function(self)
        finally:
            self._thread = None
            self._check_end()
        if inspect.isawaitable(given) or inspect.isgenerator(given) or inspect.isasyncgen(given):
            close = getattr(given, "close", None)
            if close is not None:
                close()
            raise DeterminismError(
                f"node {self.name!r} gave a {type(given).__name__} and did not run: make its"
                " function a plain one, without async and yield",
                node=self.name,
            )

    def read(self, channel: str) -> JsonValue:
        """A channel as it was before this step."""
        self._around.reducer(channel)
        return canonical_copy(self._views[channel])  # its neighbours read the same

    def write(self, channel: str, value: JsonValue) -> None:
        """Write to a channel; seen by the steps to come. Raises CanonicalizationError."""
        self._check_thread()
        self._around.reducer(channel)
        key = WriteKey(self._step, self.name, len(self.writes))
        self.writes.append((channel, Write(key, canonical_copy(value))))

    def ask(
        self,
        contributions: Sequence[PromptContribution],
        *,
        call_class: str = "synthesize",
        budget_tokens: int = DEFAULT_BUDGET,
        model: ModelSettings | None = None,
    ) -> str:
        """Ask the model; gives what the observers let through of its answer.

        Raises ProviderFailed, after which the agent may go on: a replay has the same failure.
        ReplayDivergenceError and what else a recorder raises end the node. Raises what composing a
        prompt raises.
        """
        self._check_thread()
        around = self._around
        composed = compose_budgeted_prompt(
            contributions, budget_tokens=budget_tokens, measure=around.measure
        )
        then = self._recorded_ask()
        if then is not None:
            self._same(
                links.compare_prompts(then, composed.sha256, composed.static_sha256, self._place)
            )
        lane = f"{self._turn_id}/{self._step}/{self.name}"
        question = Question(
            model or around.model, call_class, composed.text, lane, self._metadata()
        )
        made = compute_fingerprint(question.key(around.mode, around.version, around.answers.seed))
        if then is not None:
            found = links.compare_fingerprints(then, made.composite, made.components, self._place)
            self._same(found)
        if then is not None and then.failure is not None:
            self.actions.append(_failed_ask(then.failure, composed, made, around.mode.value))
            raise then.failure.of_provider()
        try:
            answered = around.answers.ask(question)
            _check_agreement(answered, made)
        except ProviderFailed as error:
            failure = Failure.of(error)
            self.actions.append(_failed_ask(failure, composed, made, around.mode.value))
            raise failure.of_provider() from error
        except BernsteinError as error:
            self._ended(error)
            raise
        return self._observed(answered, composed, made, then)

    def tool(
        self, name: str, arguments: Mapping[str, JsonValue], function: Callable[..., JsonValue]
    ) -> JsonValue:
        """Call a tool as `function(**arguments)`; a replay takes the recorded result instead.

        The result is the same in both: in its canonical form, so that a tuple becomes a list. So is
        a failure: ToolFailed, after which the agent may go on.
        """
        self._check_thread()
        arguments_sha256 = sha256(canonicalize(dict(arguments))).hexdigest()
        then = self._recorded_tool()
        if then is not None:
            now = ToolRecord(name, arguments_sha256, then.result, then.failure)
            self._same(links.compare_tools(then, now, self._place))
            self.actions.append(now)
            if then.failure is not None:
                raise then.failure.of_tool(name)
            return canonical_copy(then.result)
        self._tool = name
        try:
            given = function(**arguments)
        except Exception as error:
            self._check_end()  # no failure of the tool
            failure = Failure.of(error)
            self.actions.append(ToolRecord(name, arguments_sha256, None, failure))
            raise failure.of_tool(name) from error
        finally:
            self._tool = ""
        try:
            result = canonical_copy(given)
        except DeterminismError as error:
            self._ended(error)
            raise
        self.actions.append(ToolRecord(name, arguments_sha256, result))
        return canonical_copy(result)

    def _ended(self, error: BernsteinError) -> BernsteinError:
        self._ended_by = error
        return error

    def _check_end(self) -> None:
        """A node that has left its record does nothing any more, whatever its function caught."""
        if self._ended_by is not None:
            raise self._ended_by

    def _check_thread(self) -> None:
        """Elsewhere and later things happen in another order each time."""
        self._check_end()
        if self._thread != threading.get_ident():
            raise DeterminismError(
                f"node {self.name!r} was used after its end, or in another thread than its"
                " function's: for work side by side make more nodes",
                node=self.name,
            )
        if self._tool:
            raise self._ended(
                DeterminismError(
                    f"node {self.name!r} was used by its tool {self._tool!r}, whose function no"
                    " replay runs: give the tool what it needs as arguments",
                    node=self.name,
                )
            )

    def _observed(
        self,
        answered: Answered,
        composed: ComposedPrompt,
        made: Fingerprint,
        then: AskRecord | None,
    ) -> str:
        pieces = tuple(_pieces(answered.text, then.chunk_lengths if then else ()))
        chunks = [Chunk(self._turn_id, at, text) for at, text in enumerate(pieces)]
        writer = f"{self.name}.{len(self.actions):06}"  # sorts by number
        observed = self._around.observers.watch(chunks, self._step, writer)
        ask = _ask_record(answered, composed, made, pieces, observed)
        if then is not None:
            self._same(links.compare_actions(then, ask, self._place))
        self.actions.append(ask)
        for channel, _ in observed.envelopes:
            self._around.reducer(channel)
        self.writes.extend(observed.envelopes)
        return "".join(observed.delivered)

    def _metadata(self) -> FingerprintMetadata:
        replayed = self._expected.turn.record_id if self._expected else None
        return FingerprintMetadata(turn_id=self._turn_id, replay_of_event_id=replayed)

    def _recorded_ask(self) -> AskRecord | None:
        then = self._recorded("ask")
        return then if isinstance(then, AskRecord) else None

    def _recorded_tool(self) -> ToolRecord | None:
        then = self._recorded("tool")
        return then if isinstance(then, ToolRecord) else None

    def _recorded(self, kind: str) -> Action | None:
        """The recorded action that comes now; None outside of a replay."""
        if self._expected is None:
            return None
        number, actions = len(self.actions), self._expected.actions
        then = actions[number] if number < len(actions) else None
        recorded = "nothing" if then is None else str(then.payload()["kind"])
        if recorded != kind:
            self._same(Difference(Kind.ACTIONS, self._place, (), recorded, kind))
        return then

    def _same(self, found: Difference | None) -> None:
        if found is not None and self._expected is not None:
            raise self._ended(found.error(self._expected.turn))

    @property
    def _place(self) -> str:
        where = f"turn {self._turn_id}, step {self._step}, node {self.name}"
        return f"{where}, action {len(self.actions)}"


def _check_agreement(answered: Answered, made: Fingerprint) -> None:
    if answered.composite != made.composite:
        raise DeterminismError(
            f"the recorder made the fingerprint {answered.composite}, this program"
            f" {made.composite}: they are of different versions; stop the services and try again",
            recorder=answered.composite,
            program=made.composite,
        )


def _pieces(text: str, lengths: Sequence[int]) -> Iterator[str]:
    """The chunks of an answer: as recorded, and what is beyond in even pieces."""
    start = 0
    for length in lengths:
        yield text[start : start + length]
        start += length
    for at in range(start, len(text), CHUNK_CHARACTERS):
        yield text[at : at + CHUNK_CHARACTERS]


def _ask_record(
    answered: Answered,
    composed: ComposedPrompt,
    made: Fingerprint,
    pieces: Sequence[str],
    observed: Observed,
) -> AskRecord:
    return AskRecord(
        prompt_sha256=composed.sha256,
        static_sha256=composed.static_sha256,
        included=composed.included,
        composite=made.composite,
        components=made.components,
        call_key=answered.call_key,
        answer_sha256=sha256(answered.text.encode("utf-8", "surrogatepass")).hexdigest(),
        chunk_lengths=tuple(map(len, pieces)),
        verdicts=observed.verdicts,
        source=answered.source,
        stored_mode=answered.stored_mode.value,
    )


def _failed_ask(
    failure: Failure, composed: ComposedPrompt, made: Fingerprint, mode: str
) -> AskRecord:
    return AskRecord(
        prompt_sha256=composed.sha256,
        static_sha256=composed.static_sha256,
        included=composed.included,
        composite=made.composite,
        components=made.components,
        call_key="",
        answer_sha256="",
        chunk_lengths=(),
        verdicts=(),
        source="failed",
        stored_mode=mode,
        failure=failure,
    )
