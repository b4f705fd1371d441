"""Private folders: every one that we make is ours alone, and none can be put in its place."""

import os
from pathlib import Path

import pytest

from bernstein_formats.errors import DiskFull, InvalidInput
from bernstein_runtime.private import check_private, make_private

ADVICE = "choose another place"


@pytest.fixture
def holder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_each_folder_on_the_way_is_made_private(holder: Path) -> None:
    before = os.umask(0)
    try:
        make_private(holder / "a" / "b" / "c", holder, ADVICE)
    finally:
        os.umask(before)

    assert [mode(holder / each) for each in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_holder_that_is_missing_is_made_private_too(holder: Path) -> None:
    make_private(holder / "x" / "y" / "a", holder / "x" / "y", ADVICE)

    assert [mode(holder / each) for each in ("x", "x/y", "x/y/a")] == [0o700] * 3


def test_a_folder_that_others_could_read_is_closed(holder: Path) -> None:
    (holder / "a").mkdir(mode=0o755)

    make_private(holder / "a" / "b", holder, ADVICE)

    assert mode(holder / "a") == 0o700


@pytest.mark.parametrize("open_mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("name", ["a", "a/b"])
def test_a_folder_that_others_could_write_is_refused(
    holder: Path, name: str, open_mode: int
) -> None:
    make_private(holder / "a" / "b", holder, ADVICE)
    (holder / name).chmod(open_mode)

    for use in (make_private, check_private):
        with pytest.raises(InvalidInput, match=f"{holder / name}.*{ADVICE}"):
            use(holder / "a" / "b", holder, ADVICE)


def test_a_folder_of_another_user_is_refused(holder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_private(holder / "a" / "b", holder, ADVICE)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    holder.chmod(0o1777)

    with pytest.raises(InvalidInput, match="another place"):
        check_private(holder / "a" / "b", holder, ADVICE)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_a_parent_that_another_user_made_first_is_refused(holder: Path) -> None:
    (holder / "a").mkdir()
    os.chown(holder / "a", 4321, 4321)

    with pytest.raises(InvalidInput, match=f"{holder / 'a'} is not a folder of this user"):
        make_private(holder / "a" / "b", holder, ADVICE)
    assert not (holder / "a" / "b").exists()


def test_a_link_and_a_file_are_no_folders_of_ours(holder: Path) -> None:
    (holder / "real").mkdir()
    (holder / "link").symlink_to(holder / "real")
    (holder / "file").touch()

    for name in ("link", "file"):
        with pytest.raises(InvalidInput, match="is not a folder of this user"):
            make_private(holder / name / "b", holder, ADVICE)


def test_a_shared_holder_must_be_sticky(holder: Path) -> None:
    holder.chmod(0o777)
    with pytest.raises(InvalidInput, match="may replace what is in"):
        make_private(holder / "a", holder, ADVICE)
    holder.chmod(0o1777)

    make_private(holder / "a", holder, ADVICE)


def test_what_is_missing_is_not_made_by_a_check(holder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_private(holder / "a", holder, ADVICE)


def test_a_full_disk_is_named(holder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)

    with pytest.raises(DiskFull, match=f"{holder / 'a'}.*make room"):
        make_private(holder / "a", holder, ADVICE)
