"""The client library: what commands, orchestrators and other programs call the services with.

    from bernstein_client import connect

    with connect("my-project") as client:
        run = client.create_run()
        run.append("task_claimed", {"task": "t1"})
        run.finish()

`connect_async` gives the same for asyncio. Importing this is cheap: what is named here is loaded
when it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from bernstein_formats import errors

if TYPE_CHECKING:
    from bernstein_client.append_line import AppendResult, Event
    from bernstein_client.async_client import AsyncCalls, AsyncClient, AsyncRun, connect_async
    from bernstein_client.client import Calls, Client, Run, connect
    from bernstein_client.recorder_calls import Account, Answer, Provider
    from bernstein_client.values import BuiltReceipt, FinishedRun, Row, RunInfo, Verification

_WHERE: Final = {
    "Account": "bernstein_client.recorder_calls",
    "Answer": "bernstein_client.recorder_calls",
    "AppendResult": "bernstein_client.append_line",
    "AsyncCalls": "bernstein_client.async_client",
    "AsyncClient": "bernstein_client.async_client",
    "AsyncRun": "bernstein_client.async_client",
    "BuiltReceipt": "bernstein_client.values",
    "Calls": "bernstein_client.client",
    "Client": "bernstein_client.client",
    "Event": "bernstein_client.append_line",
    "FinishedRun": "bernstein_client.values",
    "Provider": "bernstein_client.recorder_calls",
    "Row": "bernstein_client.values",
    "Run": "bernstein_client.client",
    "RunInfo": "bernstein_client.values",
    "Verification": "bernstein_client.values",
    "connect": "bernstein_client.client",
    "connect_async": "bernstein_client.async_client",
}

__all__ = [
    "Account",
    "Answer",
    "AppendResult",
    "AsyncCalls",
    "AsyncClient",
    "AsyncRun",
    "BuiltReceipt",
    "Calls",
    "Client",
    "Event",
    "FinishedRun",
    "Provider",
    "Row",
    "Run",
    "RunInfo",
    "Verification",
    "connect",
    "connect_async",
    "errors",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
