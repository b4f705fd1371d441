"""An agent's process: what it prints is the user's, what a signal means is its own affair."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bernstein_agent.sandbox import Sandbox
from bernstein_formats.errors import BernsteinError, InvalidInput


def run_agent(
    command: Sequence[str],
    environ: Mapping[str, str],
    sandbox: Sandbox | None = None,
    *,
    quiet: bool,
    alone: bool = False,
) -> int:
    """Run a command to its end; gives its exit code. Raises InvalidInput if it cannot start.

    `quiet` sends its output to stderr, `alone` gives it nothing to read.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - it is what the user typed
            command if sandbox is None else sandbox.command(command),
            env=environ,
            stdin=subprocess.DEVNULL if alone else None,
            stdout=sys.stderr if quiet else None,
            pass_fds=() if sandbox is None else [sandbox.status],
        )
    except OSError as error:
        raise InvalidInput(f"cannot run {command[0]!r}: {error.strerror or error}") from error
    with _passing_on_signals(process):
        if sandbox is not None:
            _wait_until_ready(process, sandbox)
        code = process.wait()
    return 128 - code if code < 0 else code


def _wait_until_ready(process: subprocess.Popen[bytes], sandbox: Sandbox) -> None:
    try:
        sandbox.wait_until_ready()
    except BernsteinError:
        process.wait()
        raise


@contextmanager
def _passing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The command decides what a signal means; what it did until then is kept.

    A terminal sends Ctrl-C to both, other signals are sent on.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
