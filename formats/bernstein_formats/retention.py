"""Which runs a limit on their number lets go, and what stays of them; pure, so that it can be
shown beforehand.

Rules: docs/formats/event-journal.md, section 12.
"""

from collections.abc import Collection, Sequence
from typing import Final

JOURNAL: Final = "journal.jsonl"
SEAL: Final = "seal.json"
# What proves a run stays when it is let go.
LASTING: Final = frozenset({SEAL, "run-receipt.json", "run-receipt.cose"})
JOURNAL_GONE: Final = "it is sealed, and its journal is gone"


def lost_journal(names: Collection[str]) -> bool:
    """Whether a folder with these files is of a sealed run whose journal is gone.

    One that was let go has nothing left but what proves it.
    """
    return SEAL in names and JOURNAL not in names and not LASTING.issuperset(names)


def parse_retention(text: str) -> int:
    """Read BERNSTEIN_REPLAY_RETENTION as the peer does: Python's int(); anything else keeps all."""
    try:
        return max(0, int(text.strip()))
    except ValueError:
        return 0


def is_zero(text: str) -> bool:
    """Whether a text says zero, which keeps all on purpose."""
    try:
        return int(text) == 0
    except ValueError:
        return False


def runs_to_prune(
    oldest_first: Sequence[str], keep: int, *, active: str = "", protected: Collection[str] = ()
) -> list[str]:
    """The runs to remove so that the newest `keep` stay; 0 keeps all.

    The active run counts as the newest. A protected one stays although it is old, and no newer one
    goes in its place.
    """
    if keep <= 0:
        return []
    ordered = [run_id for run_id in oldest_first if run_id != active]
    beyond = len(ordered) + bool(active) - keep
    return [run_id for run_id in ordered[: max(0, beyond)] if run_id not in protected]
