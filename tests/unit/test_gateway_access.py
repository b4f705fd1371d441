"""Who is let in at the gateway's port, and where it may listen at all."""

import asyncio
import socket
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from bernstein_formats.errors import InvalidInput
from bernstein_gateway.access import COOKIE, Access, Activity
from bernstein_gateway.listening import check_listener, open_port, url_of
from bernstein_runtime.config import GatewayConfig

KEY = "the-key"
LOOPBACK = {"host": "127.0.0.1:4000"}


def answer_to(
    headers: dict[str, str], query: str = "", *, unix: bool = False, loopback: bool = True
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer to one GET."""
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": "/runs/r",
        "query_string": query.encode(),
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        "server": ("/run/gateway.sock", None) if unix else ("127.0.0.1", 4000),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    access = Access(PlainTextResponse("in"), token=KEY, is_loopback=loopback, activity=Activity())
    asyncio.run(access(scope, receive, send))
    found = {name.decode(): text.decode() for name, text in sent[0]["headers"]}
    return sent[0]["status"], found


@pytest.mark.parametrize(
    "headers",
    [
        {"cookie": f"{COOKIE}={KEY}"},
        {"authorization": f"Bearer {KEY}"},
        {"cookie": f"a=b; {COOKIE}={KEY}", "origin": "http://127.0.0.1:4000"},
    ],
)
def test_whoever_shows_the_key_is_let_in(headers: dict[str, str]) -> None:
    assert answer_to(LOOPBACK | headers)[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"cookie": f"{COOKIE}=other"}, 403),
        ({"cookie": f'{COOKIE}="\\'}, 403),
        ({"authorization": "Bearer "}, 403),
        ({"cookie": f"{COOKIE}={KEY}", "origin": "http://evil.example"}, 403),
        ({"cookie": f"{COOKIE}={KEY}", "host": "evil.example:4000"}, 421),
        ({"cookie": f"{COOKIE}={KEY}", "host": ""}, 421),
    ],
)
def test_everybody_else_is_refused(headers: dict[str, str], status: int) -> None:
    assert answer_to(LOOPBACK | headers)[0] == status


def test_a_link_with_the_key_leaves_it_in_a_cookie_and_not_in_the_address() -> None:
    status, headers = answer_to(LOOPBACK, f"a=1&token={KEY}")

    assert (status, headers["location"]) == (303, "/runs/r?a=1")
    for part in (f"{COOKIE}={KEY}", "HttpOnly", "SameSite=strict"):
        assert part in headers["set-cookie"]


def test_a_wrong_key_in_a_link_is_refused() -> None:
    assert answer_to(LOOPBACK, "token=x")[0] == 403


def test_the_unix_socket_asks_for_no_key() -> None:
    assert answer_to({}, unix=True)[0] == 200


def test_every_answer_forbids_what_a_page_does_not_need() -> None:
    for headers in ({}, {"authorization": f"Bearer {KEY}"}):
        assert "default-src 'self'" in answer_to(LOOPBACK | headers)[1]["content-security-policy"]


@pytest.mark.parametrize(
    "members",
    [
        {"host": "0.0.0.0"},  # noqa: S104 - that it is refused is the point
        {"host": "::"},
        {"host": "192.0.2.1"},
        {"host": "gateway.example"},
        {"host": "127.0.0.1", "tls_key_file": "key.pem"},
        {"host": "127.0.0.1", "port": 70000},
    ],
)
def test_a_listener_that_others_reach_in_the_clear_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        check_listener(GatewayConfig(**members))


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"host": "localhost"},
        {"host": "::1"},
        {"host": "0.0.0.0", "tls_certificate_file": "a", "tls_key_file": "b"},  # noqa: S104
    ],
)
def test_loopback_and_tls_are_taken(members: dict[str, Any]) -> None:
    check_listener(GatewayConfig(**members))


def test_a_free_port_is_found_and_named() -> None:
    config = GatewayConfig()
    opened = open_port(config)
    with opened:
        assert url_of(opened, config) == f"http://127.0.0.1:{opened.getsockname()[1]}"


def test_a_port_that_is_not_served_yet_refuses_nobody() -> None:
    with (
        open_port(GatewayConfig()) as opened,
        socket.create_connection(opened.getsockname(), timeout=5) as viewer,
    ):
        assert viewer.getpeername() == opened.getsockname()
