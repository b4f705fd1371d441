"""Everything that can be refused is refused here, before a run has a folder or an agent starts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.events import Endpoint
from bernstein_orchestrator.extensions import (
    Skill,
    extension_set_members,
    find_plugins,
    find_skills,
)
from bernstein_orchestrator.options import RunOptions
from bernstein_orchestrator.plan import MODEL_SIGNALS, Plan
from bernstein_orchestrator.plan_graph import PlanGraph, Task, build_graph
from bernstein_orchestrator.plan_reader import MAX_AGENTS, parse_plan
from bernstein_orchestrator.project import DEFAULT_MAX_AGENTS, ProjectConfig, read_project
from bernstein_orchestrator.surroundings import Surroundings, look_around
from bernstein_orchestrator.yaml_document import read_document_file

COMMAND_ADAPTER: Final = "command"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that can be run here, and what it is run with; `judge` is None if nobody judges."""

    plan: Plan
    graph: PlanGraph
    config: ProjectConfig
    surroundings: Surroundings
    endpoints: dict[str, Endpoint]
    judge: Endpoint | None
    skills: dict[str, Skill]
    extension_set: dict[str, JsonValue]
    max_agents: int
    max_agents_from: str

    @property
    def uses_models(self) -> bool:
        return self.judge is not None or any(each.provider for each in self.endpoints.values())

    @property
    def command_tasks(self) -> tuple[Task, ...]:
        return tuple(task for task in self.graph.tasks if task.step.agent is not None)


def prepare(options: RunOptions, warn: Callable[[str], None]) -> Prepared:
    """Read and check plan and project; InvalidInput names what to change."""
    if not options.project.is_dir():
        raise InvalidInput(f"{options.project}: there is no such project folder")
    source = str(options.plan_path)
    plan = parse_plan(read_document_file(options.plan_path, "plan file", source), source)
    for warning in plan.warnings:
        warn(warning.text)
    graph = build_graph(plan)
    if not graph.tasks:
        raise InvalidInput(f"{source}: no stage has a step, so there is nothing to do")
    for path in plan.context_files:
        if not (options.project / path).is_file():
            warn(f"{source}: the context file {path} is not there yet")
    config = read_project(options.project, options.config_path)
    skills = find_skills(options.project)
    plugins = find_plugins(options.project, config.plugins)
    max_agents, max_agents_from = _max_agents(options, plan, config)
    return Prepared(
        plan=plan,
        graph=graph,
        config=config,
        surroundings=look_around(options.project, config.content),
        endpoints={task.task_id: _endpoint(task, plan, config, options) for task in graph.tasks},
        judge=_judge(graph, plan, config, options),
        skills={each.extension.name: each for each in skills if not each.extension.failure},
        extension_set=extension_set_members([*(each.extension for each in skills), *plugins]),
        max_agents=max_agents,
        max_agents_from=max_agents_from,
    )


def _max_agents(options: RunOptions, plan: Plan, config: ProjectConfig) -> tuple[int, str]:
    sources = (
        (options.max_agents, "the command line"),
        (plan.max_agents, "the plan"),
        (config.max_agents, "bernstein.yaml"),
        (DEFAULT_MAX_AGENTS, "the default"),
    )
    count, source = next((count, source) for count, source in sources if count is not None)
    if not 1 <= count <= MAX_AGENTS:
        raise InvalidInput(f"max_agents must be from 1 to {MAX_AGENTS}, not {count}")
    return count, source


def _endpoint(task: Task, plan: Plan, config: ProjectConfig, options: RunOptions) -> Endpoint:
    if task.step.agent is not None:
        return Endpoint(COMMAND_ADAPTER, COMMAND_ADAPTER, None)
    where = f"{plan.source}:{task.step.line}: step {task.step.title!r}"
    return _model_endpoint(where, config.provider, task.step.model or config.model, options)


def _judge(
    graph: PlanGraph, plan: Plan, config: ProjectConfig, options: RunOptions
) -> Endpoint | None:
    """Find who judges; `judge_provider` and `judge_model` go before the internal ones."""
    for task in graph.tasks:
        asked = [each for each in task.step.signals if each.type in MODEL_SIGNALS]
        if asked:
            signal = asked[0].type.value
            where = f"{plan.source}:{task.step.line}: the {signal} of step {task.step.title!r}"
            provider = config.judge_provider or config.provider
            return _model_endpoint(where, provider, config.judge_model or config.model, options)
    return None


def _model_endpoint(where: str, provider: str, model: str, options: RunOptions) -> Endpoint:
    if provider == "none":
        raise InvalidInput(
            f"{where} needs a model and internal_llm_provider is none; set internal_llm_provider"
            " and internal_llm_model in bernstein.yaml, or give the step"
            " agent: {command: [program, argument]}",
            kind="provider_none",
        )
    if not model:
        text = f"{where} has no model; set internal_llm_model in bernstein.yaml"
        raise InvalidInput(text, kind="model_missing")
    base_urls = {each.name: each.base_url for each in options.providers}
    may_dial = not options.replay_run_id or options.allow_live_miss
    if may_dial and provider not in base_urls:
        known = ", ".join(base_urls) or "none"
        raise InvalidInput(
            f"{where} needs the provider {provider!r}, for which the environment has no address"
            f" and key (it has: {known}); set them, or change internal_llm_provider",
            kind="provider_unknown",
        )
    return Endpoint(provider, model, provider, public_url(base_urls.get(provider, "")))


def public_url(url: str) -> str:
    """Leave user, password, query and fragment out: no key may come into a row."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{host}:{port}" if port else host, parts.path, "", ""))
