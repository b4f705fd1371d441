"""The keys under which a gateway's fixtures are stored: a scheme and a digest of components.

Rules: docs/formats/llm-record-replay.md, section 3.
"""

import re
from collections.abc import Sequence
from hashlib import sha256

from bernstein_formats.errors import InvalidInput

SCHEME = "v1"
_TAGS = {scheme: f"bernstein.replay.key.{scheme}".encode() for scheme in ("v1", "v2")}
_SINGLE = {None: b"\x00", False: b"\x01\x00", True: b"\x01\x01"}
_STORED = re.compile(r"(v[0-9]+):([0-9a-f]{64})")


def stored_key(components: Sequence[object], scheme: str = SCHEME) -> str:
    """Write the key of some components; InvalidInput when one of them has no form."""
    if scheme not in _TAGS:
        raise InvalidInput(f"{scheme!r} is no known key scheme; use {' or '.join(_TAGS)}")
    digest = sha256(_TAGS[scheme] + b"\0" + encoded(tuple(components))).hexdigest()
    return f"{scheme}:{digest}"


def parse_stored_key(text: str) -> tuple[str | None, str]:
    """Give scheme and digest; None and the whole text where it has no scheme."""
    found = _STORED.fullmatch(text)
    return (found[1], found[2]) if found else (None, text)


def encoded(value: object) -> bytes:
    """Write a component so that no two unlike ones share their bytes, numbers and mappings aside.

    1, 1.0 and numbers less than 1e-10 apart are one; a mapping is what Python prints of it.
    """
    if value is None or isinstance(value, bool):
        return _SINGLE[value]
    if isinstance(value, int | float):
        return b"\x02" + _sized(_number_text(value).encode())
    if isinstance(value, str):
        return b"\x03" + _sized(_utf8(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return b"\x04" + _sized(bytes(value))
    if isinstance(value, Sequence):
        items = [_sized(encoded(item)) for item in value]
        return b"\x05" + len(items).to_bytes(4, "big") + b"".join(items)
    return b"\xff" + _sized(_utf8(repr(value)))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _number_text(value: float) -> str:
    try:
        return format(float(value), ".10f")
    except OverflowError:
        raise InvalidInput("an integer too large for a key; give it as text") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("half of a surrogate pair has no place in a key") from None
