"""`pkcs11:` URIs, which name a key in a token (RFC 7512)."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from bernstein_formats.errors import InvalidInput

SCHEME: Final = "pkcs11:"
_PATH: Final = frozenset({"token", "serial", "object", "id", "type"})
_QUERY: Final = frozenset({"module-path", "pin-source"})


@dataclass(frozen=True, slots=True)
class TokenUri:
    """Where a key is; what is empty does not matter."""

    token: str
    serial: str
    label: str
    key_id: bytes
    module_path: str
    # The file of the PIN, or a credential's name.
    pin_source: str

    @property
    def shown(self) -> str:
        """For people: which key it is."""
        parts = {"token": self.token, "serial": self.serial, "object": self.label}
        parts["id"] = self.key_id.hex()
        return SCHEME + ";".join(f"{name}={text}" for name, text in parts.items() if text)


def parse_token_uri(text: str) -> TokenUri:
    """Raises InvalidInput; a PIN within the URI, which it does not repeat, is refused."""
    path, _, query = text.removeprefix(SCHEME).partition("?")
    found = _attributes(path, ";", _PATH) | _attributes(query, "&", _QUERY)
    if found.get("type", "private") != "private":
        raise _wrong("type", "is another one than private")
    if not found.get("module-path", "").startswith("/"):
        raise _wrong("module-path", "is no absolute path of the token's library")
    if not (found.get("token") or found.get("serial")):
        raise _wrong("token", "is missing, and serial too: say which token")
    if not (found.get("object") or found.get("id")):
        raise _wrong("object", "is missing, and id too: say which key")
    if not found.get("pin-source"):
        raise _wrong("pin-source", "is missing: name the file that holds the PIN")
    return TokenUri(
        token=unquote(found.get("token", "")),
        serial=unquote(found.get("serial", "")),
        label=unquote(found.get("object", "")),
        key_id=unquote_to_bytes(found.get("id", "")),
        module_path=unquote(found["module-path"]),
        pin_source=unquote(found["pin-source"]).removeprefix("file:"),
    )


def _attributes(text: str, separator: str, known: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in filter(None, text.split(separator)):
        name, _, value = each.partition("=")
        if name == "pin-value":
            raise _wrong(name, "is no place for a PIN: write it into a file, and name that file"
                         " in pin-source")  # fmt: skip
        if name not in known:
            raise _wrong(name[:40], f"is not read; there are {', '.join(sorted(known))}")
        if name in found:
            raise _wrong(name, "is there twice")
        found[name] = value
    return found


def _wrong(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"pkcs11 URI: {name!r} {what}; it looks like"
        " pkcs11:token=T;object=KEY?module-path=/usr/lib/…/LIBRARY.so&pin-source=file:/FILE"
    )
