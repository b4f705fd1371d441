"""What an import reads of a folder that somebody else owns, and what it refuses to follow."""

import os
from pathlib import Path

import pytest

from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_importer.source import BLOCK_BYTES, Source, check_apart, find_source


@pytest.fixture
def sdd(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / ".sdd"
    (folder / "runs" / "r1").mkdir(parents=True)
    return folder


def test_a_project_folder_and_its_state_folder_are_the_same_source(sdd: Path) -> None:
    assert find_source(sdd.parent) == find_source(sdd) == Source(sdd)


def test_a_folder_that_holds_no_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"name a project folder or its \.sdd"):
        find_source(tmp_path)


def test_a_state_folder_that_is_a_link_out_of_the_project_is_refused(
    sdd: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".sdd").symlink_to(sdd)
    with pytest.raises(InvalidInput, match="is a link that leads out"):
        find_source(tmp_path / "other")


def test_a_source_is_not_imported_into_itself_nor_into_a_folder_of_its_own(sdd: Path) -> None:
    for target in (sdd, sdd / "copy", sdd.parent / "x" / ".." / ".sdd"):
        with pytest.raises(InvalidInput, match="into itself"):
            check_apart(Source(sdd), target)


@pytest.mark.parametrize("linked", ["runs/r1/journal.jsonl", "runs/r2"])
def test_a_link_out_of_the_folder_is_not_followed(sdd: Path, tmp_path: Path, linked: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "journal.jsonl").write_bytes(b"{}\n")
    target = tmp_path / "secret"
    (sdd / linked).symlink_to(target / "journal.jsonl" if "journal" in linked else target)
    name = linked if "journal" in linked else f"{linked}/journal.jsonl"
    source = Source(sdd)
    with pytest.raises(InvalidInput, match="it is not followed"):
        source.look(name)
    with pytest.raises(InvalidInput, match="it is not followed"), source.open(name):
        pass


def test_a_link_that_stays_inside_is_followed(sdd: Path) -> None:
    (sdd / "runs" / "r1" / "journal.jsonl").write_bytes(b"{}\n")
    (sdd / "runs" / "again").symlink_to(sdd / "runs" / "r1")
    with Source(sdd).open("runs/again/journal.jsonl") as file:
        assert file is not None
        assert file.read(0, 10) == b"{}\n"


def test_a_pipe_is_refused_without_waiting_for_a_writer(sdd: Path) -> None:
    os.mkfifo(sdd / "runs" / "r1" / "journal.jsonl")
    with (
        pytest.raises(InvalidInput, match="not a regular file"),
        Source(sdd).open("runs/r1/journal.jsonl"),
    ):
        pass


def test_a_file_that_is_not_there_is_none(sdd: Path) -> None:
    source = Source(sdd)
    assert source.look("runs/r1/journal.jsonl") is None
    assert source.small("runs/r1/metadata.json") == b""
    with source.open("runs/r1/journal.jsonl") as file:
        assert file is None


def test_metadata_of_unreasonable_size_is_refused(sdd: Path) -> None:
    (sdd / "runs" / "r1" / "metadata.json").write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(LimitExceeded, match="at most 1048576"):
        Source(sdd).small("runs/r1/metadata.json")


def test_runs_are_listed_in_order_and_plain_files_are_not_runs(sdd: Path) -> None:
    (sdd / "runs" / "r0").mkdir()
    (sdd / "runs" / "note.txt").write_bytes(b"")
    assert Source(sdd).run_ids() == ["r0", "r1"]


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (b"", 0),
        (b"torn", 0),
        (b"a\n", 2),
        (b"a\nb", 2),
        (b"a\n" + b"x" * BLOCK_BYTES, 2),
        (b"x" * (BLOCK_BYTES - 1) + b"\n" + b"x" * BLOCK_BYTES, BLOCK_BYTES),
        (b"x" * (3 * BLOCK_BYTES), 0),
        (b"a\rb\r", 0),
    ],
)
def test_whole_lines_end_at_the_last_line_feed(sdd: Path, content: bytes, whole: int) -> None:
    (sdd / "runs" / "r1" / "journal.jsonl").write_bytes(content)
    with Source(sdd).open("runs/r1/journal.jsonl") as file:
        assert file is not None
        assert file.whole_size() == whole
