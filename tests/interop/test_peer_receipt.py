"""The same run and key give the peer's receipt byte for byte, and the peer verifies ours."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bernstein_formats.canonical import Profile
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import (
    receipt_cose,
    receipt_cose_preimage,
    receipt_head,
    receipt_tail,
)
from bernstein_formats.run_receipt import COSE_FILE, RECEIPT_FILE, ReceiptSignature

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY_ID = "interop"
REAL_RUN = Path(__file__).parents[1] / "vectors" / "data" / "real-run" / "sdd"
REAL_RUN_IDS = sorted(path.name for path in (REAL_RUN / "runs").iterdir())
PROFILES = [Profile.PY_JSON, Profile.JCS]

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def key_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    path.write_bytes(
        KEY.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture(scope="module")
def public_path(key_path: Path) -> Path:
    path = key_path.with_name("public.pem")
    path.write_bytes(
        KEY.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return path


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def our_receipt(sdd_dir: Path, run_id: str, profile: Profile) -> tuple[bytes, bytes]:
    """Build what the journal and the signer build together: the receipt and its COSE sibling."""
    builder = ReceiptBuilder(run_id, profile)
    lines = lines_of(sdd_dir / "runs" / run_id / "journal.jsonl")
    chunks = list(builder.event_chunks(lines))
    for line in lines_of(sdd_dir / "lineage" / run_id / "spine.jsonl"):
        builder.add_spine_line(line)
    subject = builder.subject()
    key = PublicKey(KEY.public_key().public_bytes_raw())
    signature = ReceiptSignature(KEY_ID, key, KEY.sign(subject.preimage()))
    tail = receipt_tail(subject, builder.spine_entries, signature)
    receipt = receipt_head(subject.event_count, profile) + b"".join(chunks) + tail
    cose_signature = KEY.sign(receipt_cose_preimage(subject, KEY_ID))
    return receipt, receipt_cose(subject, KEY_ID, cose_signature)


def peer_receipt(
    peer: Any, sdd_dir: Path, run_id: str, profile: Profile, *, key_path: Path, folder: Path
) -> tuple[bytes, bytes]:
    request = {
        "receipt": run_id,
        "sdd_dir": str(sdd_dir),
        "profile": profile.value,
        "key": str(key_path),
        "key_id": KEY_ID,
        "output": str(folder / RECEIPT_FILE),
    }
    peer.ask(request)
    return (folder / RECEIPT_FILE).read_bytes(), (folder / COSE_FILE).read_bytes()


def random_event(random: Random, number: int) -> tuple[str, dict[str, object]]:
    if random.random() < 0.5:
        return "tick_start", {"tick": number, "note": random.choice(["", "naïve", "😀", "\x7f\n"])}
    endpoint = {
        "adapter": random.choice(["mock", "claude", "é"]),
        "model": random.choice(["m1", "m2", ""]),
        "base_url": random.choice(["", "http://127.0.0.1:1/v1"]),
        "profile": random.choice(["", "p"]),
    }
    members = {name: value for name, value in endpoint.items() if random.random() < 0.9}
    return "agent_spawned", {"agent_id": f"a-{number}", "cost": random.random(), **members}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(10))
def test_receipts_of_random_runs_are_byte_identical(
    peer: Any, tmp_path: Path, key_path: Path, seed: int, profile: Profile
) -> None:
    random = Random(seed)  # noqa: S311 - repeatable cases, no secrets
    events = [random_event(random, number) for number in range(random.randint(1, 12))]
    sealed = "ab" * 32 if seed % 2 else None
    request = {"sdd_dir": str(tmp_path), "profile": profile.value, "events": events}
    peer.ask({"record": "run-1", "hmac_key": sealed, **request})
    assert bool(sealed) == (tmp_path / "lineage" / "run-1" / "spine.jsonl").exists()
    theirs = peer_receipt(peer, tmp_path, "run-1", profile, key_path=key_path, folder=tmp_path)
    assert theirs == our_receipt(tmp_path, "run-1", profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("run_id", REAL_RUN_IDS)
def test_receipts_of_the_peers_own_run_are_byte_identical(
    peer: Any, tmp_path: Path, key_path: Path, run_id: str, profile: Profile
) -> None:
    theirs = peer_receipt(peer, REAL_RUN, run_id, profile, key_path=key_path, folder=tmp_path)
    assert theirs == our_receipt(REAL_RUN, run_id, profile)


@pytest.mark.parametrize("run_id", REAL_RUN_IDS)
def test_the_peer_verifies_our_receipt_with_its_key_pinned(
    peer: Any, tmp_path: Path, public_path: Path, run_id: str
) -> None:
    path = tmp_path / RECEIPT_FILE
    path.write_bytes(our_receipt(REAL_RUN, run_id, Profile.PY_JSON)[0])
    done = peer.run("verify", "receipt", path, "--public-key", public_path, "--json")
    verdict = json.loads(done.stdout)
    assert (done.exit, verdict["status"], verdict["tier"]) == (0, "ok", "provenance")
