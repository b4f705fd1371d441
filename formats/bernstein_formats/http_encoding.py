"""Reads an answer that its provider compressed; what is kept are the bytes as they came.

Rules: docs/formats/llm-http.md, section 4.
"""

import importlib
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from bernstein_formats import zstandard
from bernstein_formats.errors import InvalidInput, LimitExceeded

# No answer of a model is larger; what unpacks to more was made to fill a memory.
DECODED_BYTES_MAX: Final = 64 * 1024 * 1024
_ZLIB_OR_GZIP: Final = 47


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...


class _Brotli:
    """Brotli in the standard library's shape; a stream has one part."""

    eof = False
    unused_data = b""

    def __init__(self) -> None:
        try:
            brotli = importlib.import_module("brotli")
        except ImportError as error:
            raise InvalidInput(
                "brotli is not installed: pip install 'bernstein-services[proxy]'"
            ) from error
        self._decompressor = brotli.Decompressor()
        self._error: type[Exception] = brotli.error

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        try:
            found: bytes = self._decompressor.process(data, output_buffer_limit=max_length)
        except self._error as error:
            raise ValueError(str(error)) from error
        return found


_MAKERS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gzip": lambda: zlib.decompressobj(_ZLIB_OR_GZIP),
    "x-gzip": lambda: zlib.decompressobj(_ZLIB_OR_GZIP),
    "deflate": lambda: zlib.decompressobj(_ZLIB_OR_GZIP),
    "br": _Brotli,
    "zstd": zstandard.ZstdDecompressor,
}


class Decoder:
    """Takes a content encoding away, piece by piece."""

    def __init__(self, encoding: str = "") -> None:
        """`encoding` as the header has it. Raises InvalidInput for one that is not known."""
        self._name = encoding.strip().lower()
        self._left = DECODED_BYTES_MAX
        self._make: Callable[[], _Decompressor] | None = None
        if self._name not in {"", "identity"}:
            if self._name not in _MAKERS:
                known = ", ".join(_MAKERS)
                raise InvalidInput(f"content encoding {self._name[:40]!r}: known are {known}")
            self._make = _MAKERS[self._name]
            self._part = self._make()

    def feed(self, chunk: bytes) -> bytes:
        """What can be read now. Raises InvalidInput, LimitExceeded."""
        if self._make is None:
            return chunk
        found = b""
        try:
            while chunk:
                piece = self._part.decompress(chunk, self._left + 1)
                self._left -= len(piece)
                if self._left < 0:
                    raise LimitExceeded(
                        f"the answer unpacks to more than {DECODED_BYTES_MAX} bytes"
                    )
                found += piece
                chunk = b""
                if self._part.eof:
                    chunk = self._part.unused_data
                    self._part = self._make()
        except (ValueError, zlib.error, zstandard.ZstdError) as error:
            raise InvalidInput(f"the answer is no {self._name}: {error}") from error
        return found


def decoded(encoding: str, body: bytes) -> bytes:
    """A whole answer as it reads. Raises InvalidInput, LimitExceeded."""
    return Decoder(encoding).feed(body)
