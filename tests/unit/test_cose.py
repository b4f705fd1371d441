import pytest

from bernstein_formats.cose import CoseSign1, cose_bytes, cose_preimage, parse_cose
from bernstein_formats.errors import ReceiptMalformed

ENVELOPE = CoseSign1("t/x", b"k", b"{}", bytes(64))
BYTES = bytes.fromhex("d284 4b a3 0127 03 63742f78 04 416b a0 427b7d 5840") + bytes(64)


def test_the_bytes_are_those_of_deterministic_cbor():
    assert cose_bytes(ENVELOPE) == BYTES
    assert parse_cose(BYTES) == ENVELOPE


def test_the_signature_covers_headers_and_payload():
    expected = bytes.fromhex("84 6a 5369676e617475726531 4b a3 0127 03 63742f78 04 416b 40 427b7d")
    assert cose_preimage("t/x", b"k", b"{}") == expected


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65_535, 65_536])
def test_every_length_form_is_written_and_read(size):
    envelope = CoseSign1("t", b"k" * 30, b"x" * size, b"s")
    assert parse_cose(cose_bytes(envelope)) == envelope


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nothing", b""),
        ("no tag", BYTES[1:]),
        ("bytes behind it", BYTES + b"\n"),
        ("cut short", BYTES[:-1]),
        ("a length in a longer form", BYTES.replace(b"\x42{}", b"\x58\x02{}")),
        ("alg ES256", BYTES.replace(b"\x01\x27", b"\x01\x26")),
        ("an unprotected header", BYTES.replace(b"\xa0\x42", b"\xa1\x01\x27\x42")),
        ("a text payload", BYTES.replace(b"\x42{}", b"\x62{}")),
        ("a crit header", BYTES.replace(b"\x4b\xa3", b"\x4e\xa4\x02\x80\x00")),
        ("a length that no file has", BYTES.replace(b"\x42{}", b"\x5b" + b"\xff" * 8)),
        ("an indefinite length", BYTES.replace(b"\x42{}", b"\x5f\x42{}\xff")),
        ("content type not UTF-8", BYTES.replace(b"t/x", b"t/\xff")),
    ],
)
def test_another_envelope_is_refused(what, data):
    with pytest.raises(ReceiptMalformed, match="COSE"):
        parse_cose(data)
