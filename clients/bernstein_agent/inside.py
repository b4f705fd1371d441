"""Locks an agent in: the program that runs inside fresh user, network and mount namespaces.

    python inside.py SPEC COMMAND...

The agent sees this machine read-only; its home and the folders for temporary files can be written
to, and nothing of it stays; the fresh work tree stands at its recorded path; sockets in `/run` are
gone. Its network is a loopback device on which one port leads to the proxy's Unix socket. It can
signal no process of this machine, and none of its own outlives it. Before it starts it is put into
a user namespace of its own, which has no right over any of this.

A file of its own, standard library only: it starts in a moment, whatever is installed.
Rules: docs/agents.md, section "Locked in".
"""

import asyncio
import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
# From <sys/mount.h>, <linux/mount.h>, <sched.h>, <linux/prctl.h> and <net/if.h>.
_MS_NOSUID_NODEV_NOEXEC: Final = 0xE
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_PRIVATE: Final = 0x40000
_MOUNT_ATTR_RDONLY: Final = 1
_AT_RECURSIVE: Final = 0x8000
_AT_FDCWD: Final = -100
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWPID: Final = 0x20000000
_SYS_MOUNT_SETATTR: Final = 442
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1

_HOST: Final = "127.0.0.1"
_EMPTY: Final = "/run"
_BLOCK: Final = 64 * 1024
_NOT_FOUND: Final = 127


def main(arguments: Sequence[str]) -> int:
    """Lock this process in and run the command; gives its exit code."""
    spec: dict[str, Any] = json.loads(arguments[0])
    status = os.fdopen(spec["status_fd"], "w")
    try:
        lane = os.open(spec["socket"], os.O_PATH) if spec["socket"] else -1
        _wall_in(spec)
        os.chdir(spec["folder"])
        return _alone(lambda: asyncio.run(_run(arguments[1:], lane, spec["port"], status)), status)
    except OSError as error:
        with suppress(ValueError):  # it is closed once the agent runs
            status.write(": ".join(filter(None, (error.filename, error.strerror))))
            status.close()
        return _NOT_FOUND


# --- files ----------------------------------------------------------------------------------------


def _wall_in(spec: Mapping[str, Any]) -> None:
    # Found while they can still be found: what is mounted later may lie above them.
    scratch = [(_found(source), target) for source, target in spec["scratch"]]
    trees = [(_found(source), target) for source, target in spec["trees"]]
    kept = {path: _found(path) for path in spec["kept"]}
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _set_read_only("/", is_set=True, flags=_AT_RECURSIVE)
    _set_read_only("/proc", is_set=False)  # an agent may have walls of its own to build
    _mount("tmpfs", _EMPTY, "tmpfs", 0, "mode=755")
    layers = _Layers(_EMPTY)
    for source, target in sorted(scratch, key=lambda each: each[1].count("/")):
        layers.make(target)
        layers.put(source, target)
    for source, target in trees:
        layers.make(target)
        _mount(source, target, "", _MS_BIND)
        _set_read_only(target, is_set=False)
    for path in (*spec["covered"], _EMPTY, "/dev/shm"):  # noqa: S108 - a device of each machine
        _cover(path)
    for path, source in kept.items():
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - a text
        _mount(source, path, "", _MS_BIND)
    _bring_loopback_up()


