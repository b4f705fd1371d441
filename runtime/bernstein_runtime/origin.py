"""Who a run belongs to besides its id: host and project, since run ids alone collide in a fleet.

In a fleet callers say it with each call, as gRPC metadata; its services serve any number of them.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from bernstein_runtime.config import FleetConfig, StoreConfig, TlsConfig, load_table
from bernstein_runtime.places import Places

ORIGIN_KEY: Final = "bernstein-origin"
_CHARACTERS_MAX: Final = 512
# What metadata carries as it is; the rest is percent-encoded UTF-8.
_PLAIN: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def origin_of(places: Places, environ: Mapping[str, str]) -> str:
    """`<host>:<project folder>` unless configured, printable and at most 512 characters."""
    fleet = load_table(FleetConfig, "fleet", places.state_dir, environ)
    store = load_table(StoreConfig, "store", places.state_dir, environ)
    text = fleet.origin or store.origin or f"{socket.gethostname()}:{places.sdd_dir.parent}"
    return "".join(char if char.isprintable() else "?" for char in text)[-_CHARACTERS_MAX:]


def fleet_text(state_dir: Path, environ: Mapping[str, str]) -> str:
    """Which services are asked, for whose runs and as whom: what a proxy is started for. Empty
    where they are this host's own. Raises InvalidInput."""
    fleet = load_table(FleetConfig, "fleet", state_dir, environ)
    if not fleet.endpoint:
        return ""
    certificate = load_table(TlsConfig, "tls", state_dir, environ).certificate_file
    return " ".join(filter(None, (fleet.endpoint, fleet.origin, certificate)))


def origin_metadata(origin: str) -> tuple[str, str]:
    """How a caller says whose runs it means."""
    return ORIGIN_KEY, quote(origin, safe=_PLAIN)
