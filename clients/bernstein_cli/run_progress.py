"""A run as it goes on, on stderr: a block of running tasks on a terminal, plain lines elsewhere."""

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from typing import Final, Protocol

from bernstein_cli.output import beside, printable, remark
from bernstein_cli.table import fitted
from bernstein_orchestrator.progress import (
    Noted,
    Progress,
    RunStarted,
    TaskFinished,
    TaskStarted,
    Warned,
)

DETAIL_LINES_MAX: Final = 5


class ProgressView(Protocol):
    """Shows progress; `close` when the run is over, however it ended."""

    def show(self, progress: Progress) -> None: ...
    def close(self) -> None: ...


def progress_view() -> ProgressView:
    """Choose what stderr can show."""
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveBlock()
    return PlainLines()


class PlainLines:
    """Every event as a line of its own."""

    def show(self, progress: Progress) -> None:
        for line in lines_of(progress):
            remark(line)

    def close(self) -> None:
        """Nothing is pending."""


class LiveBlock:
    """What is over scrolls up as lines; what runs stands below, one line a task.

    That the run was asked to stop is shown from another thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, str] = {}
        self._drawn = 0

    def show(self, progress: Progress) -> None:
        with self._lock:
            self._show(progress)

    def close(self) -> None:
        with self._lock:
            self._erase()

    def _show(self, progress: Progress) -> None:
        self._erase()
        if isinstance(progress, TaskStarted):
            self._running[progress.task_id] = f"working  {_started(progress)}"
        else:
            if isinstance(progress, TaskFinished):
                self._running.pop(progress.task_id, None)
            for line in lines_of(progress):
                remark(line)
        self._draw()

    def _erase(self) -> None:
        """Take the block away: up to its first line, then erase what is below."""
        if self._drawn:
            beside(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _draw(self) -> None:
        columns, rows = shutil.get_terminal_size()
        shown = list(self._running.values())[: max(1, rows - 2)]
        for line in shown:
            # A line that wraps would make the block higher than it is thought to be.
            remark(fitted([printable(line)], [columns - 1], columns - 1))
        self._drawn = len(shown)


def lines_of(progress: Progress) -> Iterator[str]:
    """An event in words, one line each."""
    match progress:
        case RunStarted():
            what = f"replay {progress.run_id} of {progress.replay_of}"
            what = what if progress.replay_of else f"run {progress.run_id}"
            yield f"{what}: {progress.task_count} tasks, in {progress.folder}"
        case TaskStarted():
            yield f"started  {_started(progress)}"
        case TaskFinished():
            yield _finished(progress)
            for line in progress.detail.splitlines()[-DETAIL_LINES_MAX:]:
                yield f"         | {line}"
        case Warned():
            yield f"warning: {progress.text}"
        case Noted():
            yield progress.text


def _started(progress: TaskStarted) -> str:
    again = f", attempt {progress.attempt}" if progress.attempt > 1 else ""
    return f"{progress.title} ({progress.agent}{again})"


def _finished(progress: TaskFinished) -> str:
    if not progress.failed_signals:
        return f"done     {progress.title}"
    again = "; tried again" if progress.is_retried else ""
    return f"failed   {progress.title}: {'; '.join(progress.failed_signals)}{again}"