def _cover(path: str) -> None:
    """Show an empty folder, or an empty file, in the place of what is there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a text
    except OSError:
        return  # the agent is this user, and cannot see it either
    if stat.S_ISDIR(mode):
        _mount("tmpfs", path, "tmpfs", 0, "mode=1777" if path == "/dev/shm" else "mode=755")  # noqa: S108
    else:
        _mount("/dev/null", path, "", _MS_BIND)


class _Layers:
    """Folders that can be written to, whose changes are kept in memory below `store`."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._count = 0

    def put(self, source: str, target: str) -> None:
        """Show `source` at `target`, to be changed without a change to it."""
        self._count += 1
        upper, work = (f"{self._store}/{self._count}/{name}" for name in ("upper", "work"))
        os.makedirs(upper)  # noqa: PTH103 - a text
        os.makedirs(work)  # noqa: PTH103 - a text
        facts = os.stat(source)  # noqa: PTH116 - a text
        os.chmod(upper, facts.st_mode & 0o7777)  # noqa: PTH101 - a text
        options = f"lowerdir={source},upperdir={upper},workdir={work},userxattr"
        _mount("overlay", target, "overlay", 0, options)

    def make(self, target: str) -> None:
        """Have a folder there; where this machine has none, in a layer over the one above it."""
        if os.path.isdir(target):  # noqa: PTH112 - a text
            return
        above = target
        while not os.path.isdir(above):  # noqa: PTH112 - a text
            above = os.path.dirname(above)  # noqa: PTH120 - a text
        if not os.access(above, os.W_OK):
            self.put(above, above)
        os.makedirs(target)  # noqa: PTH103 - a text


def _found(path: str) -> str:
    return f"/proc/self/fd/{os.open(path, os.O_PATH)}"


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    failed = _LIBC.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def _set_read_only(path: str, *, is_set: bool, flags: int = 0) -> None:
    wanted = (_MOUNT_ATTR_RDONLY, 0) if is_set else (0, _MOUNT_ATTR_RDONLY)
    attributes = struct.pack("QQQQ", *wanted, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    if _LIBC.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, attributes, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)


# --- network --------------------------------------------------------------------------------------


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        asked = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(device, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(device, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


class _Relay:
    """Takes connections to the lane's port to the proxy."""

    def __init__(self, lane: int) -> None:
        self._path = f"/proc/self/fd/{lane}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; a break on one side is one on the other."""
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.close()
            return
        there = asyncio.create_task(_pump(reader, far_writer))
        await _pump(far_reader, writer)
        there.cancel()
        far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    writer.close()


# --- processes ------------------------------------------------------------------------------------


def _alone(run: Callable[[], int], status: Any) -> int:
    """Run it as the first process of a namespace, whose end is that of all others in it."""
    if _LIBC.unshare(_CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "process namespace")
    # Until there is somebody to handle it: a first process would not notice.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    first = os.fork()
    if not first:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with suppress(OSError):  # some containers forbid it: then it sees the others' numbers
            _mount("proc", "/proc", "proc", _MS_NOSUID_NODEV_NOEXEC)
        return run()
    status.close()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    return 128 - code if code < 0 else code


def _bury(agent: int) -> None:
    """Take leave of processes whose parents left them; the agent itself is somebody else's."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == agent:
                return
            os.waitpid(ended.si_pid, 0)


# --- the agent ------------------------------------------------------------------------------------


async def _run(command: Sequence[str], lane: int, port: int, status: Any) -> int:
    loop = asyncio.get_running_loop()
    is_told_to_end = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_told_to_end.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    # A terminal sends it to the agent, too, which decides what it means.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    server = None
    if lane >= 0:
        server = await asyncio.start_server(_Relay(lane).serve, _HOST, port)
    try:
        process = await asyncio.create_subprocess_exec(*command, preexec_fn=_lose_all_rights)
    except OSError as error:
        raise OSError(0, f"cannot run {command[0]!r}: {error.strerror}") from error
    loop.add_signal_handler(signal.SIGCHLD, _bury, process.pid)
    status.write("ok")
    status.close()
    code = await _code_of(process, is_told_to_end)
    if server is not None:
        server.close()
    return 128 - code if code < 0 else code


async def _code_of(process: asyncio.subprocess.Process, is_told_to_end: asyncio.Event) -> int:
    end = asyncio.create_task(process.wait())
    told = asyncio.create_task(is_told_to_end.wait())
    await asyncio.wait({end, told}, return_when=asyncio.FIRST_COMPLETED)
    if not end.done():
        with suppress(ProcessLookupError):
            process.terminate()
    told.cancel()
    return await end


def _lose_all_rights() -> None:
    """Leave the namespaces' owner: what an agent may do from here on concerns its own ones."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_CLONE_NEWUSER) or _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - no path of a file
            file.write(text)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
