"""`bernstein replay --all DIR`: every recorded agent again, with its own command: a gate.

The runs are replayed in a state folder that goes away afterwards; nothing below DIR changes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bernstein_cli import exit_codes
from bernstein_cli.agent_options import AgentOptions
from bernstein_cli.agent_replay import find_agent, replay_agent
from bernstein_cli.agent_run import AgentVerdict
from bernstein_cli.output import document, remark, say
from bernstein_cli.table import table_lines
from bernstein_client.agent_rows import AGENT_RUN
from bernstein_client.connection import Services
from bernstein_formats.canonical import parse_json
from bernstein_formats.errors import BernsteinError, InvalidInput, ReplayRecordingMissingError
from bernstein_formats.paths import (
    RUNS_FOLDER,
    check_run_id,
    is_run_id,
    llm_http_path,
    metadata_path,
)
from bernstein_runtime.config import NO_FLEET
from bernstein_runtime.regular_file import read_regular

# The worst first: what comes before decides the exit code of all.
_SEVERITY: Final = (
    exit_codes.FAILED,
    exit_codes.KEY_SCHEME_MISMATCH,
    exit_codes.RECORDING_MISSING,
    exit_codes.REPLAY_MISS,
    exit_codes.REPLAY_INCOMPLETE,
    exit_codes.OK,
)
_WORDS: Final = {
    exit_codes.OK: "clean",
    exit_codes.REPLAY_MISS: "miss",
    exit_codes.REPLAY_INCOMPLETE: "incomplete",
    exit_codes.FAILED: "failed",
}
_COLUMNS: Final = ("Run ID", "Verdict", "Hits", "Misses", "Left", "Head")
_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one run: a verdict, or what was in its way."""

    run_id: str
    code: int
    verdict: AgentVerdict | None = None
    error: BernsteinError | None = None

    @property
    def word(self) -> str:
        return self.error.reason if self.error is not None else _WORDS[self.code]

    def cells(self) -> tuple[str, ...]:
        if self.verdict is None:
            return self.run_id, self.word, "-", "-", "-", "-"
        counts = (str(self.verdict.count(name)) for name in ("served", "misses", "unused_count"))
        same = self.verdict.head == self.verdict.recorded_head
        return self.run_id, self.word, *counts, "recorded" if same else "another"

    def document(self) -> dict[str, Any]:
        said: dict[str, Any] = {"recorded_run_id": self.run_id, "verdict": self.word}
        said["exit_code"] = self.code
        if self.error is not None:
            said["detail"] = self.error.message
        return said | (self.verdict.document() if self.verdict is not None else {})


def replay_all(folder: Path, options: AgentOptions, *, as_json: bool) -> int:
    """Replay all; the exit code is the worst verdict's."""
    runs = _recorded_below(folder)
    with _throwaway(runs) as services:
        outcomes = [_replayed(services, run, options) for run in runs]
    code = min((each.code for each in outcomes), key=_SEVERITY.index)
    if as_json:
        document({"exit_code": code, "runs": [each.document() for each in outcomes]})
    else:
        for line in table_lines(_COLUMNS, (each.cells() for each in outcomes), _WIDTH):
            say(line)
    for each in outcomes:
        if each.error is not None:
            remark(f"{each.run_id}: {each.error.message} [{each.error.reason}]")
    return code


def _replayed(services: Services, run: Path, options: AgentOptions) -> _Outcome:
    run_id = run.name
    remark(f"run {run_id}:")
    try:
        check_run_id(run_id)
        agent = find_agent(services, run_id)
        command = agent.environment.stored_command if agent.environment is not None else None
        if command is None:
            raise ReplayRecordingMissingError(
                f"the command of run {run_id} is not kept whole; replay it with"
                f" `bernstein replay {run_id} -- COMMAND`",
                run_id=run_id,
            )
        verdict = replay_agent(services, agent, command, options, quiet=True, alone=True)
    except BernsteinError as error:
        return _Outcome(run_id, exit_codes.exit_code_of(error), error=error)
    verdict.say()
    code = verdict.exit_code(require_complete=options.require_complete)
    return _Outcome(run_id, code, verdict)


def _recorded_below(folder: Path) -> list[Path]:
    """The folders of recorded agents: below a state folder, or below any other."""
    runs = folder / RUNS_FOLDER
    below = runs if runs.is_dir() else folder
    found = [each for each in sorted(below.iterdir()) if _had_agent(each) and not _is_replay(each)]
    if not found:
        raise InvalidInput(f"no run below {below} has a recorded agent", path=below)
    return found


def _had_agent(run: Path) -> bool:
    """Whether an agent was recorded there, also when its recording is gone by now."""
    if (run / Path(llm_http_path("any")).name).is_file():
        return True
    try:
        metadata = parse_json(read_regular(run / Path(metadata_path("any")).name))
    except (OSError, InvalidInput):
        return False
    return isinstance(metadata, dict) and metadata.get("kind") == AGENT_RUN


def _is_replay(run: Path) -> bool:
    return (run / "replay.json").exists()


@contextmanager
def _throwaway(runs: list[Path]) -> Iterator[Services]:
    with tempfile.TemporaryDirectory(prefix="bernstein-gate-") as folder:
        sdd_dir = Path(folder) / ".sdd"
        for run in (each for each in runs if is_run_id(each.name)):
            shutil.copytree(run, sdd_dir / RUNS_FOLDER / run.name, symlinks=True)
        with Services(sdd_dir, {**os.environ, **NO_FLEET}) as services:
            try:
                yield services
            finally:
                services.supervisor.ask({"do": "stop"})
