"""The golden command lines, through the real command and real services: exit codes, documents,
lines and the bytes of receipts; where ours is stricter on purpose, our verdict.

The command runs in this process (its start is tested elsewhere), what it starts are processes.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bernstein_cli.main import main
from bernstein_client.connection import Services

pytestmark = pytest.mark.processes

FOLDER = Path(__file__).parent / "data"
RECEIPTS = FOLDER / "receipts"
REDERIVATION = FOLDER / "re-derivation"
VERBS = FOLDER / "event-journal" / "157-cli"


@dataclass(frozen=True, slots=True)
class Ended:
    exit: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        return json.loads(self.stdout)


Bernstein = Callable[[Sequence[str], Path], Ended]


@pytest.fixture
def bernstein(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Bernstein:
    """Run our command in a folder."""
    for name in [name for name in os.environ if name.startswith(("BERNSTEIN_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(argv: Sequence[str], folder: Path) -> Ended:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["bernstein", *argv])
        capsys.readouterr()
        try:
            code = main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def stop(sdd_dir: Path) -> None:
    with Services(sdd_dir) as services:
        services.supervisor.ask({"do": "stop"})


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def is_traceless(ended: Ended) -> bool:
    return "Traceback" not in ended.stdout + ended.stderr


# --- receipts ---------------------------------------------------------------------------------

RECEIPT_CASES = {
    path.name: {**read(path / "case.json"), "expected": read(path / "expected.json")}
    for path in sorted(RECEIPTS.iterdir())
    if path.is_dir()
}
BY_COMMAND = {
    name: case
    for name, case in RECEIPT_CASES.items()
    if case.get("argv") and case.get("via", "cli") == "cli"
}
BUILDS = [name for name, case in BY_COMMAND.items() if case["argv"][:2] == ["verify", "run"]]
VERDICTS = [name for name, case in BY_COMMAND.items() if case["argv"][:2] == ["verify", "receipt"]]
# What ours exits with where the peer's code is not to be copied.
OUR_EXIT = {
    "b17-audit-window-reversed": 2,
    "b19-audit-tampered-source": 1,
    "b20-audit-unparsable-rows": 1,
    "b37-non-finite": 1,
    "b39-duplicate-name-in-row": 1,
    "b40-stored-index-wrong": 1,
    "b43-truncated-against-seal": 1,
    "b45-spine-coerced": 1,
    "f04-neutral-point-key": 1,
    "f07-markup-run-id": 0,
    "v08-signed-at-without-chain": 2,
    "v26-journal-row-index": 2,
    "v27-journal-row-payload-hash": 2,
    "v29-journal-row-ts-added": 2,
    "v33-journal-count-float": 2,
    "v49-spine-extra-member": 2,
    "v50-spine-timestamp-respelled": 2,
    "v65-signature-noncanonical-base64": 1,
    "v70-alg-none": 2,
    "v71-key-id": 2,
    "v72-jwk-kid": 2,
    "v78-jwk-x-padded-junk": 1,
    "v79-jwk-private-part": 1,
    "v91-audit-extra-member": 2,
    "v92-top-level-extra": 2,
    "w11-duplicate-name-first": 1,
    "w12-duplicate-name-last": 1,
    "w13-duplicate-in-row": 1,
    "w14-nan-extra": 1,
}


def expected_exit(name: str) -> int:
    case = BY_COMMAND[name]
    code: int = OUR_EXIT.get(name, case["expected"]["exit_code"])
    assert code in {case["expected"]["exit_code"], *case.get("accept_exit", [])}, name
    return code


def test_every_receipt_case_by_command_line_is_run() -> None:
    assert {*BUILDS, *VERDICTS} == set(BY_COMMAND)


@pytest.mark.parametrize("name", VERDICTS)
def test_verify_receipt_answers_as_expected(name: str, bernstein: Bernstein) -> None:
    case = BY_COMMAND[name]
    folder = RECEIPTS / name / "input"
    for_people = bernstein(case["argv"], folder)
    for_programs = bernstein([*case["argv"], "--json"], folder)
    assert for_people.exit == for_programs.exit == expected_exit(name)
    assert is_traceless(for_people)
    answer, expected = for_programs.document, case["expected"]
    if name not in OUR_EXIT and "ok" in expected and expected.get("error_kind") != "peer-unhandled":
        for member in ("ok", "status", "tier", "divergent_step"):
            assert answer.get(member) == expected.get(member), member
    assert all(line.isprintable() for line in for_people.stdout.splitlines())


@pytest.mark.parametrize("name", BUILDS)
def test_verify_run_answers_as_expected(
    name: str, bernstein: Bernstein, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = BY_COMMAND[name]
    folder = tmp_path / "work"
    shutil.copytree(RECEIPTS / name / "input", folder, symlinks=True)
    for variable, value in case.get("env", {}).items():
        monkeypatch.setenv(variable, value)
    audit_key = folder / "audit.key"
    if audit_key.exists():  # a copy has the mode of the checked-out file
        audit_key.chmod(0o644 if name == "r58-audit-key-group-readable" else 0o600)
    try:
        ended = bernstein(case["argv"], folder)
    finally:
        stop(folder / ".sdd")
    assert ended.exit == expected_exit(name), ended.stderr
    assert is_traceless(ended)
    written = {path.name: path for path in folder.rglob("*receipt.*")}
    if ended.exit:
        assert not written
        return
    if not case.get("bytes_may_differ"):
        wanted = RECEIPTS / name / "expected"
        receipt = written.get("my-receipt.json") or written["run-receipt.json"]
        assert receipt.read_bytes() == (wanted / "run-receipt.json").read_bytes()
        cose = receipt.with_name("run-receipt.cose")
        assert cose.read_bytes() == (wanted / "run-receipt.cose").read_bytes()


# --- re-derivation ----------------------------------------------------------------------------

REDERIVATION_CASES = {
    path.name: read(path / "expected.json") for path in sorted(REDERIVATION.glob("*-*"))
}
OWN_PROJECT = {"098-cli-latest", "099-cli-latest-none", "100-cli-traversal-id"}


@pytest.fixture(scope="module")
def all_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One project with the runs of all cases: one set of services answers them all."""
    folder = tmp_path_factory.mktemp("all-runs")
    (folder / "sdd" / "runs").mkdir(parents=True)
    for name in REDERIVATION_CASES.keys() - OWN_PROJECT:
        for run in (REDERIVATION / name).glob("sdd/runs/*"):
            shutil.copytree(run, folder / "sdd" / "runs" / run.name, dirs_exist_ok=True)
    yield folder
    stop(folder / "sdd")


