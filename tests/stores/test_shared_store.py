"""Services of several hosts on one database: each kind of evidence has one chain and one answer."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from tests.postgres_server import open_store

from bernstein_formats import paths
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import (
    HeadMoved,
    RequestIdReused,
    RunExists,
    RunSealed,
    Unavailable,
)
from bernstein_formats.event_journal import START, next_row
from bernstein_formats.http_exchange import Answer, End, Envelope, body_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.llm_calls import Caller, CallRequest, parse_call
from bernstein_formats.session_journal import parse_step
from bernstein_journal.copies import Copies
from bernstein_journal.creation import RunMaker
from bernstein_journal.pending_macs import AuditRow, PendingMacs, WaitingRow
from bernstein_journal.run_log import Append, Appended
from bernstein_journal.step_log import AppendSteps
from bernstein_journal.steps import StepJournals
from bernstein_journal.verbatim import Piece, VerbatimLogs
from bernstein_journal.writer import Writer, syncing_threads
from bernstein_recorder.exchanges import Exchanges
from bernstein_recorder.recording import Recording
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.config import StoreConfig
from bernstein_store.files import FileStore
from bernstein_store.postgres.opening import PostgresStores
from bernstein_store.postgres.store import PostgresStore
from bernstein_store.store import Store

RUN = "r1"
JOURNAL = paths.journal_path(RUN)
CLOCK = SystemClock()


@pytest.fixture
def stores(database_url: str, tmp_path: Path) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    made = open_store(database_url, str(tmp_path)), open_store(database_url, str(tmp_path))
    made[0].make_run(RUN)
    yield made
    for each in made:
        each.close()


@pytest.fixture
def writers(stores: tuple[PostgresStore, PostgresStore]) -> Iterator[tuple[Writer, Writer]]:
    syncing = syncing_threads()
    made = Writer(stores[0], CLOCK, syncing), Writer(stores[1], CLOCK, syncing)
    yield made
    for each in made:
        each.stop()
    syncing.shutdown()


def event(request_id: str, expected: str | None = None, count: int = 1) -> Append:
    return Append(RUN, [("x", b'{"id": "%b"}' % request_id.encode())] * count, request_id, expected)


def test_journals_side_by_side_append_to_one_chain_and_each_request_once(stores, writers):
    def produce(number: int) -> list[Appended]:
        ids = [f"{number}-{each}" for each in range(10)]
        # Each request is sent to both, as a client does that got no answer from the first.
        return [writers[number % 2].append(event(each)) for each in ids] + [
            writers[(number + 1) % 2].append(event(each)) for each in ids
        ]

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(produce, range(6)))

    found = verify_journal(stores[0].read(JOURNAL))
    assert (found.chain_consistent, found.count, found.findings) == (True, 60, ())
    assert all(told[:10] == told[10:] for told in answers)
    firsts = sorted(answer.first_index for told in answers for answer in told[:10])
    assert firsts == list(range(60))


def test_an_expected_head_is_judged_by_what_all_journals_wrote(writers):
    ours, theirs = writers
    first = ours.append(event("a"))
    second = theirs.append(event("b", expected=first.head_hash))
    third = ours.append(event("c", expected=second.head_hash))

    assert third.row_count == 3
    with pytest.raises(HeadMoved):
        theirs.append(event("d", expected=first.head_hash))
    with pytest.raises(RequestIdReused):
        theirs.append(event("c", count=2))


def test_a_run_that_another_journal_sealed_takes_nothing_more(stores, writers):
    ours, theirs = writers
    ours.append(event("a"))
    theirs.append(event("b"))
    size = stores[0].size(JOURNAL)
    stores[1].end_log(JOURNAL, size, paths.seal_path(RUN), b"{}")

    for writer in writers:
        with pytest.raises(RunSealed):
            writer.append(event("c"))
    assert stores[0].size(JOURNAL) == size


def test_a_run_is_made_once_by_whichever_journal(stores):
    makers = [RunMaker(store, CLOCK, lambda: None) for store in stores]

    def make(number: int) -> str:
        return makers[number % 2].make("", f"request-{number // 2}", b"{}", b"")

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, range(12)))

    assert len(set(made)) == 6
    assert made[::2] == made[1::2]
    with pytest.raises(RunExists):
        makers[1].make(made[0], "another", b"", b"")


def test_importers_at_two_journals_take_in_a_file_once(stores):
    ours, theirs = (VerbatimLogs(store) for store in stores)
    lines, head = [], START
    for number in range(4):
        line, head = next_row(head, "x", b'{"n": %d}' % number, 1.0, 0.0)
        lines.append(line + b"\n")

    size = ours.append(RUN, JOURNAL, Piece(lines[0], 0))
    assert theirs.append(RUN, JOURNAL, Piece(lines[0], 0)) == size
    size = theirs.append(RUN, JOURNAL, Piece(lines[1], size))
    assert ours.append(RUN, JOURNAL, Piece(lines[1], len(lines[0]))) == size
    with pytest.raises(HeadMoved):
        ours.append(RUN, JOURNAL, Piece(lines[2], len(lines[0])))
    known = sha256(lines[0] + lines[1]).digest()
    with pytest.raises(HeadMoved):
        theirs.append(RUN, JOURNAL, Piece(lines[2], size, known[::-1]))
    ours.append(RUN, JOURNAL, Piece(lines[2], size, known))

    assert stores[0].get(JOURNAL) == b"".join(lines[:3])


def test_steps_of_one_session_follow_each_other_through_two_journals(stores):
    ours, theirs = (StepJournals(store, CLOCK) for store in stores)
    step = parse_step(b'{"input_hash": "%b"}' % (b"0" * 64))

    def steps(request_id: str, *, start: bool = False, expected: str | None = None) -> AppendSteps:
        return AppendSteps("agent", [step], request_id, expected, start)

    first = ours.append(steps("a", start=True))
    second = theirs.append(steps("b", expected=first.head_hash))
    again = ours.append(steps("b", expected=first.head_hash))
    third = ours.append(steps("c", expected=second.head_hash))

    assert again == second
    assert third.step_count == 3
    with pytest.raises(RunExists):
        theirs.append(steps("d", start=True))


def test_rows_that_wait_for_the_signer_are_one_queue_for_all_journals(stores):
    appended: list[str] = []
    away = True

    def apply(row: WaitingRow) -> str:
        if away:
            raise Unavailable("away")
        if row.request_id not in appended:
            appended.append(row.request_id)
        return "hash"

    def row(request_id: str) -> AuditRow:
        fields = AuditFields("e", "a", "b", "c", {}, is_anchored=False)
        return AuditRow(request_id, "2026-03-01T10:00:00.000000Z", fields)

    ours, theirs = (PendingMacs(store, apply) for store in stores)
    for pending, request_id in ((ours, "1"), (theirs, "2"), (ours, "3"), (theirs, "1")):
        assert pending.append(row(request_id)) is None
    assert ours.waiting("audit log") == theirs.waiting("audit log") == 3
    away = False
    theirs.drain()
    ours.drain()

    assert appended == ["1", "2", "3"]
    assert ours.waiting("audit log") == 0
    for each in (ours, theirs):
        each.stop()


CALL = CallRequest("m", "prompt")


def test_recorders_of_one_run_record_a_request_once(stores):
    ours, theirs = (Recording(store, RUN, CLOCK) for store in stores)
    ours.record(CALL, "one", Caller("lane", "r1"))

    row = theirs.answered(CALL, Caller("lane", "r1"))
    assert row is not None
    assert row["response"] == "one"
    theirs.record(CALL, "two", Caller("lane", "r2"))
    # Both dialled: the answer that came first stands, and the other caller is told to ask again.
    theirs.record(CALL, "three", Caller("lane", "r3"))
    with pytest.raises(Unavailable, match="another recorder"):
        ours.record(CALL, "other", Caller("lane", "r3"))
    ours.record(CALL, "four", Caller("lane", "r4"))

    assert ours.summary() == theirs.summary()
    data = stores[0].get(paths.llm_calls_path(RUN)) or b""
    rows = [parse_call(line + b"\n") for line in data.splitlines()]
    assert [row["response"] for row in rows] == ["one", "two", "three", "four"]


def test_exchanges_of_agents_are_kept_once_through_two_recorders(stores, tmp_path):
    quarantine = FileStore(tmp_path / "private")
    recorders = [Exchanges(store, quarantine) for store in stores]
    asked, answered = b'{"model": "m"}', b'{"text": "hi"}'
    envelope = Envelope((), (), (), ((len(answered), 1.0),))

    def send(number: int) -> None:
        """Each message is sent to both recorders, as after an answer that got lost."""
        own = asked + b" " * (number // 2)
        request = HttpRequest("POST", "/openai/v1/chat/completions", (), (), own)
        answer = Answer(200, body_of(answered), End.COMPLETE, None, "")
        row = exchange_of(
            "agent", number // 2 + 1, request, keyed(request), answer=answer, envelope=envelope
        )
        bodies = {sha256(each).hexdigest(): each for each in (own, answered, envelope.data())}
        recorders[number % 2].record(RUN, f"id-{number // 2}", bodies, [row.line()])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(16)))

    found = [b"".join(each.read(RUN)) for each in recorders]
    assert found[0] == found[1]
    assert sorted(json.loads(line)["seq"] for line in found[0].splitlines()) == [*range(1, 9)]
    for each in recorders:
        for number in range(8):
            own = asked + b" " * number
            assert each.body(RUN, sha256(own).digest()) == own
        each.close()


def test_trees_that_share_a_run_id_live_side_by_side(database_url, tmp_path):
    """Two hundred hosts whose runs began in the same second: ids of the peer are seconds."""
    stores = PostgresStores(StoreConfig(url=database_url))
    trees = []
    for number in range(200):
        tree = FileStore(tmp_path / f"{number}" / ".sdd")
        line, _ = next_row(START, "run_started", b'{"host": %d}' % number, 1.0, 0.0)
        tree.put(JOURNAL, line + b"\n")
        tree.put(paths.metadata_path(RUN), json.dumps({"host": number}).encode())
        tree.put(paths.spine_path(RUN), b"spine of %d\n" % number)
        trees.append(tree)

    def kept(number: int) -> Store:
        return stores.of(f"{tmp_path}:{number}")

    def take_in(number: int) -> None:
        copies = Copies(kept(number))
        for name, parts in Copies(trees[number]).files(RUN):
            copies.take_in(RUN, name, parts)

    def all_of(store: Store) -> dict[str, bytes]:
        return {name: b"".join(parts) for name, parts in Copies(store).files(RUN)}

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(take_in, range(200)))
        given = list(threads.map(lambda number: all_of(kept(number)), range(200)))

    assert given == [all_of(tree) for tree in trees]
    assert kept(7).run_ids() == [RUN]
    stores.close()
