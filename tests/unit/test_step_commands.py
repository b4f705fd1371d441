"""Steps on a terminal, options and their verbs, and archives that somebody tampered with."""

import io
import os
import sys
import tarfile
from pathlib import Path

import click
import pytest

from bernstein_cli.main import main
from bernstein_cli.session_fork import label_slug
from bernstein_cli.step_options import StepOptions, step_verb
from bernstein_cli.step_receipts import created_at, write_archive
from bernstein_cli.step_source import Steps, open_steps
from bernstein_cli.step_view import moved_to, walk
from bernstein_formats.errors import Conflict, InvalidInput, ReceiptMalformed
from bernstein_formats.paths import check_agent_id
from bernstein_formats.session_archive import end_bytes, header_bytes, members, padding
from bernstein_formats.session_journal import StepHead, next_step, parse_step

DIGEST = "a" * 64


def a_journal(prompts):
    lines, head = [], StepHead()
    for prompt in prompts:
        line, head = next_step(head, {"input_hash": DIGEST, "prompt": prompt}, 1.0)
        lines.append(line + b"\n")
    return b"".join(lines)


@pytest.fixture
def sdd(tmp_path):
    folder = tmp_path / ".sdd" / "runtime" / "journal" / "agent"
    folder.mkdir(parents=True)
    (folder / "000000.jsonl").write_bytes(a_journal(["one", "two", "three"]))
    return tmp_path / ".sdd"


@pytest.mark.parametrize(
    ("position", "key", "leads_to"),
    [(0, "n", 1), (2, "n", 2), (1, "p", 0), (0, "p", 0), (1, "G", 2), (1, "g", 0), (1, "x", 1),
     (1, "q", None), (0, "\x1b[C", 1), (1, "\x7f", 0)],
)  # fmt: skip
def test_keys_lead_forward_back_and_out(position, key, leads_to):
    assert moved_to(position, key, 3) == leads_to


def test_a_walk_shows_the_steps_in_the_order_of_the_keys(sdd, monkeypatch, capsys):
    keys = iter("nnpq")
    monkeypatch.setattr(click, "getchar", lambda: next(keys))
    with open_steps(sdd, offline=True) as reader:
        walk(reader.open("agent"))
    out = capsys.readouterr().out
    shown = [line.strip() for line in out.splitlines() if line.strip() in {"one", "two", "three"}]
    assert shown == ["one", "two", "three", "two"]


def test_a_walk_needs_a_terminal_and_elsewhere_the_table_is_shown(sdd, monkeypatch, capsys):
    monkeypatch.chdir(sdd.parent)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys, "argv", ["bernstein", "replay", "agent", "--walk", "--offline"])
    assert main() == 0
    assert "three" in capsys.readouterr().out


def test_an_option_belongs_to_its_verbs():
    assert StepOptions(sign="k").misplaced("export") is None
    assert StepOptions(walk=True).misplaced("export") == ("--walk", "'bernstein replay AGENT'")
    assert StepOptions(fork_from=0).misplaced(None) == ("--fork-from", "'bernstein replay debug'")
    assert StepOptions().misplaced(None) is None


def test_a_word_names_an_agent_only_where_it_has_a_step_journal(sdd):
    assert step_verb(sdd, ("agent",), has_mode=False, offline=True) == ""
    assert step_verb(sdd, ("agent",), has_mode=True, offline=True) is None
    assert step_verb(sdd, ("other",), has_mode=False, offline=True) is None
    assert step_verb(sdd, ("../journal/agent",), has_mode=False, offline=True) is None
    assert step_verb(sdd, ("export", "agent"), has_mode=False, offline=True) == "export"


@pytest.mark.parametrize("agent_id", ["a", "agent-é", "fork-x-20260101-000000-abcdef", "x" * 64])
def test_an_agent_id_is_one_file_name(agent_id):
    check_agent_id(agent_id)


@pytest.mark.parametrize(
    "agent_id", ["", ".", "..", "a/b", "a\\b", "a\n", "\ud800", "x" * 65, "漢" * 64]
)
def test_other_ids_are_refused(agent_id):
    with pytest.raises(InvalidInput):
        check_agent_id(agent_id)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[]", "object"),
        (b'{"input_hash": null}', "input_hash"),
        (b'{"input_hash": "%s", "prompt": 1}' % DIGEST.encode(), "prompt"),
        (b'{"input_hash": "%s", "seq": 1}' % DIGEST.encode(), "no member 'seq'"),
        (b'{"input_hash": "%s", "input_hash": 1}' % DIGEST.encode(), "twice"),
        (b'{"input_hash": "%s", "tool_call": NaN}' % DIGEST.encode(), "NaN"),
        (
            b'{"input_hash": "%s", "tool_call": %s}' % (DIGEST.encode(), b"[" * 200 + b"]" * 200),
            "deep",
        ),
    ],
)
def test_a_step_that_cannot_be_recorded_is_refused_with_its_reason(text, reason):
    with pytest.raises(InvalidInput, match=reason):
        parse_step(text)


