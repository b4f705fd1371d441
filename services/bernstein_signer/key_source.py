"""Where a configured key is: a file, a token, or what a plug-in reaches. One text says so.

/etc/bernstein/receipts.pem          a file, perhaps with a passphrase
pkcs11:token=T;object=K?…            a token (RFC 7512)
SCHEME:…                             a plug-in with the entry point SCHEME
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.key_uri import is_key_uri
from bernstein_signer.key import Key, load_key_file
from bernstein_signer.private_half import PLUGINS, Checked, PrivateHalf
from bernstein_signer.secret_file import read_passphrase, unusable
from bernstein_signer.token_key import TokenKey
from bernstein_signer.token_uri import SCHEME, parse_token_uri

SHOWN_CHARACTERS: Final = 80


def open_key(
    source: str, environ: Mapping[str, str], *, key_id: str = "", passphrase_file: str = ""
) -> Key:
    """The key, ready to sign. Raises KeyUnusable, InvalidInput."""
    if source.startswith("/"):
        return _in_file(Path(source), environ, key_id, passphrase_file)
    if source.startswith(SCHEME):
        uri = parse_token_uri(source)
        return Key(Checked(TokenKey(uri, environ), uri.shown), key_id or uri.label or uri.shown)
    scheme, colon, _ = source.partition(":")
    if not colon:
        raise InvalidInput(
            f"{source[:SHOWN_CHARACTERS]!r} is neither an absolute path nor a URI of a key"
        )
    return Key(_FromPlugin(scheme, source), key_id or scheme)


def open_named(source: str, environ: Mapping[str, str], *, passphrase_file: str = "") -> Key:
    """The key that somebody names at a terminal, where a file's path may be relative."""
    if is_key_uri(source):
        return open_key(source, environ)
    return _in_file(Path(source), environ, "", passphrase_file)


def _in_file(path: Path, environ: Mapping[str, str], key_id: str, passphrase_file: str) -> Key:
    passphrase = None
    if passphrase_file:
        passphrase = read_passphrase(passphrase_file, environ, "passphrase file")
    resolved = path.resolve()
    return load_key_file(resolved, key_id or resolved.name, passphrase)


class _FromPlugin:
    """Calls somebody else's code; what it raises becomes one of our errors, with the type's name
    and nothing of its text, which might hold a secret."""

    def __init__(self, scheme: str, uri: str) -> None:
        self._scheme = scheme
        self._source = f"key plug-in {scheme!r}"
        self._half = Checked(self._opened(uri), self._source)

    def public_raw(self) -> bytes:
        try:
            return self._half.public_raw()
        except BernsteinError:
            raise
        except Exception as error:  # noqa: BLE001 - somebody else's code
            raise self._failed(error) from None

    def sign(self, preimage: bytes) -> bytes:
        try:
            return self._half.sign(preimage)
        except BernsteinError:
            raise
        except Exception as error:  # noqa: BLE001 - likewise
            raise self._failed(error) from None

    def _opened(self, uri: str) -> PrivateHalf:
        found = list(entry_points(group=PLUGINS, name=self._scheme))
        if len(found) != 1:
            raise unusable(
                self._source,
                f"is installed {len(found)} times",
                f"install one package with the entry point {self._scheme!r} in {PLUGINS}",
            )
        try:
            half: PrivateHalf = found[0].load()(uri)
        except Exception as error:  # noqa: BLE001 - likewise
            raise self._failed(error) from None
        return half

    def _failed(self, error: Exception) -> BernsteinError:
        return unusable(self._source, f"failed ({type(error).__name__})", "see the plug-in's log")
