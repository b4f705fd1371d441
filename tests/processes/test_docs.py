"""The documentation: its commands run, its links and citations lead somewhere, its lists are whole.

A block marked `sh` is run, all of a page in order, in a copy of the example project with the
scripted model at hand. `# exit N` behind a command says that it ends so; `make TARGET` is only
looked up. Blocks with other marks (`console`, `text`, ...) are not run, but the options of every
`bernstein` command anywhere must exist.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import click
import pytest
from tests.postgres_server import OWNER, SERVICE, PostgresServer

from bernstein_cli import exit_codes
from bernstein_cli.main import cli
from bernstein_cli.peer import knows_peer
from bernstein_runtime.config import TABLES as TABLES_OF_CONFIGURATION
from bernstein_runtime.config import (
    AccessConfig,
    FleetConfig,
    GatewayConfig,
    ListenConfig,
    RecorderConfig,
    SignerConfig,
    StoreConfig,
    SupervisorConfig,
    TlsConfig,
)
from bernstein_tour.model_server import ModelServer

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
VECTORS = ROOT / "tests" / "vectors"
SOURCES = ("formats", "runtime", "services", "clients", "tests")

BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
EXIT = re.compile(r"^(.*?)\s*# exit (\d+)$")
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")
CITATION = re.compile(
    r"docs/([a-z/-]+)(?:\.md)?, (?:sections? )?([\d.]*\d)(?: (?:and|to) ([\d.]*\d))?"
)
NAMED_CITATION = re.compile(r'docs/([a-z/-]+)\.md(?: and docs/[a-z/-]+\.md)?, section "([^"]+)"')
PAGE = re.compile(r"\bdocs/([a-z/-]+)\.md")
# Number and name of a heading; either may be missing.
HEADING = re.compile(r"^#+ (?:([\d.]*\d)\.? )?(.*)$", re.MULTILINE)

# What is stricter than the peer, by the names that the tests give it.
TABLES = {
    "test_event_journal.py": ("FINDINGS", "CRASHES", "REFUSED_APPENDS", "NAMED_AS_TEXT"),
    "test_receipts.py": (
        "STRICTER_BUILDS",
        "STRICTER_VERDICTS",
        "LAYOUT_ONLY",
        "WARNED",
        "OTHER_BYTES",
    ),
    "test_commands.py": ("OUR_EXIT",),
    "test_session_commands.py": ("OUR_EXIT",),
    "test_key_chain.py": ("STRICTER", "OTHER_PROBLEM"),
    "test_plan.py": ("STRICTER",),
    "test_llm_calls.py": ("OURS",),
    "test_journal_repair.py": ("OURS",),
    "test_thread.py": ("STRICTER", "CRASHES"),
    "test_gateway_fixtures.py": ("OURS",),
    "test_provider_state.py": ("STRICTER_PAIRS",),
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, mark: str) -> list[str]:
    return [text for found, text in BLOCK.findall(page.read_text()) if found == mark]


# --- commands ---------------------------------------------------------------------------------


def script(page: Path) -> str:
    lines = ["set -euo pipefail"]
    for block in blocks(page, "sh"):
        lines += [line for text in block.splitlines() for line in script_lines(text)]
    return "\n".join([*lines, ""])


def script_lines(line: str) -> list[str]:
    if line.startswith("make "):
        return []
    ends = EXIT.match(line)
    if ends is None:
        return [line]
    return ["got=0", f"{ends[1]} || got=$?", f'[ "$got" = {ends[2]} ]']


@pytest.fixture
def database_server(page: Path) -> Iterator[dict[str, str]]:
    """A PostgreSQL server without our users for a page that makes them; how it is reached."""
    if "psql " not in script(page):
        yield {}
        return
    server = PostgresServer()
    server.execute(f"drop role {OWNER}; drop role {SERVICE}")
    yield {"PGHOST": str(server.folder), "PGUSER": "postgres"}
    server.remove()


@pytest.fixture
def example(project: Any) -> Any:
    """The example project, and a neighbour who uses the peer."""
    shutil.copytree(ROOT / "examples" / "release-notes", project.folder, dirs_exist_ok=True)
    neighbour = project.folder.parent / "their-project"
    shutil.copytree(VECTORS / "data" / "real-run" / "sdd", neighbour / ".sdd")
    return project


@pytest.mark.processes
@pytest.mark.parametrize(
    "page", [page for page in PAGES if script(page).count("\n") > 1], ids=named
)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, database_server: dict[str, str], example: Any
) -> None:
    commands = example.folder.parent / "page.sh"
    commands.write_text(script(page))
    with ModelServer() as model:
        done = subprocess.run(
            ["bash", "-x", str(commands)],
            stdin=subprocess.DEVNULL,
            cwd=example.folder,
            env={
                **example.environ,
                **database_server,
                "PATH": f"{Path(sys.executable).parent}:{example.environ['PATH']}",
                "OPENAI_BASE_URL": model.base_url,
                "OPENAI_API_KEY": "unused",
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stdout + done.stderr


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {
        target
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([\w-]+)", page.read_text(), re.MULTILINE)
    }
    assert wanted >= {"demo", "test", "check"}
    assert wanted <= targets


def command_lines(page: Path) -> Iterator[str]:
    """Every `bernstein ...` of a page, in blocks and in running text."""
    text = page.read_text()
    for line in "\n".join(block for _, block in BLOCK.findall(text)).splitlines():
        found = re.search(r"\bbernstein (?=[a-z-])[^|#`(;]*", line)
        if found and ("$ " in line or line.startswith(("bernstein ", "BERNSTEIN_"))):
            yield found[0]
    yield from re.findall(r"`(bernstein [a-z-][^`]*)`", text)


def unknown_options(line: str) -> list[str]:
    """Options of a command line that neither our command nor the peer's has."""
    command: click.Command = cli
    context = click.Context(cli, info_name="bernstein")
    words: list[str] = []
    unknown = []
    for word in takewhile(lambda each: each != "--", shlex.split(line)[1:]):
        if isinstance(command, click.Group) and not word.startswith("-"):
            inner = command.get_command(context, word)
            if inner is None:
                return [] if knows_peer([*words, word]) else [word]
            words.append(word)
            command, context = inner, click.Context(inner, parent=context, info_name=word)
        elif re.fullmatch("-+[a-z][a-z-]*", word):
            own = {name for param in command.get_params(context) for name in param.opts}
            if word not in own | {"--help"} and not knows_peer(words, word):
                unknown.append(word)
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_commands_that_a_page_shows_exist(page: Path) -> None:
    wrong = {line: found for line in command_lines(page) if (found := unknown_options(line))}
    made_up = {line for line in wrong if "no-such" in line}
    assert wrong.keys() - made_up == set()


