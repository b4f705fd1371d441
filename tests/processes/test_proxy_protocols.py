"""What providers and clients do at the edges: Gemini, compressed answers, other endpoints."""

import gzip
import http.client
import json
import re
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import brotli
import pytest

from bernstein_client.connection import Services
from bernstein_client.proxy import LaneAccount, LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats import zstandard
from bernstein_formats.errors import ReplayKeySchemeMismatchError
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.paths import llm_http_bodies_path
from bernstein_recorder.bodies import Bodies
from bernstein_store.files import FileStore

pytestmark = pytest.mark.processes
SECRET = "AIza-real-key-of-the-user"  # noqa: S105 - opens nothing


@dataclass
class Scripted:
    """A provider that answers everything with `body`, and remembers what it was asked."""

    url: str = ""
    body: bytes = b"{}"
    # Sent one by one instead of the body.
    pieces: list[bytes] = field(default_factory=list)
    # Whether the connection breaks behind them.
    breaks: bool = False
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: Scripted

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        self.scripted.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.scripted.asked.append((self.command, self.path, headers))
        self.send_response(200)
        for name, value in self.scripted.headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = self.scripted.body
        cut = [body[at : at + 7] for at in range(0, len(body), 7)]
        for piece in self.scripted.pieces or cut:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
        if self.scripted.breaks:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def provider() -> Iterator[Scripted]:
    scripted = Scripted()
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Handler", (_Handler,), {"scripted": scripted})
    )
    scripted.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield scripted
    server.shutdown()
    server.server_close()
    thread.join()


class Held:
    """A lane that is open; `account` and `exchanges` are there once it is closed."""

    def __init__(self, run_id: str, base: str) -> None:
        self.run_id = run_id
        self.base = base
        self.account: LaneAccount
        self.exchanges: list[Exchange] = []

    def ask(
        self, path: str, body: Any = None, *, method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        netloc, prefix = urlsplit(self.base).netloc, urlsplit(self.base).path
        with closing(http.client.HTTPConnection(netloc, timeout=10)) as connection:
            is_ready = body is None or isinstance(body, bytes)
            data = body if is_ready else json.dumps(body).encode()
            connection.request(method, prefix + path, data, headers)
            with connection.getresponse() as answer:
                named = {name.lower(): value for name, value in answer.getheaders()}
                return answer.status, named, answer.read()

    def ask_raw(self, path: str, body: Any) -> tuple[bytes, bool]:
        """The bytes that came, and whether they were cut off."""
        try:
            return self.ask(path, body)[2], False
        except http.client.IncompleteRead as cut:
            return cut.partial, True


@contextmanager
def lane(
    services: Services, provider: Scripted | None = None, *, replay: str = ""
) -> Iterator[Held]:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "agent_started", {})
    names = ("openai", "anthropic", "gemini") if provider else ()
    providers = tuple(Provider(name, provider.url, SECRET) for name in names if provider)
    with ProxyClient(services.supervisor) as proxy:
        held = Held(run_id, proxy.open_lane(LaneWanted(run_id, "agent", replay, 0, providers)))
        yield held
        held.account = proxy.close_lane()
    if provider is not None and held.account.recorded:
        held.exchanges, _ = services.exchanges.read(run_id)


ASK = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
ANSWER = {"candidates": [{"content": {"parts": [{"text": "über"}]}, "finishReason": "STOP"}]}
STREAM = f"data: {json.dumps(ANSWER, ensure_ascii=False)}\r\n\r\n".encode()
EVENTS = {"Content-Type": "text/event-stream"}
GENERATE = "/gemini/v1beta/models/g-1:generateContent"
EVENT_STREAM = "/gemini/v1beta/models/g-1:streamGenerateContent?alt=sse"
ARRAY_STREAM = "/gemini/v1beta/models/g-1:streamGenerateContent"


