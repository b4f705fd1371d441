"""Recorded exchanges of agents with their providers, as programs see them."""

import hashlib
from collections.abc import Iterator

from bernstein_api.recorder.v1 import recorder_pb2, recorder_pb2_grpc
from bernstein_client.recorder import Recording
from bernstein_client.service_channel import ServiceChannel
from bernstein_formats.http_exchange import Exchange, parse_exchange
from bernstein_runtime import limits


class ExchangesClient:
    """Blocking; safe for any number of threads."""

    def __init__(self, connection: ServiceChannel) -> None:
        self._connection = connection
        self._stub = recorder_pb2_grpc.RecorderServiceStub(connection.channel)

    def store_bodies(self, run_id: str, *bodies: bytes) -> None:
        """Store bodies under their digests; they are durable when this returns."""
        for body in bodies:
            self._store(run_id, body)

    def append(self, run_id: str, exchange: Exchange) -> None:
        """Append an exchange whose bodies are stored; it is durable when this returns."""
        row = recorder_pb2.AppendExchangeRequest(
            run_id=run_id, request_id=self._connection.request_id(), line=exchange.line()
        )
        self._connection.call(self._stub.AppendExchange, row, "AppendExchange")

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

    def body(self, run_id: str, sha256_hex: str) -> bytes:
        """A stored body. Raises ReplayRecordingMissingError, RowMalformed."""
        request = recorder_pb2.ReadBodyRequest(run_id=run_id, sha256=bytes.fromhex(sha256_hex))
        answers = self._connection.stream(self._stub.ReadBody, request)
        return b"".join(answer.data for answer in answers)

    def _store(self, run_id: str, body: bytes) -> None:
        digest = hashlib.sha256(body).digest()

        def pieces() -> Iterator[recorder_pb2.StoreBodyRequest]:
            for at in range(0, max(1, len(body)), limits.PIECE_BYTES_MAX):
                yield recorder_pb2.StoreBodyRequest(
                    run_id=run_id, sha256=digest, data=body[at : at + limits.PIECE_BYTES_MAX]
                )

        self._connection.call(
            lambda _, timeout: self._stub.StoreBody(pieces(), timeout=timeout), None, "StoreBody"
        )
