"""What the kernel is asked to do for a process that holds keys. Linux only, like the services."""

import ctypes
import os
import resource
import signal
from pathlib import Path
from typing import Final

from bernstein_formats.errors import StoreFailed

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_CAP_IPC_LOCK: Final = 14
# MCL_CURRENT, MCL_FUTURE and MCL_ONFAULT: what is used, not what is merely reserved.
_LOCK_ALL: Final = 1 | 2 | 4


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


def lock_memory() -> None:
    """Keep all of this process's memory out of swap, where it may lock any amount of it.

    Below a limit nothing is locked: an allocation beyond it would fail, however late.
    """
    if _may_lock_any_amount():
        ctypes.CDLL(None).mlockall(_LOCK_ALL)


def _may_lock_any_amount() -> bool:
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        return True
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (effective,) = (line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_IPC_LOCK & 1)


def end_with_parent() -> None:
    """Have SIGTERM sent to this process when the one that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, argument: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, ctypes.c_ulong(argument), 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise StoreFailed(f"the kernel does not protect this process (prctl: {reason})")
