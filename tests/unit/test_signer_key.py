"""Every form of a private key that is in use is read, every other one is refused by name."""

import base64
import errno
import json
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from structlog.testing import capture_logs

from bernstein_formats.errors import Conflict, DiskFull, InvalidInput, KeyUnusable
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_signer.key import (
    create_key,
    create_key_pair,
    load_key_file,
    take_key_variable,
)

SEED = sha256(b"TEST ONLY signer").digest()
PRIVATE = Ed25519PrivateKey.from_private_bytes(SEED)
PUBLIC = PublicKey(PRIVATE.public_key().public_bytes_raw())


def pem(
    key: Ed25519PrivateKey | rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey = PRIVATE,
    form: PrivateFormat = PrivateFormat.PKCS8,
    encryption: KeySerializationEncryption | None = None,
) -> bytes:
    return key.private_bytes(Encoding.PEM, form, encryption or NoEncryption())


def stored(folder: Path, data: bytes, mode: int = 0o600) -> Path:
    path = folder / "signing-key.pem"
    path.write_bytes(data)
    path.chmod(mode)
    return path


OTHER_PEM = pem(Ed25519PrivateKey.from_private_bytes(bytes(32)))


@pytest.mark.parametrize(
    "data",
    [
        pem(),
        b" \r\n\t" + pem(),
        pem().replace(b"\n", b"\r\n"),
        pem() + OTHER_PEM,
        SEED,
        SEED + b"\n",
        b"  " + SEED + b"\r\n",
    ],
    ids=["pem", "space-before", "crlf", "first-of-two", "raw", "raw-newline", "raw-spaces"],
)
def test_a_file_in_a_known_form_gives_its_key(tmp_path: Path, data: bytes):
    key = load_key_file(stored(tmp_path, data))
    assert (key.public_key, key.key_id) == (PUBLIC, "signing-key.pem")
    assert PRIVATE.sign(b"message") == key.sign(b"message")


def test_thirty_one_bytes_and_a_line_feed_are_a_seed_as_in_the_peer(tmp_path: Path):
    seed = b"x" * 31 + b"\n"
    expected = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    assert expected == load_key_file(stored(tmp_path, seed)).public_key.raw


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "is empty"),
        (b" \n", "0 bytes"),
        (pem(encryption=BestAvailableEncryption(b"secret")), "is encrypted"),
        (pem(form=PrivateFormat.OpenSSH), "OpenSSH"),
        (PRIVATE.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), "DER"),
        (SEED.hex().encode(), "hexadecimal"),
        (SEED + PUBLIC.raw, "seed and public half"),
        (json.dumps({"kty": "OKP", "d": "AA"}).encode(), "JWK"),
        (pem(rsa.generate_private_key(65537, 2048)), "another algorithm"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "another algorithm"),
        (
            pem(ec.generate_private_key(ec.SECP256R1()), PrivateFormat.TraditionalOpenSSL),
            "another algorithm",
        ),
        (b"my key:\n" + pem(), "text before its PEM block"),
        (
            PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "another PEM block",
        ),
        (pem()[:-30], "cannot be read"),
        (b"x" * 70_000, "too large"),
    ],
)
def test_a_file_in_another_form_is_refused_and_its_name_told(
    tmp_path: Path, data: bytes, what: str
):
    path = stored(tmp_path, data)
    with pytest.raises(KeyUnusable, match=what) as caught:
        load_key_file(path)
    assert f"key file {path}" == caught.value.metadata["source"]
    assert "\n" not in caught.value.message


def test_a_traditional_pem_under_a_passphrase_is_refused_as_encrypted(tmp_path: Path):
    key = ec.generate_private_key(ec.SECP256R1())
    data = pem(key, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret"))
    with pytest.raises(KeyUnusable, match="is encrypted"):
        load_key_file(stored(tmp_path, data))


def test_what_is_no_readable_file_is_refused(tmp_path: Path):
    with pytest.raises(KeyUnusable, match="No such file"):
        load_key_file(tmp_path / "missing")
    with pytest.raises(KeyUnusable, match="not a regular file"):
        load_key_file(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(KeyUnusable, match="not a regular file"):
        load_key_file(tmp_path / "fifo")


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1)])
def test_a_key_file_that_others_can_read_is_used_with_a_warning(
    tmp_path: Path, mode: int, warnings: int
):
    with capture_logs() as logs:
        load_key_file(stored(tmp_path, pem(), mode))
    assert ["key_file_mode_is_loose"] * warnings == [line["event"] for line in logs]


