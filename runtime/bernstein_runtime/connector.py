"""How a process comes to the services that it calls: its own host's, or those of a fleet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from bernstein_runtime.channel import Target, socket_target
from bernstein_runtime.fleet import Fleet, fleet_of
from bernstein_runtime.fleet_channel import FleetLink
from bernstein_runtime.linked_channel import LinkedChannel, OwnLink
from bernstein_runtime.origin import origin_metadata, origin_of
from bernstein_runtime.supervisor import Supervisor

Metadata: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LocalConnector:
    """To services behind Unix sockets, which a supervisor starts."""

    supervisor: Supervisor

    @property
    def metadata(self) -> Metadata:
        """What calls over other channels than `open` gives have to carry."""
        return ()

    def ensure(self, service: str) -> None:
        """Have it running and answering. Raises Unavailable, and what it refused with."""
        self.supervisor.ensure(service)

    def target(self, service: str) -> Target:
        """Where it is."""
        return socket_target(self.supervisor.places.socket(service))

    def who(self, service: str) -> str:
        """What it is called where it does not answer."""
        return f"the {service}"

    def open(self, service: str) -> grpc.Channel:
        """A channel of the caller's own."""
        return LinkedChannel(OwnLink(self.target(service).open), is_owner=True)

    def for_origin(self, origin: str) -> "LocalConnector":
        """The same: services of a project know whose they are."""
        return self

    def close(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class FleetConnector:
    """To services of other hosts, which somebody else starts. Thread-safe."""

    fleet: Fleet
    origin: str
    _links: dict[str, FleetLink] = field(default_factory=dict)

    @property
    def metadata(self) -> Metadata:
        """See LocalConnector."""
        return (origin_metadata(self.origin),)

    def ensure(self, service: str) -> None:
        """Have a connection to a host that answers. Raises Unavailable, Untrusted."""
        self._link(service).reach()

    def target(self, service: str) -> Target:
        """Where it is now."""
        return self._link(service).target()

    def who(self, service: str) -> str:
        """See LocalConnector."""
        return f"{service} at {self._link(service).target().address}"

    def open(self, service: str) -> grpc.Channel:
        """A channel that shares its connection with the others of this connector."""
        return LinkedChannel(self._link(service), origin_metadata(self.origin))

    def for_origin(self, origin: str) -> "FleetConnector":
        """The same for the runs of another origin."""
        return FleetConnector(self.fleet, origin, self._links)

    def close(self) -> None:
        """End all calls, those for other origins, too."""
        while self._links:
            self._links.popitem()[1].close()

    def _link(self, service: str) -> FleetLink:
        link = self._links.get(service)
        # One that was made in vain has not connected yet.
        return link or self._links.setdefault(service, FleetLink(self.fleet, service))


Connector: TypeAlias = LocalConnector | FleetConnector


def connector_for(supervisor: Supervisor, environ: Mapping[str, str]) -> Connector:
    """To the services of a project, wherever they are. Raises InvalidInput."""
    places = supervisor.places
    fleet = fleet_of(places.state_dir, environ)
    if fleet is None:
        return LocalConnector(supervisor)
    return FleetConnector(fleet, origin_of(places, environ))
