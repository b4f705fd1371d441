"""Calls to live models, against a real HTTP server on loopback that misbehaves as told."""

import json
import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bernstein_formats.errors import InvalidInput, KeyUnusable, ProviderFailed
from bernstein_formats.llm_calls import CallRequest
from bernstein_recorder.dialect import Provider
from bernstein_recorder.providers import Providers, checked
from bernstein_recorder.transport import BODY_BYTES_MAX
from bernstein_runtime.clock import FixedClock
from bernstein_runtime.config import RecorderConfig

KEY = "sk-secret-0123456789"
PROMPT = "the secret prompt"


class Server(ThreadingHTTPServer):
    """Does one step a request, the last one again and again; keeps what it was sent."""

    daemon_threads = True

    def __init__(self, steps):
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps = steps
        self.seen: list[tuple[str, dict[str, str], dict[str, object]]] = []
        self.released = threading.Event()
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        step = self.server.steps[min(len(self.server.seen), len(self.server.steps) - 1)]
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.path, headers, json.loads(body)))
        step(self)

    def log_message(self, *args):
        pass


def answer(status, body, **headers):
    def step(handler):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return step


def cut(handler):
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices"')
    handler.close_connection = True


def hang(handler):
    handler.server.released.wait(10)
    handler.close_connection = True


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    try:
        for _ in range(BODY_BYTES_MAX // 65536 + 64):
            handler.wfile.write(b" " * 65536)
    except ConnectionError:
        pass


def chat(text):
    return answer(200, {"choices": [{"message": {"role": "assistant", "content": text}}]})


@contextmanager
def serving(*steps):
    server = Server(steps)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def call(provider="openai", **fields):
    return CallRequest(model="m-small", prompt=PROMPT, provider=provider, **fields)


def dial(server, asked=None, *, name="openai", key=KEY, **config):
    settings = {name: checked(Provider(name, server.base_url, key))}
    return dial_with(RecorderConfig(**config), asked or call(name), settings)


def dial_with(config, asked, settings):
    with closing(Providers(config, FixedClock())) as providers:
        return providers.dial(asked, settings)


def failure(server, **config):
    with pytest.raises(ProviderFailed) as caught:
        dial(server, **config)
    text = caught.value.message
    assert KEY not in text
    assert PROMPT not in text
    return text


def test_a_chat_completion_is_asked_for_and_its_text_returned():
    with serving(chat("hello")) as server:
        asked = call(
            temperature="0.7", max_tokens="100", parameters={"seed": 1, "system": "be kind"}
        )
        assert dial(server, asked) == "hello"
    path, headers, body = server.seen[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m-small",
        "temperature": 0.7,
        "max_tokens": 100,
        "seed": 1,
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": PROMPT},
        ],
    }


def test_an_anthropic_message_is_asked_for_and_its_text_blocks_joined():
    blocks = [{"type": "text", "text": "a"}, {"type": "tool_use"}, {"type": "text", "text": "b"}]
    with serving(answer(200, {"type": "message", "content": blocks})) as server:
        server.base_url = server.base_url.removesuffix("/v1")
        asked = call("anthropic", temperature="1", max_tokens="50", parameters={"system": "kind"})
        assert dial(server, asked, name="anthropic") == "ab"
    path, headers, body = server.seen[0]
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert body["system"] == "kind"
    assert body["messages"] == [{"role": "user", "content": PROMPT}]


def test_literals_of_none_are_left_out_of_the_request():
    with serving(chat("x")) as server:
        dial(server, call(temperature="None", max_tokens="None"))
    assert server.seen[0][2].keys() == {"model", "messages"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "tool_calls": []},
        {"role": "assistant", "content": []},
    ],
)
def test_an_empty_answer_is_an_answer(message):
    with serving(answer(200, {"choices": [{"message": message}]})) as server:
        assert dial(server) == ""


def test_a_server_in_trouble_is_asked_again():
    with serving(answer(500, b"oops"), chat("after all")) as server:
        assert dial(server) == "after all"
        assert len(server.seen) == 2


def test_a_busy_server_says_when_to_ask_again():
    busy = answer(429, {"error": {"code": "rate_limit_exceeded"}}, retry_after="0")
    with serving(busy, busy, chat("now")) as server:
        assert dial(server) == "now"


def test_a_wait_beyond_the_time_limit_is_not_begun():
    busy = answer(429, {"error": {"code": "rate_limit_exceeded"}}, retry_after="3600")
    with serving(busy) as server:
        text = failure(server)
        assert "429 (rate_limit_exceeded)" in text
        assert len(server.seen) == 1


def test_attempts_are_bounded():
    with serving(answer(503, b"", retry_after="0")) as server:
        assert "503" in failure(server, call_attempts=3)
        assert len(server.seen) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_final_and_says_nothing_of_key_and_prompt(status):
    leaky = {"error": {"message": f"bad key {KEY} for {PROMPT}", "code": f"bad {KEY}"}}
    with serving(answer(status, leaky)) as server:
        assert str(status) in failure(server)
        assert len(server.seen) == 1


