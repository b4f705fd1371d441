"""A plan file's bytes to a Plan, by the peer's loader rules and with its kinds of error.

Rules: docs/formats/plan-and-run.md, sections 1.2 to 1.8.
"""

from dataclasses import replace
from hashlib import sha256
from typing import Final

from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.command_agent import AGENT_MEMBERS, command_agent_of
from bernstein_orchestrator.paths import check_relative
from bernstein_orchestrator.plan import (
    DEFAULT_MINUTES,
    DEFAULT_PRIORITY,
    DEFAULT_ROLE,
    CommandAgent,
    Complexity,
    Plan,
    PlanWarning,
    Scope,
    Signal,
    Stage,
    Step,
)
from bernstein_orchestrator.plan_members import Members, Place, shown
from bernstein_orchestrator.signal_members import SIGNAL_MEMBERS, signal_of
from bernstein_orchestrator.yaml_document import YamlMapping, parse_document

MAX_SIGNALS: Final = 100
MAX_AGENTS: Final = 128
_PHASES: Final = frozenset(("research", "plan", "implement", "verify"))

_PLAN_MEMBERS: Final = frozenset((
    "name", "description", "stages", "constraints", "context_files", "cli", "budget",
    "max_agents", "repos",
))  # fmt: skip
_STAGE_MEMBERS: Final = frozenset(("name", "description", "depends_on", "repo", "steps"))
_STEP_MEMBERS: Final = frozenset((
    "title", "goal", "description", "role", "priority", "scope", "complexity",
    "estimated_minutes", "files", "attachments", "cli", "model", "effort", "mode", "repo",
    "depends_on_repo", "completion_signals", "artifact_spec", "phases", "agent",
))  # fmt: skip
# Read, as in the peer, and without effect on what we run.
_IDLE_STEP_MEMBERS: Final = ("attachments", "effort", "mode", "repo", "depends_on_repo", "phases")


def parse_plan(data: bytes, source: str) -> Plan:
    """Parse a plan file; InvalidInput names kind, file, line, stage and step."""
    document = parse_document(data, source)
    if not isinstance(document, YamlMapping):
        raise Place(source).refused("not_a_mapping", "a plan is a mapping with stages", 1)
    return _Reader(source).plan(Members(document, Place(source)), sha256(data).hexdigest())


