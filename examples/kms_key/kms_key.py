"""A plug-in for the signer's key: it asks a key service for each signature.

The key service here is `key_service.py`, a process with a Unix socket; a real one would be a
cloud's KMS, with its own client library. The entry point is in pyproject.toml: `examplekms` is the
scheme, so that `receipt_key = "examplekms:/run/kms.sock"` finds it.
"""

import socket
from pathlib import Path

SECONDS = 10.0


class ServiceKey:
    """Safe for any number of threads: each call has a connection of its own."""

    def __init__(self, uri: str) -> None:
        self._socket = Path(uri.partition(":")[2])

    def public_raw(self) -> bytes:
        """The 32 bytes of the public key."""
        return self._ask(b"public\n")

    def sign(self, preimage: bytes) -> bytes:
        """The 64 bytes of the signature."""
        return self._ask(b"sign\n" + preimage)

    def _ask(self, request: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(SECONDS)
            channel.connect(str(self._socket))
            channel.sendall(request)
            channel.shutdown(socket.SHUT_WR)
            with channel.makefile("rb") as answer:
                return answer.read()
