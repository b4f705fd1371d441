"""The checks of `bernstein services doctor --fleet`: each service at each endpoint, then all.

They start nothing and change nothing. Whoever asks is an operator in the role table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bernstein_cli.checks import Check
from bernstein_client.about import About, about
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime import VERSION
from bernstein_runtime.clock import Clock
from bernstein_runtime.connector import FleetConnector
from bernstein_runtime.fleet import Fleet, fleet_of
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import Places

# What each host of a fleet has, and what one of them has.
EVERYWHERE: Final = ("journal", "recorder")
SOMEWHERE: Final = ("rederiver", "signer")
CLOCK_SECONDS_MAX: Final = 2.0
CERTIFICATE_DAYS_MIN: Final = 3.0
DAY_SECONDS: Final = 24 * 3600.0
# What services of one fleet have in common.
_SHARED: Final = ("store", "migration")


def fleet_checks(places: Places, environ: Mapping[str, str], clock: Clock) -> Iterator[Check]:
    """All checks. Raises InvalidInput where no fleet is configured."""
    fleet = fleet_of(places.state_dir, environ)
    if fleet is None:
        raise InvalidInput(
            "no fleet is configured: set [fleet] endpoint, or BERNSTEIN_SVC_ENDPOINT"
        )
    origin = origin_of(places, environ)
    answers: list[About] = []
    for service in (*EVERYWHERE, *SOMEWHERE):
        refused: list[Check] = []
        here: list[About] = []
        for endpoint in fleet.endpoints:
            name = f"{service} at {endpoint.address(service)}"
            try:
                found = _asked(Fleet((endpoint,), fleet.tls), origin, service, clock)
            except BernsteinError as error:
                advice = "start it there, or see its log" if error.reason == "UNAVAILABLE" else ""
                refused.append(Check(name, False, f"{error.message} [{error.reason}]", advice))
                continue
            here.append(found)
            yield from _of_service(name, found, clock)
        answers += here
        if service in EVERYWHERE or not here:
            yield from refused
    yield from _together(answers)


def _asked(fleet: Fleet, origin: str, service: str, clock: Clock) -> About:
    connector = FleetConnector(fleet, origin)
    try:
        return about(connector, service, clock)
    finally:
        connector.close()


def _of_service(name: str, found: About, clock: Clock) -> Iterator[Check]:
    facts = ", ".join(f"{key} {value}" for key, value in sorted(found.facts.items()) if value)
    yield Check(
        name,
        not found.refusal,
        f"not ready: {found.refusal}" if found.refusal else f"ready{'; ' if facts else ''}{facts}",
        "see its log, and docs/operations.md",
    )
    yield Check(
        f"{name}: version",
        found.version == VERSION,
        found.version,
        f"this is {VERSION}: finish the upgrade",
    )
    ahead = found.clock_ahead_seconds
    yield Check(
        f"{name}: clock",
        abs(ahead) <= CLOCK_SECONDS_MAX,
        f"{abs(ahead):.1f} s {'before' if ahead >= 0 else 'behind'} this host's",
        "set the clocks of both hosts by one source",
    )
    if found.certificate_expires_unix:
        days = (found.certificate_expires_unix - clock.now_seconds()) / DAY_SECONDS
        yield Check(
            f"{name}: certificate",
            days >= CERTIFICATE_DAYS_MIN,
            f"{days:.1f} days left",
            "replace its files; it need not be restarted",
        )


def _together(answers: Sequence[About]) -> Iterator[Check]:
    """What has to be the same in all services."""
    for fact in _SHARED:
        said = sorted({each.facts[fact] for each in answers if fact in each.facts})
        if said:
            yield Check(
                f"one {fact}",
                len(said) == 1,
                ", ".join(said),
                "services of one fleet have one [store]",
            )