class _Reader:
    """One plan being read; keeps the warnings."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._warnings: list[PlanWarning] = []

    def plan(self, members: Members, digest: str) -> Plan:
        self._warn_unknown(members, _PLAN_MEMBERS)
        entries = self._stage_entries(members)
        for name in ("budget", "cli", "repos"):
            if members.value(name):
                self._warn(members, f"{name} of a plan has no effect here, as in the peer")
        budget = members.value("budget")
        return Plan(
            source=self._source,
            digest=digest,
            name=members.text("name") or "",
            description=members.text("description") or "",
            stages=tuple(self._stage(index, entry) for index, entry in enumerate(entries)),
            constraints=members.texts("constraints"),
            context_files=self._paths(members, "context_files"),
            cli=members.text("cli"),
            budget=None if budget is None else str(budget),
            max_agents=max_agents_of(members),
            warnings=tuple(self._warnings),
        )

    def _stage_entries(self, members: Members) -> list[object]:
        stages = members.value("stages")
        if not stages and ("goal" in members or "model" in members):
            text = "this looks like a bernstein.yaml, not a plan: it has no stages"
            raise members.refused("seed_shaped_file", text)
        if not stages:
            raise members.refused("stages_missing_or_empty", "a plan needs at least one stage")
        if not isinstance(stages, list):
            raise members.refused("stage_not_a_mapping", "stages must be a list", "stages")
        return stages

    def _stage(self, index: int, entry: object) -> Stage:
        path = f"stages[{index}]"
        if not isinstance(entry, YamlMapping):
            text = f"stage {index} must be a mapping, not {shown(entry)}"
            raise Place(self._source, path).refused("stage_not_a_mapping", text, None)
        name = Members(entry, Place(self._source, path)).text("name")
        if name is None:
            text = f"stage {index} has no name"
            raise Place(self._source, path).refused("stage_name_missing", text, entry.line)
        members = Members(entry, Place(self._source, path, name))
        self._warn_unknown(members, _STAGE_MEMBERS)
        steps = members.value("steps") or []
        if not isinstance(steps, list):
            raise members.refused("step_not_a_mapping", "steps must be a list", "steps")
        if not steps:
            self._warn(members, f"stage {name!r} has no steps")
        return Stage(
            name=name,
            depends_on=members.texts("depends_on"),
            steps=tuple(self._step(path, name, number, each) for number, each in enumerate(steps)),
            line=entry.line,
        )

    def _step(self, stage_path: str, stage: str, index: int, entry: object) -> Step:
        place = Place(self._source, f"{stage_path}.steps[{index}]", stage, index)
        if not isinstance(entry, YamlMapping):
            text = f"a step must be a mapping, not {shown(entry)}"
            raise place.refused("step_not_a_mapping", text, None)
        members = Members(entry, place)
        title = members.text("title") or members.text("goal")
        if title is None:
            raise members.refused("step_title_missing", "it has no title")
        self._warn_unknown(members, _STEP_MEMBERS)
        self._check_idle(members)
        signals = self._signals(members)
        _check_artifact(members)
        return Step(
            title=title,
            description=members.text("description") or title,
            line=entry.line,
            role=members.text("role") or DEFAULT_ROLE,
            priority=members.integer("priority", DEFAULT_PRIORITY),
            scope=members.choice("scope", Scope.MEDIUM),
            complexity=members.choice("complexity", Complexity.MEDIUM),
            estimated_minutes=members.integer("estimated_minutes", DEFAULT_MINUTES),
            files=self._paths(members, "files"),
            signals=signals,
            cli=members.text("cli"),
            model=members.text("model"),
            mode=members.text("mode"),
            agent=self._agent(members),
        )

    def _check_idle(self, members: Members) -> None:
        members.texts("attachments")
        phases = members.texts("phases")
        if not _PHASES.issuperset(phases):
            words = ", ".join(sorted(_PHASES))
            raise members.refused("phases", f"phases must be of {words}", "phases")
        for name in _IDLE_STEP_MEMBERS:
            if members.value(name):
                self._warn(members, f"{name} of a step has no effect here")
        if members.value("cli") and "agent" not in members:
            self._warn(
                members,
                "cli names a program whose own model traffic is not recorded yet, so the step is"
                " done by an internal model call; give it agent: {command: [...]} to run a program",
            )

    def _signals(self, members: Members) -> tuple[Signal, ...]:
        if "completion_signals" not in members:
            return ()
        name = "completion_signals"
        entries = members.value(name)
        if not isinstance(entries, list):
            raise members.refused("signals_not_a_list", f"{name} must be a list", name)
        if len(entries) > MAX_SIGNALS:
            text = f"{name} may have at most {MAX_SIGNALS} entries"
            raise members.refused("too_many_signals", text, name)
        return tuple(self._signal(members, index, each) for index, each in enumerate(entries))

    def _signal(self, step: Members, index: int, entry: object) -> Signal:
        if not isinstance(entry, YamlMapping):
            text = f"completion signal {index} must be a mapping"
            raise step.refused("signal_not_a_mapping", text, "completion_signals")
        path = f"{step.place.path}.completion_signals[{index}]"
        members = Members(entry, replace(step.place, path=path))
        self._warn_unknown(members, SIGNAL_MEMBERS)
        return signal_of(members, index)

    def _paths(self, members: Members, name: str) -> tuple[str, ...]:
        try:
            return tuple(check_relative(path) for path in members.texts(name))
        except InvalidInput as error:
            if error.metadata.get("kind") != "path_refused":
                raise
            raise members.refused("path_refused", f"{name}: {error.message}", name) from None

    def _agent(self, step: Members) -> CommandAgent | None:
        if "agent" not in step:
            return None
        entry = step.value("agent")
        if not isinstance(entry, YamlMapping):
            raise step.refused("agent", "agent must be a mapping with a command", "agent")
        place = step.place
        members = Members(
            entry, Place(place.source, f"{place.path}.agent", place.stage, place.step)
        )
        self._warn_unknown(members, AGENT_MEMBERS)
        return command_agent_of(members)

    def _warn(self, members: Members, text: str, member: str = "") -> None:
        where = f"{self._source}:{members.line}"
        if members.place.step is not None:
            where += f": step {members.place.step} of stage {members.place.stage!r}"
        self._warnings.append(PlanWarning(members.place.path, member, f"{where}: {text}"))

    def _warn_unknown(self, members: Members, known: frozenset[str]) -> None:
        for name in members.unknown(known):
            hint = ""
            if name == "depends_on" and members.place.step is not None:
                hint = "; only stages have depends_on"
            self._warn(members, f"unknown member {name!r} is ignored{hint}", name)


def max_agents_of(members: Members) -> int | None:
    """Read `max_agents` of a plan or a bernstein.yaml: a whole number, also as text."""
    value = members.value("max_agents")
    if value is None:
        return None
    try:
        count = 0 if isinstance(value, bool | float) else int(str(value))
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_AGENTS:
        text = f"max_agents must be a whole number from 1 to {MAX_AGENTS}, not {shown(value)}"
        raise members.refused("not_an_integer", text, "max_agents")
    return count


def _check_artifact(members: Members) -> None:
    """Take the default contract only: nothing here would check another one."""
    if "artifact_spec" not in members:
        return
    spec = members.value("artifact_spec")
    if not isinstance(spec, YamlMapping) or spec.get("kind") != "code_diff" or len(spec) > 1:
        text = (
            "artifact_spec is supported as {kind: code_diff} only; remove it, or run this plan"
            " with a program that checks artifact contracts"
        )
        raise members.refused("artifact_spec", text, "artifact_spec")