@pytest.mark.parametrize(
    ("path", "sent", "end"),
    [
        (GENERATE, json.dumps(ANSWER).encode(), (None, "STOP")),
        (EVENT_STREAM, STREAM, (True, "STOP")),
        (EVENT_STREAM, STREAM.replace(b"finishReason", b"other"), (False, "")),
        (ARRAY_STREAM, json.dumps([{"candidates": []}, ANSWER]).encode(), (True, "STOP")),
        (ARRAY_STREAM, json.dumps([ANSWER]).encode()[:-1], (False, "")),
        (ARRAY_STREAM, b"[" + json.dumps(ANSWER).encode() + b"]\r\n", (True, "STOP")),
    ],
    ids=["whole", "events", "events-without-end", "array", "array-cut", "array-crlf"],
)
def test_gemini_answers_are_recorded_and_replayed_byte_for_byte(
    services: Services,
    provider: Scripted,
    path: str,
    sent: bytes,
    end: tuple[bool | None, str],
) -> None:
    provider.body = sent
    if path == EVENT_STREAM:
        provider.headers = EVENTS
    with lane(services, provider) as recording:
        recorded = recording.ask(path, ASK)
    with lane(services, replay=recording.run_id) as replaying:
        replayed = replaying.ask(path, ASK)
        missed = replaying.ask(path, {"contents": []})

    (exchange,) = recording.exchanges
    assert recorded[2] == replayed[2] == sent
    assert (exchange.answer.is_finished, exchange.answer.stop_reason) == end
    assert (exchange.model, exchange.protocol) == ("g-1", "gemini.generate")
    assert (replaying.account.served, replaying.account.misses) == (1, 1)
    error = json.loads(missed[2])["error"]
    assert (missed[0], error["status"], error["code"]) == (400, "FAILED_PRECONDITION", 400)
    assert "model g-1" in error["message"]


def test_the_agents_gemini_key_goes_and_the_real_one_comes(
    services: Services, provider: Scripted
) -> None:
    paths = (f"{GENERATE}?key=dummy&x=%2F1", "/gemini/models/g-1:countTokens", "/gemini/models")
    with lane(services, provider) as recording:
        for path in paths:
            recording.ask(path, ASK, **{"x-goog-api-key": "dummy"})
    with lane(services, replay=recording.run_id) as replaying:
        for path in paths:
            replaying.ask(path.replace("key=dummy", "key=another"), ASK)

    assert [path for _, path, _ in provider.asked] == [
        "/v1beta/models/g-1:generateContent?x=%2F1",
        "/v1beta/models/g-1:countTokens",
        "/v1beta/models",
    ]
    assert {headers["x-goog-api-key"] for _, _, headers in provider.asked} == {SECRET}
    assert "dummy" not in str([each.line() for each in recording.exchanges])
    assert (replaying.account.served, replaying.account.misses) == (3, 0)


OTHERS = [
    ("POST", "/openai/v1/embeddings", 400),
    ("GET", "/openai/v1/models", 400),
    ("GET", "/openai/v1/models/m-1", 400),
    ("GET", "/anthropic/v1/models?limit=2", 424),
    ("POST", "/anthropic/v1/messages/count_tokens?beta=true", 424),
    ("GET", "/gemini/v1beta/models", 400),
    ("POST", "/gemini/v1beta/models/e-1:embedContent", 400),
    ("POST", "/gemini/models/e-1:batchEmbedContents", 400),
    ("POST", "/gemini/v1/models/g-1:countTokens", 400),
]


def test_embeddings_lists_and_token_counts_are_recorded_like_model_calls(
    services: Services, provider: Scripted
) -> None:
    with lane(services, provider) as recording:
        for method, path, _ in OTHERS:
            recording.ask(path, {"input": path} if method == "POST" else None, method=method)
    with lane(services, replay=recording.run_id) as replaying:
        answers = [
            replaying.ask(path, {"input": path} if method == "POST" else None, method=method)
            for method, path, _ in OTHERS
        ]

    assert [answer[2] for answer in answers] == [b"{}"] * len(OTHERS)
    assert (replaying.account.served, replaying.account.misses) == (len(OTHERS), 0)
    assert len(provider.asked) == len(OTHERS)


def test_every_endpoint_misses_in_its_providers_own_words(
    services: Services, provider: Scripted
) -> None:
    with lane(services, provider) as recording:
        recording.ask("/openai/v1/models", method="GET")
    with lane(services, replay=recording.run_id) as replaying:
        missed = [replaying.ask(path, {"n": 1}) for _, path, _ in OTHERS]

    assert [status for status, _, _ in missed] == [status for _, _, status in OTHERS]
    assert {headers["x-should-retry"] for _, headers, _ in missed} == {"false"}
    for (_, path, _), (_, _, body) in zip(OTHERS, missed, strict=True):
        error = json.loads(body)
        assert error["error"]["message"].startswith("REPLAY_MISS: ")
        assert ("type" in error) is path.startswith("/anthropic")
        assert ("status" in error["error"]) is path.startswith("/gemini")


