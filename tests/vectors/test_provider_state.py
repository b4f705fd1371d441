"""Provider state against the golden files: rows of a sidecar, its damaged lines, verdicts."""

import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.canonical import JsonValue
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.journal_diff import diff_journals
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.provider_sidecar import mutation_events, parse_sidecar, signal_of
from bernstein_formats.provider_state import ProviderState

FOLDER = Path(__file__).parent / "data" / "llm"
# 1, 1.0 and true differ here, and a line that is no object is passed over.
STRICTER_PAIRS = {"058-diff-python-equality": (True, 0), "060-diff-array-row": (True, 0)}
PAIRS = sorted(path.name for path in FOLDER.glob("*-diff-*"))


def read(case: str, file: str) -> Any:
    return json.loads((FOLDER / case / file).read_bytes())


def verdict_on(content: bytes) -> dict[str, Any]:
    state = ProviderState()
    found = verify_journal([content], watch=state.feed)
    chain_ok = found.chain_consistent and not found.discarded_count
    return {
        "ok": chain_ok and state.ok,
        "chain_ok": chain_ok,
        "mutation_count": state.mutation_count,
        "flagged_indices": state.flagged_indices,
        "errors": [*found.errors, *state.errors],
    }


@pytest.mark.parametrize("case", ["061-provider-rows-free", "062-provider-rows-deterministic"])
def test_the_rows_of_a_session_are_the_peers_bytes(case: str) -> None:
    given = read(case, "signals.json")
    signals = [signal_of(each) for each in given["signals"]]
    events: list[tuple[str, dict[str, JsonValue]]] = [
        ("provider_state_capability", {"adapter": "claude", "capability": "observed"}),
        *mutation_events(signals, given["agent_id"], is_deterministic=given["deterministic"]),
        ("agent_reaped", {"agent_id": given["agent_id"]}),
    ]
    head, lines = ChainHead(), []
    for event, payload in events:
        line, head = next_row(head, event, payload, given["base_ts"], 0.0)
        lines.append(line + b"\n")

    content = b"".join(lines)

    assert (FOLDER / case / "expected.jsonl").read_bytes() == content
    assert read(case, "expected.json")["verify"] == verdict_on(content)


@pytest.mark.parametrize("file", sorted(read("063-provider-verify", "expected.json")))
def test_the_verdict_on_provider_state_is_the_peers(file: str) -> None:
    content = (FOLDER / "063-provider-verify" / file).read_bytes()
    assert read("063-provider-verify", "expected.json")[file] == verdict_on(content)


def test_a_damaged_sidecar_gives_what_can_be_read_of_it() -> None:
    signals = parse_sidecar((FOLDER / "064-provider-sidecar" / "s1.jsonl").read_bytes())
    wanted = read("064-provider-sidecar", "expected.json")["s1"]
    assert wanted == [{"kind": each.kind, "detail": each.detail} for each in signals]
    assert parse_sidecar(b"") == []


@pytest.mark.parametrize("case", PAIRS)
def test_pairs_of_logs_differ_where_the_peer_says(case: str) -> None:
    a, b = ([(FOLDER / case / file).read_bytes()] for file in ("a.jsonl", "b.jsonl"))
    found = diff_journals(a, b)
    if case in STRICTER_PAIRS:
        assert STRICTER_PAIRS[case] == (found.diverged, found.index)
        return
    wanted = read(case, "expected.json")
    assert wanted == {member: getattr(found, member) for member in wanted}
