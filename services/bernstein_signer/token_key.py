"""A key in a PKCS#11 token: it signs there and never leaves it.

Each signature opens a session of its own, so that a token that was away is used again as soon as it
is back.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from bernstein_formats.errors import KeyUnusable
from bernstein_signer.secret_file import read_passphrase, unusable
from bernstein_signer.token_uri import TokenUri

if TYPE_CHECKING:
    import pkcs11

# A token's login is its process's, not its session's: two at once would log each other out.
_LOCK: Final = threading.Lock()


class TokenKey:
    """See `PrivateHalf`."""

    def __init__(self, uri: TokenUri, environ: Mapping[str, str]) -> None:
        """Raises KeyUnusable where the optional package is absent."""
        if find_spec("pkcs11") is None:
            raise KeyUnusable(
                f"{uri.shown}: the package for tokens is not installed: install"
                " bernstein-services[pkcs11]"
            )
        self._uri = uri
        self._pin: Callable[[], str] = lambda: read_passphrase(
            uri.pin_source, environ, "pin-source"
        ).decode("utf-8", "replace")

    def public_raw(self) -> bytes:
        import pkcs11  # noqa: PLC0415 - its extra may be absent

        with _LOCK, self._session() as session:
            self._private(session)
            found = self._find(session, pkcs11.ObjectClass.PUBLIC_KEY)
            point = bytes(found[pkcs11.Attribute.EC_POINT])
        # DER around the 32 bytes in tokens of PKCS #11 2.40, plain in those of 3.0.
        return point[2:] if point[:2] == b"\x04\x20" and len(point) == 34 else point

    def sign(self, preimage: bytes) -> bytes:
        import pkcs11  # noqa: PLC0415 - likewise

        with _LOCK, self._session() as session:
            signature = self._private(session).sign(preimage, mechanism=pkcs11.Mechanism.EDDSA)
        return bytes(signature)

    def _private(self, session: "pkcs11.Session") -> Any:
        import pkcs11  # noqa: PLC0415 - likewise

        found = self._find(session, pkcs11.ObjectClass.PRIVATE_KEY)
        if found[pkcs11.Attribute.EXTRACTABLE]:
            raise unusable(self._uri.shown, "can be taken out of its token", "make one that cannot")
        return found

    def _find(self, session: "pkcs11.Session", kind: "pkcs11.ObjectClass") -> Any:
        """An object whose methods depend on what it is."""
        import pkcs11  # noqa: PLC0415 - likewise

        wanted: dict[pkcs11.Attribute, object] = {
            pkcs11.Attribute.CLASS: kind,
            pkcs11.Attribute.KEY_TYPE: pkcs11.KeyType.EC_EDWARDS,
        }
        if self._uri.label:
            wanted[pkcs11.Attribute.LABEL] = self._uri.label
        if self._uri.key_id:
            wanted[pkcs11.Attribute.ID] = self._uri.key_id
        found = list(session.get_objects(wanted))
        if len(found) != 1:
            name = kind.name.lower().replace("_", " ")
            raise unusable(
                self._uri.shown, f"names {len(found)} Ed25519 {name}s", "name one, by object and id"
            )
        return found[0]

    @contextmanager
    def _session(self) -> "Iterator[pkcs11.Session]":
        import pkcs11  # noqa: PLC0415 - likewise

        pin = self._pin()
        try:
            with self._opened(pin) as session:
                yield session
        except pkcs11.PKCS11Error as error:
            raise unusable(self._uri.shown, _told(error), "look after the token") from error

    def _opened(self, pin: str) -> "pkcs11.Session":
        import pkcs11  # noqa: PLC0415 - likewise

        wanted: dict[str, Any] = {"token_label": self._uri.token or None}
        if self._uri.serial:
            wanted["token_serial"] = self._uri.serial.encode()
        library = pkcs11.lib(self._uri.module_path)
        try:
            return library.get_token(**wanted).open(user_pin=pin)
        except (pkcs11.PinIncorrect, pkcs11.PinLocked):
            raise  # a token counts them
        except pkcs11.PKCS11Error:
            library.reinitialize()  # some libraries look for tokens once, or never get over a loss
            return library.get_token(**wanted).open(user_pin=pin)


def _told(error: Exception) -> str:
    """The library's word for it. Never a text of its own, in which a PIN might be."""
    name = type(error).__name__
    words = {
        "PinIncorrect": "does not take the PIN",
        "PinLocked": "is locked, after too many wrong PINs",
        "NoSuchToken": "names a token that is not there",
        "PKCS11Error": "cannot be reached: its library cannot be loaded",
    }
    return words.get(name, f"cannot be used (PKCS #11: {name})")
