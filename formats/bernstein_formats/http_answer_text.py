"""What an answer says to a reader: its own text, and the texts that its stream says in pieces.

A word may be cut anywhere between two events; joined it is whole. Rules:
docs/formats/llm-http.md, section 7.
"""

from collections.abc import Iterable, Iterator

from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import InvalidInput
from bernstein_formats.event_stream import EventParser
from bernstein_formats.http_encoding import decoded
from bernstein_formats.http_places import objects

# What tells the parts of one answer from those of another in the same stream.
_PART_MEMBERS = ("index", "item_id", "output_index", "content_index")


def readable(body: bytes, encoding: str) -> bytes:
    """A body without its content encoding, as far as that can be read."""
    try:
        return decoded(encoding, body)
    except InvalidInput:
        return body


def joined_texts(text: bytes) -> list[str]:
    """The texts that come in several pieces in a stream of events, or in a JSON array of them."""
    pieces: dict[tuple[str, ...], list[str]] = {}
    for event in messages_in(text):
        part = tuple(str(event.get(name, "")) for name in _PART_MEMBERS)
        for place, piece in _leaves(event, ()):
            pieces.setdefault((*part, *place), []).append(piece)
    return ["".join(found) for found in pieces.values() if len(found) > 1]


def messages_in(text: bytes) -> Iterator[dict[str, JsonValue]]:
    """The objects of an answer: of a stream of events, of an array, or the one that it is."""
    start = text.lstrip()[:1]
    if start in {b"[", b"{"}:
        parsed = _parsed(text)
        yield from objects(parsed if isinstance(parsed, list) else [parsed])
        return
    parser = EventParser()
    try:
        # A cut stream may lack the empty line that ends its last event.
        events = [*parser.feed(text), *parser.feed(b"\n\n")]
    except InvalidInput:
        return
    yield from objects([_parsed(event.data) for event in events])


def _parsed(data: bytes | str) -> JsonValue:
    try:
        return parse_json(data)
    except InvalidInput:
        return None


def _leaves(value: JsonValue, place: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for at, each in enumerate(value):
            number = each.get("index", at) if isinstance(each, dict) else at
            yield from _leaves(each, (*place, str(number)))
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*place, name))
