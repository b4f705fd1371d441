"""What each form of `bernstein replay` answers, for people and as JSON; gives the exit codes."""

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from bernstein_cli import exit_codes
from bernstein_cli.events_table import Rows, event_lines
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.main import tell
from bernstein_cli.output import (
    GREEN,
    RED,
    YELLOW,
    Printed,
    document,
    document_with_rows,
    json_text,
    remark,
    say,
)
from bernstein_cli.progress import Progress
from bernstein_cli.rederivation_view import rederivation_document, rederivation_lines
from bernstein_cli.run_reader import RunReader
from bernstein_cli.runs_table import run_document, runs_lines
from bernstein_cli.table import width
from bernstein_cli.verification_view import (
    verification_advice,
    verification_document,
    verification_lines,
)
from bernstein_client.values import RunDifference
from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, InvalidInput, RunNotFound
from bernstein_formats.receipt_verdict import EXIT_PROVENANCE_REQUIRED
from bernstein_formats.rederivation import (
    JOURNAL_NOT_FOUND,
    JOURNAL_UNREADABLE,
    Rederivation,
    journal_not_found,
)
from bernstein_formats.run_choice import LATEST

DEFAULT_SDD_DIR: Final = ".sdd"
_RUN_ID_CHARACTERS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, and where the runs come from."""

    runs: RunReader
    sdd_dir: Path
    as_json: bool
    file: Path | None = None
    # Whether the key of the seal must be known from elsewhere than the seal.
    require_provenance: bool = False

    def command(self, run_id: str) -> str:
        """What is typed to ask for the same run again."""
        if self.file is not None:
            return f"bernstein replay --file {shlex.quote(str(self.file))}"
        return f"bernstein replay {run_id}{self._where}"

    def repair_command(self, run_id: str) -> str:
        """What puts the run in order; a file that was named is only read."""
        return "" if self.file is not None else f"bernstein replay repair {run_id}{self._where}"

    @property
    def _where(self) -> str:
        here = self.sdd_dir == Path(DEFAULT_SDD_DIR)
        return "" if here else f" --sdd-dir {shlex.quote(str(self.sdd_dir))}"

    def journal(self, run_id: str) -> Path:
        """Where the journal of a run would be."""
        return Path(os.path.realpath(self.sdd_dir)) / paths.journal_path(run_id)


def not_found(asked: Asked, run_id: str, error: RunNotFound) -> int:
    """A run that is not there is told in the peer's words on stdout, and how to go on beside it."""
    if asked.as_json or "path" in error.metadata:
        raise error
    if run_id == LATEST:
        say("No replay logs found.")
    else:
        say(f"Journal not found: {asked.journal(run_id)}")
    remark(f"bernstein: {error.message} [{error.reason}]")
    return exit_codes.FAILED


def _meant(asked: Asked, run_id: str) -> None:
    """Say which run `latest` is."""
    if run_id == LATEST:
        remark(f"Replaying latest run: {asked.runs.get_run(run_id).run_id}")


def verify(asked: Asked, run_id: str) -> int:
    _meant(asked, run_id)
    with Progress("verifying") as progress:
        found = asked.runs.verify_run(run_id, progress)
    clean = found.is_clean
    if asked.as_json:
        document(verification_document(found, run_id))
    else:
        _say_verdict(verification_lines(found, run_id), clean=clean)
    advice = verification_advice(found, asked.command(run_id), asked.repair_command(run_id))
    for line in advice:
        remark(line)
    if not clean:
        return exit_codes.FAILED
    if asked.require_provenance and not found.pinned_key:
        return EXIT_PROVENANCE_REQUIRED
    return exit_codes.OK


def rederive(asked: Asked, run_id: str) -> int:
    try:
        _meant(asked, run_id)
        with Progress("re-deriving") as progress:
            found = asked.runs.rederive_run(run_id, progress)
    except (RunNotFound, InvalidInput) as error:
        if not asked.as_json:
            raise
        document(_no_rederivation(asked, run_id, error).as_json())
        remark(f"bernstein: {error.message} [{error.reason}]")
        return exit_codes.FAILED
    if asked.as_json:
        document(rederivation_document(found))
    else:
        _say_verdict(rederivation_lines(found), clean=found.ok)
    for note in found.notes:
        remark(f"note: {note}")
    return exit_codes.OK if found.ok else exit_codes.FAILED


