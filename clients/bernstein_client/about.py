"""What the services of a fleet say about themselves, each asked at its own host."""

from collections.abc import Mapping
from dataclasses import dataclass

import grpc

from bernstein_api.about.v1 import about_pb2, about_pb2_grpc
from bernstein_runtime.clock import Clock
from bernstein_runtime.connector import Connector
from bernstein_runtime.status import error_from

ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class About:
    """How a service is. `clock_ahead_seconds`: how far its clock is before ours, at most half a
    round trip off."""

    service: str
    version: str
    refusal: str
    clock_ahead_seconds: float
    certificate_expires_unix: int
    facts: Mapping[str, str]


def about(connector: Connector, service: str, clock: Clock) -> About:
    """Ask one service. Raises Unavailable, Untrusted, NotAllowed."""
    connector.ensure(service)
    channel = connector.open(service)
    began = clock.now_seconds()
    try:
        answer = about_pb2_grpc.AboutServiceStub(channel).GetAbout(
            about_pb2.GetAboutRequest(), timeout=ASK_SECONDS
        )
    except grpc.RpcError as failure:
        raise error_from(failure) from None
    finally:
        channel.close()
    halfway = (began + clock.now_seconds()) / 2
    return About(
        answer.service,
        answer.version,
        answer.refusal,
        answer.unix_ms / 1000 - halfway,
        answer.certificate_expires_unix,
        dict(answer.facts),
    )
