"""The services of one project folder, found or started, or a fleet's; each over one channel.

A client is imported when it is asked for: a command that needs one pays for one.
"""

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bernstein_client.service_channel import ServiceChannel
from bernstein_runtime import forked
from bernstein_runtime.connector import Connector, FleetConnector, connector_for
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.places import Places, places_for
from bernstein_runtime.supervisor import Supervisor
from bernstein_runtime.trace import is_command
from bernstein_runtime.traced import traced_command

if TYPE_CHECKING:
    from bernstein_client.copies import CopiesClient
    from bernstein_client.exchanges import ExchangesClient
    from bernstein_client.journal import JournalClient
    from bernstein_client.macs import MacsClient
    from bernstein_client.recorder import RecorderClient
    from bernstein_client.rederiver import RederiverClient
    from bernstein_client.steps import StepsClient


class Services:
    """Everything of one project. Safe for any number of threads; close it, or use `with`."""

    def __init__(self, sdd_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        # For what is on this host in any case: proxy and gateway.
        self.supervisor = Supervisor(places_for(sdd_dir, environ), environ)
        self._environ = environ
        self._channels: list[ServiceChannel] = []
        self._lock = threading.Lock()
        self._traced = ExitStack()
        forked.renew_after_fork(self)

    def after_fork(self) -> None:
        """Its lock may be held by a thread that a child does not have."""
        self._lock = threading.Lock()

    @property
    def places(self) -> Places:
        """Where the services are, as far as is known now."""
        return self.supervisor.places

    @cached_property
    def connector(self) -> Connector:
        """To this project's services, wherever they are. Raises InvalidInput."""
        if is_command():  # its output is data, and structlog's own default would write there
            configure_logs("bernstein", logging.WARNING)
        self._traced.enter_context(traced_command(self.places.state_dir, self._environ))
        return connector_for(self.supervisor, self._environ)

    @property
    def is_remote(self) -> bool:
        """Whether they are a fleet's. Raises InvalidInput."""
        return isinstance(self.connector, FleetConnector)

    @cached_property
    def journal(self) -> "JournalClient":
        from bernstein_client.journal import JournalClient  # noqa: PLC0415 - see above

        return JournalClient(self._connect("journal"))

    @cached_property
    def copies(self) -> "CopiesClient":
        from bernstein_client.copies import CopiesClient  # noqa: PLC0415 - see above

        return CopiesClient(self._connect("journal"))

    @cached_property
    def macs(self) -> "MacsClient":
        from bernstein_client.macs import MacsClient  # noqa: PLC0415 - see above

        return MacsClient(self._connect("journal"))

    @cached_property
    def steps(self) -> "StepsClient":
        from bernstein_client.steps import StepsClient  # noqa: PLC0415 - see above

        return StepsClient(self._connect("journal"))

    @cached_property
    def recorder(self) -> "RecorderClient":
        from bernstein_client.recorder import RecorderClient  # noqa: PLC0415 - see above

        return RecorderClient(self._connect("recorder"))

    @cached_property
    def exchanges(self) -> "ExchangesClient":
        from bernstein_client.exchanges import ExchangesClient  # noqa: PLC0415 - see above

        return ExchangesClient(self._connect("recorder"))

    @cached_property
    def rederiver(self) -> "RederiverClient":
        from bernstein_client.rederiver import RederiverClient  # noqa: PLC0415 - see above

        return RederiverClient(self._connect("rederiver"))

    def close(self) -> None:
        """Let go of the channels; the services go on."""
        with self._lock:
            for opened in self._channels:
                opened.channel.close()
            self._channels.clear()
        if "connector" in self.__dict__:
            self.connector.close()
        self._traced.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, name: str) -> ServiceChannel:
        opened = ServiceChannel(name, self.connector)
        with self._lock:
            self._channels.append(opened)
        return opened
