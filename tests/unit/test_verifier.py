"""The verifier's files and answers: folders, siblings, pinned runs, journals, archives."""

import json
import mmap
import os
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bernstein_formats import receipt_read
from bernstein_formats.canonical import Profile
from bernstein_formats.event_journal import event_hash, payload_hash
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_head, receipt_tail
from bernstein_formats.run_receipt import ReceiptSignature
from bernstein_formats.seal import NO_ENTRY_HASH, Entry, EntryBody, Seal
from bernstein_formats.session_archive import end_bytes, members
from bernstein_verify import questions
from bernstein_verify.__main__ import main
from bernstein_verify.questions import Question
from bernstein_verify.receipts import check_receipt, receipts_in, worst_exit_code

DATA = Path(__file__).parents[1] / "vectors" / "data"
GOOD = DATA / "receipts" / "b02-journal-and-spine" / "expected"
OF_ANOTHER = DATA / "receipts" / "b01-minimal" / "expected" / "run-receipt.cose"
RUN_ID = "run-2026-03-01-a"
PEM, SPKI = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
JOURNAL = DATA / "event-journal" / "157-cli" / "sdd" / "runs" / "ok" / "journal.jsonl"


def a_journal(payloads):
    head, lines = "", []
    for index, payload in enumerate(payloads):
        digest = payload_hash({"event": "x", **payload}, "x", Profile.PY_JSON)
        link = event_hash(head, "x", digest, index, Profile.PY_JSON)
        row = {"index": index, "event": "x", **payload, "prev_hash": head}
        lines.append(json.dumps({**row, "payload_hash": digest, "event_hash": link}).encode())
        head = link
    return lines


def a_receipt(lines):
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    builder = ReceiptBuilder("r", event_count=len(lines))
    events = b"".join(builder.event_chunks(lines))
    subject, public = builder.subject(), PublicKey(key.public_key().public_bytes_raw())
    signature = ReceiptSignature("k", public, key.sign(subject.preimage()))
    return receipt_head(len(lines)) + events + receipt_tail(subject, (), signature)


@pytest.fixture
def verifier(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bernstein-verify", *map(str, arguments)])
        try:
            code = main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def good(tmp_path):
    """A receipt with its COSE file, in a folder of a run."""
    folder = tmp_path / "runs" / RUN_ID
    folder.mkdir(parents=True)
    for name in ("run-receipt.json", "run-receipt.cose"):
        shutil.copy(GOOD / name, folder / name)
    return folder / "run-receipt.json"


def answer(done):
    assert "Traceback" not in done[2]
    return json.loads(done[1])


def test_the_cose_file_beside_a_receipt_is_verified_with_it(verifier, good):
    done = verifier("receipt", good, "--json")
    assert (done[0], answer(done)["cose_verified"]) == (0, True)
    good.with_name("run-receipt.cose").unlink()
    done = verifier("receipt", good, "--json")
    assert (done[0], answer(done)["cose_verified"]) == (0, False)


@pytest.mark.parametrize("name", ["run-receipt.json", "another.json"])
def test_garbage_beside_a_receipt_is_a_finding(verifier, good, name):
    receipt = good.rename(good.with_name(name))
    good.with_name("run-receipt.cose").write_bytes(b"garbage")
    done = verifier("receipt", receipt, "--json")
    assert (done[0], answer(done)["status"]) == (2, "tampered")


def test_the_cose_file_of_another_receipt_fails_only_where_it_must_be_its_own(verifier, good):
    shutil.copy(OF_ANOTHER, good.with_name("run-receipt.cose"))
    assert verifier("receipt", good)[0] == 2
    done = verifier("receipt", good.rename(good.with_name("another.json")), "--json")
    assert (done[0], answer(done)["cose_verified"]) == (0, False)
    assert "another receipt" in answer(done)["warnings"][0]


def test_a_receipt_of_another_name_has_a_cose_file_of_that_name(verifier, good):
    receipt = good.rename(good.with_name("another.json"))
    shutil.copy(OF_ANOTHER, good.with_name("another.cose"))
    assert verifier("receipt", receipt)[0] == 2
    shutil.copy(GOOD / "run-receipt.cose", good.with_name("another.cose"))
    shutil.copy(OF_ANOTHER, good.with_name("run-receipt.cose"))
    done = verifier("receipt", receipt, "--json")
    assert (done[0], answer(done)["cose_verified"], answer(done)["warnings"]) == (0, True, [])


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda at: at.symlink_to("nowhere")])
def test_a_cose_file_that_cannot_be_read_fails_and_hides_nothing(verifier, good, make):
    cose = good.with_name("run-receipt.cose")
    cose.unlink()
    make(cose)
    done = verifier("receipt", good, "--json")
    found = answer(done)
    assert (done[0], found["status"], found["tier"]) == (1, "malformed", None)
    assert (found["run_id"], found["journal_events"]) == (RUN_ID, 4)
    assert "run-receipt.cose" in found["errors"][0]
    good.write_bytes(good.read_bytes().replace(b"run_started", b"run_stopped", 1))
    done = verifier("receipt", good, "--json")
    assert (done[0], answer(done)["status"]) == (2, "tampered")
    assert "run-receipt.cose" in answer(done)["warnings"][0]


