"""A scripted model and its callers, each a process of its own, so that all proxies see the same.

`python -m benchmarks.model_streams serve` prints its address and serves until its input ends;
`… call URL STREAMS ROUNDS KIND` asks with so many streams at once and prints what it measured.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Final
from urllib.parse import urlsplit

EVENTS: Final = 20
GAP_SECONDS: Final = 0.02
PROMPT_BYTES: Final = 48 * 1024
HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
LAST_CHUNK: Final = b"0\r\n\r\n"
DONE: Final = b"data: [DONE]\n\n"
# The models: one takes its time between two events, the other answers at once.
PACED, AT_ONCE = "paced", "at-once"


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds until the first event, median and 95th of a hundred, and streams a second."""

    first_ms: float
    first_p95_ms: float
    per_second: float


class Model(asyncio.Protocol):
    """One connection to the scripted model."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._got = bytearray()
        # Size of the request with its head; 0: not known yet.
        self._wanted = 0

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._wanted and (end := self._got.find(b"\r\n\r\n")) >= 0:
            self._wanted = end + 4 + _length(bytes(self._got[:end]))
        if self._wanted and len(self._got) >= self._wanted:
            at_once = AT_ONCE.encode() in self._got
            self._got.clear()
            self._wanted = 0
            self._answer(at_once)

    def _answer(self, at_once: bool) -> None:
        events = [_chunk(_event(number)) for number in range(EVENTS)]
        last = _chunk(_event(EVENTS, "stop")) + _chunk(DONE) + LAST_CHUNK
        if at_once:
            self._transport.write(HEAD + b"".join(events) + last)
            return
        self._transport.write(HEAD + events[0])
        later = asyncio.get_running_loop().call_later
        for number, event in enumerate(events[1:], 1):
            later(number * GAP_SECONDS, self._transport.write, event)
        later(EVENTS * GAP_SECONDS, self._transport.write, last)


class Caller(asyncio.Protocol):
    """One connection that asks again and again."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, request: bytes) -> float:
        """Seconds to the first event; the answer is read to its end."""
        loop = asyncio.get_running_loop()
        self._first = 0.0
        self._tail = b""
        self._ended: asyncio.Future[None] = loop.create_future()
        began = time.perf_counter()
        self._transport.write(request)
        await self._ended
        return self._first - began

    def data_received(self, data: bytes) -> None:
        if not self._first and b"data:" in data:
            self._first = time.perf_counter()
        self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        if self._tail == LAST_CHUNK:
            if not self._first:
                self._ended.set_exception(RuntimeError(f"no stream came: {data!r}"))
            else:
                self._ended.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionError("the answer broke off"))


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


def _event(number: int, finish: str | None = None) -> bytes:
    delta = {} if finish else {"role": "assistant", "content": f"word {number} "}
    event = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Model, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def call(url: str, streams: int, rounds: int, model: str) -> Measured:
    """So many at any time: each asks again when it has its answer, and they do not start at the
    same instant, but evenly over the time of one paced answer."""
    address = urlsplit(url)
    loop = asyncio.get_running_loop()
    assert address.hostname
    assert address.port
    callers = [
        (await loop.create_connection(Caller, address.hostname, address.port))[1]
        for _ in range(streams)
    ]

    requests = [
        [_request(address.path, address.netloc, model, f"{number}.{at}") for at in range(rounds)]
        for number in range(streams)
    ]

    async def work(number: int) -> list[float]:
        await asyncio.sleep(number / streams * EVENTS * GAP_SECONDS if model == PACED else 0)
        return [await callers[number].ask(request) for request in requests[number]]

    began = time.perf_counter()
    done = await asyncio.gather(*map(work, range(streams)))
    seconds = time.perf_counter() - began
    firsts = [1000 * each for of_one in done for each in of_one]
    return Measured(median(firsts), quantiles(firsts, n=20)[-1], len(firsts) / seconds)


def _request(path: str, host: str, model: str, name: str) -> bytes:
    """No two are the same, as in a real run; the long part is."""
    messages = [
        {"role": "system", "content": "You are a scripted model. " * (PROMPT_BYTES // 26)},
        {"role": "user", "content": f"question {name}"},
    ]
    body = json.dumps({"model": model, "stream": True, "messages": messages}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer none\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def main() -> None:
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        url, streams, rounds, model = sys.argv[2:]
        print(json.dumps(asdict(asyncio.run(call(url, int(streams), int(rounds), model)))))


if __name__ == "__main__":
    main()
