import json

import pytest

from bernstein_formats import json_rules
from bernstein_formats.canonical import (
    MAX_DEPTH,
    JsonValue,
    Profile,
    canonical_bytes,
    canonical_text,
    parse_json,
    parse_json_unique,
    plain_value,
    spelled,
)
from bernstein_formats.errors import InvalidInput, LimitExceeded


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "01", "1.", '"\t"', "\ufeff1", "1 2", "nul"]
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_json(text.encode())


def test_bad_utf8_is_refused_with_its_place():
    with pytest.raises(InvalidInput) as caught:
        parse_json(b'"a\xff"')
    assert caught.value.metadata == {"offset": "2"}


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", '"\\ud800"', "-0", "1" * 4300])
def test_what_pythons_json_takes_is_taken(text):
    assert json.dumps(json.loads(text)) == spelled(parse_json(text.encode()))


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**400])
def test_integers_stay_exact_at_any_size(number):
    text = json.dumps({"a": [number]}).encode()
    assert {"a": [number]} == parse_json(text)
    for profile in Profile:
        assert f'{{"a":[{number}]}}'.encode() == canonical_text(text, profile)


@pytest.mark.parametrize(
    "text", ["1" * 4301, "-" + "9" * 5000, nested(MAX_DEPTH + 1), nested(60_000)]
)
def test_beyond_the_limits_is_refused_by_name(text):
    with pytest.raises(LimitExceeded):
        parse_json(text.encode())
    with pytest.raises(LimitExceeded):
        json_rules.parse(text)


@pytest.mark.parametrize("profile", Profile)
def test_the_deepest_value_taken_can_be_written(profile):
    text = nested(MAX_DEPTH)
    assert text.encode() == canonical_bytes(parse_json(text), profile)
    assert text.encode() == canonical_text(text.encode(), profile)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1e16, "10000000000000000"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1.5e-7, "-1.5e-7"),
        (-0.0, "0"),
        (10.0, "10"),
        (123.456, "123.456"),
        (5e-324, "5e-324"),
    ],
)
def test_jcs_prints_numbers_as_ecmascript(number, text):
    assert text.encode() == canonical_bytes(number, Profile.JCS)
    assert text == json_rules.ecmascript_number(number)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {"\udfff": 1}])
def test_jcs_refuses_what_has_no_form(value):
    with pytest.raises(InvalidInput):
        canonical_bytes([value], Profile.JCS)


def test_jcs_sorts_by_utf16_units():
    value: JsonValue = {"\ufb33": 1, "\U0001f600": 2, "a": 3}
    assert '{"a":3,"\U0001f600":2,"\ufb33":1}'.encode() == canonical_bytes(value, Profile.JCS)


def test_py_json_escapes_what_python_escapes():
    value: JsonValue = {"é\U0001f600": "\x7f\u2028/", "n": [1e-5, float("nan")]}
    expected = b'{"n":[1e-05,NaN],"\\u00e9\\ud83d\\ude00":"\\u007f\\u2028/"}'
    assert expected == canonical_bytes(value, Profile.PY_JSON)
    assert expected == json_rules.py_json_bytes(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"\\u0061":2}',
        '{"x":[{"a" :1,"b":":","a"\t: 2}]}',
        '{"a\\\\":1,"a\\\\":2,"b":" :"}',
        '{"a"\n:1,"a":"\\":"}',
        '{"b":"\\u003a","a":1,"a":2}',
        '{"b":"\\u003A","a":1,"a":2}',
    ],
)
def test_a_member_named_twice_is_refused(text):
    with pytest.raises(InvalidInput) as caught:
        parse_json_unique(text.encode())
    assert "member" in caught.value.metadata


@pytest.mark.parametrize(
    "text",
    ['{"a":{"a":1},"b":[{"a":2}]}', '{"t":"12:30 \\":","u":" :"}', '{"a\\\\":1}', "[]", '":"'],
)
def test_members_named_once_are_taken(text):
    assert json.loads(text) == parse_json_unique(text.encode())


def test_program_values_become_json():
    value = {1: (True, None), None: 2.5, False: {"k"}}
    expected = {"1": [True, None], "null": 2.5, "false": "{'k'}"}
    assert expected == plain_value(value, Profile.PY_JSON)
    with pytest.raises(InvalidInput):
        plain_value(value, Profile.JCS)


@pytest.mark.parametrize("value", [{(1,): 2}, {1: "a", "1": "b"}])
def test_names_that_cannot_be_text_or_clash_are_refused(value):
    with pytest.raises(InvalidInput):
        plain_value(value, Profile.PY_JSON)
