"""The project's bernstein.yaml, as far as a plan run reads it.

Rules: docs/formats/plan-and-run.md, section 2; the provider is `none` unless the file names one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.plan_members import Members, Place
from bernstein_orchestrator.plan_reader import max_agents_of
from bernstein_orchestrator.yaml_document import (
    YamlMapping,
    parse_document,
    read_document_file,
)

CONFIG_FILE: Final = "bernstein.yaml"
NO_PROVIDER: Final = "none"
DEFAULT_MAX_AGENTS: Final = 6


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """The settings; `path` and `content` are None where there is no file."""

    path: Path | None = None
    content: bytes | None = None
    goal: str = ""
    provider: str = NO_PROVIDER
    model: str = ""
    judge_provider: str = ""
    judge_model: str = ""
    max_agents: int | None = None
    plugins: tuple[str, ...] = ()

    @property
    def has_provider(self) -> bool:
        return self.provider != NO_PROVIDER


def read_project(project: Path, config_path: Path | None = None) -> ProjectConfig:
    """Read bernstein.yaml of the project, or the file named; only the latter must be there."""
    path = config_path or project / CONFIG_FILE
    if config_path is None and not path.exists():
        return ProjectConfig()
    source = str(config_path or CONFIG_FILE)
    content = read_document_file(path, "configuration file", source)
    document = parse_document(content, source)
    if document is None:
        document = YamlMapping(1)
    if not isinstance(document, YamlMapping):
        raise InvalidInput(f"{source}: must be a mapping", kind="not_a_mapping", file=source)
    members = Members(document, Place(source))
    return ProjectConfig(
        path=path.absolute(),
        content=content,
        goal=members.text("goal") or "",
        provider=members.text("internal_llm_provider") or NO_PROVIDER,
        model=members.text("internal_llm_model") or "",
        judge_provider=members.text("judge_provider") or "",
        judge_model=members.text("judge_model") or "",
        max_agents=max_agents_of(members),
        plugins=members.texts("plugins"),
    )
