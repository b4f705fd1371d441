"""What is shown of a key chain that holds."""

from collections.abc import Iterator

from bernstein_formats.key_chain import KeyChain, KeyVerdict
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.receipt_trust import ChainEvidence, check_reaches
from bernstein_verify.output import GREEN, YELLOW, Printed, document, remark, say


def tell_key_chain(evidence: ChainEvidence, pin: bytes | None, *, as_json: bool) -> None:
    """Say what a chain holds, once all of it does; else raises ChainBroken."""
    chain = read_key_chain(evidence.data, pin)
    check_reaches(chain, evidence)
    if as_json:
        document(key_chain_document(chain, evidence, is_root_pinned=pin is not None))
    else:
        say(f"OK ({len(chain.entries)} entries behind the root)", GREEN)
        for key in chain.keys:
            say(f"key {key.kid}: {_standing(chain, key.kid)}")
        say(f"last entry's hash: {chain.head_hash}")
    for note in chain_notes(chain):
        remark(note, YELLOW)
    if pin is None:
        remark("the root is the chain's own: pin it with --public-key to know whose chain it is")
    if not evidence.is_pinned:
        remark("entries cut off a chain's end leave no trace; pin it with --chain-entries or -head")


def chain_notes(chain: KeyChain) -> Iterator[str]:
    """What is to be known of a chain that holds, and is of no use from now on."""
    if chain.is_void:
        yield "every key of the chain is revoked: it vouches for nothing that is signed from now on"
    if chain.is_closed:
        yield (
            f"its head {chain.head.kid!r} is revoked, so no key can follow: begin a new chain and"
            " have its root pinned"
        )


def key_chain_document(
    chain: KeyChain, evidence: ChainEvidence, *, is_root_pinned: bool
) -> dict[str, Printed]:
    """The JSON."""
    return {
        "ok": True,
        "root_pinned": is_root_pinned,
        "completeness": "pinned" if evidence.is_pinned else "unverifiable",
        "entries": len(chain.entries),
        "head": chain.head.kid,
        "head_hash": chain.head_hash,
        "keys": [
            {"kid": key.kid, "standing": _standing(chain, key.kid), "x": key.key.jwk("")["x"]}
            for key in chain.keys
        ],
        "notes": list(chain_notes(chain)),
    }


def _standing(chain: KeyChain, kid: str) -> str:
    key = chain.find(kid)
    assert key is not None  # it is one of the chain's
    verdict = chain.verdict(kid, key.key, None)
    revoked = verdict is KeyVerdict.REVOKED_SIGNING_TIME_UNKNOWN
    return "revoked" if revoked else verdict.value