def check_rederivation(expected: dict[str, Any], ended: Ended, as_json: Ended) -> None:
    wanted = expected.get("recommended") or expected
    assert ended.exit == as_json.exit == wanted.get("exit_code", expected["exit_code"])
    assert is_traceless(ended)
    assert is_traceless(as_json)
    answer = as_json.document
    if wanted.get("reason_code") is not None:
        assert answer["reason_code"] == wanted["reason_code"]
    if "recommended" in expected or expected["json"] is None:
        return
    for member in expected["json"].keys() - {"reason"}:
        assert answer[member] == expected["json"][member], member


@pytest.mark.parametrize("name", sorted(REDERIVATION_CASES.keys() - OWN_PROJECT))
def test_a_rederivation_case_answers_as_expected(
    name: str, all_runs: Path, bernstein: Bernstein
) -> None:
    expected = REDERIVATION_CASES[name]
    ended = bernstein(expected["argv"], all_runs)
    check_rederivation(expected, ended, bernstein([*expected["argv"], "--as-json"], all_runs))
    if "recommended" not in expected and expected["verdict"] == "ok":
        assert ended.stdout.splitlines() == expected["human"]


@pytest.mark.parametrize("name", sorted(OWN_PROJECT))
def test_a_rederivation_case_in_its_own_project_answers_as_expected(
    name: str, bernstein: Bernstein, tmp_path: Path
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(REDERIVATION / name, folder)
    expected = REDERIVATION_CASES[name]
    try:
        ended = bernstein(expected["argv"], folder)
        as_json = bernstein([*expected["argv"], "--as-json"], folder)
    finally:
        stop(folder / "sdd")
    check_rederivation(expected, ended, as_json)


def test_without_any_run_latest_says_so_in_both_forms(bernstein: Bernstein, tmp_path: Path) -> None:
    ended = bernstein(["replay", "latest", "--re-derive"], tmp_path)
    assert ended.stdout == "No replay logs found.\n"
    assert list(tmp_path.iterdir()) == []


# --- the verbs of replay ----------------------------------------------------------------------

ALL_VERB_CASES = read(VERBS / "expected.json")["commands"]
# These two change a journal, one after the other; all others leave everything as it was.
REPAIRS = [case for case in ALL_VERB_CASES if case["argv"][1:3] == ["repair", "torn"]]
VERB_CASES = [case for case in ALL_VERB_CASES if case not in REPAIRS]


@pytest.fixture(scope="module")
def verbs_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("verbs")
    shutil.copytree(VERBS / "sdd", folder / ".sdd")
    yield folder
    stop(folder / ".sdd")


@pytest.mark.parametrize("mode", [["--verify"], ["--re-derive"], ["--from-step", "2"], []])
@pytest.mark.parametrize("run", sorted(path.parent.name for path in VERBS.rglob("journal.jsonl")))
def test_offline_and_the_services_say_the_same(
    run: str, mode: list[str], verbs_project: Path, bernstein: Bernstein
) -> None:
    line = ["replay", run, *mode, "--as-json"]
    by_services = bernstein(line, verbs_project)
    by_itself = bernstein([*line, "--offline"], verbs_project)
    assert by_services.exit == by_itself.exit
    assert by_services.stderr == by_itself.stderr
    # Only the journal writes a report.
    left_out = "report_path"
    assert {name: value for name, value in by_services.document.items() if name != left_out} == {
        name: value for name, value in by_itself.document.items() if name != left_out
    }


@pytest.mark.parametrize("case", VERB_CASES, ids=lambda case: "-".join(case["argv"]))
def test_a_verb_of_replay_answers_as_expected(
    case: dict[str, Any], verbs_project: Path, bernstein: Bernstein
) -> None:
    ended = bernstein(case["argv"], verbs_project)
    assert ended.exit == case["exit"]
    wanted = case["stdout"].replace("<PATH>", os.path.realpath(verbs_project / ".sdd"))
    if "none" in case["argv"]:
        assert ended.document["error"] == "RUN_NOT_FOUND"
    elif "--as-json" in case["argv"]:
        peers = json.loads(wanted[wanted.index("{") :])
        ours = ended.document
        assert {name: ours[name] for name in peers} == peers
        if "--from-step" not in case["argv"]:
            assert list(ours)[: len(peers)] == list(peers)
    elif "--json" in case["argv"]:
        check_thread_document(ended.document, json.loads(wanted))
    else:
        # Behind a colon follows why something was refused, in our own words.
        shown = [
            line.partition(": ")[0] if ended.exit == 2 else line for line in wanted.splitlines()
        ]
        for line, ours in zip(shown, ended.stdout.splitlines(), strict=False):
            assert ours.startswith(line) if ended.exit == 2 else ours == line
        assert len(ended.stdout.splitlines()) >= len(shown)


def check_thread_document(ours: dict[str, Any], peers: dict[str, Any]) -> None:
    """The same members; the text of a refusal begins alike."""
    assert list(ours)[: len(peers)] == list(peers)
    for name, value in peers.items():
        if name == "error":
            assert ours[name].partition(":")[0] == value.partition(":")[0]
        else:
            assert ours[name] == value


def test_a_repaired_journal_has_the_bytes_that_the_peer_leaves(
    tmp_path: Path, bernstein: Bernstein
) -> None:
    shutil.copytree(VERBS / "sdd", tmp_path / ".sdd")
    journal = tmp_path / ".sdd" / "runs" / "torn" / "journal.jsonl"
    try:
        documents = [bernstein(case["argv"], tmp_path).document for case in REPAIRS]
    finally:
        stop(tmp_path / ".sdd")
    for case, ours in zip(REPAIRS, documents, strict=True):
        peers = json.loads(case["stdout"].replace("<PATH>", os.path.realpath(tmp_path / ".sdd")))
        assert list(ours)[: len(peers)] == list(peers)
        assert {name: ours[name] for name in peers} == peers
    wanted = read(VERBS / "expected.json")["torn_journal_sha256_after"]
    assert wanted == hashlib.sha256(journal.read_bytes()).hexdigest()
    assert (journal.parent / "journal.jsonl.torn-1").read_bytes()
