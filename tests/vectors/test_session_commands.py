"""The golden command lines of step journals, through the real command: exit codes and documents.

The command runs in this process, on files (`--offline`): what the services add is tested elsewhere.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bernstein_cli.main import main
from bernstein_cli.step_source import read_blob
from bernstein_formats.errors import Broken, InvalidInput
from bernstein_formats.session_archive import members

FOLDER = Path(__file__).parent / "data" / "session-journal"
CASES: dict[str, dict[str, Any]] = {
    path.parent.name: json.loads(path.read_bytes()) for path in FOLDER.glob("*/expected.json")
}
# Ours is another exit code, and why.
OUR_EXIT = {
    "075-verify-manifest-format": 1,  # an unknown format version
    "087-verify-raw-line-separator": 0,  # a good journal, whose lines end at line feeds only
    "091-verify-duplicate-manifest": 1,
    "092-verify-extra-members": 1,
    "093-verify-symlink-manifest": 1,
    "097-verify-gzip": 1,
    "137-diff-int-float": 1,  # two chains with two heads
}
# Members of the peer's documents whose words are not compared.
WORDS = {"detail", "errors"}


@dataclass(frozen=True, slots=True)
class Ended:
    exit: int
    stdout: str
    stderr: str


Bernstein = Callable[[Sequence[str], Path], Ended]


@pytest.fixture
def bernstein(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bernstein:
    """Run our command in a folder."""
    for name in [name for name in os.environ if name.startswith(("BERNSTEIN_", "XDG_", "GIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(argv: Sequence[str], folder: Path) -> Ended:
        monkeypatch.chdir(folder)
        offline = ["--offline"] if argv[0] == "replay" else []
        at = argv.index("--") if "--" in argv else len(argv)
        words = ["bernstein", *argv[:at], *offline, *argv[at:]]
        monkeypatch.setattr(sys, "argv", words)
        capsys.readouterr()
        return Ended(main(), *capsys.readouterr())

    return run


@pytest.fixture
def case_folder(tmp_path: Path) -> Callable[[str], Path]:
    def copied(name: str) -> Path:
        shutil.copytree(FOLDER / name, tmp_path / "case")
        return tmp_path / "case"

    return copied


def invocations() -> list[tuple[str, int]]:
    """Each command line of the vectors but those of forks: the case, and which one of it."""
    found = []
    for name, case in sorted(CASES.items()):
        if case["kind"] == "fork":
            continue
        for number, _ in enumerate(lines_of(case)):
            found.append((name, number))
    return found


def lines_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    lines = [case[key] for key in ("cli", "view") if case.get(key)]
    # `--head` is an option here, as the peer's usage line has it.
    more = [each for each in case.get("more_invocations", []) if each["exit_code"] != 2]
    return [*lines, *more]


def compared(value: dict[str, Any]) -> dict[str, Any]:
    return {name: member for name, member in value.items() if name not in WORDS}


@pytest.mark.parametrize(("name", "number"), invocations())
def test_a_command_line_ends_as_the_peers(
    bernstein: Bernstein, case_folder: Callable[[str], Path], name: str, number: int
) -> None:
    wanted = lines_of(CASES[name])[number]
    argv = wanted["argv"]
    publishes = argv[1] == "publish" and wanted["exit_code"] == 0
    got = bernstein([*argv, *(["--keep-input-hash"] if publishes else [])], case_folder(name))
    assert "Traceback" not in got.stdout + got.stderr
    assert got.exit == OUR_EXIT.get(name, wanted["exit_code"]), got
    if "--as-json" in argv:
        document = json.loads(got.stdout)
        if wanted["json"] is not None and name not in OUR_EXIT:
            theirs = compared(wanted["json"])
            assert {member: document[member] for member in theirs} == theirs


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.get("tar") and case.get("cli")]
)
def test_a_written_archive_holds_the_peers_members(
    bernstein: Bernstein, case_folder: Callable[[str], Path], name: str
) -> None:
    case, folder = CASES[name], case_folder(name)
    publishes = ["--keep-input-hash"] if case["kind"] == "publish" else []
    assert bernstein([*case["cli"]["argv"], *publishes], folder).exit == 0
    ours = (folder / case["receipt_path"]).read_bytes()
    theirs = (FOLDER / name / "expected.tar").read_bytes()
    contents = [
        {member.name: member.content(archive) for member in members(archive)}
        for archive in (ours, theirs)
    ]
    manifests = [json.loads(content.pop("manifest.json")) for content in contents]
    for manifest in manifests:
        manifest.pop("created_at")
        manifest.pop("bernstein_version")
    assert manifests[0] == manifests[1]
    assert contents[0] == contents[1]
    mode = (folder / case["receipt_path"]).stat().st_mode & 0o777
    assert (mode == 0o600) == (case["kind"] == "export")


def test_the_same_journal_gives_the_same_archive_twice(
    bernstein: Bernstein, case_folder: Callable[[str], Path]
) -> None:
    folder = case_folder("054-export-plain")
    for out in ("one.tar", "two.tar"):
        assert bernstein(["replay", "export", "agent-a", out, "--sdd-dir", "sdd"], folder).exit == 0
    assert (folder / "one.tar").read_bytes() == (folder / "two.tar").read_bytes()


def test_a_blob_that_does_not_hash_to_its_name_is_not_exported(
    bernstein: Bernstein, case_folder: Callable[[str], Path]
) -> None:
    folder = case_folder("068-export-blob-wrong-digest")
    shutil.copytree(folder / "cas", folder / "sdd" / "cas")
    argv = ["replay", "export", "agent-a", "out.tar", "--sdd-dir", "sdd", "--as-json"]
    got = bernstein(argv, folder)
    assert (got.exit, json.loads(got.stdout)["error"]) == (1, "export_failed")
    assert not (folder / "out.tar").exists()


def test_blobs_of_the_store_are_bundled(
    bernstein: Bernstein, case_folder: Callable[[str], Path]
) -> None:
    folder = case_folder("066-export-blobs")
    shutil.copytree(folder / "cas", folder / "sdd" / "cas")
    argv = ["replay", "export", "agent-a", "out.tar", "--sdd-dir", "sdd"]
    assert bernstein(argv, folder).exit == 0
    ours, theirs = (folder / "out.tar").read_bytes(), (folder / "expected.tar").read_bytes()
    assert [each.name for each in members(ours)] == [each.name for each in members(theirs)]


def test_nothing_but_a_receipt_is_ever_overwritten(
    bernstein: Bernstein, case_folder: Callable[[str], Path]
) -> None:
    folder = case_folder("054-export-plain")
    journal = folder / "sdd/runtime/journal/agent-a/000000.jsonl"
    before = journal.read_bytes()
    argv = ["replay", "export", "agent-a", str(journal), "--sdd-dir", "sdd", "--as-json"]
    got = bernstein(argv, folder)
    assert (got.exit, json.loads(got.stdout)["error"]) == (1, "export_failed")
    assert journal.read_bytes() == before


# --- blob store -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case["kind"] == "blob_store"]
)
def test_a_blob_is_found_absent_or_refused_as_by_the_peer(
    case_folder: Callable[[str], Path], name: str
) -> None:
    folder = case_folder(name)
    for each in CASES[name]["gets"]:
        if "raises" in each:
            kind = InvalidInput if each["raises"] == "ValueError" else Broken
            with pytest.raises(kind):
                read_blob(folder, each["digest"])
        else:
            content = read_blob(folder, each["digest"])
            assert (content is not None, len(content or b"")) == (each["found"], each["size"] or 0)


def test_a_blob_that_is_a_link_is_refused(tmp_path: Path) -> None:
    digest = "0" * 64
    (tmp_path / "cas" / "00").mkdir(parents=True)
    (tmp_path / "cas" / "00" / digest).symlink_to("/etc/hostname")
    with pytest.raises(Broken):
        read_blob(tmp_path, digest)


# --- forks ------------------------------------------------------------------------------------

FORKS = [name for name, case in CASES.items() if case["kind"] == "fork"]
FORK_ID = re.compile(r"fork-(?:[A-Za-z0-9._-]+-)?\d{8}-\d{6}-[0-9a-f]{6}")


def git(folder: Path, *words: str) -> str:
    environ = {
        **os.environ,
        **{
            f"GIT_{role}_{what}": "x@example.org"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        folder = tmp_path / "repository"
        folder.mkdir()
        branch = CASES[name]["branch"]
        git(folder, "init", "-q", "-b", "main" if branch == "(detached)" else branch)
        (folder / "file").write_text("x")
        git(folder, "add", "file")
        git(folder, "commit", "-q", "-m", "first")
        if branch == "(detached)":
            git(folder, "checkout", "-q", "--detach")
        shutil.copytree(FOLDER / name / "dot-sdd", folder / ".sdd")
        return folder

    return made


def placed(text: str, folder: Path, fork_id: str) -> str:
    """The vector's text with this repository's values."""
    commit = git(folder, "rev-parse", "HEAD")
    values = {"REPO": str(folder), "FORK_ID": fork_id, "COMMIT": commit, "COMMIT12": commit[:12]}
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@pytest.mark.parametrize("name", FORKS)
def test_a_session_forks_as_in_the_peer(
    bernstein: Bernstein, repository: Callable[[str], Path], name: str
) -> None:
    case, folder = CASES[name], repository(name)
    before = {path: path.read_bytes() for path in (folder / ".sdd").rglob("*") if path.is_file()}
    got = bernstein(case["cli"]["argv"], folder)
    assert got.exit == case["exit_code"], got
    assert "Traceback" not in got.stderr
    assert {path: path.read_bytes() for path in before} == before
    trees = sorted((folder / ".sdd" / "worktrees").glob("*"))
    assert len(trees) == case["worktrees_left"]
    assert len(git(folder, "branch", "--list", "fork/*").splitlines()) == case["fork_branches_left"]
    if got.exit:
        return
    fork_id = trees[0].name
    assert FORK_ID.fullmatch(fork_id)
    if case["cli"]["json"] is not None:
        assert json.loads(got.stdout) == json.loads(
            placed(json.dumps(case["cli"]["json"]), folder, fork_id)
        )
    else:
        assert got.stdout.splitlines() == [
            placed(line, folder, fork_id) for line in case["cli"]["text"]
        ]
    snapshot = trees[0] / ".sdd/runtime/sessions" / f"{fork_id}.json"
    now = json.loads(snapshot.read_bytes())["created_at"]
    wanted = placed(case["snapshot_text"], folder, fork_id).replace("{NOW}", now)
    assert snapshot.read_text() == wanted
    assert snapshot.stat().st_mode & 0o777 == 0o600
    journal = trees[0] / ".sdd/runtime/journal" / fork_id / "000000.jsonl"
    assert journal.exists() == bool(case["fork_journal"])


def test_a_label_with_dots_gives_a_branch_that_git_takes(
    bernstein: Bernstein, repository: Callable[[str], Path]
) -> None:
    folder = repository("149-fork-without-step")
    argv = ["session", "fork", "sess-a", "--label", "a..b.lock", "--json"]
    got = bernstein(argv, folder)
    assert got.exit == 0, got.stderr


@pytest.mark.parametrize("session_id", ["../sessions/sess-a", "", "x" * 65, "sess-a\n", ".."])
def test_a_session_id_that_is_no_file_name_is_refused(
    bernstein: Bernstein, repository: Callable[[str], Path], session_id: str
) -> None:
    folder = repository("149-fork-without-step")
    got = bernstein(["session", "fork", session_id, "--json"], folder)
    assert (got.exit, json.loads(got.stdout)["error"]) == (2, "INVALID_INPUT")
    assert not (folder / ".sdd" / "worktrees").exists()
