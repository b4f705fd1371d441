"""Appending to a run's lineage spine: behind its last row, under the lock that the peer takes."""

from collections.abc import Callable

from bernstein_formats import paths
from bernstein_formats.errors import ChainBroken, InvalidInput, JournalError, RowMalformed
from bernstein_formats.journal_reader import LineBlocks, is_blank
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.spine import SpineFields, SpineWalk, embedded_entry
from bernstein_journal.acknowledged_rows import AcknowledgedRows
from bernstein_journal.one_line import append_line, known_answer
from bernstein_journal.signer import Signer
from bernstein_store.store import Mark, Store


class SpineLogs:
    """One append a spine at a time; the signer makes the rows."""

    def __init__(self, store: Store, signer: Callable[[], Signer]) -> None:
        self._store = store
        self._rows = AcknowledgedRows(store)
        self._signer = signer

    def append(self, run_id: str, fields: SpineFields, request_id: str) -> str:
        """The entry's hash, once it is durable; the same again for the same request.

        Raises RowsMissing where entries that were acknowledged are gone.
        """
        if run_id.startswith(".."):
            raise InvalidInput(
                f"{run_id!r} names no spine: use a run id that does not begin with two dots",
                run_id=run_id,
            )
        name = paths.spine_path(run_id)
        with self._store.locked(paths.spine_lock_path(run_id)):
            self._rows.check(name)
            known = known_answer(self._store, name, request_id)
            if known is not None:
                return known
            size = self._store.size(name) or 0
            last_line, count, head = self._end(run_id, size)
            made = self._signer().make_spine_row(last_line, count, fields)
            walk = SpineWalk()
            walk.head = head
            walk.add(embedded_entry(read_object(made.line)))
            mark = Mark(request_id, size + len(made.line) + 1, walk.head)
            append_line(self._store, name, made.line, mark)
            self._store.put(paths.spine_head_path(run_id), made.head_json)
            return walk.head

    def _end(self, run_id: str, size: int) -> tuple[bytes, int, str]:
        """Last line, number of rows, head. JournalError where the spine can't be continued."""
        blocks = LineBlocks(self._store.read(paths.spine_path(run_id), 0, size))
        walk, last_line = SpineWalk(), b""
        try:
            for block in blocks:
                for line in block:
                    if not is_blank(line):
                        walk.add(embedded_entry(read_object(line)))
                        last_line = line
        except (ChainBroken, InvalidInput, RowMalformed) as error:
            raise _refused(run_id, error.message) from error
        if last_line and not blocks.ends_with_newline:
            raise _refused(run_id, "its last line does not end")
        return last_line, walk.count, walk.head


def _refused(run_id: str, what: str) -> JournalError:
    return JournalError(
        f"run {run_id}: the spine cannot be continued: {what}; restore it from a copy",
        run_id=run_id, substrate="spine",
    )  # fmt: skip
