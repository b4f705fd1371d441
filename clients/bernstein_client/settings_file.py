"""What an agent's own settings file holds while it leads to a lane; bytes in, bytes out.

For agents whose starter passes on none of our variables. Rules: docs/agents.md.
"""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from bernstein_client.agent_settings import CLIENTS, CODEX_PROVIDER, codex_provider
from bernstein_formats.canonical import JsonValue, parse_json_unique, spelled
from bernstein_formats.errors import Conflict, InvalidInput

# Variables by which Claude Code talks to somebody else than a key's provider.
_CLAUDE_REDIRECTS: Final = (
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
)
_CODEX_HEAD: Final = f'model_provider = "{CODEX_PROVIDER}"\n'.encode()


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """An agent's settings file: its place below the user's home, and what is done to its bytes.

    `moved_by` is the variable that moves it for an agent that gets it.
    `redirected(before, base)` leads to the lane; None is no file. `taken_back(now, ours, before)`
    takes out of a file that was changed meanwhile what `ours` put into `before`. Both raise
    InvalidInput for a broken file, Conflict where it cannot be done.
    """

    place: str
    moved_by: str
    redirected: Callable[[bytes | None, str], bytes]
    taken_back: Callable[[bytes, bytes, bytes | None], bytes]


def _claude_redirected(before: bytes | None, base: str) -> bytes:
    members, variables = _claude_members(b"{}" if before is None else before)
    for name in _CLAUDE_REDIRECTS:
        if name in variables:
            raise Conflict(f"its member env has {name} already; take that out first", name=name)
    ours: Mapping[str, JsonValue] = dict(CLIENTS["claude"](base).with_lane(base).variables)
    return _json_bytes({**members, "env": {**variables, **ours}})


def _claude_taken_back(now: bytes, ours: bytes, before: bytes | None) -> bytes:
    members, variables = _claude_members(now)
    _, put_in = _claude_members(ours)
    _, old = _claude_members(b"{}" if before is None else before)
    unchanged = [name for name in put_in if variables.get(name) == put_in[name] != old.get(name)]
    if not unchanged:
        return now
    for name in unchanged:
        del variables[name]
        if name in old:
            variables[name] = old[name]
    rest = {name: value for name, value in members.items() if name != "env"}
    return _json_bytes({**rest, "env": variables} if variables else rest)


def _claude_members(data: bytes) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """All members, and those of `env`."""
    members = parse_json_unique(data)
    if not isinstance(members, dict):
        raise InvalidInput("it is no JSON object; mend it")
    variables = members.get("env", {})
    if not isinstance(variables, dict):
        raise InvalidInput("its member env is no JSON object; mend it")
    return members, dict(variables)


def _json_bytes(members: Mapping[str, JsonValue]) -> bytes:
    try:
        text = json.dumps(  # noqa: TID251 - no evidence, and people read it
            members, indent=2, ensure_ascii=False, allow_nan=False
        )
        return f"{text}\n".encode()
    except ValueError as error:
        raise InvalidInput(f"it holds what JSON cannot: {error}; mend it") from error


def _codex_redirected(before: bytes | None, base: str) -> bytes:
    old = before or b""
    members = _toml_members(old)
    providers = members.get("model_providers", {})
    for name, within in (("model_provider", members), (CODEX_PROVIDER, providers)):
        if name in within:
            raise Conflict(f"it has {name} already; take that out first", name=name)
    provider = codex_provider(base)
    lines = [f"[model_providers.{CODEX_PROVIDER}]"]
    lines += [f"{name} = {spelled(value)}" for name, value in provider.items()]
    ends = b"" if not old or old.endswith(b"\n") else b"\n"
    new = _CODEX_HEAD + old + ends + "".join(f"{line}\n" for line in lines).encode()
    wanted = {**members, "model_provider": CODEX_PROVIDER}
    wanted["model_providers"] = {**providers, CODEX_PROVIDER: provider}
    _check_same(new, wanted)
    return new


def _codex_taken_back(now: bytes, ours: bytes, before: bytes | None) -> bytes:
    table = ours[len(_CODEX_HEAD) + len(before or b"") :]
    members = _toml_members(now)
    put_in = _toml_members(ours)["model_providers"][CODEX_PROVIDER]
    providers = members.get("model_providers", {})
    if providers.get(CODEX_PROVIDER) != put_in:
        return now
    rest = now.replace(_CODEX_HEAD, b"", 1).replace(table, b"", 1)
    del providers[CODEX_PROVIDER]
    if members.get("model_provider") == CODEX_PROVIDER:
        del members["model_provider"]
    if not providers:
        del members["model_providers"]
    _check_same(rest, members)
    return rest


def _toml_members(data: bytes) -> dict[str, Any]:
    try:
        members = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is no TOML: {error}; mend it") from error
    if not isinstance(members.get("model_providers", {}), dict):
        raise InvalidInput("its model_providers is no table; mend it")
    return members


def _check_same(data: bytes, wanted: Mapping[str, Any]) -> None:
    """Our lines are text among the user's: see that they changed nothing else."""
    try:
        same = tomllib.loads(data.decode()) == wanted
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise Conflict(
            f"model_provider and the table model_providers.{CODEX_PROVIDER} cannot be told from"
            " the rest of it; edit these by hand"
        )


SETTINGS_FILES: Final[Mapping[str, SettingsFile]] = {
    "claude": SettingsFile(
        ".claude/settings.json", "CLAUDE_CONFIG_DIR", _claude_redirected, _claude_taken_back
    ),
    "codex": SettingsFile(".codex/config.toml", "CODEX_HOME", _codex_redirected, _codex_taken_back),
}
