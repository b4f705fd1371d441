"""The golden receipts: same bytes, same refusals, same verdicts, and where ours is stricter."""

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bernstein_formats.audit_log import AuditWalk, segment_lines
from bernstein_formats.audit_range import AuditRange, AuditSelection, AuditWindow, master_mac
from bernstein_formats.canonical import Profile
from bernstein_formats.errors import BernsteinError, ChainBroken, InvalidInput, NotFound
from bernstein_formats.journal_reader import LineBlocks
from bernstein_formats.mac import mac_keys
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import (
    receipt_cose,
    receipt_cose_preimage,
    receipt_head,
    receipt_tail,
)
from bernstein_formats.receipt_verdict import ReceiptTier
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import ReceiptSignature, ReceiptSubject

FOLDER = Path(__file__).parent / "data" / "receipts"
CASES = {
    path.name: {
        **json.loads((path / "case.json").read_text()),
        "expected": json.loads((path / "expected.json").read_text()),
    }
    for path in sorted(FOLDER.iterdir())
    if path.is_dir()
}

# What they show needs the command: options, files, and how a key is loaded and named.
COMMAND_CASES = {
    "b22-kid-unicode",
    "b23-raw-seed-key",
    "b24-raw-seed-newline",
    "b25-pem-leading-space",
    "b26-env-key-escaped",
    "b27-env-key-raw-hex",
    "b28-env-fallback",
    "b29-finalise-auto",
    "b30-finalise-no-key",
    "b31-output-elsewhere",
    "b52-loose-key-permissions",
    "r43-no-key",
    "r44-both-key-options",
    "r45-audit-bounds-missing",
    "r46-key-encrypted",
    "r47-key-rsa",
    "r48-key-hex-text",
    "r49-key-openssh",
    "r50-key-empty",
    "r51-key-public",
    "r52-key-env-unset",
    "r53-key-path-missing-env",
    "r58-audit-key-group-readable",
    "v08-signed-at-without-chain",
    "w17-file-missing",
    "w18-pin-missing",
    "w19-receipt-is-folder",
}
# The peer builds these (exit 0); ours refuses, and the text holds the word.
STRICTER_BUILDS = {
    "b17-audit-window-reversed": "holds no instant",
    "b19-audit-tampered-source": "2026-03-01.jsonl, line 1: .*changed or planted",
    "b20-audit-unparsable-rows": "2026-03-01.jsonl, line 4",
    "b37-non-finite": "NaN",
    "b39-duplicate-name-in-row": "twice",
    "b40-stored-index-wrong": "index",
    "b43-truncated-against-seal": "seal",
    "b45-spine-coerced": "timestamp",
}
# The peer says ok (exit 0, or an unhandled error); ours exits so, and the text holds the word.
STRICTER_VERDICTS = {
    "f04-neutral-point-key": (1, "small order"),
    "o08-jcs-journal-nan": (1, "NaN"),
    "f10-surrogate-run-id-jcs": (1, "surrogate"),
    "v26-journal-row-index": (2, "index"),
    "v27-journal-row-payload-hash": (2, "payload_hash"),
    "v29-journal-row-ts-added": (2, "ts"),
    "v33-journal-count-float": (2, "event_count"),
    "v49-spine-extra-member": (2, "spine.entries"),
    "v50-spine-timestamp-respelled": (2, "timestamp"),
    "v65-signature-noncanonical-base64": (1, "spelling"),
    "v70-alg-none": (2, "signing.alg"),
    "v71-key-id": (2, "kid"),
    "v72-jwk-kid": (2, "kid"),
    "v78-jwk-x-padded-junk": (1, "base64url"),
    "v79-jwk-private-part": (1, "private"),
    "v91-audit-extra-member": (2, "audit_range."),
    "v92-top-level-extra": (2, "no signature covers"),
    "w11-duplicate-name-first": (1, "run_id"),
    "w12-duplicate-name-last": (1, "run_id"),
    "w13-duplicate-in-row": (1, "twice"),
    "w14-nan-extra": (1, "NaN"),
}
# Good receipts in another layout: exit 0, and 1 when the layout matters.
LAYOUT_ONLY = {"v94-hash-profile-explicit-legacy", "w02-pretty-printed", "w03-raw-utf8"}

# Good receipts with a subject.name of another run, or an old schema_version, which no signature
# covers: exit 0, and a warning that the peer does not give.
WARNED = {
    "f07-markup-run-id",
    "f08-markup-run-id-swallowed",
    "f09-surrogate-run-id",
    "f11-control-characters-run-id",
    "v16-schema-downgrade",
    "v19-subject-name",
}
# The peer's terminal formatter changes these run ids in its answer.
RUN_ID_MANGLED = {
    "f07-markup-run-id",
    "f08-markup-run-id-swallowed",
    "f09-surrogate-run-id",
}

# Bounds are compared as instants, so other events are selected than the peer's.
OTHER_BYTES = {"b15-audit-window-no-fraction": 2, "b16-audit-window-other-offset": 2}

