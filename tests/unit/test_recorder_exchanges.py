"""Stored exchanges: bodies by digest, rows once a request id."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_formats.errors import InvalidInput, ReplayRecordingMissingError, RequestIdReused
from bernstein_formats.http_exchange import Answer, End, Envelope, Exchange, body_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_rule_file import RULE_SET
from bernstein_recorder.exchanges import Exchanges
from bernstein_store.files import FileStore

ASKED, ANSWERED = b'{"model": "m"}', b'{"text": "hi"}'
ENVELOPE = Envelope((), (), (), ((len(ANSWERED), 1.0),))
BODIES = {hashlib.sha256(each).hexdigest(): each for each in (ASKED, ANSWERED, ENVELOPE.data())}


def exchange(seq: int) -> Exchange:
    request = HttpRequest("POST", "/openai/v1/chat/completions", (), (), ASKED)
    answer = Answer(200, body_of(ANSWERED), End.COMPLETE, None, "")
    found = keyed(request)
    return exchange_of("agent", seq, request, found, answer=answer, envelope=ENVELOPE)


@pytest.fixture
def exchanges(tmp_path: Path) -> Iterator[Exchanges]:
    made = Exchanges(FileStore(tmp_path / "sdd"), FileStore(tmp_path / "private"))
    yield made
    made.close()


def test_rows_of_one_message_are_appended_together_and_once(exchanges: Exchanges) -> None:
    lines = [exchange(seq).line() for seq in (1, 2)]
    first = exchanges.record("run-1", "id-1", BODIES, lines)
    again = exchanges.record("run-1", "id-1", BODIES, lines)

    assert first == again
    assert b"".join(exchanges.read("run-1")) == b"".join(lines)
    for digest, body in BODIES.items():
        assert exchanges.body("run-1", bytes.fromhex(digest)) == body
    assert exchanges.body("run-1", bytes.fromhex(RULE_SET.sha256_hex)) == RULE_SET.data
    with pytest.raises(RequestIdReused):
        exchanges.record("run-1", "id-1", BODIES, [exchange(3).line()])


def test_a_row_without_its_bodies_and_bytes_of_another_digest_are_refused(
    exchanges: Exchanges,
) -> None:
    line = exchange(1).line()
    with pytest.raises(InvalidInput, match="is not stored"):
        exchanges.record("run-1", "id-1", {}, [line])
    with pytest.raises(InvalidInput, match="have the digest"):
        exchanges.record("run-1", "id-2", {"0" * 64: b"other"}, [])

    exchanges.record("run-1", "id-3", BODIES, [])
    assert exchanges.record("run-1", "id-4", {}, [line]) == len(line)


def test_an_answer_that_holds_a_secret_is_kept_apart_from_the_run(
    exchanges: Exchanges, tmp_path: Path
) -> None:
    row = replace(exchange(1), quarantined=("github-token",))
    exchanges.record("run-1", "id-1", BODIES, [row.line()])
    digest = bytes.fromhex(row.answer.body.sha256_hex)
    kept = tmp_path / "private" / "quarantine" / "run-1.bodies"

    assert exchanges.body("run-1", digest) == ANSWERED
    assert (digest in kept.read_bytes(), kept.stat().st_mode & 0o777) == (True, 0o600)
    assert digest not in (tmp_path / "sdd" / "runs" / "run-1" / "llm_http.bodies").read_bytes()
    kept.unlink()
    with pytest.raises(ReplayRecordingMissingError, match="holds secrets"):
        exchanges.body("run-1", digest)
