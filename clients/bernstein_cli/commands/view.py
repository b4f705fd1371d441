"""`bernstein view RUN`: the run's live page; starts the gateway and says where the page is."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import document, remark, say
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services
from bernstein_formats.errors import Unavailable
from bernstein_formats.run_choice import LATEST
from bernstein_runtime.places import Places


@click.command()
@click.argument("run_id", default=LATEST, metavar="[RUN]", shell_complete=complete_runs)
@json_option
@sdd_dir_option
def view(*, run_id: str, as_json: bool, sdd_dir: Path) -> int:
    """Print the address of a run's live page (of the newest run, if none is named).

    The address holds a key that lasts as long as the gateway runs: whoever has it sees the runs of
    this project. The gateway ends by itself when nobody looks.
    """
    require_folder(sdd_dir, starts_here=True)
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise Unavailable("the gateway is not installed: pip install 'bernstein-services[gateway]'")
    with Services(sdd_dir) as services:
        run = services.journal.get_run(run_id).run_id
        services.supervisor.ensure("gateway")
        gateway = gateway_facts(services.places)
    url = f"{gateway['url']}/runs/{quote(run)}?token={gateway['token']}"
    if as_json:
        document({"run_id": run, "url": url})
    else:
        say(url)
        remark("open it in a browser; it shows the run as it goes on")
    return 0


def gateway_facts(places: Places) -> dict[str, Any]:
    """Where the running gateway listens and what it wants to see."""
    try:
        facts: dict[str, Any] = json.loads((places.runtime_dir / "gateway.json").read_bytes())
    except FileNotFoundError:
        raise Unavailable("the gateway has just ended; try again") from None
    return facts
