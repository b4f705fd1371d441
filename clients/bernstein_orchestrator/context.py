"""Context files as an attempt sees them, and in a replay as the recorded attempt saw them.

A recorded run may have changed the very files that it was given. A replay therefore takes, of what
it wrote itself, what the project has today and what the recorded commit had, the content whose
digest was recorded.
"""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Final, Protocol

from bernstein_orchestrator.events import Attachment
from bernstein_orchestrator.prompt import ContextFile
from bernstein_orchestrator.surroundings import git_output
from bernstein_orchestrator.workspace import Workspace

MISSING: Final = "missing"


class Context(Protocol):
    """Where the content of context files comes from."""

    def file(self, agent_id: str, path: str) -> ContextFile:
        """Return the file as this attempt is to see it."""
        ...


class LiveContext:
    """Reads context files as they are now."""

    def __init__(self, workspace: Workspace) -> None:
        """Read from a workspace."""
        self._workspace = workspace

    def file(self, agent_id: str, path: str) -> ContextFile:
        return ContextFile(path, self._workspace.read(path))


class RecordedContext:
    """Finds the content that a recorded attempt was given; `warn` hears where it is lost."""

    def __init__(
        self,
        workspace: Workspace,
        git_sha: str,
        recorded: Mapping[str, Mapping[str, str]],
        warn: Callable[[str], None],
    ) -> None:
        """Follow recorded digests by agent and path; an empty digest stands for no file."""
        self._workspace = workspace
        self._git_sha = git_sha
        self._recorded = recorded
        self._warn = warn

    def file(self, agent_id: str, path: str) -> ContextFile:
        wanted = self._recorded.get(agent_id, {}).get(path)
        if wanted is None:
            return ContextFile(path, self._workspace.read(path))
        if not wanted:
            return ContextFile(path, None)
        for content in self._candidates(path):
            if digest_of(content) == wanted:
                return ContextFile(path, content)
        self._warn(f"context file {path} is not what {agent_id} was given when it was recorded")
        return ContextFile(path, self._workspace.read(path))

    def _candidates(self, path: str) -> Iterator[bytes]:
        today = self._workspace.read(path)
        if today is not None:
            yield today
        if self._git_sha:
            name = f"{self._git_sha}:./{path}"
            yield git_output(self._workspace.project, "show", "--end-of-options", name)


def attachment_of(file: ContextFile) -> Attachment:
    if file.content is None:
        return Attachment(file.path, "", MISSING)
    return Attachment(file.path, digest_of(file.content))


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"
