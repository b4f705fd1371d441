"""What vcrpy wrote is read as exchanges, or refused by name."""

import gzip
from base64 import b64encode
from typing import Any

import pytest

from bernstein_client.vcr_cassette import Interaction, LeftOut, interactions
from bernstein_formats.errors import InvalidInput

CHAT = "https://api.openai.com/v1/chat/completions"


def cassette(uri: str = CHAT, **response: Any) -> Any:
    return {
        "version": 1,
        "interactions": [
            {
                "request": {"method": "POST", "uri": uri, "body": "{}", "headers": {"a": ["b"]}},
                "response": {
                    "status": {"code": 200, "message": "OK"},
                    "headers": {"Content-Type": ["application/json"]},
                    "body": {"string": "{}"},
                    **response,
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        (CHAT, "/openai/v1/chat/completions"),
        ("http://localhost:1/my/proxy/v1/responses", "/openai/v1/responses"),
        ("https://api.anthropic.com/v1/messages?beta=true", "/anthropic/v1/messages"),
        ("https://api.anthropic.com/v1/models", "/anthropic/v1/models"),
        ("https://api.openai.com/v1/models/gpt-5", "/openai/v1/models/gpt-5"),
        ("https://api.openai.com/v1/embeddings", "/openai/v1/embeddings"),
        (
            "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent?key=k",
            "/gemini/v1beta/models/g:generateContent",
        ),
    ],
)
def test_an_address_becomes_the_path_that_a_lane_has(uri: str, path: str) -> None:
    (found,) = interactions(cassette(uri))
    assert isinstance(found, Interaction)
    assert found.request.path == path


@pytest.mark.parametrize("uri", ["https://example.org/", "https://api.openai.com/v1/files", ""])
def test_what_is_no_call_of_a_model_is_left_out(uri: str) -> None:
    assert list(interactions(cassette(uri))) == [LeftOut(1, "POST", uri)]


def test_a_compressed_answer_is_kept_in_plain() -> None:
    headers = {"Content-Encoding": ["gzip"], "Content-Type": "application/json"}
    packed = gzip.compress(b'{"stop_reason": "end_turn"}')
    (found,) = interactions(cassette(headers=headers, body={"string": packed}))
    (plain,) = interactions(cassette(headers=headers, body={"string": "unpacked already"}))

    assert isinstance(found, Interaction)
    assert isinstance(plain, Interaction)
    assert found.body == b'{"stop_reason": "end_turn"}'
    assert found.headers == (("Content-Type", "application/json"),)
    assert plain.body == b"unpacked already"


@pytest.mark.parametrize(
    ("body", "data"),
    [
        (None, b""),
        ({"string": None}, b""),
        ({"string": "ü"}, "ü".encode()),
        ({"base64_string": b64encode(b"\xff").decode()}, b"\xff"),
    ],
)
def test_bodies_are_bytes_however_they_were_written(body: Any, data: bytes) -> None:
    (found,) = interactions(cassette(body=body))
    assert isinstance(found, Interaction)
    assert found.body == data


@pytest.mark.parametrize(
    "document",
    [
        *(None, [], {}, {"version": 2, "interactions": []}, {"version": 1, "interactions": {}}),
        {"version": 1, "interactions": [None]},
        {"version": 1, "interactions": [{"request": {}, "response": {}}]},
        cassette(status={"code": "200"}),
        cassette(status={"code": True}),
        cassette(body=3),
        cassette(body={"base64_string": "%"}),
        cassette(headers=[]),
        cassette("http://[broken/v1/messages"),
    ],
)
def test_what_is_no_cassette_is_refused(document: Any) -> None:
    with pytest.raises(InvalidInput):
        list(interactions(document))
