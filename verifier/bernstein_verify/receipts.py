"""Receipts as files: one with its COSE sibling, or a folder of them, all against one question."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bernstein_formats.receipt_read import Content
from bernstein_formats.receipt_verdict import ReceiptStatus, ReceiptVerdict
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import COSE_FILE, RECEIPT_FILE, cose_name
from bernstein_verify.questions import Question, mapped_file, read_file, unreadable_text

UNREADABLE_EXIT: Final = 1
# Worst first: forged, by a stranger, no receipt at all, by somebody.
SEVERITY: Final = (2, 4, 1, 3, 0)


@dataclass(frozen=True, slots=True)
class Checked:
    """One receipt's verdict; without one, `error` says why the file could not be read."""

    path: str
    exit_code: int
    verdict: ReceiptVerdict | None = None
    error: str = ""


def check_receipt(path: str, question: Question) -> Checked:
    """Verify one file, and with it its COSE file where there is one."""
    try:
        with mapped_file(path) as data:
            verdict = _verdict(path, data, question)
    except (OSError, ValueError) as error:
        return unreadable(path, unreadable_text(error))
    exit_code = verdict.exit_code(
        require_provenance=question.require_provenance, strict=question.strict
    )
    return Checked(path, exit_code, verdict)


def _verdict(path: str, data: Content, question: Question) -> ReceiptVerdict:
    cose, cose_error = None, ""
    cose_path, is_shared = _cose_file(path)
    try:
        cose = read_file(cose_path) if cose_path else None
    except OSError as error:
        cose_error = unreadable_text(error)
    verdict = verify_receipt(
        data,
        question.pin,
        cose,
        chain=question.chain,
        expected_run_id=question.expected_run_id,
        cose_may_be_of_another=is_shared,
    )
    if cose_error:
        return _without_cose(verdict, f"the COSE file cannot be read: {cose_error}")
    return verdict


def _without_cose(verdict: ReceiptVerdict, error: str) -> ReceiptVerdict:
    """What cannot be read is as good as malformed; all that is known of the receipt stays said."""
    if verdict.ok:
        return replace(verdict, status=ReceiptStatus.MALFORMED, tier=None, errors=(error,))
    return replace(verdict, warnings=(*verdict.warnings, error))


def unreadable(path: str, error: str) -> Checked:
    """A file that cannot be read is as good as malformed."""
    return Checked(path, UNREADABLE_EXIT, error=error)


def check_folder(folder: str, question: Question) -> Iterator[Checked]:
    """Verify every receipt of a folder, one after the other."""
    return (check_receipt(path, question) for path in receipts_in(folder))


def receipts_in(folder: str) -> list[str]:
    """Each run-receipt.json below the folder; and its own *.json, unless it is a run's folder.

    Links are not followed. Whatever is called so counts, receipt or not, file or pipe, and so does
    a folder that nobody can look into: none is passed over.
    """
    found: list[str] = []
    for parent, _, names in os.walk(folder, onerror=lambda error: found.append(error.filename)):
        if RECEIPT_FILE in names:
            found.append(os.path.join(parent, RECEIPT_FILE))  # noqa: PTH118 - as read_file
    own = [entry for entry in os.scandir(folder) if not (entry.is_dir() or entry.is_symlink())]
    if not any(entry.name == RECEIPT_FILE for entry in own):
        found += [entry.path for entry in own if entry.name.endswith(".json")]
    return sorted(found)


def worst_exit_code(codes: Sequence[int]) -> int:
    """The exit code of many: the worst of theirs."""
    return min(codes, key=SEVERITY.index)


def _cose_file(path: str) -> tuple[str, bool]:
    """A receipt's COSE file, if there is one, and whether it may be another receipt's.

    It is called after the receipt; what the peer writes is always run-receipt.cose.
    """
    folder, name = os.path.split(path)
    for beside, is_shared in ((cose_name(name), False), (COSE_FILE, name != RECEIPT_FILE)):
        found = os.path.join(folder, beside)  # noqa: PTH118 - as read_file
        if os.path.lexists(found):
            return found, is_shared
    return "", False
