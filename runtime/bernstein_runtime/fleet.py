"""Which services a process asks: those of a fleet, once `[fleet] endpoint` names them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.config import FleetConfig, load_table
from bernstein_runtime.endpoint import Endpoint, is_loopback, parse_endpoints
from bernstein_runtime.tls import TlsFiles, tls_files


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts that all serve the same, and with which certificate they are asked."""

    endpoints: tuple[Endpoint, ...]
    tls: TlsFiles | None


def fleet_of(state_dir: Path, environ: Mapping[str, str]) -> Fleet | None:
    """The fleet that is configured; None where services are this host's own.

    Raises InvalidInput, also for hosts that would be asked in the clear.
    """
    config = load_table(FleetConfig, "fleet", state_dir, environ)
    endpoints = parse_endpoints(config.endpoint, "[fleet] endpoint")
    if not endpoints:
        return None
    files = tls_files(state_dir, environ)
    far = [each.host for each in endpoints if not is_loopback(each.host)]
    if files is None and far:
        raise InvalidInput(
            f"[fleet] endpoint {far[0]!r} is another host, which is asked with a certificate only;"
            " set certificate_file, key_file and ca_file under [tls]",
            host=far[0],
        )
    return Fleet(endpoints, files)
