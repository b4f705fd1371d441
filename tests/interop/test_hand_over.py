"""Handing over, with shell scripts in the peer's place; no peer is needed."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bernstein_cli import peer
from bernstein_formats.errors import InvalidInput

REPO = Path(__file__).parents[2]
HAND_OVER = (
    "import os, sys; from bernstein_cli.peer import hand_over;"
    " hand_over(sys.argv[1:], wanted='the verb fork', environ=os.environ)"
)


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def handed_over(env: Mapping[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    packages = os.pathsep.join(str(REPO / folder) for folder in ("clients", "formats"))
    return subprocess.run(
        [sys.executable, "-c", HAND_OVER, *argv],
        env={"PYTHONPATH": packages, "PATH": "", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_arguments_output_and_exit_code_are_the_peers(tmp_path: Path) -> None:
    fake = script(
        tmp_path / "fake", 'printf "<%s>" "$@"; echo hops=$BERNSTEIN_SVC_PEER_HOPS; exit 37'
    )
    done = handed_over({"BERNSTEIN_SVC_PEER": str(fake)}, "fork", "--run", "a b", "", "-é")
    assert (done.stdout, done.returncode) == ("<fork><--run><a b><><-é>hops=1\n", 37)


def test_a_signal_that_ends_the_peer_is_seen_by_the_caller(tmp_path: Path) -> None:
    fake = script(tmp_path / "fake", "kill -TERM $$")
    done = handed_over({"BERNSTEIN_SVC_PEER": str(fake)}, "fork")
    assert done.returncode == -15


def test_without_a_peer_one_line_says_what_is_missing_and_how_to_get_it() -> None:
    done = handed_over({}, "fork")
    assert (done.stdout, done.returncode) == ("", 64)
    assert done.stderr.count("\n") == 1
    for part in ("the verb fork", "PyPI package bernstein", "BERNSTEIN_SVC_PEER"):
        assert part in done.stderr


def test_a_variable_that_names_nothing_usable_is_said_and_not_passed_over(tmp_path: Path) -> None:
    script(tmp_path / "bernstein", "exit 0")
    missing = tmp_path / "missing"
    done = handed_over({"BERNSTEIN_SVC_PEER": str(missing), "PATH": str(tmp_path)}, "fork")
    assert done.returncode == 64
    assert f"names {missing}, which is no executable file" in done.stderr


def test_a_peer_whose_interpreter_is_gone_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "fake"
    broken.write_text("#!/no/such/python\n")
    broken.chmod(0o755)
    done = handed_over({"BERNSTEIN_SVC_PEER": str(broken)}, "fork")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "does not start" in done.stderr


def test_two_installs_that_hand_over_to_each_other_end(tmp_path: Path) -> None:
    # A wrapper that hides what it calls, as a version manager's shim does.
    wrapper = tmp_path / "bernstein"
    script(wrapper, f'"{sys.executable}" -c "$LOOP" "$@"')
    done = handed_over({"PATH": str(tmp_path), "LOOP": HAND_OVER}, "fork")
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "never reached the PyPI package bernstein" in done.stderr


def test_our_own_scripts_on_path_are_passed_over(tmp_path: Path) -> None:
    ours = script(tmp_path / "ours" / "bernstein", "exec python -m bernstein_cli")
    linked = tmp_path / "linked" / "bernstein"
    linked.parent.mkdir()
    linked.symlink_to(ours)
    not_executable = tmp_path / "plain" / "bernstein"
    not_executable.parent.mkdir()
    not_executable.write_text("#!/bin/sh\n")
    theirs = script(tmp_path / "theirs" / "bernstein", "exit 0")
    folders = [ours.parent, linked.parent, not_executable.parent, theirs.parent]
    found = peer.find_peer({"PATH": os.pathsep.join(map(str, folders))})
    assert peer.PeerCommand(theirs, "on PATH") == found


def test_the_folder_one_stands_in_is_no_place_to_find_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "bernstein", "exit 0")
    monkeypatch.chdir(tmp_path)
    assert peer.find_peer({"PATH": ":.:"}) is None


def test_the_variable_may_not_name_this_distribution(tmp_path: Path) -> None:
    ours = script(tmp_path / "bernstein", "exec python -m bernstein_cli")
    with pytest.raises(InvalidInput, match="which is this distribution"):
        peer.find_peer({"BERNSTEIN_SVC_PEER": str(ours)})


def test_the_peer_beside_our_interpreter_is_found_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = script(tmp_path / "venv" / "bernstein", "exit 0")
    on_path = script(tmp_path / "other" / "bernstein", "exit 0")
    monkeypatch.setattr(sys, "executable", str(beside.with_name("python")))
    found = peer.find_peer({"PATH": str(on_path.parent)})
    assert peer.PeerCommand(beside, "beside the Python interpreter") == found


@pytest.mark.parametrize(
    ("words", "option", "known"),
    [
        (["fork"], None, True),
        (["session", "fork"], "--label", True),
        (["session", "frobnicate"], None, False),
        (["replay"], "--fork-from", True),
        (["replay", "debug"], "--fork-from", True),
        (["replay", "20240101-000000"], None, False),
        (["verify", "some/wheelhouse"], None, True),
        (["verify"], "--wal-integrity", True),
        (["verify", "run"], "--wal-integrity", False),
        (["s"], "--json", True),
        (["i"], None, True),
        ([], "-g", True),
        ([], "--frobnicate", False),
        (["services"], None, False),
        (["frobnicate"], None, False),
    ],
)
def test_what_the_peer_knows(words: list[str], option: str | None, known: bool) -> None:
    assert known == peer.knows_peer(words, option)
