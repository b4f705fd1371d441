"""Applies the rule file to a request: what it drops, sorts, renames and masks, and nothing else.

A field that no rule names is part of the key. Rules: docs/formats/llm-http.md, section 3.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.http_places import JsonObject, Spot, tools_by_call
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.http_rule_file import RULE_SET, Action, Anchor, Rule
from bernstein_formats.http_tool_results import sort_tool_results

# Stands in the place of what a mask took away.
MASKED: Final = "<masked>"
_IN_KEY: Final = frozenset({Action.RENAME, Action.MASK})


@dataclass(slots=True)
class Fired:
    """Which rules changed something: for each the texts that it took away."""

    taken: dict[str, list[str]] = field(default_factory=dict)
    # How many values each renaming or masking rule replaced. It is part of the key, so that a text
    # which merely looks like what a rule writes is never taken for it.
    in_key: dict[str, int] = field(default_factory=dict)

    def note(self, rule: Rule, texts: list[str]) -> None:
        if texts:
            self.taken[rule.name] = texts
            if rule.action in _IN_KEY:
                self.in_key[rule.name] = len(texts)


def apply_rules(protocol: Protocol, body: JsonObject, fired: Fired) -> None:
    """Change a request body in place."""
    rules = RULE_SET.rules[protocol]
    if not rules:
        return
    tools = tools_by_call(body) if protocol is Protocol.ANTHROPIC_MESSAGES else {}
    for rule in rules:
        if not rule.concerns(body):
            continue
        places = [list(anchor.place.spots(body, tools)) for anchor in rule.anchors]
        fired.note(rule, _applied(rule, body, places))


def _applied(rule: Rule, body: JsonObject, places: list[list[Spot]]) -> list[str]:
    match rule.action:
        case Action.DROP:
            return [spelled(holder.pop(name)) for spots in places for holder, name in spots]
        case Action.SORT:
            return sort_tool_results(body)
        case Action.RENAME if rule.within:
            return _renamed_everywhere(rule, body, places)
        case Action.RENAME:
            return _renamed_in_place(spot for spots in places for spot in spots)
        case Action.MASK:
            pairs = zip(rule.anchors, places, strict=True)
            return [text for anchor, spots in pairs for text in _masked(anchor, spots)]


def _renamed_in_place(spots: Iterator[Spot]) -> list[str]:
    """Number the texts by first appearance: equal ones stay equal."""
    names: dict[str, str] = {}
    for holder, member in spots:
        value = holder.get(member)
        if isinstance(value, str):
            holder[member] = names.setdefault(value, f"<id{len(names)}>")
    return list(names)


def _renamed_everywhere(rule: Rule, body: JsonObject, places: list[list[Spot]]) -> list[str]:
    """Number what the patterns find by first appearance, wherever the same text stands."""
    found = [
        text
        for anchor, spots in zip(rule.anchors, places, strict=True)
        for holder, member in spots
        for text in _matches(anchor, holder[member])
    ]
    names = {text: f"<id{at}>" for at, text in enumerate(dict.fromkeys(found))}
    if names:
        longest_first = sorted(map(re.escape, names), key=len, reverse=True)
        any_of = re.compile("|".join(longest_first))
        body[rule.within] = _substituted(body[rule.within], any_of, names)
    return list(names)


def _matches(anchor: Anchor, value: JsonValue) -> list[str]:
    assert anchor.pattern is not None
    return anchor.pattern.findall(value) if isinstance(value, str) else []


def _masked(anchor: Anchor, spots: list[Spot]) -> list[str]:
    """Blank the group of each match."""
    assert anchor.pattern is not None
    taken: list[str] = []

    def blanked(found: re.Match[str]) -> str:
        taken.append(found[1])
        start, end = found.start(1) - found.start(), found.end(1) - found.start()
        return found[0][:start] + MASKED + found[0][end:]

    for holder, member in spots:
        value = holder[member]
        if isinstance(value, str):
            holder[member] = anchor.pattern.sub(blanked, value)
    return taken


def _substituted(value: JsonValue, any_of: re.Pattern[str], names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, str):
        return any_of.sub(lambda found: names[found[0]], value)
    if isinstance(value, list):
        return [_substituted(each, any_of, names) for each in value]
    if isinstance(value, dict):
        return {name: _substituted(each, any_of, names) for name, each in value.items()}
    return value
