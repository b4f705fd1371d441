"""The audit events that the specification names, each with the members and resource of the peer's.

`is_anchored` events also name the event before them; the journal adds that when it appends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import JsonValue

PROVIDER_STATE_MUTATION: Final = "provider.state_mutation"
THREAD_APPROVAL: Final = "thread.approval"
LOSS_ACCEPTED: Final = "log.loss_accepted"
CALLER_FENCED: Final = "access.caller_fenced"
FENCE_LIFTED: Final = "access.fence_lifted"
JOURNAL_SEAL: Final = "intent.journal_seal"


class ReplayEvent(StrEnum):
    """What is done with a step journal; the peer defines these and never writes them."""

    STEP = "replay.step"
    FORK = "replay.fork"
    EXPORT = "replay.export"
    PUBLISH = "replay.publish"


def provider_state_mutation(
    *,
    run_id: str,
    agent_id: str,
    mutation_kind: str,
    content_address: str,
    step_index: int,
    flagged: bool,
    journal_head: str,
) -> AuditFields:
    """The mirror of a provider-side mutation whose journal row has the hash `journal_head`."""
    return AuditFields(
        event_type=PROVIDER_STATE_MUTATION,
        actor="provider_state",
        resource_type="provider_state_mutation",
        resource_id=content_address,
        details={
            "agent_id": agent_id,
            "content_address": content_address,
            "flagged": flagged,
            "journal_head": journal_head,
            "mutation_kind": mutation_kind,
            "run_id": run_id,
            "step_index": step_index,
        },
        is_anchored=True,
    )


def thread_approval(
    *,
    run_id: str,
    journal_index: int,
    event_hash: str,
    decision: str,
    operator: str,
    worktree_id: str,
) -> AuditFields:
    """An operator's decision on a step that he saw; `operator` is his installation's signature."""
    return AuditFields(
        event_type=THREAD_APPROVAL,
        actor=operator,
        resource_type="thread_approval",
        resource_id=run_id,
        details={
            "decision": decision,
            "event_hash": event_hash,
            "journal_index": journal_index,
            "operator_install_id_sig": operator,
            "run_id": run_id,
            "worktree_id": worktree_id,
        },
        is_anchored=True,
    )


def replay_event(
    event: ReplayEvent, agent_id: str, details: Mapping[str, JsonValue]
) -> AuditFields:
    """Something that was done with the step journal of an agent."""
    return AuditFields(
        event_type=event.value,
        actor="replay",
        resource_type="agent_journal",
        resource_id=agent_id,
        details={"agent_id": agent_id, **details},
        is_anchored=True,
    )


def loss_accepted(name: str, lost: str, why: str) -> AuditFields:
    """An operator went on with a log of which `lost` is gone; `why` are his words."""
    return AuditFields(
        event_type=LOSS_ACCEPTED,
        actor="operator",
        resource_type="log",
        resource_id=name,
        details={"lost": lost, "why": why},
        is_anchored=True,
    )


def caller_fenced(caller: str, since: str, by: str, things: int) -> AuditFields:
    """Calls of a caller are refused, and nothing is added to what it changed since an instant."""
    return AuditFields(
        event_type=CALLER_FENCED,
        actor=by,
        resource_type="caller",
        resource_id=caller,
        details={"since": since, "things": things},
        is_anchored=True,
    )


def fence_lifted(caller: str, since: str, by: str) -> AuditFields:
    """The end of that."""
    return AuditFields(
        event_type=FENCE_LIFTED,
        actor=by,
        resource_type="caller",
        resource_id=caller,
        details={"since": since},
        is_anchored=True,
    )


def step_details(seq: int, step_hash: str) -> dict[str, JsonValue]:
    """Details of ReplayEvent.STEP."""
    return {"seq": seq, "step_hash": step_hash}


def fork_details(parent_hash: str, child_hash: str, child_id: str) -> dict[str, JsonValue]:
    """Details of ReplayEvent.FORK."""
    return {"child_agent_id": child_id, "child_hash": child_hash, "parent_hash": parent_hash}


def export_details(head_hash: str, step_count: int) -> dict[str, JsonValue]:
    """Details of ReplayEvent.EXPORT."""
    return {"head_hash": head_hash, "step_count": step_count}


def publish_details(original_head_hash: str, head_hash: str) -> dict[str, JsonValue]:
    """Details of ReplayEvent.PUBLISH."""
    return {"head_hash": head_hash, "original_head_hash": original_head_hash}


@dataclass(frozen=True, slots=True)
class JournalSealEvent:
    """What an `intent.journal_seal` event commits a run's journal to."""

    task_id: str
    capsule_hash: str
    journal_head: str
    # None: it is not an integer, so the seal is no seal.
    event_count: int | None


def journal_seal_of(row: Mapping[str, JsonValue], run_id: str) -> JournalSealEvent | None:
    """The seal that a checked audit row holds over a run; None for any other row."""
    details = row.get("details")
    if row.get("event_type") != JOURNAL_SEAL or not isinstance(details, dict):
        return None
    if details.get("run_id") != run_id:
        return None
    count = details.get("event_count")
    return JournalSealEvent(
        task_id=str(details.get("task_id", "")),
        capsule_hash=str(details.get("capsule_hash", "")),
        journal_head=str(details.get("journal_head", "")),
        event_count=count if type(count) is int else None,
    )
