"""The manifest of a session receipt, made here from the session's rows."""

import re
from collections.abc import Iterable
from typing import Final

from bernstein_formats.errors import InvalidInput, JournalError
from bernstein_formats.journal_reader import bounded
from bernstein_formats.paths import check_agent_id
from bernstein_formats.session_receipt import ReceiptRows, SessionManifest

_CREATED_AT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_VERSION: Final = re.compile(r"[!-~]{1,64}")


def make_manifest(
    agent_id: str, created_at: str, version: str, step_count: int, journal: Iterable[bytes]
) -> SessionManifest:
    """Walk the rows and say what they are. Raises JournalError unless all of them are in order."""
    check_agent_id(agent_id)
    if not _CREATED_AT.fullmatch(created_at) or not _VERSION.fullmatch(version):
        raise InvalidInput("created_at must be YYYY-MM-DDTHH:MM:SSZ, version 1 to 64 characters")
    rows = ReceiptRows("signature")
    for _ in rows.lines(bounded(journal)):
        pass
    manifest = rows.manifest(agent_id, created_at, version)
    if manifest.steps != step_count:
        raise JournalError(f"{step_count} steps were announced, {manifest.steps} came")
    return manifest
