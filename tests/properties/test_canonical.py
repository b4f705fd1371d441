import json

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats import fast_json, json_rules
from bernstein_formats.canonical import Profile, canonical_bytes, canonical_text, parse_json
from bernstein_formats.errors import InvalidInput

TEXTS = st.text(st.characters(codec=None, exclude_categories=[])) | st.text()
NUMBERS = st.integers() | st.floats() | st.floats(-1e-3, 1e-3) | st.integers(-(2**70), 2**70)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def outcome(function, *arguments):
    """Give what a function answers, or that it refuses."""
    try:
        return function(*arguments)
    except InvalidInput:
        return InvalidInput


def same(a, b):
    """Compare with types and NaN taken seriously."""
    return repr(a) == repr(b)


@given(VALUES)
def test_fast_py_json_is_pythons_own(value):
    expected = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    assert expected == fast_json.py_json_bytes(value)
    assert expected == json_rules.py_json_bytes(value)


@given(VALUES)
def test_fast_jcs_is_the_slow_one(value):
    assert outcome(json_rules.jcs_bytes, value) == outcome(fast_json.jcs_bytes, value)


@given(VALUES, st.booleans())
def test_text_and_value_give_the_same_bytes(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    for profile in Profile:
        parsed = outcome(parse_json, text)
        if parsed is not InvalidInput:
            expected = outcome(canonical_bytes, parsed, profile)
            assert expected == outcome(canonical_text, text, profile)


@given(VALUES, st.data())
def test_damaged_text_is_read_or_refused_alike(value, data):
    text = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    fast, slow = outcome(fast_json.parse, bytes(text)), outcome(json_rules.parse, bytes(text))
    assert same(fast, slow)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_printed_by_ecmascripts_rule_reads_back(number):
    assert number == float(json_rules.ecmascript_number(number))


@given(VALUES)
def test_writing_what_was_read_changes_nothing(value):
    written = canonical_bytes(value, Profile.PY_JSON)
    assert written == canonical_bytes(parse_json(written), Profile.PY_JSON)
