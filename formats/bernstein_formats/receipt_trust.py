"""Whether a key chain vouches for the key that signed a receipt (docs/formats/key-chain.md, 4)."""

from dataclasses import dataclass
from typing import Final

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ChainBroken, InvalidInput
from bernstein_formats.instants import parse_instant
from bernstein_formats.key_chain import Completeness, KeyChain, KeyVerdict
from bernstein_formats.key_chain_read import read_key_chain, refused
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_verdict import ChainFacts

_PROBLEMS: Final = {
    KeyVerdict.UNKNOWN_KEY: ("key-unknown", "the chain introduces no key {kid!r}"),
    KeyVerdict.KEY_MISMATCH: ("key-mismatch", "the chain knows another key by the name {kid!r}"),
    KeyVerdict.REVOKED_SIGNING_TIME_UNKNOWN: (
        "key-revoked-time-unknown",
        "{kid!r} is revoked; only a trusted signing time, given as --signed-at, could help",
    ),
    KeyVerdict.SIGNED_AFTER_REVOCATION: (
        "key-revoked-after",
        "{kid!r} was revoked when it signed, or before",
    ),
}


@dataclass(frozen=True, slots=True)
class ChainEvidence:
    """A key chain's file, what is known of its end, and when the receipt was signed, if known.

    The file's holder can cut entries off its end unseen, unless their number or a hash is known
    from elsewhere: the chain must reach at least that far.
    """

    data: bytes
    signed_at: str | None = None
    known_entry_count: int | None = None
    known_head_hash: str | None = None

    @property
    def is_pinned(self) -> bool:
        return self.known_entry_count is not None or self.known_head_hash is not None


@dataclass(frozen=True, slots=True)
class ChainAnswer:
    """What the chain said; `error` is empty if the key is trusted."""

    facts: ChainFacts
    error: str = ""
    warnings: tuple[str, ...] = ()


def ask_chain(
    evidence: ChainEvidence,
    pin: PublicKey | bytes,
    key: PublicKey,
    names: tuple[JsonValue, JsonValue],
) -> ChainAnswer:
    """Ask for the key that signed a receipt; `names` are its key_id and its JWK's kid."""
    facts = ChainFacts()
    try:
        chain = read_key_chain(evidence.data, pin)
        check_reaches(chain, evidence)
        facts = chain_facts(chain, evidence)
        signed_at = _signing_time(evidence.signed_at)
    except ChainBroken as error:
        return ChainAnswer(_with_problem(facts, error.metadata["check"]), error.message)
    kid = str(names[0])
    verdict = chain.verdict(kid, key, signed_at)
    if not verdict.is_trusted:
        problem, text = _PROBLEMS[verdict]
        return ChainAnswer(_with_problem(facts, problem, verdict), text.format(kid=kid))
    if names[0] != names[1]:
        text = "the receipt's key_id is not the kid of its JWK, so it names no signer"
        return ChainAnswer(_with_problem(facts, "key-name"), text)
    facts = _with_problem(facts, None, verdict)
    return ChainAnswer(facts, warnings=_warnings(chain, kid, signed_at))


def check_reaches(chain: KeyChain, evidence: ChainEvidence) -> None:
    """Raise ChainBroken if the chain lacks what is known to be in it."""
    known, count = evidence.known_entry_count, len(chain.entries)
    if known is not None and count < known:
        raise refused("chain-cut", f"{known} entries are known, {count} are there: its end was cut")
    if evidence.known_head_hash not in {None, *chain.links}:
        text = f"no entry hashes to {evidence.known_head_hash}: its end was cut, or another made"
        raise refused("chain-cut", text)


def chain_facts(chain: KeyChain, evidence: ChainEvidence) -> ChainFacts:
    completeness = Completeness.PINNED if evidence.is_pinned else Completeness.UNVERIFIABLE
    return ChainFacts(
        completeness=completeness, entry_count=len(chain.entries), head_hash=chain.head_hash
    )


def _signing_time(text: str | None) -> int | None:
    """Read whether or not the key was revoked: a time that cannot be read is no evidence."""
    try:
        return None if text is None else parse_instant(text)
    except InvalidInput as error:
        raise refused("signed-at-unusable", f"--signed-at: {error.message}") from error


def _with_problem(
    facts: ChainFacts, problem: str | None, verdict: KeyVerdict | None = None
) -> ChainFacts:
    return ChainFacts(verdict, problem, facts.completeness, facts.entry_count, facts.head_hash)


def _warnings(chain: KeyChain, kid: str, signed_at: int | None) -> tuple[str, ...]:
    named = chain.find(kid)
    introduced_at = None if named is None else named.introduced_at
    if signed_at is not None and introduced_at is not None and signed_at < introduced_at:
        return (f"the signing time lies before the chain introduces {kid!r}",)
    return ()
