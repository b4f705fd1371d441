"""run-receipt.cose: the same signed subject as one COSE_Sign1 of fixed shape (RFC 9052).

Only six kinds of CBOR item occur, in one order, so they are written and read by hand.
"""

from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import ReceiptMalformed

_SIGN1_OF_FOUR: Final = b"\xd2\x84"  # tag 18, array of four
_PROTECTED_OF_THREE: Final = b"\xa3"
_ALG_EDDSA: Final = b"\x01\x27"  # 1: -8
_CONTENT_TYPE: Final = b"\x03"
_KID: Final = b"\x04"
_NO_UNPROTECTED: Final = b"\xa0"
_BYTES: Final = 0x40
_TEXT: Final = 0x60


@dataclass(frozen=True, slots=True)
class CoseSign1:
    """What one envelope says. The algorithm is not among it: it is EdDSA, or not an envelope."""

    content_type: str
    kid: bytes
    payload: bytes
    signature: bytes


def cose_preimage(content_type: str, kid: bytes, payload: bytes) -> bytes:
    """The bytes that the envelope's signature covers (RFC 9052, section 4.4)."""
    protected = _protected(content_type, kid)
    context = _item(_TEXT, b"Signature1")
    return b"\x84" + context + _item(_BYTES, protected) + b"\x40" + _item(_BYTES, payload)


def cose_bytes(envelope: CoseSign1) -> bytes:
    """The envelope in deterministic CBOR; no line feed follows."""
    protected = _protected(envelope.content_type, envelope.kid)
    return (
        _SIGN1_OF_FOUR
        + _item(_BYTES, protected)
        + _NO_UNPROTECTED
        + _item(_BYTES, envelope.payload)
        + _item(_BYTES, envelope.signature)
    )


def parse_cose(data: bytes) -> CoseSign1:
    """Read an envelope, or raise ReceiptMalformed: other headers and further bytes are refused."""
    try:
        envelope = _read_envelope(data)
        canonical = cose_bytes(envelope)
    except (ValueError, IndexError) as error:
        raise ReceiptMalformed(
            "the COSE file is not a COSE_Sign1 with alg EdDSA, a content type and a kid, only"
        ) from error
    if canonical != data:
        raise ReceiptMalformed("the COSE file is not in deterministic CBOR, or more follows it")
    return envelope


def _protected(content_type: str, kid: bytes) -> bytes:
    content = _CONTENT_TYPE + _item(_TEXT, content_type.encode())
    return _PROTECTED_OF_THREE + _ALG_EDDSA + content + _KID + _item(_BYTES, kid)


def _item(major: int, content: bytes) -> bytes:
    size = len(content)
    if size < 24:
        return bytes([major | size]) + content
    for code, width in ((24, 1), (25, 2), (26, 4)):
        if size < 1 << 8 * width:
            return bytes([major | code]) + size.to_bytes(width, "big") + content
    return bytes([major | 27]) + size.to_bytes(8, "big") + content


def _read_envelope(data: bytes) -> CoseSign1:
    outer = _Reader(data)
    outer.expect(_SIGN1_OF_FOUR)
    protected = _Reader(outer.item(_BYTES))
    protected.expect(_PROTECTED_OF_THREE + _ALG_EDDSA + _CONTENT_TYPE)
    content_type = protected.item(_TEXT).decode()
    protected.expect(_KID)
    kid = protected.item(_BYTES)
    outer.expect(_NO_UNPROTECTED)
    return CoseSign1(content_type, kid, outer.item(_BYTES), outer.item(_BYTES))


class _Reader:
    """A position in CBOR bytes. Raises ValueError or IndexError where the shape is another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def expect(self, literal: bytes) -> None:
        if not self._data.startswith(literal, self._at):
            raise ValueError("another item than expected")
        self._at += len(literal)

    def item(self, major: int) -> bytes:
        start = self._data[self._at]
        if start & 0xE0 != major:
            raise ValueError("an item of another kind than expected")
        size, code = start & 0x1F, start & 0x1F
        begin = self._at + 1
        if code >= 24:
            width = {24: 1, 25: 2, 26: 4, 27: 8}.get(code, 0)
            size = int.from_bytes(self._data[begin : begin + width], "big")
            begin += width
        self._at = begin + size
        return self._data[begin : self._at]
