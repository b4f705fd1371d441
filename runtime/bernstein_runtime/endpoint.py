"""Addresses of a fleet's services: `host[:base port]`, and each service's port beside the base."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from bernstein_formats.errors import InvalidInput

BASE_PORT: Final = 7431
# In the order of their ports.
SERVICES: Final = ("journal", "recorder", "rederiver", "signer", "gateway", "proxy", "import")
_BRACKETED: Final = re.compile(
    r"\[(?P<host>[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\](?::(?P<port>[0-9]{1,5}))?"
)
_NAMED: Final = re.compile(
    r"(?P<host>[0-9A-Za-z]([0-9A-Za-z._-]*[0-9A-Za-z])?)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host of a fleet."""

    host: str
    base_port: int = BASE_PORT

    def port(self, service: str) -> int:
        """Where `service` listens."""
        return self.base_port + SERVICES.index(service)

    def address(self, service: str) -> str:
        """The same with its host, as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port(service)}"


def parse_endpoint(text: str, where: str, base_port: int = BASE_PORT) -> Endpoint:
    """One `host[:base port]`; `where` names the setting. Raises InvalidInput."""
    found = _NAMED.fullmatch(text) or _BRACKETED.fullmatch(text)
    port = int(found["port"] or base_port) if found else 0
    if found is None or not 1 <= port <= 65536 - len(SERVICES):
        raise InvalidInput(
            f"{where}: {text!r} is no host[:port]; write db1.example, db1.example:{base_port} or"
            f" [::1]:{base_port}, where the port is that of the journal"
        )
    return Endpoint(found["host"], port)


def parse_endpoints(text: str, where: str) -> tuple[Endpoint, ...]:
    """Several of them, comma separated; none in an empty text."""
    return tuple(parse_endpoint(each.strip(), where) for each in text.split(",") if text.strip())


def is_loopback(host: str) -> bool:
    """Whether nobody outside this host can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