def test_the_run_of_a_receipt_can_be_demanded(verifier, good):
    assert verifier("receipt", good, "--expect-run", RUN_ID)[0] == 0
    done = verifier("receipt", good, "--expect-run", "another", "--json")
    assert (done[0], answer(done)["findings"][0]["reason"]) == (2, "run_unexpected")


def test_a_folder_is_verified_in_one_go_and_the_worst_verdict_counts(verifier, good, tmp_path):
    runs = tmp_path / "runs"
    assert verifier("receipt", runs)[0] == 0
    for name, change in {"malformed": b"", "tampered": b"run_stopped"}.items():
        (runs / name).mkdir()
        changed = good.read_bytes().replace(b"run_started", change, 1) if change else b"{"
        (runs / name / "run-receipt.json").write_bytes(changed)
        (runs / name / "seal.json").write_bytes(b"not a receipt")
    done = verifier("receipt", runs, "--json")
    found = answer(done)
    assert (done[0], found["exit_code"], found["ok"]) == (2, 2, False)
    assert [each["exit_code"] for each in found["receipts"]] == [1, 0, 2]
    told = verifier("receipt", runs)
    assert told[1].splitlines()[-1] == "3 receipt(s), 2 not verified"


def test_a_folder_of_receipts_takes_every_json_file_for_one(good, tmp_path):
    flat = tmp_path / "flat"
    (flat / "sub").mkdir(parents=True)
    for name in ("b.json", "a.json", "sub/run-receipt.json", "sub/other.json", "notes.txt"):
        shutil.copy(good, flat / name)
    (flat / "link.json").symlink_to(good)
    names = [str(Path(path).relative_to(flat)) for path in receipts_in(str(flat))]
    assert names == ["a.json", "b.json", "sub/run-receipt.json"]
    assert receipts_in(str(good.parent)) == [str(good)]


def test_what_cannot_be_read_in_a_folder_is_not_passed_over(verifier, good, tmp_path, monkeypatch):
    flat = tmp_path / "flat"
    (flat / "closed").mkdir(parents=True)
    shutil.copy(good, flat / "a.json")
    os.mkfifo(flat / "pipe.json")
    look = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(os, "scandir", scandir)
    names = [Path(path).name for path in receipts_in(str(flat))]
    assert names == ["a.json", "closed", "pipe.json"]
    found = answer(verifier("receipt", flat, "--json"))
    assert [each["ok"] for each in found["receipts"]] == [True, False, False]
    assert found["exit_code"] == 1


def test_a_folder_without_receipts_is_malformed(verifier, tmp_path):
    done = verifier("receipt", tmp_path, "--json")
    assert (done[0], answer(done)["status"]) == (1, "malformed")


