"""Making receipts of sessions: `replay export` and `replay publish`."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from bernstein_cli import exit_codes
from bernstein_cli.audit_trail import record
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.secret_scan import refuse_secrets
from bernstein_cli.step_answers import AskedSteps
from bernstein_cli.step_source import Steps, read_blob
from bernstein_cli.whole_file import replacing
from bernstein_formats import paths
from bernstein_formats.audit_events import (
    ReplayEvent,
    export_details,
    publish_details,
    replay_event,
)
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import BernsteinError, Conflict, KeyUnusable, NotFound, StoreFailed
from bernstein_formats.redaction import RedactionPolicy, RedactionPreview, redacted_rows
from bernstein_formats.session_archive import MANIFEST
from bernstein_formats.session_journal import is_digest
from bernstein_formats.session_journal_reader import entries
from bernstein_formats.session_receipt import ReceiptRows, SessionManifest, receipt_parts
from bernstein_runtime import VERSION

_CHUNK_BYTES: Final = 256 * 1024
_YEAR_10000: Final = 253_402_300_800
_CONFIRM: Final = (
    "pass --opt-in or --yes-i-want-to-publish to confirm, --preview to see what stays readable"
)


@dataclass(frozen=True, slots=True)
class Made:
    """A receipt that was written."""

    path: str
    manifest: SessionManifest
    signed: bool


def export(asked: AskedSteps, agent_id: str, out: str | None) -> int:
    """`replay export AGENT_ID [OUT]`."""
    try:
        made = export_to(asked, asked.open(agent_id), _output(asked, agent_id, "", out))
    except NotFound as error:
        return asked.missing(error)
    except KeyUnusable as error:
        return asked.refuse("signing_key_unreadable", error.message, exit_codes.FAILED)
    except BernsteinError as error:
        return asked.refuse("export_failed", error.message, exit_codes.FAILED)
    details = export_details(made.manifest.head_hash, made.manifest.steps)
    _audit(asked, ReplayEvent.EXPORT, agent_id, details)
    if asked.as_json:
        document(made_document(agent_id, made))
    else:
        say(f"Exported receipt -> {made.path}")
        for line in _made_lines(made):
            say(line)
    return exit_codes.OK


def export_to(asked: AskedSteps, steps: Steps, path: str) -> Made:
    """Write the receipt of a journal. Raises JournalError when it is empty or does not verify."""
    rows = ReceiptRows("export")
    with tempfile.TemporaryFile() as spool:
        spool.writelines(rows.lines(steps.chunks()))
        manifest = rows.manifest(steps.agent_id, created_at(rows.newest_ts), VERSION)
        blobs = _found_blobs(asked.sdd_dir, manifest.blob_digests)
        return _write(asked, path, manifest, spool, blobs, private=True)


def publish(asked: AskedSteps, agent_id: str, out: str | None) -> int:
    """`replay publish AGENT_ID [OUT]`; the local journal is not touched."""
    options = asked.options
    if not (options.yes_i_want_to_publish or options.preview):
        return asked.refuse("confirmation_required", _CONFIRM, exit_codes.USAGE)
    policy = RedactionPolicy(
        frozenset(options.redact or ("prompt", "tool_result")), options.keep_input_hash
    )
    try:
        steps = asked.open(agent_id)
        original, preview = _previewed(steps, policy)
        if options.preview:
            return _show_preview(asked, agent_id, preview)
        path = _output(asked, agent_id, "redacted", out)
        made = _publish_to(asked, steps, policy, path)
    except NotFound as error:
        return asked.missing(error)
    except KeyUnusable as error:
        return asked.refuse("signing_key_unreadable", error.message, exit_codes.FAILED)
    except BernsteinError as error:
        return asked.refuse("publish_failed", error.message, exit_codes.FAILED)
    details = publish_details(original, made.manifest.head_hash)
    _audit(asked, ReplayEvent.PUBLISH, agent_id, details)
    _say_published(asked, agent_id, original, made, preview)
    return exit_codes.OK


def _previewed(steps: Steps, policy: RedactionPolicy) -> tuple[str, RedactionPreview]:
    """The head of the whole chain, once it has verified, and what would be seen of it."""
    rows, preview = ReceiptRows("publish"), RedactionPreview(policy)
    for line in rows.lines(steps.chunks()):
        for row in entries([line]):
            preview.take(row)
    return rows.head_hash, preview


def _publish_to(asked: AskedSteps, steps: Steps, policy: RedactionPolicy, path: str) -> Made:
    rows = ReceiptRows("publish")
    with tempfile.TemporaryFile() as spool:
        redacted = redacted_rows(entries(steps.chunks()), policy)
        spool.writelines(rows.lines(redacted))
        if not asked.options.allow_secrets:
            refuse_secrets(f"what stays readable of {steps.agent_id}", _parts(spool))
        manifest = rows.manifest(steps.agent_id, created_at(rows.newest_ts), VERSION)
        spool.seek(0, os.SEEK_END)
        return _write(asked, path, manifest, spool, (), private=False)


def _audit(
    asked: AskedSteps, event: ReplayEvent, agent_id: str, details: dict[str, JsonValue]
) -> None:
    if not asked.offline:
        record(asked.sdd_dir, replay_event(event, agent_id, details))


def _say_published(
    asked: AskedSteps, agent_id: str, original: str, made: Made, preview: RedactionPreview
) -> None:
    if asked.as_json:
        members = made_document(agent_id, made)
        first: dict[str, Printed] = {
            "agent_id": agent_id, "output": made.path, "original_head_hash": original,
        }  # fmt: skip
        document(first | members | _preview_members(preview))
    else:
        say(f"Published redacted receipt -> {made.path}")
        say(f"  original head:  {original}")
        for line in _made_lines(made):
            say(line)
    for line in _warnings(preview):
        remark(line)


def _show_preview(asked: AskedSteps, agent_id: str, preview: RedactionPreview) -> int:
    if asked.as_json:
        document({"agent_id": agent_id, "steps": preview.steps, **_preview_members(preview)})
    else:
        say(f"Of {preview.steps} step(s) of {agent_id}, a reader would see")
        for name, count in sorted(preview.readable.items()):
            say(f"  {name}: in {count} step(s)")
        say("and would not see")
        for name, count in sorted(preview.redacted.items()):
            say(f"  {name}: of {count} step(s)")
    for line in _warnings(preview):
        remark(line)
    return exit_codes.OK


def _preview_members(preview: RedactionPreview) -> dict[str, Printed]:
    return {
        "readable": dict(sorted(preview.readable.items())),
        "redacted": dict(sorted(preview.redacted.items())),
        "repeating_steps": list(preview.repeating),
    }


def _warnings(preview: RedactionPreview) -> Iterator[str]:
    yield f"stays readable: {', '.join(sorted(preview.readable))}"
    if preview.repeating:
        steps = ", ".join(map(str, preview.repeating[:10]))
        yield (
            f"a redacted text can be read elsewhere in step(s) {steps}: redact that member too,"
            " with --redact"
        )


def created_at(ts: float) -> str:
    """The second of the last step: the same journal gives the same receipt, whenever it is made."""
    second = int(ts) if 0 <= ts < _YEAR_10000 else 0
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ}"


def made_document(agent_id: str, made: Made) -> dict[str, Printed]:
    """The JSON of a written receipt."""
    return {
        "agent_id": agent_id,
        "output": made.path,
        "head_hash": made.manifest.head_hash,
        "steps": made.manifest.steps,
        "signed": made.signed,
    }


def _made_lines(made: Made) -> Iterator[str]:
    yield f"  head_hash: {made.manifest.head_hash}"
    yield f"  steps:     {made.manifest.steps}"
    yield f"  signed:    {made.signed}"


def _output(asked: AskedSteps, agent_id: str, kind: str, out: str | None) -> str:
    return out or str(asked.sdd_dir / paths.session_receipt_path(agent_id, kind))


def _found_blobs(sdd_dir: Path, digests: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for digest in digests:
        content = read_blob(sdd_dir, digest) if is_digest(digest) else None
        if content is not None:
            yield digest, content


def _write(
    asked: AskedSteps,
    path: str,
    manifest: SessionManifest,
    spool: IO[bytes],
    blobs: Iterable[tuple[str, bytes]],
    *,
    private: bool,
) -> Made:
    size = spool.tell()
    signature = _signature(asked, manifest, spool)
    parts = receipt_parts(manifest, signature, (size, _parts(spool)), blobs)
    write_archive(Path(path), parts, private=private)
    return Made(path, manifest, bool(signature))


def _signature(asked: AskedSteps, manifest: SessionManifest, spool: IO[bytes]) -> bytes:
    """What a signer process makes of the rows; the key is read there only."""
    if asked.options.sign is None:
        return b""
    from bernstein_cli.once_signer import once_signer  # noqa: PLC0415 - gRPC, only where needed
    from bernstein_cli.signing_key import SigningKey  # noqa: PLC0415 - likewise
    from bernstein_client.session_signer import sign_session_receipt  # noqa: PLC0415 - likewise
    from bernstein_runtime.places import places_for  # noqa: PLC0415 - likewise

    places = places_for(asked.sdd_dir, os.environ)
    key = SigningKey(path=os.path.realpath(asked.options.sign))
    with once_signer(key, places, os.environ) as signer:
        return sign_session_receipt(signer, manifest, _parts(spool)).signature


def _parts(spool: IO[bytes]) -> Iterator[bytes]:
    spool.seek(0)
    while chunk := spool.read(_CHUNK_BYTES):
        yield chunk


def write_archive(path: Path, parts: Iterable[bytes], *, private: bool) -> None:
    """Write a receipt whole or not at all, over nothing but a receipt. `private`: mode 0600."""
    path = Path(os.path.realpath(path))
    if path.exists() and not (path.is_file() and _is_receipt(path)):
        raise Conflict(f"{path} is no session receipt and stays; name another file", path=path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, 0o600 if private else 0o666) as file:
            file.writelines(parts)
    except OSError as error:
        raise StoreFailed(f"cannot write {path}: {error.strerror}", path=path) from error


def _is_receipt(path: Path) -> bool:
    """Whether a file begins as every receipt does."""
    with path.open("rb") as file:
        head = file.read(len(MANIFEST) + 1)
    return not head or head == MANIFEST.encode() + b"\0"
