"""How each agent and library is told to use a lane: variables, and where those do not do, a file.

The agents' own keys are dummies: the real one is added by the proxy. Rules: docs/agents.md.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bernstein_formats.canonical import JsonValue, spelled

# Where a lane is, for whatever the agent starts itself.
LANE_VARIABLE: Final = "BERNSTEIN_LANE"
DUMMY_KEY: Final = "recorded-by-bernstein"
LOOPBACK: Final = "127.0.0.1"
CODEX_PROVIDER: Final = "rec"
_CLAUDE: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # Their ends come in an order that no replay repeats.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_MAX_RETRIES": "0",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Variables, further arguments of the command, and notes on what else is needed."""

    variables: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def with_lane(self, base: str) -> "Settings":
        """The same with the lane's address, which the agent's tool servers take."""
        return replace(self, variables={**self.variables, LANE_VARIABLE: base})

    def lines(self) -> list[str]:
        """Text that a shell can source; what it must not run is a comment."""
        lines = [f"export {name}={shlex.quote(text)}" for name, text in self.variables.items()]
        if self.arguments:
            lines.append(f"# add to the command: {shlex.join(self.arguments)}")
        return lines + [f"# {note}" for note in self.notes]


def _anthropic(base: str) -> Settings:
    return Settings({"ANTHROPIC_BASE_URL": f"{base}/anthropic", "ANTHROPIC_API_KEY": DUMMY_KEY})


def _openai(base: str) -> Settings:
    return Settings({"OPENAI_BASE_URL": f"{base}/openai/v1", "OPENAI_API_KEY": DUMMY_KEY})


def _claude(base: str) -> Settings:
    return Settings({**_anthropic(base).variables, **_CLAUDE})


def codex_provider(base: str) -> dict[str, JsonValue]:
    """Members of the table `model_providers.rec` of its configuration, whatever form it is in."""
    return {
        "name": CODEX_PROVIDER,
        "base_url": f"{base}/openai/v1",
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }


def _codex(base: str) -> Settings:
    members: dict[str, JsonValue] = {**codex_provider(base), "env_key": "OPENAI_API_KEY"}
    table = ",".join(f"{name}={spelled(value)}" for name, value in members.items())
    return Settings(
        {"OPENAI_API_KEY": DUMMY_KEY},
        (
            *("-c", f"model_provider={CODEX_PROVIDER}"),
            *("-c", f"model_providers.{CODEX_PROVIDER}={{{table}}}"),
        ),
        ("codex ignores OPENAI_BASE_URL, so that it needs these arguments",),
    )


def _google(base: str) -> Settings:
    return Settings({"GOOGLE_GEMINI_BASE_URL": f"{base}/gemini", "GEMINI_API_KEY": DUMMY_KEY})


def _gemini(base: str) -> Settings:
    chosen: JsonValue = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
    }
    return Settings(
        {**_google(base).variables, "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        (),
        (f"put into ~/.gemini/settings.json: {spelled(chosen)}",),
    )


def _qwen(base: str) -> Settings:
    return Settings(
        _openai(base).variables, ("--auth-type", "openai"), ("set OPENAI_MODEL to your model",)
    )


def _aider(base: str) -> Settings:
    variables = {
        "OPENAI_API_BASE": f"{base}/openai/v1",
        "OPENAI_API_KEY": DUMMY_KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Settings(
        variables,
        ("--analytics-disable", "--no-check-update"),
        ("name the model as --model openai/NAME",),
    )


def _opencode(base: str) -> Settings:
    places = {"anthropic": "anthropic/v1", "google": "gemini/v1beta", "openai": "openai/v1"}
    config: JsonValue = {
        "provider": {
            name: {"options": {"baseURL": f"{base}/{place}", "apiKey": DUMMY_KEY}}
            for name, place in places.items()
        }
    }
    variables = {
        "OPENCODE_CONFIG_CONTENT": spelled(config),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    return Settings(variables)


CLIENTS: Final[Mapping[str, Callable[[str], Settings]]] = {
    "aider": _aider,
    "anthropic": _anthropic,
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "google-genai": _google,
    "openai": _openai,
    "opencode": _opencode,
    "qwen": _qwen,
}


def for_command(
    command: Sequence[str], base: str, environ: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], dict[str, str]]:
    """A command as it is run, and its environment: a known agent gets what it needs besides."""
    known = CLIENTS.get(Path(command[0]).name)
    settings = known(base) if known else Settings({})
    variables = {**environ, **settings_for_any(base, environ), **settings.variables}
    return (command[0], *settings.arguments, *command[1:]), variables


def settings_for_any(base: str, environ: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Variables for a command of unknown kind: all that do not contradict one another."""
    return {
        **_claude(base).variables,
        **_openai(base).variables,
        **_gemini(base).variables,
        "OPENAI_API_BASE": f"{base}/openai/v1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        LANE_VARIABLE: base,
        **past_proxies(environ),
    }


def past_proxies(environ: Mapping[str, str]) -> Mapping[str, str]:
    """A lane is on this machine, where no proxy of the surroundings leads."""
    return {
        name: ",".join(filter(None, (environ.get(name, ""), LOOPBACK)))
        for name in ("NO_PROXY", "no_proxy")
    }
