"""Options of `verify run` about the audit log.

Without `--own-events` a range holds every event of its window, as the peer's does: the bytes must
be the same. So that nobody publishes other runs' events unawares, they are counted aloud.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from bernstein_client.values import AuditRangeWanted, BuiltReceipt
from bernstein_formats.audit_range import AuditWindow
from bernstein_formats.errors import InvalidInput
from bernstein_runtime.config import SignerConfig, load_table
from bernstein_runtime.places import Places, audit_key_path
from bernstein_runtime.supervisor import PEER_AUDIT_KEY

Command = Callable[..., Any]

_OPTIONS = (
    click.option(
        "--include-audit-range",
        is_flag=True,
        help="Embed a window of the audit log, verified first.",
    ),
    click.option(
        "--audit-since",
        metavar="INSTANT",
        help="Where it begins: 2026-03-01T10:00:00Z, or a day of UTC.",
    ),
    click.option(
        "--audit-until",
        metavar="INSTANT",
        help="Where it ends; this instant, or day, is left out.",
    ),
    click.option("--own-events", is_flag=True, help="Leave out events that do not name the run."),
    click.option("--all-runs", is_flag=True, help="Other runs' events are wanted: say nothing."),
)


def audit_options(command: Command) -> Command:
    """The options, in this order."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def audit_wanted(
    *, included: bool, since: str | None, until: str | None, own_events: bool, all_runs: bool
) -> AuditRangeWanted | None:
    """The window that is asked for. UsageError for bounds that name none."""
    if not included:
        return None
    if since is None or until is None:
        raise click.UsageError("--include-audit-range needs --audit-since and --audit-until")
    if own_events and all_runs:
        raise click.UsageError("--own-events and --all-runs exclude each other")
    try:
        AuditWindow.parse(since, until)
    except InvalidInput as error:
        raise click.UsageError(error.message) from error
    return AuditRangeWanted(since, until, own_events)


def audit_key_file(places: Places, environ: Mapping[str, str]) -> Path:
    """The key for a signer of one receipt: the peer's variable, else the resident signer's."""
    named = environ.get(PEER_AUDIT_KEY)
    if named:
        return Path(os.path.abspath(named))  # noqa: PTH100 - links stay
    config = load_table(SignerConfig, "signer", places.state_dir, environ)
    return audit_key_path(config.audit_key_file, environ)


def audit_remarks(built: BuiltReceipt, *, all_runs: bool) -> Iterator[str]:
    """What to know before the receipt is given away."""
    audit = built.audit
    if audit is None:
        return
    if not audit.event_count:
        yield "the audit range is EMPTY: no event lies in this window"
    if audit.foreign_event_count and not all_runs:
        yield (
            f"{audit.foreign_event_count} of {audit.event_count} audit events do not name this run"
            " and are in the receipt with all their details: `--own-events` leaves them out,"
            " `--all-runs` says that they are wanted"
        )
