"""What a request is about: runs and sessions, by the names that fields have in all of protos/."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from google.protobuf.message import Message

from bernstein_formats.run_choice import LATEST


class Kind(StrEnum):
    """What has an owner."""

    RUN = "run"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Target:
    """A run, or an agent's session of steps. An empty id: everything of the origin."""

    kind: Kind
    target_id: str

    @property
    def is_all(self) -> bool:
        return not self.target_id

    def __str__(self) -> str:
        return "all runs" if self.is_all else f"{self.kind} {self.target_id!r}"


EVERYTHING: Final = Target(Kind.RUN, "")
# Field → what it names. Ids that are looked for in no store (request_id) are not here.
FIELDS: Final = {
    "run_id": Kind.RUN,
    "run_id_a": Kind.RUN,
    "run_id_b": Kind.RUN,
    "agent_id": Kind.SESSION,
}
REPLAYED: Final = "replay_run_id"
OPEN_SESSION: Final = "session_id"
ORIGIN: Final = "origin"
WINDOW: Final = "audit_window"
# `AcceptLossRequest.id`, whose kind another field tells: only an operator sends it.
LOG: Final = "id"


def targets_of(request: Message) -> list[Target]:
    """What a request would read or change; EVERYTHING where it names nothing.

    A replayed run, which is only read, and an open session are found by `text_of`.
    """
    found = [
        Target(kind, text) for name, text in _texts(request) if (kind := FIELDS.get(name)) and text
    ]
    found += [Target(Kind.RUN, text) for name, text in _texts(request) if name == LOG and text]
    named = [EVERYTHING if each.target_id == LATEST else each for each in found]
    if _has_foreign_events(request):
        named.append(EVERYTHING)
    return named or [EVERYTHING]


def text_of(request: Message, name: str) -> str:
    """What a field of that name says, wherever it is; empty where there is none."""
    return next((text for found, text in _texts(request) if found == name), "")


def _texts(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if isinstance(value, str):
            yield field.name, value
        elif isinstance(value, Message):
            yield from _texts(value)


def _has_foreign_events(request: Message) -> bool:
    """Whether a receipt is asked to take events of the audit log that do not name its run."""
    windows = [value for field, value in request.ListFields() if field.name == WINDOW]
    return any(not window.own_only for window in windows)
