"""`bernstein verify run RUN`: have the journal build a run's receipt, and a signer sign it."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from bernstein_cli.audit_options import (
    audit_key_file,
    audit_options,
    audit_remarks,
    audit_wanted,
)
from bernstein_cli.completion import complete_runs
from bernstein_cli.fleet_place import in_fleet
from bernstein_cli.once_signer import once_signer
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.progress import Progress
from bernstein_cli.receipt_output import Write, check_output, write_receipt
from bernstein_cli.recording_scan import refuse_recorded_secrets
from bernstein_cli.secret_scan import refuse_secrets
from bernstein_cli.signing_key import (
    NAME_VARIABLE,
    PATH_VARIABLE,
    SigningKey,
    choose_key,
    require_resident_key,
)
from bernstein_client.connection import Services
from bernstein_client.values import AuditRangeWanted, BuiltReceipt, OnceSigner
from bernstein_formats import paths
from bernstein_formats.errors import RunNotFound
from bernstein_formats.run_receipt import COSE_FILE
from bernstein_runtime.protection import hide


@click.command(name="run")
@click.argument("run_id", shell_complete=complete_runs)
@click.option(
    "-w",
    "--workdir",
    default=".",
    show_default=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project folder; its .sdd holds the run.",
)
@click.option(
    "--signing-key-path",
    type=click.Path(exists=True, dir_okay=False, readable=False),
    metavar="FILE",
    help="The Ed25519 key: PEM, or 32 raw bytes.",
)
@click.option("--signing-env-var", metavar="NAME", help="The variable that holds the key.")
@click.option("--signing-key-id", default="", metavar="KID", help="The key's name in the receipt.")
@audit_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where the receipt goes.")
@click.option("--allow-secrets", is_flag=True, help="Sign without searching the rows for secrets.")
@click.option("--unfinished", is_flag=True, help="Sign what there is of a run that has not ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def verify_run(
    *,
    run_id: str,
    workdir: Path,
    signing_key_path: str | None,
    signing_env_var: str | None,
    signing_key_id: str,
    include_audit_range: bool,
    audit_since: str | None,
    audit_until: str | None,
    own_events: bool,
    all_runs: bool,
    output: Path | None,
    allow_secrets: bool,
    unfinished: bool,
    as_json: bool,
) -> int:
    """Build and sign the receipt of RUN_ID: one file that an auditor can verify offline.

    The key is read by a signer process of its own, never by this command. Nothing is written when
    anything is wrong. Exit codes: 0 written, 1 refused, 2 wrong usage or no key.
    """
    sdd_dir = workdir / ".sdd"
    key = choose_key(signing_key_path, signing_env_var, signing_key_id, os.environ)
    if key.variable:
        hide()
    audit = audit_wanted(
        included=include_audit_range,
        since=audit_since,
        until=audit_until,
        own_events=own_events,
        all_runs=all_runs,
    )
    if output is not None:
        check_output(output)
    with (
        _services(sdd_dir, run_id) as services,
        _signer(key, services, with_audit=audit is not None) as signer,
    ):
        if not allow_secrets:
            rows = services.journal.read_journal(run_id)
            refuse_secrets(f"the journal of run {run_id}", rows)
            refuse_recorded_secrets(services, run_id)
        built, cose = _build(services, run_id, signer, output, audit, unfinished=unfinished)
    receipt = str(output or built.receipt_path)
    for text in audit_remarks(built, all_runs=all_runs):
        remark(text)
    if as_json:
        document(built_document(built, receipt, cose))
    else:
        for line in built_lines(built, receipt, cose):
            say(line)
        remark(_advice(run_id, receipt))
    return 0


def _advice(run_id: str, receipt: str) -> str:
    """A receipt may be in a database, from which it is exported first."""
    if os.path.exists(receipt):  # noqa: PTH110 - a database's place is no path
        return f"verify it with `bernstein verify receipt {shlex.quote(receipt)}`"
    return f"`bernstein admin export {run_id} DIR` writes it to a file with all of the run"


@contextmanager
def _services(sdd_dir: Path, run_id: str) -> Iterator[Services]:
    if not sdd_dir.is_dir() and not in_fleet(sdd_dir):
        where = Path(os.path.realpath(sdd_dir)) / paths.journal_path(run_id)
        raise RunNotFound(f"there is no journal of run {run_id}: {where}", run_id=run_id)
    with Services(sdd_dir) as services:
        yield services


@contextmanager
def _signer(
    key: SigningKey, services: Services, *, with_audit: bool
) -> Iterator[OnceSigner | None]:
    """The signer of this receipt; None is the project's own."""
    if services.is_remote and not key.is_resident:
        raise click.UsageError(
            "receipts of a fleet's runs are signed by its signer, not by a key of this host: leave"
            f" out --signing-key-path, --signing-env-var, {PATH_VARIABLE} and {NAME_VARIABLE}"
        )
    if key.is_resident:
        if not services.is_remote:
            require_resident_key(services.places, os.environ)
        yield None
        return
    audit_key = audit_key_file(services.places, os.environ) if with_audit else None
    with once_signer(key, services.places, os.environ, audit_key) as signer:
        yield signer


def _build(
    services: Services,
    run_id: str,
    signer: OnceSigner | None,
    output: Path | None,
    audit: AuditRangeWanted | None,
    *,
    unfinished: bool,
) -> tuple[BuiltReceipt, str]:
    """The receipt, and where its COSE file is."""
    ask = partial(
        services.journal.build_receipt, run_id, signer, audit=audit, unfinished=unfinished
    )
    with Progress("building the receipt") as progress:
        if output is None:
            built = ask(progress=progress)
            folder, slash, _ = built.receipt_path.rpartition("/")
            return built, f"{folder}{slash}{COSE_FILE}"

        def build(write: Write) -> BuiltReceipt:
            return ask(write=write, progress=progress)

        built, cose = write_receipt(output, build)
        shown = cose if output.is_symlink() else output.with_name(cose.name)
        return built, str(shown)


def built_document(built: BuiltReceipt, receipt: str, cose: str) -> dict[str, Printed]:
    """The JSON."""
    return {
        "run_id": built.run_id,
        "journal_head": built.journal_head,
        "journal_events": built.row_count,
        "spine_head": built.spine_head or None,
        "spine_entries": built.spine_entry_count,
        "receipt_sha256": built.receipt_sha256_hex,
        "key_id": built.key_id,
        "receipt_path": receipt,
        "cose_path": cose,
        "size_bytes": built.size_bytes,
        "audit_events": built.audit.event_count if built.audit else None,
        "audit_foreign_events": built.audit.foreign_event_count if built.audit else None,
    }


def built_lines(built: BuiltReceipt, receipt: str, cose: str) -> Iterator[str]:
    """The lines for people."""
    yield f"receipt of run {built.run_id}"
    yield f"journal head  {built.journal_head}  ({built.row_count} rows)"
    yield f"spine head    {built.spine_head or '-'}  ({built.spine_entry_count} entries)"
    if built.audit:
        yield f"audit range   {built.audit.head_hmac}  ({built.audit.event_count} events)"
    yield f"key           {built.key_id}"
    yield f"SHA-256       {built.receipt_sha256_hex}"
    yield f"written to    {receipt}"
    yield f"and           {cose}"
