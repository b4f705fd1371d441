"""Why a service of a fleet cannot be reached, in one line.

gRPC says little of what went wrong in a handshake. So the same address is asked once more with the
same files, and what the system's own TLS says is put into words.
"""

import socket
import ssl
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import BernsteinError, Unavailable, Untrusted
from bernstein_runtime.endpoint import Endpoint
from bernstein_runtime.tls import TlsFiles

SECONDS: Final = 3.0
# What OpenSSL calls the ways in which a certificate can be wrong (x509_vfy.h).
_HAS_EXPIRED, _NOT_YET = 10, 9
_OTHER_NAME: Final = (62, 64)
_OTHER_CA: Final = (2, 18, 19, 20, 21)
_HUNG_UP: Final = (ConnectionAbortedError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Place:
    """A service of a fleet on one host."""

    service: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.service} at {self.endpoint.address(self.service)}"


def why_unreachable(place: Place, files: TlsFiles | None) -> BernsteinError:
    """What is wrong: Untrusted for a certificate, Unavailable where it may pass."""
    try:
        _ask(place, files)
    except ssl.SSLCertVerificationError as error:
        return Untrusted(f"{place} is not trusted: {_fault(error, place, files)}")
    except ssl.SSLError as error:
        return _refused(error, place, files)
    except OSError as error:
        if files is not None and isinstance(error, _HUNG_UP):
            return _refuses_ours(place, files)
        return Unavailable(f"{place} {_trouble(error)}")
    return Unavailable(f"{place} answers slowly, or was away until now; try again")


def _ask(place: Place, files: TlsFiles | None) -> None:
    host, port = place.endpoint.host, place.endpoint.port(place.service)
    with socket.create_connection((host, port), SECONDS) as connection:
        if files is None:
            _hear(connection)
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(files.ca)
        context.load_cert_chain(files.certificate, files.key)
        context.set_alpn_protocols(["h2"])
        with context.wrap_socket(connection, server_hostname=host) as channel:
            _hear(channel)


def _hear(connection: socket.socket) -> None:
    """A service that takes us speaks first; a refusal is mostly without a word."""
    try:
        if connection.recv(1):
            return
    except TimeoutError:
        if isinstance(connection, ssl.SSLSocket):
            raise
        # It waits for us to begin with TLS.
    raise ConnectionAbortedError


def _trouble(error: OSError) -> str:
    match error:
        case TimeoutError():
            return "does not answer; see whether its host and process are well"
        case socket.gaierror():
            return f"is not found: the name of its host is not known ({error.strerror})"
        case ConnectionRefusedError():
            return "is away: nothing listens there; start it, or see its log"
        case ConnectionAbortedError() | ConnectionResetError():
            return "does not take us; see whether it wants a certificate ([tls]), and its log"
    return f"cannot be reached: {error.strerror or error}"


def _fault(error: ssl.SSLCertVerificationError, place: Place, files: TlsFiles | None) -> str:
    code = error.verify_code
    if code == _HAS_EXPIRED:
        return "its certificate has expired; renew it there"
    if code == _NOT_YET:
        return "its certificate is not valid yet; compare the clocks of both hosts"
    if code in _OTHER_NAME:
        return f"its certificate is not for {place.endpoint.host}; use a name that is in it"
    if code in _OTHER_CA:
        ca = files.ca if files else "[tls] ca_file"
        return f"its certificate is of another CA than {ca}"
    return error.verify_message


def _refused(error: ssl.SSLError, place: Place, files: TlsFiles | None) -> BernsteinError:
    reason = error.reason or ""
    if files is not None and "ALERT" in reason:
        return _refuses_ours(place, files)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return Untrusted(f"{place} does not speak TLS; it is another program, or has no [tls]")
    return Unavailable(f"{place}: no TLS connection ({reason.lower().replace('_', ' ') or error})")


def _refuses_ours(place: Place, files: TlsFiles) -> BernsteinError:
    why = files.fault() or "see the log of the service"
    return Untrusted(f"{place} refuses our certificate {files.certificate}: {why}")
