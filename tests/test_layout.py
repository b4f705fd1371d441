"""The tree: lists that name packages name the same ones, and habits that no other tool checks."""

import ast
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from bernstein_cli.main import cli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
WHEEL = PROJECT["hatch"]["build"]["targets"]["wheel"]
FOLDERS = tuple(WHEEL["sources"])
LINES_MAX = 400
GENERATED = re.compile(r"_pb2(_grpc)?\.pyi?$|^protos/.*/__init__\.py$")
# Bytes of others, and what is written by tools.
NOT_OURS = ("tests/vectors/data/", "uv.lock", "LICENSE")


@cache
def tracked() -> tuple[str, ...]:
    """Every file that is committed or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listed.stdout.decode().rstrip("\0").split("\0")
    return tuple(name for name in names if (ROOT / name).is_file())


def texts() -> Iterator[tuple[str, str]]:
    for name in tracked():
        if not name.startswith(NOT_OURS):
            yield name, (ROOT / name).read_text(encoding="utf-8")


def modules() -> list[str]:
    """What we wrote by hand; tests say in their names what they are for."""
    written = (*FOLDERS, "benchmarks")
    python = [name for name in tracked() if name.endswith(".py") and name.startswith(written)]
    return [name for name in python if not GENERATED.search(name)]


def packages() -> set[str]:
    return {init.parent.name for folder in FOLDERS for init in ROOT.glob(f"{folder}/*/__init__.py")}


def test_import_rules_know_every_package() -> None:
    assert set(PROJECT["importlinter"]["root_packages"]) == packages()


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(ROOT / ".venv-uv" / "bin" / "uv")
    subprocess.run(
        [uv, "build", "--wheel", "--quiet", "--out-dir", str(tmp_path)], cwd=ROOT, check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    code = {name for name in names if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in code} == packages()
    assert {name for name in code if name.endswith("/py.typed") and name.count("/") == 1} == {
        f"{package}/py.typed" for package in packages()
    }
    stored = {
        name.partition("/")[2]
        for name in tracked()
        if name.startswith(tuple(f"{folder}/" for folder in FOLDERS))
        and name not in WHEEL["exclude"]
    }
    examples = {f"bernstein_tour/{name}" for name in tracked() if name.startswith("examples/")}
    assert code == stored | examples
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.parametrize("name", modules())
def test_a_module_says_what_it_is_for_and_is_not_long(name: str) -> None:
    source = (ROOT / name).read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source)), "no docstring"
    assert source.count("\n") <= LINES_MAX


def test_no_path_of_somebodys_machine_is_written_down() -> None:
    places = re.compile(rf"(?<![\w.~-])/({'|'.join(('work', 'opt', 'ro' + 'ot', 'home/[a-z]'))})\b")
    assert {name for name, text in texts() if places.search(text)} - {
        "tests/test_layout.py"
    } == set()


def test_nothing_is_left_to_do() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    assert {name for name, text in texts() if words.search(text)} == set()


def commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """A command and all below it, each with its context."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            yield from commands(inner, click.Context(inner, parent=context, info_name=name))


@pytest.mark.parametrize(
    "context",
    [*commands(cli, click.Context(cli, info_name="bernstein"))],
    ids=lambda c: c.command_path,
)
def test_help_explains_the_command_and_each_of_its_options(context: click.Context) -> None:
    text = context.get_help()
    assert context.command.help
    for parameter in context.command.get_params(context):
        if isinstance(parameter, click.Option):
            assert any(name in text for name in parameter.opts), parameter.name
            assert parameter.help, parameter.name
