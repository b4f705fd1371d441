"""Ctrl-C, SIGTERM and SIGHUP as a request to stop: the first is polite, the second is not."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping_on_signals(stop: threading.Event, told: Callable[[], None]) -> Iterator[None]:
    """Set `stop` at the first signal, so that nothing is torn; the second raises at once.

    `told` is called, in a thread of its own, when the first one came. A signal that this process
    was started to ignore (nohup) stays ignored. Only the main thread can be interrupted; elsewhere
    this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # Not here: the signal may have come in the middle of a line that is being written.
        threading.Thread(target=told, daemon=True).start()

    heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, on_signal) for each in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
