"""Finds an installed peer and hands a command line over to it.

The peer is the PyPI distribution `bernstein`, whose command has our name and some two hundred verbs
that are not ours. It is only ever started as a program: nothing of it is imported here.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn, TypedDict

from bernstein_cli.output import remark
from bernstein_formats.errors import InvalidInput

EXIT_NOT_OURS = 64

PEER_VARIABLE = "BERNSTEIN_SVC_PEER"
# How often this command line was handed over already. Two installs of ours may take each other for
# the peer, also through a wrapper script, so a count serves where a process id would not. A peer
# that runs agents that call `bernstein` nests honestly, but never this deep.
HOPS_VARIABLE = "BERNSTEIN_SVC_PEER_HOPS"
MAX_HOPS = 8

_COMMAND = "bernstein"
_PACKAGE = "the PyPI package bernstein"
_ADVICE = (
    f"install {_PACKAGE} into an environment of its own and set {PEER_VARIABLE} to its command"
)
_OUR_PACKAGE = b"bernstein_cli"
_SCRIPT_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class PeerCommand:
    """The peer's executable, and where it was found, in words for the user."""

    path: Path
    found: str


def find_peer(environ: Mapping[str, str]) -> PeerCommand | None:
    """Find the peer: where the variable says, else beside our interpreter, else on PATH.

    A variable that names no usable executable is refused (`InvalidInput`): whoever set it wants
    that peer and no other.
    """
    if named := environ.get(PEER_VARIABLE):
        return _named_peer(Path(named))
    beside = Path(sys.executable).parent / _COMMAND
    if _is_peer(beside):
        return PeerCommand(beside, "beside the Python interpreter")
    for folder in environ.get("PATH", "").split(os.pathsep):
        on_path = Path(folder) / _COMMAND
        # An entry that is not absolute would let the folder that a user stands in choose.
        if on_path.is_absolute() and _is_peer(on_path):
            return PeerCommand(on_path, "on PATH")
    return None


def hand_over(argv: Sequence[str], *, wanted: str, environ: Mapping[str, str]) -> NoReturn:
    """Become the peer with these arguments; exit code, terminal and signals are then its own.

    `wanted` is the verb or option that we lack, for the one line that is printed (exit 64) when
    there is no peer to become.
    """
    hops = _hops(environ)
    if hops >= MAX_HOPS:
        _refuse(f"{wanted} was handed over {hops} times and never reached {_PACKAGE}; {_ADVICE}")
    try:
        peer = find_peer(environ)
    except InvalidInput as refused:
        _refuse(f"{wanted} is not part of this distribution, and {refused.message}")
    if peer is None:
        _refuse(f"{wanted} is not part of this distribution but of {_PACKAGE}; {_ADVICE}")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(  # noqa: S606 - no shell is the point; the arguments arrive as they were typed
            peer.path, [str(peer.path), *argv], {**environ, HOPS_VARIABLE: str(hops + 1)}
        )
    except OSError as failed:
        why = failed.strerror
        _refuse(f"{wanted} is for {peer.path}, which does not start ({why}); {_ADVICE}")


def knows_peer(words: Sequence[str], option: str | None = None) -> bool:
    """Tell whether the peer has this command (its words, outermost first), or this option of it.

    Arguments must not be among the words; the first one may be, where the peer reads it as a verb
    or where its group has a default command.
    """
    tree = _tree()
    commands = tree["commands"]
    path = ""
    for word in _unaliased(words):
        child = f"{path} {word}".lstrip()
        if child not in commands:
            if "default" not in commands[path] and word not in tree["verbs"].get(path, ()):
                return False
            break
        path = child
    if option is None or option in commands[path]["options"]:
        return True
    default = commands[path].get("default")
    return default is not None and option in commands[f"{path} {default}"]["options"]


def peer_alias(word: str) -> str | None:
    """Give what one of the peer's short words stands for: a command, perhaps with an option."""
    return _tree()["aliases"].get(word)


def peer_version() -> str:
    """Give the release of the peer whose command tree is known here."""
    return _tree()["version"]


class _Command(TypedDict, total=False):
    hidden: bool
    default: str
    options: dict[str, str]


class _Tree(TypedDict):
    version: str
    aliases: dict[str, str]
    verbs: dict[str, list[str]]
    commands: dict[str, _Command]


@cache
def _tree() -> _Tree:
    tree: _Tree = json.loads(Path(__file__).with_name("peer_commands.json").read_bytes())
    return tree


def _unaliased(words: Sequence[str]) -> list[str]:
    """Put what a short first word stands for in its place, without the option it brings along."""
    stands_for = peer_alias(words[0]) if words else None
    return [stands_for.split()[0], *words[1:]] if stands_for else list(words)


def _named_peer(path: Path) -> PeerCommand:
    if not _is_executable(path):
        raise InvalidInput(f"{PEER_VARIABLE} names {path}, which is no executable file; {_ADVICE}")
    if _is_ours(path):
        raise InvalidInput(f"{PEER_VARIABLE} names {path}, which is this distribution; {_ADVICE}")
    return PeerCommand(path, PEER_VARIABLE)


def _is_peer(path: Path) -> bool:
    return _is_executable(path) and not _is_ours(path)


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _is_ours(path: Path) -> bool:
    """Tell our own script by its file or by what it imports: both distributions' have one name."""
    if path.resolve() == Path(sys.argv[0]).resolve():
        return True
    try:
        with path.open("rb") as script:
            return _OUR_PACKAGE in script.read(_SCRIPT_HEAD_BYTES)
    except OSError:
        # Executable but not readable: a script of ours would not run like that either.
        return False


def _hops(environ: Mapping[str, str]) -> int:
    text = environ.get(HOPS_VARIABLE, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def _refuse(what: str) -> NoReturn:
    remark(f"{_COMMAND}: {what} [NOT_PART_OF_THIS_DISTRIBUTION]")
    raise SystemExit(EXIT_NOT_OURS)
