"""The manifest: what it holds and leaves out, what is read back, which differences are told."""

from dataclasses import replace

import pytest

from bernstein_formats.agent_environment import (
    Change,
    Environment,
    Kind,
    WorkTree,
    day_texts,
    differences,
    kept_variables,
    open_command,
    parse_environment,
)
from bernstein_formats.errors import RowMalformed
from bernstein_formats.http_exchange import body_of

TREE = WorkTree(
    folder="/h/a/project",
    commit="c" * 40,
    branch="main",
    changes=(Change("a.txt", Kind.FILE, 3), Change("gone", Kind.GONE, 0)),
    contents=body_of(b"abc"),
    is_kept=True,
)
SEEN = Environment(
    command=("agent", "-p", "hi"),
    program_sha256="d" * 64,
    version="2.1.332",
    folder="/h/a/project/sub",
    home="/h/a",
    zone="Europe/Berlin",
    kernel="6.18.44",
    instant=1796000000,
    day="2026-11-30",
    variables={"LANG": "C.UTF-8", "ANTHROPIC_API_KEY": None},
    settings={".claude/settings.json": "e" * 64},
    work_tree=TREE,
)


def test_a_manifest_reads_back_as_it_was() -> None:
    assert parse_environment(SEEN.to_bytes()) == SEEN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"v": 1', b'"v": 2'),
        (b'"v": 1', b'"v": 1, "v": 1'),
        (b'"a.txt"', b'"../a.txt"'),
        (b'"a.txt"', b'"/a.txt"'),
        (b'"a.txt"', b'".git/config"'),
        (b'"file", 3', b'"file", 4'),
        (b'"file"', b'"device"'),
        (b'"instant": 1796000000', b'"instant": "soon"'),
        (b'"command": [', b'"command": [1, '),
        (b'"kernel"', b'"colonel"'),
        (b"{", b"["),
    ],
)
def test_what_is_no_manifest_is_named(old: bytes, new: bytes) -> None:
    data = SEEN.to_bytes()
    assert old in data
    with pytest.raises(RowMalformed, match="recorded environment"):
        parse_environment(data.replace(old, new, 1))


def test_values_of_variables_are_kept_from_a_fixed_list_alone() -> None:
    environ = {"LANG": "C", "ANTHROPIC_API_KEY": "sk-1", "CODEX_X": "2", "DATABASE_URL": "3"}
    assert kept_variables(environ) == {"LANG": "C", "ANTHROPIC_API_KEY": None, "CODEX_X": None}


@pytest.mark.parametrize(
    "argument",
    [
        *("--api-key=short", "TOKEN=x", "sk-ant-api03-abcdefgh", "ghp_abcdefghijkl"),
        *("https://me:secret@host/", "Authorization: Bearer x", "the value is swordfish-77"),
    ],
)
def test_an_argument_that_looks_like_a_secret_is_withheld(argument: str) -> None:
    environ = {"MY_PASSWORD": "swordfish-77", "LANG": "C.UTF-8", "OTHER_KEY": "hi"}
    assert open_command(("agent", argument, "hi"), environ) == ("agent", None, "hi")
    assert replace(SEEN, command=("agent", None)).stored_command is None


def test_the_argument_behind_a_secret_option_is_withheld_and_others_stay() -> None:
    command = ("agent", "--token", "x", "-p", "explain the token bucket", "--model", "a")
    assert open_command(command, {}) == (*command[:2], None, *command[3:])


def test_a_difference_matters_when_a_request_shows_the_recorded_fact() -> None:
    today = replace(SEEN, day="2026-12-01", version="2.1.340", kernel="6.19", settings={})
    found = {each.name: each for each in differences(SEEN, today)}
    assert list(found) == ["date", "version", "kernel", "settings .claude/settings.json"]
    request = b'{"system": "Today is November 30, 2026. cc_version=2.1.332"}'
    telling = [name for name, each in found.items() if each.stands_in([request])]
    assert telling == ["date", "version"]
    assert found["version"].text() == "version (recorded 2.1.332, today 2.1.340)"


def test_nothing_differs_from_itself() -> None:
    assert list(differences(SEEN, SEEN)) == []


def test_days_are_found_as_clients_write_them() -> None:
    texts = day_texts("2026-11-03")
    for each in ("2026-11-03", "11/3/2026", "Nov 03 2026", "November 3, 2026", "3 November 2026"):
        assert each in texts
    assert day_texts("someday") == ()
