"""Secrets in bodies: replaced in requests so that keys still match, found in answers."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.http_answer_text import joined_texts, readable
from bernstein_formats.http_exchange import (
    Answer,
    End,
    body_of,
    envelope_of,
    exchange_of,
    request_of,
)
from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_rule_file import RULE_SET
from bernstein_formats.http_secrets import Redactor, secrets_in, without_secrets

FIELD = Path(__file__).parents[1] / "vectors" / "data" / "field"
OURS, OTHERS = Redactor(b"ours"), Redactor(b"others")
LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD2eF4"

# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "anthropic-key": "sk-" + "ant-api03-" + LETTERS,
    "openai-key": "sk-" + "proj-" + LETTERS,
    "github-token": "ghp" + "_" + LETTERS,
    "gitlab-token": "glpat" + "-" + LETTERS[:20],
    "aws-key-id": "AKI" + "A" + "Z7Q2M5K8P1L4N6B3",
    "google-key": "AIz" + "a" + LETTERS[:35],
    "slack-token": "xox" + "b-123456789012-" + LETTERS[:12],
    "stripe-key": "sk" + "_live_" + LETTERS[:24],
    "npm-token": "npm" + "_" + LETTERS,
    "pypi-token": "pypi" + "-" + LETTERS * 2,
    "huggingface-token": "hf" + "_" + LETTERS,
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NSJ9." + LETTERS,
    "private-key": "MIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSj",
    "url-password": "hunter2hunter2",
    "header": "opaque-Token-1234",
    "variable": "c0rrect-horse-battery",
}
AROUND = {
    "private-key": "-----BEGIN RSA PRIVATE KEY-----{}-----END RSA PRIVATE KEY-----",
    "url-password": "postgres://admin:{}@db.internal:5432/x",
    "header": 'curl -H "Authorization: Bearer {}" https://x',
    "variable": 'DEBUG=1\nDATABASE_PASSWORD="{}"\nPORT=1',
}


def told(kind: str, secret: str = "") -> str:
    return AROUND.get(kind, "the value is {} and that is it").format(secret or SECRETS[kind])


def asking(text: str) -> HttpRequest:
    """A tool's output in a request, and the same a second time inside of JSON."""
    messages = [{"role": "user", "content": text}, {"role": "user", "content": json.dumps([text])}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    return HttpRequest("POST", "/openai/v1/chat/completions", (), (), body)


def test_every_kind_of_the_rule_file_is_tested() -> None:
    assert {shape.kind for shape in RULE_SET.secrets} == set(SECRETS)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_replaced_wherever_it_stands_and_the_rest_stays(kind: str) -> None:
    asked = asking(told(kind))
    redacted = OURS.redacted(asked)
    spelled_secret = json.dumps(SECRETS[kind])[1:-1].encode()
    messages = json.loads(redacted.body)["messages"]

    assert spelled_secret not in redacted.body
    assert redacted.redacted[f"redact.{kind}"] >= 2
    before, after = told(kind).split(SECRETS[kind])
    assert messages[0]["content"].startswith(f"{before}<secret:{kind}:")
    assert messages[0]["content"].endswith(f">{after}")
    assert OURS.redacted(redacted).body == redacted.body


@pytest.mark.parametrize("kind", SECRETS)
def test_equal_secrets_stay_equal_others_differ_and_only_the_owner_can_tell(kind: str) -> None:
    secret = SECRETS[kind]
    other = secret.replace("7", "8").replace("2", "3").replace("4", "6").replace("1234", "5678")
    other = other if other != secret else secret.replace("K", "L").replace("0", "1")
    keys = [
        keyed(r.redacted(asking(told(kind, s)))).key
        for r, s in ((OURS, secret), (OURS, secret), (OURS, other), (OTHERS, secret))
    ]

    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_text_that_looks_replaced_is_not_taken_for_a_secret() -> None:
    redacted = OURS.redacted(asking(told("github-token")))
    written = OURS.redacted(HttpRequest("POST", redacted.path, (), (), redacted.body))

    assert written.body == redacted.body
    assert keyed(written).key != keyed(redacted).key


@pytest.mark.parametrize(
    "text",
    [
        "def authorization(request): return request.headers['authorization']",
        "API_KEY = os.environ['API_KEY']; TOKEN_COUNT=12; MAX_TOKENS=4096",
        "see https://example.org:8080/a@b and https://user@host/path",
        "task-list ask-for-help risk-free sk-learn disk-1 eyJust hf_hub npm_config_x",
        "-----BEGIN PUBLIC KEY-----MIIBIjANBgkqhkiG9w0-----END PUBLIC KEY-----",
        "e0a1f88d" * 8,
    ],
)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    asked = asking(text)

    assert OURS.redacted(asked) == asked
    assert secrets_in(asked.body) == ()


def test_a_stored_request_has_the_key_that_it_was_recorded_with() -> None:
    asked = OURS.redacted(asking(told("aws-key-id")))
    found = keyed(asked)
    answer = Answer(200, body_of(b""), End.COMPLETE, None, "")
    envelope = envelope_of(asked, (), ())
    kept = exchange_of("a", 1, asked, found, answer=answer, envelope=envelope)

    assert keyed(request_of(kept, envelope, asked.body)).key == kept.key
    assert found.rules == {"redact.aws-key-id": 2}


def test_no_secret_of_a_tool_call_or_an_exception_is_left_in_a_request() -> None:
    case = json.loads((FIELD / "F24" / "call.json").read_text())
    strings = json.loads((FIELD / "F24" / "expected.json").read_text())["strings"]
    redacted = OURS.redacted(asking(json.dumps([case["tool_call"], case["exception_text"]])))

    assert [each for each in strings if each.encode() in redacted.body] == []


# --- answers --------------------------------------------------------------------------------------


def frames(*events: Any) -> bytes:
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events)


