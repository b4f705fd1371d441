"""The journal's way to a signer: the rows go there as a stream of stored bytes, never to be signed
as such. Nobody else calls it."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from bernstein_api.signer.v1 import signer_pb2, signer_pb2_grpc
from bernstein_formats.errors import NotAllowed
from bernstein_runtime import limits
from bernstein_runtime.channel import call, open_channel
from bernstein_runtime.places import Places
from bernstein_runtime.server import CALLER_KEY
from bernstein_runtime.supervisor import Supervisor

PACKAGE = "/bernstein_api.signer.v1.SignerService"
Chunks = Callable[[], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class SignedReceipt:
    """What only the signer can make."""

    signature: bytes
    cose_signature: bytes
    public_key: bytes
    key_id: str
    receipt_sha256: bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """One signer process, resident or started for one receipt."""

    socket: Path
    token: bytes
    revive: Callable[[], None]
    # Whether it keeps the project's ledger; one that does not is shown the ledger's seal.
    keeps_ledger: bool

    def seal(
        self, *, origin: str, run_id: str, checkpoint: bytes, size: int, journal: Chunks
    ) -> bytes:
        """Content of `seal.json` for the rows that `journal` gives, `size` bytes of them."""
        run = signer_pb2.RunHeader(
            origin=origin, run_id=run_id, checkpoint_json=checkpoint, journal_size_bytes=size
        )

        def requests() -> Iterator[signer_pb2.SealRunRequest]:
            yield signer_pb2.SealRunRequest(run=run)
            for chunk in journal():
                yield signer_pb2.SealRunRequest(journal=chunk)

        with self._stub() as stub:
            response = call(
                f"{PACKAGE}/SealRun",
                lambda: stub.SealRun(
                    requests(),
                    timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
                    metadata=self._metadata(),
                ),
                revive=self.revive,
            )
        return response.seal_json

    def sign_receipt(
        self,
        *,
        origin: str,
        run_id: str,
        row_count: int,
        seal_json: bytes,
        journal: Chunks,
        spine: Chunks,
    ) -> SignedReceipt:
        """Signatures over the receipt that these rows make."""
        header = signer_pb2.ReceiptHeader(
            run=signer_pb2.RunHeader(origin=origin, run_id=run_id),
            row_count=row_count,
            seal_json=b"" if self.keeps_ledger else seal_json,
        )

        def requests() -> Iterator[signer_pb2.BuildReceiptRequest]:
            yield signer_pb2.BuildReceiptRequest(header=header)
            for chunk in journal():
                yield signer_pb2.BuildReceiptRequest(journal=chunk)
            for chunk in spine():
                yield signer_pb2.BuildReceiptRequest(spine=chunk)

        with self._stub() as stub:
            response = call(
                f"{PACKAGE}/BuildReceipt",
                lambda: stub.BuildReceipt(
                    requests(),
                    timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
                    metadata=self._metadata(),
                ),
                revive=self.revive,
            )
        return SignedReceipt(
            signature=response.signature,
            cose_signature=response.cose_signature,
            public_key=response.public_key,
            key_id=response.key_id,
            receipt_sha256=response.receipt_sha256,
        )

    def _stub(self) -> "_Stub":
        return _Stub(open_channel(self.socket))

    def _metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((CALLER_KEY, self.token),)


class _Stub:
    """A stub that closes its channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def __enter__(self) -> signer_pb2_grpc.SignerServiceStub:
        return signer_pb2_grpc.SignerServiceStub(self._channel)

    def __exit__(self, *_: object) -> None:
        self._channel.close()


def resident_signer(places: Places, supervisor: Supervisor, token: bytes) -> Signer:
    """The project's own signer, started when it is not running."""

    def revive() -> None:
        supervisor.ensure("signer")

    revive()
    return Signer(places.socket("signer"), token, revive, keeps_ledger=True)


def once_signer(places: Places, socket: Path, token: bytes) -> Signer:
    """A signer that the caller started; only one of this user, in our private runtime folder."""
    facts = socket.lstat() if socket.parent == places.runtime_dir and socket.exists() else None
    if facts is None or not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.getuid():
        raise NotAllowed(f"{socket} is not a signer's socket in {places.runtime_dir}")
    return Signer(socket, token, lambda: None, keeps_ledger=False)
