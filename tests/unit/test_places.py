"""Where a project's processes meet, by environment and by what a live supervisor wrote down."""

import json
import os
from pathlib import Path

import pytest

from bernstein_formats.errors import DiskFull, InvalidInput
from bernstein_runtime.lock import LockFile
from bernstein_runtime.places import Places, make_state, places_for
from bernstein_runtime.supervisor_record import read_record, record_path, write_record

SHARED = Path(f"/tmp/bernstein-svc-{os.getuid()}")  # noqa: S108 - the documented place


def places(tmp_path: Path, **environ: str) -> Places:
    return places_for(tmp_path / ".sdd", {"HOME": "/home/me", **environ})


def test_the_environment_names_the_roots(tmp_path: Path) -> None:
    found = places(tmp_path, XDG_RUNTIME_DIR="/run/user/7", XDG_STATE_HOME="/state")

    assert found.runtime_dir.parent == Path("/run/user/7/bernstein-svc")
    assert found.secrets_dir.parent == Path("/state/bernstein-svc")


@pytest.mark.parametrize("given", ["", "relative", "/" + "x" * 80])
def test_a_runtime_folder_that_cannot_serve_is_passed_over(tmp_path: Path, given: str) -> None:
    found = places(tmp_path, XDG_RUNTIME_DIR=given)

    assert found.runtime_dir.parent == SHARED / "bernstein-svc"
    assert found.runtime_holder == SHARED.parent


def test_every_socket_path_fits(tmp_path: Path) -> None:
    longest = places(tmp_path, XDG_RUNTIME_DIR="/" + "x" * 44)

    assert longest.runtime_root == Path("/" + "x" * 44)
    assert len(os.fsencode(longest.runtime_dir / f"once-{'0' * 16}.sock")) <= 103


def test_a_relative_state_home_is_passed_over(tmp_path: Path) -> None:
    assert places(tmp_path, XDG_STATE_HOME="s").secrets_root == Path("/home/me/.local/state")


def test_a_user_without_a_home_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)

    with pytest.raises(InvalidInput, match="HOME, or XDG_STATE_HOME"):
        places_for(tmp_path, {})
    assert places_for(tmp_path, {"XDG_STATE_HOME": "/s"}).secrets_root == Path("/s")


def test_a_live_supervisor_says_where_the_sockets_are(tmp_path: Path) -> None:
    state = tmp_path / ".sdd" / "svc"
    state.mkdir(parents=True)
    write_record(state, Path("/run/other"))
    assert places(tmp_path).runtime_root == SHARED

    with LockFile(state / "supervisor.lock"):
        assert places(tmp_path).runtime_root == Path("/run/other")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"pid": "x", "runtime_root": "/r"}', '{"pid": 1, "runtime_root": "r"}',
     '{"pid": 1, "runtime_root": 7}', '{"pid": 1, "runtime_root": "/\\u0000"}', "[" * 9000],
)  # fmt: skip
def test_a_record_that_means_nothing_is_passed_over(tmp_path: Path, content: str) -> None:
    record_path(tmp_path).write_text(content)

    assert read_record(tmp_path) is None


def test_a_record_of_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(tmp_path, Path("/run/other"))
    assert json.loads(record_path(tmp_path).read_bytes())["pid"] == os.getpid()
    assert record_path(tmp_path).stat().st_mode & 0o777 == 0o600
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)

    assert read_record(tmp_path) is None


def test_a_full_disk_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = places(tmp_path, XDG_RUNTIME_DIR=str(tmp_path)[:45].rstrip("/"))
    made = Path.mkdir

    def full(path: Path, *args: object, **more: object) -> None:
        if path == found.logs_dir:
            raise OSError(28, "No space left on device")
        made(path, *args, **more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr("bernstein_runtime.places.make_runtime", lambda _: None)
    monkeypatch.setattr(Path, "mkdir", full)

    with pytest.raises(DiskFull, match=str(found.logs_dir)):
        make_state(found)
