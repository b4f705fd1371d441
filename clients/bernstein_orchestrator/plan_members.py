"""The members of one mapping of a plan: each read by kind, or refused with its place and line."""

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import TypeVar

from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.yaml_document import YamlMapping

_Choice = TypeVar("_Choice", bound=StrEnum)
_SCALARS = (str, int, float, date)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; steps are counted from 0, as in the peer's texts."""

    source: str
    path: str = "plan"
    stage: str | None = None
    step: int | None = None

    def refused(self, kind: str, text: str, line: int | None) -> InvalidInput:
        """Make the error that names file, line, stage and step."""
        where = self.source if line is None else f"{self.source}:{line}"
        if self.step is not None:
            where += f": step {self.step} of stage {self.stage!r}"
        elif self.stage is not None:
            where += f": stage {self.stage!r}"
        return InvalidInput(
            f"{where}: {text}",
            kind=kind,
            file=self.source,
            line=line,
            stage=self.stage,
            step=self.step,
        )


class Members:
    """One mapping and its place."""

    def __init__(self, mapping: YamlMapping, place: Place) -> None:
        """Read from a mapping at a place."""
        self._mapping = mapping
        self.place = place
        self.line = mapping.line

    def refused(self, kind: str, text: str, member: str | None = None) -> InvalidInput:
        """Make the error about a member, or about the mapping as a whole."""
        line = self.line if member is None else self._mapping.lines.get(member, self.line)
        return self.place.refused(kind, text, line)

    def __contains__(self, member: str) -> bool:
        """Tell whether the member is there, whatever it holds."""
        return member in self._mapping

    def value(self, member: str) -> object:
        return self._mapping.get(member)

    def unknown(self, known: frozenset[str]) -> tuple[str, ...]:
        return tuple(name for name in self._mapping if name not in known)

    def text(self, member: str) -> str | None:
        """Read a scalar as text; what is absent, empty, zero or false is None."""
        value = self._mapping.get(member)
        if not value:
            return None
        if not isinstance(value, _SCALARS):
            raise self.refused("not_text", f"{member} must be text", member)
        return str(value)

    def texts(self, member: str) -> tuple[str, ...]:
        """Read a list of text; absent and null are empty."""
        value = self._mapping.get(member)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.refused("not_a_list_of_text", f"{member} must be a list of text", member)
        return tuple(value)

    def integer(self, member: str, default: int) -> int:
        """Read an integer; text and booleans are none."""
        if member not in self._mapping:
            return default
        value = self._mapping[member]
        if not isinstance(value, int) or isinstance(value, bool):
            text = f"{member} must be an integer, not {shown(value)}"
            raise self.refused("not_an_integer", text, member)
        return value

    def choice(self, member: str, default: _Choice) -> _Choice:
        """Read one word of the default's enum."""
        if member not in self._mapping:
            return default
        value = self._mapping[member]
        try:
            return type(default)(str(value))
        except ValueError:
            words = ", ".join(type(default))
            text = f"{member} must be one of {words}, not {shown(value)}"
            raise self.refused("enum_value", text, member) from None


def shown(value: object) -> str:
    """Show a value of unknown size and kind in an error text."""
    text = repr(value) if isinstance(value, _SCALARS) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:60]}…"