ASCII_SEED = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (pem().decode(), SEED),
        (pem().decode().strip(), SEED),
        (pem().decode().replace("\n", "\\n"), SEED),
        (f"raw:{SEED.hex()}", SEED),
        (f"raw:{SEED.hex().upper()}", SEED),
        (f"raw: {SEED.hex(' ')} ", SEED),
        (f"rawb64:{base64.b64encode(SEED).decode()}", SEED),
        (ASCII_SEED, ASCII_SEED.encode()),
        ("é" * 16, "é".encode() * 16),
    ],
    ids=["pem", "pem-stripped", "escaped", "hex", "HEX", "spaced", "base64", "32", "32-bytes"],
)
def test_a_variable_in_a_known_form_gives_its_key_and_is_gone(text: str, seed: bytes):
    environ = {"RECEIPT_KEY": text, "OTHER": "stays"}
    key = take_key_variable(environ, "RECEIPT_KEY")
    expected = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    assert (expected, "RECEIPT_KEY") == (key.public_key.raw, key.key_id)
    assert environ == {"OTHER": "stays"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty or not set"),
        (SEED.hex(), "hexadecimal"),
        ("raw:zz", "cannot be decoded"),
        ("raw:" + SEED.hex()[2:], "31 bytes"),
        ("rawb64:*", "cannot be decoded"),
        ("rawb64:AAAA", "3 bytes"),
        ("\udcff" * 32, "cannot be decoded"),
        (pem(encryption=BestAvailableEncryption(b"secret")).decode(), "is encrypted"),
        (pem(form=PrivateFormat.OpenSSH).decode(), "OpenSSH"),
        ('{"kty":"OKP"}', "JWK"),
    ],
)
def test_a_variable_in_another_form_is_refused_and_gone_all_the_same(text: str, what: str):
    environ = {"RECEIPT_KEY": text}
    with pytest.raises(KeyUnusable, match=what) as caught:
        take_key_variable(environ, "RECEIPT_KEY")
    assert caught.value.metadata["source"] == "environment variable RECEIPT_KEY"
    assert environ == {}
    assert not text or text not in caught.value.message


@pytest.mark.parametrize("name", ["k\x1b[2J", "two\nlines", "\u202eevil", "\udc80", "x" * 256])
def test_a_name_that_cannot_be_shown_as_it_is_is_refused(tmp_path: Path, name: str):
    with pytest.raises(InvalidInput, match="no name of a key"):
        load_key_file(stored(tmp_path, SEED), name)


def test_a_key_does_not_show_itself(tmp_path: Path):
    key = load_key_file(stored(tmp_path, SEED), "k")
    assert SEED.hex() not in repr(key) + str(key)


def test_a_new_key_is_for_its_owner_alone_and_never_overwrites(tmp_path: Path):
    path = tmp_path / "new.pem"
    key = create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert key.public_key == load_key_file(path).public_key
    before = path.read_bytes()
    with pytest.raises(Conflict, match=r"new\.pem is there already"):
        create_key(path)
    assert before == path.read_bytes()


def test_a_new_pair_has_its_public_half_beside_it(tmp_path: Path):
    public_path = create_key_pair(tmp_path / "team.pem")
    assert tmp_path / "team.pub.pem" == public_path
    assert (
        load_key_file(tmp_path / "team.pem").public_key
        == parse_public_pem(public_path.read_bytes())
    )  # fmt: skip
    (tmp_path / "team.pem").unlink()
    with pytest.raises(Conflict, match=r"team\.pub\.pem"):
        create_key_pair(tmp_path / "team.pem")
    assert not (tmp_path / "team.pem").exists()


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_no_part_of_a_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
):
    written = 0

    def write_all(descriptor: int, data: bytes) -> None:
        nonlocal written
        written += 1
        if written == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr("bernstein_signer.key.write_all", write_all)
        with pytest.raises(DiskFull):
            create_key_pair(tmp_path / "op.pem")
    assert list(tmp_path.iterdir()) == []
    create_key_pair(tmp_path / "op.pem")


def test_the_way_to_a_key_that_is_told_is_the_users_command(tmp_path: Path):
    (tmp_path / "op.pem").write_bytes(b"")
    with pytest.raises(KeyUnusable, match="bernstein keys new FILE"):
        load_key_file(tmp_path / "op.pem")
