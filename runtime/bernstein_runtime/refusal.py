"""How a process that cannot start tells why to the one that started it: one JSON line."""

import json
from collections.abc import Mapping
from typing import Any

from bernstein_formats.errors import BY_REASON, BernsteinError

# What is read of a process that ended; a refusal is far shorter.
OUTPUT_BYTES_MAX = 65536


def refusal_of(error: BernsteinError) -> dict[str, Any]:
    """The members of a JSON object that `error_from_refusal` takes."""
    return {"reason": error.reason, "error": error.message, "facts": error.metadata}


def error_from_refusal(refusal: Mapping[str, Any]) -> BernsteinError:
    """The error that was told, of the same class."""
    kind = BY_REASON.get(str(refusal.get("reason")), BernsteinError)
    error = kind(str(refusal.get("error", "it refused")))
    facts = refusal.get("facts")
    if isinstance(facts, dict):
        error.metadata.update({str(name): str(value) for name, value in facts.items()})
    return error


def refusal_in(output: bytes) -> BernsteinError | None:
    """The last refusal in what a process wrote; None when it did not say why it ended."""
    for line in reversed(output.splitlines()):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and "reason" in said and "error" in said:
            return error_from_refusal(said)
    return None