def test_a_redirect_is_not_followed():
    with serving(answer(307, b"", location="http://127.0.0.1:1/")) as server:
        assert "redirects" in failure(server)
        assert len(server.seen) == 1


def test_a_cut_answer_is_not_asked_for_again():
    with serving(cut, chat("second")) as server:
        assert "the connection broke" in failure(server)
        assert len(server.seen) == 1


def test_an_answer_that_does_not_come_is_given_up():
    with serving(hang) as server:
        assert "no complete answer within 0.3 s" in failure(server, call_timeout_seconds=0.3)
        assert len(server.seen) == 1


def test_an_endless_answer_is_cut_off():
    with serving(endless) as server:
        assert f"larger than {BODY_BYTES_MAX} bytes" in failure(server)


def test_an_answer_larger_than_a_message_is_refused():
    with serving(chat("x" * (BODY_BYTES_MAX // 2 + 1000))) as server:
        assert "more than 3145728" in failure(server)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[" * 5000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b"\xff",
        b"{}",
        b'{"choices": []}',
        b"3",
    ],
)
def test_what_is_no_answer_is_named_so(body):
    with serving(answer(200, body)) as server:
        assert "base URL" in failure(server)


def test_nobody_listening_is_told_with_the_address():
    with serving(chat("x")) as server:
        pass
    assert f"cannot connect to {server.base_url.removesuffix('/v1')}" in failure(
        server, call_attempts=1
    )


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host",
        "file:///etc/passwd",
        "host:80",
        "https://",
        f"https://user:{KEY}@host",
        "https://host/?key=x",
        "http://host:port",
        "http://ho st",
        "http://[",
    ],
)
def test_only_a_plain_http_address_is_taken(url):
    with pytest.raises(InvalidInput) as caught:
        checked(Provider("openai", url, KEY))
    assert KEY not in caught.value.message


@pytest.mark.parametrize("key", ["a b", "a\nx-evil: 1", "ключ", " ab"])
def test_a_key_that_a_header_cannot_carry_is_refused_unseen(key):
    with pytest.raises(InvalidInput) as caught:
        checked(Provider("openai", "", key))
    assert key not in caught.value.message


def test_a_key_is_never_shown():
    assert KEY not in repr(checked(Provider("openai", "", KEY)))


def test_an_unknown_provider_is_told_the_known_ones():
    with pytest.raises(InvalidInput, match="known are anthropic, openai"):
        checked(Provider("acme"))
    with pytest.raises(InvalidInput, match="known are anthropic, openai"):
        dial_with(RecorderConfig(), call("acme"), {})


def test_the_provider_none_is_never_called():
    with pytest.raises(InvalidInput, match="set internal_llm_provider"):
        dial_with(RecorderConfig(), call("none"), {})


def test_without_a_key_the_public_address_is_not_called():
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY"):
        dial_with(RecorderConfig(), call(), {})


def test_the_configured_key_is_read_from_its_file(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(f"{KEY}\n")
    with serving(chat("hi")) as server:
        config = RecorderConfig(openai_base_url=server.base_url, openai_key_file=str(key_file))
        assert dial_with(config, call(), {}) == "hi"
    assert server.seen[0][1]["authorization"] == f"Bearer {KEY}"


def test_the_configured_key_never_goes_to_an_address_that_a_caller_named(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    with serving(chat("hi")) as server:
        dial(server, key="", openai_key_file=str(key_file))
    assert "authorization" not in server.seen[0][1]


def test_a_key_file_that_is_not_there_is_named(tmp_path):
    config = RecorderConfig(openai_key_file=str(tmp_path / "none"))
    with pytest.raises(KeyUnusable, match="No such file"):
        dial_with(config, call(), {})


@pytest.mark.parametrize("name", ["model", "messages", "stream", "temperature"])
def test_fields_of_the_call_cannot_be_set_twice(name):
    with serving(chat("x")) as server, pytest.raises(InvalidInput, match=name):
        dial(server, call(parameters={name: True}))
    assert server.seen == []


def test_anthropic_needs_a_limit():
    with serving(chat("x")) as server, pytest.raises(InvalidInput, match="max_tokens"):
        dial(server, call("anthropic", max_tokens="None"), name="anthropic")


def test_cookies_are_not_kept():
    setting = answer(200, {"choices": [{"message": {"content": "x"}}]}, set_cookie="who=me; Path=/")
    settings = {}
    with (
        serving(setting) as server,
        closing(Providers(RecorderConfig(), FixedClock())) as providers,
    ):
        settings["openai"] = checked(Provider("openai", server.base_url, KEY))
        for _ in range(2):
            providers.dial(call(), settings)
    assert [headers.get("cookie") for _, headers, _ in server.seen] == [None, None]
