"""Keeps who and when out of a fingerprint: a member that names somebody is refused at any depth.

Rules: docs/formats/determinism.md, section 2. Names that somebody else chose are let be: those of a
tool's parameters in its schema, and those that a model wrote as the arguments of a call.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bernstein_formats.errors import IdentityFieldError
from bernstein_formats.strict_json import pointer_step

# The `type` of an object that is a tool call.
CALL_KINDS: Final = ("function", "tool_use")
_IDENTITY_NAMES: Final = frozenset(
    (
        *("sessionid", "messageid", "userid", "turnid", "eventid", "recordid", "requestid"),
        *("traceid", "runid", "timestamp", "createdat", "ts"),
    )
)
# Members of a schema whose own members are named by a tool's author.
_SCHEMA_NAMES: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_ARGUMENTS_NAMES: Final = frozenset({"input", "arguments"})


def refuse_identity(value: object, path: str) -> None:
    """Walk a value that has a canonical form. Raises IdentityFieldError with the place."""
    for found in _identity_paths(value, path):
        raise IdentityFieldError(
            f"{found} says who or when, not what is asked; it would make every fingerprint a new"
            " one: put it into the metadata",
            path=found,
        )


def _identity_paths(value: object, path: str, *, is_schema: bool = False) -> Iterator[str]:
    """Where a member that names somebody or a moment stands, at any depth."""
    if isinstance(value, list | tuple):
        for at, each in enumerate(value):
            yield from _identity_paths(each, f"{path}/{at}")
    elif isinstance(value, Mapping):
        for name, each in value.items():
            below = f"{path}/{pointer_step(name)}"
            describes = is_schema and isinstance(each, Mapping | bool)
            if _folded(name) in _IDENTITY_NAMES and not describes:
                yield below
            if not (name in _ARGUMENTS_NAMES and _is_call(value)):
                yield from _identity_paths(
                    each, below, is_schema=not is_schema and name in _SCHEMA_NAMES
                )


def _is_call(owner: Mapping[str, object]) -> bool:
    """Whether an object is a tool call, or the function in one."""
    return owner.get("type") in CALL_KINDS or owner.keys() == {"name", "arguments"}


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