def test_rows_are_read_from_the_file_and_dropped(tmp_path, monkeypatch):
    """Whatever its size: the file is mapped, and no more than a row of it is held."""
    monkeypatch.setattr(questions, "_KEPT_BYTES", mmap.ALLOCATIONGRANULARITY)
    monkeypatch.setattr(receipt_read, "_WINDOW_BYTES", 16)
    path = tmp_path / "large.json"
    payload = "y" * 8000
    journal = a_journal(
        [{"text": payload, "list": [{"a": 1}, {"b": number}]} for number in range(500)]
    )
    path.write_bytes(a_receipt(journal))
    assert path.stat().st_size > 4_000_000
    check_receipt(str(path), Question())  # loads what is loaded once
    tracemalloc.start()
    checked = check_receipt(str(path), Question())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert checked.exit_code == 0
    assert peak < 1_000_000


@pytest.mark.parametrize("needs", ["--public-key", "--key-chain"])
def test_a_key_chain_without_its_root_is_wrong_usage_for_a_folder(verifier, good, needs):
    chain = DATA / "key-chain" / "k40-no-pin" / "input" / "key-chain.json"
    done = verifier("receipt", good.parent, "--key-chain", chain, "--json")
    assert (done[0], done[1]) == (2, "")
    assert needs in done[2]


def test_a_run_cannot_be_demanded_of_a_folder(verifier, tmp_path):
    assert verifier("receipt", tmp_path, "--expect-run", RUN_ID)[0] == 2


@pytest.mark.parametrize(
    ("codes", "worst"), [([0, 0], 0), ([0, 3], 3), ([3, 1], 1), ([1, 4, 0], 4), ([4, 2, 1], 2)]
)
def test_forged_is_worse_than_distrusted_and_that_is_worse_than_malformed(codes, worst):
    assert worst_exit_code(codes) == worst


@pytest.mark.parametrize(
    "arguments",
    [
        ["receipt", "none.json"],
        ["receipt", "bad\0name"],
        ["receipt", GOOD / "run-receipt.json", "--public-key", "none.pem"],
        ["journal", "none.jsonl"],
        ["journal", JOURNAL, "--seal", "none.json"],
        ["key-chain", "none.json"],
        ["archive", "none.tar"],
    ],
)
def test_a_file_that_is_not_there_is_named_in_one_line(verifier, arguments):
    done = verifier(*arguments, "--json")
    assert done[0] == 1
    assert answer(done)
    assert done[2].count("\n") == 1


def test_what_is_wrong_with_a_command_line_is_one_line_that_a_terminal_only_shows(verifier):
    code, out, err = verifier("receipt", "r.json", "\x1b[2J\nOK (provenance)")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "bernstein-verify: unrecognized arguments: \\x1b[2J\\nOK"
    )
    assert err.replace("\n", "").isprintable()


def test_each_program_gives_its_own_name(verifier):
    assert verifier("receipt", "none.json")[2].startswith("bernstein-verify: cannot read none.json")


def test_a_journal_is_verified_with_what_it_lacks_said(verifier, tmp_path):
    done = verifier("journal", JOURNAL, "--json")
    assert (done[0], answer(done)["identity"]) == (0, "unverifiable")
    assert "--seal" in done[2]
    changed = tmp_path / "journal.jsonl"
    changed.write_bytes(JOURNAL.read_bytes().replace(b"hotel-1", b"hotel-2", 1))
    assert verifier("journal", changed)[0] == 1


@pytest.fixture
def seal(tmp_path):
    """A seal over the good journal, and the public half of its key."""
    found, key = verify_journal([JOURNAL.read_bytes()]), Ed25519PrivateKey.generate()
    body = EntryBody(
        0, NO_ENTRY_HASH, "h:/p", "ok", found.count, found.head, "2026-03-01T10:00:00Z"
    )
    public = PublicKey(key.public_key().public_bytes_raw())
    made = tmp_path / "seal.json"
    made.write_bytes(Seal(Entry(body, key.sign(body.preimage())), public).file_bytes())
    pem = tmp_path / "key.pem"
    pem.write_bytes(key.public_key().public_bytes(PEM, SPKI))
    return made, pem


