"""What the step-journal forms of `bernstein replay` answer; gives the exit codes.

Refusals keep the peer's codes: {"error": CODE, "detail": text} under --as-json.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click

from bernstein_cli import exit_codes
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
from bernstein_cli.step_options import StepOptions
from bernstein_cli.step_source import StepReader, Steps
from bernstein_cli.step_view import step_lines, walk
from bernstein_cli.table import width
from bernstein_formats.acknowledged import WHAT_TO_DO
from bernstein_formats.errors import (
    KeyUnusable,
    LimitExceeded,
    NotFound,
    ReceiptMalformed,
    RowsMissing,
)
from bernstein_formats.journal_reader import Row
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_formats.session_diff import StepDifference, diff_steps
from bernstein_formats.session_journal_reader import Fault, entries, numbered_rows
from bernstein_formats.session_journal_verify import StepsVerification, verify_steps
from bernstein_formats.session_receipt_verify import (
    SessionReceiptVerdict,
    verify_session_receipt,
)
from bernstein_runtime.disk import in_words
from bernstein_runtime.regular_file import read_regular
from bernstein_verify.questions import mapped_file

MISSING = "agent_journal_missing"
BOTH_MISSING = "One or both journals are missing."


@dataclass(frozen=True, slots=True)
class AskedSteps:
    """The options, and where the journals come from."""

    reader: StepReader
    sdd_dir: Path
    as_json: bool
    options: StepOptions
    # Whether nothing may be started or written, the audit log included.
    offline: bool

    def refuse(self, code: str, detail: str, exit_code: int, **first: Printed) -> int:
        """Say why not; gives the exit code."""
        if self.as_json:
            document({**first, "error": code, "detail": detail})
        remark(f"bernstein: {detail} [{code}]")
        return exit_code

    def open(self, agent_id: str) -> Steps:
        """A journal from which nothing is gone. Raises NotFound, RowsMissing."""
        return self.reader.open(agent_id).whole()

    def missing(self, error: NotFound) -> int:
        return self.refuse(MISSING, error.message, exit_codes.USAGE)


def view(asked: AskedSteps, agent_id: str, limit: int | None) -> int:
    """`replay AGENT_ID`."""
    try:
        steps = asked.reader.open(agent_id)
    except NotFound as error:
        return asked.missing(error)
    code = _view(asked, steps, limit)
    if not steps.missing:
        return code
    remark(f"bernstein: {steps.missing}; {WHAT_TO_DO} [{RowsMissing.reason}]")
    return exit_codes.FAILED


def _view(asked: AskedSteps, steps: Steps, limit: int | None) -> int:
    found = verify_steps(steps.chunks())
    if not any("step_hash" in row for row in _objects(steps)):
        return _empty(asked, steps, found)
    if not found.ok:
        return _broken(asked, steps, found)
    if asked.options.walk and sys.stdin.isatty() and sys.stdout.isatty() and not asked.as_json:
        walk(steps)
    else:
        _show(asked, steps, found, limit)
    return exit_codes.OK


def _objects(steps: Steps) -> Iterator[Row]:
    return (row for _, row in numbered_rows(steps.chunks()) if not isinstance(row, Fault))


def _empty(asked: AskedSteps, steps: Steps, found: StepsVerification) -> int:
    if asked.as_json:
        document(_view_head(steps, found) | {"entries": []})
    else:
        say(f"Journal for {steps.agent_id} is empty")
    return exit_codes.OK


def _broken(asked: AskedSteps, steps: Steps, found: StepsVerification) -> int:
    if asked.as_json:
        document({"ok": False, **_view_head(steps, found), "errors": _texts(found)})
    else:
        say(f"Chain verification failed for {steps.agent_id}:", RED)
        for text in _texts(found):
            say(f"  - {text}")
    return exit_codes.FAILED


def _show(asked: AskedSteps, steps: Steps, found: StepsVerification, limit: int | None) -> None:
    rows = islice(entries(steps.chunks()), limit)
    if asked.as_json:
        document_with_rows(_view_head(steps, found), "entries", rows, {})
        return
    say(f"Replay for {steps.agent_id}")
    say(f"head_hash: {found.head_hash}")
    say(f"steps: {found.steps}")
    for line in step_lines(rows, width()):
        say(line)
    remark("`--walk` steps through them; `bernstein replay export` makes a receipt")


def _view_head(steps: Steps, found: StepsVerification) -> dict[str, Printed]:
    gone: dict[str, Printed] = {"missing": steps.missing} if steps.missing else {}
    return {
        "agent_id": steps.agent_id, "head_hash": found.head_hash, "steps": found.steps, **gone,
    }  # fmt: skip


def _texts(found: StepsVerification | SessionReceiptVerdict) -> list[str]:
    texts = [fault.text for fault in found.faults]
    hidden = found.fault_count - len(texts)
    return [*texts, f"and {hidden} more"] if hidden else texts


def diff_journal(asked: AskedSteps, left: str, right: str) -> int:
    """`replay diff-journal LEFT RIGHT`. A chain that does not verify is no equal of another."""
    try:
        a, b = asked.open(left), asked.open(right)
    except NotFound:
        return asked.refuse(MISSING, BOTH_MISSING, exit_codes.USAGE)
    sides = {"left": verify_steps(a.chunks()), "right": verify_steps(b.chunks())}
    errors = {side: _texts(verdict) for side, verdict in sides.items() if not verdict.ok}
    found = diff_steps(entries(a.chunks()), entries(b.chunks()))
    if asked.as_json:
        part: dict[str, Printed] = {} if found is None else {**found.as_json()}
        document({"diverged": found is not None, **part, **({"errors": errors} if errors else {})})
    else:
        for line in difference_lines(found):
            say(line)
    for side, texts in errors.items():
        remark(f"the {side} journal does not verify: {'; '.join(texts[:5])}", YELLOW)
    return exit_codes.FAILED if errors or found is not None else exit_codes.OK


def difference_lines(found: StepDifference | None) -> Iterator[str]:
    """The difference, for people."""
    if found is None:
        yield "No divergence; chains match end-to-end."
        return
    yield f"Divergence at step {found.seq}: {found.reason}"
    for name in found.fields_changed:
        values = "steps" if name == "length" else name
        yield f"  {name}:"
        yield f"    left:  {_one_line(found.left_values.get(values))}"
        yield f"    right: {_one_line(found.right_values.get(values))}"


def _one_line(value: Printed) -> str:
    return " ".join(json_text(value).split())


def verify_receipt(asked: AskedSteps, words: tuple[str, ...]) -> int:
    """`replay verify RECEIPT`: from the file's own bytes; nothing is started."""
    path, head = words[0], asked.options.head
    if words[1:2] == ("--head",):  # after a bare `--`, as the peer takes it
        head = words[2] if len(words) > 2 else head
    elif len(words) > 1:
        raise click.UsageError("`bernstein replay verify` takes one RECEIPT")
    try:
        key = _public_key(asked.options.public_key)
    except (OSError, KeyUnusable) as error:
        return asked.refuse("public_key_unreadable", in_words(error), exit_codes.USAGE, ok=False)
    try:
        with mapped_file(path) as archive:
            found = verify_session_receipt(archive, key, head)
    except FileNotFoundError:
        detail = f"receipt not found: {path}"
        return asked.refuse("receipt_not_found", detail, exit_codes.USAGE, ok=False)
    except (OSError, ValueError, ReceiptMalformed, LimitExceeded) as error:
        return asked.refuse("receipt_malformed", in_words(error), exit_codes.FAILED, ok=False)
    return _receipt_verdict(asked, found, pinned_key=key is not None)


