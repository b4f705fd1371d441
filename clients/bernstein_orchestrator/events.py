"""The rows of a run: each payload with the peer's members, in the order in which it writes them.

Rules: docs/formats/plan-and-run.md, section 3.1. Nothing here depends on clock, process or folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bernstein_formats.canonical import JsonValue
from bernstein_orchestrator.plan_graph import GRAPH_REVISION, PlanGraph
from bernstein_orchestrator.schedule import Claim, Outcome, Round
from bernstein_orchestrator.surroundings import Surroundings

Event = tuple[str, Mapping[str, JsonValue]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What does a task: a model of a provider, or a program (`provider` None)."""

    adapter: str
    model: str
    provider: str | None
    base_url: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A context file as it was when the task was claimed; an empty digest: there was none."""

    path: str
    sha256: str
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What the rows of a claim say beside the claim."""

    claim: Claim
    endpoint: Endpoint
    attachments: tuple[Attachment, ...] = ()
    skills: tuple[JsonValue, ...] = ()


def start_events(
    run_id: str, max_agents: int, around: Surroundings, extension_set: Mapping[str, JsonValue]
) -> list[Event]:
    started: dict[str, JsonValue] = {
        "run_id": run_id,
        "max_agents": max_agents,
        "budget_usd": None,
        "git_sha": around.git_sha,
        "git_branch": around.git_branch,
        "config_hash": around.config_hash,
        "gate_config": None,
    }
    return [("run_started", started), ("loaded_extension_set", extension_set)]


def graph_events(graph: PlanGraph, goal: str) -> list[Event]:
    nodes: list[JsonValue] = [
        {
            "id": task.task_id,
            "role": task.step.role,
            "title": task.step.title,
            "depends_on": list(task.depends_on),
        }
        for task in sorted(graph.tasks, key=lambda task: task.task_id)
    ]
    facts: dict[str, JsonValue] = {
        "digest": graph.digest,
        "rev": GRAPH_REVISION,
        "task_count": len(nodes),
    }
    return [
        ("plan.graph", facts),
        ("plan.graph.full", {"goal": goal, "nodes": nodes, **facts}),
    ]


def round_events(
    this: Round,
    facts: Sequence[ClaimFacts],
    adapters_seen: set[str],
    provider_events: Sequence[Event] = (),
) -> list[Event]:
    """Make the rows of one round; `adapters_seen` grows by the adapters of its claims.

    `provider_events` are those of the attempt that ended; they come before it is reaped.
    """
    events: list[Event] = [("tick_start", {"tick": this.tick})]
    if this.ended is not None:
        events += _ended(*this.ended, provider_events)
        if this.is_retried:
            events.append(("task_retried", {"task_id": this.ended[1].task_id}))
    for claim in this.released:
        events.append(("agent_reaped", {"agent_id": claim.agent_id}))
        events.append(("task_retried", {"task_id": claim.task.task_id}))
    for each in facts:
        if each.endpoint.adapter not in adapters_seen:
            adapters_seen.add(each.endpoint.adapter)
            capability: dict[str, JsonValue] = {
                "adapter": each.endpoint.adapter,
                "capability": "declared-blind",
            }
            events.append(("provider_state_capability", capability))
        events += _claimed(each)
    return events


def end_events(
    run_id: str, *, ticks: int, head: str, outcome: str, residual: Sequence[str], checked: int
) -> list[Event]:
    completed: dict[str, JsonValue] = {
        "run_id": run_id,
        "ticks": ticks,
        "fingerprint": head,
        "outcome": outcome,
    }
    quiescence: dict[str, JsonValue] = {
        "run_id": run_id,
        "verified": not residual,
        "residual": list(residual),
        "method": "process_group",
        "checked": checked,
    }
    return [("run_completed", completed), ("run_quiescence", quiescence)]


def _ended(claim: Claim, outcome: Outcome, provider_events: Sequence[Event]) -> list[Event]:
    task_id = outcome.task_id
    if outcome.is_completed:
        done: dict[str, JsonValue] = {
            "task_id": task_id,
            "agent_id": claim.agent_id,
            "cost_usd": 0.0,
        }
        event: Event = ("task_completed", done)
    else:
        failed: dict[str, JsonValue] = {
            "task_id": task_id,
            "failed_signals": list(outcome.failed_signals),
        }
        event = ("task_verification_failed", failed)
    return [event, *provider_events, ("agent_reaped", {"agent_id": claim.agent_id})]


def _claimed(facts: ClaimFacts) -> list[Event]:
    claim, endpoint = facts.claim, facts.endpoint
    task_ids: list[JsonValue] = [claim.task.task_id]
    spawned: dict[str, JsonValue] = {
        "agent_id": claim.agent_id,
        "role": claim.task.step.role,
        "model": endpoint.model,
        "provider": endpoint.provider,
        "task_ids": task_ids,
        "agent_source": "built-in",
        "endpoint_adapter_name": endpoint.adapter,
        "endpoint_model": endpoint.model,
        "endpoint_base_url": endpoint.base_url,
        "endpoint_profile_name": "",
    }
    events: list[Event] = [("agent_spawned", spawned)]
    about: dict[str, JsonValue] = {"agent_id": claim.agent_id, "task_ids": task_ids}
    if facts.attachments:
        entries: list[JsonValue] = [
            {
                "path": each.path,
                "order": order,
                "sha256": each.sha256,
                "reason_code": each.reason_code,
            }
            for order, each in enumerate(facts.attachments)
        ]
        events.append(("context.files_attached", {**about, "entries": entries}))
    events.append(("skills.injected", {**about, "entries": list(facts.skills)}))
    claimed: dict[str, JsonValue] = {
        "task_id": claim.task.task_id,
        "agent_id": claim.agent_id,
        "model": endpoint.model,
    }
    events.append(("task_claimed", claimed))
    return events
