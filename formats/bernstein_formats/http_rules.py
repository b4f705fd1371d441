"""What of a model request is left out of its key or renamed: listed rules, and nothing else.

The rule set has a version, which every recording names. A rule looks at one place of one protocol;
a field that no rule names is part of the key. Order: drop, sort, rename, mask (docs/formats/
llm-http.md, section 3).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bernstein_formats.canonical import JsonValue

RULE_SET: Final = 1
# Stands in the place of what a mask took away.
MASKED: Final = "<masked>"


class Protocol(StrEnum):
    """What is spoken at a path."""

    ANTHROPIC_MESSAGES = "anthropic.messages"
    OPENAI_CHAT = "openai.chat"
    OPENAI_RESPONSES = "openai.responses"
    GEMINI_GENERATE = "gemini.generate"
    # Model lists, embeddings and the like: no rule applies.
    OTHER = "other"


@dataclass(slots=True)
class Fired:
    """Which rules changed something, and how many values the renaming and masking ones took.

    The counts of those are part of the key, so that a text which merely looks like what a rule
    writes is never taken for it.
    """

    counts: dict[str, int] = field(default_factory=dict)
    in_key: dict[str, int] = field(default_factory=dict)

    def dropped(self, rule: str) -> None:
        self.counts[rule] = self.counts.get(rule, 0) + 1

    def replaced(self, rule: str, count: int) -> None:
        if count:
            self.counts[rule] = self.in_key[rule] = self.in_key.get(rule, 0) + count


Rules = Callable[[dict[str, JsonValue], Fired], None]


def drop(holder: JsonValue, member: str, rule: str, fired: Fired) -> None:
    """Take a member out of an object, if both are there."""
    if isinstance(holder, dict) and member in holder:
        del holder[member]
        fired.dropped(rule)


def rename_members(
    places: Iterator[tuple[dict[str, JsonValue], str]], rule: str, fired: Fired
) -> None:
    """Number the texts at these places by first appearance: equal ones stay equal."""
    names: dict[str, str] = {}
    for holder, member in places:
        value = holder.get(member)
        if isinstance(value, str):
            holder[member] = names.setdefault(value, f"<id{len(names)}>")
    fired.replaced(rule, len(names))


def masked(text: str, pattern: re.Pattern[str], rule: str, fired: Fired) -> str:
    """Blank what each match has behind its one group."""
    changed, count = pattern.subn(lambda found: found[1] + MASKED, text)
    fired.replaced(rule, count)
    return changed


def objects(value: JsonValue) -> Iterator[dict[str, JsonValue]]:
    """The objects of a list; none for anything else."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def substituted(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """A value with these texts replaced wherever they stand in a text, member names left alone."""
    if not names:
        return value
    longest_first = sorted(map(re.escape, names), key=len, reverse=True)
    return _substituted(value, re.compile("|".join(longest_first)), names)


def _substituted(value: JsonValue, any_of: re.Pattern[str], names: Mapping[str, str]) -> JsonValue:
    if isinstance(value, str):
        return any_of.sub(lambda found: names[found[0]], value)
    if isinstance(value, list):
        return [_substituted(each, any_of, names) for each in value]
    if isinstance(value, dict):
        return {name: _substituted(each, any_of, names) for name, each in value.items()}
    return value
