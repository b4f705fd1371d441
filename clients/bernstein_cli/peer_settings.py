"""Agents of a peer's orchestrator: their settings files lead to a lane until its run ends.

Beside the file stand `NAME.lane-RUN`, what we wrote, and `NAME.before-RUN`, the bytes that were
there; without the latter there was no file.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bernstein_cli.whole_file import replacing
from bernstein_client.settings_file import SETTINGS_FILES, SettingsFile
from bernstein_formats.errors import BernsteinError, Conflict, InvalidInput, LimitExceeded
from bernstein_formats.paths import is_run_id
from bernstein_runtime.disk import failed
from bernstein_runtime.regular_file import open_regular

SIZE_MAX: Final = 1 << 20
_PRIVATE: Final = 0o600


class PeerSettings:
    """The settings file of one agent. What a method raises names the file."""

    def __init__(self, client: str, environ: Mapping[str, str]) -> None:
        if client not in SETTINGS_FILES:
            raise InvalidInput(
                f"--peer is for {' and '.join(sorted(SETTINGS_FILES))}: {client} has no settings"
                " file that names a lane; have the peer pass on what"
                f" `bernstein agent env {client}` prints",
                client=client,
            )
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            raise InvalidInput("HOME is not set to a folder; the agent's settings are below it")
        self._file: SettingsFile = SETTINGS_FILES[client]
        self.path = Path(home, self._file.place)
        self._moved_to = environ.get(self._file.moved_by, "")

    def before(self, run_id: str) -> Path:
        """Where the old bytes are kept."""
        return self.path.with_name(f"{self.path.name}.before-{run_id}")

    def _ours(self, run_id: str) -> Path:
        return self.path.with_name(f"{self.path.name}.lane-{run_id}")

    def check(self) -> None:
        """Refuse what `redirect` would refuse, before there is a lane, and a file that may be
        another than the agent reads: then it would talk to its provider unrecorded."""
        name = self._file.moved_by
        if self._moved_to and Path(self._moved_to).absolute() != self.path.parent:
            raise Conflict(
                f"{name} is set, so an agent that gets it reads {self._moved_to} and not"
                f" {self.path.parent}: if it is passed on, have the lane's variables passed on"
                f" likewise, without --peer; if not, as by the peer, say env -u {name} before"
                " this command",
                name=name,
            )
        with self._naming():
            self._redirected("http://127.0.0.1:1")

    def redirect(self, run_id: str, base_url: str) -> None:
        """Lead to the lane, and keep the old bytes."""
        with self._naming():
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            with _held(self.path.parent):
                before, mode, ours = self._redirected(base_url)
                if before is not None:
                    _write(self.before(run_id), before, mode)
                _write(self._ours(run_id), ours, mode)
                _write(self.path, ours, mode)

    def take_back(self, run_id: str) -> str:
        """Undo `redirect`, or what a crash left of it. Gives what was done, or nothing."""
        if not is_run_id(run_id) or not self._ours(run_id).exists():
            return ""
        with self._naming(), _held(self.path.parent):
            ours, _ = _read(self._ours(run_id))
            before, _ = _read(self.before(run_id))
            now, mode = _read(self.path)
            told = self._put_back(now, ours or b"", before, mode)
            if now in (ours, before):
                self.before(run_id).unlink(missing_ok=True)
            elif before is not None:
                told += f"; {self.before(run_id)}, which is what it was before, stays"
            self._ours(run_id).unlink(missing_ok=True)
        return told

    def _put_back(self, now: bytes | None, ours: bytes, before: bytes | None, mode: int) -> str:
        if now is None:
            return f"{self.path} is gone"
        if now == ours and before is None:
            self.path.unlink()
            return f"{self.path} is removed again"
        if now == ours and before is not None:
            _write(self.path, before, mode)
            return f"{self.path} is what it was before"
        rest = self._file.taken_back(now, ours, before)
        if rest != now:
            _write(self.path, rest, mode)
        return f"{self.path}, which was changed meanwhile, no longer leads to the lane"

    def _redirected(self, base_url: str) -> tuple[bytes | None, int, bytes]:
        prefix = self._ours("").name
        for each in self.path.parent.glob(f"{prefix}*"):
            run_id = each.name.removeprefix(prefix)
            raise Conflict(f"it leads to a lane of run {run_id}: bernstein agent end {run_id}")
        before, mode = _read(self.path)
        return before, mode, self._file.redirected(before, base_url)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except BernsteinError as error:
            raise type(error)(f"{self.path}: {error.message}", path=self.path) from error
        except OSError as error:
            raise failed(Path(error.filename or self.path), error) from error


def take_back_all(run_id: str, environ: Mapping[str, str]) -> list[str]:
    """Undo whatever leads to lanes of this run."""
    told = [PeerSettings(client, environ).take_back(run_id) for client in SETTINGS_FILES]
    return [each for each in told if each]


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One command of ours at a time; afterwards the names in the folder are durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> tuple[bytes | None, int]:
    """A file's bytes and mode; None where there is no file."""
    try:
        with open_regular(path, os.O_NOFOLLOW) as file:
            data = file.read(SIZE_MAX + 1)
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except FileNotFoundError:
        return None, _PRIVATE
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidInput("it is a link, which is not replaced; put a file there") from error
        raise
    if len(data) > SIZE_MAX:
        raise LimitExceeded(f"it has more than {SIZE_MAX} bytes, the most of a settings file")
    return data, mode


def _write(path: Path, data: bytes, mode: int) -> None:
    with replacing(path, _PRIVATE) as file:
        file.write(data)
        os.fchmod(file.fileno(), mode)
