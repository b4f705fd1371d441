"""The two canonical JSON forms that every hash is taken over, and the way into and out of JSON.

orjson is used where it is installed (extra `fast`); the bytes are the same without it.
"""

import json
from collections.abc import Callable, Iterable
from enum import StrEnum
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite

from bernstein_formats import json_rules
from bernstein_formats.errors import InvalidInput
from bernstein_formats.json_rules import MAX_DEPTH, JsonValue, check_depth

try:
    from bernstein_formats.fast_json import (
        jcs_bytes,
        judge_jcs,
        judge_py_json,
        judged_jcs_bytes,
        judged_py_json_bytes,
        parse,
        parse_loosely,
        parse_to_write,
        py_json_bytes,
    )
except ImportError:
    from bernstein_formats.json_rules import (
        jcs_bytes,
        judge_jcs,
        judge_py_json,
        judged_jcs_bytes,
        judged_py_json_bytes,
        parse,
        parse_loosely,
        parse_to_write,
        py_json_bytes,
    )

__all__ = [
    "MAX_DEPTH",
    "JsonValue",
    "Profile",
    "canonical_bytes",
    "canonical_text",
    "check_depth",
    "judge",
    "judged_bytes",
    "members_are_unique",
    "parse_json",
    "parse_json_unique",
    "parse_loosely",
    "parse_to_write",
    "plain_value",
    "spelled",
    "spelled_members",
]

_spell = json.JSONEncoder().encode
_spell_finite = json.JSONEncoder(allow_nan=False).encode


class Profile(StrEnum):
    """How a value becomes the bytes that are hashed."""

    PY_JSON = "py-json-v1"
    JCS = "jcs-v2"


_JCS = Profile.JCS  # looking a member up costs as much as hashing some


def parse_json(data: bytes | str) -> JsonValue:
    """Take exactly what Python's json takes, as UTF-8, up to MAX_DEPTH; else InvalidInput."""
    return parse(data)


def parse_json_unique(data: bytes | str) -> JsonValue:
    """Do the same and refuse an object that names a member twice."""
    value = parse(data)
    text = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if members_are_unique(text, py_json_bytes(value)):
        return value
    return json_rules.parse(data, _unique_members)


def members_are_unique(text: bytes, canonical: bytes, removed: int = 0) -> bool:
    """Tell cheaply that no object of a JSON text names a member twice; False is a doubt.

    `canonical` is the parsed value, written in either profile, without `removed` members whose
    values have no colon. Both texts have a colon a member, and as many within strings unless one is
    written as an escape; a member that the parser dropped would be one more in `text`.
    """
    if text.count(b":") - canonical.count(b":") != removed:
        return False
    return text.find(b"\\") < 0 or text.find(b"\\u003") < 0


def _unique_members(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise InvalidInput(f"the member {twice!r} is there twice; leave one", member=twice)
    return members


def canonical_bytes(value: JsonValue, profile: Profile) -> bytes:
    """Write a parsed value; InvalidInput where the profile has no form for it (NaN under jcs)."""
    return jcs_bytes(value) if profile is _JCS else py_json_bytes(value)


def canonical_text(data: bytes | str, profile: Profile) -> bytes:
    """Write a JSON text; cheaper than parsing and writing apart."""
    value = parse_loosely(data)
    if not judge(profile)(value.values() if type(value) is dict else (value,)):
        return canonical_bytes(parse(data), profile)
    return judged_bytes(profile)(value)


def judge(profile: Profile) -> Callable[[Iterable[JsonValue]], bool]:
    """Give the function that judges loosely parsed values: True lets `judged_bytes` write them.

    Otherwise they must be parsed again, exactly, and written by `canonical_bytes`.
    """
    return judge_jcs if profile is _JCS else judge_py_json


def judged_bytes(profile: Profile) -> Callable[[JsonValue], bytes]:
    """Give the function that writes a value of which the judge did not complain."""
    return judged_jcs_bytes if profile is _JCS else judged_py_json_bytes


def spelled(value: JsonValue) -> str:
    """Write a value as the peer stores it: `json.dumps` with every option at its default."""
    try:
        return _spell(value)
    except RecursionError:
        raise json_rules.too_deep() from None
    except ValueError:
        raise json_rules.too_many_digits() from None


def spelled_members(members: dict[str, JsonValue]) -> str:
    """Write an object's members without the braces, likewise; NaN and the infinities are refused.

    Member by member, since that is faster than the whole.
    """
    texts = [
        f"{_quoted(name)}: {_quoted(value) if type(value) is str else _spelled_finite(value)}"
        for name, value in members.items()
    ]
    return ", ".join(texts)


def _spelled_finite(value: JsonValue) -> str:
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is float and isfinite(value):  # type: ignore[arg-type]  # kind says float
        return repr(value)
    try:
        return repr(value) if kind is int else _spell_finite(value)
    except RecursionError:
        raise json_rules.too_deep() from None
    except ValueError:
        spelled(value)  # raises if the reason is another one
    raise InvalidInput("NaN and the infinities are not JSON; send null or text instead")


def plain_value(value: object, profile: Profile) -> JsonValue:
    """Turn a program's value into a JSON one as the peer's writer would.

    Tuples become arrays and names become text. Anything else becomes `str(value)` under py-json-v1
    and is refused under jcs-v2.
    """
    other: Callable[[object], str] = _no_form if profile is _JCS else str

    def plain(value: object) -> JsonValue:
        if isinstance(value, dict):
            values = list(map(plain, value.values()))
            members = dict(zip(map(_plain_name, value), values, strict=True))
            if len(members) != len(value):
                raise InvalidInput("two members have one name once written as text; rename one")
            return members
        if isinstance(value, list | tuple):
            return list(map(plain, value))
        return _plain_scalar(value, other)

    try:
        return plain(value)
    except RecursionError:
        raise json_rules.too_deep() from None


def _no_form(value: object) -> str:
    raise InvalidInput(f"{type(value).__name__} has no form under jcs-v2; send JSON values")


def _plain_scalar(value: object, other: Callable[[object], str]) -> JsonValue:
    """Strip a subclass (an enum, say) down to what JSON prints of it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else other(value)


def _plain_name(name: object) -> str:
    """Turn a member's name into the text that JSON would use."""
    if isinstance(name, str):
        return str.__str__(name)
    if name is None or isinstance(name, bool | int | float):
        return spelled(name)
    raise InvalidInput(f"a member is named by a {type(name).__name__}; use text")
