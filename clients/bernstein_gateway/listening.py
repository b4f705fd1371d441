"""Where the gateway listens: a Unix socket always, and one port for browsers."""

import os
import socket
from pathlib import Path

from bernstein_formats.errors import InvalidInput, StoreFailed
from bernstein_runtime.config import GatewayConfig
from bernstein_runtime.endpoint import is_loopback


def check_listener(config: GatewayConfig) -> None:
    """Refuse to be reachable from other hosts in the clear. Raises InvalidInput."""
    has_certificate, has_key = bool(config.tls_certificate_file), bool(config.tls_key_file)
    if has_certificate != has_key:
        raise InvalidInput("[gateway] needs both tls_certificate_file and tls_key_file, or neither")
    if not is_loopback(config.host) and not has_certificate:
        raise InvalidInput(
            f"[gateway] host {config.host!r} can be reached from other hosts; set"
            " tls_certificate_file and tls_key_file, or listen on 127.0.0.1",
            host=config.host,
        )
    if not 0 <= config.port <= 65535:
        raise InvalidInput(f"[gateway] port {config.port} is no port")


def open_port(config: GatewayConfig) -> socket.socket:
    """Listen for browsers. Raises InvalidInput, StoreFailed."""
    check_listener(config)
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen()  # whoever reads the url before it is served waits, and is not refused
    except OSError as error:
        raise StoreFailed(
            f"cannot listen on {config.host}:{config.port}: {error.strerror or error}"
        ) from error
    return opened


def open_unix(path: Path) -> socket.socket:
    """Listen for this user's own programs."""
    path.unlink(missing_ok=True)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        opened.bind(str(path))
    finally:
        os.umask(before)
    return opened


def url_of(opened: socket.socket, config: GatewayConfig) -> str:
    """The address for browsers."""
    host, port = opened.getsockname()[:2]
    if not is_loopback(config.host):
        host = config.host
    scheme = "https" if config.tls_certificate_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
