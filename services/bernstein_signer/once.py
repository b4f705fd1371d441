"""The signer for one receipt, with a key that its caller names; it ends soon, whatever happens."""

import os
import socket
import threading
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_formats.errors import KeyUnusable
from bernstein_formats.mac import MacKeys
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_runtime.protection import end_with_parent
from bernstein_runtime.regular_file import read_regular
from bernstein_runtime.server import Listener, serve
from bernstein_signer.key import Key, load_key_file, take_key_variable
from bernstein_signer.mac import load_mac_keys
from bernstein_signer.service import OnceSigner, registration

# Long enough to tell "between two calls" from "in a call", short enough to end at once.
_IDLE_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Request:
    """What the command asks for; `wait_seconds` is how long the receipt may be in coming."""

    socket: Path
    key_path: Path | None
    key_variable: str
    key_id: str
    seal_key_path: Path | None
    wait_seconds: float
    audit_key_path: Path | None = None


def run(
    request: Request,
    token: bytes,
    environ: MutableMapping[str, str],
    say: Callable[[dict[str, str | bool]], None],
) -> None:
    """Serve one receipt. `say` hears when the socket answers."""
    end_with_parent()
    key = load_key(request, environ)
    signer = OnceSigner(key, seal_key_in(request.seal_key_path), mac_keys_of(request))
    give_up = time.monotonic() + request.wait_seconds

    def announce() -> None:
        while not accepts(request.socket):
            time.sleep(_POLL_SECONDS)
        say({"ready": True, "key_id": key.key_id})

    threading.Thread(target=announce, daemon=True).start()
    serve(
        Listener(request.socket, _IDLE_SECONDS, token),
        registration(signer),
        busy=lambda: not signer.is_done and time.monotonic() < give_up,
        finish=lambda: request.socket.unlink(missing_ok=True),
    )


def load_key(request: Request, environ: MutableMapping[str, str]) -> Key:
    """The key and its name: the given one, else that of the resolved file or of the variable."""
    if request.key_path is None:
        return take_key_variable(environ, request.key_variable, request.key_id)
    name = request.key_id or Path(os.path.realpath(request.key_path)).name
    return load_key_file(request.key_path, name)


def mac_keys_of(request: Request) -> Callable[[], MacKeys]:
    """The keys of the audit log, read at once where they were named: a bad one is told first."""
    if request.audit_key_path is None:
        return _no_mac_keys
    keys = load_mac_keys(request.audit_key_path)
    return lambda: keys


def _no_mac_keys() -> MacKeys:
    raise KeyUnusable("this signer was started without an audit key; give it --audit-key FILE")


def seal_key_in(path: Path | None) -> PublicKey | None:
    """The key that must have sealed the run, if one is named."""
    if path is None:
        return None
    try:
        return parse_public_pem(read_regular(path))
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}; check --seal-key", source=path) from error


def accepts(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
