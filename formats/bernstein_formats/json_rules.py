"""Both JSON profiles by definition, with the standard library alone.

`fast_json` gives the same bytes sooner. Rules: docs/formats/event-journal.md, section 4.
"""

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from math import isfinite
from typing import TypeAlias

from bernstein_formats.errors import InvalidInput, LimitExceeded

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
PairsHook: TypeAlias = Callable[[list[tuple[str, JsonValue]]], JsonValue]

# What every supported interpreter parses and writes from an ordinary call depth.
MAX_DEPTH = 640
# From here on an exponent is shown (ECMAScript, Number::toString).
_ECMASCRIPT_DIGITS = 21


def parse(data: bytes | str, pairs_hook: PairsHook | None = None) -> JsonValue:
    """Take what Python's json takes, NaN and half surrogate pairs included."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value: JsonValue = json.loads(text, object_pairs_hook=pairs_hook)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"not UTF-8 at byte {error.start}; JSON text must be UTF-8", offset=error.start
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not one JSON value: {error.msg} at character {error.pos}", offset=error.pos
        ) from None
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise too_many_digits() from None
    if may_be_deep(data):
        check_depth(value)
    return value


def may_be_deep(data: bytes | str) -> bool:
    """Cheap to ask: False says that the text cannot be nested beyond the limit."""
    if len(data) <= 2 * MAX_DEPTH:
        return False
    if isinstance(data, str):
        return data.count("[") + data.count("{") > MAX_DEPTH
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH


def check_depth(value: JsonValue, limit: int = MAX_DEPTH) -> None:
    """Refuse more than `limit` arrays and objects inside one another."""
    level: list[JsonValue] = [value]
    for _ in range(limit + 1):
        inner: list[JsonValue] = []
        for each in level:
            if isinstance(each, list):
                inner.extend(each)
            elif isinstance(each, dict):
                inner.extend(each.values())
            else:
                continue
        if not any(isinstance(each, list | dict) for each in level):
            return
        level = inner
    raise too_deep(limit)


def py_json_bytes(value: JsonValue) -> bytes:
    """Write py-json-v1: sorted members, no spaces, ASCII, numbers as Python prints them."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise too_many_digits() from None


def jcs_bytes(value: JsonValue) -> bytes:
    """Write jcs-v2: RFC 8785, except that integers of any size are written out exactly."""
    try:
        return _jcs(value).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "half a surrogate pair cannot be written under jcs-v2; send whole characters"
        ) from None
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        raise too_many_digits() from None


def _jcs(value: JsonValue) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        texts = list(
            map(_jcs, [value[name] for name in names])
        )  # a level must cost one call, not two
        return "{" + ",".join(map("{}:{}".format, map(_jcs, names), texts)) + "}"
    if isinstance(value, list):
        texts = list(map(_jcs, value))
        return "[" + ",".join(texts) + "]"
    if isinstance(value, float):
        return ecmascript_number(value)
    return json.dumps(value)


def py_number(value: float) -> str:
    """Print a float as Python's json does, NaN and the infinities included."""
    return json.dumps(value)


def ecmascript_number(value: float) -> str:
    """Print a float as ECMAScript's Number::toString (RFC 8785, section 3.2.2.3)."""
    if not isfinite(value):
        raise InvalidInput("NaN and the infinities have no form under jcs-v2; send a finite number")
    if value == 0:
        return "0"
    sign, figures, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, figures))
    point = len(digits) + int(exponent)
    return ("-" if sign else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Put the decimal point after `point` digits."""
    if len(digits) <= point <= _ECMASCRIPT_DIGITS:
        return digits.ljust(point, "0")
    if 0 < point <= _ECMASCRIPT_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


def judge_py_json(values: Iterable[JsonValue]) -> bool:
    """Tell that no number needs care: here, none ever does."""
    return True


def too_deep(limit: int = MAX_DEPTH) -> LimitExceeded:
    return LimitExceeded(f"JSON is nested more than {limit} levels deep; flatten it", limit=limit)


def too_many_digits() -> LimitExceeded:
    return LimitExceeded("an integer has more than 4300 digits; send it as text", limit=4300)


# The names that `fast_json` has too.
parse_loosely = parse_to_write = parse
judge_jcs = judge_py_json
judged_py_json_bytes = py_json_bytes
judged_jcs_bytes = jcs_bytes
