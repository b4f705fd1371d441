"""Rules for OpenAI Responses: session ids, item ids, the head lines of an executed command.

OpenAI Chat Completions has no rules: its clients send the same bytes each time. Rules:
docs/formats/llm-http.md, section 3.
"""

import re
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_rules import Fired, drop, masked, objects, rename_members

CACHE_KEY: Final = "responses.drop-prompt-cache-key"
CLIENT_METADATA: Final = "responses.drop-client-metadata"
ITEM_IDS: Final = "responses.rename-item-ids"
EXEC_HEAD: Final = "responses.mask-exec-head"

_EXEC_HEAD = re.compile(r"\A()Chunk ID: [0-9a-f]{6}\nWall time: \d+(?:\.\d+)? seconds\n")


def apply(body: dict[str, JsonValue], fired: Fired) -> None:
    """Change a request body in place."""
    drop(body, "prompt_cache_key", CACHE_KEY, fired)
    drop(body, "client_metadata", CLIENT_METADATA, fired)
    items = list(objects(body.get("input")))
    rename_members(((item, "id") for item in items), ITEM_IDS, fired)
    for item in items:
        output = item.get("output")
        if item.get("type") == "function_call_output" and isinstance(output, str):
            item["output"] = masked(output, _EXEC_HEAD, EXEC_HEAD, fired)
