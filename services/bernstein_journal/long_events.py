"""One event that comes in parts: put together, bounded and checked, before anything is done."""

import hashlib
from collections.abc import Iterator

from bernstein_formats.errors import LimitExceeded, SignatureWrong
from bernstein_journal.requests import check_request_id
from bernstein_journal.run_log import Append
from bernstein_runtime import limits


def long_event(
    run_id: str, event: str, request_id: str, sha256: bytes, parts: Iterator[bytes]
) -> Append:
    """Raises InvalidInput, LimitExceeded, SignatureWrong."""
    check_request_id(request_id)
    payload = bytearray()
    for part in parts:
        if len(payload) + len(part) > limits.ROW_BYTES_MAX:
            raise LimitExceeded(
                f"event {event!r} has more than {limits.ROW_BYTES_MAX} bytes, the most that a row"
                " has"
            )
        payload += part
    if hashlib.sha256(payload).digest() != sha256:
        raise SignatureWrong(f"event {event!r} was damaged on its way; send it again")
    return Append(run_id, [(event, bytes(payload))], request_id, None)
