"""The golden key chains: same verdicts, same refusals, same bytes, and where ours is stricter."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bernstein_cli.main import main as bernstein_main
from bernstein_formats.errors import BernsteinError, ChainBroken, InvalidInput
from bernstein_formats.instants import parse_instant
from bernstein_formats.key_chain import KeyChain, entry_preimage
from bernstein_formats.key_chain_build import extended, new_key_chain, revocation, succession
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import parse_jwk
from bernstein_formats.receipt_trust import ChainEvidence
from bernstein_formats.receipt_verdict import ReceiptStatus, ReceiptVerdict
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_verify.__main__ import main as verifier_main

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "key-chain"
FIELD = DATA / "field"
CASES: dict[str, dict[str, Any]] = {
    path.name: {
        **json.loads((path / "case.json").read_text()),
        "expected": json.loads((path / "expected.json").read_text()),
    }
    for path in sorted(FOLDER.iterdir())
    if path.is_dir()
}
F16 = FIELD / "F16"
KNOWN_HASH = json.loads((F16 / "expected.json").read_text())["last_entry_hash_of_full"]
BUILDS = [name for name, case in CASES.items() if case["kind"] == "chain-build"]
# Shown with the command: a file is missing.
COMMAND_CASES = {"m16-chain-file-missing"}
VERDICTS = [
    name for name, case in CASES.items() if case["kind"] == "verify" and name not in COMMAND_CASES
]

# The peer trusts the key (exit 0, or an unhandled error); ours exits so, for this reason.
STRICTER: dict[str, tuple[int, str | None]] = {
    "k27-revoked-signed-at-odd-1": (4, "signed-at-unusable"),
    "k28-revoked-signed-at-odd-2": (4, "signed-at-unusable"),
    "k29-revoked-signed-at-odd-3": (4, "signed-at-unusable"),
    "k30-revoked-signed-at-odd-4": (4, "signed-at-unusable"),
    "k32-unrevoked-naive-time": (4, "signed-at-unusable"),
    "k53-jwk-kid-disagrees": (4, "key-name"),
    "k55-alias-relabelled": (4, "key-revoked-time-unknown"),
    "k64-entry-kid-jwk-kid": (4, "chain-jwk-kid"),
    "k65-empty-kid": (4, "chain-kid-missing"),
    "k68-issued-at-backwards": (4, "chain-order"),
    "k75-revoked-head-signs-on": (4, "chain-signer-revoked"),
    "k77-revocation-predates-key": (4, "chain-order"),
    "k94-signature-respelled-last": (4, "signature-encoding"),
    "m02-schema-version": (4, "chain-schema-version"),
    "m03-schema-version-missing": (4, "chain-schema-version"),
    "m04-extra-member": (4, "chain-member"),
    "m14-duplicate-name": (4, "chain-not-json"),
    "m17-deep-nesting": (4, "chain-not-json"),
    "m18-small-order-root": (4, "chain-jwk-unusable"),
}
# Refused by both, by us for an earlier reason.
OTHER_PROBLEM = {"k95-signature-respelled-middle": "signature-encoding"}


def verdict_on(name: str) -> tuple[ReceiptVerdict, int]:
    case, given = CASES[name], FOLDER / name / "input"
    argv = case["argv"]

    def option(word: str) -> str | None:
        return argv[argv.index(word) + 1] if word in argv else None

    pin, signed_at = option("--public-key"), option("--signed-at")
    chain = ChainEvidence((given / str(option("--key-chain"))).read_bytes(), signed_at)
    verdict = verify_receipt(
        (given / argv[2]).read_bytes(),
        None if pin is None else (given / pin).read_bytes(),
        chain=chain,
    )
    return verdict, verdict.exit_code(require_provenance="--require-provenance" in argv)


def test_every_case_is_run_here_or_with_the_command():
    assert {*BUILDS, *VERDICTS, *COMMAND_CASES} == set(CASES)
    assert len(CASES) == 115


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_is_the_peers_or_a_stricter_one(name):
    verdict, exit_code = verdict_on(name)
    expected = CASES[name]["expected"]
    problem = None if verdict.chain is None else verdict.chain.problem
    if name in STRICTER:
        assert (exit_code, problem) == STRICTER[name]
        assert exit_code in CASES[name]["accept_exit"]
        assert CASES[name]["stance"] in {"defect", "judgement"}
        return
    assert exit_code == expected["exit_code"], verdict.errors
    for member in ("ok", "status", "tier", "run_id", "journal_events", "divergent_step"):
        assert getattr(verdict, member) == expected[member]
    key_verdict = None if verdict.chain is None else verdict.chain.verdict
    assert key_verdict == expected["key_verdict"]
    if exit_code == 4:
        assert problem == OTHER_PROBLEM.get(name, expected["error_kind"])


def signer(name: str, key_name: str) -> Ed25519PrivateKey:
    pem = (FOLDER / name / "input" / f"{key_name}.pem").read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, Ed25519PrivateKey)
    return key


def built(name: str) -> bytes:
    data = b""
    for step in CASES[name]["steps"]:
        data = built_step(name, step, data)
    return data


def built_step(name: str, step: dict[str, Any], data: bytes) -> bytes:
    if step["op"] == "new":
        return new_key_chain(parse_jwk(step["jwk"]), step["jwk"].get("kid", ""))
    chain = read_key_chain(data, None)
    entry = next_entry(chain, step)
    return extended(chain, entry, signer(name, step["signer"]).sign(entry_preimage(entry)))


def next_entry(chain: KeyChain, step: dict[str, Any]) -> dict[str, Any]:
    if step["op"] == "revocation":
        return revocation(chain, step["kid"], step["revoked_at"], step["reason"])
    return succession(chain, parse_jwk(step["jwk"]), step["jwk"]["kid"], step["issued_at"])


@pytest.mark.parametrize("name", [name for name in BUILDS if (FOLDER / name / "expected").is_dir()])
def test_a_chain_is_built_with_the_peers_bytes(name):
    expected = (FOLDER / name / "expected" / "key-chain.json").read_bytes()
    if name == "n10-build-wrong-signer":
        with pytest.raises(ChainBroken, match="not signed by the head"):
            built(name)
        return
    assert built(name) == expected
    chain = read_key_chain(expected, None)
    assert chain.links[0] == CASES[name]["expected"]["root_anchor"]
    assert list(chain.links[1:]) == CASES[name]["expected"]["entry_hashes"]


@pytest.mark.parametrize(
    "name", [name for name in BUILDS if not CASES[name]["expected"].get("ok", True)]
)
def test_a_step_that_the_peer_refuses_is_refused(name):
    failed = CASES[name]["expected"]["failed_step"]
    data = b""
    for step in CASES[name]["steps"][:failed]:
        data = built_step(name, step, data)
    with pytest.raises(BernsteinError):
        built_step(name, CASES[name]["steps"][failed], data)


# --- by the command line -------------------------------------------------------------------------

Ended = tuple[int, str, str]
Run = Callable[[str, Sequence[str]], Ended]
PROGRAMS = {"bernstein": bernstein_main, "bernstein-verify": verifier_main}


@pytest.fixture(params=sorted(PROGRAMS))
def run(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run one of the two programs in a case's folder."""

    def run(folder: str, arguments: Sequence[str]) -> Ended:
        monkeypatch.chdir(folder)
        argv = arguments[1:] if request.param == "bernstein-verify" else arguments
        monkeypatch.setattr(sys, "argv", [request.param, *argv])
        try:
            code = PROGRAMS[request.param]()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", [*VERDICTS, *COMMAND_CASES])
