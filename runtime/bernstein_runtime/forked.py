"""What becomes of channels, locks and ids in a process that fork() made (field case F20).

Threads do not come along, and what they held stays held; gRPC can begin anew in the child, if it
was prepared for that. Whatever keeps such things is told in the child, before anything else runs.
"""

import os
from typing import Final, Protocol
from weakref import WeakSet

from bernstein_formats.errors import ClientForked

_OFF: Final = ("0", "false", "no", "off", "n", "f")


class Renewable(Protocol):
    """Keeps what is of no use in a child."""

    def after_fork(self) -> None:
        """Forget it; nothing else runs in the child yet."""


class _Process:
    """What this process has, and has from its parent."""

    def __init__(self) -> None:
        self.things: WeakSet[Renewable] = WeakSet()
        self.is_using_grpc = False
        self.loop_channels = 0
        # Why gRPC cannot be used here; empty where it can.
        self.unusable = ""

    def after_fork(self) -> None:
        if self.loop_channels:
            self.unusable = "its parent had an asyncio client open"
        elif self.is_using_grpc and _is_support_off():
            self.unusable = "GRPC_ENABLE_FORK_SUPPORT switches that off"
        self.loop_channels = 0
        for thing in list(self.things):
            thing.after_fork()


_PROCESS: Final = _Process()
os.register_at_fork(after_in_child=_PROCESS.after_fork)


def renew_after_fork(thing: Renewable) -> None:
    """Have it told in each child, for as long as it lives."""
    _PROCESS.things.add(thing)


def check_usable() -> None:
    """To be asked before a channel is opened. Raises ClientForked: a call would hang for ever."""
    if _PROCESS.unusable:
        raise ClientForked(
            "this process was forked from one that used its services, and cannot ask them itself:"
            f" {_PROCESS.unusable}; fork before the first call, or start workers with"
            " multiprocessing's spawn"
        )
    _PROCESS.is_using_grpc = True


def loop_channel_opened() -> None:
    """An event loop has a channel more, and a child no use of gRPC from now on."""
    check_usable()
    _PROCESS.loop_channels += 1


def loop_channel_closed() -> None:
    """It has one less."""
    _PROCESS.loop_channels -= 1


def _is_support_off() -> bool:
    return os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "1").strip().lower() in _OFF
