"""Both JSON profiles through orjson: the bytes of `json_rules`, several times as fast.

orjson prints the same as Python except for: raw non-ASCII and DEL (seen on the output), floats that
Python or ECMAScript print in another form (found by a judge), both then put in as ready text, and
integers beyond 64 bits, which it reads as floats without a word (such a float is at least 2**63,
so the judge finds it too). Whatever else it refuses goes to `json_rules`.
"""

import codecs
import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring_ascii as _quoted

import orjson

from bernstein_formats import json_rules
from bernstein_formats.json_rules import JsonValue

_SORTED = orjson.OPT_SORT_KEYS
_FIRST_BEYOND_64_BITS = 2.0**63
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
# Up to here it is quicker to escape each character where it stands than to copy the value.
_FEW_BYTES = 64
_NEVER_DEEP = 2 * json_rules.MAX_DEPTH


def parse(data: bytes | str) -> JsonValue:
    """Take exactly what `json_rules.parse` takes and give the same value."""
    value = parse_loosely(data)
    try:
        huge = _any_huge_float(value.values() if type(value) is dict else (value,))
    except RecursionError:
        raise json_rules.too_deep() from None
    return json_rules.parse(data) if huge else value


def parse_loosely(data: bytes | str) -> JsonValue:
    """Do the same, but an integer beyond 64 bits may come as a float; a judge finds it."""
    value = parse_to_write(data)
    if len(data) > _NEVER_DEEP and json_rules.may_be_deep(data) and not _is_shallow(value):
        json_rules.check_depth(value)
    return value


def parse_to_write(data: bytes | str) -> JsonValue:
    """Do the same without a look at the depth: for a caller whose value is then written, which
    refuses what is too deep (and for whom a judge may give up with RecursionError)."""
    try:
        value: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError:
        return json_rules.parse(data)
    return value


def _is_shallow(value: JsonValue) -> bool:
    """Whether it nests no deeper than orjson writes (254 levels); False is a doubt."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return True


def _any_huge_float(values: Iterable[JsonValue]) -> bool:
    for value in values:
        kind = type(value)
        if kind is str or kind is int:
            continue
        if isinstance(value, float):
            if not -_FIRST_BEYOND_64_BITS < value < _FIRST_BEYOND_64_BITS:
                return True
        elif (isinstance(value, dict) and _any_huge_float(value.values())) or (
            isinstance(value, list) and _any_huge_float(value)
        ):
            return True
    return False


def judge_py_json(values: Iterable[JsonValue]) -> bool:
    """Tell that no number in `values` needs care."""
    for value in values:
        kind = type(value)
        if kind is str or kind is int:
            continue
        if kind is float:
            if not (1e-4 <= value < 1e16 or -1e16 < value <= -1e-4 or value == 0):  # type: ignore[operator]  # kind says float; isinstance costs a third more here
                return False
        elif (kind is dict and not judge_py_json(value.values())) or (  # type: ignore[union-attr]  # likewise
            kind is list and not judge_py_json(value)  # type: ignore[arg-type]  # likewise
        ):
            return False
    return True


def judge_jcs(values: Iterable[JsonValue]) -> bool:
    """Do the same for jcs-v2, where a whole float is printed as an integer."""
    for value in values:
        kind = type(value)
        if kind is str or kind is int:
            continue
        if kind is float:
            if not 1e-5 <= abs(value) < 1e16 or value.is_integer():  # type: ignore[arg-type,union-attr]  # kind says float
                return False
        elif (kind is dict and not judge_jcs(value.values())) or (  # type: ignore[union-attr]  # likewise
            kind is list and not judge_jcs(value)  # type: ignore[arg-type]  # likewise
        ):
            return False
    return True


def py_json_bytes(value: JsonValue) -> bytes:
    """Give the bytes of `json_rules.py_json_bytes`."""
    try:
        if judge_py_json(value.values() if type(value) is dict else (value,)):
            return judged_py_json_bytes(value)
        return _pinned_py_json(value)
    except (orjson.JSONEncodeError, RecursionError):
        return json_rules.py_json_bytes(value)


def judged_py_json_bytes(value: JsonValue) -> bytes:
    """Give the same for a value whose judge found no number that needs care."""
    try:
        output = orjson.dumps(value, None, _SORTED)
        if output.isascii() and output.find(b"\x7f") < 0:
            return output
        text = output.decode()
        if len(output) - len(text) <= _FEW_BYTES:
            return _escaped(text)
        return _pinned_py_json(value)
    except (orjson.JSONEncodeError, RecursionError):
        json_rules.check_depth(value)
        return json_rules.py_json_bytes(value)


def jcs_bytes(value: JsonValue) -> bytes:
    """Give the bytes of `json_rules.jcs_bytes`."""
    try:
        if judge_jcs(value.values() if type(value) is dict else (value,)):
            return judged_jcs_bytes(value)
        output = orjson.dumps(
            _pinned(value, json_rules.ecmascript_number, ascii_only=False), None, _SORTED
        )
    except (orjson.JSONEncodeError, RecursionError):
        return json_rules.jcs_bytes(value)
    return output if output.isascii() or _sorts_alike(value) else json_rules.jcs_bytes(value)


def judged_jcs_bytes(value: JsonValue) -> bytes:
    """Give the same for a value whose judge found no number that needs care."""
    try:
        output = orjson.dumps(value, None, _SORTED)
    except orjson.JSONEncodeError:
        json_rules.check_depth(value)
        return json_rules.jcs_bytes(value)
    return output if output.isascii() or _sorts_alike(value) else json_rules.jcs_bytes(value)


def _sorts_alike(value: JsonValue) -> bool:
    """Tell whether UTF-8 order is UTF-16 order: so for names within the first 65,536."""
    return not _has_astral_name(value)


def _has_astral_name(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_BEYOND_BMP.search, value)) or any(map(_has_astral_name, value.values()))
    return isinstance(value, list) and any(map(_has_astral_name, value))


def _pinned(value: JsonValue, number: Callable[[float], str], *, ascii_only: bool) -> object:
    """Copy `value` with every float, and if asked every text beyond ASCII, as ready text."""
    if isinstance(value, float):
        return orjson.Fragment(number(value))
    if isinstance(value, str):
        return orjson.Fragment(_quoted(value)) if ascii_only and not value.isascii() else value
    if isinstance(value, dict):
        return {name: _pinned(each, number, ascii_only=ascii_only) for name, each in value.items()}
    if isinstance(value, list):
        return [_pinned(each, number, ascii_only=ascii_only) for each in value]
    return value


def _pinned_py_json(value: JsonValue) -> bytes:
    """Write with ready texts, then escape what is left: names beyond ASCII, and DEL."""
    output = orjson.dumps(_pinned(value, json_rules.py_number, ascii_only=True), None, _SORTED)
    return _escaped(output.decode())


def _escaped(text: str) -> bytes:
    return text.encode("ascii", _ESCAPES).replace(b"\x7f", b"\\u007f")


def _json_escapes(error: UnicodeError) -> tuple[str, int]:
    """Write a run of characters as JSON escapes, those beyond the BMP as two."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be").hex()
    return "".join([f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]), error.end


_ESCAPES = "bernstein-json-escapes"
codecs.register_error(_ESCAPES, _json_escapes)
