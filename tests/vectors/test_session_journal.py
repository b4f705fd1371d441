"""The peer's per-step journals and receipts of them: bytes, verdicts and where they go on.

Where `peer_defect` is set, our verdict is the recommended one.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.errors import InvalidInput, JournalError, ReceiptMalformed
from bernstein_formats.public_key import PublicKey
from bernstein_formats.redaction import RedactionPolicy, redacted_rows
from bernstein_formats.session_diff import diff_steps
from bernstein_formats.session_journal import (
    StepHead,
    next_step,
    parse_step,
    step_hash,
)
from bernstein_formats.session_journal_reader import FaultKind, entries
from bernstein_formats.session_journal_verify import recover_steps, seed_rows, verify_steps
from bernstein_formats.session_receipt import ReceiptRows, receipt_parts
from bernstein_formats.session_receipt_verify import verify_session_receipt

FOLDER = Path(__file__).parent / "data" / "session-journal"
CASES = {path.parent.name: json.loads(path.read_bytes()) for path in FOLDER.glob("*/expected.json")}
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
# Refused here, taken there: no receipt of a session is ever compressed.
COMPRESSED = "097-verify-gzip"


def cases(*kinds: str) -> list[str]:
    return sorted(name for name, case in CASES.items() if case["kind"] in kinds)


def journal_of(name: str, agent_id: str | None = None) -> bytes | None:
    agent = agent_id or CASES[name]["agent_id"]
    path = FOLDER / name / "sdd" / "runtime" / "journal" / agent / "000000.jsonl"
    return path.read_bytes() if path.exists() else None


def kinds_of(faults: Any) -> list[list[Any]]:
    return [[fault.kind.value, fault.line] for fault in faults]


def test_every_case_is_of_a_kind_that_runs() -> None:
    index = json.loads((FOLDER / "index.json").read_bytes())
    kinds = {"step_hash", "append", "chain", "append_after_open", "export", "publish"}
    kinds |= {"verify_receipt", "diff", "fork", "blob_store"}
    assert len(CASES) == 160
    assert sorted(CASES) == sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
    assert {each["case"]: each["kind"] for each in index} == {
        name: case["kind"] for name, case in CASES.items()
    }
    assert {case["kind"] for case in CASES.values()} == kinds


@pytest.mark.parametrize("name", cases("step_hash"))
def test_a_step_hash_is_the_peers(name: str) -> None:
    for vector in CASES[name]["vectors"]:
        assert step_hash(vector["fields"]) == vector["step_hash"]
        assert sha256(vector["preimage"].encode()).hexdigest() == vector["step_hash"]


def appended(steps: list[dict[str, Any]], ts: list[float], head: StepHead) -> list[bytes]:
    lines = []
    for step, each in zip(steps, ts, strict=True):
        line, head = next_step(head, parse_step(json.dumps(step).encode()), each)
        lines.append(line + b"\n")
    return lines


@pytest.mark.parametrize("name", cases("append"))
def test_appended_rows_are_the_peers_byte_for_byte(name: str) -> None:
    given = json.loads((FOLDER / name / "appends.json").read_bytes())
    ts = [given["first_ts"] + n * given["ts_step"] for n in range(len(given["steps"]))]
    lines = appended(given["steps"], ts, StepHead())
    assert b"".join(lines) == (FOLDER / name / CASES[name]["file"]).read_bytes()
    assert [json.loads(line)["step_hash"] for line in lines] == CASES[name]["step_hashes"]


@pytest.mark.parametrize("name", cases("chain"))
def test_a_chain_is_judged_as_by_the_peer(name: str) -> None:
    case, journal = CASES[name], journal_of(name)
    chunks = None if journal is None else [journal]
    found = verify_steps(chunks)
    if "raises" in case["verify"]:
        assert not found.ok
        assert found.faults[0].line == 2
        recommended = case["recommended"].get("error_kinds")
        assert recommended in (None, kinds_of(found.faults))
    else:
        expected = case["verify"]
        assert (found.ok, found.head_hash, found.steps, kinds_of(found.faults)) == (
            expected["ok"], expected["head_hash"], expected["steps"], expected["error_kinds"],
        )  # fmt: skip
    for each in case["verify_with_head"]:
        found = verify_steps(chunks, each["expected_head"])
        assert (found.ok, kinds_of(found.faults)) == (
            each["result"]["ok"], each["result"]["error_kinds"],
        )  # fmt: skip


@pytest.mark.parametrize("name", cases("chain"))
def test_a_chain_is_opened_or_refused_with_the_peers_line(name: str) -> None:
    expected, journal = CASES[name]["open"], journal_of(name)
    if expected is None:
        assert journal is None
    elif "raises" in expected:
        with pytest.raises(JournalError) as refused:
            recover_steps([journal or b""], name)
        assert refused.value.metadata["line"] == str(expected["line"] or 2)
    else:
        head = recover_steps([journal or b""], name).head
        assert head == StepHead(expected["next_seq"], expected["head_hash"])


@pytest.mark.parametrize("name", cases("chain"))
def test_rows_read_to_the_peers_values(name: str) -> None:
    case, journal = CASES[name], journal_of(name)
    if "raises" in case["entries"]:
        return
    found = list(entries([journal or b""]))
    assert len(found) == case["entries"]["count"]
    if case["view"] and case["view"]["json"]:
        assert found == case["view"]["json"]["entries"]


@pytest.mark.parametrize("name", cases("append_after_open"))
def test_a_journal_that_a_crash_left_is_extended_and_loses_nothing(name: str) -> None:
    journal = journal_of(name) or b""
    wanted = CASES[name].get("recommended") or {}
    recovered = recover_steps([journal], name)
    kept = journal[: recovered.size] + (b"\n" if recovered.newline_missing else b"")
    steps = json.loads((FOLDER / name / "appends.json").read_bytes())["steps"]
    whole = kept + b"".join(appended(steps, [0.0] * len(steps), recovered.head))
    assert recovered.head.seq == wanted["kept_rows"]
    found = verify_steps([whole])
    assert (found.ok, found.steps, found.head_hash) == (
        True, wanted["rows"], wanted["verify"]["head_hash"],
    )  # fmt: skip
    assert recover_steps([whole], name).head == StepHead(
        wanted["reopen"]["next_seq"], wanted["reopen"]["head_hash"]
    )


# --- receipts ---------------------------------------------------------------------------------


def built(lines: list[bytes], rows: ReceiptRows, name: str) -> bytes:
    """The archive that these lines make, with the vectors' clock, key and blobs."""
    case = CASES[name]
    manifest = rows.manifest(case["agent_id"], "2023-11-14T22:13:20Z", "3.23.0")
    is_signed = case.get("result", {}).get("signed", False)
    signature = SIGNING_KEY.sign(manifest.signed_bytes()) if is_signed else b""
    blobs = [
        (digest, blob.read_bytes())
        for digest in manifest.blob_digests
        if (blob := FOLDER / name / "cas" / digest[:2] / digest).exists()
    ]
    journal = b"".join(lines)
    parts = receipt_parts(manifest, signature, (len(journal), [journal]), blobs, 1_700_000_000)
    return b"".join(parts)


