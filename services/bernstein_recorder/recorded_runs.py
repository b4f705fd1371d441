"""Recordings as a replay meets them: found, compared with what their journal says, and opened."""

from collections.abc import Callable

import structlog

from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import RecordingChanged, ReplayRecordingMissingError
from bernstein_formats.llm_calls import parse_call
from bernstein_formats.llm_index import CallIndex, build_index
from bernstein_formats.llm_replay import ReadRow, Replay, check_has_calls
from bernstein_formats.paths import check_run_id, llm_calls_path, run_folder
from bernstein_recorder.recorded_index import Recorded, RecordedIndexes
from bernstein_recorder.recording import Summary
from bernstein_store.store import Store

log = structlog.get_logger()


class RecordedRuns:
    """Opens recordings of finished runs for reading; makes nothing but index files."""

    def __init__(self, store: Store, indexes: RecordedIndexes) -> None:
        self._store = store
        self._indexes = indexes

    def folder(self, run_id: str) -> str:
        """The run's folder, for people."""
        return self._store.where(run_folder(run_id))

    def summary(self, run_id: str) -> Summary:
        """Count, size and digest, from the bytes. Raises ReplayRecordingMissingError."""
        recorded = self._indexes.open(run_id, trust_digest=False)
        if recorded is None:
            raise self._missing(run_id)
        return recorded.summary

    def replay(
        self, run_id: str, *, strict: bool, expected: Summary | None
    ) -> tuple[Replay, Summary]:
        """A replay from its beginning, and what it answers from.

        Raises RecordingChanged, and ReplayRecordingMissingError for a strict replay of nothing.
        """
        check_run_id(run_id)
        recorded = self._indexes.open(run_id, trust_digest=expected is None)
        if recorded is None:
            if strict:
                raise self._missing(run_id)
            recorded = Recorded(CallIndex(build_index((), b"")), Summary())
        if expected is not None:
            _refuse_changed(self._path(run_id), expected, recorded.summary)
        if strict:
            check_has_calls(recorded.index, self._path(run_id))
        if recorded.index.discarded_count:
            log.warning(
                "recording_has_other_lines", run_id=run_id, lines=recorded.index.discarded_count
            )
        replay = Replay(recorded.index, self._reader(run_id, recorded), strict=strict)
        return replay, recorded.summary

    def first_call(self, run_id: str) -> dict[str, JsonValue]:
        """The first recorded call's row; empty where there is none."""
        recorded = self._indexes.open(run_id, trust_digest=True)
        if recorded is None or not recorded.index.record_count:
            return {}
        first = recorded.index.record(0)
        read = self._store.read(llm_calls_path(run_id), first.offset, first.offset + first.length)
        return parse_call(b"".join(read))

    def _reader(self, run_id: str, recorded: Recorded) -> ReadRow:
        reader = self._store.open_reader(llm_calls_path(run_id))
        opened = recorded.summary.size_bytes, recorded.changed_at

        def read(offset: int, length: int) -> bytes:
            if reader is None or reader.facts() != opened:
                raise RecordingChanged(
                    f"{self._path(run_id)} was changed while it was replayed: restore it from a"
                    " copy, and start the replay again",
                    path=self._path(run_id),
                )
            return reader.read(offset, length)

        return read

    def _path(self, run_id: str) -> str:
        return self._store.where(llm_calls_path(run_id))

    def _missing(self, run_id: str) -> ReplayRecordingMissingError:
        path = self._path(run_id)
        return ReplayRecordingMissingError(
            f"no recording exists at {path}: record the run with BERNSTEIN_DETERMINISTIC_SEED set"
            " and BERNSTEIN_REPLAY_RUN_ID unset, or name another run",
            path=path,
            run_id=run_id,
        )


def _refuse_changed(path: str, expected: Summary, found: Summary) -> None:
    facts: dict[str, Callable[[Summary], object]] = {
        "calls": lambda each: each.call_count,
        "bytes": lambda each: each.size_bytes,
        "SHA-256": lambda each: each.sha256.hex(),
    }
    differing = [
        f"{name} (journal: {of(expected)}, file: {of(found)})"
        for name, of in facts.items()
        if of(expected) != of(found)
    ]
    if differing:
        raise RecordingChanged(
            f"{path} is not what the run's journal says of it, in {', '.join(differing)}:"
            " it was changed after the run; restore it from a copy, or record the run again",
            path=path,
        )
