"""The table: which role may make which call. Complete over all calls of protos/, by a test.

A writer reaches what it opened itself; each other role reaches all that its grant covers.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Role(StrEnum):
    """What a caller is to runs."""

    WRITER = "writer"
    READER = "reader"
    APPROVER = "approver"
    OPERATOR = "operator"
    SERVICE = "service"


def _of(service: str, *names: str) -> frozenset[str]:
    return frozenset(f"bernstein_api.{service}/{name}" for name in names)


_JOURNAL: Final = "journal.v1.JournalService"
_RECORDER: Final = "recorder.v1.RecorderService"
_SIGNER: Final = "signer.v1.SignerService"

_READ_RUN: Final = _of(
    _JOURNAL,
    "GetRun",
    "ReadJournal",
    "VerifyRun",
    "CheckReceipt",
    "RebuildState",
    "DiffRuns",
    "WatchRows",
    "ReadSteps",
    "VerifySpine",
) | _of(_RECORDER, "GetRecording", "ReadExchanges", "ReadBodies")
_READ_ALL: Final = _of(_JOURNAL, "ListRuns", "VerifyAuditLog") | _of(
    "rederiver.v1.RederiverService", "RederiveRun"
)
_WRITE_AUDIT: Final = _of(_JOURNAL, "AppendAuditEvent")
_WRITE: Final = (
    _of(
        _JOURNAL,
        "CreateRun",
        "AppendEvents",
        "AppendLongEvent",
        "AppendRows",
        "FinishRun",
        "AppendSteps",
        "AppendStepRows",
        "ImportBlob",
        "BuildReceipt",
        "AppendSpineEntry",
    )
    | _of(_RECORDER, "OpenSession", "Call", "CloseSession", "AppendCalls", "RecordExchanges")
    | _WRITE_AUDIT
)
_CARE: Final = _of(
    _JOURNAL,
    "BeginLedger",
    "RepairRun",
    "PruneRuns",
    "AcceptLoss",
    "ExportRun",
    "ImportFile",
    "QuarantineCaller",
)
_LOOK_AFTER: Final = _of("about.v1.AboutService", "GetAbout")
_SIGN: Final = _of(
    _SIGNER,
    "SealRun",
    "BuildReceipt",
    "FindSeal",
    "FindReceipt",
    "GetSealKey",
    "MacSpineEntry",
    "MacAuditEvent",
    "VerifySpine",
    "VerifyAuditLog",
    "SignSessionReceipt",
)

RPCS: Final[Mapping[Role, frozenset[str]]] = {
    Role.WRITER: _WRITE | _READ_RUN,
    Role.READER: _READ_RUN | _READ_ALL,
    Role.APPROVER: _READ_RUN | _READ_ALL | _WRITE_AUDIT,
    Role.OPERATOR: _READ_RUN | _READ_ALL | _WRITE | _CARE | _LOOK_AFTER,
    # Journals ask the signer, rederivers ask journals.
    Role.SERVICE: _SIGN | _of(_JOURNAL, "ReadJournal"),
}
# What changes nothing, so that what is fenced off may still be looked at.
READING: Final = RPCS[Role.READER] | _of(_JOURNAL, "ExportRun")
# A run or session that is not there yet comes to be by these, and belongs to whoever made the call.
OPENING: Final = _of(
    _JOURNAL,
    "CreateRun",
    "AppendRows",
    "AppendSteps",
    "AppendStepRows",
    "AppendSpineEntry",
    "ImportFile",
) | _of(_RECORDER, "OpenSession", "AppendCalls", "RecordExchanges")
# These name no run, or need not, and yet are a writer's own.
WITHOUT_RUN: Final = _WRITE_AUDIT | _of(_JOURNAL, "CreateRun")
# What a replay does to the run that it answers from.
READ_RECORDING: Final = f"bernstein_api.{_RECORDER}/GetRecording"


def roles_for(method: str) -> list[Role]:
    """Who may make a call at all."""
    return [role for role, methods in RPCS.items() if method in methods]