def deltas(name: str, pieces: list[str]) -> list[Any]:
    """A text in pieces, as each protocol streams it, with another stream between."""
    made = {
        "anthropic": lambda at, text: {
            "type": "content_block_delta",
            "index": at,
            "delta": {"type": "input_json_delta", "partial_json": text},
        },
        "chat": lambda at, text: {"choices": [{"index": at, "delta": {"content": text}}]},
        "responses": lambda at, text: {
            "type": "response.output_text.delta",
            "item_id": f"msg_{at}",
            "output_index": at,
            "content_index": 0,
            "delta": text,
        },
        "gemini": lambda at, text: {
            "candidates": [{"index": at, "content": {"parts": [{"text": text}]}}]
        },
    }[name]
    return [made(at, text) for piece in pieces for at, text in ((0, piece), (1, "other "))]


@pytest.mark.parametrize("name", ["anthropic", "chat", "responses", "gemini"])
@pytest.mark.parametrize("kind", ["github-token", "aws-key-id"])
def test_a_secret_is_found_although_its_stream_cuts_it(name: str, kind: str) -> None:
    secret = SECRETS[kind]
    pieces = [secret[at : at + 3] for at in range(0, len(secret), 3)]
    body = frames(*deltas(name, pieces))

    assert secret.encode() not in body
    assert secrets_in(body) == (kind,)
    assert secrets_in(readable(gzip.compress(body), "gzip")) == (kind,)
    assert secrets_in(body[:-1]) == (kind,)
    assert secret in joined_texts(body)
    if name == "gemini":
        assert secrets_in(json.dumps(deltas(name, pieces)).encode()) == (kind,)


@pytest.mark.parametrize(
    "body", [b"", b"[", b"[1,[2]]", b"data: [DONE]\n\n", b"data: {\n\n", b"\xff" * 9, b"[" * 99_999]
)
def test_hostile_answers_hold_no_secret_and_do_no_harm(body: bytes) -> None:
    assert secrets_in(body) == ()
    assert secrets_in(readable(body, "zstd")) == ()


@pytest.mark.parametrize("kind", ["anthropic-key", "github-token", "jwt"])
def test_a_header_of_any_name_that_holds_a_secret_is_left_out(kind: str) -> None:
    headers = (("x-debug", f"used {SECRETS[kind]}"), ("x-request-id", "r"))
    assert without_secrets(headers) == headers[1:]
    assert without_secrets(headers[1:]) == headers[1:]
    assert without_secrets(()) == ()
