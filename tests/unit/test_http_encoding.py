"""Compressed answers are read in any pieces, and what unpacks without end is refused."""

import gzip
import zlib

import brotli
import pytest

from bernstein_formats import http_encoding, zstandard
from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_formats.http_encoding import Decoder, decoded
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.sse_end import StreamEnd, whole_end

PACKED = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("name", PACKED)
def test_any_pieces_give_the_same_text(name: str) -> None:
    packed = PACKED[name](b"data: x\r\n\r\n" * 50)
    decoder = Decoder(name.upper())
    pieces = [decoder.feed(packed[at : at + 3]) for at in range(0, len(packed), 3)]

    assert b"".join(pieces) == decoded(name, packed) == b"data: x\r\n\r\n" * 50


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_parts_are_read_one_after_the_other(name: str) -> None:
    assert decoded(name, PACKED[name](b"a") + PACKED[name](b"b")) == b"ab"


@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_what_unpacks_to_more_than_any_answer_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_encoding, "DECODED_BYTES_MAX", 100_000)

    with pytest.raises(LimitExceeded):
        decoded(name, PACKED[name](bytes(10_000_000)))


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd", "gzip, br", "rot13"])
def test_what_is_not_what_it_says_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        decoded(name, b"\xffno such thing")


def test_a_stream_that_cannot_be_read_has_an_end_that_nobody_saw() -> None:
    stream = StreamEnd(Protocol.OPENAI_CHAT, "gzip")
    stream.feed(b"data: [DONE]\n\n")
    stream.feed(b"data: [DONE]\n\n")

    assert not stream.is_finished
    assert "gzip" in stream.trouble


def test_the_end_of_an_answer_that_is_no_stream_is_read_through_its_encoding() -> None:
    body = b'{"choices":[{"finish_reason":"length"}]}'

    assert whole_end(Protocol.OPENAI_CHAT, gzip.compress(body), "gzip") == (None, "length")
    assert whole_end(Protocol.OPENAI_CHAT, body, "gzip") == (None, "")
    cut = gzip.compress(b'[{"candidates":')
    assert whole_end(Protocol.GEMINI_GENERATE, cut, "gzip") == (False, "")
    assert whole_end(Protocol.OPENAI_CHAT, b"[1]", "") == (None, "")
