"""The rule file: what is left out of a request's key and what counts as a secret, as data.

It has a version and a digest, which every recording names.

`http_rules.json` beside this module is the only place that lists rules. Rules:
docs/formats/llm-http.md, section 3.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json_unique
from bernstein_formats.errors import InvalidInput
from bernstein_formats.http_places import JsonObject, Place, objects
from bernstein_formats.http_protocol import Protocol


class Action(StrEnum):
    """What a rule does, in the order in which rules are applied."""

    DROP = "drop"
    SORT = "sort"
    RENAME = "rename"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place, and in its text the one group of a pattern; without pattern the whole value."""

    place: Place
    pattern: re.Pattern[str] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `within`: a renamed text is renamed wherever it stands in this member."""

    name: str
    protocol: Protocol
    action: Action
    anchors: tuple[Anchor, ...]
    within: str
    # "member" or "member=text": only bodies that have this are changed; empty: all.
    condition: str = ""

    def concerns(self, body: JsonObject) -> bool:
        """Whether the rule looks at this body at all."""
        member, _, text = self.condition.partition("=")
        return not member or (member in body and text in ("", body[member]))


@dataclass(frozen=True, slots=True)
class SecretShape:
    """What secrets of a kind look like: the one group of a pattern; one of `near` is part of it."""

    kind: str
    near: tuple[bytes, ...]
    pattern: re.Pattern[bytes]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A rule file that was read; `data` are its bytes."""

    version: int
    sha256_hex: str
    data: bytes
    rules: Mapping[Protocol, tuple[Rule, ...]]
    secrets: tuple[SecretShape, ...]

    def action_of(self, name: str) -> Action | None:
        """What the rule of this name does."""
        all_rules = (rule for rules in self.rules.values() for rule in rules)
        return next((rule.action for rule in all_rules if rule.name == name), None)


def parse_rules(data: bytes) -> RuleSet:
    """Read a rule file. Raises InvalidInput."""
    try:
        return _rule_set(data)
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise InvalidInput(f"the rule file cannot be read: {error}") from error


def _rule_set(data: bytes) -> RuleSet:
    parsed = parse_json_unique(data)
    if not isinstance(parsed, dict) or not isinstance(version := parsed["version"], int):
        raise InvalidInput("the rule file names no version")
    rules = [_rule(each) for each in objects(parsed["rules"])]
    by_protocol = {
        protocol: tuple(sorted((r for r in rules if r.protocol is protocol), key=_turn))
        for protocol in Protocol
    }
    secrets = tuple(map(_shape, objects(parsed["secrets"])))
    return RuleSet(version, hashlib.sha256(data).hexdigest(), data, by_protocol, secrets)


def _turn(rule: Rule) -> int:
    return list(Action).index(rule.action)


def _rule(row: dict[str, JsonValue]) -> Rule:
    return Rule(
        name=str(row["name"]),
        protocol=Protocol(str(row["protocol"])),
        action=Action(str(row["do"])),
        anchors=tuple(map(_anchor, objects(row["places"]))),
        within=str(row.get("within", "")),
        condition=str(row.get("if", "")),
    )


def _anchor(row: dict[str, JsonValue]) -> Anchor:
    pattern = re.compile(_one_group(row)) if "pattern" in row else None
    return Anchor(Place(str(row["at"])), pattern)


def _shape(row: dict[str, JsonValue]) -> SecretShape:
    near = row["near"]
    if not isinstance(near, list):
        raise InvalidInput("near is no list")
    texts = tuple(str(each).encode() for each in near)
    return SecretShape(str(row["kind"]), texts, re.compile(_one_group(row).encode()))


def _one_group(row: dict[str, JsonValue]) -> str:
    text = str(row["pattern"])
    groups = re.compile(text).groups
    if groups != 1:
        raise InvalidInput(f"{text!r} has {groups} groups, not one")
    return text


RULE_SET: Final = parse_rules(files(__package__).joinpath("http_rules.json").read_bytes())