@pytest.mark.parametrize("name", [name for name in cases("export") if "tar" in CASES[name]])
def test_an_export_is_the_peers_byte_for_byte(name: str) -> None:
    rows = ReceiptRows()
    lines = list(rows.lines([journal_of(name) or b""]))
    archive = built(lines, rows, name)
    assert archive == (FOLDER / name / "expected.tar").read_bytes()
    assert sha256(archive).hexdigest() == CASES[name]["tar"]["sha256"]


@pytest.mark.parametrize("name", ["061-export-empty", "062-export-torn", "063-export-tampered"])
def test_a_journal_that_does_not_verify_is_not_exported(name: str) -> None:
    with pytest.raises(JournalError):
        list(ReceiptRows().lines([journal_of(name) or b""]))


@pytest.mark.parametrize("name", [name for name in cases("publish") if "tar" in CASES[name]])
def test_a_redacted_receipt_is_the_peers_byte_for_byte(name: str) -> None:
    case = CASES[name]
    policy = RedactionPolicy(
        frozenset(case.get("redact_fields", ("prompt", "tool_result"))), keep_input_hash=True
    )
    rows = ReceiptRows()
    lines = list(redacted_rows(entries([journal_of(name) or b""]), policy))
    again = list(rows.lines(lines))
    assert [json.loads(line) for line in lines] == case.get(
        "redacted_rows", [json.loads(line) for line in again]
    )
    assert built(again, rows, name) == (FOLDER / name / "expected.tar").read_bytes()
    assert list(redacted_rows(entries(lines), policy)) == lines


