"""The key and the line of a recorded call: what is ours, and what is refused."""

import json
from hashlib import sha256

import pytest

from bernstein_formats.errors import InvalidInput, RowMalformed
from bernstein_formats.llm_calls import (
    Caller,
    CallRequest,
    call_line,
    literal_value,
    parameters_digest,
    parse_call,
)


def test_our_members_stand_behind_the_peers_in_this_order():
    request = CallRequest("m", "p", parameters={"seed": 1})
    row = json.loads(call_line(request, "yes", ts=1.5, caller=Caller("a/1", "req-7")))
    assert list(row)[7:] == [
        "response",
        "lane",
        "request_id",
        "prompt_sha256",
        "parameters",
        "parameters_digest",
    ]
    assert row["lane"] == "a/1"
    assert row["request_id"] == "req-7"
    assert row["prompt_sha256"] == sha256(b"p").hexdigest()
    assert row["parameters"] == {"seed": 1}
    assert row["parameters_digest"] == sha256(b'{"seed":1}').hexdigest()


def test_a_caller_without_parameters_leaves_a_digest_of_nothing_and_no_object():
    row = json.loads(call_line(CallRequest("m", "p"), "yes", ts=1.0, caller=Caller("a/1")))
    assert "parameters" not in row
    assert row["parameters_digest"] == sha256(b"{}").hexdigest()


def test_the_digest_sees_values_and_not_their_spelling_or_order():
    assert parameters_digest({"a": 1, "b": 2.0}) == parameters_digest({"b": 2, "a": 1.0})
    assert parameters_digest({"a": 1}) != parameters_digest({"a": True})
    assert parameters_digest({"a": 1}) != parameters_digest({"a": "1"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.7", 0.7), ("1", 1), ("1.0", 1.0), ("-0.0", -0.0), ("1e-05", 1e-05), ("None", None)],
)
def test_a_literal_keeps_its_type_and_sign(text, value):
    got = literal_value(text, "temperature")
    assert (got, type(got), str(got)) == (value, type(value), text)


@pytest.mark.parametrize("text", ["", "0.70", "1_0", " 1", "+1", "nan", "inf", "'0.7'", "null"])
def test_a_literal_that_python_does_not_print_so_is_refused(text):
    with pytest.raises(InvalidInput, match=r"temperature is .*give a number") as caught:
        literal_value(text, "temperature")
    assert caught.value.metadata == {"field": "temperature"}


def test_a_literal_of_endless_digits_is_refused():
    with pytest.raises(InvalidInput):
        literal_value("9" * 100_000, "max_tokens")


@pytest.mark.parametrize("name", ["model", "prompt", "provider"])
def test_half_a_character_is_refused_with_field_and_offset(name):
    fields = {"model": "m", "prompt": "p", "provider": "q"} | {name: "ab\udfff"}
    with pytest.raises(InvalidInput) as caught:
        CallRequest(fields["model"], fields["prompt"], fields["provider"]).key()
    assert caught.value.metadata == {"field": name, "offset": "2"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b"{",
        b"\xff",
        b'{"response": "x"}',
        b'{"key": "", "response": "x"}',
        b'{"key": "k"}',
    ],
)
def test_a_line_that_records_no_call_is_malformed(line):
    with pytest.raises(RowMalformed):
        parse_call(line)
