"""Spines, the audit log and what they say of a run, through real services with a real key."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bernstein_client.connection import Services
from bernstein_client.values import AuditRangeWanted
from bernstein_formats.audit_events import (
    ReplayEvent,
    export_details,
    fork_details,
    provider_state_mutation,
    publish_details,
    replay_event,
    step_details,
    thread_approval,
)
from bernstein_formats.audit_log import AuditFields, next_audit_line
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import (
    ChainBroken,
    InvalidInput,
    JournalError,
    KeyUnusable,
    RowMalformed,
)
from bernstein_formats.mac import mac_keys
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.spine import SpineFields

pytestmark = pytest.mark.processes

KEY = "5f" * 32


def key_path(project) -> Path:
    return Path(project.environ["HOME"], ".local/state/bernstein/audit.key")


@pytest.fixture
def key(project) -> Path:
    path = key_path(project)
    path.parent.mkdir(parents=True)
    path.write_text(KEY)
    path.chmod(0o600)
    return path


def recorded(services: Services, run_id: str = "r1", count: int = 3) -> str:
    services.journal.create_run(run_id)
    for number in range(count):
        services.journal.append(run_id, "x", {"n": number})
    return run_id


def entry(number: int) -> SpineFields:
    return SpineFields(f"src/ü{number}.py", "sha256:00", "agent", f"s-{number}", "m", 0)


def spine_rows(project, run_id: str = "r1") -> list[dict[str, Any]]:
    path = project.sdd / "lineage" / run_id / "spine.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def event(number: int, **details) -> AuditFields:
    return AuditFields("run.step", "agent", "task", f"T-{number}", details)


def command(project, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *words],
        cwd=project.folder, env={**project.environ, **environ}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_a_finished_run_has_the_peers_seal_in_its_spine(project, key, services) -> None:
    run_id = recorded(services)
    services.macs.append_spine_entry(run_id, entry(0))

    finished = services.journal.finish_run(run_id)
    again = services.journal.finish_run(run_id)

    rows = spine_rows(project)
    assert finished.notes == again.notes == ()
    assert len(rows) == 2
    assert rows[1]["step_id"] == f"replay-journal-head:{finished.head_hash_hex}"
    assert rows[1]["artifact_path"] == ".sdd/runs/r1/journal.jsonl"
    head = json.loads((project.sdd / "lineage/r1/spine.head").read_bytes())
    assert (head["count"], head["head_hash"]) == (2, rows[1]["entry_hash"])
    found = services.macs.verify_spine(run_id)
    assert (found.status, found.entry_count, found.sealed_head) == (
        "ok", 2, finished.head_hash_hex,
    )  # fmt: skip
    assert services.journal.verify_run(run_id).identity == "verified"


def test_without_an_audit_key_a_run_is_finished_all_the_same(project, services) -> None:
    run_id = recorded(services)

    finished = services.journal.finish_run(run_id)

    assert "there is no audit key" in finished.notes[0]
    assert services.journal.finish_run(recorded(services, "r2")).notes == ()  # it was said
    assert not (project.sdd / "lineage").exists() or not list(project.sdd.rglob("spine.jsonl"))
    assert services.journal.verify_run(run_id).identity == "verified"
    assert not key_path(project).exists()
    for append in (
        lambda: services.macs.append_spine_entry(run_id, entry(0)),
        lambda: services.macs.append_audit_event(event(0)),
    ):
        with pytest.raises(KeyUnusable, match="no audit key"):
            append()


def test_a_key_that_comes_later_lets_the_seal_be_added(project, services) -> None:
    run_id = recorded(services)
    assert services.journal.finish_run(run_id).notes
    made = command(project, "services", "init", "--json")
    assert json.loads(made.stdout)["audit_key_made"]
    assert key_path(project).stat().st_mode & 0o777 == 0o600
    assert key_path(project).parent.stat().st_mode & 0o777 == 0o700
    assert len(key_path(project).read_text()) == 64

    assert services.journal.finish_run(run_id).notes == ()

    assert len(spine_rows(project)) == 1
    assert services.macs.verify_spine(run_id).status == "seal_only"
    kept = key_path(project).read_text()
    assert not json.loads(command(project, "services", "init", "--json").stdout)["audit_key_made"]
    assert key_path(project).read_text() == kept


def test_a_key_that_others_can_read_is_refused_everywhere(project, key, services) -> None:
    key.chmod(0o640)
    run_id = recorded(services)
    assert "mode 0640" in services.journal.finish_run(run_id).notes[0]
    with pytest.raises(KeyUnusable, match="mode 0640"):
        services.macs.append_audit_event(event(0))


def test_a_removed_or_older_seal_is_a_finding_since_the_ledger_knows_it(
    project, key, services
) -> None:
    run_id = recorded(services)
    services.journal.finish_run(run_id)
    folder = project.sdd / "runs" / run_id
    (folder / "seal.json").unlink()

    gone = services.journal.verify_run(run_id)
    journal = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(b"".join(journal.splitlines(keepends=True)[:2]))
    cut = services.journal.verify_run(run_id)

    assert [each.reason for each in gone.findings] == ["seal_missing"]
    assert gone.identity == "verified"
    assert cut.identity == "mismatched"
    assert any("ledger commits to 3 rows, the journal holds 2" in each for each in cut.errors)
    assert any("seal in the spine" in each for each in cut.errors)


def test_a_receipt_of_a_run_that_goes_on_is_no_missing_seal(project, key, services) -> None:
    run_id = recorded(services)
    receipt_key = project.folder / "key.pem"
    assert command(project, "keys", "new", str(receipt_key)).returncode == 0
    sign = ("--signing-key-path", str(receipt_key), "--unfinished")
    built = command(project, "verify", "run", run_id, *sign)
    assert built.returncode == 0, built.stderr
    services.journal.append(run_id, "x", {"n": "more"})

    found = services.journal.verify_run(run_id)

    assert (found.identity, found.findings) == ("unverifiable", ())
    assert any("3 rows were sealed for a receipt" in note for note in found.notes)
    services.journal.finish_run(run_id)
    assert services.journal.verify_run(run_id).identity == "verified"
    (project.sdd / "runs" / run_id / "seal.json").unlink()
    assert [each.reason for each in services.journal.verify_run(run_id).findings] == [
        "seal_missing"
    ]


def test_a_spine_under_another_key_is_marked_unverified_and_not_appended_to(
    project, key, services
) -> None:
    run_id = recorded(services)
    services.macs.append_spine_entry(run_id, entry(0))
    key.write_text("ab" * 32)

    finished = services.journal.finish_run(run_id)

    assert "written under another key" in finished.notes[0]
    assert services.macs.verify_spine(run_id).status == "tampered"
    assert len(spine_rows(project)) == 1
    with pytest.raises(ChainBroken, match="another key"):
        services.macs.append_spine_entry(run_id, entry(1))


def test_a_damaged_spine_is_refused_with_its_place(project, key, services) -> None:
    run_id = recorded(services)
    services.macs.append_spine_entry(run_id, entry(0))
    with (project.sdd / "lineage" / run_id / "spine.jsonl").open("ab") as file:
        file.write(b'{"v": 2\n')
    with pytest.raises(JournalError, match="spine cannot be continued"):
        services.macs.append_spine_entry(run_id, entry(1))


def test_audit_events_are_chained_anchored_and_verified(project, key, services) -> None:
    first = services.macs.append_audit_event(event(0, run_id="r1"))
    mirrored = provider_state_mutation(
        run_id="r1", agent_id="a", mutation_kind="context_compaction", content_address="ca",
        step_index=0, flagged=False, journal_head="hh",
    )  # fmt: skip
    approved = thread_approval(
        run_id="r1", journal_index=3, event_hash="eh", decision="approve", operator="sig",
        worktree_id="w",
    )  # fmt: skip
    steps = [
        (ReplayEvent.STEP, step_details(1, "h")),
        (ReplayEvent.FORK, fork_details("p", "c", "child")),
        (ReplayEvent.EXPORT, export_details("h", 2)),
        (ReplayEvent.PUBLISH, publish_details("o", "h")),
    ]
    for fields in (mirrored, approved, *(replay_event(each, "a", said) for each, said in steps)):
        assert services.macs.append_audit_event(fields)

    (segment,) = (project.sdd / "audit").glob("*.jsonl")
    rows = [json.loads(line) for line in segment.read_bytes().splitlines()]
    assert rows[0]["hmac"] == rows[1]["prev_hmac"] == first
    assert rows[1]["details"]["prev_chain_digest"] == first
    assert (rows[2]["actor"], rows[2]["resource_id"]) == ("sig", "r1")
    assert [row["event_type"] for row in rows[3:]] == [
        "replay.step", "replay.fork", "replay.export", "replay.publish",
    ]  # fmt: skip
    found = services.macs.verify_audit_log()
    assert (found.event_count, found.error, found.waiting_count) == (7, "", 0)
    segment.write_bytes(segment.read_bytes().replace(b'"actor": "sig"', b'"actor": "sIg"'))
    assert "line 3: the event's hmac" in services.macs.verify_audit_log().error


def test_hostile_details_are_refused_by_name(project, key, services) -> None:
    deep: dict[str, JsonValue] = {}
    for _ in range(2000):
        deep = {"d": deep}
    for details in ({"n": float("nan")}, {"n": float("inf")}):
        with pytest.raises(InvalidInput, match="NaN"):
            services.macs.append_audit_event(event(0, **details))
    with pytest.raises(InvalidInput, match="nested"):
        services.macs.append_audit_event(event(0, **deep))
    with pytest.raises(InvalidInput, match="type"):
        services.macs.append_audit_event(AuditFields("", "a", "b", "c"))
    assert services.macs.append_audit_event(event(0, half="\ud800"))  # an escape, as in the peer
    assert services.macs.verify_audit_log().error == ""


def test_while_the_signer_is_away_rows_wait_in_order_and_appends_go_on(
    project, key, services
) -> None:
    run_id = recorded(services)
    services.macs.append_audit_event(event(0))
    ledger = next(Path(project.environ["HOME"]).rglob("ledger.jsonl"))
    stop_signer(services)
    ledger.write_bytes(b"not an entry\n")

    assert services.macs.append_audit_event(event(1)) is None
    assert services.macs.append_audit_event(event(2)) is None
    assert services.macs.append_spine_entry(run_id, entry(0)) is None
    assert services.journal.append(run_id, "x", {"n": 9}).row_count == 4
    ledger.write_bytes(b"")
    services.supervisor.ask({"do": "stop"})
    wait_for_end(services)

    with project.services() as later:
        later.macs.append_audit_event(event(3))
        drained(later, run_id)
        (segment,) = (project.sdd / "audit").glob("*.jsonl")
        rows = [json.loads(line) for line in segment.read_bytes().splitlines()]
        assert [row["resource_id"] for row in rows] == ["T-0", "T-1", "T-2", "T-3"]
        assert later.macs.verify_audit_log().error == ""
        assert later.macs.verify_spine(run_id).status == "ok"


def stop_signer(services: Services) -> None:
    status = services.supervisor.ask({"do": "status"})
    assert status is not None
    (pid,) = [each["pid"] for each in status["services"] if each["service"] == "signer"]
    os.kill(pid, 15)
    while Path(f"/proc/{pid}").exists():
        if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
            return


def wait_for_end(services: Services) -> None:
    while services.supervisor.ask({"do": "status"}) is not None:
        pass


def drained(services: Services, run_id: str) -> None:
    while services.macs.verify_audit_log().waiting_count:
        pass
    while services.macs.verify_spine(run_id).waiting_count:
        pass


# --- seals of capsules --------------------------------------------------------------------------


def sealed_by_capsule(services: Services, run_id: str, count: JsonValue, head: str) -> None:
    details: dict[str, JsonValue] = {
        "task_id": "t", "run_id": run_id, "capsule_hash": "c", "journal_head": head,
        "event_count": count,
    }  # fmt: skip
    services.macs.append_audit_event(
        AuditFields("intent.journal_seal", "intent_capsule", "intent_capsule", "c", details)
    )


def test_a_capsules_seal_in_the_audit_log_vouches_for_a_run(project, key, services) -> None:
    run_id = recorded(services)
    head = services.journal.verify_run(run_id).head_hash
    sealed_by_capsule(services, run_id, 3, head)
    assert services.journal.verify_run(run_id).identity == "verified"

    services.journal.append(run_id, "x", {"n": "more"})
    grown = services.journal.verify_run(run_id)
    sealed_by_capsule(services, run_id, 4, head)
    contradicted = services.journal.verify_run(run_id)

    assert grown.identity == contradicted.identity == "mismatched"
    assert any("commits to 3 rows" in each for each in grown.errors)
    assert any("contradict" in each for each in contradicted.errors)


def test_a_capsules_seal_without_an_integer_count_is_an_error(project, key, services) -> None:
    run_id = recorded(services)
    sealed_by_capsule(services, run_id, "3", services.journal.verify_run(run_id).head_hash)
    found = services.journal.verify_run(run_id)
    assert found.identity == "mismatched"
    assert any("no integer" in each for each in found.errors)


# --- the audit range of a receipt ---------------------------------------------------------------


def with_receipt_key(project) -> Mapping[str, str]:
    path = project.folder / "team.pem"
    assert command(project, "keys", "new", str(path)).returncode == 0
    return {"BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE": str(path)}


def test_a_receipt_carries_the_window_with_the_resident_signers_keys(project, key) -> None:
    environ = {**project.environ, **with_receipt_key(project)}
    with Services(project.sdd, environ) as services:
        run_id = recorded(services)
        services.journal.finish_run(run_id)
        services.macs.append_audit_event(event(0, run_id=run_id))
        services.macs.append_audit_event(event(1, run_id="another"))
        wanted = AuditRangeWanted("2000", "2999")
        built = services.journal.build_receipt(run_id, audit=wanted)
        own = services.journal.build_receipt(
            run_id, audit=AuditRangeWanted("2000", "2999", own_only=True)
        )
        with pytest.raises(InvalidInput, match="no instant"):
            services.journal.build_receipt(run_id, audit=AuditRangeWanted("2999", "2000"))
    assert built.audit is not None
    assert (built.audit.event_count, built.audit.foreign_event_count) == (2, 1)
    assert own.audit is not None
    assert (own.audit.event_count, own.audit.foreign_event_count) == (1, 0)
    verdict = verify_receipt(Path(own.receipt_path).read_bytes())
    assert verdict.ok, verdict.errors


def old_segment(project) -> None:
    """An archived day under the project's key."""
    line = next_audit_line(
        event(0, run_id="r1"), "2020-01-01T10:00:00.000000Z", "0" * 64, mac_keys(KEY.encode())
    )
    folder = project.sdd / "audit" / "archive"
    folder.mkdir(parents=True)
    (folder / "2020-01-01.jsonl.gz").write_bytes(gzip.compress(line + b"\n"))


