"""No name of the peer's command line means anything else here.

Each of its commands and options is ours with the same meaning, handed over unchanged, or refused
with exit code 64.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from bernstein_cli import peer as handing_over
from bernstein_cli.main import cli, main

DRIVER = Path(__file__).with_name("peer_driver.py")
RECORDED = Path(handing_over.__file__).with_name("peer_commands.json")
TREE: dict[str, Any] = json.loads(RECORDED.read_bytes())
COMMANDS: dict[str, dict[str, Any]] = TREE["commands"]

# What both have, and what it does here is what it does there.
SHARED = {
    "",
    "run",
    "replay",
    "verify",
    "verify run",
    "verify receipt",
    "completions",
    "thread",
    "thread verify",
}
SHARED |= {"session", "session fork"}
OUR_REPLAY_VERBS = {
    "list",
    "diff",
    "repair",
    "export",
    "publish",
    "verify",
    "diff-journal",
    "debug",
}
# Names that are only ours, now or later.
RESERVED = (
    *("tour", "import", "services", "record", "agent", "keys", "admin", "follow", "view", "tlog"),
    *("witness", "determinism"),
)
VALUES = {"flag": [], "optional": [], "value": ["x"], "pair": ["x", "y"]}


class HandedOver(BaseException):
    """Raised in place of becoming the peer; nothing may catch it."""


@dataclass(frozen=True, slots=True)
class Ended:
    exit: int
    stdout: str
    stderr: str


Main = Callable[[Sequence[str]], list[str] | Ended]


@pytest.fixture
def own_main(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Main:
    """Run our command: gives the arguments that were handed over, or how it ended by itself."""

    def become(path: object, argv: Sequence[str], env: object) -> NoReturn:
        raise HandedOver(*argv[1:])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "execve", become)

    def run(argv: Sequence[str]) -> list[str] | Ended:
        monkeypatch.setattr(sys, "argv", ["bernstein", *argv])
        capsys.readouterr()
        try:
            code = main()
        except HandedOver as handed:
            return list(handed.args)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        return Ended(int(code or 0), *capsys.readouterr())

    return run


@pytest.fixture
def a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "fake-peer"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.setenv("BERNSTEIN_SVC_PEER", str(fake))


@pytest.fixture
def no_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERNSTEIN_SVC_PEER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture(scope="module")
def ours() -> dict[str, click.Command]:
    return dict(walk(cli, (), None))


def walk(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name="bernstein", parent=parent)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, (path, name)
            yield from walk(child, (*path, name), context)


def option_forms(command: click.Command) -> dict[str, str]:
    return {
        name: "flag" if option.is_flag or option.count else "value"
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }


@pytest.mark.peer
def test_the_recorded_tree_is_that_of_the_installed_peer(peer: Any, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(peer.python), str(DRIVER), "--tree"],
        env={"HOME": str(tmp_path), "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert RECORDED.read_text() == done.stdout


def test_names_that_we_keep_for_ourselves_are_free_in_the_peer() -> None:
    assert [name for name in RESERVED if name in COMMANDS or name in TREE["aliases"]] == []


def test_only_shared_names_are_both_ours_and_the_peers(ours: dict[str, click.Command]) -> None:
    assert set() == (set(ours) & set(COMMANDS)) - SHARED


def test_an_option_that_both_have_takes_a_value_in_both_or_in_neither(
    ours: dict[str, click.Command],
) -> None:
    for path in sorted(set(ours) & set(COMMANDS)):
        theirs = COMMANDS[path]["options"]
        own = option_forms(ours[path])
        both = {name: form for name, form in own.items() if name in theirs}
        assert {name: theirs[name] for name in both} == both, path


def foreign_lines(ours: dict[str, click.Command]) -> Iterator[list[str]]:
    """Give a command line for each command, option, verb and short word that we lack."""
    for path, node in COMMANDS.items():
        words = path.split()
        if path not in ours:
            yield words
            yield [*words, "--help"]
            continue
        own = option_forms(ours[path])
        for name, form in node["options"].items():
            if name not in own:
                yield [*words, name, *VALUES[form]]
    for verb in TREE["verbs"]["replay"]:
        if verb not in OUR_REPLAY_VERBS:
            yield ["replay", verb, "x"]
    for name, form in COMMANDS["verify legacy"]["options"].items():
        yield ["verify", name, *VALUES[form]]
    yield ["verify"]
    yield ["verify", "some/wheelhouse"]
    for word, stands_for in TREE["aliases"].items():
        if stands_for.split()[0] not in ours:
            yield [word]


@pytest.mark.usefixtures("a_peer")
def test_what_we_lack_is_handed_over_as_it_was_typed(
    ours: dict[str, click.Command], own_main: Main
) -> None:
    lines = list(foreign_lines(ours))
    assert len(lines) > len(COMMANDS)
    assert [(argv, got) for argv in lines if (got := own_main(argv)) != argv] == []


@pytest.mark.usefixtures("no_peer")
def test_what_we_lack_is_refused_with_64_and_one_line_without_a_peer(
    ours: dict[str, click.Command], own_main: Main
) -> None:
    for argv in foreign_lines(ours):
        got = own_main(argv)
        assert isinstance(got, Ended), argv
        assert (got.exit, got.stdout, got.stderr.count("\n")) == (64, "", 1), (argv, got)


@pytest.mark.usefixtures("a_peer")
def test_a_short_word_for_a_command_of_ours_is_that_command(own_main: Main) -> None:
    assert own_main(["run", "--help"]) == own_main(["r", "--help"])


@pytest.mark.usefixtures("no_peer")
@pytest.mark.parametrize("argv", [["frobnicate"], ["run", "--frobnicate"], ["--frobnicate"]])
def test_what_neither_knows_is_a_usage_error(own_main: Main, argv: list[str]) -> None:
    got = own_main(argv)
    assert isinstance(got, Ended)
    assert got.exit == 2
