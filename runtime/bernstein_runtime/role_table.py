"""The role table: which caller has which role for which origins and runs. Nothing else is allowed.

The file is TOML, docs/formats/role-table.md; reading it is `bernstein_runtime.reread_file`'s.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from bernstein_runtime.patterns import ANY, fits, is_pattern, no_pattern, patterns
from bernstein_runtime.quota import Quota
from bernstein_runtime.roles import RPCS, WITHOUT_RUN, Role
from bernstein_runtime.toml_lines import TomlLines, tables_in

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
        return fits(self.caller, caller) and any(fits(each, origin) for each in self.origins)

    def covers_run(self, run_id: str) -> bool:
        """An empty id stands for all runs of the origin."""
        return any(fits(each, run_id) if run_id else each == ANY for each in self.runs)


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
    grants, document, lines = tables_in(text, source, "grant", "docs/access.md", others=("quota",))
    quota = document.get("quota", {})
    if not isinstance(quota, dict):
        raise lines.wrong("quota", "write it as a table, under [quota]")
    return RoleTable(
        tuple(_grant(each, number, lines) for number, each in enumerate(grants)),
        _quota(quota, lines),
    )


def _grant(members: dict[str, Any], number: int, lines: TomlLines) -> Grant:
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
    if not is_pattern(caller):
        raise lines.wrong("caller", no_pattern("caller", caller), number)
    return Grant(
        caller,
        Role(role),
        patterns("origins", members["origins"], number, lines),
        patterns("runs", members["runs"], number, lines),
    )


def _quota(members: dict[str, Any], lines: TomlLines) -> Quota:
    known = [each.name for each in fields(Quota)]
    for name, value in members.items():
        if name not in known:
            raise lines.wrong(name, f"there is no quota {name!r}; there are {', '.join(known)}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise lines.wrong(name, f"{name} is a whole number, 1 or more")
    return Quota(**members)
