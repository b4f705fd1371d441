"""A miss in the words and the shape of the protocol that asked, so that its client stops at once.

Statuses were measured with real clients. Rules: docs/formats/llm-http.md, section 6.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.http_key import Keyed
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_replay import MissKind, NoAnswer
from bernstein_formats.mcp_message import error_answer

CODE: Final = "REPLAY_MISS"
_SHOWN_CHARACTERS: Final = 60
# Beyond this two requests have nothing to do with each other.
_DIFFERENCES_MAX: Final = 200
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which a request differs from a recorded one, as a JSON path."""

    place: str
    recorded: str
    asked: str

    def text(self) -> str:
        return f"{self.place} (recorded {self.recorded}, asked {self.asked})"


@dataclass(frozen=True, slots=True)
class Nearest:
    """The recorded exchange that is most like a request, and where they first differ."""

    exchange: Exchange
    first: Difference
    count: int


def nearest(asked: Keyed, recorded: Iterable[tuple[Exchange, Keyed]]) -> Nearest | None:
    """The recorded request with the fewest differences; of equals the first."""
    best: Nearest | None = None
    for exchange, keyed in recorded:
        limit = best.count if best else _DIFFERENCES_MAX
        found = list(islice(differences(keyed.canonical, asked.canonical), limit))
        if found and (best is None or len(found) < best.count):
            best = Nearest(exchange, found[0], len(found))
    return best


def differences(recorded: JsonValue, asked: JsonValue, place: str = "$") -> Iterator[Difference]:
    """Where two values differ, in the order of the recorded one."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in [*recorded, *(each for each in asked if each not in recorded)]:
            yield from _member(recorded.get(name, _ABSENT), asked.get(name, _ABSENT), place, name)
    elif isinstance(recorded, list) and isinstance(asked, list):
        for at, (was, now) in enumerate(zip_longest(recorded, asked, fillvalue=_ABSENT)):
            yield from _member(was, now, place, at)
    elif repr(recorded) != repr(asked):  # 1, 1.0 and true are three values
        yield _difference(place, recorded, asked)


def _member(was: object, now: object, place: str, name: str | int) -> Iterator[Difference]:
    below = f"{place}[{name}]" if isinstance(name, int) else f"{place}.{name}"
    if was is _ABSENT or now is _ABSENT:
        yield Difference(below, _shown(was), _shown(now))
    else:
        yield from differences(was, now, below)  # type: ignore[arg-type]  # values of JSON


def _difference(place: str, was: JsonValue, now: JsonValue) -> Difference:
    """Long texts from a little before the first character that differs."""
    start = 0
    if isinstance(was, str) and isinstance(now, str):
        pairs = enumerate(zip_longest(was, now))
        start = max(0, next(at for at, (a, b) in pairs if a != b) - 20)
        if start:
            return Difference(
                f"{place} from character {start}", _shown(was[start:]), _shown(now[start:])
            )
    return Difference(place, _shown(was), _shown(now))


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "nothing"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def miss_text(
    miss: NoAnswer, asked: Keyed, protocol: str, lane: str, near: Nearest | None = None
) -> str:
    """What the agent's user reads; code word and key first, because clients cut and wrap."""
    about = "method" if protocol == Protocol.MCP else "model"
    start = (
        f"{CODE}: no recorded response for this {protocol} request"
        f" (key {asked.key[:16]}, {about} {asked.model or 'not named'}, lane {lane})."
    )
    parts = [start, _cause(miss)]
    if near is not None:
        again = f" and {near.count - 1} more" if near.count > 1 else ""
        parts.append(
            f"Nearest: recorded request {near.exchange.seq}; first difference:"
            f" {near.first.text()}{again}."
        )
    parts.append("Nothing was sent to a provider. To take it up, record the run again.")
    return " ".join(parts)


def _cause(miss: NoAnswer) -> str:
    count = miss.recorded_count
    return {
        MissKind.NOT_RECORDED: "It was never recorded.",
        MissKind.EXHAUSTED: f"It was recorded, and {count} of {count} answers are used up.",
        MissKind.UNKNOWN_LANE: "Nothing was recorded in this lane.",
        MissKind.LATCHED: "The lane is closed since its first miss.",
    }[miss.kind]


def error_status(protocol: Protocol) -> int:
    """The status that each protocol's clients neither retry nor hide."""
    return 424 if protocol is Protocol.ANTHROPIC_MESSAGES else 400


def error_body(
    protocol: Protocol, text: str, key: str = "", code: str = CODE, request_id: JsonValue = None
) -> bytes:
    """The protocol's own error; `request_id` is who asked, where messages have ids."""
    shown = text.encode("utf-8", "backslashreplace").decode()
    if protocol is Protocol.MCP:
        return error_answer(request_id, shown, key, code)
    body: dict[str, JsonValue]
    if protocol is Protocol.ANTHROPIC_MESSAGES:
        body = {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": shown},
            "replay": {"code": code.lower(), "key": key},
        }
    elif protocol is Protocol.GEMINI_GENERATE:
        details: dict[str, JsonValue] = {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": code,
            "domain": "replay",
        }
        body = {
            "error": {
                "code": error_status(protocol),
                "message": shown,
                "status": "FAILED_PRECONDITION",
                "details": [details],
            }
        }
    else:
        error: dict[str, JsonValue] = {
            "message": shown,
            "type": "invalid_request_error",
            "param": None,
            "code": code.lower(),
        }
        body = {"error": error}
    return spelled(body).encode()
