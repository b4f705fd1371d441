"""Whether a service answers at its socket. A stopped process still takes connections, so that a
connection alone tells nothing: a gRPC server speaks first (RFC 9113, section 3.4)."""

import socket

from bernstein_runtime.places import Places

PROBE_SECONDS = 1.0
# It speaks HTTP/1.1, and would take a request for being used.
SPEAKS_SECOND = frozenset({"gateway"})


def answers(places: Places, service: str) -> bool:
    """Asked at the socket of `service`; takes a second at most."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(places.socket(service)))
            return service in SPEAKS_SECOND or bool(probe.recv(1))
        except OSError:
            return False
