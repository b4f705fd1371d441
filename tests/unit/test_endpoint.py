"""Addresses of a fleet's services, and the names that callers have."""

from pathlib import Path
from typing import Any

import pytest

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.caller import Caller, caller_of
from bernstein_runtime.config import FleetConfig, load_table
from bernstein_runtime.endpoint import Endpoint, parse_endpoint, parse_endpoints
from bernstein_runtime.origin import origin_metadata


def test_each_service_has_its_port_beside_the_base() -> None:
    endpoint = parse_endpoint("db1.example:9000", "x")
    assert [endpoint.address(name) for name in ("journal", "signer")] == [
        "db1.example:9000",
        "db1.example:9003",
    ]
    assert parse_endpoint("[::1]", "x").address("recorder") == "[::1]:7432"


def test_several_endpoints_are_separated_by_commas() -> None:
    assert parse_endpoints("a, b:99", "x") == (Endpoint("a"), Endpoint("b", 99))
    assert parse_endpoints("", "x") == ()


@pytest.mark.parametrize(
    "text",
    ["a:0", "a:65536", "a:65532", "::1", "http://a", "a b", "a:", ":1", "[a]", "a:1:2", "a\n", "ä"],
)
def test_what_is_no_endpoint_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"\[fleet\] endpoint: "):
        parse_endpoint(text, "[fleet] endpoint")


def test_the_short_name_of_the_endpoint_is_good_and_the_long_one_wins(tmp_path: Path) -> None:
    short = {"BERNSTEIN_SVC_ENDPOINT": "a"}
    both = {**short, "BERNSTEIN_SVC_FLEET_ENDPOINT": "b"}
    assert load_table(FleetConfig, "fleet", tmp_path, short).endpoint == "a"
    assert load_table(FleetConfig, "fleet", tmp_path, both).endpoint == "b"


class Context:
    """As much of a call as is looked at."""

    def __init__(self, facts: dict[str, list[bytes]], metadata: tuple[tuple[str, str], ...]):
        self._facts, self._metadata = facts, metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._facts

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata


def called(facts: dict[str, list[bytes]], *metadata: tuple[str, str]) -> Caller:
    context: Any = Context(facts, metadata)
    return caller_of("/a.B/C", context)


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({}, ""),
        ({"peer_dns": [b"host1", b"host2"]}, "host1"),
        ({"peer_dns": [b"host1"], "peer_uri": [b"spiffe://a", b"bernstein://caller/ci"]}, "ci"),
        ({"x509_common_name": [b"never"]}, ""),
    ],
)
def test_a_caller_is_named_by_its_certificate(facts: dict[str, list[bytes]], name: str) -> None:
    assert called(facts) == Caller(name, "a.B/C", "")


@pytest.mark.parametrize("origin", ["host:/srv/app", "büro:/a b%20c", "山:x"])
def test_an_origin_comes_through_metadata_as_it_was(origin: str) -> None:
    said = origin_metadata(origin)
    assert said[1].isascii()
    assert called({}, said).origin == origin


@pytest.mark.parametrize("text", ["", "%ff", "a%0Ab", "x" * 600])
def test_an_origin_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        called({}, ("bernstein-origin", text))
