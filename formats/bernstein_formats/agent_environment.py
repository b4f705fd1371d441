"""What an agent saw of its surroundings when it was recorded: the environment manifest.

Rules: docs/formats/llm-http.md, section 9.
"""

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

from bernstein_formats.canonical import JsonValue, parse_json_unique, spelled
from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.http_exchange import Body

EVENT: Final = "agent_environment"
VERSION: Final = 1
# Values of these are kept and set again; of other variables at most the name.
KEPT_VARIABLES: Final = frozenset(
    {
        *("LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC"),
        *("LC_TIME", "TZ", "TERM", "COLORTERM", "NO_COLOR", "SHELL", "EDITOR", "PAGER", "CI"),
        *("USER", "LOGNAME", "ANTHROPIC_MODEL", "OPENAI_MODEL", "GEMINI_MODEL"),
    }
)
# What clients of these makers read: that one was set may matter, its value may be a secret.
_NAMED_VARIABLE = re.compile(
    r"(?:ANTHROPIC|CLAUDE|OPENAI|CODEX|GEMINI|GOOGLE|QWEN|OPENCODE|AIDER|LITELLM|MCP)_"
)
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|passphrase|auth|credential|cookie|bearer", re.IGNORECASE
)
# How keys of well-known makers begin.
_SECRET_TEXT = re.compile(
    r"\b(?:sk-|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|hf_|npm_|pypi-|eyJ)[\w-]{8}"
    r"|Bearer |://[^/@\s:]+:[^/@\s]+@"
)
# A shorter value of a variable appears in a command by chance.
_TELLING_CHARACTERS: Final = 8


class Kind(StrEnum):
    """What a changed path of a work tree is."""

    FILE = "file"
    PROGRAM = "program"
    LINK = "link"
    # It was there in the commit.
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs from the commit; its `size` bytes stand in the contents, in order."""

    path: str
    kind: Kind
    size: int


@dataclass(frozen=True, slots=True)
class WorkTree:
    """The files around an agent: a commit and what differed from it, or all of a plain folder.

    `is_kept` is false where there was too much to keep.
    """

    folder: str
    commit: str
    branch: str
    changes: tuple[Change, ...]
    contents: Body
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Environment:
    """The manifest. An argument of the command that looks like a secret is None."""

    command: tuple[str | None, ...]
    program_sha256: str
    version: str
    folder: str
    home: str
    zone: str
    kernel: str
    # When the agent started, in seconds since 1970; the day that it was there.
    instant: int
    day: str
    variables: Mapping[str, str | None]
    settings: Mapping[str, str]
    work_tree: WorkTree

    def to_bytes(self) -> bytes:
        tree = self.work_tree
        changes: list[JsonValue] = [[c.path, c.kind.value, c.size] for c in tree.changes]
        members: dict[str, JsonValue] = {
            "v": VERSION,
            "command": list(self.command),
            "program_sha256": self.program_sha256,
            "version": self.version,
            "folder": self.folder,
            "home": self.home,
            "zone": self.zone,
            "kernel": self.kernel,
            "instant": self.instant,
            "day": self.day,
            "variables": dict(self.variables),
            "settings": dict(self.settings),
            "work_tree": {
                "folder": tree.folder,
                "commit": tree.commit,
                "branch": tree.branch,
                "changes": changes,
                "contents_sha256": tree.contents.sha256_hex,
                "contents_bytes": tree.contents.size,
                "kept": tree.is_kept,
            },
        }
        return spelled(members).encode() + b"\n"

    @property
    def stored_command(self) -> tuple[str, ...] | None:
        """The command; None where a part of it was withheld, or none is known."""
        known = tuple(each for each in self.command if each is not None)
        return known if known and len(known) == len(self.command) else None


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that is not as it was; `texts` are how the recorded one may stand in a request."""

    name: str
    recorded: str
    today: str
    texts: tuple[str, ...] = ()

    def text(self) -> str:
        return f"{self.name} (recorded {self.recorded or 'none'}, today {self.today or 'none'})"

    def stands_in(self, requests: Iterable[bytes]) -> bool:
        """Whether a recorded request shows it: then it is certain to matter."""
        return any(each.encode() in request for request in requests for each in self.texts)


def parse_environment(data: bytes) -> Environment:
    """Read a manifest. Raises RowMalformed."""
    try:
        return _environment(parse_json_unique(data))
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        what = f"no member {error}" if isinstance(error, KeyError) else str(error)
        raise RowMalformed(
            f"the recorded environment cannot be read: {what}; restore the run's folder"
        ) from error


def kept_variables(environ: Mapping[str, str]) -> dict[str, str | None]:
    """What of an environment's variables is written down."""
    return {
        name: text if name in KEPT_VARIABLES else None
        for name, text in sorted(environ.items())
        if name in KEPT_VARIABLES or _NAMED_VARIABLE.match(name)
    }


