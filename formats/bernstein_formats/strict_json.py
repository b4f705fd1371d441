"""The canonical bytes of what may be fingerprinted: RFC 8785, and an error for everything else.

Rules: docs/formats/determinism.md, section 1. Journals are hashed by `canonical`, which is lenient
where this is strict; never take one for the other.
"""

from math import isfinite
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import CanonicalizationError

MAX_DEPTH: Final = 128
MAX_INTEGER: Final = 2**53 - 1

_Container: TypeAlias = "list[Any] | tuple[Any, ...] | dict[Any, Any] | MappingProxyType[Any, Any]"
# Asked first: only of these may a value be asked anything that its class could answer.
_KINDS: Final = frozenset({type(None), bool, int, float, str, list, tuple, dict, MappingProxyType})


def canonicalize(value: object) -> bytes:
    """Write a value. Raises CanonicalizationError, and nothing else, whatever it is given.

    Types are taken exactly: a subclass, an enum member or a model of some library could be meant
    in more than one way, and the caller knows in which.
    """
    return canonical_bytes(_plain(value, "", ()), Profile.JCS)


def _plain(value: object, path: str, outer: tuple[int, ...]) -> JsonValue:
    kind = type(value)
    if kind not in _KINDS:
        raise _refused(path, f"a {_name(kind)}: give text, a number, a list or an object instead")
    if isinstance(value, list | tuple | dict | MappingProxyType):
        return _container(value, path, outer)
    if isinstance(value, str):
        return _text(value, path)
    assert value is None or isinstance(value, bool | int | float)
    if isinstance(value, float) and not isfinite(value):
        raise _refused(path, "NaN or an infinity, which JSON has no form for")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise _refused(path, "an integer beyond 2**53 - 1, which other readers round")
    return value


def _container(value: _Container, path: str, outer: tuple[int, ...]) -> JsonValue:
    if id(value) in outer:
        raise _refused(path, "a container inside itself")
    if len(outer) >= MAX_DEPTH:
        raise _refused(path, f"nested more than {MAX_DEPTH} levels deep")
    inside = (*outer, id(value))
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}/{at}", inside) for at, each in enumerate(value)]
    members: dict[str, JsonValue] = {}
    for name, each in value.items():
        if type(name) is not str:
            raise _refused(path, f"a member named by a {_name(type(name))}, not by text")
        below = f"{path}/{_escaped(name)}"
        members[_text(name, below)] = _plain(each, below, inside)
    return members


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(path, "text with half a surrogate pair, which has no UTF-8 form") from None
    return text


def _escaped(name: str) -> str:
    """A member's name as a step of a JSON pointer (RFC 6901), in printable characters."""
    plain = name.encode("utf-8", "backslashreplace").decode()
    return plain.replace("~", "~0").replace("/", "~1")


def _name(kind: type) -> str:
    """The class's own name, also where its metaclass answers something else."""
    return str(type.__dict__["__name__"].__get__(kind))


def _refused(path: str, what: str) -> CanonicalizationError:
    return CanonicalizationError(
        f"{path or 'the value itself'} cannot be fingerprinted: {what}", path=path, cause=what
    )
