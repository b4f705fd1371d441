"""Bodies in one file: small because they repeat, whole after a crash, refused when changed."""

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats import body_pack
from bernstein_formats.body_pack import CHAIN_LENGTH_MAX, HEADER_BYTES, packed, parse_record
from bernstein_formats.errors import RowMalformed
from bernstein_formats.http_exchange import Answer, End, body_of, envelope_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_recorder import bodies as bodies_module
from bernstein_recorder.bodies import Bodies
from bernstein_recorder.exchanges import Exchanges
from bernstein_store.files import FileStore

NAME = "runs/r/llm_http.bodies"
TURNS = 41


class Words:
    """Text that does not repeat more than language does; the same each time."""

    def __init__(self) -> None:
        self._random = random.Random(7)  # noqa: S311 - test data
        self._words = [
            "".join(
                self._random.choices("abcdefghijklmnopqrstuvwxyz", k=self._random.randint(2, 9))
            )
            for _ in range(3000)
        ]

    def text(self, size: int) -> str:
        return " ".join(self._random.choices(self._words, k=size // 6))

    def hex(self, count: int) -> str:
        return "".join(self._random.choices("0123456789abcdef", k=count))


def conversation(words: Words, turns: int = TURNS) -> Iterator[tuple[bytes, bytes]]:
    """Requests as a coding agent sends them, each with all that was said before; and answers."""
    tools = [
        {"name": f"tool{at}", "description": words.text(900), "input_schema": {"type": "object"}}
        for at in range(15)
    ]
    messages: list[dict[str, Any]] = [{"role": "user", "content": words.text(400)}]
    fixed = {"model": "m", "max_tokens": 9, "system": words.text(24_000), "tools": tools}
    for _ in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{words.hex(24)}", "input": {"c": words.text(60)}}
        yield (
            json.dumps({**fixed, "messages": messages, "stream": True}).encode(),
            f"event: content_block_start\ndata: {json.dumps(call)}\n\n".encode(),
        )
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": words.text(600)}
        messages = [
            *messages,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]


def digest_of(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def stored(store: FileStore, *bodies: bytes) -> list[bytes]:
    opened = Bodies(store, NAME)
    opened.add([(digest_of(body), body, "lane") for body in bodies])
    opened.close()
    return [digest_of(body) for body in bodies]


def headers(words: Words) -> tuple[tuple[str, str], ...]:
    return (
        ("user-agent", "agent/2.1.332 (external, cli)"),
        ("anthropic-beta", "one-2026-01-01,two-2026-02-02,three-2026-03-03"),
        ("x-request-id", words.hex(32)),
        *((f"x-header-{at}", f"value-{at}" * 4) for at in range(12)),
    )


def test_a_recording_of_41_calls_is_below_5_percent_of_its_json(store: FileStore) -> None:
    exchanges, words, json_bytes = Exchanges(store, store), Words(), 0
    for seq, (asked, answered) in enumerate(conversation(words), 1):
        request = HttpRequest("POST", "/anthropic/v1/messages", (), headers(words), asked)
        answer = Answer(200, body_of(answered), End.COMPLETE, True, "tool_use")
        pieces = [(1, 900.1 + at) for at in range(len(answered))]
        envelope = envelope_of(request, headers(words), pieces)
        found = keyed(request)
        row = exchange_of("agent", seq, request, found, answer=answer, envelope=envelope)
        bodies = {body_of(each).sha256_hex: each for each in (asked, answered, envelope.data())}
        exchanges.record("r", f"id-{seq}", bodies, [row.line()])
        json_bytes += sum(map(len, bodies.values()))
    exchanges.close()

    on_disk = sum(
        size
        for name in ("llm_http.jsonl", "llm_http.bodies")
        if (size := store.size(f"runs/r/{name}"))
    )
    assert json_bytes > 2_500_000
    assert on_disk < json_bytes * 0.05


def test_bodies_are_read_back_in_any_order_also_by_another_process(store: FileStore) -> None:
    bodies = [each for pair in conversation(Words(), 3 * CHAIN_LENGTH_MAX) for each in pair]
    digests = stored(store, *bodies[:100])
    digests += stored(store, *bodies[100:])
    again = Bodies(store, NAME)

    for at in (len(bodies) - 1, 0, 99, 100, 63, 128, 5):
        assert again.get(digests[at]) == bodies[at]
    assert again.size(digests[7]) == len(bodies[7])
    assert again.get(b"0" * 32) is None


def test_one_body_is_stored_once_and_an_empty_one_is_a_body(store: FileStore, path: Path) -> None:
    digests = stored(store, b"same", b"")
    size = path.stat().st_size
    assert stored(store, b"same", b"") == digests

    assert path.stat().st_size == size
    assert Bodies(store, NAME).get(digests[1]) == b""


def test_nothing_is_made_by_reading(store: FileStore, path: Path) -> None:
    assert Bodies(store, NAME).get(b"0" * 32) is None
    assert not path.parent.exists()


@pytest.mark.parametrize("left", [1, HEADER_BYTES - 1, HEADER_BYTES + 3, -1])
@pytest.mark.parametrize("has_marks", [True, False])
def test_what_a_crash_left_of_a_record_is_moved_aside(
    store: FileStore, path: Path, left: int, *, has_marks: bool
) -> None:
    first = stored(store, b"the first body")
    whole = path.read_bytes()
    torn = packed(b"a body\nthat was never acknowledged\n" * 3)
    path.write_bytes(whole + torn[:left])
    if not has_marks:
        for each in (path.parents[2] / "svc" / "marks").iterdir():
            each.unlink()
    assert Bodies(store, NAME).get(first[0]) == b"the first body"
    second = stored(store, b"the next body")
    again = Bodies(store, NAME)

    assert path.read_bytes()[: len(whole)] == whole
    assert [again.get(each) for each in (*first, *second)] == [b"the first body", b"the next body"]
    assert list(path.parent.glob("*.torn-*"))


@pytest.mark.parametrize("place", [0, 4, 9, 17, 30, 45, HEADER_BYTES + 12, -2])
def test_a_changed_byte_is_noticed(store: FileStore, path: Path, place: int) -> None:
    bodies = [json.dumps({"n": each, "text": Words().text(900)}).encode() for each in range(3)]
    digests = stored(store, *bodies)
    data = bytearray(path.read_bytes())
    first = parse_record(bytes(data[:HEADER_BYTES]), 0, len(data))
    assert first is not None
    data[first.length + place if place >= 0 else place] ^= 0x55
    path.write_bytes(bytes(data))

    try:
        found = [Bodies(store, NAME).get(each) for each in digests]
    except RowMalformed:
        return
    assert None in found
    assert all(each in (None, body) for each, body in zip(found, bodies, strict=True))


def test_a_conversation_never_rests_on_more_than_is_read_at_once(
    store: FileStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "CHAIN_BYTES_MAX", 150_000)
    stored(store, *(asked for asked, _ in conversation(Words(), 12)))
    data = path.read_bytes()
    at, resting = 0, []
    while at < len(data):
        record = parse_record(data[at : at + HEADER_BYTES], at, len(data))
        assert record is not None
        resting.append(bool(record.back))
        at += record.length

    assert resting[0] is False
    assert 3 <= resting.count(False) <= 6


def test_what_would_unpack_without_end_is_refused() -> None:
    record = parse_record(packed(bytes(1000)), 0, 10_000)
    assert record is not None
    bomb = packed(bytes(50_000_000))[HEADER_BYTES:]

    with pytest.raises(RowMalformed):
        body_pack.unpacked(bomb, record)
    with pytest.raises(RowMalformed):
        body_pack.unpacked(b"no frame", record)
