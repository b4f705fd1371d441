"""An answer on its way to the agent: begun, continued, and ended as the recorded one was."""

from typing import Final

from aiohttp import web
from multidict import CIMultiDict

from bernstein_formats.http_exchange import End
from bernstein_formats.http_key import Pairs

# Written anew for this connection; a length is kept, because clients see it.
_LEFT_OUT: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding"),
        *("upgrade", "content-length"),
    }
)
_WITHOUT_BODY: Final = frozenset({204, 304})


class Stream:
    """One answer."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None

    async def start(self, status: int, headers: Pairs) -> None:
        """Send status and headers. Raises ConnectionError when the agent left."""
        kept = CIMultiDict(
            (name, value) for name, value in headers if name.lower() not in _LEFT_OUT
        )
        response = web.StreamResponse(status=status, headers=kept)
        if status not in _WITHOUT_BODY:
            response.enable_chunked_encoding()
        await response.prepare(self._request)
        self._response = response

    async def write(self, piece: bytes) -> None:
        """Send a piece at once. Raises ConnectionError when the agent left."""
        assert self._response is not None
        await self._response.write(piece)

    async def finish(self, end: End) -> None:
        """End it cleanly, or break it: a chunked body without its last chunk."""
        if end is End.COMPLETE and self._response is not None:
            await self._response.write_eof()
        elif self._request.transport is not None:
            self._request.transport.close()

    @property
    def response(self) -> web.StreamResponse:
        """What the server wants to have back."""
        return self._response or web.Response(status=502)
