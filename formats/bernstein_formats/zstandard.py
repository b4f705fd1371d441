"""Zstandard of the standard library, or for Python before 3.14 the same from its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