def test_both_commands_answer_with_the_exit_code_and_the_key_verdict(name: str, run: Run) -> None:
    case, folder = CASES[name], FOLDER / name / "input"
    expected = case["expected"]
    for_people, told, _ = run(str(folder), case["argv"])
    exit_code, answered, complaint = run(str(folder), [*case["argv"], "--json"])
    assert for_people == exit_code == STRICTER.get(name, (expected["exit_code"],))[0]
    assert "Traceback" not in told + complaint
    answer = json.loads(answered)
    if name in COMMAND_CASES:
        assert (answer["status"], answer["ok"]) == ("malformed", False)
        return
    assert answer["exit_code"] == exit_code
    if name in STRICTER:
        assert answer["key_problem"] == STRICTER[name][1]
        return
    for member in ("ok", "status", "tier", "run_id", "key_verdict", "divergent_step"):
        assert answer[member] == expected[member]
    for member in ("pinned_key", "key_chain"):
        assert answer[member] is expected[member]


@pytest.mark.parametrize(
    "options",
    [
        ["--signed-at", "2026-01-01T00:00:00Z"],
        ["--chain-entries", "2"],
        ["--chain-head", "00"],
        ["--key-chain", "chain_full.json", "--chain-head", "00"],
        ["--key-chain", "chain_full.json", "--chain-entries", "-1"],
    ],
)
def test_options_that_say_nothing_are_wrong_usage(options: list[str], run: Run) -> None:
    code, answered, complaint = run(str(F16), ["verify", "receipt", "receipt.json", *options])
    assert (code, answered) == (2, "")
    assert "--chain-" in complaint


