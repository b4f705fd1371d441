"""What psycopg says by itself, as lines of our log: left alone it writes plain text beside them."""

import logging

import structlog

log = structlog.get_logger()


class _Lines(logging.Handler):
    """The first line of each warning: the others repeat it for every host."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("database_library", text=record.getMessage().partition("\n")[0])


def hear_library() -> None:
    """Once or more often in a process."""
    library = logging.getLogger("psycopg")
    if library.propagate:
        library.propagate = False
        library.addHandler(_Lines())
