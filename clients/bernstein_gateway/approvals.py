"""An operator's decision on a row: what he sends, and the row that it must be about."""

import os
import pwd
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from bernstein_client.values import WatchedRows
from bernstein_formats.audit_events import thread_approval
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import parse_json_unique
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_formats.thread import ThreadStep, step_at
from bernstein_gateway.stream import Watcher

DECISIONS: Final = ("approve", "reject")
BODY_BYTES_MAX: Final = 16 * 1024
INDEX_MAX: Final = 2**63 - 1  # what the journal's int64 positions can say


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided, and the row as the operator saw it."""

    journal_index: int
    event_hash: str
    decision: str
    worktree_id: str

    def fields(self, run_id: str, operator: str) -> AuditFields:
        """The audit event."""
        return thread_approval(
            run_id=run_id,
            journal_index=self.journal_index,
            event_hash=self.event_hash,
            decision=self.decision,
            operator=operator,
            worktree_id=self.worktree_id,
        )


def parse_decision(body: bytes) -> Decision:
    """Read `{"journal_index", "event_hash", "decision", "worktree_id"?}`. Raises InvalidInput."""
    members = parse_json_unique(body)
    if not isinstance(members, dict):
        raise InvalidInput("a decision is one JSON object")
    unknown = members.keys() - {"journal_index", "event_hash", "decision", "worktree_id"}
    if unknown:
        raise InvalidInput(f"a decision has no member {min(unknown)!r}")
    index, stored = members.get("journal_index"), members.get("event_hash")
    decision, worktree_id = members.get("decision"), members.get("worktree_id", "")
    if type(index) is not int or not 0 <= index <= INDEX_MAX:
        raise InvalidInput("journal_index must be the position of a row", member="journal_index")
    if not isinstance(stored, str) or not isinstance(worktree_id, str):
        raise InvalidInput("event_hash and worktree_id must be text", member="event_hash")
    if not isinstance(decision, str) or decision not in DECISIONS:
        raise InvalidInput(f"decision must be {' or '.join(DECISIONS)}", member="decision")
    return Decision(index, stored, decision, worktree_id)


async def row_at(watcher: Watcher, run_id: str, index: int) -> ThreadStep:
    """The row at a position as viewers get it. Raises RunNotFound, InvalidInput, RowMalformed."""
    async with aclosing(watcher.watch_rows(run_id, index)) as items:
        await anext(items)  # where the stream stands; what is stored comes next
        item = await anext(items, None)
        if isinstance(item, WatchedRows):
            return step_at(index, item.lines[0])
    raise InvalidInput(f"run {run_id} has no row {index} yet", journal_index=index)


async def limited_body(request: Request) -> bytes:
    """The request's body. Raises LimitExceeded."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(f"a decision has at most {BODY_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def local_operator() -> str:
    """Who decides: whoever runs this gateway, since nobody else has its key."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"local:{name}"