@pytest.mark.parametrize(
    ("label", "slug"),
    [
        (" Try: café/YAML! ", "Try-caf-YAML"),
        ("a..b", "a.b"),
        ("", ""),
        ("...", ""),
        ("x" * 40, "x" * 32),
    ],
)
def test_a_label_becomes_a_part_of_a_branch(label, slug):
    assert label_slug(label) == slug


@pytest.mark.parametrize(
    ("ts", "text"),
    [
        (1.7e9, "2023-11-14T22:13:20Z"),
        *((ts, "1970-01-01T00:00:00Z") for ts in (-1.0, 1e300, float("nan"))),
    ],
)
def test_a_receipt_is_dated_by_its_last_step(ts, text):
    assert created_at(ts) == text


def test_a_receipt_does_not_wait_for_the_reader_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Conflict):
        write_archive(tmp_path / "pipe", [b"x"], private=True)
    assert (tmp_path / "pipe").is_fifo()


def test_nothing_but_a_receipt_is_overwritten(tmp_path):
    (tmp_path / "key.pem").write_bytes(b"secret")
    with pytest.raises(Conflict):
        write_archive(tmp_path / "key.pem", [b"x"], private=True)
    with pytest.raises(Conflict):
        write_archive(tmp_path, [b"x"], private=True)
    assert (tmp_path / "key.pem").read_bytes() == b"secret"
    assert [each.name for each in tmp_path.iterdir()] == ["key.pem"]


def test_a_fifo_in_a_journals_place_is_not_waited_for(sdd):
    path = sdd / "runtime" / "journal" / "agent" / "000000.jsonl"
    path.unlink()
    os.mkfifo(path)
    with open_steps(sdd, offline=True) as reader, pytest.raises(OSError, match="regular"):
        reader.open("agent")


def test_a_journal_is_read_as_it_was_when_it_was_opened(sdd):
    path = sdd / "runtime" / "journal" / "agent" / "000000.jsonl"
    before = path.read_bytes()
    with open_steps(sdd, offline=True) as reader:
        steps: Steps = reader.open("agent")
        with path.open("ab") as file:
            file.write(b"more")
        assert b"".join(steps.chunks()) == before


# --- archives ---------------------------------------------------------------------------------


def an_archive(*parts):
    body = b"".join(
        header_bytes(name, len(content), 0) + content + padding(len(content))
        for name, content in parts
    )
    return body + end_bytes(len(body))


GOOD = (("manifest.json", b"{}"), ("journal/000000.jsonl", b"x" * 600))


def test_an_archive_is_what_tar_writes_and_reads():
    archive = an_archive(*GOOD)
    with tarfile.open(fileobj=io.BytesIO(archive)) as read:
        assert [(each.name, each.size) for each in read] == [
            (name, len(body)) for name, body in GOOD
        ]
    assert [(each.name, each.content(archive)) for each in members(archive)] == list(GOOD)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda archive: archive + bytes(512), "follow the end"),
        (lambda archive: archive + b"x", "follow the end"),
        (lambda archive: archive[:-1], "follow the end"),
        (lambda archive: archive[:1500], "cut short"),
        (lambda archive: b"", "no tar archive"),
        (lambda archive: archive.replace(b"{}\0", b"{}x", 1), "hidden"),
        (lambda archive: archive.replace(b"0000600", b"0000601", 1), "no tar archive"),
        (lambda archive: b"\x1f\x8b" + archive, "gzip"),
        (lambda archive: b"\xfd7zXZ\0" + archive, "xz"),
    ],
    ids=["block", "byte", "short", "cut", "empty", "padding", "header", "gzip", "xz"],
)
def test_bytes_that_have_no_place_in_an_archive_are_refused(change, reason):
    with pytest.raises(ReceiptMalformed, match=reason):
        members(change(an_archive(*GOOD)))


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "journal/../manifest.json", "blobs/abc", "journal/000000.jsonl/x", "x",
     "journal/0.jsonl", "manifest.json ", ""],
)  # fmt: skip
def test_a_name_of_no_known_shape_is_refused(name):
    with pytest.raises(ReceiptMalformed, match="no place"):
        members(an_archive(*GOOD, (name, b"")))


def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(ReceiptMalformed, match="twice"):
        members(an_archive(*GOOD, GOOD[0]))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_a_member_that_is_no_regular_file_is_refused(tmp_path: Path, kind: bytes):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("manifest.json")
        entry.type, entry.linkname = kind, "x"
        archive.addfile(entry)
    with pytest.raises(ReceiptMalformed, match="no regular file"):
        members(buffer.getvalue())
