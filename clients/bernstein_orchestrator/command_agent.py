"""A step's member `agent`, which is ours alone: the program that does the step."""

from typing import Final

from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.paths import check_relative
from bernstein_orchestrator.plan import DEFAULT_TIMEOUT_SECONDS, CommandAgent
from bernstein_orchestrator.plan_members import Members, shown

AGENT_MEMBERS: Final = frozenset(("command", "working_folder", "timeout_seconds", "environment"))
_MAX_TIMEOUT_SECONDS: Final = 7 * 24 * 3600


def command_agent_of(members: Members) -> CommandAgent:
    """Read the mapping; InvalidInput names what is wrong."""
    command = members.value("command")
    if not isinstance(command, list) or not command:
        text = "agent.command must be a list: the program and its arguments"
        raise members.refused("agent", text, "command")
    if not all(isinstance(each, str) and "\0" not in each for each in command) or not command[0]:
        text = "agent.command must hold text only; quote numbers and booleans"
        raise members.refused("agent", text, "command")
    try:
        folder = check_relative(members.text("working_folder") or ".")
    except InvalidInput as error:
        raise members.refused("agent", error.message, "working_folder") from None
    return CommandAgent(
        command=tuple(command),
        working_folder=folder,
        timeout_seconds=_timeout_seconds(members),
        environment=_environment_names(members),
    )


def _timeout_seconds(members: Members) -> float:
    value = members.value("timeout_seconds")
    if value is None:
        return DEFAULT_TIMEOUT_SECONDS
    if isinstance(value, bool) or not isinstance(value, int | float):
        value = 0
    if not 0 < value <= _MAX_TIMEOUT_SECONDS:
        text = "agent.timeout_seconds must be a number of seconds above 0 and of at most a week"
        raise members.refused("agent", text, "timeout_seconds")
    return float(value)


def _environment_names(members: Members) -> tuple[str, ...]:
    names = members.texts("environment")
    for name in names:
        if not name.isidentifier():
            text = f"agent.environment lists names of variables; {shown(name)} is none"
            raise members.refused("agent", text, "environment")
        if name.upper().startswith("BERNSTEIN_"):
            text = f"{name} is never given to an agent; remove it from agent.environment"
            raise members.refused("agent", text, "environment")
    return names
