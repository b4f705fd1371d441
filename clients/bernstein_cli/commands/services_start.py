"""`bernstein services start`, `stop` and `init`."""

import os
import time
from pathlib import Path

import click

from bernstein_cli.audit_options import audit_key_file
from bernstein_cli.fleet_place import in_fleet, refuse_in_fleet, require_folder
from bernstein_cli.key_process import ask_signer
from bernstein_cli.output import document, remark, say
from bernstein_cli.services_options import (
    SERVICES,
    json_option,
    places_of,
    sdd_dir_option,
    supervisor_of,
)
from bernstein_formats.errors import StoreFailed, Unavailable

_STOP_SECONDS = 20.0
_SEAL_KEY_FILE = "seal-key.pub.pem"


@click.command()
@click.argument("names", nargs=-1, metavar="[SERVICE]...", type=click.Choice(SERVICES))
@sdd_dir_option
@json_option
def start(names: tuple[str, ...], sdd_dir: Path, as_json: bool) -> int:
    """Start services (all of them, unless some are named)."""
    refuse_in_fleet(sdd_dir, "`bernstein services start`")
    require_folder(sdd_dir)
    supervisor = supervisor_of(sdd_dir)
    started = list(names or SERVICES)
    for name in started:
        supervisor.ensure(name)
        if not as_json:
            say(f"{name} runs")
    if as_json:
        document({"running": started})
    return 0


@click.command()
@sdd_dir_option
@json_option
def stop(sdd_dir: Path, as_json: bool) -> int:
    """Stop all services; each first finishes what it acknowledged."""
    supervisor = supervisor_of(sdd_dir)
    was_running = supervisor.ask({"do": "stop"}) is not None
    give_up = time.monotonic() + _STOP_SECONDS
    while was_running and supervisor.ask({"do": "status"}) is not None:
        if time.monotonic() > give_up:
            log = supervisor.places.log("supervisor")
            raise Unavailable(f"the services did not end in {_STOP_SECONDS:.0f} s; see {log}")
        time.sleep(0.02)
    if as_json:
        document({"stopped": was_running})
    else:
        say("The services have ended." if was_running else "No services were running.")
    return 0


@click.command()
@sdd_dir_option
@click.option(
    "--new-ledger",
    is_flag=True,
    help="Go on although the ledger that sealed this project's runs is lost.",
)
@json_option
def init(sdd_dir: Path, new_ledger: bool, as_json: bool) -> int:
    """Make the state folder, the key that seals this project's runs, and the audit key.

    The private key stays with the signer. Its public half is what seals are checked with. The audit
    key is the peer's, at the peer's place, and is made only where there is none: it authenticates
    lineage spines and the audit log of all projects.
    """
    if new_ledger and in_fleet(sdd_dir):
        begin_ledger(sdd_dir)
        say("the journal goes on with the ledger that the fleet's signer has now")
        return 0
    refuse_in_fleet(sdd_dir, "`bernstein services init`")
    try:
        sdd_dir.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreFailed(
            f"{sdd_dir} cannot be made: {error.strerror}; make its folder writable", path=sdd_dir
        ) from error
    supervisor_of(sdd_dir).ensure("signer")
    if new_ledger:
        begin_ledger(sdd_dir)
    public_key = places_of(sdd_dir).secrets_dir / _SEAL_KEY_FILE
    audit_key = audit_key_file(places_of(sdd_dir), os.environ)
    made = ask_signer(["--ensure-audit-key", "--audit-key", str(audit_key)]).strip() == "made"
    if as_json:
        document(
            {
                "sdd_dir": str(sdd_dir),
                "seal_public_key": str(public_key),
                "audit_key": str(audit_key),
                "audit_key_made": made,
            }
        )
        return 0
    say(f"state folder       {sdd_dir}")
    say(f"seals' public key  {public_key}")
    say(f"audit key          {audit_key}{' (made now)' if made else ''}")
    remark("a key for receipts is your own choice: `bernstein keys new FILE` makes one")
    return 0


def begin_ledger(sdd_dir: Path) -> None:
    """Tell the journal; loads what talks to it only now."""
    from bernstein_client.connection import Services  # noqa: PLC0415 - see above

    with Services(sdd_dir) as services:
        services.journal.begin_ledger()
