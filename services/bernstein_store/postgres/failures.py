"""What PostgreSQL says when something fails, as one of our errors."""

from typing import Final

import psycopg

from bernstein_formats.errors import BernsteinError, DiskFull, StoreFailed, Unavailable

# Classes and codes of conditions that pass by themselves: a lost connection, a server that ends or
# starts, one that is a standby now, two transactions in each other's way, too many connections.
_PASSING_CLASSES: Final = ("08", "40")
_PASSING: Final = ("57P01", "57P02", "57P03", "25006", "53300")
_DISK_FULL: Final = "53100"
_TOO_LONG: Final = ("57014", "55P03")


def passes(error: psycopg.Error) -> bool:
    """Whether the same may work in a moment, on another connection."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError)
    return state.startswith(_PASSING_CLASSES) or state in _PASSING


def failure(place: str, error: psycopg.Error) -> BernsteinError:
    """The error of ours; `place` names the database."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if error.sqlstate == _DISK_FULL:
        return DiskFull(f"{place}: {text}; make room there and try again", path=place)
    if passes(error):
        return Unavailable(f"{place} cannot be reached: {text}", path=place)
    if error.sqlstate in _TOO_LONG:
        return Unavailable(f"{place} took too long: {text}; try again", path=place)
    return StoreFailed(f"{place}: {text}", path=place)
