"""What a plan file says, as frozen values. Rules: docs/formats/plan-and-run.md, section 1."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_PRIORITY: Final = 2
DEFAULT_MINUTES: Final = 30
DEFAULT_ROLE: Final = "backend"
DEFAULT_TIMEOUT_SECONDS: Final = 600.0


class Scope(StrEnum):
    """How much a step touches."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class Complexity(StrEnum):
    """How hard a step is."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SignalType(StrEnum):
    """How a completion signal is checked."""

    PATH_EXISTS = "path_exists"
    GLOB_EXISTS = "glob_exists"
    TEST_PASSES = "test_passes"
    FILE_CONTAINS = "file_contains"
    LLM_REVIEW = "llm_review"
    LLM_JUDGE = "llm_judge"
    SCHEMA_VALID = "schema_valid"
    CRITERIA_MATCH = "criteria_match"
    HASH_STABLE = "hash_stable"
    FIGURES_GROUNDED = "figures_grounded"
    ABSENCE_VERIFIED = "absence_verified"


MODEL_SIGNALS: Final = frozenset((SignalType.LLM_JUDGE, SignalType.LLM_REVIEW))


@dataclass(frozen=True, slots=True)
class Signal:
    """A condition that must hold before a task counts as done."""

    type: SignalType
    value: str

    def text(self) -> str:
        """Return the form that a `failed_signals` member has."""
        return f"{self.type.value}: {self.value}"


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """A program that does a step: our own member `agent`, which the peer ignores."""

    command: tuple[str, ...]
    working_folder: str = "."
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One task as the plan describes it; `line` is where it begins, counted from 1."""

    title: str
    description: str
    line: int
    role: str = DEFAULT_ROLE
    priority: int = DEFAULT_PRIORITY
    scope: Scope = Scope.MEDIUM
    complexity: Complexity = Complexity.MEDIUM
    estimated_minutes: int = DEFAULT_MINUTES
    files: tuple[str, ...] = ()
    signals: tuple[Signal, ...] = ()
    cli: str | None = None
    model: str | None = None
    mode: str | None = None
    agent: CommandAgent | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A group of steps that waits for other groups."""

    name: str
    depends_on: tuple[str, ...]
    steps: tuple[Step, ...]
    line: int


@dataclass(frozen=True, slots=True)
class PlanWarning:
    """What is read and has no effect; `member` is empty when a value, not a member, is meant."""

    path: str
    member: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan file; `digest` is the SHA-256 of its bytes, hex."""

    source: str
    digest: str
    name: str
    description: str
    stages: tuple[Stage, ...]
    constraints: tuple[str, ...]
    context_files: tuple[str, ...]
    cli: str | None
    budget: str | None
    max_agents: int | None
    warnings: tuple[PlanWarning, ...]

    def unknown_members(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.path, each.member) for each in self.warnings if each.member)