def _public_key(path: str | None) -> PublicKey | None:
    """A key of 32 raw bytes, white space around them allowed, or PEM."""
    if path is None:
        return None
    data = read_regular(Path(path))
    if b"-----BEGIN" in data:
        return parse_public_pem(data)
    return PublicKey(data if len(data) == 32 else data.strip())


def _receipt_verdict(asked: AskedSteps, found: SessionReceiptVerdict, *, pinned_key: bool) -> int:
    if asked.as_json:
        document(receipt_document(found) | {"pinned_key": pinned_key})
    elif found.ok:
        say(f"Receipt verified: head={found.head_hash} steps={found.steps}", GREEN)
    else:
        say(f"Receipt failed verification ({found.fault_count} error(s)):", RED)
        for text in _texts(found):
            say(f"  - {text}")
    if found.missing_blobs:
        count = len(found.missing_blobs)
        remark(f"{count} blob(s) that rows refer to are not in the receipt", YELLOW)
    if found.unauthenticated:
        remark(f"nobody vouches for the manifest's {', '.join(found.unauthenticated)}")
    for text in found.layout_findings:
        remark(f"finding: {text}", YELLOW)
    is_less = asked.options.strict and (found.missing_blobs or found.layout_findings)
    return exit_codes.OK if found.ok and not is_less else exit_codes.FAILED


def receipt_document(found: SessionReceiptVerdict) -> dict[str, Printed]:
    """The JSON: the peer's members, then ours."""
    status = "verified" if found.ok else "failed"
    if found.ok and found.missing_blobs:
        status = "blobs_missing"
    return {
        "ok": found.ok,
        "head_hash": found.head_hash,
        "steps": found.steps,
        "errors": _texts(found),
        "signed": found.signed,
        "status": status,
        "error_kinds": [[fault.kind.value, fault.line] for fault in found.faults],
        "missing_blobs": list(found.missing_blobs),
        "unauthenticated": list(found.unauthenticated),
        "layout_findings": list(found.layout_findings),
    }
