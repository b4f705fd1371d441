"""The canonical bytes of what may be fingerprinted: RFC 8785, and an error for everything else.

Rules: docs/formats/determinism.md, section 1. Journals are hashed by `canonical`, which is lenient
where this is strict; never take one for the other.
"""

import gc
from math import isfinite
from types import MappingProxyType
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes, parse_json
from bernstein_formats.errors import CanonicalizationError

MAX_DEPTH: Final = 128
MAX_INTEGER: Final = 2**53 - 1
# A text counts its characters, a value as many as this: a list that holds one list twice, which
# holds one list twice, and so on, has few objects and no end.
MAX_SIZE: Final = 32 * 1024 * 1024
VALUE_SIZE: Final = 64

# Below it every whole float is printed as an integer, from it on with an exponent.
_FIRST_EXPONENT: Final = 1e21


def canonicalize(value: object) -> bytes:
    """Write a value. Raises CanonicalizationError, and nothing else, whatever it is given.

    Types are taken exactly: a subclass, an enum member or a model of some library could be meant
    in more than one way, and the caller knows in which. No code of the value's own is run.
    """
    try:
        return canonical_bytes(_Reading().plain(value, "", ()), Profile.JCS)
    except RecursionError:
        raise _refused("", "nested deeper than what is left of the program's stack") from None


def canonical_copy(value: object) -> JsonValue:
    """The value as its canonical form has it (lists for tuples), sharing nothing with it.

    Raises CanonicalizationError.
    """
    return parse_json(canonicalize(value))


class _Reading:
    """One value on its way into plain JSON; asks for types by identity alone."""

    def __init__(self) -> None:
        self._left = MAX_SIZE

    def plain(self, value: object, path: str, outer: tuple[int, ...]) -> JsonValue:
        """Copy a value; `outer` are the containers that it is in."""
        self._spend(VALUE_SIZE, path)
        kind = type(value)
        if kind is MappingProxyType:
            value, kind = _viewed(value, path)
        if kind is list or kind is tuple:
            assert isinstance(value, list | tuple)
            inside = _inside(value, path, outer)
            return [self.plain(each, f"{path}/{at}", inside) for at, each in enumerate([*value])]
        if kind is dict:
            assert isinstance(value, dict)
            return self._members(value, path, _inside(value, path, outer))
        if kind is str:
            assert isinstance(value, str)
            return self._text(value, path)
        if value is not None and kind is not bool and kind is not int and kind is not float:
            raise _refused(
                path, f"a {_name(kind)}: give text, a number, a list or an object instead"
            )
        assert value is None or isinstance(value, bool | int | float)
        _check_number(value, path)
        return value

    def _members(
        self, value: dict[object, object], path: str, inside: tuple[int, ...]
    ) -> dict[str, JsonValue]:
        members: dict[str, JsonValue] = {}
        for name, each in [*value.items()]:
            if type(name) is not str:
                raise _refused(path, f"a member named by a {_name(type(name))}, not by text")
            below = f"{path}/{pointer_step(name)}"
            members[self._text(name, below)] = self.plain(each, below, inside)
        return members

    def _text(self, text: str, path: str) -> str:
        self._spend(len(text), path)
        try:
            text.encode()
        except UnicodeEncodeError:
            what = "text with half a surrogate pair, which has no UTF-8 form"
            raise _refused(path, what) from None
        return text

    def _spend(self, size: int, path: str) -> None:
        self._left -= size
        if self._left < 0:
            raise _refused(
                path, f"larger than {MAX_SIZE} characters, where a value counts {VALUE_SIZE}"
            )


def _check_number(value: float | None, path: str) -> None:
    if value is None:
        return
    if type(value) is float and not isfinite(value):
        raise _refused(path, "NaN or an infinity, which JSON has no form for")
    as_integer = type(value) is int or abs(value) < _FIRST_EXPONENT
    if as_integer and abs(value) > MAX_INTEGER:
        raise _refused(path, "a whole number beyond 2**53 - 1, which other readers round")


def _viewed(view: object, path: str) -> tuple[object, type]:
    """What a read-only view is a view of; the view would run code of it."""
    inner = view
    while type(inner) is MappingProxyType:
        (inner,) = gc.get_referents(inner)
    if type(inner) is not dict:
        raise _refused(path, f"a view of a {_name(type(inner))}: give a view of a dictionary")
    return inner, dict


def _inside(value: object, path: str, outer: tuple[int, ...]) -> tuple[int, ...]:
    if id(value) in outer:
        raise _refused(path, "a container inside itself")
    if len(outer) >= MAX_DEPTH:
        raise _refused(path, f"nested more than {MAX_DEPTH} levels deep")
    return (*outer, id(value))


def pointer_step(name: str) -> str:
    """A member's name as a step of a JSON pointer (RFC 6901), in printable characters."""
    return _printable(name).replace("~", "~0").replace("/", "~1")


def _name(kind: type) -> str:
    """The class's own name, also where its metaclass answers something else."""
    return _printable(str(type.__dict__["__name__"].__get__(kind)))


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _refused(path: str, what: str) -> CanonicalizationError:
    return CanonicalizationError(
        f"{path or 'the value itself'} cannot be fingerprinted: {what}", path=path, cause=what
    )
