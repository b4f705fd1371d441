"""Whether a command's runs are a fleet's, and what then can be done on this host."""

import os
from pathlib import Path

from bernstein_formats.errors import InvalidInput, StoreFailed
from bernstein_runtime.config import FleetConfig, load_table
from bernstein_runtime.places import places_for


def fleet_endpoint(sdd_dir: Path) -> str:
    """Where the fleet's services are; empty where they are this host's own. Raises InvalidInput."""
    state_dir = places_for(sdd_dir, os.environ).state_dir
    return load_table(FleetConfig, "fleet", state_dir, os.environ).endpoint


def in_fleet(sdd_dir: Path) -> bool:
    """Raises InvalidInput."""
    return bool(fleet_endpoint(sdd_dir))


def refuse_in_fleet(sdd_dir: Path, what: str) -> None:
    """Raises InvalidInput for what can be done on the services' own hosts only."""
    endpoint = fleet_endpoint(sdd_dir)
    if endpoint:
        raise InvalidInput(
            f"{what} is for the host of the services, and those at {endpoint} are asked here"
            " ([fleet] endpoint, BERNSTEIN_SVC_ENDPOINT); do it there, or unset the endpoint"
        )


def require_folder(sdd_dir: Path, *, starts_here: bool = False) -> None:
    """Raises InvalidInput where there is no state folder: services are not started for nothing.

    A fleet needs none here, and gets one for what a command starts on this host all the same.
    """
    if sdd_dir.is_dir():
        return
    if not in_fleet(sdd_dir):
        raise InvalidInput(
            f"{sdd_dir} is not a folder; go to the project, or make it with"
            " `bernstein services init`",
            path=sdd_dir,
        )
    if starts_here:
        make_folder(sdd_dir)


def make_folder(sdd_dir: Path) -> None:
    """Make the state folder. Raises StoreFailed."""
    try:
        sdd_dir.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreFailed(
            f"{sdd_dir} cannot be made: {error.strerror}; name a writable place with --sdd-dir",
            path=sdd_dir,
        ) from error