BUILDS = sorted(name for name in CASES if (FOLDER / name / "expected").is_dir())
REFUSALS = sorted(
    name
    for name, case in CASES.items()
    if case["kind"] == "build" and case["expected"]["exit_code"] != 0 and name not in COMMAND_CASES
)
VERDICTS = sorted(
    name
    for name, case in CASES.items()
    if case["kind"] == "verify" and not name.startswith(("w17", "w18", "w19"))
)


def private_key(name: str) -> Ed25519PrivateKey:
    """TEST-ONLY keys; how a command loads them is shown with the command."""
    pem = next((FOLDER / name / "input").glob("signing-key.pem"), None)
    if pem is not None:
        key = load_pem_private_key(pem.read_bytes(), None)
        assert isinstance(key, Ed25519PrivateKey)
        return key
    seed = next((FOLDER / name / "input").glob("seed.bin"), None)
    if seed is not None:
        return Ed25519PrivateKey.from_private_bytes(seed.read_bytes()[:32])
    return private_key("b01-minimal")


def run_id_of(case) -> str:
    return str(case.get("run_id") or case["argv"][-1])


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes() if path.is_file() else b""
    return [line for block in LineBlocks([data]) for line in block]


def audit_range(name: str) -> AuditRange | None:
    """What the signer makes of the audit log, where the case asks for it."""
    argv = CASES[name].get("argv", [])
    if "--include-audit-range" not in argv:
        return None
    given = FOLDER / name / "input"
    keys = mac_keys((given / "audit.key").read_bytes())
    since, until = (argv[argv.index(f"--audit-{bound}") + 1] for bound in ("since", "until"))
    walk = AuditWalk(keys)
    selection = AuditSelection(AuditWindow.parse(since, until), run_id_of(CASES[name]))
    for segment in sorted((given / ".sdd" / "audit").glob("*.jsonl")):
        walk.begin_segment(segment.name)
        for line in segment_lines([segment.read_bytes()]):
            row = walk.add(line)
            if row is not None:
                selection.add(row)
    return selection.built(master_mac(keys))


def build(name: str) -> tuple[ReceiptBuilder, ReceiptSubject, bytes]:
    case = CASES[name]
    audit = audit_range(name)
    run_id = run_id_of(case)
    sdd = FOLDER / name / "input" / ".sdd"
    builder = ReceiptBuilder(run_id, Profile(case.get("hash_profile", "py-json-v1")))
    journal = lines_of(sdd / "runs" / run_id / "journal.jsonl")
    events = b"".join(builder.event_chunks(journal))
    for line in lines_of(sdd / "lineage" / run_id / "spine.jsonl"):
        builder.add_spine_line(line)
    subject = builder.subject()
    return builder, replace(subject, audit=audit.binding) if audit else subject, events


def test_every_case_is_run_here_or_with_the_command():
    here = {*BUILDS, *REFUSALS, *VERDICTS}
    assert here | COMMAND_CASES == set(CASES)
    assert len(CASES) == 253


@pytest.mark.parametrize("name", sorted(OTHER_BYTES))
def test_bounds_select_by_instant_not_by_letters(name):
    assert CASES[name]["stance"] == "defect"
    audit = build(name)[1].audit
    assert audit is not None
    assert audit.event_count == OTHER_BYTES[name]


@pytest.mark.parametrize(
    "name", [name for name in BUILDS if name not in {*STRICTER_BUILDS, *OTHER_BYTES}]
)
def test_a_build_gives_the_same_bytes(name):
    builder, subject, events = build(name)
    expected = FOLDER / name / "expected"
    key_id = CASES[name]["expected"]["key_id"]
    private = private_key(name)
    public = PublicKey(private.public_key().public_bytes_raw())
    signature = ReceiptSignature(key_id, public, private.sign(subject.preimage()))

    audit = audit_range(name)
    block = audit.block if audit else b""
    head = receipt_head(subject.event_count, subject.hash_profile, block)
    receipt = head + events + receipt_tail(subject, builder.spine_entries, signature)
    cose_signature = private.sign(receipt_cose_preimage(subject, key_id))
    cose = receipt_cose(subject, key_id, cose_signature)

    assert subject.binding_bytes() == (expected / "subject-binding.json").read_bytes()
    assert subject.preimage() == (expected / "pae.bin").read_bytes()
    assert receipt == (expected / "run-receipt.json").read_bytes()
    assert cose == (expected / "run-receipt.cose").read_bytes()
    assert sha256(receipt).hexdigest() == CASES[name]["expected"]["receipt_sha256"]


