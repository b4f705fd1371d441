"""Instants as evidence spells them: RFC 3339 with an offset, read by a grammar of our own.

What a standard library takes for a time changes with its version; what decides whether a key could
still be trusted must not. Source: RFC 3339, section 5.6; docs/formats/key-chain.md, section 4.1. A
bound of a window may also be a day, month or year of UTC (docs/formats/audit.md).
"""

import re
from datetime import date
from typing import Final

from bernstein_formats.errors import InvalidInput

MICROSECONDS: Final = 1_000_000

_INSTANT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_CALENDAR: Final = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
_FORM: Final = "write YYYY-MM-DDTHH:MM:SS[.ffffff] and then Z or +HH:MM"


def parse_instant(text: object) -> int:
    """Microseconds since 0001-01-01T00:00:00Z; the order of the numbers is that of the instants.

    Raises InvalidInput for anything but RFC 3339 with an offset and at most six fraction digits.
    """
    match = _INSTANT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput(f"{text!r:.80} is no instant: {_FORM}")
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, sign, offset_hour, offset_minute = match.groups()[6:]
    offset = _minutes(text, int(offset_hour or 0), int(offset_minute or 0))
    if second > 59:
        raise InvalidInput(f"{text!r} names a leap second, which has no place in the order")
    try:
        days = date(year, month, day).toordinal() - 1
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no day of the calendar") from error
    minutes = days * 1440 + _minutes(text, hour, minute) - (-offset if sign == "-" else offset)
    return (minutes * 60 + second) * MICROSECONDS + int((fraction or "0").ljust(6, "0"))


def parse_bound(text: str) -> int:
    """The same of an instant, or of the first one of a day, month or year as UTC counts them.

    A time of day without its offset could be anybody's, so it is no bound.
    """
    match = _CALENDAR.fullmatch(text)
    if match is None:
        try:
            return parse_instant(text)
        except InvalidInput as error:
            raise InvalidInput(f"{error.message}; or a day of UTC, YYYY-MM-DD") from error
    year, month, day = match.groups(default="01")
    return parse_instant(f"{year}-{month}-{day}T00:00:00Z")


def _minutes(text: object, hour: int, minute: int) -> int:
    if hour > 23 or minute > 59:
        raise InvalidInput(f"{text!r} is no instant: hours end at 23, minutes at 59")
    return hour * 60 + minute
