"""Which runs a limit on their number lets go; pure, so that it can be shown beforehand.

Rules: docs/formats/event-journal.md, section 12.
"""

from collections.abc import Collection, Sequence


def parse_retention(text: str) -> int:
    """Read BERNSTEIN_REPLAY_RETENTION as the peer does: Python's int(); anything else keeps all."""
    try:
        return max(0, int(text.strip()))
    except ValueError:
        return 0


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
