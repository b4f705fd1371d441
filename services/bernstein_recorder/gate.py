"""Lets work in until it is shut; shutting waits for what is inside.

The account of a closed session is final: an answer that comes later is not recorded any more.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bernstein_formats.errors import Conflict


class Gate:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._is_shut = False

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Raises Conflict once the gate is shut."""
        with self._changed:
            if self._is_shut:
                raise Conflict("the session was closed meanwhile; the answer is not recorded")
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Let nothing in any more, and wait for what is inside."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: self._inside == 0)
