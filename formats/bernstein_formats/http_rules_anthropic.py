"""Rules for Anthropic Messages: device ids, parallel tool results, ids that sub-agents mint.

Rules: docs/formats/llm-http.md, section 3.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_rules import Fired, drop, masked, objects, substituted

USER_ID: Final = "anthropic.drop-user-id"
RESULT_ORDER: Final = "anthropic.sort-tool-results"
AGENT_IDS: Final = "anthropic.rename-agent-ids"
DURATION: Final = "anthropic.mask-agent-duration"

# Tools whose results are written by the client about a sub-agent.
AGENT_TOOLS: Final = frozenset({"Agent", "Task"})

_AGENT_ID = re.compile(r"^agentId: (a[0-9a-f]{16})(?![0-9a-f])", re.MULTILINE)
_TASK_ID = re.compile(r"<task-id>(a[0-9a-f]{16})</task-id>")
_OUTPUT_FILE = re.compile(
    r"^output_file: \S*/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/tasks/a[0-9a-f]{16}\.output",
    re.MULTILINE,
)
_DURATION = re.compile(r"(<usage>(?:[a-z_]+: \d+\n)*duration_ms: )\d+(?=[\n<])")

Block: TypeAlias = "dict[str, JsonValue]"


def apply(body: dict[str, JsonValue], fired: Fired) -> None:
    """Change a request body in place."""
    drop(body.get("metadata"), "user_id", USER_ID, fired)
    messages = list(objects(body.get("messages")))
    for asked, answered in pairwise(messages):
        _sort_results(asked, answered, fired)
    texts = list(_agent_texts(messages))
    names = _minted(messages, texts)
    for holder in texts:
        text = holder["text"]
        assert isinstance(text, str)
        holder["text"] = masked(text, _DURATION, DURATION, fired)
    if names:
        body["messages"] = substituted(body["messages"], names)
    fired.replaced(AGENT_IDS, len(names))


def _sort_results(asked: Block, answered: Block, fired: Fired) -> None:
    """Put the results of one turn into the order of its calls; they arrive as they finish."""
    order = [block.get("id") for block in objects(asked.get("content")) if _is(block, "tool_use")]
    content = answered.get("content")
    if answered.get("role") != "user" or not isinstance(content, list):
        return
    places = [at for at, block in enumerate(content) if _is(block, "tool_result")]
    results = [block for block in objects(content) if _is(block, "tool_result")]
    known = [block.get("tool_use_id") for block in results]
    if len(set(map(str, order))) != len(order) or not all(each in order for each in known):
        return
    ordered = sorted(results, key=lambda block: order.index(block.get("tool_use_id")))
    if ordered == results:
        return
    _keep_mark_last(results, ordered)
    for at, block in zip(places, ordered, strict=True):
        content[at] = block
    fired.dropped(RESULT_ORDER)


def _keep_mark_last(arrived: list[Block], ordered: list[Block]) -> None:
    """The cache mark sits on whichever result came last; let it sit on the last one."""
    marked = [block for block in arrived if "cache_control" in block]
    if marked and len(marked) == 1 and marked[0] is arrived[-1]:
        ordered[-1]["cache_control"] = marked[0].pop("cache_control")


def _agent_texts(messages: list[Block]) -> Iterator[Block]:
    """The text blocks in results of the tools that start sub-agents."""
    calls: set[str] = set()
    for message in messages:
        for block in objects(message.get("content")):
            if _is(block, "tool_use") and block.get("name") in AGENT_TOOLS:
                calls.add(str(block.get("id")))
            elif _is(block, "tool_result") and str(block.get("tool_use_id")) in calls:
                for part in objects(block.get("content")):
                    if isinstance(part.get("text"), str):
                        yield part


def _minted(messages: list[Block], texts: list[Block]) -> dict[str, str]:
    """Ids that the client made up → their numbers by first appearance."""
    found: list[str] = []
    for holder in texts:
        for pattern in (_AGENT_ID, _OUTPUT_FILE):
            found += pattern.findall(str(holder["text"]))
    for message in messages:
        if message.get("role") == "user":
            for block in objects(message.get("content")):
                if _is(block, "text"):
                    found += _TASK_ID.findall(str(block.get("text")))
    return {name: f"<agent{at}>" for at, name in enumerate(dict.fromkeys(found))}


def _is(block: JsonValue, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind
