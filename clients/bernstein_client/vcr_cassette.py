"""Cassettes that vcrpy wrote, as the exchanges of a lane.

A cassette is {"version": 1, "interactions": [{"request": …, "response": …}]}, in YAML or JSON. It
knows no pieces of a stream and no broken ones: what it has ended cleanly, in one piece.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from bernstein_formats.errors import InvalidInput
from bernstein_formats.http_encoding import decoded
from bernstein_formats.http_key import HttpRequest, Pairs
from bernstein_formats.http_protocol import Protocol

VERSION: Final = 1
_PROVIDERS: Final = {
    Protocol.ANTHROPIC_MESSAGES: "anthropic",
    Protocol.OPENAI_CHAT: "openai",
    Protocol.OPENAI_RESPONSES: "openai",
    Protocol.GEMINI_GENERATE: "gemini",
}
# What is asked beside model calls tells its provider by the host alone.
_HOSTS: Final = {"anthropic": "anthropic", "googleapis": "gemini", "openai": "openai"}
_BESIDE: Final = re.compile(
    r"/(models|embeddings)(/[^/]+)?\Z|/models/[^/]+:(batchE|e)mbedContents?\Z"
)
_VERSIONED: Final = re.compile(r"/v1(alpha|beta)?/.+")


@dataclass(frozen=True, slots=True)
class Interaction:
    """A request, told as a lane is asked, and its answer."""

    request: HttpRequest
    status: int
    headers: Pairs
    body: bytes


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is no call of a model."""

    number: int
    method: str
    uri: str


def interactions(document: object) -> Iterator[Interaction | LeftOut]:
    """What a cassette holds, in its order. Raises InvalidInput."""
    match document:
        case {"version": 1, "interactions": list(found)}:
            for number, each in enumerate(found, 1):
                try:
                    yield _interaction(each, number)
                except (KeyError, TypeError, ValueError, InvalidInput) as error:
                    what = f"no member {error}" if isinstance(error, KeyError) else str(error)
                    raise InvalidInput(f"interaction {number}: {what}", number=number) from error
        case _:
            raise InvalidInput(f"it is no cassette of vcrpy's version {VERSION}")


def _interaction(each: Any, number: int) -> Interaction | LeftOut:
    asked, answered = each["request"], each["response"]
    method, uri = str(asked["method"]).upper(), str(asked["uri"])
    url = urlsplit(uri)
    path = _lane_path(url.hostname or "", url.path)
    if path is None:
        return LeftOut(number, method, uri)
    query = tuple(parse_qsl(url.query, keep_blank_values=True))
    request = HttpRequest(method, path, query, _headers(asked), _body(asked["body"]))
    headers, body = _readable(_headers(answered), _body(answered["body"]))
    status = answered["status"]["code"]
    if not isinstance(status, int) or not 200 <= status <= 999:
        raise InvalidInput(f"the status {status!r} is none")
    return Interaction(request, status, headers, body)


def _lane_path(host: str, path: str) -> str | None:
    """The path as a lane has it, "/openai/v1/models"; None for what is no call of a model."""
    protocol = HttpRequest("POST", path, (), (), b"").protocol
    provider = _PROVIDERS.get(protocol)
    if provider is None and _BESIDE.search(path):
        provider = next((name for part, name in _HOSTS.items() if part in host), "openai")
    found = _VERSIONED.search(path)
    return f"/{provider}{found[0]}" if provider and found else None


def _headers(side: Any) -> Pairs:
    """Names with their values; vcrpy keeps a list for each, and in older cassettes a text."""
    if not isinstance(side["headers"], dict):
        raise InvalidInput("its headers are no object")
    return tuple(
        (str(name), str(value))
        for name, values in side["headers"].items()
        for value in (values if isinstance(values, list) else [values])
    )


def _body(body: Any) -> bytes:
    match body:
        case None:
            return b""
        case str():
            return body.encode("utf-8", "surrogateescape")
        case bytes():
            return body
        case {"string": str() | bytes() | None as inner}:
            return _body(inner)
        case {"base64_string": str() as packed}:
            try:
                return b64decode(packed, validate=True)
            except binascii.Error as error:
                raise InvalidInput(f"its body is no base64: {error}") from error
    raise InvalidInput("its body is neither text nor bytes")


def _readable(headers: Pairs, body: bytes) -> tuple[Pairs, bytes]:
    """The answer in plain: it fits every client, whatever the recorded one could unpack.

    Some bodies were unpacked before they were written, and their header was left.
    """
    plain = tuple(each for each in headers if each[0].lower() != "content-encoding")
    encodings = [value for name, value in headers if name.lower() == "content-encoding"]
    try:
        return plain, decoded(encodings[0], body) if encodings else body
    except InvalidInput:
        return plain, body
