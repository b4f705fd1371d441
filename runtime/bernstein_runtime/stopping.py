"""When an asyncio process has to stop: on a signal, or when whoever started it is gone."""

import asyncio
import os
import signal


def stop_event(parent: int | None) -> asyncio.Event:
    """Set on SIGTERM, SIGINT and at the end of the pipe `parent`. Needs a running loop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if parent is not None:
        loop.add_reader(parent, _on_parent, parent, stopping)
    return stopping


def _on_parent(descriptor: int, stopping: asyncio.Event) -> None:
    """Whoever started this process is gone when its pipe ends."""
    if not os.read(descriptor, 1):
        asyncio.get_running_loop().remove_reader(descriptor)
        stopping.set()
