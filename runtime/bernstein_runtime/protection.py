"""What the kernel is asked to do for a process that holds keys. Linux only, like the services."""

import ctypes
import os
import resource
import signal
from typing import Final

from bernstein_formats.errors import StoreFailed

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4


def hide() -> None:
    """No core dump, no debugger and no look into /proc of this process by others of its user.

    Its environment as it began, which nothing can change, is hidden with it. The programs that it
    starts are not.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def protect() -> None:
    """The same for a process that starts nothing; and files for its user only."""
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hide()


def end_with_parent() -> None:
    """Have SIGTERM sent to this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, argument: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise StoreFailed(f"the kernel does not protect this process (prctl: {reason})")