def test_archived_segments_are_read_continued_and_refused_when_damaged(project, key) -> None:
    old_segment(project)
    environ = {**project.environ, **with_receipt_key(project)}
    window = AuditRangeWanted("2020", "2021")
    with Services(project.sdd, environ) as services:
        run_id = recorded(services)
        services.macs.append_audit_event(event(1))
        assert services.macs.verify_audit_log().event_count == 2
        services.journal.finish_run(run_id)
        built = services.journal.build_receipt(run_id, audit=window)
        assert built.audit is not None
        assert built.audit.event_count == 1
        archive = project.sdd / "audit/archive/2020-01-01.jsonl.gz"
        good = archive.read_bytes()
        for damaged in (good[:-12] + b"\0" * 12, good[:-4], good[:40] + b"\xff" * 9 + good[49:]):
            archive.write_bytes(damaged)
            with pytest.raises(RowMalformed, match=r"archive is damaged|line 1"):
                services.journal.build_receipt(run_id, audit=window)


def test_the_command_says_aloud_that_other_runs_events_are_published(project, key) -> None:
    with project.services() as services:
        run_id = recorded(services)
        services.journal.finish_run(run_id)
        services.macs.append_audit_event(event(1, run_id="another"))
    assert command(project, "keys", "new", "k.pem").returncode == 0
    line = (
        "verify", "run", run_id, "--signing-key-path", "k.pem", "--include-audit-range",
        "--audit-since", "2000", "--audit-until", "2999",
    )  # fmt: skip
    aloud = command(project, *line)
    wanted = command(project, *line, "--all-runs")
    own = command(project, *line, "--own-events", "--json")
    assert aloud.returncode == wanted.returncode == own.returncode == 0, aloud.stderr
    assert "1 of 1 audit events do not name this run" in aloud.stderr
    assert "do not name" not in wanted.stderr
    assert "EMPTY" in own.stderr
    assert json.loads(own.stdout)["audit_events"] == 0