def test_a_seals_key_is_said_to_be_pinned_or_only_carried_and_can_be_demanded(verifier, seal):
    made, pem = seal
    ask = ["journal", JOURNAL, "--seal", made]
    carried, pinned = verifier(*ask, "--json"), verifier(*ask, "--public-key", pem, "--json")
    for done, is_pinned in ((carried, False), (pinned, True)):
        found = answer(done)
        assert (done[0], found["identity"], found["pinned_key"]) == (0, "verified", is_pinned)
    assert answer(verifier("journal", JOURNAL, "--json"))["pinned_key"] is None
    assert "\nnot pinned: " in verifier(*ask)[1]
    assert "\npinned: " in verifier(*ask, "--public-key", pem)[1]
    assert verifier(*ask, "--require-provenance")[0] == 3
    assert verifier("journal", JOURNAL, "--require-provenance")[0] == 3
    assert verifier(*ask, "--public-key", pem, "--require-provenance")[0] == 0


def test_an_archive_says_whether_a_key_was_pinned(verifier):
    done = verifier("archive", F18 / "good.tar", "--json")
    assert (done[0], answer(done)["pinned_key"]) == (0, False)
    assert verifier("archive", F18 / "good.tar", "--require-provenance")[0] == 3


F18 = DATA / "field" / "F18"


@pytest.mark.parametrize("name", sorted(path.name for path in F18.glob("*.tar")))
def test_an_archive_is_verified_and_what_is_wrong_with_it_said(verifier, name):
    done = verifier("archive", F18 / name, "--json")
    found = answer(done)
    assert done[0] == (0 if name in {"good.tar", "blob_missing.tar"} else 1)
    assert found.get("ok", False) == (done[0] == 0)
    told = verifier("archive", F18 / name)[1].partition(" (")[0]
    if name == "blob_missing.tar":
        assert (told, len(found["missing_blobs"])) == ("CHAIN OK, NOT ALL THERE", 1)
    elif done[0] == 0:
        assert (told, found["unauthenticated"][0]) == ("OK", "agent_id")


def rewritten(archive, order, mode="600"):
    """The members again in another order, or with other headers."""
    parts = [archive[each.start - 512 : each.start + each.size + -each.size % 512]
             for each in members(archive)]  # fmt: skip
    body = b"".join(parts[at] for at in order)
    if mode != "600":
        body = body.replace(b"0000600", b"0000%b" % mode.encode(), 1)
        total = sum(body[:148]) + 8 * 32 + sum(body[156:512])
        body = body[:148] + b"%06o\0 " % total + body[156:]
    return body + end_bytes(len(body))


@pytest.mark.parametrize(("order", "mode"), [([0, 2, 1], "600"), ([1, 0, 2], "600"),
                                             ([0, 1, 2], "644")])  # fmt: skip
def test_an_archive_that_was_written_anew_says_so(verifier, tmp_path, order, mode):
    good, other = F18 / "good.tar", tmp_path / "other.tar"
    assert answer(verifier("archive", good, "--json"))["layout_findings"] == []
    other.write_bytes(rewritten(good.read_bytes(), order, mode))
    done = verifier("archive", other, "--json")
    assert (done[0], answer(done)["ok"]) == (0, True)
    assert "not those that were exported" in answer(done)["layout_findings"][0]
    assert "not those that were exported" in verifier("archive", other)[1]


HEAVY = {"asyncio", "click", "grpc", "http", "rich", "socket", "ssl", "tempfile", "yaml"}
ASKED = """
import sys
sys.argv = ["bernstein-verify", "receipt", *sys.argv[1:]]
from bernstein_formats.session_archive import end_bytes, members
from bernstein_verify.__main__ import main
code = main()
print(code, *sorted(name for name in sys.modules if "." not in name or "serialization" in name))
"""


def test_verifying_loads_nothing_that_takes_long():
    """What its start must not wait for, since auditors run it once a receipt."""
    receipt, pin = GOOD / "run-receipt.json", GOOD / "public-key.pem"
    command = [sys.executable, "-c", ASKED, str(receipt), "--public-key", str(pin)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0"
    assert not HEAVY.intersection(modules)
    assert "cryptography.hazmat.primitives.serialization" not in modules