PACKED = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_provider_that_compresses_although_it_was_asked_not_to_is_kept_as_it_is(
    services: Services, provider: Scripted, encoding: str
) -> None:
    provider.body = PACKED[encoding](STREAM)
    provider.headers = EVENTS | {"Content-Encoding": encoding}
    with lane(services, provider) as recording:
        recorded = recording.ask(EVENT_STREAM, ASK)
    with lane(services, replay=recording.run_id) as replaying:
        replayed = replaying.ask(EVENT_STREAM, ASK)

    (_, _, asked) = provider.asked[0]
    (exchange,) = recording.exchanges
    assert asked["accept-encoding"] == "identity"
    assert recorded[2] == replayed[2] == provider.body
    assert replayed[1]["content-encoding"] == encoding
    assert (exchange.answer.is_finished, exchange.answer.stop_reason) == (True, "STOP")


def test_an_encoding_that_is_not_known_is_named_and_never_counts_as_whole(
    services: Services, provider: Scripted
) -> None:
    provider.body, provider.headers = STREAM, EVENTS | {"Content-Encoding": "dcz"}
    with lane(services, provider) as recording:
        recording.ask(EVENT_STREAM, ASK)

    assert recording.account.cut == 1
    assert "content encoding 'dcz'" in recording.account.notes[0]


def test_a_look_whether_anybody_is_there_is_no_call_and_other_paths_are_counted(
    services: Services, provider: Scripted
) -> None:
    with lane(services, provider) as recording:
        hello = recording.ask("/anthropic/api/hello", method="HEAD")
        other = recording.ask("/anthropic/v1/messages", method="HEAD")
        files = recording.ask("/anthropic/v1/files", {})
        recording.ask("/openai/v1/models", method="GET")
    with lane(services, replay=recording.run_id) as replaying:
        again = replaying.ask("/anthropic/api/hello", method="HEAD")
        upgrade = replaying.ask("/openai/v1/responses", {}, Upgrade="websocket")

    assert (hello[0], again[0], other[0], files[0], upgrade[0]) == (200, 200, 404, 404, 426)
    assert json.loads(files[2])["error"]["message"].startswith("UNEXPECTED_PATH: ")
    assert json.loads(files[2])["type"] == "error"
    assert (recording.account.unexpected_path, replaying.account.unexpected_path) == (2, 0)
    assert (recording.account.recorded, replaying.account.misses) == (1, 0)


# --- what rules took away -------------------------------------------------------------------------


def codex(*outputs: str, **more: Any) -> dict[str, Any]:
    """A request as codex sends it after some commands."""
    items = [
        {"type": "function_call_output", "call_id": f"c{at}", "id": f"fco_{text}", "output": text}
        for at, text in enumerate(outputs)
    ]
    return {"model": "m", "input": items, **more}


def exec_output(chunk: str, text: str) -> str:
    return f"Chunk ID: {chunk}\nWall time: 0.25 seconds\n{text}"


def test_what_masks_blanked_is_in_the_account_and_only_where_it_differs(
    services: Services, provider: Scripted
) -> None:
    path = "/openai/v1/responses"
    first, second = exec_output("0a1b2c", "one"), exec_output("ffffff", "two")
    with lane(services, provider) as recording:
        recording.ask(path, codex(first, prompt_cache_key="k1"))
        recording.ask(path, codex(first, second, prompt_cache_key="k1"))
    with lane(services, replay=recording.run_id) as same:
        same.ask(path, codex(first, prompt_cache_key="k1"))
    other = exec_output("123456", "one"), exec_output("abcdef", "two")
    with lane(services, replay=recording.run_id) as differing:
        differing.ask(path, codex(other[0], prompt_cache_key="k2"))
        differing.ask(path, codex(*other, prompt_cache_key="k2"))

    assert (same.account.served, dict(same.account.masked)) == (1, {})
    assert (differing.account.served, differing.account.misses) == (2, 0)
    assert dict(differing.account.masked) == {"responses.mask-exec-head": 2}
    assert recording.exchanges[1].rules == {
        "responses.drop-prompt-cache-key": 1,
        "responses.mask-exec-head": 2,
        "responses.rename-item-ids": 2,
    }


