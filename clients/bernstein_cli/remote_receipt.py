"""`bernstein verify receipt FILE --remote`: the receipt is verified here, and the signer of the
project or the fleet is asked whether it stands behind it.

It does when its key signed the receipt, or when its ledger has it, as for a former key.
"""

from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from bernstein_cli.output import GREEN, RED, Printed, document, remark, say
from bernstein_client.connection import Services
from bernstein_formats.public_key import parse_public_pem
from bernstein_verify.questions import Question, mapped_file
from bernstein_verify.receipt_view import receipt_document, receipt_lines, tell_receipt
from bernstein_verify.receipts import Checked, check_receipt

# As for a receipt that somebody else signed.
_NOT_OURS: Final = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """What the signer says."""

    signed_by_its_key: bool
    in_its_ledger: bool
    run_sealed: bool

    @property
    def is_ours(self) -> bool:
        return self.run_sealed and (self.signed_by_its_key or self.in_its_ledger)

    def text(self) -> str:
        """One line for people."""
        if not self.run_sealed:
            return "the signer's ledger has no seal of this run"
        if self.in_its_ledger:
            key = "its present key" if self.signed_by_its_key else "a former key of its"
            return f"the signer's ledger has this receipt, signed with {key}"
        if self.signed_by_its_key:
            return "signed with the signer's key; its ledger has the run, and not this very file"
        return "the signer's ledger does not know this receipt, nor is it signed with its key"


def answer_remote(
    program: str, path: str, question: Question, sdd_dir: Path, *, as_json: bool
) -> int:
    """Verify, ask, and say both; gives the exit code. `program` is who says so."""
    checked = check_receipt(path, question)
    if checked.verdict is None or not checked.verdict.ok:
        return tell_receipt(program, checked, question, as_json=as_json)
    standing, question = _asked(path, checked, question, sdd_dir)
    if standing.signed_by_its_key:
        checked = check_receipt(path, question)
    exit_code = checked.exit_code if standing.is_ours else _NOT_OURS
    _tell(checked, question, standing, exit_code, as_json=as_json)
    return exit_code


def _asked(
    path: str, checked: Checked, question: Question, sdd_dir: Path
) -> tuple[Standing, Question]:
    """And the question with the signer's key pinned, where that one signed and none was named."""
    verdict = checked.verdict
    assert verdict is not None
    with mapped_file(path) as data:
        digest = sha256(data).digest()
    with Services(sdd_dir) as services:
        found = services.journal.check_receipt(verdict.run_id, digest)
    pem = found.public_key_pem
    own = bool(pem) and verdict.key == parse_public_pem(pem)
    if own and question.pin is None and question.chain is None:
        question = replace(question, pin=pem, pin_path="the signer's")
    return Standing(own, found.is_known, found.is_sealed), question


def _tell(
    checked: Checked, question: Question, standing: Standing, exit_code: int, *, as_json: bool
) -> None:
    assert checked.verdict is not None
    if as_json:
        remote: dict[str, Printed] = {**asdict(standing)}
        document({**receipt_document(checked, question), "remote": remote})
        return
    colour = GREEN if exit_code == 0 else RED
    for line in receipt_lines(checked.verdict):
        say(line, colour)
        colour = ""
    say(standing.text(), "" if standing.is_ours else RED)
    if not standing.is_ours:
        remark("somebody else's key signed it, or another fleet's; ask where it comes from")
