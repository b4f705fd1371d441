"""Answers and a ledger in memory, to try an agent without services; for tests of agents."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bernstein_determinism.channels import Reducer
from bernstein_determinism.ids import UlidFactory
from bernstein_determinism.observers import ObserverFactory, Observers
from bernstein_determinism.ports import Answered, ModelSettings, Question
from bernstein_determinism.runtime import Runtime
from bernstein_determinism.surroundings import Surroundings
from bernstein_formats.canonical import JsonValue
from bernstein_formats.fingerprint import compute_fingerprint
from bernstein_formats.modes import RuntimeMode

VERSION: Final = "in-memory"
MODEL: Final = ModelSettings("scripted", "memory")


class FunctionAnswers:
    """Answers every prompt with a function, which counts as the model. Thread-safe."""

    def __init__(
        self, respond: Callable[[str], str], mode: RuntimeMode, seed: int | None = None
    ) -> None:
        self.seed = seed
        self.calls = 0
        self._respond = respond
        self._mode = mode
        self._lock = threading.Lock()

    def ask(self, question: Question) -> Answered:
        with self._lock:
            self.calls += 1
            text = self._respond(question.prompt)
        made = compute_fingerprint(question.key(self._mode, VERSION, self.seed))
        source = "recorded" if self._mode.is_hermetic else "live"
        return Answered(text, source, self._mode, made.composite)


class ListLedger:
    """Keeps rows in a list."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, Mapping[str, JsonValue]]] = []

    def append(self, event: str, payload: Mapping[str, JsonValue]) -> None:
        self.rows.append((event, payload))


def memory_runtime(
    respond: Callable[[str], str],
    channels: Mapping[str, Reducer[Any]],
    *,
    observers: Sequence[ObserverFactory] = (),
    mode: RuntimeMode = RuntimeMode.INTERACTIVE,
    ids: UlidFactory | None = None,
    seed: int | None = None,
) -> tuple[Runtime, ListLedger]:
    """A runtime whose model is a function, and its ledger."""
    around = Surroundings(
        answers=FunctionAnswers(respond, mode, seed),
        mode=mode,
        version=VERSION,
        model=MODEL,
        channels=channels,
        observers=Observers(observers),
    )
    ledger = ListLedger()
    return Runtime(around, ledger, ids or UlidFactory.system()), ledger
