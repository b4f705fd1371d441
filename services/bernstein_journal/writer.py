"""The only thread that appends events: takes what has queued up, one sync a run, answers all.

Requests that arrive while a sync is under way make the next batch: it grows with the load.
"""

import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from bernstein_formats.errors import (
    BernsteinError,
    DiskFull,
    ForeignWriter,
    QueueFull,
    RunSealed,
    Unavailable,
)
from bernstein_journal.run_log import Append, Appended, Batch, RunLog
from bernstein_runtime import limits
from bernstein_runtime.clock import Clock
from bernstein_runtime.metrics import QUEUED_APPENDS
from bernstein_runtime.trace import Trace, current, within
from bernstein_store.store import Store

OPEN_RUNS_MAX = 64
SYNCING_THREADS = 8
# So many bytes of events for one run keep others waiting.
LARGE_BYTES = 128 * 1024
# How often other journals may be faster with the same run before a client is told to wait.
TRIES_MAX = 32


@dataclass(frozen=True, slots=True)
class _Close:
    """A request to let go of a run's file."""

    run_id: str
    done: "Future[None]"


@dataclass(frozen=True, slots=True)
class _Pending:
    """An append that waits for its rows to be durable."""

    request: Append
    answer: "Future[Appended]"
    trace: Trace | None


Settled = list[tuple[_Pending, Appended]]


def syncing_threads() -> ThreadPoolExecutor:
    """What the writers of a process share."""
    return ThreadPoolExecutor(SYNCING_THREADS, thread_name_prefix="sync")


class Writer:
    """Appends to any number of runs. `append` blocks until the rows are on stable storage."""

    def __init__(self, store: Store, clock: Clock, syncing: ThreadPoolExecutor) -> None:
        """`syncing`: threads for runs that wait side by side, shared by all origins."""
        self._store = store
        self._clock = clock
        self._queue: queue.Queue[_Pending | _Close | None] = queue.Queue(limits.QUEUED_BATCHES_MAX)
        self._open: OrderedDict[str, RunLog] = OrderedDict()
        # Much for one run waits until the little of others is stored, then one run at a time.
        self._large: dict[str, list[_Pending]] = {}
        # Runs that are being finished: nothing may be appended behind what is sealed.
        self._finishing: set[str] = set()
        self._syncing = syncing
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="writer")
        self._thread.start()

    def append(self, request: Append) -> Appended:
        """Raises what AppendEvents fails with."""
        if self._stopped:
            raise Unavailable("the journal is stopping; try again")
        answer: Future[Appended] = Future()
        try:
            self._queue.put_nowait(_Pending(request, answer, current()))
        except queue.Full:
            raise QueueFull("too many appends are waiting; try again") from None
        QUEUED_APPENDS.add()
        return answer.result()

    @contextmanager
    def finishing(self, run_id: str) -> Iterator[None]:
        """While it lasts, the run's file is complete, closed and refuses appends."""
        self._finishing.add(run_id)
        try:
            done: Future[None] = Future()
            self._queue.put(_Close(run_id, done))
            done.result()
            yield
        finally:
            self._finishing.discard(run_id)

    def stop(self) -> None:
        """Store what was taken, then end."""
        self._stopped = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        running = True
        while running or self._large:
            taken = self._take()
            running = running and None not in taken
            small = self._small(taken)
            self._store_all(small or self._large)
            if not small:
                self._large.clear()
            for each in taken:
                if isinstance(each, _Close):
                    self._store_large(each.run_id)
                    self._close(each.run_id)
                    each.done.set_result(None)
            if self._large:
                self._store_large(next(iter(self._large)))
        for run_id in list(self._open):
            self._close(run_id)

    def _small(self, taken: Sequence[_Pending | _Close | None]) -> dict[str, list[_Pending]]:
        """What was taken for runs for which it is little; the rest is put beside."""
        found: dict[str, list[_Pending]] = {}
        for each in taken:
            if isinstance(each, _Pending):
                run_id = each.request.run_id
                where = self._large if run_id in self._large else found
                where.setdefault(run_id, []).append(each)
        for run_id, pendings in list(found.items()):
            if sum(each.request.size for each in pendings) > LARGE_BYTES:
                self._large[run_id] = found.pop(run_id)
        return found

    def _store_large(self, run_id: str) -> None:
        pendings = self._large.pop(run_id, None)
        if pendings is not None:
            self._store_all({run_id: pendings})

    def _take(self) -> list[_Pending | _Close | None]:
        """Everything that is there, and at least one if nothing else is to be done."""
        taken = [] if self._large else [self._queue.get()]
        while len(taken) < limits.QUEUED_BATCHES_MAX:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                break
        QUEUED_APPENDS.add(-sum(isinstance(each, _Pending) for each in taken))
        return taken

    def _store_all(self, by_run: dict[str, list[_Pending]]) -> None:
        made = [found for item in by_run.items() if (found := self._make(*item)) is not None]
        if len(made) == 1:
            finished = [self._finish(*made[0])]
        else:
            # The kernel merges syncs of several files that wait side by side.
            finished = list(self._syncing.map(lambda each: self._finish(*each), made))
        for log, is_usable in finished:
            if not is_usable:
                self._close(log.run_id)
        while len(self._open) > OPEN_RUNS_MAX:
            self._close(next(iter(self._open)))

    def _make(
        self, run_id: str, pendings: Sequence[_Pending]
    ) -> tuple[RunLog, Batch, Settled] | None:
        try:
            log = self._run_log(run_id)
            if not all(log.is_at(pending.request) for pending in pendings):
                log.catch_up()
        except BernsteinError as error:
            for pending in pendings:
                pending.answer.set_exception(error)
            return None
        return log, *_added(log, pendings)

    def _finish(self, log: RunLog, batch: Batch, settled: Settled) -> tuple[RunLog, bool]:
        """Store and answer; a log that failed for more than want of space is not used again."""
        try:
            for _ in range(TRIES_MAX):
                try:
                    # A batch is of many requests; it is seen as a part of the first one.
                    with within(settled[0][0].trace if settled else None):
                        log.store(batch)
                except ForeignWriter:
                    log.catch_up()
                    batch, settled = _added(log, [pending for pending, _ in settled])
                else:
                    break
            else:
                raise QueueFull(f"too many journals append to run {log.run_id}; try again")
        except BernsteinError as error:
            for pending, _ in settled:
                pending.answer.set_exception(error)
            return log, isinstance(error, DiskFull)
        for pending, appended in settled:
            pending.answer.set_result(appended)
        return log, True

    def _run_log(self, run_id: str) -> RunLog:
        if run_id in self._finishing:
            raise RunSealed(f"run {run_id} is being finished; start a new one", run_id=run_id)
        if run_id not in self._open:
            self._open[run_id] = RunLog(self._store, run_id, self._clock)
        self._open.move_to_end(run_id)
        return self._open[run_id]

    def _close(self, run_id: str) -> None:
        log = self._open.pop(run_id, None)
        if log is not None:
            log.close()


def _added(log: RunLog, pendings: Sequence[_Pending]) -> tuple[Batch, Settled]:
    """The rows of those requests that can be granted; the others are answered."""
    batch = log.begin_batch()
    settled: Settled = []
    for pending in pendings:
        try:
            settled.append((pending, log.add(batch, pending.request)))
        except BernsteinError as error:
            pending.answer.set_exception(error)
    return batch, settled