def test_a_missing_key_is_never_made_for_a_receipt(project) -> None:
    with project.services() as services:
        run_id = recorded(services)
    assert command(project, "keys", "new", "k.pem").returncode == 0
    ended = command(
        project, "verify", "run", run_id, "--signing-key-path", "k.pem", "--include-audit-range",
        "--audit-since", "2000", "--audit-until", "2999",
    )  # fmt: skip
    assert ended.returncode == 1
    assert "there is no audit key" in ended.stderr
    assert not key_path(project).exists()


def test_the_peers_variable_names_the_key_that_services_use(project) -> None:
    elsewhere = project.folder / "elsewhere.key"
    elsewhere.write_text(KEY)
    elsewhere.chmod(0o600)
    environ = {**project.environ, "BERNSTEIN_AUDIT_KEY_PATH": str(elsewhere)}
    with Services(project.sdd, environ) as services:
        assert services.macs.append_audit_event(event(0))
    assert not key_path(project).exists()


def test_a_spine_folder_that_leads_out_of_its_tree_is_not_followed(project, key, services) -> None:
    run_id = recorded(services)
    outside = project.folder / "outside"
    outside.mkdir()
    (project.sdd / "lineage").mkdir()
    (project.sdd / "lineage" / run_id).symlink_to(outside)
    with pytest.raises(InvalidInput, match="link"):
        services.macs.append_spine_entry(run_id, entry(0))
    assert list(outside.iterdir()) == []
    shutil.rmtree(project.sdd / "lineage")
