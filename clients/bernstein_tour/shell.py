"""Runs the real command as a user would, and shows what is typed and what comes back."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from bernstein_formats.errors import BernsteinError

PROGRAM: Final = "bernstein"
STEP_TIMEOUT_SECONDS: Final = 60.0
# What of the user's own settings would lead a step astray.
_SETTINGS: Final = ("BERNSTEIN_", "OPENAI_", "ANTHROPIC_")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended; without --json its remarks are in `stdout` too."""

    command: str
    exit_code: int
    stdout: str
    stderr: str

    def document(self) -> dict[str, Any]:
        """The JSON document that the command printed. Raises BernsteinError."""
        try:
            value = json.loads(self.stdout)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise BernsteinError(f"`{self.command}` did not print a JSON object")
        return value


@dataclass(frozen=True, slots=True)
class Shell:
    """A terminal in a project folder; `tell` gets every line that a user would see."""

    project: Path
    tell: Callable[[str], None]

    def run(
        self, *arguments: str, expect: int = 0, environ: Mapping[str, str] | None = None
    ) -> Ran:
        """Run `bernstein` with these arguments. Raises BernsteinError at another exit code."""
        settings = dict(environ or {})
        shown = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
        command = " ".join([*shown, shlex.join([PROGRAM, *arguments])])
        self.tell(f"$ {command}")
        ran = self._ran(command, arguments, settings)
        if ran.exit_code != expect:
            raise BernsteinError(f"`{command}` ended with {ran.exit_code} instead of {expect}")
        return ran

    def _ran(self, command: str, arguments: tuple[str, ...], settings: dict[str, str]) -> Ran:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
        # Remarks stand between the lines that they belong to, except beside a JSON document.
        apart = subprocess.PIPE if "--json" in arguments else subprocess.STDOUT
        with (
            subprocess.Popen(  # noqa: S603 - our own command, no shell
                [sys.executable, "-P", "-m", "bernstein_cli", *arguments],
                cwd=self.project,
                env=kept | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=apart,
                text=True,
                errors="replace",
            ) as process,
            ThreadPoolExecutor(2) as readers,
        ):
            told = readers.map(self._passed_on, (process.stdout, process.stderr))
            try:
                code = process.wait(STEP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise BernsteinError(
                    f"`{command}` took longer than {STEP_TIMEOUT_SECONDS:.0f} s"
                ) from None
        stdout, stderr = told
        return Ran(command, code, stdout, stderr)

    def _passed_on(self, stream: IO[str] | None) -> str:
        """Tell each line when it comes; gives all of them."""
        lines = []
        for line in stream or ():
            self.tell(f"  {line.rstrip()}")
            lines.append(line)
        return "".join(lines)
