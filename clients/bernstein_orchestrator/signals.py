"""Completion signals: what must hold before an attempt counts as done.

Rules: docs/formats/plan-and-run.md, section 1.6. In a replay a verdict is computed again where
files that the replay wrote decide it; every other one is taken from the recording.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from bernstein_formats.errors import ProviderFailed
from bernstein_orchestrator.plan import MODEL_SIGNALS, Signal, SignalType, Step
from bernstein_orchestrator.processes import Ending, Finished
from bernstein_orchestrator.prompt import is_pass, verdict_prompt
from bernstein_orchestrator.signal_members import SEPARATOR
from bernstein_orchestrator.workspace import Workspace

TEST_TIMEOUT_SECONDS: Final = 120.0
_UNANSWERED: Final = " (the model did not answer)"
_GLOB_CHARACTERS: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a signal holds; `is_ours` when files that this run wrote decided it."""

    holds: bool
    is_ours: bool = False


class Checks:
    """Checks the signals of attempts in one workspace."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        ask: Callable[[str, str], str],
        shell: Callable[[str], Finished],
        warn: Callable[[str], None],
    ) -> None:
        """`ask` takes a lane and a prompt, `shell` a command line."""
        self._workspace = workspace
        self._ask = ask
        self._shell = shell
        self._warn = warn

    def failed(
        self, step: Step, agent_id: str, work: str, recorded: tuple[str, ...] | None
    ) -> tuple[str, ...] | None:
        """Return the signals that do not hold, as recorded text; None if the run was stopped.

        `recorded` are those of the recorded attempt, None outside a replay. Only the first judge
        is asked, and only when everything else holds.
        """
        failed: list[str] = []
        for index, signal in enumerate(step.signals):
            if signal.type is SignalType.LLM_JUDGE:
                continue
            lane = f"{agent_id}/review-{index}"
            failure = self._failure(signal, step, lane, work, recorded)
            if failure is None:
                return None
            failed += filter(None, [failure])
        judges = [each for each in step.signals if each.type is SignalType.LLM_JUDGE]
        if judges and not failed:
            failure = self._asked(judges[0], step, f"{agent_id}/judge", work, recorded)
            failed += filter(None, [failure])
        return tuple(failed)

    def _failure(
        self, signal: Signal, step: Step, lane: str, work: str, recorded: tuple[str, ...] | None
    ) -> str | None:
        """Return the failed signal's text, nothing when it holds, None when stopped."""
        if signal.type in MODEL_SIGNALS:
            return self._asked(signal, step, lane, work, recorded)
        if signal.type is SignalType.TEST_PASSES:
            holds = self._test(signal, recorded)
        elif recorded is None:
            holds = self._file_verdict(signal).holds
        else:
            holds = self._replayed(signal, recorded)
        if holds is None:
            return None
        return "" if holds else signal.text()

    def _test(self, signal: Signal, recorded: tuple[str, ...] | None) -> bool | None:
        if recorded is not None:
            return signal.text() not in recorded
        finished = self._shell(signal.value)
        return None if finished.ending is Ending.STOPPED else finished.is_good

    def _replayed(self, signal: Signal, recorded: tuple[str, ...]) -> bool:
        verdict = self._file_verdict(signal)
        if verdict.is_ours:
            return verdict.holds
        holds = signal.text() not in recorded
        if holds != verdict.holds:
            word = "held" if holds else "failed"
            self._warn(f"{signal.text()!r} {word} when it was recorded; today's files differ")
        return holds

    def _asked(
        self, signal: Signal, step: Step, lane: str, work: str, recorded: tuple[str, ...] | None
    ) -> str:
        unanswered = signal.text() + _UNANSWERED
        if recorded is not None and unanswered in recorded:
            return unanswered  # no answer was recorded, so there is none to ask for
        try:
            answer = self._ask(lane, verdict_prompt(step, signal.value, work))
        except ProviderFailed as error:
            self._warn(f"{signal.text()}: {error.message}")
            return unanswered
        return "" if is_pass(answer) else signal.text()

    def _file_verdict(self, signal: Signal) -> Verdict:
        if signal.type is SignalType.PATH_EXISTS:
            return self._path_exists(signal.value)
        if signal.type is SignalType.GLOB_EXISTS:
            return self._glob_exists(signal.value)
        if signal.type is SignalType.FILE_CONTAINS:
            return self._file_contains(signal.value)
        return Verdict(holds=False, is_ours=True)  # artifact signals: a plain task has no artifact

    def _path_exists(self, path: str) -> Verdict:
        if self._workspace.exists(path):
            return Verdict(holds=True, is_ours=self._workspace.wrote(path))
        if _GLOB_CHARACTERS.isdisjoint(path):
            return Verdict(holds=False)
        return self._glob_exists(path)

    def _glob_exists(self, pattern: str) -> Verdict:
        is_ours = any(fnmatchcase(path, pattern) for path in self._workspace.written())
        return Verdict(is_ours or self._workspace.matches(pattern), is_ours)

    def _file_contains(self, value: str) -> Verdict:
        path, _, text = value.partition(SEPARATOR)
        content = self._workspace.read(path)
        holds = content is not None and text.encode() in content and _is_utf8(content)
        return Verdict(holds, self._workspace.wrote(path))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
