"""Runs read straight from their files, read-only and without services (`--offline`, `--file`).

The functions of `bernstein_formats` that the services call are called here, so that both say the
same.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from bernstein_cli.local_witnesses import LocalWitnesses
from bernstein_client.values import (
    Finding,
    Progress,
    Rederived,
    RunDifference,
    RunInfo,
    Verification,
)
from bernstein_formats import paths
from bernstein_formats.canonical import JsonValue, parse_json
from bernstein_formats.errors import (
    BernsteinError,
    InvalidInput,
    RunNotFound,
    StoreFailed,
)
from bernstein_formats.found_seal import found_seal
from bernstein_formats.journal_diff import diff_journals
from bernstein_formats.journal_reader import LineBlocks, count_lines, counted
from bernstein_formats.journal_verdict import INCOMPLETE_NOTE, JournalVerification
from bernstein_formats.journal_verify import rebuild_state, verify_journal
from bernstein_formats.paths import is_run_id
from bernstein_formats.provider_state import ProviderState
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_formats.recording_gaps import schedule_findings
from bernstein_formats.rederivation import UNDERIVABLE_STEP, rederive
from bernstein_formats.retention import JOURNAL_GONE, lost_journal
from bernstein_formats.run_choice import LATEST, latest, newest_first, recorded_start
from bernstein_formats.seal import Seal
from bernstein_formats.testimony import Testimony
from bernstein_runtime.places import places_for
from bernstein_runtime.regular_file import open_regular, read_regular

_CHUNK_BYTES: Final = 1024 * 1024
_SEAL_KEY_FILE: Final = "seal-key.pub.pem"
# Stands for the id of a run that is known by its file alone.
_ANY_RUN_ID: Final = "file"


class LocalRuns:
    """The runs below a state folder."""

    def __init__(self, sdd_dir: Path) -> None:
        self._sdd_dir = Path(os.path.realpath(sdd_dir))

    def list_runs(self) -> Iterator[RunInfo]:
        """All runs, newest first; then those whose journal is gone."""
        yield from map(self._listed, self._newest_first())
        for run_id in run_ids(self._sdd_dir):
            if is_run_id(run_id) and self._lost_journal(run_id):
                place = self._sdd_dir / paths.journal_path(run_id)
                yield self._info(run_id, place, 0, 0, JOURNAL_GONE)

    def _lost_journal(self, run_id: str) -> bool:
        try:
            return lost_journal([each.name for each in self._file(run_id).parent.iterdir()])
        except (InvalidInput, OSError):
            return False

    def _listed(self, run_id: str) -> RunInfo:
        """A run, or what keeps it from being read: others are to be listed still."""
        try:
            return self.get_run(run_id)
        except BernsteinError as error:
            place = str(self._sdd_dir / paths.journal_path(run_id))
            return RunInfo(run_id, 0, 0, None, None, b"", place, error.message)

    def get_run(self, run_id: str) -> RunInfo:
        run_id, journal = self.locate(run_id)
        count, damage = count_lines(_chunks(journal))
        return self._info(run_id, journal, count, journal.stat().st_size, damage)

    def _info(
        self, run_id: str, journal: Path, count: int, size_bytes: int, damage: str
    ) -> RunInfo:
        return RunInfo(
            run_id=run_id,
            row_count=count,
            size_bytes=size_bytes,
            metadata=_object_in(journal.with_name("metadata.json")),
            replay=_object_in(journal.with_name("replay.json")),
            seal_json=_read_small(journal.with_name("seal.json")) or b"",
            journal_path=str(journal),
            damage=damage,
        )

    def read_journal(self, run_id: str) -> Iterator[bytes]:
        return _chunks(self.locate(run_id)[1])

    def verify_run(self, run_id: str, progress: Progress) -> Verification:
        """Verify without writing a report."""
        run_id, journal = self.locate(run_id)
        sealed = found_seal(_read_small(journal.with_name("seal.json")), run_id, self._pinned_key)
        provider = ProviderState()
        size = journal.stat().st_size
        found = verify_journal(
            counted(_chunks(journal), lambda done: progress(done, size)),
            sealed.journal_seal,
            watch=provider.feed,
        )
        said = self._witnesses(run_id, sealed.concluded(found), sealed.seal)
        found = said.concluded()
        return Verification(
            run_id=run_id,
            chain_consistent=found.chain_consistent,
            coverage=found.coverage,
            identity=str(found.identity),
            row_count=found.count,
            divergent_index=found.divergent_index,
            divergent_line=found.divergent_line,
            expected_hash=found.expected_hash or "",
            actual_hash=found.actual_hash or "",
            head_hash=found.head,
            discarded_lines=found.discarded_line_indices,
            discarded_count=found.discarded_count,
            errors=found.errors,
            findings=tuple(
                Finding(each.reason, each.index, each.member or "") for each in found.findings
            ),
            flagged_steps=tuple(provider.flagged_indices),
            provider_errors=tuple(provider.errors),
            notes=(*_incomplete(journal), *said.notes),
            report_path="",
            sealed_row_count=sealed.row_count,
            pinned_key=sealed.pinned_key,
        )

    def rebuild_state(self, run_id: str, from_step: int) -> tuple[str, Mapping[str, JsonValue]]:
        run_id, journal = self.locate(run_id)
        return run_id, asdict(rebuild_state(_chunks(journal), from_step))

    def diff_runs(self, run_id_a: str, run_id_b: str) -> RunDifference:
        found = diff_journals(
            _chunks(self._log_to_compare(run_id_a)), _chunks(self._log_to_compare(run_id_b))
        )
        return RunDifference(
            diverged=found.diverged,
            index=found.index,
            reason=found.reason,
            reason_code=found.reason_code,
            mutation_kind=found.mutation_kind,
            a_event=found.a_event,
            b_event=found.b_event,
            note="; ".join(found.notes),
        )

    def rederive_run(self, run_id: str, progress: Callable[[int], None]) -> Rederived:
        run_id, journal = self.locate(run_id)
        return _rederived(journal, run_id, progress)

    def locate(self, run_id: str) -> tuple[str, Path]:
        """The run that is meant and its journal's file."""
        if run_id == LATEST and not self._file(LATEST).is_file():
            newest = latest(self._newest_first())
            if newest is None:
                raise RunNotFound("there is no run yet; record one with `bernstein run PLAN`")
            run_id = newest
        journal = self._file(run_id)
        if not journal.exists():
            raise RunNotFound(
                f"there is no journal of run {run_id}; see `bernstein replay list`", run_id=run_id
            )
        return journal.parent.resolve().name, journal  # a link stands for the run it leads to

    def _file(self, run_id: str) -> Path:
        """A run's journal; InvalidInput for a link that leads out of the runs' folder."""
        path = self._sdd_dir / paths.journal_path(run_id)
        runs = os.path.realpath(self._sdd_dir / paths.RUNS_FOLDER)
        if os.path.commonpath([os.path.realpath(path), runs]) != runs:
            raise InvalidInput(f"run {run_id} is a link out of {runs}", run_id=run_id)
        return path

    def _log_to_compare(self, run_id: str) -> Path:
        """The gateway's fixtures where a run has them, as in the peer; else its journal."""
        fixtures = self._sdd_dir / paths.events_path(run_id)
        return fixtures if fixtures.is_file() else self.locate(run_id)[1]

    def _newest_first(self) -> list[str]:
        starts: dict[str, float] = {}
        for run_id in run_ids(self._sdd_dir):
            try:
                journal = self._file(run_id)
            except InvalidInput:
                continue  # not a run: its name or its link says so
            if journal.exists():
                starts[run_id] = _start_of(journal)
        return newest_first(starts)

    def _witnesses(self, run_id: str, journal: JournalVerification, seal: Seal | None) -> Testimony:
        return LocalWitnesses(self._sdd_dir).question(run_id, journal, seal)

    def _pinned_key(self) -> PublicKey | None:
        path = places_for(self._sdd_dir, os.environ).secrets_dir / _SEAL_KEY_FILE
        pem = _read_small(path)
        return None if pem is None else parse_public_pem(pem)


