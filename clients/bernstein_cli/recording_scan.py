"""`bernstein replay scan RUN`: secrets in what a run's agents said to their models and heard.

Requests, answers, the joined texts of streams, headers, journal and what was kept of the files
around are searched by the scanner of `secret_scan`. A receipt is refused while something is found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_agent.recorded import environment_event, read_environment
from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import GREEN, RED, Printed, document, say
from bernstein_cli.secret_scan import find_scanner, scan_files
from bernstein_client.connection import Services
from bernstein_formats.errors import Conflict, ReplayRecordingMissingError, Unavailable
from bernstein_formats.http_answer_text import joined_texts, readable
from bernstein_formats.http_exchange import Exchange, parse_envelope

# So much is written down for the scanner at a time.
_BATCH_BYTES: Final = 64 * 1024 * 1024
_BATCH_FILES: Final = 500
_SHOWN_MAX: Final = 10
_JOURNAL: Final = "journal"


@dataclass(frozen=True, slots=True)
class FoundSecret:
    """Where something that looks like a secret stands; `seq` 0: not in an exchange."""

    lane: str
    seq: int
    # request, answer, stream, envelope; quarantine: an answer that was kept apart; of the run:
    # journal, environment, work_tree.
    part: str
    line: int
    rule: str

    def text(self) -> str:
        where = f"lane {self.lane}, request {self.seq}, {self.part}" if self.seq else self.part
        return f"{where}, line {self.line} ({self.rule})"


def scan_run(run_id: str, sdd_dir: Path, *, as_json: bool) -> int:
    """Exit codes: 0 nothing found, 1 something, or it could not be searched, 12 no recording."""
    require_folder(sdd_dir)
    with Services(sdd_dir) as services:
        run_id = services.journal.get_run(run_id).run_id
        exchanges, _ = services.exchanges.read(run_id)
        scanner = find_scanner()
        if scanner is None:
            raise Unavailable(
                "nothing was searched: the scanner is not installed: pip install"
                " 'bernstein-services[secrets]'"
            )
        rest = {_JOURNAL: list(services.journal.read_journal(run_id))}
        searched = _found(services, run_id, exchanges, scanner, rest)
        found = [*_quarantined(exchanges), *searched]
    if as_json:
        document({"run_id": run_id, "searched": len(exchanges), "found": _told(found)})
    else:
        for each in found:
            say(each.text())
        verdict = f"{len(found)} finding(s) in {len(exchanges)} exchange(s) and the journal"
        say(verdict, RED if found else GREEN)
    return exit_codes.FAILED if found else exit_codes.OK


def refuse_recorded_secrets(services: Services, run_id: str) -> None:
    """Raise Conflict if the run has a recording that holds what looks like a secret.

    Its journal is searched by `refuse_secrets`, with a recording or without.
    """
    try:
        exchanges, _ = services.exchanges.read(run_id)
    except ReplayRecordingMissingError:
        return
    scanner = find_scanner()
    found = list(_quarantined(exchanges))
    if scanner is not None:
        found += _found(services, run_id, exchanges, scanner, {})
    if found:
        places = "; ".join(each.text() for each in found[:_SHOWN_MAX])
        more = f"; and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise Conflict(
            f"what the agents of run {run_id} said and heard seems to hold secrets, so it is not"
            f" made public: {places}{more}; `bernstein replay scan {run_id}` lists them; sign with"
            " --allow-secrets if all the same, and give nothing away but the receipt",
            run_id=run_id,
        )


def _told(found: list[FoundSecret]) -> list[Printed]:
    return [
        {
            "lane": each.lane or None,
            "seq": each.seq or None,
            "part": each.part,
            "line": each.line,
            "rule": each.rule,
        }
        for each in found
    ]


def _quarantined(exchanges: list[Exchange]) -> Iterator[FoundSecret]:
    for exchange in exchanges:
        for kind in exchange.quarantined:
            yield FoundSecret(exchange.lane, exchange.seq, "quarantine", 1, kind)


def _found(
    services: Services,
    run_id: str,
    exchanges: list[Exchange],
    scanner: Path,
    rest: dict[str, list[bytes]],
) -> Iterator[FoundSecret]:
    """What the scanner finds in the recording, and in `rest`."""
    batch = {**rest}
    batch |= {part: [text] for part, text in _surroundings(services, run_id)}
    size = 0
    for number, exchange in enumerate(exchanges):
        for part, text in _texts(services, run_id, exchange):
            batch[f"{number}.{part}"] = [text]
            size += len(text)
        if size > _BATCH_BYTES or len(batch) > _BATCH_FILES:
            yield from _scanned(scanner, batch, exchanges)
            batch, size = {}, 0
    yield from _scanned(scanner, batch, exchanges)


def _scanned(
    scanner: Path, batch: dict[str, list[bytes]], exchanges: list[Exchange]
) -> Iterator[FoundSecret]:
    for secret in scan_files(scanner, batch) if batch else ():
        number, _, part = secret.name.partition(".")
        if part:
            exchange = exchanges[int(number)]
            yield FoundSecret(exchange.lane, exchange.seq, part, secret.line, secret.rule)
        else:
            yield FoundSecret("", 0, number, secret.line, secret.rule)


def _surroundings(services: Services, run_id: str) -> Iterator[tuple[str, bytes]]:
    """What was kept of the files and variables around the agents."""
    event = environment_event(services, run_id)
    if event is not None:
        environment = read_environment(services, run_id, event)
        (contents,) = services.exchanges.bodies(run_id, environment.work_tree.contents)
        yield "environment", environment.to_bytes()
        yield "work_tree", contents


def _texts(services: Services, run_id: str, exchange: Exchange) -> Iterator[tuple[str, bytes]]:
    """What there is to read of an exchange; a quarantined answer is known to hold secrets."""
    wanted = [exchange.envelope, exchange.request]
    if not exchange.quarantined:
        wanted.append(exchange.answer.body)
    envelope, request, *answers = services.exchanges.bodies(run_id, *wanted)
    headers = parse_envelope(envelope, exchange).response_headers if answers else ()
    encodings = [value for name, value in headers if name.lower() == "content-encoding"]
    yield "envelope", envelope
    yield "request", request
    for answer in answers:
        text = readable(answer, "".join(encodings))
        yield "answer", text
        yield "stream", "\n".join(joined_texts(text)).encode("utf-8", "replace")
