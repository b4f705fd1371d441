"""One question to whoever listens on a supervisor's socket, if that is a process of this user."""

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bernstein_formats.errors import NotAllowed, Unavailable
from bernstein_runtime import limits
from bernstein_runtime.places import Places, check_runtime

# struct ucred: process, user, group.
_CREDENTIALS = struct.Struct("iII")


def ask_at(
    places: Places, request: Mapping[str, str], seconds: float = limits.START_TIMEOUT_SECONDS
) -> dict[str, Any] | None:
    """Ask whoever listens at `places`; None when nobody does."""
    path = places.socket("supervisor")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(seconds)
        try:
            check_runtime(places)
            channel.connect(str(path))
            require_own_peer(channel, path)
            channel.sendall(json.dumps(dict(request)).encode() + b"\n")  # noqa: TID251 - not evidence
            answer = channel.makefile("rb").readline()
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            return None
        except TimeoutError as error:
            raise Unavailable(
                f"the supervisor did not answer within {seconds:.0f} s; it listens at {path}: "
                f"end its process (`fuser {places.supervisor_lock}`), and try again"
            ) from error
        except OSError as error:
            raise Unavailable(
                f"the supervisor cannot be asked at {path}: {error.strerror or error}; "
                "see `bernstein services doctor`"
            ) from error
    parsed: dict[str, Any] | None = json.loads(answer) if answer else None
    return parsed


def require_own_peer(channel: socket.socket, path: Path) -> None:
    """NotAllowed when the other end of a connection is another user's process."""
    if sys.platform != "linux":
        return  # elsewhere the private folder alone keeps others out
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user_id, _ = _CREDENTIALS.unpack(credentials)
    if user_id != os.getuid():
        raise NotAllowed(
            f"at the other end of {path} is a process of user {user_id}, not of user"
            f" {os.getuid()}; end it, or work as one user",
            path=path,
        )
