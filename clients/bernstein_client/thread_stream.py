"""A run's live thread over HTTP: whatever the network does, each row comes once and in order."""

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import httpx2

from bernstein_formats.canonical import Profile, canonical_bytes, parse_json
from bernstein_formats.errors import BernsteinError, InvalidInput, RunNotFound, Unavailable
from bernstein_formats.event_stream import EventParser, Gap, Step, ThreadCursor
from bernstein_formats.thread import ThreadStep

# The gateway sends a heartbeat well within this time.
READ_SECONDS: Final = 60.0
TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2


class ThreadStream:
    """A viewer of the gateway that listens on a Unix socket. Blocking."""

    def __init__(self, socket: Path, transport: httpx2.BaseTransport | None = None) -> None:
        self._transport = transport or httpx2.HTTPTransport(uds=str(socket))

    def steps(self, run_id: str, start_index: int = 0) -> Iterator[ThreadStep]:
        """The rows from a position on until the thread ends; a lost connection or a gap is asked
        for again. Raises RunNotFound, InvalidInput, Unavailable."""
        cursor = ThreadCursor(start_index - 1)
        failures = 0
        timeout = httpx2.Timeout(READ_SECONDS)
        with httpx2.Client(transport=self._transport, timeout=timeout) as client:
            while failures < TRIES:
                before = cursor.last_index
                try:
                    is_ended = yield from self._attempt(client, run_id, cursor)
                except httpx2.TransportError:
                    is_ended = False
                if is_ended:
                    return
                failures = failures + 1 if cursor.last_index == before else 0
                time.sleep(_PAUSE_SECONDS * failures)
        raise Unavailable(f"the thread of run {run_id} broke off {TRIES} times without a new row")

    def _attempt(
        self, client: httpx2.Client, run_id: str, cursor: ThreadCursor
    ) -> Generator[ThreadStep, None, bool]:
        """One connection; gives whether the thread has ended."""
        parser = EventParser()
        url = f"http://gateway/runs/{run_id}/thread"
        with client.stream("GET", url, headers=cursor.resume_headers()) as response:
            if response.status_code == httpx2.codes.NO_CONTENT:
                return True
            if response.status_code != httpx2.codes.OK:
                raise _refusal(response.read())
            for chunk in response.iter_bytes():
                for event in parser.feed(chunk):
                    if event.event == "end":
                        return True
                    if event.event == "refused":
                        raise _refusal(event.data.encode())
                    found = cursor.take(event)
                    if isinstance(found, Gap):
                        return False
                    if isinstance(found, Step):
                        yield _thread_step(found)
        return False


def _thread_step(step: Step) -> ThreadStep:
    stored = step.data.get("event_hash") if isinstance(step.data, dict) else ""
    data = canonical_bytes(step.data, Profile.PY_JSON)
    return ThreadStep(step.index, str(stored), data)


def _refusal(body: bytes) -> BernsteinError:
    """The gateway's refusal as the error it is."""
    try:
        facts = parse_json(body)
    except InvalidInput:
        facts = {}
    if not isinstance(facts, dict):
        facts = {}
    reason, detail = str(facts.get("error", "")), str(facts.get("detail", "no details"))
    for kind in (RunNotFound, InvalidInput):
        if kind.reason == reason:
            return kind(detail)
    return Unavailable(f"the gateway refuses: {detail}")
