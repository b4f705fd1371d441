"""What the kernel is asked to do for a process that holds keys. Linux only, like the services."""

import ctypes
import os
import resource
import signal
from typing import Final

from bernstein_formats.errors import StoreFailed

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4


def protect() -> None:
    """No core dump, no debugger and no look into /proc of this process; files for its user only."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def end_with_parent() -> None:
    """Have SIGTERM sent to this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, argument: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise StoreFailed(f"the kernel does not protect this process (prctl: {reason})")