def _no_rederivation(asked: Asked, run_id: str, error: BernsteinError) -> Rederivation:
    """The peer's document for a run that cannot be read, or whose id no run can have."""
    if isinstance(error, RunNotFound):
        return journal_not_found(run_id, str(asked.journal(run_id)))
    too_long = len(run_id) > _RUN_ID_CHARACTERS_MAX
    code = JOURNAL_UNREADABLE if too_long else JOURNAL_NOT_FOUND
    return Rederivation(False, run_id, reason=error.message, reason_code=code)


def _say_verdict(lines: Iterable[str], *, clean: bool) -> None:
    """The first line is the verdict; it has a colour where there are colours."""
    colour = GREEN if clean else RED
    for line in lines:
        say(line, colour)
        colour = ""


def rebuild(asked: Asked, run_id: str, from_step: int) -> int:
    _meant(asked, run_id)
    _, state = asked.runs.rebuild_state(run_id, from_step)
    if asked.as_json:
        document({name: state[name] for name in ("events", "head_hash", "step_count")})
        return exit_codes.OK
    events = state["events"]
    assert isinstance(events, list | tuple)
    say(f"Rebuilt state for {run_id} through step {state['step_count']}")
    say(f"head: {state['head_hash']}")
    say(f"events: {', '.join(map(str, events))}")
    return exit_codes.OK


def show(asked: Asked, run_id: str, limit: int | None) -> int:
    run = asked.runs.get_run(run_id)
    if run_id == LATEST:
        remark(f"Replaying latest run: {run.run_id}")
    rows = Rows(asked.runs.read_journal(run.run_id))
    shown = islice(rows, limit)
    if asked.as_json:
        metadata = {} if run.metadata is None else {"metadata": run.metadata}
        shown_id = run.run_id if run_id == LATEST else run_id
        document_with_rows({"run_id": shown_id}, "events", shown, metadata)
    elif not run.row_count:
        say("Replay log is empty.")
    else:
        for line in event_lines(shown, width(), lambda note: remark(f"note: {note}")):
            say(line)
    if rows.discarded_count:
        how = f"see `{asked.command(run_id)} --verify`"
        remark(f"{rows.discarded_count} line(s) hold no row; {how}", YELLOW)
    return exit_codes.FAILED if rows.discarded_count else exit_codes.OK


def list_all(asked: Asked) -> int:
    runs = list(asked.runs.list_runs())
    if asked.as_json:
        document({"runs": [run_document(run) for run in runs]})
    elif runs:
        for line in runs_lines(runs, width()):
            say(line)
    else:
        there = (asked.sdd_dir / paths.RUNS_FOLDER).is_dir() or in_fleet(asked.sdd_dir)
        say("No replay logs found." if there else "No runs recorded yet.")
    return exit_codes.FAILED if any(run.damage for run in runs) else exit_codes.OK


def diff(asked: Asked, run_a: str, run_b: str) -> int:
    try:
        found = asked.runs.diff_runs(run_a, run_b)
    except (RunNotFound, InvalidInput) as error:
        return _cannot_compare(asked, error)
    if asked.as_json:
        document(_difference_document(found))
    else:
        for line in _difference_lines(found):
            say(line)
    return exit_codes.FAILED if found.diverged else exit_codes.OK


def _difference_document(found: RunDifference) -> dict[str, Printed]:
    return {
        "diverged": found.diverged,
        "index": found.index,
        "reason": found.reason,
        "reason_code": found.reason_code,
        "mutation_kind": found.mutation_kind,
        "a_event": found.a_event,
        "b_event": found.b_event,
        "note": found.note or None,
    }


def _difference_lines(found: RunDifference) -> Iterator[str]:
    yield found.reason
    for name, row in (("a", found.a_event), ("b", found.b_event)):
        if found.diverged and row is not None:
            yield from (f"{name}: {line}" for line in json_text(row).splitlines())
    if found.note:
        yield found.note


def _cannot_compare(asked: Asked, error: BernsteinError) -> int:
    """A run that is not there is 2, as in the peer: 1 says that two runs differ."""
    tell(error, as_json=asked.as_json)
    return exit_codes.USAGE
