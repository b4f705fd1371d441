"""Appending one line to a log that is opened for it alone, once a request."""

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


def append_line(store: Store, name: str, line: bytes, request_id: str, answer: str) -> None:
    """Have a line on stable storage, and its answer remembered."""
    log = store.open_log(name)
    try:
        log.append(line + b"\n", [Mark(request_id, log.size + len(line) + 1, answer)])
    finally:
        log.close()
