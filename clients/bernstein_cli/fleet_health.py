"""How the services of a fleet are, each on each of its hosts: asked, never started."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bernstein_formats.errors import BernsteinError
from bernstein_runtime.fleet import Fleet, fleet_of
from bernstein_runtime.fleet_channel import FleetLink
from bernstein_runtime.status import error_from

SERVICES: Final = ("journal", "recorder", "rederiver", "signer")
_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """One service on one host; `seen` is "serving", or what is wrong."""

    service: str
    address: str
    ok: bool
    seen: str


def fleet_health(state_dir: Path, environ: Mapping[str, str]) -> Iterator[ServiceHealth]:
    """All that `[fleet] endpoint` names; none without it. Raises InvalidInput, KeyUnusable."""
    fleet = fleet_of(state_dir, environ)
    for endpoint in fleet.endpoints if fleet else ():
        for service in SERVICES:
            assert fleet is not None
            seen = _seen(Fleet((endpoint,), fleet.tls), service)
            address = endpoint.address(service)
            yield ServiceHealth(service, address, seen == "serving", seen)


def _seen(fleet: Fleet, service: str) -> str:
    link = FleetLink(fleet, service)
    try:
        link.reach()
        stub: Any = health_pb2_grpc.HealthStub(link.channel())
        name = f"bernstein_api.{service}.v1.{service.capitalize()}Service"
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=_SECONDS)
    except BernsteinError as error:
        return error.message
    except grpc.RpcError as failure:
        return error_from(failure).message
    finally:
        link.close()
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)).lower()
