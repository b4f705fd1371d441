"""Redaction of a step journal before it is published: what goes, what stays, and the new chain.

Rules: docs/formats/session-journal.md, section 11. The hash of the input would let a reader test
guesses of a redacted prompt, so it goes with the prompt unless the policy keeps it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_formats.journal_reader import Row
from bernstein_formats.session_journal import StepHead, row_bytes, step_hash

MARKER: Final = "<<redacted>>"
REDACTABLE: Final = ("model", "prompt", "tool_call", "tool_result")
_ALWAYS_READABLE: Final = ("effort", "ts")
# A redacted text of fewer characters appears elsewhere by chance.
_TELLING_CHARACTERS: Final = 8


@dataclass(frozen=True, slots=True)
class RedactionPolicy:
    """Which members are taken out of every step."""

    fields: frozenset[str] = frozenset({"prompt", "tool_result"})
    # The peer keeps the digest, and with it a way to test guesses.
    keep_input_hash: bool = False

    def __post_init__(self) -> None:
        """Refuse, as InvalidInput, members on which the chain rests."""
        wrong = sorted(self.fields - set(REDACTABLE))
        if wrong:
            raise InvalidInput(
                f"cannot redact {', '.join(wrong)}; only {', '.join(REDACTABLE)} may be redacted,"
                " since the chain rests on the others"
            )

    @property
    def hides_input(self) -> bool:
        """Whether the digest of the input goes too."""
        return bool(self.fields) and not self.keep_input_hash


def redacted_rows(rows: Iterable[Row], policy: RedactionPolicy) -> Iterator[bytes]:
    """The lines, with their LF, of the chain that is anchored anew. `rows` are in normal form."""
    head = StepHead()
    for row in rows:
        redacted: Row = {**row, "blob_refs": [], "prev_hash": head.head_hash}
        for name in policy.fields:
            if row.get(name) is not None:
                redacted[name] = MARKER
        if policy.hides_input:
            redacted["input_hash"] = MARKER
        redacted["step_hash"] = hashed = step_hash(redacted)
        head = StepHead(head.seq + 1, hashed)
        yield row_bytes(redacted) + b"\n"


@dataclass(slots=True)
class RedactionPreview:
    """What a reader of the published chain will see."""

    policy: RedactionPolicy
    steps: int = 0
    # Member → in how many steps it can be read.
    readable: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    # Steps in which a redacted text can be read elsewhere in the same step.
    repeating: list[int] = field(default_factory=list)

    def take(self, row: Row) -> None:
        """Take the next row, in normal form."""
        kept: list[JsonValue] = []
        hidden: list[JsonValue] = []
        for name in (*REDACTABLE, *_ALWAYS_READABLE):
            value = row.get(name)
            if value is None:
                continue
            gone = name in self.policy.fields
            (self.redacted if gone else self.readable)[name] += 1
            (hidden if gone else kept).append(value)
        (self.redacted if self.policy.hides_input else self.readable)["input_hash"] += 1
        if _repeats(kept, hidden):
            self.repeating.append(self.steps)
        self.steps += 1


def _repeats(kept: list[JsonValue], hidden: list[JsonValue]) -> bool:
    texts = [text for text in _texts(hidden) if len(text) >= _TELLING_CHARACTERS]
    return any(text in readable for readable in _texts(kept) for text in texts)


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from value
        for each in value.values():
            yield from _texts(each)
