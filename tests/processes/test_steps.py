"""Step journals through the journal service: one writer, whoever asks, and nothing is lost."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bernstein_client.steps import Step
from bernstein_formats.errors import (
    ForeignWriter,
    HeadMoved,
    InvalidInput,
    JournalError,
    NotFound,
    RunExists,
)
from bernstein_formats.session_journal import GENESIS
from bernstein_formats.session_journal_verify import verify_steps

pytestmark = pytest.mark.processes

FIELD = Path(__file__).parents[1] / "vectors" / "data" / "field"
DIGEST = "a" * 64


def step(number: int) -> Step:
    return Step(DIGEST, model="m", prompt=f"p{number}", tool_call={"name": "t", "n": number})


def journal_of(project: Any, agent_id: str) -> Path:
    path: Path = project.sdd / "runtime" / "journal" / agent_id / "000000.jsonl"
    return path


def given(project: Any, agent_id: str, content: bytes) -> Path:
    path = journal_of(project, agent_id)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def bernstein(project: Any, *argv: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *map(str, argv)],
        cwd=project.folder,
        env=dict(project.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_steps_are_durable_private_and_verify(services: Any, project: Any) -> None:
    first = services.steps.start("agent", [step(0)])
    more = services.steps.append("agent", [step(1), step(2)], first.head_hash_hex)
    assert (first.first_seq, more.first_seq, more.step_count) == (0, 1, 3)
    stored = b"".join(services.steps.read("agent"))
    assert stored == journal_of(project, "agent").read_bytes()
    found = verify_steps([stored])
    assert (found.ok, found.steps, found.head_hash) == (True, 3, more.head_hash_hex)
    path = journal_of(project, "agent")
    assert [path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777] == [0o600, 0o700]


def test_two_windows_share_one_writer_and_one_that_is_behind_is_told(services: Any) -> None:
    head = services.steps.start("agent", [step(0)]).head_hash_hex
    services.steps.append("agent", [step(1)], head)
    with pytest.raises(HeadMoved):
        services.steps.append("agent", [step(2)], head)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: services.steps.append("agent", [step(n)]), range(40)))
    assert sorted(answer.first_seq for answer in answers) == list(range(2, 42))
    assert verify_steps(services.steps.read("agent")).ok


def test_a_session_that_never_began_is_not_resumed_and_nothing_is_made(
    services: Any, project: Any
) -> None:
    with pytest.raises(NotFound, match="no step journal"):
        services.steps.append("does-not-exist", [step(0)])
    with pytest.raises(NotFound, match="no step journal"):
        list(services.steps.read("does-not-exist"))
    assert not (project.sdd / "runtime").exists()
    given(project, "empty", b"")
    with pytest.raises(NotFound, match="never had a step"):
        services.steps.append("empty", [step(0)])
    assert services.steps.start("empty", [step(0)]).step_count == 1


def test_a_session_is_not_started_twice(services: Any) -> None:
    services.steps.start("agent", [step(0)])
    with pytest.raises(RunExists):
        services.steps.start("agent", [step(0)])


@pytest.mark.parametrize("agent_id", ["../../x", "", "x" * 65, "x\n", "a/b", ".."])
def test_an_id_that_is_no_file_name_is_refused(services: Any, project: Any, agent_id: str) -> None:
    for call in (services.steps.start, services.steps.append):
        with pytest.raises(InvalidInput):
            call(agent_id, [step(0)])
    assert not (project.sdd / "runtime").exists()


@pytest.mark.parametrize(
    "bad",
    [
        Step("abc"),
        Step(DIGEST, blob_refs=("../x",)),
        Step(DIGEST, tool_result=float("nan")),
        Step(DIGEST, tool_call=[[[[]]]] * 2, model=3),  # type: ignore[arg-type]  # is the point
    ],
)
def test_a_step_that_others_could_not_read_makes_no_journal(
    services: Any, project: Any, bad: Step
) -> None:
    with pytest.raises(InvalidInput):
        services.steps.start("agent", [step(0), bad])
    assert not (project.sdd / "runtime").exists()


def test_f08_a_torn_end_is_set_aside_before_the_next_step(services: Any, project: Any) -> None:
    torn = (FIELD / "F08" / "torn.jsonl").read_bytes()
    path = given(project, "agent", torn)
    answer = services.steps.append("agent", [step(3)])
    again = services.steps.append("agent", [step(4)])
    assert (answer.first_seq, again.step_count) == (3, 5)
    found = verify_steps([path.read_bytes()])
    assert (found.ok, found.steps) == (True, 5)
    assert path.with_name("000000.jsonl.torn-1").read_bytes() == torn[-28:]


def test_a_missing_line_end_is_written_before_the_next_step(services: Any, project: Any) -> None:
    good = b"".join((FIELD / "F08" / "torn.jsonl").read_bytes().splitlines(keepends=True)[:3])
    path = given(project, "agent", good[:-1])
    assert services.steps.append("agent", [step(3)]).first_seq == 3
    assert path.read_bytes().startswith(good)
    assert verify_steps([path.read_bytes()]).ok


def test_f19_a_forked_journal_is_refused_with_its_line(services: Any, project: Any) -> None:
    forked = (FIELD / "F19" / "forked.jsonl").read_bytes()
    path = given(project, "agent", forked)
    with pytest.raises(JournalError, match="line 3"):
        services.steps.append("agent", [step(3)])
    assert path.read_bytes() == forked
    shown = bernstein(project, "session", "branches", "agent", "--json")
    heads = [branch["head_hash"] for branch in json.loads(shown.stdout)["branches"]]
    assert (shown.returncode, len(heads)) == (1, 2)
    copied = bernstein(project, "session", "branches", "agent", "--copy", heads[1], "--to", "b")
    assert copied.returncode == 0, copied.stderr
    assert services.steps.append("b", [step(2)]).first_seq == 2
    assert path.read_bytes() == forked


def test_another_programs_step_under_our_hands_is_noticed_and_then_gone_on_from(
    services: Any, project: Any
) -> None:
    services.steps.start("agent", [step(0)])
    path = journal_of(project, "agent")
    services.steps.start("other", [step(0), step(1)])
    theirs = journal_of(project, "other").read_bytes().splitlines(keepends=True)[1]
    ours = path.read_bytes()
    with path.open("ab") as file:
        file.write(json.dumps({**json.loads(theirs), "prev_hash": GENESIS}).encode() + b"\n")
    with pytest.raises(ForeignWriter):
        services.steps.append("agent", [step(1)])
    with pytest.raises(JournalError, match="line 2"):
        services.steps.append("agent", [step(1)])
    path.write_bytes(ours)
    assert services.steps.append("agent", [step(1)]).first_seq == 1


def test_a_killed_journal_loses_no_step_that_was_answered(services: Any, project: Any) -> None:
    services.steps.start("agent", [step(0)])
    status = services.supervisor.ask({"do": "status"})
    pid = next(each["pid"] for each in status["services"] if each["service"] == "journal")
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(
            lambda: [services.steps.append("agent", [step(n)]) for n in range(1, 60)]
        )
        time.sleep(0.05)
        os.kill(pid, 9)
        found = answers.result()
    assert [answer.first_seq for answer in found] == list(range(1, 60))
    verdict = verify_steps([journal_of(project, "agent").read_bytes()])
    assert (verdict.ok, verdict.steps) == (True, 60)


def test_a_session_goes_out_signed_and_verifies_with_the_key_alone(
    services: Any, project: Any, tmp_path: Path
) -> None:
    services.steps.start("agent", [step(0), step(1)])
    assert bernstein(project, "keys", "new", "op.pem").returncode == 0
    made = bernstein(project, "replay", "export", "agent", "out.tar", "--sign", "op.pem")
    assert made.returncode == 0, made.stderr
    verify = ["replay", "verify", "out.tar", "--as-json"]
    alone = json.loads(bernstein(project, *verify).stdout)
    assert (alone["ok"], alone["error_kinds"]) == (False, [["signature_without_verifier", None]])
    pinned = bernstein(project, *verify, "--public-key", "op.pub.pem")
    assert (pinned.returncode, json.loads(pinned.stdout)["unauthenticated"]) == (0, [])
    archive = (project.folder / "out.tar").read_bytes()
    (project.folder / "out.tar").write_bytes(archive.replace(b'"agent"', b'"agenT"', 1))
    edited = json.loads(bernstein(project, *verify, "--public-key", "op.pub.pem").stdout)
    assert edited["error_kinds"] == [["signature_bad", None]]
    head = bernstein(project, *verify, "--head", "f" * 64)
    assert ["expected_head_mismatch", None] in json.loads(head.stdout)["error_kinds"]


def test_what_is_published_gives_no_redacted_text_away(services: Any, project: Any) -> None:
    secret = "the-secret-of-the-house"  # noqa: S105 - is no password
    told = Step(DIGEST, prompt=secret, tool_call={"name": "t", "args": secret}, tool_result=secret)
    services.steps.start("agent", [told])
    preview = bernstein(project, "replay", "publish", "agent", "--preview", "--json")
    shown = json.loads(preview.stdout)
    assert (preview.returncode, shown["repeating_steps"]) == (0, [0])
    assert sorted(shown["readable"]) == ["tool_call", "ts"]
    fields = ["--redact", "prompt", "--redact", "tool_call", "--redact", "tool_result"]
    done = bernstein(project, "replay", "publish", "agent", "out.tar", "--opt-in", *fields)
    assert done.returncode == 0, done.stderr
    archive = (project.folder / "out.tar").read_bytes()
    assert secret.encode() not in archive
    assert DIGEST.encode() not in archive
    assert bernstein(project, "replay", "verify", "out.tar").returncode == 0


def test_nothing_is_published_while_a_search_finds_secrets_in_it(
    services: Any, project: Any
) -> None:
    key = f"ghp_{'aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zC2eF5'}"
    services.steps.start("agent", [Step(DIGEST, tool_call={"name": "t", "args": f"TOKEN={key}"})])
    publish = ("replay", "publish", "agent", "out.tar", "--opt-in")
    refused = bernstein(project, *publish)
    redacted = bernstein(project, *publish, "--redact", "tool_call")
    insisted = bernstein(project, *publish, "--allow-secrets")

    assert refused.returncode == 1
    assert "what stays readable of agent seems to hold secrets" in refused.stderr
    assert key not in refused.stdout + refused.stderr
    assert (redacted.returncode, insisted.returncode) == (0, 0)


def test_debug_forks_where_it_is_told_to(services: Any, project: Any) -> None:
    services.steps.start("sess", [step(0), step(1), step(2)])
    snapshot = project.sdd / "runtime" / "sessions" / "sess.json"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_text('{"session_id": "sess"}')
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], cwd=project.folder, check=True)
    done = bernstein(project, "replay", "debug", "sess", "--fork-from", "1", "--as-json")
    fork = json.loads(done.stdout)["fork"]
    seeded = Path(fork["fork_worktree"], ".sdd/runtime/journal", fork["fork_session_id"])
    ours = journal_of(project, "sess").read_bytes().splitlines()[:2]
    assert (seeded / "000000.jsonl").read_bytes().splitlines() == ours


def test_what_is_done_with_a_session_is_in_the_audit_log(services: Any, project: Any) -> None:
    assert bernstein(project, "services", "init").returncode == 0
    services.steps.start("agent", [step(0)])
    services.steps.append("agent", [step(1), step(2)])

    assert bernstein(project, "replay", "export", "agent", "out.tar").returncode == 0
    assert bernstein(project, "replay", "publish", "agent", "pub.tar", "--opt-in").returncode == 0

    events = [
        json.loads(line)
        for path in sorted((project.sdd / "audit").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]
    head = json.loads(journal_of(project, "agent").read_bytes().splitlines()[-1])["step_hash"]
    assert [event["event_type"] for event in events] == [
        "replay.step", "replay.step", "replay.export", "replay.publish",
    ]  # fmt: skip
    assert [event["details"].get("seq") for event in events[:2]] == [0, 2]
    assert events[1]["details"]["step_hash"] == head
    assert events[2]["details"] | {"head_hash": head, "step_count": 3} == events[2]["details"]
    assert services.macs.verify_audit_log().error == ""


def test_without_an_audit_key_there_is_no_audit_log(services: Any, project: Any) -> None:
    services.steps.start("agent", [step(0)])

    assert bernstein(project, "replay", "export", "agent", "out.tar").returncode == 0
    assert list((project.sdd / "audit").glob("*.jsonl")) == []


def test_a_blob_of_a_session_is_stored_once_and_only_under_its_own_digest(
    services: Any, project: Any
) -> None:
    content = b"a screenshot" * 1000
    digest = sha256(content).hexdigest()
    path = project.sdd / "cas" / digest[:2] / digest
    with pytest.raises(NotFound):
        services.steps.import_blob("agent-1", digest, lambda: iter([content]))
    services.steps.start("agent-1", [Step("0" * 64, blob_refs=(digest,))])
    with pytest.raises(InvalidInput, match="hash to"):
        services.steps.import_blob("agent-1", digest, lambda: iter([content, b"!"]))
    assert not path.exists()
    with pytest.raises(InvalidInput, match="is no digest"):
        services.steps.import_blob("agent-1", "../x", lambda: iter([content]))
    assert services.steps.import_blob("agent-1", digest, lambda: iter([content[:5], content[5:]]))
    assert not services.steps.import_blob("agent-1", digest, lambda: iter([b"never read"]))
    assert path.read_bytes() == content
