"""Rules for Gemini: ids of function calls, which clients mint from the clock.

Rules: docs/formats/llm-http.md, section 3.
"""

from collections.abc import Iterator
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.http_rules import Fired, objects, rename_members

CALL_IDS: Final = "gemini.rename-call-ids"


def apply(body: dict[str, JsonValue], fired: Fired) -> None:
    """Change a request body in place."""
    rename_members(_calls(body), CALL_IDS, fired)


def _calls(body: dict[str, JsonValue]) -> Iterator[tuple[dict[str, JsonValue], str]]:
    for content in objects(body.get("contents")):
        for part in objects(content.get("parts")):
            for member in ("functionCall", "functionResponse"):
                call = part.get(member)
                if isinstance(call, dict):
                    yield call, "id"
