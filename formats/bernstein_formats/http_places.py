"""Places in a request body, as the rule file writes them: `messages[role=user].content[].text`.

Names are separated by dots. `[]` behind one stands for each object of a list, `[member=value]` for
those with this value, `[tool=A|B]` for the results of calls of these tools. Rules:
docs/formats/llm-http.md, section 3.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput

JsonObject = dict[str, JsonValue]
# Where a value is: the object that holds it, and its name there.
Spot = tuple[JsonObject, str]

_STEP: Final = re.compile(r"(\w+)(?:\[(?:(\w+)=([\w|-]+))?(\]))?")
_TOOL: Final = "tool"


@dataclass(frozen=True, slots=True)
class _Step:
    """One name of a place, and which objects of its list are meant; without `is_list` itself."""

    name: str
    is_list: bool
    member: str
    values: frozenset[str]

    def chosen(self, value: JsonValue, tools: dict[str, str]) -> Iterator[JsonObject]:
        if not self.is_list:
            if isinstance(value, dict):
                yield value
            return
        for each in objects(value):
            if not self.member or self._said(each, tools) in self.values:
                yield each

    def _said(self, each: JsonObject, tools: dict[str, str]) -> JsonValue:
        if self.member != _TOOL:
            said = each.get(self.member)
            return said if isinstance(said, str) else None
        is_result = each.get("type") == "tool_result"
        return tools.get(str(each.get("tool_use_id"))) if is_result else None


class Place:
    """A place that was read."""

    def __init__(self, text: str) -> None:
        """Raises InvalidInput."""
        self.text = text
        steps = [_step(part, text) for part in text.split(".")]
        *self._above, self._last = steps

    def spots(self, body: JsonObject, tools: dict[str, str]) -> Iterator[Spot]:
        """Where it is in a body, in order; `tools` are the names of the tools by call."""
        holders = [body]
        for step in self._above:
            holders = [
                found for holder in holders for found in step.chosen(holder.get(step.name), tools)
            ]
        for holder in holders:
            if self._last.name in holder:
                yield holder, self._last.name


def _step(part: str, text: str) -> _Step:
    found = _STEP.fullmatch(part)
    if found is None:
        raise InvalidInput(f"{text!r} is no place in a request: {part!r} is no step of one")
    values = frozenset((found[3] or "").split("|"))
    return _Step(found[1], found[4] is not None, found[2] or "", values)


def objects(value: JsonValue) -> Iterator[JsonObject]:
    """The objects of a list; none for anything else."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, dict))


def tools_by_call(body: JsonObject) -> dict[str, str]:
    """The tool of each call in an Anthropic conversation, by the call's id."""
    return {
        str(block.get("id")): str(block.get("name"))
        for message in objects(body.get("messages"))
        for block in objects(message.get("content"))
        if block.get("type") == "tool_use"
    }