def test_the_commands_take_the_known_end_of_a_chain(run: Run) -> None:
    line = ["verify", "receipt", "receipt.json", "--public-key", "root.pem", "--json"]
    cut = ["--key-chain", "chain_without_revocation.json"]
    code, answered, _ = run(str(F16), [*line, *cut])
    assert (code, json.loads(answered)["chain_completeness"]) == (0, "unverifiable")
    for known in (["--chain-entries", "2"], ["--chain-head", KNOWN_HASH]):
        code, answered, _ = run(str(F16), [*line, *cut, *known])
        assert (code, json.loads(answered)["key_problem"]) == (4, "chain-cut")


# --- F16: the revocation is cut off the end of the key chain ------------------------------------

CHAINS = {
    "chain_full.json": "revoked-signing-time-unknown",
    "chain_without_revocation.json": "superseded",
    "chain_root_only.json": "active",
}


def f16(name: str, **known: Any) -> ReceiptVerdict:
    evidence = ChainEvidence((F16 / name).read_bytes(), **known)
    pin = (F16 / "root.pem").read_bytes()
    return verify_receipt((F16 / "receipt.json").read_bytes(), pin, chain=evidence)


@pytest.mark.parametrize("name", CHAINS)
def test_without_a_pin_a_chains_completeness_is_unverifiable_and_said(name):
    facts = f16(name).chain
    assert facts is not None
    assert (facts.verdict, facts.completeness) == (CHAINS[name], "unverifiable")


@pytest.mark.parametrize("known", [{"known_entry_count": 2}, {"known_head_hash": KNOWN_HASH}])
@pytest.mark.parametrize("name", CHAINS)
def test_with_a_pin_a_chain_that_was_cut_is_refused(name, known):
    verdict = f16(name, **known)
    assert verdict.chain is not None
    assert verdict.status is ReceiptStatus.UNTRUSTED_KEY
    if name == "chain_full.json":
        assert verdict.chain.problem == "key-revoked-time-unknown"
        assert verdict.chain.completeness == "pinned"
    else:
        assert verdict.chain.problem == "chain-cut"
        assert verdict.chain.verdict is None


def test_a_chain_that_went_on_since_it_was_pinned_still_holds_what_was_pinned():
    shorter = read_key_chain((F16 / "chain_without_revocation.json").read_bytes(), None)
    verdict = f16("chain_full.json", known_head_hash=shorter.head_hash, known_entry_count=1)
    assert verdict.chain is not None
    assert verdict.chain.problem == "key-revoked-time-unknown"


# --- F17: exactly at the boundary, in every spelling of an instant ------------------------------

INSTANTS = json.loads((FIELD / "F17/instants.json").read_text())
REVOKED_AT = parse_instant(INSTANTS["revoked_at"])
# The same instant of 2026-04-01 as in F16's revocation.
SPELLINGS = [(text, wanted) for text, wanted in INSTANTS["cases"]]


@pytest.mark.parametrize(("text", "wanted"), SPELLINGS, ids=[repr(text) for text, _ in SPELLINGS])
def test_an_instant_is_compared_or_refused_with_its_reason(text, wanted):
    verdict = f16("chain_full.json", signed_at=text)
    assert verdict.chain is not None
    if wanted.startswith("signed-") and "refused" not in wanted:
        assert verdict.chain.verdict == wanted
        assert (parse_instant(text) < REVOKED_AT) == (wanted == "signed-before-revocation")
        return
    assert "refused" in wanted
    assert (verdict.exit_code(), verdict.chain.problem) == (4, "signed-at-unusable")
    with pytest.raises(InvalidInput):
        parse_instant(text)