class OneFile(LocalRuns):
    """A copied journal, or the folder of a copied run; it is the run, whatever it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._name = name_of(path)
        self._path = path / "journal.jsonl" if path.is_dir() else path

    def locate(self, run_id: str) -> tuple[str, Path]:
        if not self._path.exists():
            raise RunNotFound(f"{self._path} is not there; check --file", path=self._path)
        is_unnamed = run_id in {LATEST, self._name}
        return self._path.absolute().parent.name if is_unnamed else run_id, self._path

    def rederive_run(self, run_id: str, progress: Callable[[int], None]) -> Rederived:
        """Under the file's name, whatever that is; only a run's must be an id."""
        found = _rederived(self.locate(run_id)[1], _ANY_RUN_ID, progress)
        reason = found.reason.replace(f"run {_ANY_RUN_ID} ", f"run {run_id} ", 1)
        return replace(found, run_id=run_id, reason=reason)

    def _pinned_key(self) -> PublicKey | None:
        return None

    def _witnesses(self, run_id: str, journal: JournalVerification, seal: Seal | None) -> Testimony:
        return Testimony(journal)


def _rederived(journal: Path, run_id: str, progress: Callable[[int], None]) -> Rederived:
    found = rederive(counted(_chunks(journal), progress), run_id)
    refused = found.reason_code == UNDERIVABLE_STEP
    findings = schedule_findings(_chunks(journal)) if refused else ()
    return Rederived(
        ok=found.ok,
        run_id=found.run_id,
        recorded_head=found.recorded_head,
        derived_head=found.derived_head,
        step_count=found.step_count,
        step_index=found.step_index,
        reason=found.reason,
        reason_code=found.reason_code,
        rule=found.rule,
        notes=tuple(f"row {note.index}: stored {note.member} differs" for note in found.notes),
        findings=tuple(Finding(each.reason, each.index, "task_id") for each in findings),
    )


def _incomplete(journal: Path) -> tuple[str, ...]:
    marked = journal.with_name("incomplete.json").exists()
    return (INCOMPLETE_NOTE,) if marked and not journal.with_name("seal.json").exists() else ()


def name_of(path: Path) -> str:
    """What the run in a file is called where nobody gave its id."""
    return path.absolute().name


def run_ids(sdd_dir: Path) -> list[str]:
    """Names of the folders that may be runs; nothing is opened."""
    try:
        with os.scandir(sdd_dir / paths.RUNS_FOLDER) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise StoreFailed(f"cannot read {path}: {error.strerror}", path=path) from error


def _lines(path: Path) -> Iterator[bytes]:
    return (line for block in LineBlocks(_chunks(path)) for line in block)


def _read_small(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFailed(f"cannot read {path}: {error.strerror}", path=path) from error


def _object_in(path: Path) -> Mapping[str, JsonValue] | None:
    """A small file's object; None for anything else that may stand there."""
    try:
        value = parse_json(_read_small(path) or b"null")
    except BernsteinError:
        return None
    return value if isinstance(value, dict) else None


def _start_of(journal: Path) -> float:
    """When a run began; as early as can be where that cannot be read."""
    try:
        first = next((line for line in _lines(journal)), b"")
        return recorded_start(_read_small(journal.with_name("metadata.json")) or b"", first)
    except BernsteinError:
        return recorded_start(b"", b"")
