"""`bernstein thread verify --run RUN`: each frame is a row of the journal, in its place."""

from pathlib import Path

import click

from bernstein_cli import exit_codes
from bernstein_cli.completion import complete_runs
from bernstein_cli.output import GREEN, RED, document, remark, say
from bernstein_cli.run_reader import open_runs
from bernstein_formats.errors import BernsteinError, InvalidInput, RunNotFound
from bernstein_formats.thread import ThreadVerdict, verify_thread


@click.command("verify")
@click.option(
    "--run",
    "run_id",
    required=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run, or `latest`.",
)
@click.option("--sdd-dir", default=".sdd", show_default=True, help="The state folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--offline", is_flag=True, help="Read the file here; start nothing.")
def thread_verify(*, run_id: str, sdd_dir: str, as_json: bool, offline: bool) -> int:
    """Compare the thread that viewers get with the journal that it comes from.

    Exit codes: 0 they agree, 1 they do not, 2 there is no such run.
    """
    try:
        with open_runs(Path(sdd_dir), offline=offline, file=None) as runs:
            verdict = verify_thread(runs.read_journal(run_id))
    except RunNotFound as error:
        return _missing(run_id, "run journal not found", error, as_json=as_json)
    except InvalidInput as error:
        return _missing(run_id, f"invalid run id: {error.message}", error, as_json=as_json)
    if as_json:
        document(
            {
                "ok": verdict.ok,
                "run_id": run_id,
                "count": verdict.count,
                "divergent_index": verdict.divergent_index,
                "errors": list(verdict.errors),
                "findings": [
                    {"reason": each.reason, "index": each.index, "member": each.member}
                    for each in verdict.findings
                ],
            }
        )
    else:
        _tell(verdict, run_id)
    return exit_codes.OK if verdict.ok else exit_codes.FAILED


def _tell(verdict: ThreadVerdict, run_id: str) -> None:
    if verdict.ok:
        say(f"thread verified for {run_id}: {verdict.count} steps match the journal", GREEN)
        return
    say(f"thread divergence for {run_id} at step {verdict.divergent_index}", RED)
    for error in verdict.errors:
        say(f"  - {error}")
    for finding in verdict.findings:
        member = f" ({finding.member})" if finding.member else ""
        say(f"  - finding: {finding.reason} at step {finding.index}{member}")


def _missing(run_id: str, text: str, error: BernsteinError, *, as_json: bool) -> int:
    if as_json:
        document({"ok": False, "run_id": run_id, "error": text})
    remark(f"bernstein: {error.message} [{error.reason}]")
    return exit_codes.USAGE
