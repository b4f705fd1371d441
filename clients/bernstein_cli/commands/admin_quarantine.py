"""`bernstein admin quarantine`: what a stolen certificate touched, and a fence around it."""

from datetime import UTC, datetime
from pathlib import Path

import click

from bernstein_cli.output import document, remark, say
from bernstein_cli.services_options import json_option, sdd_dir_option
from bernstein_client.connection import Services
from bernstein_client.values import ChangedThing


@click.command()
@click.option("--caller", required=True, metavar="NAME", help="The caller, as in its certificate.")
@click.option("--since", metavar="INSTANT", help="From when on: 2026-03-01T10:00:00Z, or a day.")
@click.option("--fence", is_flag=True, help="Refuse its calls, and additions to what it changed.")
@click.option("--lift", is_flag=True, help="Take a fence down again.")
@sdd_dir_option
@json_option
def quarantine(
    *, caller: str, since: str | None, fence: bool, lift: bool, sdd_dir: Path, as_json: bool
) -> int:
    """List what NAME changed in this origin since INSTANT, to the hour; with --fence, stop it.

    Behind a fence every call of NAME is refused, and nothing is appended to, sealed or signed of
    what it changed, by whomever; reading goes on. Fence and lifting are events of the audit log.
    """
    if lift == bool(since) or (fence and lift):
        raise click.UsageError("give --since INSTANT, with --fence or without; or --lift alone")
    action = "fence" if fence else "lift" if lift else ""
    with Services(sdd_dir) as services:
        found = services.journal.quarantine(caller, since or "", action)
    if as_json:
        document(
            {
                "caller": caller,
                "is_fenced": found.is_fenced,
                "changed": [
                    {
                        "kind": each.kind,
                        "id": each.id,
                        "first_at": _instant(each.first_at),
                        "last_at": _instant(each.last_at),
                        "calls": list(each.methods),
                        "is_own": each.is_own,
                    }
                    for each in found.changed
                ],
            }
        )
        return 0
    for each in found.changed:
        say(f"{_instant(each.first_at)}  {_named(each)}  {', '.join(each.methods)}")
    if not found.changed and not lift:
        remark(f"{caller} changed nothing since then, as far as is known")
    remark(f"calls of {caller} are {'refused' if found.is_fenced else 'not refused'}")
    return 0


def _named(thing: ChangedThing) -> str:
    if not thing.id:
        return "the audit log"
    return f"{thing.kind} {thing.id}" + ("" if thing.is_own else " (of another caller)")


def _instant(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
