"""Appending rows with a MAC: once a request, behind whatever stands last, and nothing half-made."""

import gzip
import json
from pathlib import Path

import pytest

from bernstein_formats.audit_log import AuditFields, AuditWalk, segment_lines
from bernstein_formats.errors import (
    Broken,
    ChainBroken,
    Conflict,
    InvalidInput,
    JournalError,
    RowMalformed,
    Unavailable,
)
from bernstein_formats.mac import mac_keys
from bernstein_formats.spine import SpineFields
from bernstein_formats.spine_verify import verify_spine
from bernstein_journal.audit_files import AuditFiles
from bernstein_journal.audit_log import AuditLog
from bernstein_journal.signer import MadeSpineRow
from bernstein_journal.spine_log import SpineLogs
from bernstein_signer.mac_rows import make_audit_row, make_spine_row
from bernstein_store.files import FileStore

KEYS = mac_keys(b"5f" * 32)


class NearSigner:
    """The signer's functions without its process."""

    away = False

    def make_spine_row(self, line: bytes, count: int, fields: SpineFields) -> MadeSpineRow:
        if self.away:
            raise Unavailable("away")
        made = make_spine_row(line, count, fields, KEYS)
        return MadeSpineRow(made.line, made.head_json)

    def make_audit_row(self, line: bytes, timestamp: str, fields: AuditFields) -> bytes:
        if self.away:
            raise Unavailable("away")
        return make_audit_row(line, timestamp, fields, KEYS)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


@pytest.fixture
def signer() -> NearSigner:
    return NearSigner()


def entry(number: int) -> SpineFields:
    return SpineFields(f"p{number}", "sha256:0", "a", f"s{number}", "", number)


def event(number: int) -> AuditFields:
    return AuditFields("x", "a", "task", f"T-{number}")


def checked(store: FileStore) -> list[str]:
    """Resource ids of all events, which verify."""
    files, walk = AuditFiles(store), AuditWalk(KEYS)
    found: list[str] = []
    for segment in files.segments():
        walk.begin_segment(segment.name)
        for line in segment_lines(files.read(segment)):
            row = walk.add(line)
            found += [] if row is None else [str(row["resource_id"])]
    return found


def test_a_request_appends_once_also_after_a_restart(store, signer):
    for _ in range(2):
        logs = SpineLogs(store, lambda: signer)
        log = AuditLog(store, lambda: signer)
        first = logs.append("r", entry(1), "one")
        assert logs.append("r", entry(1), "one") == first
        assert log.append(event(1), "2026-03-01T10:00:00.000000Z", "one")
        logs.append("r", entry(2), "two")
    assert verify_spine(store.read("lineage/r/spine.jsonl"), KEYS).count == 2
    assert checked(store) == ["T-1"]


def test_nothing_is_made_while_the_signer_is_away(store, signer, tmp_path):
    signer.away = True
    with pytest.raises(Unavailable):
        SpineLogs(store, lambda: signer).append("r", entry(1), "one")
    with pytest.raises(Unavailable):
        AuditLog(store, lambda: signer).append(event(1), "2026-03-01T10:00:00.000000Z", "one")
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == [".chain.lock", ".spine.lock"]


def test_a_late_event_follows_in_the_newest_segment(store, signer):
    log = AuditLog(store, lambda: signer)
    log.append(event(1), "2026-03-02T10:00:00.000000Z", "one")
    log.append(event(2), "2026-03-01T10:00:00.000000Z", "two")
    assert store.names("audit") == [".chain.lock", "2026-03-02.jsonl"]
    assert checked(store) == ["T-1", "T-2"]


def test_the_chain_runs_on_from_an_archive_and_over_empty_segments(store, signer, tmp_path):
    log = AuditLog(store, lambda: signer)
    log.append(event(1), "2026-03-01T10:00:00.000000Z", "one")
    live = tmp_path / "audit/2026-03-01.jsonl"
    archive = tmp_path / "audit/archive/2026-03-01.jsonl.gz"
    archive.parent.mkdir()
    archive.write_bytes(gzip.compress(live.read_bytes() + b"\n"))
    live.unlink()
    (tmp_path / "audit/2026-03-02.jsonl").write_bytes(b"\n\n")
    log.append(event(2), "2026-03-03T10:00:00.000000Z", "two")
    assert checked(store) == ["T-1", "T-2"]


