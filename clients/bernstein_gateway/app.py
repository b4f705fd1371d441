"""The gateway's routes: a run's page, its thread, its verdict."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bernstein_client.values import RunInfo, Verification
from bernstein_formats import errors, paths
from bernstein_formats.audit_log import AuditFields
from bernstein_formats.errors import BernsteinError, Conflict, InvalidInput
from bernstein_formats.run_choice import LATEST
from bernstein_gateway.approvals import limited_body, local_operator, parse_decision, row_at
from bernstein_gateway.stream import Thread, Viewers, Watcher, resume_index

STATIC: Final = Path(__file__).with_name("static")
STREAM_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
STATUSES: Final[dict[type[BernsteinError], int]] = {
    errors.InvalidInput: 400,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.KeyUnusable: 409,
    errors.TooMany: 503,
    errors.Unavailable: 503,
}
RETRY_AFTER_SECONDS: Final = "3"


class Journal(Protocol):
    """What the gateway asks for beside rows; blocking calls."""

    def get_run(self, run_id: str) -> RunInfo: ...

    def verify_run(self, run_id: str) -> Verification: ...


class Audit(Protocol):
    """Where decisions go; a blocking call."""

    def append_audit_event(self, fields: AuditFields) -> str | None: ...


class Routes:
    """Answers requests; nothing is kept between them."""

    def __init__(
        self,
        watcher: Watcher,
        journal: Callable[[], Journal],
        audit: Callable[[], Audit],
        *,
        viewers_max: int,
        heartbeat_seconds: float,
    ) -> None:
        """`journal` and `audit` connect when they are first needed."""
        self._watcher = watcher
        self._journal = journal
        self._audit = audit
        self._viewers = Viewers(viewers_max)
        self._heartbeat_seconds = heartbeat_seconds

    async def page(self, request: Request) -> Response:
        """The live page; it asks for everything else."""
        _run_id(request)
        return FileResponse(STATIC / "viewer.html", headers={"cache-control": "no-store"})

    async def thread(self, request: Request) -> Response:
        """The rows after Last-Event-ID (or `after`, for programs that set no headers)."""
        asked = _resume_point(request)
        self._viewers.enter()
        try:
            thread = await Thread.opened(
                self._watcher, _run_id(request), resume_index(asked), self._heartbeat_seconds
            )
        except (BernsteinError, asyncio.CancelledError):
            self._viewers.leave()
            raise
        if thread.is_over and asked:
            self._viewers.leave()
            await thread.close()
            return Response(status_code=204)  # which tells a browser not to come again
        return StreamingResponse(
            self._counted(thread), media_type="text/event-stream", headers=STREAM_HEADERS
        )

    async def _counted(self, thread: Thread) -> AsyncIterator[bytes]:
        try:
            async for frame in thread.frames():
                yield frame
        finally:
            self._viewers.leave()

    async def verdict(self, request: Request) -> Response:
        """What a verification of the run says now."""
        run_id = _run_id(request)
        found = await run_in_threadpool(lambda: self._journal().verify_run(run_id))
        return JSONResponse({"is_clean": found.is_clean, **asdict(found)})

    async def approve(self, request: Request) -> Response:
        """Put a decision on a row into the audit log, if it is the row that the operator saw."""
        run_id = _run_id(request)
        decision = parse_decision(await limited_body(request))
        row = await row_at(self._watcher, run_id, decision.journal_index)
        if row.event_hash != decision.event_hash:
            raise Conflict(
                f"row {decision.journal_index} of run {run_id} has the hash {row.event_hash};"
                " what was decided on is another row",
                event_hash=row.event_hash,
            )
        fields = decision.fields(run_id, operator=local_operator())
        hmac = await run_in_threadpool(lambda: self._audit().append_audit_event(fields))
        return JSONResponse({"hmac": hmac, "is_waiting": hmac is None}, 201)

    async def run(self, request: Request) -> Response:
        """What is known of the run without verifying it."""
        run_id = _run_id(request)
        run = await run_in_threadpool(lambda: self._journal().get_run(run_id))
        return JSONResponse(
            {
                "run_id": run.run_id,
                "row_count": run.row_count,
                "metadata": run.metadata,
                "replay": run.replay,
                "is_sealed": bool(run.seal_json),
            }
        )


def _resume_point(request: Request) -> str | None:
    """What a viewer says it has seen; the header, which a browser makes, before the address."""
    said = request.headers.getlist("last-event-id") or request.query_params.getlist("after")
    if len(said) > 1:
        raise InvalidInput(f"{len(said)} resume points were given; give one")
    return said[0] if said else None


def _run_id(request: Request) -> str:
    run_id: str = request.path_params["run_id"]
    if run_id != LATEST:
        paths.check_run_id(run_id)
    return run_id


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BernsteinError)
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
    headers = {"retry-after": RETRY_AFTER_SECONDS} if status == 503 else None
    body = {"error": error.reason, "detail": error.message, **error.metadata}
    return JSONResponse(body, status, headers)


def make_app(routes: Routes) -> Starlette:
    """The application, without what guards it."""
    return Starlette(
        routes=[
            Route("/runs/{run_id}", routes.page),
            Route("/runs/{run_id}/approvals", routes.approve, methods=["POST"]),
            Route("/runs/{run_id}/facts", routes.run),
            Route("/runs/{run_id}/thread", routes.thread),
            Route("/runs/{run_id}/verdict", routes.verdict),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={BernsteinError: _refused},
    )
