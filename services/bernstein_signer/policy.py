"""What the signer may sign for whom: a list of rules, and nothing that no rule allows.

    [[allow]]
    what = ["seal", "receipt", "mac"]
    origins = ["build-hosts:*"]
    runs = ["*"]
    keys = ["fleet-2026"]

`keys` are names of keys, and count for receipts; without them any configured key is meant.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bernstein_formats.errors import NotAllowed
from bernstein_runtime.patterns import ANY, fits, patterns
from bernstein_runtime.toml_lines import TomlLines, tables_in

_NEEDED: Final = ("what", "origins", "runs")
_MEMBERS: Final = (*_NEEDED, "keys")


class Signs(StrEnum):
    """What is asked of the signer. A receipt seals its run first, and needs the rule for that,
    too."""

    SEAL = "seal"
    RECEIPT = "receipt"
    # Of spine and audit rows; these are an origin's, of any run.
    MAC = "mac"


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[allow]]`."""

    what: frozenset[Signs]
    origins: tuple[str, ...]
    runs: tuple[str, ...]
    keys: tuple[str, ...] = (ANY,)

    def allows(self, what: Signs, origin: str, run_id: str, key_id: str) -> bool:
        return (
            what in self.what
            and any(fits(each, origin) for each in self.origins)
            and (not run_id or any(fits(each, run_id) for each in self.runs))
            and (not key_id or any(fits(each, key_id) for each in self.keys))
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules."""

    rules: tuple[Rule, ...]

    def check(self, what: Signs, origin: str, run_id: str = "", key_id: str = "") -> None:
        """Raises NotAllowed that names what a rule would have to allow."""
        if any(rule.allows(what, origin, run_id, key_id) for rule in self.rules):
            return
        run = f", run {run_id}" if run_id else ""
        key = f", with key {key_id}" if key_id else ""
        raise NotAllowed(
            f"the signer's policy has no rule for a {what} of origin {origin}{run}{key}; whoever"
            " holds the key adds one to [signer] policy_file",
            what=what,
            origin=origin,
        )


def parse_policy(text: str, source: str) -> Policy:
    """Raises InvalidInput that names `source`, the line and what is wrong there."""
    rules, _, lines = tables_in(text, source, "allow", "docs/signer.md")
    return Policy(tuple(_rule(each, number, lines) for number, each in enumerate(rules)))


def _rule(members: dict[str, Any], number: int, lines: TomlLines) -> Rule:
    for name in members:
        if name not in _MEMBERS:
            known = ", ".join(_MEMBERS)
            raise lines.wrong(name, f"a rule has no {name!r}; it has {known}", number)
    for name in _NEEDED:
        if name not in members:
            raise lines.wrong("allow", f"the rule has no {name}", number)
    what = members["what"]
    if not isinstance(what, list) or not what or any(each not in list(Signs) for each in what):
        raise lines.wrong("what", f"what is a list of {', '.join(Signs)}", number)
    return Rule(
        frozenset(map(Signs, what)),
        patterns("origins", members["origins"], number, lines),
        patterns("runs", members["runs"], number, lines),
        patterns("keys", members.get("keys", [ANY]), number, lines),
    )
