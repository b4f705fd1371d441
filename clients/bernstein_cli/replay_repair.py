"""`bernstein replay repair RUN`: a damaged journal put in order, without losing a row."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.output import GREEN, RED, Printed, document, remark, say
from bernstein_client.connection import Services
from bernstein_client.values import RepairedRun
from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError, InvalidInput, RunNotFound
from bernstein_formats.run_choice import LATEST

USAGE_LINE = "Usage: bernstein replay repair <RUN_ID>"


def repair(words: Sequence[str], sdd_dir: Path, *, recover: bool, as_json: bool) -> int:
    """Repair the one run that is named; every refusal is exit code 2, as in the peer."""
    if len(words) != 1:
        return _refused(InvalidInput("name one run to repair"), USAGE_LINE, as_json=as_json)
    try:
        done = _repaired(words[0], sdd_dir, recover=recover)
    except RunNotFound as error:
        return _refused(error, f"No journal found: {_journal(words[0], sdd_dir)}", as_json=as_json)
    except InvalidInput as error:
        return _refused(error, f"Refusing to repair: {error.message}", as_json=as_json)
    except BernsteinError as error:
        return _refused(error, f"Repair refused: {error.message}", as_json=as_json)
    if as_json:
        document(repair_document(done, words[0]))
    else:
        for line in repair_lines(done):
            say(line, GREEN)
    if done.kept_path:
        remark(f"what was taken out is kept in {done.kept_path}")
    return exit_codes.OK


def _repaired(run_id: str, sdd_dir: Path, *, recover: bool) -> RepairedRun:
    if run_id != LATEST:
        paths.check_run_id(run_id)
    if not sdd_dir.is_dir() and not in_fleet(sdd_dir):
        raise RunNotFound(f"{sdd_dir} is no folder, so there is no run {run_id}", run_id=run_id)
    with Services(sdd_dir) as services:
        return services.journal.repair_run(run_id, recover=recover)


def _journal(run_id: str, sdd_dir: Path) -> Path:
    return sdd_dir.resolve() / paths.journal_path(run_id)


def _refused(error: BernsteinError, text: str, *, as_json: bool) -> int:
    if as_json:
        document({"error": error.reason, "detail": error.message, **error.metadata})
    else:
        say(text, RED)
    remark(f"bernstein: {error.message} [{error.reason}]")
    return exit_codes.USAGE


def repair_document(done: RepairedRun, run_id: str) -> dict[str, Printed]:
    """The JSON: the peer's members in its order, then what is ours."""
    return {
        "run_id": run_id,
        "journal": done.journal_path,
        "repaired": done.repaired,
        "removed_line_indices": list(done.removed_lines),
        "event_count": done.row_count,
        "head": done.head_hash,
        "recovered_count": done.recovered_count,
        "added_newline": done.added_newline,
        "kept_path": done.kept_path or None,
    }


def repair_lines(done: RepairedRun) -> Iterator[str]:
    """The lines for people."""
    if not done.repaired:
        yield f"Nothing to repair in {done.run_id}"
    elif done.added_newline:
        yield f"Repaired {done.run_id}: the last row has its line feed again"
    else:
        lines = ", ".join(str(line + 1) for line in done.removed_lines[:20])
        yield f"Repaired {done.run_id}: took out line(s) {lines} (counted from 1)"
    if done.recovered_count:
        yield f"recovered {done.recovered_count} row(s) from them"
    yield f"{done.row_count} event(s); head {done.head_hash or '(empty)'}"