@pytest.mark.parametrize("name", ["120-publish-illegal-field", "121-publish-effort-field"])
def test_members_on_which_the_chain_rests_are_not_redacted(name: str) -> None:
    with pytest.raises(InvalidInput):
        RedactionPolicy(frozenset(CASES[name]["redact_fields"]))


@pytest.mark.parametrize("name", cases("verify_receipt"))
def test_a_receipt_is_judged_as_by_the_peer_or_more_strictly(name: str) -> None:
    case = CASES[name]
    path = FOLDER / name / "receipt.tar"
    if not path.exists():
        assert case["library"]["message"].startswith("receipt not found")
        return
    key = case["public_key"]
    pinned = PublicKey((FOLDER / name / key).read_bytes()) if key else None
    recommended = case.get("recommended", {})
    wanted_ok = recommended.get("ok", case["library"].get("ok", False))
    if name == COMPRESSED:
        wanted_ok = False
    try:
        found = verify_session_receipt(path.read_bytes(), pinned)
    except ReceiptMalformed:
        assert not wanted_ok
        stricter = {"091", "092", "093", "094", "095", "075", COMPRESSED[:3]}
        assert case["library"].get("raises") == "ReceiptError" or name[:3] in stricter
        return
    assert found.ok == wanted_ok
    if "recommended" not in case:
        assert (found.head_hash, found.steps, found.signed, kinds_of(found.faults)) == (
            case["library"]["head_hash"],
            case["library"]["steps"],
            case["library"]["signed"],
            case["library"]["error_kinds"],
        )
    for each in case["library_with_head"]:
        again = verify_session_receipt(path.read_bytes(), pinned, each["expected_head"])
        assert kinds_of(again.faults) == each["result"]["error_kinds"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("105-verify-signature-stripped", FaultKind.SIGNATURE_MISSING),
        ("106-verify-signature-bad-base64", FaultKind.SIGNATURE_BAD),
        ("086-verify-journal-seq-text", FaultKind.SEQ),
    ],
)
def test_what_the_peer_lets_pass_or_dies_of_is_named(name: str, kind: FaultKind) -> None:
    key = FOLDER / name / "public-key.raw"
    pinned = PublicKey(key.read_bytes()) if key.exists() else None
    found = verify_session_receipt((FOLDER / name / "receipt.tar").read_bytes(), pinned)
    assert kind in [fault.kind for fault in found.faults]


# --- difference, fork -------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases("diff"))
def test_two_chains_part_where_the_peer_says(name: str) -> None:
    case = CASES[name]
    left, right = (journal_of(name, side) for side in ("left", "right"))
    if case["cli"]["json"] is None:
        assert right is None
        return
    found = diff_steps(entries([left or b""]), entries([right or b""]))
    wanted = case.get("recommended") or case["cli"]["json"]
    assert (found is not None) == wanted["diverged"]
    if found is not None and "seq" in wanted:
        assert {"diverged": True, **found.as_json()} == wanted
    elif found is not None:
        assert list(found.fields_changed) == wanted["fields_changed"]


@pytest.mark.parametrize(
    "name", [name for name in cases("fork") if CASES[name].get("fork_journal")]
)
def test_a_forks_first_rows_are_the_peers_byte_for_byte(name: str) -> None:
    case = CASES[name]
    journal = FOLDER / name / "dot-sdd/runtime/journal" / case["session_id"] / "000000.jsonl"
    step = next(
        int(case["cli"]["argv"][at + 1])
        for at, word in enumerate(case["cli"]["argv"])
        if word == "--from-step"
    )
    rows: list[bytes] = []
    head = seed_rows([journal.read_bytes()], step, name, rows.append)
    wanted = case["fork_journal"]
    assert sha256(b"".join(rows)).hexdigest() == wanted["sha256"]
    assert head == StepHead(wanted["next_seq"], wanted["head_hash"])
    child = case["first_child_step"]
    line, _ = next_step(head, child["input"], 0.0)
    assert json.loads(line)["step_hash"] == child["step_hash"]
