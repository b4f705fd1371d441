"""A signer started for one session receipt: the rows go there, manifest and signature come back."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import grpc

from bernstein_api.signer.v1 import signer_pb2, signer_pb2_grpc
from bernstein_client.values import OnceSigner
from bernstein_formats.errors import SignatureWrong
from bernstein_formats.public_key import PublicKey
from bernstein_formats.session_receipt import SessionManifest
from bernstein_runtime import limits
from bernstein_runtime.caller import CALLER_KEY
from bernstein_runtime.channel import open_channel
from bernstein_runtime.status import error_from


@dataclass(frozen=True, slots=True)
class SessionSignature:
    """The signature over a manifest, checked, and the name of its key."""

    signature: bytes
    key_id: str


def sign_session_receipt(
    signer: OnceSigner, manifest: SessionManifest, journal: Iterable[bytes]
) -> SessionSignature:
    """Have a receipt signed. The signer makes the manifest from the rows; it must be ours.

    `journal` gives parts of at most 256 KiB.
    """
    header = signer_pb2.SessionReceiptHeader(
        agent_id=manifest.agent_id,
        created_at=manifest.created_at,
        version=manifest.bernstein_version,
        step_count=manifest.steps,
    )

    def requests() -> Iterator[signer_pb2.SignSessionReceiptRequest]:
        yield signer_pb2.SignSessionReceiptRequest(header=header)
        for part in journal:
            yield signer_pb2.SignSessionReceiptRequest(journal=part)

    with open_channel(signer.socket) as channel:
        try:
            made = signer_pb2_grpc.SignerServiceStub(channel).SignSessionReceipt(
                requests(),
                timeout=limits.LONG_CALL_TIMEOUT_SECONDS,
                metadata=((CALLER_KEY, signer.token),),
            )
        except grpc.RpcError as failure:
            raise error_from(failure) from None
    signed = manifest.signed_bytes()
    is_good = PublicKey(made.public_key).verifies(made.signature, signed)
    if made.manifest_json != signed or not is_good:
        raise SignatureWrong("the signer saw other rows than we did; nothing was written")
    return SessionSignature(made.signature, made.key_id)
