"""What stands in a run's `seal.json`, wherever it is read: a seal to go by, or what is wrong."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from bernstein_formats.errors import KeyUnusable, SealMalformed, SignatureWrong
from bernstein_formats.journal_verdict import Identity, JournalSeal, JournalVerification
from bernstein_formats.public_key import PublicKey
from bernstein_formats.seal import Seal, check_seal, parse_seal

# By whether the key of a seal is known from elsewhere than the seal.
SEAL_KEY_TEXTS: Final = {
    True: "pinned: the seal's key is the one known here",
    False: "not pinned: the seal was checked with the key that it carries itself",
}


@dataclass(frozen=True, slots=True)
class FoundSeal:
    """The seal unless there is none or `errors` says why it proves nothing."""

    seal: Seal | None = None
    errors: tuple[str, ...] = ()
    # Whether its key is known from elsewhere; None without a seal to go by.
    pinned_key: bool | None = None

    @property
    def journal_seal(self) -> JournalSeal | None:
        """What a journal is held against."""
        return self.seal.entry.body.journal_seal if self.seal else None

    @property
    def row_count(self) -> int:
        """How many rows were sealed; 0 without a seal."""
        return self.seal.entry.body.event_count if self.seal else 0

    def concluded(self, journal: JournalVerification) -> JournalVerification:
        """A seal that cannot be trusted verifies nothing, and is not the same as none."""
        if not self.errors:
            return journal
        return replace(
            journal, identity=Identity.MISMATCHED, errors=(*journal.errors, *self.errors)
        )


def found_seal(
    data: bytes | None, run_id: str, pinned_key: Callable[[], PublicKey | None]
) -> FoundSeal:
    """Judge a run's `seal.json`; `pinned_key` gives the key that must have made it, if known."""
    if data is None:
        return FoundSeal()
    try:
        seal = parse_seal(data)
        pinned = pinned_key()
        check_seal(seal, pinned)
    except (SealMalformed, SignatureWrong, KeyUnusable) as error:
        return FoundSeal(errors=(error.message,))
    if seal.entry.body.run_id != run_id:
        return FoundSeal(errors=(f"the seal is one of run {seal.entry.body.run_id}",))
    return FoundSeal(seal, pinned_key=pinned is not None)
