"""Keys wherever they are: each signs alike, and each that cannot says why and shows nothing."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from tests.software_token import PIN, SoftwareToken, make_token

from bernstein_formats.errors import BernsteinError, InvalidInput, KeyUnusable
from bernstein_signer.key_source import open_key

EXAMPLE = Path(__file__).parents[2] / "examples" / "kms_key"
PASSPHRASE = b"canary-passphrase"
MESSAGE = b"what is signed"


@pytest.fixture(scope="module")
def token(tmp_path_factory) -> SoftwareToken:
    made = make_token(tmp_path_factory.mktemp("token"), "fleet")
    made.make_key("receipts")
    made.make_key("loose", is_extractable=True)
    return made


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSPHRASE)
    )
    return written(tmp_path / "key.pem", pem)


def by(name: str) -> dict[str, str]:
    return {"passphrase_file": name}


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


# --- files with a passphrase ----------------------------------------------------------------------


def test_an_encrypted_key_is_opened_by_a_passphrase_from_a_file(encrypted: Path, tmp_path: Path):
    passphrase = written(tmp_path / "passphrase", PASSPHRASE + b"\n")
    key = open_key(str(encrypted), {}, passphrase_file=str(passphrase))
    assert key.key_id == "key.pem"
    assert key.public_key.verifies(key.sign(MESSAGE), MESSAGE)


def test_or_by_one_that_systemd_handed_over(encrypted: Path, tmp_path: Path):
    written(tmp_path / "receipts", PASSPHRASE)
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    key = open_key(str(encrypted), environ, key_id="fleet-1", **by("receipts"))
    assert key.key_id == "fleet-1"
    assert key.public_key.verifies(key.sign(MESSAGE), MESSAGE)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"canary\n", "cannot be decrypted"), (b"", "an empty line"), (b"\nx", "an empty line")],
)
def test_a_passphrase_that_does_not_fit_is_named_and_not_shown(encrypted, tmp_path, data, said):
    passphrase = written(tmp_path / "passphrase", data)
    with pytest.raises(KeyUnusable, match=said) as caught:
        open_key(str(encrypted), {}, passphrase_file=str(passphrase))
    assert "canary" not in caught.value.message


def test_an_encrypted_key_without_a_passphrase_says_where_to_name_it(encrypted: Path):
    with pytest.raises(KeyUnusable, match="receipt_passphrase_file"):
        open_key(str(encrypted), {})


def test_a_credential_is_looked_for_only_where_systemd_puts_them(encrypted: Path):
    for environ in ({}, {"CREDENTIALS_DIRECTORY": "/"}):
        with pytest.raises(KeyUnusable, match="LoadCredential"):
            open_key(str(encrypted), environ, **by("../receipts"))


# --- tokens ---------------------------------------------------------------------------------------


def test_a_key_in_a_token_signs_there_from_any_number_of_threads(token: SoftwareToken):
    key = open_key(token.uri("receipts"), {})
    assert key.key_id == "receipts"
    messages = [bytes([number]) for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        signatures = list(pool.map(key.sign, messages))
    for message, signature in zip(messages, signatures, strict=True):
        assert key.public_key.verifies(signature, message)


@pytest.mark.parametrize(
    ("key", "more", "said"),
    [
        ("receipts", {"token": "absent"}, "a token that is not there"),
        ("absent", {}, "names 0 Ed25519 private keys"),
        ("loose", {}, "can be taken out of its token"),
        ("receipts", {"module": "/nowhere.so"}, "cannot be loaded"),
        ("receipts", {"pin": "file:/nowhere/pin"}, "pin-source /nowhere/pin cannot be read"),
    ],
)
def test_a_key_that_a_token_does_not_give_is_named(token: SoftwareToken, key, more, said):
    with pytest.raises(KeyUnusable, match=said):
        open_key(token.uri(key, **more), {})


def test_a_wrong_pin_is_told_and_not_shown(token: SoftwareToken, tmp_path: Path):
    wrong = written(tmp_path / "pin", b"canary-wrong\n")
    with pytest.raises(KeyUnusable, match="does not take the PIN") as caught:
        open_key(token.uri("receipts", pin=f"file:{wrong}"), {})
    assert "canary" not in repr(caught.value.__cause__) + caught.value.message
    open_key(token.uri("receipts"), {})


def test_a_token_that_was_away_is_used_again_when_it_is_back(token: SoftwareToken):
    key = open_key(token.uri("receipts"), {})
    tokens = token.folder / "tokens"
    away = tokens.rename(token.folder / "away")
    tokens.mkdir()
    try:
        with pytest.raises(KeyUnusable):
            key.sign(MESSAGE)
    finally:
        tokens.rmdir()
        away.rename(tokens)
    assert key.public_key.verifies(key.sign(MESSAGE), MESSAGE)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("pkcs11:token=t;object=k?module-path=/m.so&pin-value=canary", "no place for a PIN"),
        ("pkcs11:token=t;object=k?module-path=/m.so", "pin-source"),
        ("pkcs11:object=k?module-path=/m.so&pin-source=/p", "say which token"),
        ("pkcs11:token=t?module-path=/m.so&pin-source=/p", "say which key"),
        ("pkcs11:token=t;object=k?module-path=m.so&pin-source=/p", "no absolute path"),
        ("pkcs11:token=t;token=u;object=k?module-path=/m.so&pin-source=/p", "twice"),
        ("pkcs11:token=t;object=k;type=cert?module-path=/m.so&pin-source=/p", "than private"),
        ("pkcs11:slot=1", "'slot' is not read"),
        ("receipts.pem", "neither an absolute path nor a URI"),
    ],
)
def test_a_uri_that_is_none_says_how_one_looks(uri: str, said: str):
    with pytest.raises(InvalidInput, match=said) as caught:
        open_key(uri, {})
    assert "canary" not in caught.value.message


# --- plug-ins -------------------------------------------------------------------------------------


@pytest.fixture
def key_service(tmp_path: Path, monkeypatch) -> Iterator[str]:
    """The example, installed as an installer would, and its service."""
    facts = tmp_path / "kms_key-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: kms-key\nVersion: 1.0\n")
    _, _, line = (EXAMPLE / "pyproject.toml").read_text().partition("entry-points.")
    entry = next(each for each in line.splitlines() if each.startswith("examplekms"))
    (facts / "entry_points.txt").write_text(
        "[bernstein_signer.keys]\n" + entry.replace('"', "") + "\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    path = tmp_path / "kms.sock"
    with subprocess.Popen(
        [sys.executable, EXAMPLE / "key_service.py", path], stdout=subprocess.PIPE
    ) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        yield f"examplekms:{path}"
        service.terminate()


def test_a_plug_in_signs_with_a_key_that_another_process_holds(key_service: str):
    key = open_key(key_service, {}, key_id="fleet")
    assert key.public_key.verifies(key.sign(MESSAGE), MESSAGE)


def test_a_plug_in_that_fails_is_named_without_its_words(key_service: str):
    with pytest.raises(KeyUnusable, match=r"'examplekms' failed \(FileNotFoundError\)") as caught:
        open_key(f"{key_service}-canary", {})
    assert "canary" not in caught.value.message
    with pytest.raises(KeyUnusable, match="'nosuch' is installed 0 times"):
        open_key("nosuch:x", {})


def test_a_signature_that_is_not_the_keys_is_handed_to_nobody(key_service: str, monkeypatch):
    key = open_key(key_service, {})
    monkeypatch.setattr("kms_key.ServiceKey.sign", lambda *_: bytes(64))
    with pytest.raises(BernsteinError, match="nothing was signed"):
        key.sign(MESSAGE)


def test_the_pin_is_in_no_text_of_a_key(token: SoftwareToken):
    key = open_key(token.uri("receipts"), {})
    assert PIN not in repr(key) + str(vars(type(key)))
