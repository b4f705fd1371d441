"""Ids that are not there or cannot be, given to every command, against docs/exit-codes.md."""

import re
import sys
from pathlib import Path

import pytest

from bernstein_cli.main import main

DOC = Path(__file__).parents[2] / "docs" / "exit-codes.md"
# A command line, and the row that speaks of it: {} is the id.
RUNS = {
    "replay {} --offline": "replay RUN",
    "replay {} --verify --offline": "replay RUN --verify",
    "replay {} --re-derive --offline": "replay RUN --re-derive",
    "replay {} --from-step 1 --offline": "replay RUN --from-step N",
    "replay diff {} {} --offline": "replay diff A B",
    "replay repair {}": "replay repair RUN",
    "thread verify --run {} --offline": "thread verify",
    "verify run {} --signing-key-path k.pem": "verify run",
    "determinism diff {} {} --offline": "determinism check",
    "determinism verify {} --offline": "determinism verify",
    "determinism compare {} {} --offline": "determinism compare",
}
AGENTS = {
    "replay export {} out --offline": "replay export",
    "replay publish {} out --opt-in --offline": "replay export",
    "replay diff-journal {} {} --offline": "replay diff-journal A B",
    "replay debug {} --offline": "replay debug A [B]",
    "replay debug {} {} --offline": "replay debug A [B]",
    "session fork {}": "session fork",
    "session branches {}": "session branches",
}
IMPOSSIBLE = ("../x", "", "a\x1b[31m\r\nOK", "x" * 129, "\udc80")


def documented(row):
    """The code under which the row tells that there is no such run, journal or session."""
    (cells,) = [
        line.split("|")
        for line in DOC.read_text().splitlines()
        if re.match(rf"\| `bernstein {re.escape(row)}`", line)
    ]
    return next(code for code in (1, 2) if "no such" in cells[2 + code])


@pytest.fixture
def bernstein(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "k.pem").write_bytes(bytes(32))

    def run(line, name):
        monkeypatch.setattr(sys, "argv", ["bernstein", *(w.format(name) for w in line.split())])
        code = main()
        out, err = capfd.readouterr()
        assert all(text.isprintable() for text in (out + err).split("\n"))
        assert [path.name for path in tmp_path.iterdir()] == ["k.pem"]
        return code

    return run


@pytest.mark.parametrize("line", RUNS)
def test_a_run_that_is_not_there_or_cannot_be_has_the_documented_code(bernstein, line):
    codes = {name: bernstein(line, name) for name in ("nosuch", *IMPOSSIBLE)}
    assert set(codes.values()) == {documented(RUNS[line])}, codes


@pytest.mark.parametrize("line", AGENTS)
def test_an_agent_that_is_not_there_has_the_documented_code(bernstein, line):
    assert bernstein(line, "nosuch") == documented(AGENTS[line])


@pytest.mark.parametrize("line", AGENTS)
def test_an_agent_that_cannot_be_is_wrong_usage(bernstein, line):
    assert {bernstein(line, name) for name in IMPOSSIBLE} == {2}