def bernstein(project: Any, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *words],
        cwd=project.folder,
        env=dict(project.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done


def test_explain_says_which_rules_changed_what(
    services: Services, provider: Scripted, project: Any
) -> None:
    with lane(services, provider) as recording:
        recording.ask("/openai/v1/responses", codex(exec_output("0a1b2c", "one")))
        recording.ask(GENERATE, ASK)
    said = bernstein(project, "replay", "explain", recording.run_id)
    told = json.loads(bernstein(project, "replay", "explain", recording.run_id, "--json").stdout)
    with lane(services, provider) as empty:
        pass
    nothing = bernstein(project, "replay", "explain", empty.run_id)

    head = "Chunk ID: 0a1b2c\nWall time: 0.25 seconds\n"
    assert (said.returncode, nothing.returncode) == (0, 12)
    assert re.search(r"responses.mask-exec-head +masked +1 ", said.stdout)
    assert told["requests"][0]["rules"][0] == {
        "rule": "responses.mask-exec-head",
        "did": "masked",
        "count": 1,
        "examples": [head],
    }
    assert [each["key_is_made_again"] for each in told["requests"]] == [True, True]
    assert (told["rule_set"], told["requests"][1]["rules"]) == (1, [])


def test_a_recording_of_other_rules_is_refused(
    services: Services, provider: Scripted, project: Any
) -> None:
    with lane(services, provider) as recording:
        recording.ask(GENERATE, ASK)
    path = project.sdd / "runs" / recording.run_id / "llm_http.jsonl"
    other = re.sub(rb'(?<="rules_sha256": ")[0-9a-f]{64}', b"0" * 64, path.read_bytes())
    path.write_bytes(other)
    explained = bernstein(project, "replay", "explain", recording.run_id)
    replayed = bernstein(project, "replay", recording.run_id, "--", "true")

    assert (explained.returncode, replayed.returncode) == (13, 13)
    assert "key scheme mismatch" in explained.stderr
    assert "key scheme mismatch" in replayed.stderr


# --- secrets --------------------------------------------------------------------------------------

# Put together here, so that no scanner takes this file for a leak.
TOKEN = "_".join(("ghp", "16C7e42F292c6912E7710c838347Ae178B4a"))


def chat(text: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "tool", "content": text}]}


CHAT = "/openai/v1/chat/completions"


def written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_secret_in_a_request_reaches_the_provider_and_no_file_and_matches_all_the_same(
    services: Services, provider: Scripted, project: Any
) -> None:
    with lane(services, provider) as recording:
        recording.ask(CHAT, chat(f"TOKEN={TOKEN}"))
        recording.ask(CHAT, chat("nothing"))
    services.journal.finish_run(recording.run_id)
    with lane(services, replay=recording.run_id) as replaying:
        replaying.ask(CHAT, chat(f"TOKEN={TOKEN}"))
        replaying.ask(CHAT, chat("nothing"))
    with lane(services, replay=recording.run_id) as other:
        missed = other.ask(CHAT, chat(f"TOKEN={TOKEN[:-1]}b"))
    explained = bernstein(project, "replay", "explain", recording.run_id)

    first, second = recording.exchanges
    _, stored = services.exchanges.bodies(recording.run_id, second.request, first.request)
    assert TOKEN.encode() in provider.bodies[0]
    assert b"<secret:github-token:" in stored
    assert TOKEN.encode() not in written(project.folder)
    assert (replaying.account.served, replaying.account.misses) == (2, 0)
    assert (other.account.misses, TOKEN[:-1].encode() in missed[2]) == (1, False)
    assert first.rules == {"redact.github-token": 1}
    assert (bool(first.redaction_key), second.redaction_key) == (True, "")
    assert (explained.returncode, "redact.github-token" in explained.stdout) == (0, True)
    assert services.journal.verify_run(recording.run_id).is_clean


