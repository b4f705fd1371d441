"""AboutService, which every service serves beside its own calls: how it is, for its operator."""

from collections.abc import Callable, Mapping

import grpc

from bernstein_api.about.v1 import about_pb2, about_pb2_grpc
from bernstein_runtime import VERSION
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.readiness import Readiness
from bernstein_runtime.tls import TlsFiles, expires_at

NAME = about_pb2.DESCRIPTOR.services_by_name["AboutService"].full_name


class About(about_pb2_grpc.AboutServiceServicer):
    """See the .proto."""

    def __init__(
        self,
        service: str,
        readiness: Readiness,
        tls: TlsFiles | None,
        facts: Callable[[], Mapping[str, str]],
    ) -> None:
        self._service = service
        self._readiness = readiness
        self._tls = tls
        self._facts = facts

    def GetAbout(  # noqa: N802 - method names come from the .proto
        self, request: about_pb2.GetAboutRequest, context: grpc.ServicerContext
    ) -> about_pb2.GetAboutResponse:
        """See the .proto."""
        return about_pb2.GetAboutResponse(
            service=self._service,
            version=VERSION,
            refusal=self._readiness.refusal,
            unix_ms=round(SystemClock().now_seconds() * 1000),
            certificate_expires_unix=int(expires_at(self._tls)) if self._tls else 0,
            facts=self._facts(),
        )
