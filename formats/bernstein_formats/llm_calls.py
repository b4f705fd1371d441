"""A recorded model call: the key it is found by and the line of `llm_calls.jsonl` it is kept as.

Rules: docs/formats/llm-record-replay.md, section 1. The key sees five fields only; whatever else
was asked for stands in members of ours behind the peer's, which the peer does not read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from typing import Final, NoReturn, TypeAlias

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json, spelled
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.journal_reader import parse_row

DEFAULT_PROVIDER: Final = "openrouter_free"
DEFAULT_TEMPERATURE: Final = "0.7"
DEFAULT_MAX_TOKENS: Final = "4000"

NO_PARAMETERS_DIGEST: Final = sha256(b"{}").hexdigest()

_CONSTANTS: Final[dict[str, bool | None]] = {"None": None, "True": True, "False": False}

LiteralValue: TypeAlias = bool | int | float | None


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What a caller asked for.

    `temperature` and `max_tokens` are literal texts as Python prints the value (`0.7`, `1`, `1.0`,
    `None`): 1 and 1.0 are different keys, and a 32-bit field would make a third one of 0.7.
    `parameters` are the request's other fields (seed, stop, tools, system, ...).
    """

    model: str
    prompt: str
    provider: str = DEFAULT_PROVIDER
    temperature: str = DEFAULT_TEMPERATURE
    max_tokens: str = DEFAULT_MAX_TOKENS
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)

    def key(self) -> str:
        """Return the key of the request; see `call_key`."""
        return self.digest().hex()

    def digest(self) -> bytes:
        """Return the 32 bytes of the key."""
        return call_digest(
            self.model, self.prompt, self.provider, self.temperature, self.max_tokens
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asked; `lane` names one attempt at one task, so that it gets its own answers again."""

    lane: str = ""
    request_id: str = ""
    # Members that a session with a mode adds to the row (docs/formats/determinism.md, section 5).
    about: Mapping[str, JsonValue] = field(default_factory=dict)


def call_key(
    model: str, prompt: str, provider: str, temperature_text: str, max_tokens_text: str
) -> str:
    """Return the 64 hex digits that the peer finds the call by.

    Raises InvalidInput for a lone surrogate: it has no UTF-8 form, hence no key.
    """
    return call_digest(model, prompt, provider, temperature_text, max_tokens_text).hex()


def call_digest(
    model: str, prompt: str, provider: str, temperature_text: str, max_tokens_text: str
) -> bytes:
    """Return the key as 32 bytes; see `call_key`."""
    text = f"{model}\0{prompt}\0{provider}\0{temperature_text}\0{max_tokens_text}"
    try:
        return sha256(text.encode()).digest()
    except UnicodeEncodeError:
        _refuse_lone_surrogate(
            model=model,
            prompt=prompt,
            provider=provider,
            temperature=temperature_text,
            max_tokens=max_tokens_text,
        )


def temperature_text(value: JsonValue) -> str:
    """Return the text by which a temperature enters the key."""
    return repr(value)


def max_tokens_text(value: JsonValue) -> str:
    """Return the text by which a token limit enters the key: 4000 and "4000" are one."""
    return str(value)


def literal_value(text: str, name: str) -> LiteralValue:
    """Return the value that a temperature or token limit stands for, with its type kept.

    Raises InvalidInput unless the text is exactly how Python prints that value.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    for parse in _parse_int, _parse_float:
        value = parse(text)
        if value is not None and str(value) == text:
            return value
    raise InvalidInput(
        f"{name} is {text[:40]!r}: give a number as Python prints it (0.7, 1, 1e-05) or None",
        field=name,
    )


def _parse_int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _parse_float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def parameters_digest(parameters: Mapping[str, JsonValue]) -> str:
    """Return SHA-256, in hex, of further request fields in their jcs-v2 form (1 equals 1.0)."""
    if not parameters:
        return NO_PARAMETERS_DIGEST
    return sha256(canonical_bytes(dict(parameters), Profile.JCS)).hexdigest()


def call_line(
    request: CallRequest, response: JsonValue, *, ts: float, caller: Caller | None = None
) -> bytes:
    """Return the line, line feed included, that records the call.

    Without a caller and without further parameters it is the peer's line, byte for byte.
    """
    row: dict[str, JsonValue] = {
        "ts": ts,
        "key": request.key(),
        "model": request.model,
        "provider": request.provider,
        "temperature": literal_value(request.temperature, "temperature"),
        "max_tokens": literal_value(request.max_tokens, "max_tokens"),
        "prompt_len": len(request.prompt),
        "response": response,
    }
    if caller is not None or request.parameters:
        row.update(_our_members(request, caller or Caller()))
    return spelled(row).encode("ascii") + b"\n"


def _our_members(request: CallRequest, caller: Caller) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {}
    if caller.lane:
        members["lane"] = caller.lane
    if caller.request_id:
        members["request_id"] = caller.request_id
    members["prompt_sha256"] = sha256(request.prompt.encode()).hexdigest()
    if request.parameters:
        members["parameters"] = dict(request.parameters)
    # Written for no parameters too: a later request that has some is then known to differ.
    members["parameters_digest"] = parameters_digest(request.parameters)
    members.update(caller.about)
    return members


def _refuse_lone_surrogate(**fields: str) -> NoReturn:
    name, at = next(
        (name, at) for name, text in fields.items() if (at := _lone_surrogate(text)) is not None
    )
    raise InvalidInput(
        f"{name} holds half a character (a lone surrogate) at offset {at}:"
        " cut text between whole characters only",
        field=name,
        offset=at,
    )


def _lone_surrogate(text: str) -> int | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def parse_call(
    line: bytes, parse: Callable[[bytes], JsonValue] = parse_json
) -> dict[str, JsonValue]:
    """Return the row of a recorded call: an object with a key in text and any response, even "".

    Raises RowMalformed for a line that records no call.
    """
    try:
        row = parse_row(line, parse)
    except InvalidInput as error:
        raise RowMalformed(error.message) from error
    if not isinstance(row, dict):
        raise RowMalformed("not a JSON object")
    key = row.get("key")
    if not isinstance(key, str) or not key:
        raise RowMalformed("no key in text", member="key")
    if "response" not in row:
        raise RowMalformed("no response", member="response")
    return row