def open_command(command: Sequence[str], environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """The command without arguments that look like secrets, or hold one of the environment."""
    secrets = [
        text
        for name, text in environ.items()
        if _SECRET_NAME.search(name) and len(text) >= _TELLING_CHARACTERS
    ]
    return tuple(
        None if _is_secret(before, each, secrets) else each
        for before, each in zip(("", *command), command, strict=False)
    )


def differences(recorded: Environment, today: Environment) -> Iterator[Difference]:
    """What is not as it was and that no replay can set: the most telling first."""
    if recorded.day != today.day:
        yield Difference("date", recorded.day, today.day, day_texts(recorded.day))
    if recorded.version != today.version:
        yield Difference("version", recorded.version, today.version, _one(recorded.version))
    elif recorded.program_sha256 != today.program_sha256:
        yield Difference("program", recorded.program_sha256[:16], today.program_sha256[:16])
    if recorded.kernel != today.kernel:
        yield Difference("kernel", recorded.kernel, today.kernel, _one(recorded.kernel))
    for name in sorted({*recorded.settings, *today.settings}):
        was, now = recorded.settings.get(name, ""), today.settings.get(name, "")
        if was != now:
            yield Difference(f"settings {name}", was[:16], now[:16])
    for name in sorted({*recorded.variables, *today.variables}):
        if name not in KEPT_VARIABLES and (name in recorded.variables) != (name in today.variables):
            was, now = ("set" if name in each.variables else "" for each in (recorded, today))
            yield Difference(f"variable {name}", was, now)


def day_texts(day: str) -> tuple[str, ...]:
    """How clients and locales write a day, given as YYYY-MM-DD."""
    try:
        found = date.fromisoformat(day)
    except ValueError:
        return ()
    y, m, d = found.year, found.month, found.day
    long, short = calendar.month_name[m], calendar.month_abbr[m]
    return (
        *(f"{y}-{m:02}-{d:02}", f"{y}/{m:02}/{d:02}", f"{m}/{d}/{y}", f"{m:02}/{d:02}/{y}"),
        *(f"{d:02}/{m:02}/{y}", f"{d:02}.{m:02}.{y}", f"{d}.{m}.{y}"),
        *(f"{name} {number} {y}" for name in (long, short) for number in (d, f"{d:02}")),
        *(f"{name} {d}, {y}" for name in (long, short)),
        *(f"{number} {name} {y}" for name in (long, short) for number in (d, f"{d:02}")),
    )


def _one(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _is_secret(before: str, argument: str, secrets: Sequence[str]) -> bool:
    option = argument.partition("=")[0] if argument.startswith("-") else ""
    if before.startswith("-") and "=" not in before and not option and _SECRET_NAME.search(before):
        return True
    return bool(
        ("=" in argument and _SECRET_NAME.search(argument.partition("=")[0]))
        or _SECRET_TEXT.search(argument)
        or any(each in argument for each in secrets)
    )


def _environment(row: JsonValue) -> Environment:
    if not isinstance(row, dict) or row.get("v") != VERSION:
        raise InvalidInput(f"it is no environment of version {VERSION}")
    command, tree, instant = row["command"], row["work_tree"], row["instant"]
    if not isinstance(command, list) or not all(isinstance(c, str | None) for c in command):
        raise InvalidInput("command is no list of texts")
    if not isinstance(tree, dict) or not isinstance(instant, int):
        raise InvalidInput("work_tree is no object, or instant no number")
    texts = {
        name: _text(row, name)
        for name in ("program_sha256", "version", "folder", "home", "zone", "kernel", "day")
    }
    return Environment(
        command=tuple(None if each is None else str(each) for each in command),
        instant=instant,
        variables={name: _optional(text) for name, text in _object(row, "variables").items()},
        settings={name: str(text) for name, text in _object(row, "settings").items()},
        work_tree=_work_tree(tree),
        **texts,
    )


def _work_tree(tree: dict[str, JsonValue]) -> WorkTree:
    size, changes = tree["contents_bytes"], tree["changes"]
    if not isinstance(size, int) or not isinstance(changes, list):
        raise InvalidInput("contents_bytes is no number, or changes no list")
    found = tuple(map(_change, changes))
    if sum(each.size for each in found) != size:
        raise InvalidInput("the sizes in changes do not add up to contents_bytes")
    return WorkTree(
        folder=_text(tree, "folder"),
        commit=_text(tree, "commit"),
        branch=_text(tree, "branch"),
        changes=found,
        contents=Body(_text(tree, "contents_sha256"), size),
        is_kept=tree["kept"] is True,
    )


def _change(value: JsonValue) -> Change:
    match value:
        case [str(path), str(kind), int(size)] if size >= 0:
            parts = path.split("/")
            if not path or path.startswith("/") or {"", ".", "..", ".git"} & set(parts):
                raise InvalidInput(f"changes names {path!r}, which leads out of the work tree")
            return Change(path, Kind(kind), size)
    raise InvalidInput("changes holds something that is no path, kind and size")


def _text(row: dict[str, JsonValue], name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is no text")
    return value


def _optional(value: JsonValue) -> str | None:
    return None if value is None else str(value)


def _object(row: dict[str, JsonValue], name: str) -> dict[str, JsonValue]:
    value = row[name]
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} is no object")
    return value
