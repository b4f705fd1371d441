"""`bernstein admin pki`: certificates for a fleet that has no CA of its own yet."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from bernstein_cli.authority import (
    DAYS,
    DAYS_MAX,
    Authority,
    Certificate,
    Use,
    described,
    issued,
    make_authority,
)
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.services_options import json_option
from bernstein_runtime.clock import SystemClock

_DIR: Final = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))

_USES: Final = click.Choice([each.value for each in Use])
_DAYS: Final = click.IntRange(1, DAYS_MAX)


@click.group()
def pki() -> None:
    """Make certificates for services and their callers, by a small private CA.

    Keys are ECDSA P-256, in files of mode 0600; no file is ever overwritten. Keep DIR off the
    hosts of the fleet: whoever has the CA's key can be any caller.
    """


@pki.command()
@_DIR
@click.option("--name", default="bernstein-fleet", show_default=True, help="The CA's own name.")
@json_option
def init(*, folder: Path, name: str, as_json: bool) -> int:
    """Make a CA in DIR, a new folder: ca.pem is for every host, ca-key.pem for nobody."""
    ca = make_authority(folder, name, _now())
    if as_json:
        document({"ca_path": str(ca)})
    else:
        say(f"CA {ca}")
        remark("every host needs it as [tls] ca_file; the key beside it stays here")
    return 0


@pki.command()
@_DIR
@click.argument("name", metavar="NAME")
@click.option("--role", type=_USES, required=True, help="What NAME is.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Where a service is reached.")
@click.option("--days", type=_DAYS, default=DAYS, show_default=True, help="How long it is valid.")
@json_option
def issue(
    *, folder: Path, name: str, role: Use, hosts: tuple[str, ...], days: int, as_json: bool
) -> int:
    """Issue a certificate for NAME with a new key; both are files in DIR/issued.

    A service is dialled by every --host; a caller needs none. Put the two files in the place of
    the old ones, and services and clients take them without a restart.
    """
    made, key_path = Authority(folder).issue(name, Use(role), hosts, days, _now())
    if as_json:
        document({**_facts(made), "key_path": str(key_path)})
    else:
        say(f"certificate {made.path}")
        say(f"key         {key_path}")
        remark(f"valid until {_instant(made.ends)}")
    return 0


@pki.command("list")
@_DIR
@json_option
def list_(*, folder: Path, as_json: bool) -> int:
    """List the certificates that the CA in DIR issued."""
    found = list(issued(folder))
    if as_json:
        document({"certificates": [_facts(each) for each in found]})
        return 0
    for each in found:
        until = f"until {_instant(each.ends)}{_expired(each)}"
        say(f"{each.name:<24} {each.use:<8} {until}  {each.path.name}")
    return 0


@pki.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@json_option
def show(*, path: Path, as_json: bool) -> int:
    """Show whom the certificate in FILE names, and how long it is valid."""
    found = described(path)
    if as_json:
        document(_facts(found))
        return 0
    say(f"name   {found.name}")
    say(f"role   {found.use}")
    for host in found.hosts:
        say(f"host   {host}")
    say(f"serial {found.serial}")
    say(f"from   {_instant(found.begins)}")
    say(f"until  {_instant(found.ends)}{_expired(found)}")
    return 0


def _facts(certificate: Certificate) -> dict[str, Printed]:
    return {
        "name": certificate.name,
        "role": certificate.use,
        "hosts": list(certificate.hosts),
        "serial": certificate.serial,
        "valid_from": _instant(certificate.begins),
        "valid_until": _instant(certificate.ends),
        "is_valid": certificate.is_valid(_now()),
        "path": str(certificate.path),
    }


def _instant(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%SZ}"


def _expired(certificate: Certificate) -> str:
    return "" if certificate.is_valid(_now()) else " (not valid now)"


def _now() -> datetime:
    """Whole seconds, as in certificates."""
    return datetime.fromtimestamp(int(SystemClock().now_seconds()), UTC)
