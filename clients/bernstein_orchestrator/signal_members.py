"""One entry of `completion_signals`. Rules: docs/formats/plan-and-run.md, section 1.6."""

from typing import Final

from bernstein_orchestrator.plan import Signal, SignalType
from bernstein_orchestrator.plan_members import Members

SIGNAL_MEMBERS: Final = frozenset(("type", "value", "path", "command", "contains"))
SEPARATOR: Final = " :: "


def signal_of(members: Members, index: int) -> Signal:
    """Read the entry at `index`; InvalidInput names what is wrong."""
    texts = _signal_texts(members, index)
    try:
        kind = SignalType(str(members.value("type")))
    except ValueError:
        words = ", ".join(SignalType)
        text = f"completion signal {index} has no known type; use one of {words}"
        raise members.refused("signal_type_unknown", text, "type") from None
    return Signal(kind, _signal_value(members, index, kind, texts))


def _signal_texts(members: Members, index: int) -> dict[str, str]:
    """Read the members of a signal; each that is there must be text that is not blank."""
    texts = {}
    for name in ("value", "path", "command", "contains"):
        if name in members:
            value = members.value(name)
            if not isinstance(value, str) or not value.strip():
                text = f"completion signal {index}: {name} must be text that is not blank"
                raise members.refused("signal_member_not_text", text, name)
            texts[name] = value
    return texts


def _signal_value(members: Members, index: int, kind: SignalType, texts: dict[str, str]) -> str:
    if kind is SignalType.FILE_CONTAINS:
        if SEPARATOR in texts.get("value", ""):
            return texts["value"]
        if "path" in texts and "contains" in texts:
            return texts["path"] + SEPARATOR + texts["contains"]
        wanted = f"path and contains, or a value with {SEPARATOR!r} in it"
    else:
        for name in ("value", "path", "command"):
            if name in texts:
                return texts[name]
        wanted = "a value, path or command"
    text = f"completion signal {index} ({kind.value}) needs {wanted}"
    raise members.refused("signal_members_incomplete", text)
