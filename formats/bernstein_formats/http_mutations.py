"""What a provider did to an agent's context on its side, as its answer tells: journal rows.

Anthropic names the edits that it applied and begins a block where it compacted; OpenAI sends an
item of its own. Rules: docs/formats/llm-http.md, section 8, and llm-record-replay.md, section 5.
"""

from collections.abc import Iterator
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_answer_text import messages_in
from bernstein_formats.http_places import objects
from bernstein_formats.provider_sidecar import Event, Signal, mutation_event

EDIT: Final = "context_edit"
COMPACTION: Final = "context_compaction"
_TELLING: Final = (b"context_management", b"compaction")
_ITEM_DONE: Final = "response.output_item.done"


def mutation_events(text: bytes, lane: str, seq: int) -> list[Event]:
    """The rows for an answer, given without its content encoding; most have none."""
    if not any(each in text for each in _TELLING):
        return []
    return [
        mutation_event(signal, seq, lane, is_flagged=False)
        for message in messages_in(text)
        for signal in _signals(message)
    ]


def _signals(message: dict[str, JsonValue]) -> Iterator[Signal]:
    for holder in (message, message.get("message")):
        managed = holder.get("context_management") if isinstance(holder, dict) else None
        if isinstance(managed, dict):
            yield from (Signal(EDIT, edit) for edit in objects(managed.get("applied_edits")))
    done = message.get("item") if message.get("type") == _ITEM_DONE else None
    lists = ([message.get("content_block"), done], message.get("content"), message.get("output"))
    for part in (part for parts in lists for part in objects(parts)):
        if part.get("type") == "compaction":
            yield Signal(COMPACTION, part)
