"""One recorded exchange with a model provider: a line of `llm_http.jsonl`, bodies by digest.

Rules: docs/formats/llm-http.md, section 4.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from types import MappingProxyType
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json_unique, spelled
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.http_key import HttpRequest, Keyed, Pairs, open_query
from bernstein_formats.http_rule_file import RULE_SET
from bernstein_formats.http_secrets import REDACT
from bernstein_formats.provider_sidecar import Event
from bernstein_formats.provider_state import MUTATION

VERSION: Final = 1
EVENT: Final = "llm_http_exchange"
_NONE: Final[Mapping[str, int]] = MappingProxyType({})
_DIGEST = re.compile(r"[0-9a-f]{64}")
# Names of headers whose values say who is asking, or let somebody in.
_SECRET_NAME = re.compile(
    r"auth|api-?key|cookie|token|secret|organization|openai-project|x-codex-turn-metadata|signature",
    re.IGNORECASE,
)
# Token counts and the like are no secrets.
_OPEN_NAME = re.compile(r"(?:x-|anthropic-)ratelimit-", re.IGNORECASE)
_SESSION_HEADER: Final = "mcp-session-id"
# Of one connection only (RFC 9110, section 7.6.1), or written anew by each server.
_HOP_NAMES: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"),
        *("upgrade", "host", "content-length", "accept-encoding", "expect", "date", "server"),
    }
)


class End(StrEnum):
    """How an exchange ended at the agent's side."""

    COMPLETE = "complete"
    # The provider's connection broke: the agent's was broken at the same place.
    ABORTED = "aborted"
    # The agent left before the end.
    CLIENT_GONE = "client_gone"


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes that are stored under their digest."""

    sha256_hex: str
    size: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent got; status 0: it left before there was a status."""

    status: int
    body: Body
    end: End
    # Whether the stream showed its protocol's own end; None: it is no event stream.
    is_finished: bool | None
    stop_reason: str

    @property
    def is_whole(self) -> bool:
        """Whether this is all that the model had to say."""
        return self.end is End.COMPLETE and self.is_finished is not False


@dataclass(frozen=True, slots=True)
class Envelope:
    """What went with the two bodies; stored like a body, since most of it repeats each time."""

    query: Pairs
    request_headers: Pairs
    response_headers: Pairs
    # Size in bytes and milliseconds since the request for each piece, as they arrived.
    chunks: tuple[tuple[int, float], ...]

    def data(self) -> bytes:
        """Its stored bytes."""
        members: dict[str, JsonValue] = {
            "query": _packed(self.query),
            "request_headers": _packed(self.request_headers),
            "response_headers": _packed(self.response_headers),
            "chunks": [[size, at] for size, at in self.chunks],
        }
        return spelled(members).encode()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer. `seq` counts the requests of a lane as they arrived, from 1."""

    lane: str
    seq: int
    method: str
    path: str
    envelope: Body
    request: Body
    protocol: str
    model: str
    key: str
    # Which rules changed something, and how often.
    rules: Mapping[str, int]
    answer: Answer
    rule_set: int = RULE_SET.version
    rules_sha256: str = RULE_SET.sha256_hex
    # Of the key that its secrets were replaced with; empty: none were.
    redaction_key: str = ""
    # Kinds of secrets in the answer, which is not in the run's folder then.
    quarantined: tuple[str, ...] = ()
    # Journal rows about what the provider did to the context, as the answer tells.
    mutations: tuple[Event, ...] = ()

    def line(self) -> bytes:
        """The row, with its line feed."""
        row: dict[str, JsonValue] = {
            "v": VERSION,
            **self._facts(),
            "envelope_sha256": self.envelope.sha256_hex,
            "envelope_bytes": self.envelope.size,
            "mutations": [[name, members] for name, members in self.mutations],
        }
        return spelled(row).encode() + b"\n"

    def events(self) -> list[Event]:
        """Its journal rows: nothing that a replay could not repeat."""
        return [(EVENT, self._facts()), *self.mutations]

    def _facts(self) -> dict[str, JsonValue]:
        answer = self.answer
        return {
            "lane": self.lane,
            "seq": self.seq,
            "method": self.method,
            "path": self.path,
            "protocol": self.protocol,
            "model": self.model,
            "key": self.key,
            "rule_set": self.rule_set,
            "rules_sha256": self.rules_sha256,
            "rules": dict(self.rules),
            "request_sha256": self.request.sha256_hex,
            "request_bytes": self.request.size,
            "status": answer.status,
            "response_sha256": answer.body.sha256_hex,
            "response_bytes": answer.body.size,
            "end": answer.end.value,
            "finished": answer.is_finished,
            "stop_reason": answer.stop_reason,
            "redaction_key": self.redaction_key,
            "quarantined": list(self.quarantined),
        }


def body_of(data: bytes) -> Body:
    return Body(hashlib.sha256(data).hexdigest(), len(data))


def envelope_of(
    request: HttpRequest, response_headers: Pairs, chunks: Iterable[tuple[int, float]]
) -> Envelope:
    """What is kept beside the bodies; secrets in headers and query are left out."""
    return Envelope(
        open_query(request.query),
        open_headers(request.headers),
        open_headers(response_headers),
        tuple(chunks),
    )


def exchange_of(
    lane: str, seq: int, request: HttpRequest, found: Keyed, *, answer: Answer, envelope: Envelope
) -> Exchange:
    """The row of an exchange."""
    return Exchange(
        lane=lane,
        seq=seq,
        method=request.method.upper(),
        path=request.path,
        envelope=body_of(envelope.data()),
        request=body_of(request.body),
        protocol=request.protocol.value,
        model=found.model,
        key=found.key,
        rules=found.rules,
        answer=answer,
    )


def request_of(exchange: Exchange, envelope: Envelope, body: bytes) -> HttpRequest:
    """The request of a stored exchange, as it is keyed again."""
    return HttpRequest(
        method=exchange.method,
        path=exchange.path,
        query=envelope.query,
        headers=envelope.request_headers,
        body=body,
        redacted={name: n for name, n in exchange.rules.items() if name.startswith(REDACT)},
    )


def open_headers(headers: Pairs) -> Pairs:
    """The headers that may be written down and sent again."""
    return tuple(
        (name, _session_name(value) if name.lower() == _SESSION_HEADER else value)
        for name, value in headers
        if name.lower() not in _HOP_NAMES
        and (_OPEN_NAME.match(name) or not _SECRET_NAME.search(name))
    )


def _session_name(value: str) -> str:
    """Stands for the id of a tool server's session, which might let somebody in."""
    return f"recorded-{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def parse_exchange(line: bytes, number: int) -> Exchange:
    """Read line `number` of a recording. Raises RowMalformed."""
    try:
        return _exchange(parse_json_unique(line))
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        what = f"no member {error}" if isinstance(error, KeyError) else str(error)
        raise RowMalformed(
            f"llm_http.jsonl: line {number}: {what}; record the run again, or restore the file",
            line=number,
        ) from error


