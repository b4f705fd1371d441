"""Takes in every run and session of a source; what fails is named, the rest goes on.

Nothing is remembered between two imports: how far a run has come is asked of the services, and
what is stored already is compared with the source.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from bernstein_client.values import RunInfo
from bernstein_formats import paths
from bernstein_formats.chain_growth import JournalGrowth, Lines, SpineGrowth, StepsGrowth
from bernstein_formats.errors import (
    BernsteinError,
    Broken,
    Conflict,
    LimitExceeded,
    ReplayRecordingMissingError,
    RunExists,
    RunNotFound,
    Unavailable,
)
from bernstein_importer.outcome import (
    Outcome,
    Part,
    Project,
    Recorder,
    Run,
    Session,
    Status,
    Subject,
    failed,
    told,
)
from bernstein_importer.shipping import Shipment, Target
from bernstein_importer.source import Look, Source

Looks = tuple[Look | None, ...]


@dataclass(slots=True)
class _Seen:
    """What this import knows of a run or session, so that an unchanged one costs three glances."""

    shipments: dict[Part, Shipment] = field(default_factory=dict)
    journal: JournalGrowth | None = None
    steps: StepsGrowth | None = None
    is_open: bool = False
    is_sealed: bool = False
    # How the files looked when there was nothing more to do about them.
    settled: Looks | None = None


class Importer:
    """One source into one project. Not thread-safe."""

    def __init__(self, source: Source, project: Project, only: str = "") -> None:
        """`only` is the one run that is wanted."""
        self._source = source
        self._project = project
        self._only = only
        self._seen: dict[Subject, _Seen] = {}

    def import_all(self) -> Iterator[Outcome]:
        """Take in what is there now; what has not changed since the last time is left out.

        Raises RunNotFound when the one run that is wanted is not in the source, and Unavailable.
        """
        for subject in self.subjects():
            outcome = self.take(subject)
            if outcome is not None:
                yield outcome

    def subjects(self) -> list[Subject]:
        """What there is to take in. Raises RunNotFound likewise."""
        runs = self._source.run_ids()
        if not self._only:
            return [*map(Run, runs), *map(Session, self._source.agent_ids())]
        paths.check_run_id(self._only)
        if self._only not in runs:
            raise RunNotFound(f"{self._source.sdd_dir} has no run {self._only}", run_id=self._only)
        return [Run(self._only)]

    def places(self) -> Looks:
        """How the folders look that runs and sessions are found in."""
        return tuple(map(self._source.glance, (paths.RUNS_FOLDER, paths.STEPS_FOLDER)))

    def has_ended(self, subject: Subject) -> bool:
        """Whether it says of itself that it has, as far as it was taken."""
        seen = self._seen.get(subject)
        return seen is not None and seen.journal is not None and seen.journal.is_completed

    def is_settled(self, subject: Subject) -> bool:
        """Whether there is nothing to do about it until its files change."""
        seen = self._seen.get(subject)
        return seen is not None and seen.settled is not None

    def looks(self, subject: Subject) -> Looks:
        """How its files look from outside."""
        try:
            return tuple(map(self._source.glance, subject.files().values()))
        except BernsteinError:
            return ()

    def take(self, subject: Subject) -> Outcome | None:
        """Bring it up to date. None for a folder without its files, and for files that were settled
        before. Raises Unavailable; what else goes wrong is the outcome.
        """
        seen = self._seen.setdefault(subject, _Seen())
        looks: Looks | None = None
        try:
            looks = tuple(map(self._source.look, subject.files().values()))
            if not any(looks[:2]) or looks == seen.settled:
                return None
            outcome = self._taken(subject, seen)
        except Unavailable:
            self.forget(subject)
            raise
        except BernsteinError as error:
            # Evidence that is wrong stays so until the source changes; all else is tried again.
            stays = isinstance(error, Broken | Conflict | LimitExceeded)
            self._seen[subject] = _Seen(settled=looks if stays else None)
            return failed(subject, error)
        seen.settled = looks
        return outcome

    def rest(self, subject: Subject) -> Outcome | None:
        """Compare what was shipped once more, now that nobody writes; seal a run that has ended.

        None where there is nothing to tell. What was found wrong before is left alone.
        """
        seen = self._seen.get(subject)
        if seen is None or not seen.shipments:
            return None
        try:
            for part, shipment in seen.shipments.items():
                with self._source.open(subject.files()[part]) as file:
                    if file is not None:
                        shipment.rest(file)
            if seen.journal is None or not seen.journal.is_completed or seen.is_sealed:
                return None
            assert isinstance(subject, Run)
            # The spine is the peer's: nothing of ours goes into it.
            self._project.journal.finish_run(subject.run_id, spine_seal=False)
            seen.is_sealed = True
            outcome = self._outcome(subject, seen, Status.SEALED, 0)
            return replace(outcome, findings=self._findings(subject.run_id))
        except Conflict as error:
            self._seen[subject] = _Seen(settled=seen.settled)
            return failed(subject, error)
        except BernsteinError as error:
            return failed(subject, error)

    def _findings(self, run_id: str) -> dict[str, int]:
        """What the scheduler's rules say of it; that nobody could be asked changes no seal."""
        try:
            found = self._project.rederiver.rederive_run(run_id)
        except BernsteinError:
            return {}
        return dict(Counter(each.reason for each in found.findings))

    def forget(self, subject: Subject) -> None:
        """Begin anew with it the next time: it is gone, or nobody knows what was stored last."""
        self._seen.pop(subject, None)

    def _taken(self, subject: Subject, seen: _Seen) -> Outcome:
        is_new = isinstance(subject, Run) and not seen.is_open and self._open_run(subject, seen)
        new_bytes = 0
        for part, name in subject.files().items():
            with self._source.open(name) as file:
                if file is None:
                    continue
                shipment = seen.shipments.get(part)
                if shipment is None:
                    shipment = seen.shipments[part] = Shipment(self._target(subject, part, seen))
                is_sealed = seen.is_sealed and part is Part.JOURNAL
                new_bytes += shipment.advance(file, is_sealed=is_sealed)
        if isinstance(subject, Session) and seen.steps is not None:
            self._ship_blobs(subject, seen.steps.blobs)
        changed = Status.NEW if is_new else Status.EXTENDED
        status = changed if new_bytes else Status.UP_TO_DATE
        return self._outcome(subject, seen, status, new_bytes)

    def _ship_blobs(self, session: Session, digests: set[str]) -> None:
        """Those that the rows name; one that the source lacks is missing here, too."""
        while digests:
            digest = digests.pop()
            name = paths.blob_path(digest)
            if self._source.look(name) is not None:
                read = partial(self._source.pieces, name)
                self._project.steps.import_blob(session.agent_id, digest, read)

    def _outcome(self, subject: Subject, seen: _Seen, status: Status, new_bytes: int) -> Outcome:
        rows = {part: shipment.rows for part, shipment in seen.shipments.items()}
        return replace(
            told(subject, status),
            rows=rows.get(Part.JOURNAL, 0),
            calls=rows.get(Part.CALLS, 0),
            spine_rows=rows.get(Part.SPINE, 0),
            steps=rows.get(Part.STEPS, 0),
            size_bytes=sum(each.offset for each in seen.shipments.values()),
            new_bytes=new_bytes,
            torn_bytes=sum(each.torn_bytes for each in seen.shipments.values()),
        )

    def _open_run(self, run: Run, seen: _Seen) -> bool:
        """Have a run here to append to; tells whether it is new. Raises RunExists."""
        metadata = self._source.small(paths.metadata_path(run.run_id))
        info = self._found(run.run_id)
        if info is None:
            self._make_run(run.run_id, metadata)
        elif info.metadata is not None and metadata and info.metadata != _object(metadata):
            raise RunExists(
                f"run {run.run_id} is here already and its metadata.json is another one: two hosts"
                " used one id; import it elsewhere with --sdd-dir",
                run_id=run.run_id,
            )
        seen.is_open, seen.is_sealed = True, info is not None and bool(info.seal_json)
        return info is None

    def _found(self, run_id: str) -> RunInfo | None:
        try:
            info = self._project.journal.get_run(run_id)
        except RunNotFound:
            return None
        # "latest" stands for another run; whether a run may be called so is the journal's to say.
        return info if info.run_id == run_id else None

    def _make_run(self, run_id: str, metadata: bytes) -> None:
        try:
            self._project.journal.create_run(run_id, metadata)
        except RunExists:
            return  # an import that was cut off before the first row

    def _target(self, subject: Subject, part: Part, seen: _Seen) -> Target:
        if isinstance(subject, Session):
            append = partial(self._project.steps.append_rows, subject.agent_id)
            seen.steps = StepsGrowth(subject.agent_id)
            owner = f"the step journal of agent {subject.agent_id}"
            size = partial(append, 0, b"")
            return Target(owner, size, append, seen.steps, takes_split_lines=True)
        owner = f"run {subject.run_id}"
        if part is Part.CALLS:
            recorder = self._project.recorder
            size = partial(_recorded_size, recorder, subject.run_id)
            return Target(owner, size, partial(recorder.append_calls, subject.run_id), Lines())
        append = partial(self._project.journal.append_rows, subject.run_id, part.value)
        if part is Part.JOURNAL:
            seen.journal = JournalGrowth()
        chain = seen.journal if part is Part.JOURNAL and seen.journal else SpineGrowth()
        # No bytes are there already, at any size: the answer is the size.
        return Target(owner, partial(append, 0, b""), append, chain, takes_split_lines=True)


def _recorded_size(recorder: Recorder, run_id: str) -> int:
    try:
        return recorder.get_recording(run_id).size_bytes
    except ReplayRecordingMissingError:
        return 0


def _object(text: bytes) -> object:
    """A small file's object; None for anything else, as the journal reads it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
