"""The supervisor's own log, and the care for all logs: private, never without end."""

import json
import os
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from bernstein_runtime.disk import failed

# A log larger than this is put aside when its process starts.
LOG_BYTES_MAX = 4 * 1024 * 1024


def say(event: str, **facts: object) -> None:
    """One JSON line; structlog would double the size of this process."""
    now = datetime.fromtimestamp(time.time(), UTC).isoformat()  # noqa: TID251
    line = {
        "event": event,
        "service": "supervisor",
        "timestamp": now.replace("+00:00", "Z"),
    } | facts
    with suppress(OSError):  # a full disk must not end the one that watches over the others
        print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: TID251, T201


def open_log(log: Path) -> int:
    """A descriptor that appends to `log`; keeps one old log. Raises DiskFull, StoreFailed."""
    try:
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            log.replace(log.with_suffix(".log.1"))
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        raise failed(log, error) from error
    return descriptor
