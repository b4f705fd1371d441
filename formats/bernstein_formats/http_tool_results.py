"""Puts the parallel tool results of an Anthropic turn into the order of its calls.

They arrive as they finish. Rules: docs/formats/llm-http.md, section 3.
"""

from itertools import pairwise

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_places import JsonObject, objects


def sort_tool_results(body: JsonObject) -> list[str]:
    """Change a request body in place; gives the call ids of each changed turn as they arrived."""
    turns = pairwise(objects(body.get("messages")))
    return [arrived for asked, answered in turns if (arrived := _sorted(asked, answered))]


def _sorted(asked: JsonObject, answered: JsonObject) -> str:
    order = [block.get("id") for block in objects(asked.get("content")) if _is(block, "tool_use")]
    content = answered.get("content")
    if answered.get("role") != "user" or not isinstance(content, list):
        return ""
    places = [at for at, block in enumerate(content) if _is(block, "tool_result")]
    results = [block for block in objects(content) if _is(block, "tool_result")]
    known = [block.get("tool_use_id") for block in results]
    if len(set(map(str, order))) != len(order) or not all(each in order for each in known):
        return ""
    ordered = sorted(results, key=lambda block: order.index(block.get("tool_use_id")))
    if ordered == results:
        return ""
    _keep_mark_last(results, ordered)
    for at, block in zip(places, ordered, strict=True):
        content[at] = block
    return " ".join(map(str, known))


def _keep_mark_last(arrived: list[JsonObject], ordered: list[JsonObject]) -> None:
    """The cache mark sits on whichever result came last; let it sit on the last one."""
    marked = [block for block in arrived if "cache_control" in block]
    if marked and len(marked) == 1 and marked[0] is arrived[-1]:
        ordered[-1]["cache_control"] = marked[0].pop("cache_control")


def _is(block: JsonValue, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind
