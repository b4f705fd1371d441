"""Provider-side mutations in the audit log: each names the hash of its journal row."""

from collections.abc import Mapping, Sequence

from bernstein_formats.audit_log import AuditFields
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import KeyUnusable
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.provider_sidecar import Signal, mutation_events
from bernstein_orchestrator.mirror import Mirror

SIGNALS = [Signal("compact_boundary", {"pre_tokens": 5}), Signal("context_edit", {})]
EVENTS: list[tuple[str, Mapping[str, JsonValue]]] = [
    ("tick_start", {"tick": 1}),
    *mutation_events(SIGNALS, "a-1", is_deterministic=True),
    ("agent_reaped", {"agent_id": "a-1"}),
]


def heads(events: Sequence[tuple[str, Mapping[str, JsonValue]]]) -> list[str]:
    head, found = ChainHead(), []
    for event, payload in events:
        _, head = next_row(head, event, dict(payload), 1.0, 0.0)
        found.append(head.head_hash)
    return found


def test_each_mutation_is_told_with_the_hash_of_its_row() -> None:
    told: list[AuditFields] = []
    mirror = Mirror("r1", told.append, lambda _: None)

    mirror.follow(EVENTS[:2])
    mirror.follow(EVENTS[2:])

    assert [each.details["journal_head"] for each in told] == heads(EVENTS)[1:3]
    assert [each.event_type for each in told] == ["provider.state_mutation"] * 2
    assert [each.details["step_index"] for each in told] == [0, 1]
    assert {each.details["run_id"] for each in told} == {"r1"}
    assert {each.details["flagged"] for each in told} == {True}


def test_a_log_that_takes_nothing_is_told_once_and_stops_no_run() -> None:
    def refuse(_: AuditFields) -> None:
        raise KeyUnusable("there is no audit key")

    warned: list[str] = []
    Mirror("r1", refuse, warned.append).follow(EVENTS)

    assert len(warned) == 1
    assert "there is no audit key" in warned[0]
