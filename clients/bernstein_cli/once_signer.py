"""A signer process for one receipt: it alone reads the key, on a socket in our private folder."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bernstein_cli.signing_key import SigningKey
from bernstein_client.values import OnceSigner
from bernstein_formats.errors import BernsteinError, InvalidInput, KeyUnusable, Unavailable
from bernstein_runtime.places import Places, make_state
from bernstein_runtime.supervisor import scrubbed

_LOG_NAME: Final = "signer-once"
_END_SECONDS: Final = 5.0
_SEAL_KEY_FILE: Final = "seal-key.pub.pem"


@contextmanager
def once_signer(
    key: SigningKey, places: Places, environ: Mapping[str, str], audit_key: Path | None = None
) -> Iterator[OnceSigner]:
    """Start one and end it. Raises KeyUnusable when it cannot use a key that it is to read."""
    make_state(places)
    signer = OnceSigner(
        places.runtime_dir / f"once-{secrets.token_hex(8)}.sock", secrets.token_hex(32).encode()
    )
    command = [sys.executable, "-m", "bernstein_signer", "--once", "--socket", str(signer.socket)]
    seal_key = places.secrets_dir / _SEAL_KEY_FILE
    if seal_key.exists():
        command += ["--seal-key", str(seal_key)]
    if audit_key is not None:
        command += ["--audit-key", str(audit_key)]
    with (
        places.log(_LOG_NAME).open("wb") as log,
        subprocess.Popen(  # noqa: S603 - our own module, no shell
            [*command, *key.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(key, environ),
        ) as process,
    ):
        try:
            _await_ready(process, signer.token, places)
            yield signer
        finally:
            _end(process)
            signer.socket.unlink(missing_ok=True)


def _environment(key: SigningKey, environ: Mapping[str, str]) -> dict[str, str]:
    """What a service sees, and the one variable that holds the key."""
    environment = scrubbed(environ)
    if key.variable and key.variable in environ:
        environment[key.variable] = environ[key.variable]
    return environment


def _await_ready(process: "subprocess.Popen[bytes]", token: bytes, places: Places) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(token + b"\n")
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has ended already; its answer says why
    answer = _parsed(process.stdout.readline())
    if answer.get("ready"):
        return
    raise _refusal(answer, places)


def _refusal(answer: Mapping[str, object], places: Places) -> BernsteinError:
    if "error" not in answer:
        return Unavailable(f"the signer ended at its start; see {places.log(_LOG_NAME)}")
    kind = InvalidInput if answer.get("reason") == InvalidInput.reason else KeyUnusable
    return kind(str(answer["error"]))


def _parsed(line: bytes) -> Mapping[str, object]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It ends by itself after its receipt; without one it is told to."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