@pytest.mark.parametrize("name", sorted(STRICTER_BUILDS))
def test_a_build_that_the_peer_should_have_refused_is_refused(name):
    assert 1 in CASES[name]["accept_exit"]
    with pytest.raises(BernsteinError, match=STRICTER_BUILDS[name]):
        build(name)


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_names_the_facts_that_the_peers_names(name):
    expected = CASES[name]["expected"]
    with pytest.raises(BernsteinError) as caught:
        build(name)
    kind, facts = REFUSAL_KINDS[expected["error_kind"]]
    assert isinstance(caught.value, kind)
    for word, value in {**facts, **numbers_in(expected.get("peer_message", ""))}.items():
        assert caught.value.metadata[word] == value
    if name == "r59-audit-not-utf8":
        assert caught.value.metadata["segment"] == "2026-03-01.jsonl"
        return
    assert caught.value.metadata["run_id"] == run_id_of(CASES[name])


REFUSAL_KINDS: dict[str, tuple[type[BernsteinError], dict[str, str]]] = {
    "journal-empty": (NotFound, {}),
    "row-not-json": (BernsteinError, {}),
    "row-not-object": (BernsteinError, {}),
    "row-bad-index": (BernsteinError, {"member": "index"}),
    "row-bad-event": (BernsteinError, {"member": "event"}),
    "row-bad-prev-hash": (BernsteinError, {"member": "prev_hash"}),
    "row-bad-payload-hash": (BernsteinError, {"member": "payload_hash"}),
    "row-bad-event-hash": (BernsteinError, {"member": "event_hash"}),
    "journal-chain": (ChainBroken, {"substrate": "journal"}),
    "spine-row-missing-fields": (BernsteinError, {"substrate": "spine"}),
    "spine-row-bad-type": (BernsteinError, {"substrate": "spine", "member": "timestamp"}),
    "spine-version": (ChainBroken, {"substrate": "spine", "check": "version"}),
    "spine-chain": (ChainBroken, {"substrate": "spine"}),
    "run-id-unsafe": (InvalidInput, {}),
    "run-id-escapes": (InvalidInput, {}),
    "peer-unhandled": (BernsteinError, {}),
}


def numbers_in(message: str) -> dict[str, str]:
    """The peer's line and step, which are facts; its wording is not ours to match."""
    facts = {}
    if line := re.search(r"(journal|spine) line (\d+)", message):
        facts = {"substrate": line[1], "line": line[2]}
    if step := re.search(r"(?:step|spine entry) (\d+)", message):
        facts["step"] = step[1]
    return facts


def options_of(name: str) -> tuple[bytes, bytes | None, bool]:
    given = FOLDER / name / "input"
    argv = CASES[name]["argv"]
    pin = None
    if "--public-key" in argv:
        pin = (given / argv[argv.index("--public-key") + 1]).read_bytes()
    return (given / argv[2]).read_bytes(), pin, "--require-provenance" in argv


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_is_the_peers_or_one_that_is_better(name):
    receipt, pin, require_provenance = options_of(name)
    expected = CASES[name]["expected"]
    verdict = verify_receipt(receipt, pin)
    exit_code = verdict.exit_code(require_provenance=require_provenance)

    if name in STRICTER_VERDICTS:
        wanted, word = STRICTER_VERDICTS[name]
        assert wanted in CASES[name]["accept_exit"]
        assert exit_code == wanted
        assert word in verdict.errors[0]
        return
    if expected.get("error_kind") == "peer-unhandled":
        assert exit_code in CASES[name]["accept_exit"]
        return
    assert exit_code == expected["exit_code"], verdict.errors
    assert verdict.ok == expected["ok"]
    assert verdict.status == expected["status"]
    assert verdict.tier == expected["tier"]
    if name not in RUN_ID_MANGLED:
        assert verdict.run_id == expected["run_id"]
    assert verdict.journal_events == expected["journal_events"]
    assert verdict.spine_entries == expected["spine_entries"]
    assert verdict.divergent_step == expected["divergent_step"]
    assert verdict.schema_version == expected["binding_version"]
    warned = bool(expected.get("warnings")) or name in WARNED
    assert bool(verdict.warnings) == (warned and verdict.ok)
    assert len(verdict.errors) == (0 if verdict.ok else 1)
    assert bool(verdict.layout_findings) == (name in LAYOUT_ONLY)


@pytest.mark.parametrize("name", sorted(LAYOUT_ONLY))
def test_another_layout_fails_only_where_layout_matters(name):
    receipt, pin, _ = options_of(name)
    verdict = verify_receipt(receipt, pin)
    assert verdict.exit_code() == 0
    assert verdict.exit_code(strict=True) == 1


@pytest.mark.parametrize(
    "name", sorted(name for name in CASES if (FOLDER / name / "expected").is_dir())
)
def test_what_the_peer_built_verifies_with_its_cose_file(name):
    expected = FOLDER / name / "expected"
    verdict = verify_receipt(
        (expected / "run-receipt.json").read_bytes(),
        (expected / "public-key.pem").read_bytes(),
        (expected / "run-receipt.cose").read_bytes(),
    )
    if name in {"b37-non-finite", "b40-stored-index-wrong"}:
        assert not verdict.ok
        return
    assert verdict.ok, verdict.errors
    assert verdict.tier is ReceiptTier.PROVENANCE
    assert verdict.cose_verified