def test_a_secret_in_an_address_reaches_the_provider_and_no_file(
    services: Services, provider: Scripted, project: Any
) -> None:
    addresses = (f"{CHAT}?session={TOKEN}", f"/openai/v1/models/{TOKEN}")
    with lane(services, provider) as recording:
        for address in addresses:
            recording.ask(address, chat("nothing"))
    services.journal.finish_run(recording.run_id)
    with lane(services, replay=recording.run_id) as replaying:
        for address in addresses:
            replaying.ask(address, chat("nothing"))
    explained = bernstein(project, "replay", "explain", recording.run_id)

    assert TOKEN.encode() not in written(project.folder)
    assert "<secret:github-token:" in recording.exchanges[1].path
    assert (replaying.account.served, replaying.account.misses) == (2, 0)
    assert explained.returncode == 0, explained.stdout


def test_without_the_key_of_its_owner_redacted_requests_are_not_replayed(
    services: Services, provider: Scripted, project: Any
) -> None:
    with lane(services, provider) as recording:
        recording.ask(CHAT, chat(f"TOKEN={TOKEN}"))
    key = services.places.redaction_key
    mode = key.stat().st_mode & 0o777
    elsewhere = project.folder.parent / "other-home"
    elsewhere.mkdir()
    services.supervisor.ask({"do": "stop"})
    environ = {**project.environ, "HOME": str(elsewhere)}
    refused = pytest.raises(ReplayKeySchemeMismatchError, match="secrets in the recording")
    with Services(project.sdd, environ) as others, refused, lane(others, replay=recording.run_id):
        pass

    assert mode == 0o600
    assert key.is_relative_to(project.environ["HOME"])


def test_an_answer_that_holds_a_secret_is_replayed_as_it_was_and_kept_apart(
    services: Services, provider: Scripted, project: Any
) -> None:
    pieces = [TOKEN[at : at + 3] for at in range(0, len(TOKEN), 3)]
    events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    provider.body = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)
    provider.body += b"data: [DONE]\n\n"
    provider.headers = EVENTS
    with lane(services, provider) as recording:
        recorded = recording.ask(CHAT, chat("say it"))
    services.journal.finish_run(recording.run_id)
    with lane(services, replay=recording.run_id) as replaying:
        replayed = replaying.ask(CHAT, chat("say it"))
    scanned = bernstein(project, "replay", "scan", recording.run_id, "--json")
    assert bernstein(project, "keys", "new", "a.pem").returncode == 0
    line = ["verify", "run", recording.run_id, "--signing-key-path", "a.pem"]
    signed = bernstein(project, *line)
    allowed = bernstein(project, *line, "--allow-secrets")

    (exchange,) = recording.exchanges
    assert recorded[2] == replayed[2] == provider.body
    assert exchange.quarantined == ("github-token",)
    # Not even in pieces.
    assert provider.body not in written(project.sdd)
    bodies = Bodies(FileStore(project.sdd), llm_http_bodies_path(recording.run_id))
    assert bodies.size(bytes.fromhex(exchange.answer.body.sha256_hex)) is None
    assert bodies.size(bytes.fromhex(exchange.request.sha256_hex)) == exchange.request.size
    assert scanned.returncode == 1
    assert json.loads(scanned.stdout)["found"] == [
        {"lane": "agent", "seq": 1, "part": "quarantine", "line": 1, "rule": "github-token"}
    ]
    assert (signed.returncode, allowed.returncode) == (1, 0)
    assert "so it is not made public" in signed.stderr
    assert signed.stderr.count("quarantine, line 1") == 1


def test_a_scan_finds_what_no_rule_of_ours_knows_and_a_clean_recording_is_clean(
    services: Services, provider: Scripted, project: Any
) -> None:
    unknown = "".join(("dop_v1_", "9a1f" * 16))  # a kind that only the scanner knows
    with lane(services, provider) as clean:
        clean.ask(CHAT, chat(f"TOKEN={TOKEN} and {'e0a1f88d' * 8}"))
    with lane(services, provider) as dirty:
        dirty.ask(CHAT, chat("nothing"))
        dirty.ask(CHAT, chat(f"digitalocean = '{unknown}'"))
    nothing = bernstein(project, "replay", "scan", clean.run_id)
    found = bernstein(project, "replay", "scan", dirty.run_id)

    assert (nothing.returncode, found.returncode) == (0, 1)
    assert "0 finding(s) in 1 exchange(s)" in nothing.stdout
    assert "lane agent, request 2, request, line 1" in found.stdout
    assert unknown not in found.stdout + found.stderr


