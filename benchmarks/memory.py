"""Memory of one piece of work in a process of its own: `python -m benchmarks.memory WORK SDD RUN`
under the peer's interpreter. Prints MiB over what was there before it began.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.measuring import peak_memory
from benchmarks.receipts import KEY_ID, build_receipt, chunks_of, write_key

from bernstein_formats.journal_verify import verify_journal
from bernstein_recorder.recorded_index import RecordedIndexes
from bernstein_recorder.recorded_runs import RecordedRuns
from bernstein_store.files import FileStore

Work = Callable[[], object]


def our_verify(sdd: Path, run_id: str) -> Work:
    path = sdd / "runs" / run_id / "journal.jsonl"
    return lambda: verify_journal(chunks_of(path)).intact


def peer_verify(sdd: Path, run_id: str) -> Work:
    module = import_module("bernstein.core.replay.journal")
    import_module("bernstein.core.security.agent_card_signer")
    path = sdd / "runs" / run_id / "journal.jsonl"
    return lambda: module.verify_journal(path)


def our_receipt(sdd: Path, run_id: str) -> Work:
    key, _ = write_key(sdd)
    return lambda: build_receipt(sdd, run_id, key, sdd / f"{run_id}-ours.json")


def peer_receipt(sdd: Path, run_id: str) -> Work:
    module = import_module("bernstein.core.replay.run_receipt")
    kms = import_module("bernstein.core.security.lineage_kms")
    import_module("bernstein.core.security.agent_card_signer")
    adapter = kms.FileBasedKMSAdapter(write_key(sdd)[1], kid=KEY_ID)
    return lambda: module.build_run_receipt(
        run_id, sdd, adapter, output_path=sdd / f"{run_id}-theirs.json"
    )


def our_replay(sdd: Path, run_id: str) -> Work:
    store = FileStore(sdd)
    runs = RecordedRuns(store, RecordedIndexes(store, sdd / "svc" / "index"))
    return lambda: runs.replay(run_id, strict=True, expected=None)


def peer_replay(sdd: Path, run_id: str) -> Work:
    module = import_module("bernstein.core.orchestration.deterministic")
    return lambda: module.load_replay_store(run_id, sdd)


WORKS = {
    "our-verify": our_verify,
    "peer-verify": peer_verify,
    "our-receipt": our_receipt,
    "peer-receipt": peer_receipt,
    "our-replay": our_replay,
    "peer-replay": peer_replay,
}


def main() -> None:
    name, sdd, run_id = sys.argv[1:]
    work = WORKS[name](Path(sdd), run_id)
    with peak_memory() as grown:
        kept = work()
        print(grown())
    del kept


if __name__ == "__main__":
    main()
