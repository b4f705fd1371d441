"""`bernstein services doctor`: is everything as it should be, and if not, what to do."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from bernstein_cli.checks import Check, checks
from bernstein_cli.output import GREEN, RED, document, say
from bernstein_cli.peer import peer_version
from bernstein_cli.services_options import json_option, places_of, sdd_dir_option
from bernstein_runtime.limits import described


@click.command()
@click.option("--fleet", "of_fleet", is_flag=True, help="Ask each service of the fleet instead.")
@sdd_dir_option
@json_option
def doctor(*, of_fleet: bool, sdd_dir: Path, as_json: bool) -> int:
    """Check this installation and the project's services; exit 1 when something is bad.

    With --fleet: versions, store, certificates, ledger and clocks of the services at the configured
    endpoint. Whoever asks has the role of an operator.
    """
    done = _fleet(sdd_dir) if of_fleet else list(checks(places_of(sdd_dir), os.environ))
    good = all(check.ok for check in done)
    if as_json:
        document(
            {
                "ok": good,
                "checks": [asdict(check) for check in done],
                "limits": described(),
                "peer_version_tested": peer_version(),
            }
        )
        return 0 if good else 1
    for check in done:
        say(
            f"{'ok ' if check.ok else 'bad'}  {check.name}: {check.seen}",
            GREEN if check.ok else RED,
        )
        if not check.ok and check.advice:
            say(f"     {check.advice}")
    if not of_fleet:
        for name, limit in described().items():
            say(f"limit  {name} = {limit}")
    return 0 if good else 1


def _fleet(sdd_dir: Path) -> Sequence[Check]:
    # Takes long to load, and is for few.
    from bernstein_cli.fleet_checks import fleet_checks  # noqa: PLC0415 - see above
    from bernstein_runtime.clock import SystemClock  # noqa: PLC0415 - see above

    return list(fleet_checks(places_of(sdd_dir), os.environ, SystemClock()))
