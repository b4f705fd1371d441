"""Takes in every run of a source, once or again and again; what fails is named, the rest goes on.

Nothing is remembered between two imports: how far a run has come is asked of the services, and
what is stored already is compared with the source byte for byte.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from bernstein_client.values import RunInfo
from bernstein_formats import paths
from bernstein_formats.errors import (
    BernsteinError,
    Conflict,
    LimitExceeded,
    ReplayRecordingMissingError,
    RunExists,
    RunNotFound,
)
from bernstein_importer.outcome import Journal, Outcome, Part, Recorder, Status
from bernstein_importer.shipping import Shipped, Target, ship
from bernstein_importer.source import Look, Source

POLL_SECONDS: Final = 0.5

Looks = tuple[Look | None, ...]


@dataclass(slots=True)
class _Seen:
    """What this import knows of a run, so that an unchanged one costs three glances."""

    shipped: dict[Part, Shipped] = field(default_factory=dict)
    is_open: bool = False
    is_sealed: bool = False
    # How the files looked when there was nothing more to do about them.
    settled: Looks | None = None


class Importer:
    """One source into one project. Not thread-safe."""

    def __init__(
        self, source: Source, journal: Journal, recorder: Callable[[], Recorder], only: str = ""
    ) -> None:
        """`only` is the one run that is wanted; `recorder` connects when it is needed."""
        self._source = source
        self._journal = journal
        self._recorder = recorder
        self._only = only
        self._seen: dict[str, _Seen] = {}

    def import_all(self) -> Iterator[Outcome]:
        """Take in what is there now; runs that have not changed since the last time are left out.

        Raises RunNotFound when the one run that is wanted is not in the source.
        """
        for run_id in self._wanted():
            outcome = self._import(run_id, self._seen.setdefault(run_id, _Seen()))
            if outcome is not None:
                yield outcome

    def follow(
        self, stop: threading.Event, poll_seconds: float = POLL_SECONDS
    ) -> Iterator[Outcome]:
        """Take in what is there and what comes, until `stop` is set; nothing is told twice."""
        told: dict[str, Outcome] = {}
        while not stop.is_set():
            for outcome in self.import_all():
                if outcome != told.get(outcome.run_id):
                    told[outcome.run_id] = outcome
                    yield outcome
            stop.wait(poll_seconds)

    def _wanted(self) -> list[str]:
        found = self._source.run_ids()
        if not self._only:
            return found
        paths.check_run_id(self._only)
        if self._only not in found:
            raise RunNotFound(f"{self._source.sdd_dir} has no run {self._only}", run_id=self._only)
        return [self._only]

    def _import(self, run_id: str, seen: _Seen) -> Outcome | None:
        """None for a folder without a run's files, and for files that were settled before."""
        looks: Looks | None = None
        try:
            looks = tuple(self._source.look(part.path(run_id)) for part in Part)
            if looks[:2] == (None, None) or looks == seen.settled:
                return None
            outcome = self._taken(run_id, seen)
        except BernsteinError as error:
            # A conflict stays one until the source changes; whatever else is tried again.
            stays = isinstance(error, Conflict | LimitExceeded)
            seen.shipped.clear()
            seen.settled = looks if stays else None
            return Outcome(run_id, Status.FAILED, reason=error.reason, error=error.message)
        seen.settled = looks
        return outcome

    def _taken(self, run_id: str, seen: _Seen) -> Outcome:
        is_new = not seen.is_open and self._open_run(run_id, seen)
        new_bytes = 0
        for part in Part:
            with self._source.open(part.path(run_id)) as file:
                if file is None:
                    continue
                target = self._target(run_id, part, seen)
                shipped = ship(file, target, run_id, seen.shipped.get(part))
            seen.shipped[part] = shipped
            new_bytes += shipped.new_bytes
        changed = Status.NEW if is_new else Status.EXTENDED
        return Outcome(
            run_id,
            changed if new_bytes else Status.UP_TO_DATE,
            rows=_lines(seen, Part.JOURNAL),
            calls=_lines(seen, Part.CALLS),
            spine_rows=_lines(seen, Part.SPINE),
            size_bytes=sum(each.offset for each in seen.shipped.values()),
            new_bytes=new_bytes,
            torn_bytes=sum(each.torn_bytes for each in seen.shipped.values()),
        )

    def _open_run(self, run_id: str, seen: _Seen) -> bool:
        """Have a run here to append to; tells whether it is new. Raises RunExists."""
        metadata = self._source.small(paths.metadata_path(run_id))
        info = self._found(run_id)
        if info is None:
            self._make_run(run_id, metadata)
        elif info.metadata is not None and metadata and info.metadata != _object(metadata):
            raise RunExists(
                f"run {run_id} is here already and its metadata.json is another one: two hosts used"
                " one id; import it elsewhere with --sdd-dir",
                run_id=run_id,
            )
        seen.is_open, seen.is_sealed = True, info is not None and bool(info.seal_json)
        return info is None

    def _found(self, run_id: str) -> RunInfo | None:
        try:
            info = self._journal.get_run(run_id)
        except RunNotFound:
            return None
        # "latest" stands for another run; whether a run may be called so is the journal's to say.
        return info if info.run_id == run_id else None

    def _make_run(self, run_id: str, metadata: bytes) -> None:
        try:
            self._journal.create_run(run_id, metadata)
        except RunExists:
            return  # an import that was cut off before the first row

    def _target(self, run_id: str, part: Part, seen: _Seen) -> Target:
        if part is Part.CALLS:
            recorder = self._recorder()
            return Target(
                partial(_recorded_size, recorder, run_id), partial(recorder.append_calls, run_id)
            )
        append = partial(self._journal.append_rows, run_id, part.value)
        # No bytes are there already, at any size: the answer is the size.
        return Target(
            lambda: append(0, b""),
            append,
            is_sealed=seen.is_sealed and part is Part.JOURNAL,
            takes_split_lines=True,
        )


def _recorded_size(recorder: Recorder, run_id: str) -> int:
    try:
        return recorder.get_recording(run_id).size_bytes
    except ReplayRecordingMissingError:
        return 0


def _lines(seen: _Seen, part: Part) -> int:
    shipped = seen.shipped.get(part)
    return shipped.rows if shipped is not None else 0


def _object(text: bytes) -> object:
    """A small file's object; None for anything else, as the journal reads it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