# --- links and citations ----------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def citations() -> Iterator[tuple[str, str, str]]:
    """Source, page, and the section's number or name; empty where the whole page is meant."""
    for folder in SOURCES:
        for source in (ROOT / folder).rglob("*.py"):
            text = re.sub(r"\s+#? *", " ", source.read_text())
            for page in PAGE.findall(text):
                yield named(source), page, ""
            for page, first, last in CITATION.findall(text):
                for section in filter(None, (first, last)):
                    yield named(source), page, section
            for page, name in NAMED_CITATION.findall(text):
                yield named(source), page, name


def test_every_page_and_section_that_the_source_cites_exists() -> None:
    found = list(citations())
    assert len(found) > 60
    for source, page, section in found:
        path = ROOT / "docs" / f"{page}.md"
        assert path.exists(), f"{source} cites {page}"
        headings = {word for heading in HEADING.findall(path.read_text()) for word in heading}
        assert not section or section in headings, f"{source} cites {page}, section {section}"


# --- lists ------------------------------------------------------------------------------------


def test_every_stricter_verdict_is_on_its_page() -> None:
    page = (ROOT / "docs" / "stricter-than-peer.md").read_text()
    names = {name for file, tables in TABLES.items() for name in table_names(file, tables)}
    assert len(names) > 60
    assert {name for name in names | better_rederivations() if f"`{name}`" not in page} == set()


def table_names(file: str, tables: tuple[str, ...]) -> set[str]:
    names: set[str] = set()
    found = set()
    for statement in ast.parse((VECTORS / file).read_text()).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and target.id in tables:
                found.add(target.id)
                names |= set(ast.literal_eval(statement.value))
    assert found == set(tables), file
    return names


def better_rederivations() -> set[str]:
    """The cases whose answer the vectors recommend to differ."""
    found = (VECTORS / "data" / "re-derivation").glob("*/expected.json")
    return {path.parent.name for path in found if "recommended" in json.loads(path.read_bytes())}


def test_every_dependency_has_its_line() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text()
    listed = re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(each for extra in project["project"]["optional-dependencies"].values() for each in extra),
        *(each for group in project["dependency-groups"].values() for each in group),
    ]
    assert sorted(listed) == sorted(re.split(r"[\[<>=~ ]", each)[0] for each in wanted)


def test_every_exit_code_is_explained() -> None:
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    codes = {
        value for name, value in vars(exit_codes).items() if name.isupper() and type(value) is int
    }
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert explained == codes - {exit_codes.OK, exit_codes.FAILED, exit_codes.USAGE}


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ("fleet", FleetConfig),
        ("listen", ListenConfig),
        ("tls", TlsConfig),
        ("access", AccessConfig),
        ("supervisor", SupervisorConfig),
        ("store", StoreConfig),
        ("recorder", RecorderConfig),
        ("signer", SignerConfig),
        ("gateway", GatewayConfig),
    ],
)
def test_the_example_configuration_has_every_setting_with_its_default(
    table: str, kind: Any
) -> None:
    example = tomllib.loads((ROOT / "deploy" / "example.toml").read_text())
    assert set(example) == set(TABLES_OF_CONFIGURATION)
    defaults = kind()
    assert example[table] == {each.name: getattr(defaults, each.name) for each in fields(kind)}