def parse_envelope(data: bytes, exchange: Exchange) -> Envelope:
    """Read the envelope of an exchange. Raises RowMalformed."""
    try:
        return _envelope(parse_json_unique(data), exchange.answer.body.size)
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise RowMalformed(
            f"lane {exchange.lane}, request {exchange.seq}: its envelope cannot be read: {error};"
            " record the run again, or restore the file"
        ) from error


def _envelope(row: JsonValue, body_bytes: int) -> Envelope:
    if not isinstance(row, dict):
        raise InvalidInput("it is no object")
    return Envelope(
        _pairs(row, "query"),
        _pairs(row, "request_headers"),
        _pairs(row, "response_headers"),
        _chunks(row, body_bytes),
    )


def _exchange(row: JsonValue) -> Exchange:
    if not isinstance(row, dict) or row.get("v") != VERSION:
        raise InvalidInput(f"it is no exchange of version {VERSION}")
    finished = row["finished"]
    if finished is not None and not isinstance(finished, bool):
        raise InvalidInput("finished is neither true, false nor null")
    return Exchange(
        lane=_name(row, "lane"),
        seq=_count(row, "seq"),
        method=_name(row, "method"),
        path=_name(row, "path"),
        envelope=Body(_digest(row, "envelope_sha256"), _count(row, "envelope_bytes")),
        request=Body(_digest(row, "request_sha256"), _count(row, "request_bytes")),
        protocol=_name(row, "protocol"),
        model=_name(row, "model"),
        key=_digest(row, "key"),
        rules=_counts(row, "rules"),
        answer=Answer(
            status=_count(row, "status"),
            body=Body(_digest(row, "response_sha256"), _count(row, "response_bytes")),
            end=End(_text(row, "end")),
            is_finished=finished,
            stop_reason=_name(row, "stop_reason"),
        ),
        rule_set=_count(row, "rule_set"),
        rules_sha256=intern(_digest(row, "rules_sha256")),
        redaction_key=_name(row, "redaction_key"),
        quarantined=tuple(map(str, _list(row, "quarantined"))),
        mutations=_events(row, "mutations"),
    )


def _events(row: dict[str, JsonValue], name: str) -> tuple[Event, ...]:
    found: list[Event] = []
    for event in _list(row, name):
        match event:
            case [str(kind), dict(members)] if kind == MUTATION:
                found.append((kind, members))
            case _:
                raise InvalidInput(f"{name} holds something that is no such row")
    return tuple(found)


def _counts(row: dict[str, JsonValue], name: str) -> Mapping[str, int]:
    counts = row[name]
    if not isinstance(counts, dict):
        raise InvalidInput(f"{name} is no object of counts")
    return {intern(each): _count(counts, each) for each in counts} or _NONE


def _chunks(row: dict[str, JsonValue], body_bytes: int) -> tuple[tuple[int, float], ...]:
    found: list[tuple[int, float]] = []
    for chunk in _list(row, "chunks"):
        match chunk:
            case [int(size), int(at) | float(at)] if size >= 0 and at >= 0:
                found.append((size, float(at)))
            case _:
                raise InvalidInput("chunks holds something that is no size and time")
    if sum(size for size, _ in found) != body_bytes:
        raise InvalidInput("the sizes in chunks do not add up to the answer's")
    return tuple(found)


def _text(row: dict[str, JsonValue], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is no text")
    return value


def _name(row: dict[str, JsonValue], name: str) -> str:
    """A text that most rows repeat, held once: a recording has many rows."""
    return intern(_text(row, name))


def _digest(row: dict[str, JsonValue], name: str) -> str:
    value = _text(row, name)
    if not _DIGEST.fullmatch(value):
        raise InvalidInput(f"{name} is no digest")
    return value


def _count(row: dict[str, JsonValue], name: str) -> int:
    value = row[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"{name} is no count")
    return value


def _list(row: dict[str, JsonValue], name: str) -> list[JsonValue]:
    value = row[name]
    if not isinstance(value, list):
        raise InvalidInput(f"{name} is no list")
    return value


def _pairs(row: dict[str, JsonValue], name: str) -> Pairs:
    found: list[tuple[str, str]] = []
    for pair in _list(row, name):
        match pair:
            case [str(key), str(value)]:
                found.append((key, value))
            case _:
                raise InvalidInput(f"{name} holds something that is no pair of texts")
    return tuple(found)


def _packed(pairs: Pairs) -> list[JsonValue]:
    return [[name, value] for name, value in pairs]
