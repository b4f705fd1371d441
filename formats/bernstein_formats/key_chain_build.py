"""Makes key chains: the body of the next entry here, its signature wherever the head's key is.

entry = succession(chain, key, "k-2027", issued_at)
data = extended(chain, entry, sign(entry_preimage(entry)))     # verified before it is given out
"""

import base64

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import Conflict, InvalidInput
from bernstein_formats.instants import parse_instant
from bernstein_formats.journal_reader import Row
from bernstein_formats.key_chain import CHAIN_TYPE, REVOCATION, SCHEMA_VERSION, SUCCESSION, KeyChain
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import PublicKey, check_key_name


def new_key_chain(key: PublicKey, kid: str) -> bytes:
    """The bytes of a chain that holds its root alone."""
    check_key_name(kid)
    return _document({"kid": kid, "public_key_jwk": {**key.jwk(kid)}}, [])


def succession(chain: KeyChain, key: PublicKey, kid: str, issued_at: str) -> Row:
    """The unsigned entry that makes `key` the head. Raises InvalidInput or Conflict."""
    check_key_name(kid)
    parse_instant(issued_at)
    _require_trusted_head(chain)
    if chain.find(kid) is not None:
        raise Conflict(f"the kid {kid!r} is in the chain already; give the new key another one")
    if any(each.key == key for each in chain.keys):
        raise Conflict("that key is in the chain already; a key has one name only")
    named: Row = {"kid": kid, "public_key_jwk": {**key.jwk(kid)}, "issued_at": issued_at}
    return {**_next(chain, SUCCESSION), "prev_kid": chain.head.kid, **named}


def revocation(chain: KeyChain, kid: str, revoked_at: str, reason: str) -> Row:
    """The unsigned entry that revokes a key; the head does not move. Raises likewise."""
    parse_instant(revoked_at)
    _require_trusted_head(chain)
    key = chain.find(kid)
    if key is None:
        raise InvalidInput(f"the kid {kid!r} is not in the chain; check its spelling")
    if key.revoked_at is not None:
        raise Conflict(f"{kid!r} is revoked already")
    return {**_next(chain, REVOCATION), "kid": kid, "revoked_at": revoked_at, "reason": reason}


def extended(chain: KeyChain, entry: Row, signature: bytes) -> bytes:
    """The bytes of the chain with that entry; ChainBroken if the signature is not the head's."""
    signed: Row = {**entry, "signature_b64": base64.b64encode(signature).decode()}
    entries: list[JsonValue] = [*({**each} for each in chain.entries), signed]
    data = _document({**chain.root}, entries)
    read_key_chain(data, chain.keys[0].key)
    return data


def _next(chain: KeyChain, kind: str) -> Row:
    return {"kind": kind, "seq": len(chain.links), "prev_entry_hash": chain.head_hash}


def _require_trusted_head(chain: KeyChain) -> None:
    if chain.is_closed:
        raise Conflict(
            f"the chain's head {chain.head.kid!r} is revoked and vouches for nothing any more;"
            " begin a new chain and have its root pinned"
        )


def _document(root: JsonValue, entries: list[JsonValue]) -> bytes:
    members: JsonValue = {
        "chain_type": CHAIN_TYPE,
        "entries": entries,
        "root": root,
        "schema_version": SCHEMA_VERSION,
    }
    return canonical_bytes(members, Profile.PY_JSON) + b"\n"