# --- what a provider does to the context ----------------------------------------------------------


def test_a_providers_edit_of_the_context_is_a_row_of_the_journal_and_of_its_replay(
    services: Services, provider: Scripted
) -> None:
    edit = {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8}
    answer = {"content": [], "context_management": {"applied_edits": [edit]}}
    provider.body = json.dumps(answer).encode()
    path = "/anthropic/v1/messages"
    with lane(services, provider) as recording:
        recording.ask(path, chat("one"))
    with lane(services, replay=recording.run_id) as replaying:
        replaying.ask(path, chat("one"))
    for held in (recording, replaying):
        services.journal.finish_run(held.run_id)
    rows = [
        json.loads(line)
        for line in b"".join(services.journal.read_journal(recording.run_id)).splitlines()
    ]
    verified = [services.journal.verify_run(held.run_id) for held in (recording, replaying)]

    names = [row["event"] for row in rows]
    assert names[1:3] == ["llm_http_exchange", "provider_state_mutation"]
    assert (rows[2]["mutation_kind"], rows[2]["agent_id"]) == ("context_edit", "agent")
    assert verified[0].head_hash == verified[1].head_hash
    assert verified[0].is_clean


# --- streams that are cut, in the middle of a character or of a frame (field cases F05, F06) ------

FIELD = Path(__file__).parents[1] / "vectors" / "data" / "field"


def field_streams() -> dict[str, tuple[list[bytes], bool]]:
    """The pieces of each stream, and whether it says its end."""
    whole = json.loads((FIELD / "F05" / "chunks.json").read_text())["chunks_base64"]
    invalid = json.loads((FIELD / "F05" / "really_invalid.json").read_text())["chunks_base64"]
    frames = json.loads((FIELD / "F06" / "streams.json").read_text())
    del frames["expected"]
    return {
        "F05-whole": ([b64decode(each) for each in whole], False),
        "F05-invalid": ([b64decode(each) for each in invalid], False),
        **{
            f"F06-{name}": ([each.encode() for each in pieces], name in {"complete", "length_stop"})
            for name, pieces in frames.items()
        },
    }


@pytest.mark.parametrize("name", field_streams())
@pytest.mark.parametrize("is_cut", [False, True], ids=["ends", "breaks"])
def test_the_bytes_and_the_ending_of_a_stream_are_replayed_whatever_they_are(
    services: Services, provider: Scripted, name: str, *, is_cut: bool
) -> None:
    provider.pieces, has_end = field_streams()[name]
    provider.headers, provider.breaks = EVENTS, is_cut
    with lane(services, provider) as recording:
        recorded = recording.ask_raw(CHAT, chat("hi"))
    with lane(services, replay=recording.run_id) as replaying:
        replayed = replaying.ask_raw(CHAT, chat("hi"))

    (exchange,) = recording.exchanges
    assert recorded == replayed == (b"".join(provider.pieces), is_cut)
    assert exchange.answer.is_finished is has_end
    assert exchange.answer.is_whole is (has_end and not is_cut)
    assert replaying.account.cut == recording.account.cut == (not exchange.answer.is_whole)


@pytest.mark.parametrize("encoding", PACKED)
def test_a_request_that_its_client_compressed_is_opened_once_and_keyed_by_what_it_says(
    services: Services, provider: Scripted, encoding: str
) -> None:
    plain = json.dumps(chat("hi")).encode()
    with lane(services, provider) as recording:
        recording.ask(CHAT, PACKED[encoding](plain), **{"Content-Encoding": encoding})
    with lane(services, replay=recording.run_id) as replaying:
        replaying.ask(CHAT, plain)

    (_, _, headers) = provider.asked[0]
    assert (provider.bodies, "content-encoding" in headers) == ([plain], False)
    assert (replaying.account.served, replaying.account.misses) == (1, 0)


def test_a_request_that_cannot_be_opened_is_refused_and_counted(
    services: Services, provider: Scripted
) -> None:
    with lane(services, provider) as recording:
        status, headers, body = recording.ask(CHAT, b"hello", **{"Content-Encoding": "gzip"})

    assert (status, headers["x-should-retry"], b"INVALID_INPUT" in body) == (400, "false", True)
    assert (recording.account.refused, recording.account.recorded) == (1, 0)
    assert provider.bodies == []
