"""What a provider did to the context is told by rows that a verification understands."""

import json
from dataclasses import replace
from typing import Any

import pytest

from bernstein_formats.http_exchange import (
    EVENT,
    Answer,
    End,
    body_of,
    envelope_of,
    exchange_of,
    parse_exchange,
)
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_mutations import COMPACTION, EDIT, mutation_events
from bernstein_formats.provider_state import MUTATION, ProviderState

APPLIED = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8}
MANAGED = {"applied_edits": [APPLIED, {"type": "clear_thinking_20251015"}]}
BLOCK = {"type": "compaction", "content": "what was said so far"}
ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "opaque"}


def frames(*events: Any) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def stream_and_whole() -> dict[str, tuple[bytes, list[str]]]:
    done = {"type": "response.output_item.done", "item": ITEM}
    # The last event has everything once more.
    completed = {"type": "response.completed", "response": {"output": [ITEM]}}
    return {
        "edits": (
            frames({"type": "message_delta", "context_management": MANAGED}),
            [EDIT, EDIT],
        ),
        "edits-whole": (json.dumps({"context_management": MANAGED}).encode(), [EDIT, EDIT]),
        "block": (frames({"type": "content_block_start", "content_block": BLOCK}), [COMPACTION]),
        "block-whole": (json.dumps({"content": [BLOCK]}).encode(), [COMPACTION]),
        "item": (frames(done, completed), [COMPACTION]),
        "item-whole": (json.dumps({"object": "response", "output": [ITEM]}).encode(), [COMPACTION]),
        "none": (json.dumps({"content": "compaction", "context_management": None}).encode(), []),
        "nothing": (b'{"context_management": 5', []),
    }


@pytest.mark.parametrize("case", stream_and_whole().values(), ids=stream_and_whole().keys())
def test_each_signal_is_one_row_that_verifies(case: tuple[bytes, list[str]]) -> None:
    text, kinds = case
    events = mutation_events(text, "agent", 7)
    state = ProviderState()
    for name, members in events:
        state.feed(0, {"event": name, **members})

    assert [members["mutation_kind"] for _, members in events] == kinds
    assert {(name, members["step_index"]) for name, members in events} <= {(MUTATION, 7)}
    assert (state.ok, state.mutation_count, state.flagged_count) == (True, len(kinds), 0)


def test_two_edits_are_told_apart_and_the_same_one_is_the_same() -> None:
    text = json.dumps({"context_management": MANAGED}).encode()
    first, second = mutation_events(text, "agent", 7)

    assert first[1]["after_digest"] != second[1]["after_digest"]
    assert mutation_events(text, "agent", 7) == [first, second]


def test_rows_of_an_exchange_are_written_again_by_its_replay() -> None:
    request = HttpRequest("POST", "/anthropic/v1/messages", (), (), b'{"model":"m"}')
    answer = Answer(200, body_of(b""), End.COMPLETE, True, "end_turn")
    envelope = envelope_of(request, (), ())
    events = tuple(mutation_events(json.dumps({"content": [BLOCK]}).encode(), "agent", 1))
    made = exchange_of("agent", 1, request, keyed(request), answer=answer, envelope=envelope)
    kept = replace(made, mutations=events)
    again = parse_exchange(kept.line(), 1)

    assert again.events() == kept.events()
    assert [name for name, _ in again.events()] == [EVENT, MUTATION]
