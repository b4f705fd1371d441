"""One viewer's stream: rows as server-sent events, heartbeats in between, a clear end.

Rules: docs/formats/live-thread.md. Only rows carry an id, so nothing else moves a resume point.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, Protocol

from bernstein_client.values import Watched, WatchedRows, WatchPlace
from bernstein_formats.errors import BernsteinError, InvalidInput, TooManyStreams
from bernstein_formats.thread import step_at

HEARTBEAT: Final = b"event: heartbeat\ndata: {}\n\n"
END: Final = b"event: end\ndata: {}\n\n"


class Watcher(Protocol):
    """Where rows come from."""

    def watch_rows(self, run_id: str, start_index: int) -> AsyncGenerator[Watched, None]: ...


def resume_index(last_event_id: str | None) -> int:
    """The position after the last row that a viewer has. Raises InvalidInput."""
    text = (last_event_id or "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(
            f"{text[:40]!r} is no position of a row; ask without Last-Event-ID to begin anew"
        )
    return int(text) + 1


class Viewers:
    """How many look at once; a bounded number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def enter(self) -> None:
        """Raises TooManyStreams."""
        if self._count >= self._limit:
            raise TooManyStreams(f"{self._limit} viewers look already; try again in a while")
        self._count += 1

    def leave(self) -> None:
        self._count -= 1


class Thread:
    """A stream whose beginning is known to be good."""

    def __init__(
        self, rows: AsyncGenerator[Watched, None], first: list[Watched], seconds: float
    ) -> None:
        self._rows = rows
        self._first = first
        self._heartbeat_seconds = seconds

    @classmethod
    async def opened(
        cls, watcher: Watcher, run_id: str, start_index: int, heartbeat_seconds: float
    ) -> "Thread":
        """Raises what the journal refuses with: RunNotFound, InvalidInput, TooManyStreams, …"""
        rows = watcher.watch_rows(run_id, start_index)
        first = [await anext(rows)]
        if isinstance(first[0], WatchPlace) and first[0].is_sealed:
            first.append(await anext(rows))
        return cls(rows, first, heartbeat_seconds)

    @property
    def is_over(self) -> bool:
        """Whether the run is sealed and the viewer has all of it."""
        last = self._first[-1]
        return len(self._first) > 1 and isinstance(last, WatchPlace)

    async def close(self) -> None:
        """Let go of the journal's stream."""
        await self._rows.aclose()

    async def frames(self) -> AsyncIterator[bytes]:
        """The events; ends after the last row of a sealed run, or with what went wrong."""
        try:
            async for item in self._with_heartbeats():
                if item is None:
                    yield HEARTBEAT
                elif isinstance(item, WatchedRows):
                    yield b"".join(
                        step_at(item.first_index + number, line).frame()
                        for number, line in enumerate(item.lines)
                    )
                else:
                    yield _event(
                        "place", {"next_index": item.next_index, "is_sealed": item.is_sealed}
                    )
            yield END
        except BernsteinError as error:
            yield _event("refused", {"error": error.reason, "detail": error.message})

    async def _with_heartbeats(self) -> AsyncIterator[Watched | None]:
        for item in self._first:
            yield item
        following = asyncio.ensure_future(anext(self._rows, None))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=self._heartbeat_seconds)
                if not done:
                    yield None
                    continue
                found = following.result()
                if found is None:
                    return
                yield found
                following = asyncio.ensure_future(anext(self._rows, None))
        finally:
            following.cancel()
            await asyncio.wait({following})
            await self.close()


def _event(name: str, data: dict[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()  # noqa: TID251 - not evidence
