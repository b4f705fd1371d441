"""Who a run belongs to besides its id: host and project, since run ids alone collide in a fleet."""

import socket
from collections.abc import Mapping

from bernstein_runtime.config import StoreConfig, load_table
from bernstein_runtime.places import Places


def origin_of(places: Places, environ: Mapping[str, str]) -> str:
    """`<host>:<project folder>` unless configured, printable and at most 512 characters."""
    config = load_table(StoreConfig, "store", places.state_dir, environ)
    text = config.origin or f"{socket.gethostname()}:{places.sdd_dir.parent}"
    return "".join(char if char.isprintable() else "?" for char in text)[-512:]
