"""Appending one line to a log that is opened for it alone, once a request."""

from bernstein_formats.errors import ForeignWriter
from bernstein_store.store import Mark, Store


def known_answer(store: Store, name: str, request_id: str) -> str | None:
    """What an append with this id answered; nothing is made to find out."""
    if store.size(name) is None:
        return None
    log = store.open_log(name)
    try:
        return {mark.request_id: mark.answer for mark in log.marks}.get(request_id)
    finally:
        log.close()


def append_line(store: Store, name: str, line: bytes, mark: Mark) -> None:
    """Have a line on stable storage, where its mark says that it ends, and the mark with it.

    Raises ForeignWriter where more is there: the line was made to follow something else.
    """
    size = mark.size - len(line) - 1
    log = store.open_log(name)
    try:
        if log.size != size:
            raise ForeignWriter(
                f"{store.where(name)} has {log.size} bytes, and a line was to follow {size};"
                " somebody else appended: try again",
                path=name,
            )
        log.append(line + b"\n", [mark])
    finally:
        log.close()
