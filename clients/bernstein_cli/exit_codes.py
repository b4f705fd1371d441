"""What the command's exit codes mean; the one table from an error's reason to its code."""

from typing import Final

from bernstein_formats.errors import BernsteinError
from bernstein_verify import output

OK: Final = 0
FAILED: Final = output.FAILED
USAGE: Final = 2
REPLAY_MISS: Final = 10
REPLAY_INCOMPLETE: Final = 11
RECORDING_MISSING: Final = 12
KEY_SCHEME_MISMATCH: Final = 13
NOT_OURS: Final = 64
INTERRUPTED: Final = output.INTERRUPTED
BROKEN_PIPE: Final = output.BROKEN_PIPE

BY_REASON: Final = {
    "REPLAY_MISS": REPLAY_MISS,
    "REPLAY_INCOMPLETE": REPLAY_INCOMPLETE,
    "RECORDING_MISSING": RECORDING_MISSING,
    "KEY_SCHEME_MISMATCH": KEY_SCHEME_MISMATCH,
}


def exit_code_of(error: BernsteinError) -> int:
    """The code of an error that ends a command; 1 where the table has none."""
    return BY_REASON.get(error.reason, FAILED)