def test_a_day_that_was_packed_gets_no_second_file_that_would_hide_it(store, signer, tmp_path):
    log = AuditLog(store, lambda: signer)
    log.append(event(1), "2026-03-01T10:00:00.000000Z", "one")
    live = tmp_path / "audit/2026-03-01.jsonl"
    archive = tmp_path / "audit/archive/2026-03-01.jsonl.gz"
    archive.parent.mkdir()
    archive.write_bytes(gzip.compress(live.read_bytes()))
    live.unlink()
    with pytest.raises(Conflict, match=r"packed into .*2026-03-01\.jsonl\.gz.*unpack it"):
        log.append(event(2), "2026-03-01T11:00:00.000000Z", "two")
    assert not live.exists()
    log.append(event(2), "2026-03-02T00:00:00.000000Z", "two")
    assert checked(store) == ["T-1", "T-2"]


def test_a_long_last_line_is_found(store, signer):
    log = AuditLog(store, lambda: signer)
    big = AuditFields("x", "a", "task", "big", {"text": "x" * 200_000})
    log.append(big, "2026-03-01T10:00:00.000000Z", "one")
    log.append(event(2), "2026-03-01T10:00:00.000000Z", "two")
    assert checked(store) == ["big", "T-2"]


@pytest.mark.parametrize(
    "damage",
    [b'{"torn', b"garbage\n", b"\xff\n", b"[" * 5000 + b"\n", b'{"a":' + b"9" * 5000 + b"}\n"],
)
def test_nothing_is_appended_behind_damage(store, signer, tmp_path, damage):
    spines, log = SpineLogs(store, lambda: signer), AuditLog(store, lambda: signer)
    for path in (tmp_path / "lineage/r/spine.jsonl", tmp_path / "audit/2026-03-01.jsonl"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(damage)
    with pytest.raises(JournalError, match="spine cannot be continued"):
        spines.append("r", entry(1), "one")
    with pytest.raises((JournalError, RowMalformed)):
        log.append(event(1), "2026-03-01T10:00:00.000000Z", "one")
    assert (tmp_path / "audit/2026-03-01.jsonl").read_bytes() == damage


def test_nothing_is_appended_behind_a_planted_row(store, signer, tmp_path):
    log, spines = AuditLog(store, lambda: signer), SpineLogs(store, lambda: signer)
    log.append(event(1), "2026-03-01T10:00:00.000000Z", "one")
    spines.append("r", entry(1), "one")
    audit, spine = tmp_path / "audit/2026-03-01.jsonl", tmp_path / "lineage/r/spine.jsonl"
    audit.write_bytes(audit.read_bytes().replace(b'"T-1"', b'"T-7"'))
    row = {**json.loads(spine.read_bytes()), "hmac": "0" * 64}
    spine.write_bytes(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    for append in (
        lambda: log.append(event(2), "2026-03-01T10:00:00.000000Z", "two"),
        lambda: spines.append("r", entry(2), "two"),
    ):
        with pytest.raises(ChainBroken, match="another key"):
            append()


@pytest.mark.parametrize("run_id", ["..a", "...", "a/b", ""])
def test_a_run_id_that_names_no_spine_is_refused(store, signer, run_id):
    with pytest.raises(InvalidInput):
        SpineLogs(store, lambda: signer).append(run_id, entry(1), "one")


@pytest.mark.parametrize("cut", [5, 20, -1, -9])
def test_an_archive_that_is_cut_short_is_never_taken_for_a_whole_one(store, tmp_path, cut):
    path = tmp_path / "audit/archive/2020-01-01.jsonl.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(b"line\n" * 100_000)[:cut])
    files = AuditFiles(store)
    with pytest.raises(Broken, match="damaged"):
        list(files.read(files.segments()[0]))


def test_an_archive_of_several_members_is_read_whole(store, tmp_path):
    path = tmp_path / "audit/archive/2020-01-01.jsonl.gz"
    path.parent.mkdir(parents=True)
    content = b"0" * 3_000_000
    path.write_bytes(gzip.compress(content) + gzip.compress(b"end\n"))
    files = AuditFiles(store)
    assert b"".join(files.read(files.segments()[0])) == content + b"end\n"
