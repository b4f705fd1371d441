"""What a key has to do for us, wherever its private half is: in this process, in a token, or with a
provider. Nothing else of it is asked, so that it need not leave the place."""

from typing import Final, Protocol

from bernstein_formats.errors import KeyUnusable
from bernstein_formats.public_key import PublicKey

# Plug-ins for keys elsewhere: an entry point's name is the scheme of the URIs that it opens, and
# what it gives, called with such a URI, is a PrivateHalf.
PLUGINS: Final = "bernstein_signer.keys"


class PrivateHalf(Protocol):
    """An Ed25519 key. MUST be safe for any number of threads."""

    def public_raw(self) -> bytes:
        """The 32 bytes of RFC 8032's public key; asked once."""
        ...

    def sign(self, preimage: bytes) -> bytes:
        """The 64 bytes of RFC 8032's signature. Raises an exception that says why it cannot."""
        ...


class Checked:
    """A key outside of this process: what it gives is tried before anybody relies on it."""

    def __init__(self, half: PrivateHalf, source: str) -> None:
        self._half = half
        self._source = source
        self._public: PublicKey | None = None

    def public_raw(self) -> bytes:
        raw = bytes(self._half.public_raw())
        self._public = PublicKey(raw)
        return raw

    def sign(self, preimage: bytes) -> bytes:
        signature = bytes(self._half.sign(preimage))
        if self._public is None or not self._public.verifies(signature, preimage):
            raise KeyUnusable(
                f"{self._source} gave a signature that its own public key does not take; nothing"
                " was signed: look after the token or the plug-in",
                source=self._source,
            )
        return signature
