"""The role table: which caller has which role for which origins and runs. Nothing else is allowed.

The file is TOML, docs/formats/role-table.md; reading it is `bernstein_runtime.role_file`'s.
"""

import re
import tomllib
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.quota import Quota
from bernstein_runtime.roles import RPCS, WITHOUT_RUN, Role

ANY: Final = "*"
GRANTS_MAX: Final = 10_000
_MEMBERS: Final = ("caller", "role", "origins", "runs")


class Reach(Enum):
    """How far a caller gets with a call."""

    NOTHING = 0
    OWN = 1
    EVERYTHING = 2


@dataclass(frozen=True, slots=True)
class Grant:
    """One `[[grant]]`. A pattern is a text, or the beginning of one and then `*`."""

    caller: str
    role: Role
    origins: tuple[str, ...]
    runs: tuple[str, ...]

    def covers(self, caller: str, origin: str) -> bool:
        return _fits(self.caller, caller) and any(_fits(each, origin) for each in self.origins)

    def covers_run(self, run_id: str) -> bool:
        """An empty id stands for all runs of the origin."""
        return any(_fits(each, run_id) if run_id else each == ANY for each in self.runs)


@dataclass(frozen=True, slots=True)
class RoleTable:
    """All grants, and how much each caller may have under way."""

    grants: tuple[Grant, ...] = ()
    quota: Quota = field(default_factory=Quota)

    def reach(self, caller: str, method: str, origin: str, run_id: str) -> Reach:
        """How far `caller` gets with a call about a run; an empty id is the whole origin."""
        found = Reach.NOTHING
        for grant in self.grants:
            if method not in RPCS[grant.role] or not grant.covers(caller, origin):
                continue
            if not grant.covers_run(run_id):
                continue
            if grant.role is not Role.WRITER or (not run_id and method in WITHOUT_RUN):
                return Reach.EVERYTHING
            if run_id:
                found = Reach.OWN
        return found

    def may_call(self, caller: str, method: str, origin: str) -> bool:
        """Whether there is any run of the origin for which `caller` may make the call."""
        return any(
            method in RPCS[grant.role] and grant.covers(caller, origin) for grant in self.grants
        )


def parse_role_table(text: str, source: str) -> RoleTable:
    """Raises InvalidInput that names `source`, the line and what is wrong there."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{source}: {error}; see docs/access.md", path=source) from error
    lines = _Lines(source, text)
    for name in document:
        if name not in ("grant", "quota"):
            raise lines.wrong(name, f"there is no table {name!r}; there are grant and quota")
    grants = document.get("grant", [])
    if not isinstance(grants, list) or not all(isinstance(each, dict) for each in grants):
        raise lines.wrong("grant", "write each grant as a table of its own, under [[grant]]")
    if len(grants) > GRANTS_MAX:
        raise lines.wrong("grant", f"{len(grants)} grants; at most {GRANTS_MAX} are taken")
    quota = document.get("quota", {})
    if not isinstance(quota, dict):
        raise lines.wrong("quota", "write it as a table, under [quota]")
    return RoleTable(
        tuple(_grant(each, number, lines) for number, each in enumerate(grants)),
        _quota(quota, lines),
    )


class _Lines:
    """Finds the line that an error is about; TOML's parser does not tell."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._lines = text.splitlines()
        self._grants = [
            number for number, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*grant", line)
        ]

    def wrong(self, member: str, what: str, grant: int | None = None) -> InvalidInput:
        start = 0
        if grant is not None and grant < len(self._grants):
            start = self._grants[grant]
        line = self._first(member, start)
        return InvalidInput(f"{self._source}, line {line}: {what}", path=self._source, line=line)

    def _first(self, member: str, start: int) -> int:
        """Counted from 1; where the table begins if the member has no line of its own."""
        pattern = re.compile(rf"""\s*\[*\s*["']?{re.escape(member)}["']?\s*[=\].]""")
        for number in range(start, len(self._lines)):
            if number > start and number in self._grants and start:
                break
            if pattern.match(self._lines[number]):
                return number + 1
        return start + 1


def _grant(members: dict[str, Any], number: int, lines: _Lines) -> Grant:
    for name in members:
        if name not in _MEMBERS:
            known = ", ".join(_MEMBERS)
            raise lines.wrong(name, f"a grant has no {name!r}; it has {known}", number)
    for name in _MEMBERS:
        if name not in members:
            raise lines.wrong("grant", f"the grant has no {name}", number)
    caller, role = members["caller"], members["role"]
    if role not in list(Role):
        known = ", ".join(Role)
        raise lines.wrong("role", f"there is no role {role!r}; there are {known}", number)
    if not _is_pattern(caller):
        raise lines.wrong("caller", _no_pattern("caller", caller), number)
    return Grant(
        caller,
        Role(role),
        _patterns("origins", members, number, lines),
        _patterns("runs", members, number, lines),
    )


def _patterns(name: str, members: dict[str, Any], number: int, lines: _Lines) -> tuple[str, ...]:
    value = members[name]
    if not isinstance(value, list) or not value:
        raise lines.wrong(name, f'{name} is a list such as ["*"], not empty', number)
    for each in value:
        if not _is_pattern(each):
            raise lines.wrong(name, _no_pattern(name, each), number)
    return tuple(value)


def _quota(members: dict[str, Any], lines: _Lines) -> Quota:
    known = [each.name for each in fields(Quota)]
    for name, value in members.items():
        if name not in known:
            raise lines.wrong(name, f"there is no quota {name!r}; there are {', '.join(known)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise lines.wrong(name, f"{name} is a whole number, 1 or more")
    return Quota(**members)


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or not value or not value.isprintable():
        return False
    return ANY not in value[:-1]


def _no_pattern(name: str, value: object) -> str:
    return f"{name}: {value!r} is no text that can be printed, with * at its end at most"


def _fits(pattern: str, text: str) -> bool:
    if pattern.endswith(ANY):
        return text.startswith(pattern[:-1])
    return text == pattern
