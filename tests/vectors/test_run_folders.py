"""Runs as folders against the golden layouts: links, retention, and the paths that rows name."""

import json
from pathlib import Path
from typing import Any

import pytest

from bernstein_formats import paths
from bernstein_formats.errors import InvalidInput, JournalError
from bernstein_formats.read_paths import read_paths
from bernstein_formats.retention import parse_retention, runs_to_prune
from bernstein_store.files import FileStore

DATA = Path(__file__).parent / "data" / "event-journal"


def read(case: str, file: str) -> Any:
    return json.loads((DATA / case / file).read_bytes())


LAYOUTS = list(
    zip(
        read("153-run-id-symlinks", "inputs.json"),
        read("153-run-id-symlinks", "expected.json"),
        strict=True,
    )
)


@pytest.mark.parametrize(("layout", "expected"), LAYOUTS, ids=[each["name"] for each, _ in LAYOUTS])
def test_links_are_followed_inside_the_runs_folder_only(
    layout: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    for folder in layout["dirs"]:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for link, target in layout["symlinks"]:
        (tmp_path / link).symlink_to(target)
    store = FileStore(tmp_path / "sdd")

    name = paths.journal_path(layout["open"])
    if "raises" in expected["open"]:
        with pytest.raises(InvalidInput):
            store.path(name)
    else:
        assert tmp_path / expected["open"]["path"] == store.path(name)


RETENTION = list(
    zip(read("154-retention", "inputs.json"), read("154-retention", "expected.json"), strict=True)
)


@pytest.mark.parametrize(("given", "left"), RETENTION)
def test_the_runs_that_stay_are_those_that_the_peer_leaves(
    given: dict[str, Any], left: list[str]
) -> None:
    names, active = sorted(given["existing"]), given["active"]

    gone = runs_to_prune(names, parse_retention(given["env"]), active=active)

    assert sorted({*names, active, "plain.txt"} - set(gone)) == left


def test_a_protected_run_stays_and_no_newer_one_goes_for_it() -> None:
    assert runs_to_prune(["a", "b", "c", "d"], 2, protected={"a"}) == ["b"]


@pytest.mark.parametrize("variant", sorted(read("156-read-paths", "expected.json")))
def test_the_paths_that_rows_name_are_the_peers(variant: str) -> None:
    wanted = read("156-read-paths", "expected.json")[variant]
    path = DATA / "156-read-paths" / f"{variant}.jsonl"
    chunks = [path.read_bytes()] if path.exists() else None
    if "reason" in wanted:
        with pytest.raises(JournalError) as raised:
            read_paths(chunks, "/repo")
        assert wanted["reason"] == raised.value.metadata["kind"]
        return
    found = read_paths(chunks, "/repo")
    assert wanted["read_paths"] == list(found.read_paths)
    assert wanted["out_of_tree"] == list(found.out_of_tree)
    assert len(found.journal_head) == 64
