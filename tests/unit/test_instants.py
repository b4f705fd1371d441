"""Instants: an accepted set that is written down, the same on every Python."""

import pytest

from bernstein_formats.errors import InvalidInput
from bernstein_formats.instants import parse_bound, parse_instant

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0001-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00.000001Z", 1),
        ("0001-01-01T00:00:00.1Z", 100_000),
        ("0001-01-01T00:00:00+23:59", -(23 * 60 + 59) * 60 * SECOND),
        ("0001-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00Z", 719_162 * 86_400 * SECOND),
        ("9999-12-31T23:59:59.999999Z", 3_652_059 * 86_400 * SECOND - 1),
    ],
)
def test_an_instant_is_a_number_of_microseconds(text, microseconds):
    assert parse_instant(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1700000000",
        "2026-04-01",
        "2026-04-01T00:00:00",
        "2026-04-01T00:00Z",
        "2026-04-01T00Z",
        "2026-04-01 00:00:00Z",
        "2026-04-01t00:00:00Z",
        "2026-04-01T00:00:00z",
        " 2026-04-01T00:00:00Z",
        "2026-04-01T00:00:00Z\n",
        "2026-04-01T00:00:00,5Z",
        "2026-04-01T00:00:00.Z",
        "2026-04-01T00:00:00.1234567Z",
        "2026-04-01T00:00:60Z",
        "2026-04-01T24:00:00Z",
        "2026-04-01T00:60:00Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-04-01T00:00:00+24:00",
        "2026-04-01T00:00:00+00:60",
        "2026-04-01T00:00:00+0000",
        "2026-04-01T00:00:00+00:00:00",
        "20260401T000000Z",
        "2026-W13-2T12:00:00Z",
        "\N{FULLWIDTH DIGIT TWO}026-04-01T00:00:00Z",
        "12026-04-01T00:00:00Z",
        None,
        5,
        ["2026-04-01T00:00:00Z"],
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_instant(text)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("2026", "2026-01-01T00:00:00Z"),
        ("2026-03", "2026-03-01T00:00:00Z"),
        ("2026-03-02", "2026-03-02T00:00:00Z"),
        ("2026-03-02T10:00:00.5+02:00", "2026-03-02T08:00:00.500000Z"),
    ],
)
def test_a_bound_is_an_instant_or_the_first_one_of_a_day_month_or_year(text, first):
    assert parse_bound(text) == parse_instant(first)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "26", "0000", "2026-3-1", "2026-13", "2026-02-30", "20260301", "2026-W13-2",
     "2026-03-01Z", "2026-03-01T10:00:00", "2026-03-01T10:00Z", "2026-03-01 10:00:00Z",
     "2026-03-01T10:00:00.1234567Z", "2026-03-01\n", "２０２６"],  # noqa: RUF001
)  # fmt: skip
def test_a_bound_with_two_meanings_or_none_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_bound(text)
