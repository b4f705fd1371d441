"""An agent's process: what it prints is the user's, what a signal means is its own affair."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from bernstein_agent.sandbox import Sandbox
from bernstein_formats.errors import BernsteinError, InvalidInput

_PR_SET_PDEATHSIG: Final = 1  # <sys/prctl.h>


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
            preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - one system call
        )
    except OSError as error:
        raise InvalidInput(f"cannot run {command[0]!r}: {error.strerror or error}") from error
    with _passing_on_signals(process):
        if sandbox is not None:
            _wait_until_ready(process, sandbox)
        code = process.wait()
    return 128 - code if code < 0 else code


def _dying_with(parent: int) -> Callable[[], None] | None:
    """Have the kernel end the agent with this process, whatever ends that."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def die_with_it() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it is gone already
            os._exit(1)

    return die_with_it


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
