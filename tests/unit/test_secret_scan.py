"""Secrets in rows: found, told by line and rule, never shown."""

import importlib.util
import stat

import pytest

from bernstein_cli import secret_scan
from bernstein_cli.secret_scan import Secret, refuse_secrets, scan
from bernstein_formats.errors import Conflict, StoreFailed

# Made up, and put together here so that no scanner of this project's own files minds it.
TOKEN = "_".join(("ghp", "16C7e42F292c6912E7710c838347Ae178B4a"))
ROWS = [b'{"event":"a","index":0}\n', b'{"event":"b","index":1,"said":"%b"}\n' % TOKEN.encode()]


@pytest.mark.skipif(importlib.util.find_spec("kingfisher") is None, reason="needs the extra")
def test_a_secret_is_told_by_its_line_and_rule_and_not_shown():
    with pytest.raises(Conflict) as caught:
        refuse_secrets("r", ROWS)
    assert "line 2 (github-pat)" in caught.value.message
    assert caught.value.metadata["line"] == "2"
    assert TOKEN not in caught.value.message


@pytest.mark.skipif(importlib.util.find_spec("kingfisher") is None, reason="needs the extra")
def test_rows_of_hashes_hold_no_secret(capsys):
    refuse_secrets("r", [b'{"event_hash":"%b"}\n' % (b"e0a1f88d" * 8)])
    assert "not searched" not in capsys.readouterr().err


def test_without_the_scanner_it_is_said_that_nothing_was_searched(monkeypatch, capsys):
    monkeypatch.setattr(secret_scan, "find_scanner", lambda: None)
    refuse_secrets("r", ROWS)
    assert "were not searched for secrets" in capsys.readouterr().err


def scanner(tmp_path, script):
    program = tmp_path / "scanner"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_a_scanner_that_fails_is_not_one_that_finds_nothing(tmp_path):
    failing = scanner(tmp_path, "echo no rules >&2; exit 3")
    with pytest.raises(StoreFailed, match="no rules"):
        list(scan(failing, ROWS))


def test_what_the_scanner_is_shown_are_the_rows_and_no_more_of_the_environment(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SIGNING_KEY", "raw:00")
    seen = tmp_path / "seen"
    script = f'for last; do true; done; cat "$last" >{seen}; env >{seen}.env; exit 0'
    assert list(scan(scanner(tmp_path, script), ROWS)) == []
    assert seen.read_bytes() == b"".join(ROWS)
    assert "SIGNING_KEY" not in seen.with_suffix(".env").read_text()


def test_findings_are_read_from_the_scanners_lines(tmp_path):
    line = '{"rule":{"name":"n"},"finding":{"line":7,"snippet":"x"}}'
    found = scanner(tmp_path, f"echo '{line}'; echo '{{\"audit\":{{}}}}'; exit 200")
    assert list(scan(found, ROWS)) == [Secret(7, "n")]
