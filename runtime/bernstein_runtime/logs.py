"""structlog to stderr: one JSON line an event, never a payload, a prompt or a key."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

Event = MutableMapping[str, Any]


def configure_logs(service: str) -> None:
    """Once, in `__main__`. The service's name comes from a processor: context variables do not
    reach gRPC's threads."""

    def add_service(_: Any, __: str, event: Event) -> Event:
        event["service"] = service
        return event

    structlog.configure(
        cache_logger_on_first_use=True,
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        processors=[
            add_service,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Not the dict form: that one prints local variables, secrets among them.
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
