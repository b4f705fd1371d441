"""What an agent that is locked in can reach: its lane and its files, and nothing that stays."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bernstein_agent import sandbox
from bernstein_agent.sandbox import Place, Sandbox, is_possible, sandbox_environ
from bernstein_formats.errors import InvalidInput, SandboxMissing

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not is_possible(), reason="no way to lock an agent in here"),
]
PORT = 4711


@contextmanager
def answering(family: int, address: object) -> Iterator[socket.socket]:
    """A listener that greets whoever connects."""
    with socket.socket(family) as listener:
        listener.bind(address)  # type: ignore[arg-type]  # of either family
        listener.listen()

        def greet() -> None:
            while True:
                try:
                    with listener.accept()[0] as connection:
                        connection.sendall(b"hello")
                except OSError:
                    return

        threading.Thread(target=greet, daemon=True).start()
        yield listener
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A tree that is seen where nothing is, a home, and a folder with secrets."""
    for name in ("tree", "home", "secrets"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    seen = tmp_path / "somewhere" / "else"
    return Place(
        folder=seen,
        trees=((tmp_path / "tree", seen),),
        home=(tmp_path / "home", tmp_path / "home"),
        covered=(tmp_path / "secrets",),
    )


def run(
    place: Place, *command: str, pass_fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    locked = Sandbox(place)
    process = subprocess.Popen(
        locked.command(command),
        env=sandbox_environ(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=[locked.status],
    )
    with process:
        locked.wait_until_ready()
        said, _ = process.communicate(timeout=30)
        return subprocess.CompletedProcess(command, process.returncode, said)


def talk_to(family: str, address: object) -> tuple[str, ...]:
    script = f"""
import socket
s = socket.socket(socket.{family})
s.settimeout(5)
try:
    s.connect({address!r})
    print(s.recv(9))
except OSError:
    print("no way")
"""
    return sys.executable, "-c", script


def test_the_only_way_out_is_the_lane(place: Place, tmp_path: Path) -> None:
    lane, other = tmp_path / "lane.sock", tmp_path / "other.sock"
    with (
        answering(socket.AF_UNIX, str(lane)),
        answering(socket.AF_UNIX, str(other)),
        answering(socket.AF_INET, ("127.0.0.1", 0)) as host,
    ):
        open_to_lane = replace(place, socket=lane, port=PORT)
        said = [
            run(where, *talk_to(family, address)).stdout.strip()
            for where, family, address in (
                (open_to_lane, "AF_INET", ("127.0.0.1", PORT)),
                (place, "AF_INET", ("127.0.0.1", PORT)),
                (open_to_lane, "AF_INET", host.getsockname()),
                (open_to_lane, "AF_INET", ("192.0.2.1", 80)),
                (open_to_lane, "AF_UNIX", str(other)),
            )
        ]
    assert said == ["b'hello'", *["no way"] * 4]


def test_its_files_are_the_fresh_ones_and_nothing_else_stays(place: Place, tmp_path: Path) -> None:
    script = (
        'pwd; cat file; echo new > file; echo new > "$1/home/file"; cat "$1/home/file"'
        '; ls -A "$1/secrets" /run; touch "$1/left" && echo left; touch /usr/left'
    )
    done = run(place, "sh", "-c", script, "sh", str(tmp_path))
    lines = done.stdout.splitlines()
    assert lines[:2] == [str(place.folder), "treenew"]
    assert lines[2:6] == ["/run:", "", f"{tmp_path}/secrets:", "left"]
    assert "Read-only file system" in lines[6]
    assert (tmp_path / "tree" / "file").read_text() == "new\n"
    assert (tmp_path / "home" / "file").read_text() == "home"
    assert not (tmp_path / "left").exists()


def test_it_has_no_right_to_change_its_walls(place: Place) -> None:
    inner = "unshare --user --map-root-user --mount"
    script = (
        "id -u; umount . && echo open; umount /run && echo open; mount -o remount,rw / && echo open"
        f"; {inner} umount . && echo open; {inner} umount /run && echo open"
        f"; {inner} mount -o remount,bind,rw / && echo open; ip link set lo down && echo open"
        # What it makes for itself is its own affair: agents have walls of their own.
        f"; {inner} mount -t tmpfs none . && echo walls"
    )
    said = run(place, "sh", "-c", script).stdout.splitlines()
    assert (said[0], said.count("open"), said.count("walls")) == (str(os.getuid()), 0, 1)


def test_a_listener_outside_of_the_usual_folders_does_not_answer(place: Place) -> None:
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        path = f"{folder}/listener"
        with answering(socket.AF_UNIX, path):
            assert run(place, *talk_to("AF_UNIX", path)).stdout.strip() == "no way"


def test_it_signals_nobody_outside_and_what_it_left_running_ends_with_it(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        script = f"kill -9 {victim.pid} && echo killed; kill -9 $PPID; setsid sleep 61 & echo left"
        said = run(place, "sh", "-c", script).stdout  # its end is that of whoever could write
        assert victim.poll() is None
        victim.kill()
    assert said.splitlines()[-1] == "left"
    assert "killed" not in said


def test_who_lost_its_parent_is_buried(place: Place) -> None:
    script = (
        "pid=$(sh -c 'sleep 0.1 >&- & echo $!')"
        '; for i in $(seq 100); do kill -0 "$pid" || break; sleep 0.1; done'
        '; kill -0 "$pid" 2>&- || echo gone'
    )
    assert run(place, "sh", "-c", script).stdout.splitlines()[-1] == "gone"


def test_its_exit_code_and_signals_pass_the_wall(place: Place) -> None:
    assert run(place, "sh", "-c", "exit 7").returncode == 7
    assert run(place, "sh", "-c", "kill -TERM $PPID; exec sleep 30").returncode == 128 + 15


def test_what_cannot_run_is_named(place: Place) -> None:
    with pytest.raises(InvalidInput, match="cannot run 'no-such-program'"):
        run(place, "no-such-program")
    with pytest.raises(SandboxMissing, match=r"nowhere.*--unsafe-tools"):
        run(replace(place, folder=Path("/nowhere")), "true")


def test_a_machine_without_walls_refuses(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    sandbox._namespaces.cache_clear()
    monkeypatch.setattr(sandbox, "_NAMESPACES", (("no-such-program",),))
    try:
        with pytest.raises(SandboxMissing, match="neither bwrap nor unshare"):
            Sandbox(place)
    finally:
        sandbox._namespaces.cache_clear()
