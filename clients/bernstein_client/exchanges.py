"""Recorded exchanges of agents with their providers, as programs see them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_client.recorder import Recording
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.http_exchange import (
    Body,
    Envelope,
    Exchange,
    body_of,
    parse_envelope,
    parse_exchange,
    request_of,
)
from bernstein_formats.http_key import HttpRequest
from bernstein_runtime import limits

_OVERHEAD_BYTES: Final = 64
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An exchange and the bytes of its envelope and its two bodies."""

    exchange: Exchange
    envelope: bytes
    request: bytes
    answer: bytes

    def bodies(self) -> dict[str, bytes]:
        """What is stored, by digest."""
        exchange = self.exchange
        return {
            exchange.envelope.sha256_hex: self.envelope,
            exchange.request.sha256_hex: self.request,
            exchange.answer.body.sha256_hex: self.answer,
        }


class ExchangesClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = recorder_pb2_grpc.RecorderServiceStub(connection.channel)

    def record(self, run_id: str, recorded: Sequence[Recorded]) -> None:
        """Keep exchanges with their bodies; all are durable when this returns."""
        request_id = self._connection.request_id()
        self._connection.call(
            lambda _, timeout: self._stub.RecordExchanges(
                _messages(run_id, request_id, recorded), timeout=timeout
            ),
            None,
            "RecordExchanges",
        )

    def store(self, run_id: str, *bodies: bytes) -> None:
        """Keep bodies that no exchange names; they are durable when this returns."""
        request_id = self._connection.request_id()
        by_digest = {body_of(each).sha256_hex: each for each in bodies}
        self._connection.call(
            lambda _, timeout: self._stub.RecordExchanges(
                _body_messages(run_id, request_id, by_digest), timeout=timeout
            ),
            None,
            "RecordExchanges",
        )

    def read(self, run_id: str) -> tuple[list[Exchange], Recording]:
        """All exchanges of a run, and count, size and digest of the file.

        Raises ReplayRecordingMissingError, RowMalformed.
        """
        digest, size, begun = hashlib.sha256(), 0, b""
        found: list[Exchange] = []
        request = recorder_pb2.ReadExchangesRequest(run_id=run_id)
        for answer in self._connection.stream(self._stub.ReadExchanges, request):
            digest.update(answer.data)
            size += len(answer.data)
            *lines, begun = (begun + answer.data).split(b"\n")
            found += [parse_exchange(line, len(found) + at) for at, line in enumerate(lines, 1)]
        if begun:
            found.append(parse_exchange(begun, len(found) + 1))
        return found, Recording(len(found), size, digest.hexdigest())

    def bodies(self, run_id: str, *wanted: Body) -> list[bytes]:
        """Stored bodies. Raises ReplayRecordingMissingError, RowMalformed."""
        request = recorder_pb2.ReadBodiesRequest(
            run_id=run_id, sha256s=[bytes.fromhex(each.sha256_hex) for each in wanted]
        )
        answers = self._connection.stream(self._stub.ReadBodies, request)
        data, at = b"".join(answer.data for answer in answers), 0
        found: list[bytes] = []
        for each in wanted:
            found.append(data[at : at + each.size])
            at += each.size
        return found

    def envelope_and(self, run_id: str, exchange: Exchange, body: Body) -> tuple[Envelope, bytes]:
        """The envelope of an exchange and one of its bodies. Raises like `bodies`."""
        envelope, found = self.bodies(run_id, exchange.envelope, body)
        return parse_envelope(envelope, exchange), found

    def request(self, run_id: str, exchange: Exchange) -> HttpRequest:
        """What was asked, as it is stored. Raises like `bodies`."""
        return request_of(exchange, *self.envelope_and(run_id, exchange, exchange.request))


def _messages(
    run_id: str, request_id: str, recorded: Sequence[Recorded]
) -> Iterator[recorder_pb2.RecordExchangesRequest]:
    """Bodies, each once, and the rows after them."""
    bodies = {digest: body for each in recorded for digest, body in each.bodies().items()}
    yield from _body_messages(run_id, request_id, bodies)
    for lines in _grouped((each.exchange.line() for each in recorded), len):
        yield recorder_pb2.RecordExchangesRequest(lines=lines)


def _body_messages(
    run_id: str, request_id: str, bodies: Mapping[str, bytes]
) -> Iterator[recorder_pb2.RecordExchangesRequest]:
    """Bodies by digest, in messages of bounded size."""
    yield recorder_pb2.RecordExchangesRequest(run_id=run_id, request_id=request_id)
    pieces = (
        recorder_pb2.BodyPiece(
            sha256=bytes.fromhex(digest), data=body[at : at + limits.PIECE_BYTES_MAX]
        )
        for digest, body in bodies.items()
        for at in range(0, max(1, len(body)), limits.PIECE_BYTES_MAX)
    )
    for some in _grouped(pieces, lambda piece: len(piece.data)):
        yield recorder_pb2.RecordExchangesRequest(pieces=some)


def _grouped(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items in lists that fit into a message."""
    some: list[Item] = []
    size = 0
    for item in items:
        more = size_of(item) + _OVERHEAD_BYTES
        if some and size + more > limits.PIECE_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield some
