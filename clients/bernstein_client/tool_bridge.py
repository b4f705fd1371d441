"""Stands in the place of a tool server on standard input and output.

Each line goes by the lane's proxy, which says what may be shown. Recording, the real server runs
behind it; replaying, there is none. Rules: docs/formats/mcp.md, section 5.
"""

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Final
from urllib.parse import quote, urlsplit

from bernstein_client.agent_settings import LANE_VARIABLE
from bernstein_formats.errors import InvalidInput, Unavailable

CONNECT_SECONDS: Final = 10.0
PIECE_BYTES: Final = 64 * 1024
FROM_CLIENT, FROM_SERVER, SERVER_ENDED = b">", b"<", b"!"


class ToolBridge:
    """One life of a tool server. `name` tells it from others of the lane."""

    def __init__(self, lane_url: str, name: str) -> None:
        """Raises Unavailable, InvalidInput for an address that is none."""
        address = urlsplit(lane_url)
        if address.scheme != "http" or not address.netloc:
            raise InvalidInput(f"{LANE_VARIABLE} is no address of a lane: {lane_url!r}")
        self._connection = http.client.HTTPConnection(address.netloc, timeout=CONNECT_SECONDS)
        self._sending = threading.Lock()
        self._client_left = False
        path = f"{address.path}/mcp-stdio/{quote(name, safe='')}"
        try:
            self._connection.putrequest("POST", path)
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()
            self._answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the lane's proxy does not answer: {error}") from error
        if self._answer.status != http.client.OK:
            said = self._answer.read().decode("utf-8", "replace")
            raise Unavailable(f"the lane's proxy refused the tool server: {said[:500]}")
        # From here on silence is no failure.
        if self._connection.sock is not None:
            self._connection.sock.settimeout(None)
        self._replays = json.loads(self._answer.readline())["mode"] == "replay"

    def run(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        client: IO[bytes],
        shown: IO[bytes],
    ) -> int:
        """Until both sides have left; gives the server's exit code. Raises InvalidInput for a
        command that cannot start."""
        try:
            server = None if self._replays else _start(command, environ)
        except InvalidInput:
            self._say_ended(client)
            raise
        threading.Thread(target=self._hear_client, args=(client, server), daemon=True).start()
        if server is not None:
            threading.Thread(target=self._hear_server, args=(server,), daemon=True).start()
        is_whole = self._show(shown)
        if server is None:
            return 0 if is_whole else 1
        if not is_whole:
            server.terminate()  # what it says is not recorded any more
        code = server.wait()
        return code if is_whole else 1

    def _say_ended(self, client: IO[bytes]) -> None:
        """Have a server that did not start recorded as one that ended at the first question."""
        self._send(FROM_CLIENT, client.readline())
        self._send(SERVER_ENDED, b"")
        self._end()
        with suppress(OSError, http.client.HTTPException):
            self._answer.read()  # until it is kept

    def _hear_client(self, client: IO[bytes], server: "subprocess.Popen[bytes] | None") -> None:
        for line in client:
            self._send(FROM_CLIENT, line)
            if server is not None and not _passed(server, line):
                break
        self._client_left = True
        if server is None:
            self._end()
        elif server.stdin is not None:
            _close(server.stdin)

    def _hear_server(self, server: "subprocess.Popen[bytes]") -> None:
        assert server.stdout is not None
        for line in server.stdout:
            self._send(FROM_SERVER, line)
        if not self._client_left:
            self._send(SERVER_ENDED, b"")
        self._end()

    def _show(self, shown: IO[bytes]) -> bool:
        """Show what may be shown; whether it came to its proper end."""
        try:
            # Not by lines: those would hide that it broke off.
            while piece := self._answer.read1(PIECE_BYTES):
                shown.write(piece)
                shown.flush()
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _send(self, kind: bytes, line: bytes) -> None:
        frame = b"%s%d\n%s" % (kind, len(line), line)
        with self._sending:
            self._write(b"%x\r\n%s\r\n" % (len(frame), frame))

    def _end(self) -> None:
        with self._sending:
            self._write(b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        with suppress(OSError):  # the proxy left: `_show` notices
            self._connection.send(data)


def _start(command: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603 - it is what the user typed
            command,
            env={name: text for name, text in environ.items() if name != LANE_VARIABLE},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
        )
    except OSError as error:
        raise InvalidInput(f"cannot run {command[0]!r}: {error.strerror or error}") from error


def _passed(server: "subprocess.Popen[bytes]", line: bytes) -> bool:
    """Whether the server is still there to read it."""
    assert server.stdin is not None
    try:
        server.stdin.write(line)
        server.stdin.flush()
    except OSError:
        return False
    return True


def _close(pipe: IO[bytes]) -> None:
    with suppress(OSError):  # the server left before
        pipe.close()
