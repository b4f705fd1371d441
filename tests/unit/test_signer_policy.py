"""The signer's policy: what no rule allows is refused, and a file that is wrong says where."""

import pytest

from bernstein_formats.errors import InvalidInput, NotAllowed
from bernstein_signer.policy import Policy, Signs, parse_policy

TEXT = """\
[[allow]]
what = ["seal", "mac"]
origins = ["build:*"]
runs = ["*"]

[[allow]]
what = ["receipt"]
origins = ["build:shop"]
runs = ["2026*"]
keys = ["fleet-2026"]
"""


def policy() -> Policy:
    return parse_policy(TEXT, "policy.toml")


@pytest.mark.parametrize(
    ("what", "origin", "run_id", "key_id", "is_allowed"),
    [
        (Signs.SEAL, "build:shop", "20260101-1", "", True),
        (Signs.SEAL, "build:", "x", "", True),
        (Signs.SEAL, "lab:shop", "x", "", False),
        (Signs.MAC, "build:a", "", "", True),
        (Signs.MAC, "", "", "", False),
        (Signs.RECEIPT, "build:shop", "20260101-1", "fleet-2026", True),
        (Signs.RECEIPT, "build:shop", "20260101-1", "fleet-2025", False),
        (Signs.RECEIPT, "build:shop", "20250101-1", "fleet-2026", False),
        (Signs.RECEIPT, "build:shop2", "20260101-1", "fleet-2026", False),
    ],
)
def test_only_what_a_rule_allows_is_signed(what, origin, run_id, key_id, is_allowed):
    if is_allowed:
        policy().check(what, origin, run_id, key_id)
        return
    with pytest.raises(NotAllowed, match=f"no rule for a {what} of origin {origin}"):
        policy().check(what, origin, run_id, key_id)


def test_a_policy_without_rules_allows_nothing():
    for what in Signs:
        with pytest.raises(NotAllowed):
            parse_policy("", "policy.toml").check(what, "o", "r", "k")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (TEXT.replace('"seal", "mac"', '"seal", "all"'), 2, "seal, receipt, mac"),
        (TEXT.replace('keys = ["fleet-2026"]', "keys = []"), 10, "keys is a list"),
        (TEXT.replace('["2026*"]', '["20*26"]'), 9, "at its end at most"),
        (TEXT.replace('runs = ["*"]\n', ""), 1, "has no runs"),
        (TEXT + 'who = "x"\n', 11, "no 'who'"),
        (TEXT + "[deny]\n", 11, "no table 'deny'"),
        ("allow = 1\n", 1, "under .*allow"),
    ],
)
def test_a_rule_that_is_none_is_named_with_its_line(text, line, said):
    with pytest.raises(InvalidInput, match=rf"policy.toml, line {line}: .*{said}"):
        parse_policy(text, "policy.toml")


def test_what_is_no_toml_says_so():
    with pytest.raises(InvalidInput, match=r"policy.toml: .*docs/signer.md"):
        parse_policy("[[allow", "policy.toml")
