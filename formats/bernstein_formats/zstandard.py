"""Zstandard of the standard library, or for Python before 3.14 the same from its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdDecompressor,
        ZstdDict,
        ZstdError,
        compress,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdDecompressor,
        ZstdDict,
        ZstdError,
        compress,
    )

__all__ = ["CompressionParameter", "ZstdDecompressor", "ZstdDict", "ZstdError", "compress"]
