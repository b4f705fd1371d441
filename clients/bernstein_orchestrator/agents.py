"""What does a task: an internal model call through the recorder, or a program."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bernstein_agent.run_lanes import OpenLane
from bernstein_client.agent_settings import for_command
from bernstein_client.recorder import Account
from bernstein_formats.errors import ProviderFailed
from bernstein_orchestrator.events import Endpoint
from bernstein_orchestrator.plan import CommandAgent
from bernstein_orchestrator.ports import Recorder
from bernstein_orchestrator.processes import (
    Ending,
    Finished,
    Groups,
    allowed_environment,
    run_program,
)
from bernstein_orchestrator.sidecars import VARIABLE, Observed, Sidecars
from bernstein_orchestrator.traffic import Traffic, Walls
from bernstein_orchestrator.workspace import Workspace

MODEL_CALL_FAILED: Final = "agent: the model did not answer"
# The peer's defaults, as the literal texts that the key of a recorded call is made of.
_TEMPERATURE: Final = "0.7"
_MAX_TOKENS: Final = "4000"


@dataclass(frozen=True, slots=True)
class Work:
    """What an attempt brought: a model's answer, or a failure as it is recorded.

    `detail` is for the user only: it may depend on time and machine. `observed` is what a
    program's wrapper saw its provider do.
    """

    answer: str | None = None
    failure: str = ""
    detail: str = ""
    left_processes: bool = False
    observed: Observed | None = None
    # Where its traffic went; open until its outcome is committed.
    lane: OpenLane | None = None


class ModelCalls:
    """Model calls of one recorder session."""

    def __init__(self, recorder: Recorder, session_id: str) -> None:
        """Call through an open session."""
        self._recorder = recorder
        self._session_id = session_id

    def ask(self, lane: str, endpoint: Endpoint, prompt: str) -> tuple[str, str]:
        """Return answer and warning; raises ProviderFailed, ReplayMissError and others."""
        answer = self._recorder.call(
            self._session_id,
            lane=lane,
            model=endpoint.model,
            provider=endpoint.provider or "",
            prompt=prompt,
            temperature=_TEMPERATURE,
            max_tokens=_MAX_TOKENS,
        )
        return answer.text, answer.warning

    def close(self) -> Account:
        """End the session; asked again it gives the same account."""
        return self._recorder.close_session(self._session_id)

    def work(self, lane: str, endpoint: Endpoint, prompt: str) -> Work:
        """Do a task by one call; a provider that fails is a failed attempt, not a failed run."""
        try:
            text, warning = self.ask(lane, endpoint, prompt)
        except ProviderFailed as error:
            return Work(failure=MODEL_CALL_FAILED, detail=error.message)
        return Work(answer=text, detail=warning)


class Programs:
    """Runs command agents and test commands in the workspace."""

    def __init__(
        self,
        workspace: Workspace,
        environment: Mapping[str, str],
        stop: threading.Event,
        *,
        sidecars: Sidecars | None = None,
        traffic: Traffic | None = None,
        walls: Walls | None = None,
    ) -> None:
        """Without `traffic` none of it is recorded; `walls` are for replays."""
        self._sidecars = sidecars
        self._traffic = traffic
        self._walls = walls
        self._top = workspace.top
        self._environment = environment
        self._stop = stop
        self._groups = Groups()

    def work(self, agent: CommandAgent, agent_id: str = "") -> Work:
        folder = (self._top / agent.working_folder).resolve()
        if not folder.is_relative_to(self._top):
            text = f"the working folder {agent.working_folder} leads out of the project"
            return Work(failure="agent: not started", detail=text)
        environment = allowed_environment(self._environment, agent.environment)
        sidecar = self._sidecars.begin(agent_id) if self._sidecars is not None else None
        if sidecar is not None:
            environment[VARIABLE] = str(sidecar)
        lane = self._traffic.open(agent_id) if self._traffic is not None else None
        sandbox = None
        if self._walls is not None:
            sandbox = self._walls.sandbox(folder, lane.base_url if lane else "", environment)
            environment = self._walls.environ(environment)
        command = agent.command
        if lane is not None:
            command, environment = for_command(command, lane.base_url, environment)
        finished = run_program(
            command,
            groups=self._groups,
            folder=folder,
            environment=environment,
            timeout_seconds=agent.timeout_seconds,
            stop=self._stop,
            sandbox=sandbox,
        )
        failure = _failure(finished, agent)
        detail = finished.tail if failure else ""
        return Work(
            failure=failure,
            detail=detail,
            left_processes=not finished.is_group_ended,
            observed=self._sidecars.observed(agent_id) if self._sidecars is not None else None,
            lane=lane,
        )

    def shell(self, command: str, timeout_seconds: float) -> Finished:
        """Run a shell command line, as the peer does for a test."""
        return run_program(
            ["sh", "-c", command],
            groups=self._groups,
            folder=self._top,
            environment=allowed_environment(self._environment),
            timeout_seconds=timeout_seconds,
            stop=self._stop,
        )

    def end(self) -> None:
        """Leave none behind: whoever calls this waits for nothing any more."""
        self._groups.end()
        if self._traffic is not None:
            self._traffic.leave()


def _failure(finished: Finished, agent: CommandAgent) -> str:
    if finished.is_good:
        return ""
    if finished.ending is Ending.TIMED_OUT:
        return f"agent: timed out after {agent.timeout_seconds:g} s"
    if finished.ending is Ending.EXITED:
        return f"agent: exit code {finished.exit_code}"
    return f"agent: {finished.ending.value}"
