"""Errors ↔ gRPC statuses: the only table, both directions.

An error raised in a service is the same class with the same metadata in its caller. It travels as
one `google.rpc.ErrorInfo` in the `grpc-status-details-bin` trailer (AIP-193).
"""

import grpc
from google.rpc import error_details_pb2, status_pb2

from bernstein_formats import errors
from bernstein_formats.errors import BY_REASON, BernsteinError

DOMAIN = "bernstein_api"
DETAILS_KEY = "grpc-status-details-bin"
# Trailers hold about 8 KiB; a fact longer than this is in the text already.
METADATA_CHARACTERS_MAX = 512
TEXT_CHARACTERS_MAX = 4000
# When a caller with too much under way may try again.
RETRY_AFTER_MILLISECONDS = 200

CODES: dict[type[BernsteinError], grpc.StatusCode] = {
    errors.InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.RunExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.HeadMoved: grpc.StatusCode.ABORTED,
    errors.Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Broken: grpc.StatusCode.DATA_LOSS,
    errors.NotAllowed: grpc.StatusCode.PERMISSION_DENIED,
    errors.Untrusted: grpc.StatusCode.UNAUTHENTICATED,
    errors.KeyUnusable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TooMany: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.DiskFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StoreFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ProviderFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ToolFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
}


def code_of(error: BernsteinError) -> grpc.StatusCode:
    """The status code of the nearest class in the table."""
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    return grpc.StatusCode.INTERNAL


def details_of(error: BernsteinError) -> bytes:
    """The serialized `google.rpc.Status` that carries class and metadata."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=DOMAIN,
        metadata={
            key: text[:METADATA_CHARACTERS_MAX] for key, text in sorted(error.metadata.items())
        },
    )
    number: int = code_of(error).value[0]
    status = status_pb2.Status(code=number, message=printable(error.message))
    status.details.add().Pack(info)
    if isinstance(error, errors.TooMany):
        wait = error_details_pb2.RetryInfo()
        wait.retry_delay.FromMilliseconds(RETRY_AFTER_MILLISECONDS)
        status.details.add().Pack(wait)
    return status.SerializeToString()


def printable(text: str) -> str:
    """A text that protobuf and a header can carry: lone surrogates written as escapes."""
    return text[:TEXT_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode("utf-8")


def error_from(failure: grpc.RpcError, who: str = "the service") -> BernsteinError:
    """The error that the service raised, or one that names what happened on the way to `who`."""
    assert isinstance(failure, grpc.Call | grpc.aio.AioRpcError)
    for key, value in failure.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            found = _error_in(status_pb2.Status.FromString(value))
            if found is not None:
                return found
    code, text = failure.code(), failure.details() or "no details"
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.LimitExceeded(f"message over the limit: {text}")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return errors.Unavailable(
            f"{who} went away, or does not answer; try again, and see `bernstein services status`",
            transport=text,
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.Unavailable(f"{who} did not answer in time; see `bernstein services status`")
    return BernsteinError(f"{text}; see `bernstein services logs`")


def _error_in(status: status_pb2.Status) -> BernsteinError | None:
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            error = BY_REASON.get(info.reason, BernsteinError)(status.message)
            error.metadata.update(info.metadata)
            return error
    return None
