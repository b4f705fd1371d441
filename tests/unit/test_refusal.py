"""A refusal keeps its class and facts on the way; a failed call says what to do."""

import errno
import json
import os
import socket
from pathlib import Path

import pytest

from bernstein_formats.errors import (
    BernsteinError,
    DiskFull,
    InvalidInput,
    NotAllowed,
    StoreFailed,
)
from bernstein_runtime.disk import ADVICE, NO_SPACE, failed
from bernstein_runtime.refusal import error_from_refusal, refusal_in, refusal_of
from bernstein_runtime.supervisor_socket import require_own_peer


def test_a_refusal_is_the_same_error_at_the_other_end() -> None:
    line = json.dumps(refusal_of(DiskFull("no space left for x", path="x"))).encode()

    found = refusal_in(b'noise\n{"event": "x"}\n' + line + b"\nlater noise")

    assert isinstance(found, DiskFull)
    assert (found.message, found.metadata) == ("no space left for x", {"path": "x"})


@pytest.mark.parametrize(
    "output", [b"", b"Traceback\n  boom", b"[]", b'{"reason": 1}', b"[" * 9999]
)
def test_output_without_a_refusal_has_none(output: bytes) -> None:
    assert refusal_in(output) is None


def test_an_unknown_reason_is_still_an_error() -> None:
    found = error_from_refusal({"reason": "NEWER", "error": "e", "facts": []})

    assert type(found) is BernsteinError
    assert found.message == "e"


@pytest.mark.parametrize("number", sorted(NO_SPACE))
def test_a_full_disk_is_said_in_a_whole_sentence(number: int) -> None:
    error = failed(Path("/d/f"), OSError(number, os.strerror(number)))

    assert isinstance(error, DiskFull)
    assert error.message == "no space left for /d/f: nothing was written; make room and try again"


@pytest.mark.parametrize("number", [*sorted(ADVICE), errno.EIO])
def test_every_other_failure_says_what_to_do(number: int) -> None:
    error = failed(Path("/d/f"), OSError(number, os.strerror(number)))

    assert isinstance(error, StoreFailed)
    assert not isinstance(error, InvalidInput)
    what, advice = error.message.split("; ", 1)
    assert what == f"/d/f: {os.strerror(number)}"
    assert advice


def test_a_peer_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    with one, other:
        require_own_peer(one, Path("/r/supervisor.sock"))
        stranger = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: stranger)
        with pytest.raises(NotAllowed, match="work as one user"):
            require_own_peer(one, Path("/r/supervisor.sock"))
