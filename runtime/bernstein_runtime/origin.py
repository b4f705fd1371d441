"""Who a run belongs to besides its id: host and project, since run ids alone collide in a fleet."""

import socket
from pathlib import Path


def origin_of(sdd_dir: Path) -> str:
    """`<host>:<project folder>`, printable and at most 512 characters."""
    text = f"{socket.gethostname()}:{sdd_dir.parent}"
    return "".join(char if char.isprintable() else "?" for char in text)[-512:]
