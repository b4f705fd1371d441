"""structlog to stderr: one JSON line an event, never a payload, a prompt or a key."""

import io
import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

from bernstein_runtime import trace

Event = MutableMapping[str, Any]


class LossyStream(io.TextIOBase):
    """stderr, except that a line is lost where it cannot be written: a full disk ends no call."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def configure_logs(service: str, level: int = logging.INFO) -> None:
    """Once, in `__main__`. The service's name comes from a processor: context variables do not
    reach gRPC's threads."""

    def add_service(_: Any, __: str, event: Event) -> Event:
        event["service"] = service
        request = trace.current()
        if request is not None:
            event["trace_id"] = request.trace_id
        return event

    structlog.configure(
        cache_logger_on_first_use=True,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        processors=[
            add_service,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Not the dict form: that one prints local variables, secrets among them.
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, LossyStream())),
    )
