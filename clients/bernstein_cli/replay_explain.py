"""`bernstein replay explain RUN`: which rules changed the keys of recorded requests, and how."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_cli import exit_codes
from bernstein_cli.fleet_place import require_folder
from bernstein_cli.output import Printed, document, remark, say
from bernstein_cli.table import table_lines, width
from bernstein_client.connection import Services
from bernstein_formats.http_exchange import Exchange
from bernstein_formats.http_key import keyed
from bernstein_formats.http_replay import check_rules
from bernstein_formats.http_rule_file import RULE_SET

_EXAMPLES_MAX: Final = 3
_EXAMPLE_CHARACTERS: Final = 60
# How people read what a rule does.
_DONE: Final = {"drop": "dropped", "sort": "sorted", "rename": "renamed", "mask": "masked"}


@dataclass(frozen=True, slots=True)
class Explained:
    """One recorded request: what each rule took away, and whether its key is made again."""

    exchange: Exchange
    taken: dict[str, list[str]]
    is_same_key: bool


def explain(run_id: str, sdd_dir: Path, *, as_json: bool) -> int:
    """Exit codes: 0 every key is made again, 1 one is not, 12 no recording, 13 other rules."""
    require_folder(sdd_dir)
    with Services(sdd_dir) as services:
        run_id = services.journal.get_run(run_id).run_id
        found = list(_explained(services, run_id))
    if as_json:
        document(_document(run_id, found))
    else:
        for line in _lines(found):
            say(line)
    other = [each.exchange for each in found if not each.is_same_key]
    for exchange in other:
        remark(
            f"lane {exchange.lane}, request {exchange.seq}: its key is not the one that its stored"
            " request has; the recording was changed"
        )
    return exit_codes.FAILED if other else exit_codes.OK


def _explained(services: Services, run_id: str) -> Iterator[Explained]:
    exchanges, _ = services.exchanges.read(run_id)
    for exchange in exchanges:
        check_rules(exchange)
        again = keyed(services.exchanges.request(run_id, exchange))
        examples = {name: _examples(texts) for name, texts in again.taken.items()}
        yield Explained(exchange, examples, again.key == exchange.key)


def _examples(texts: list[str]) -> list[str]:
    return [
        text if len(text) <= _EXAMPLE_CHARACTERS else f"{text[:_EXAMPLE_CHARACTERS]}…"
        for text in texts[:_EXAMPLES_MAX]
    ]


def _done(rule: str) -> str:
    action = RULE_SET.action_of(rule)
    return _DONE[action] if action else "replaced"


def _document(run_id: str, found: list[Explained]) -> dict[str, Printed]:
    return {
        "run_id": run_id,
        "rule_set": RULE_SET.version,
        "rules_sha256": RULE_SET.sha256_hex,
        "requests": [
            {
                "lane": each.exchange.lane,
                "seq": each.exchange.seq,
                "path": each.exchange.path,
                "key": each.exchange.key,
                "key_is_made_again": each.is_same_key,
                "rules": [
                    {"rule": rule, "did": _done(rule), "count": count, "examples": each.taken[rule]}
                    for rule, count in each.exchange.rules.items()
                    if rule in each.taken
                ],
            }
            for each in found
        ],
    }


def _lines(found: list[Explained]) -> Iterator[str]:
    yield f"rule set {RULE_SET.version} ({RULE_SET.sha256_hex[:16]}), {len(found)} request(s)"
    counts: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for each in found:
        counts.update(each.exchange.rules)
        requests.update(each.exchange.rules.keys())
        for rule, texts in each.taken.items():
            examples.setdefault(rule, repr(texts[0]))
    if not counts:
        yield "No rule changed anything: every key is made of the whole request."
        return
    rows = [
        (rule, _done(rule), str(count), str(requests[rule]), examples.get(rule, ""))
        for rule, count in sorted(counts.items())
    ]
    yield from table_lines(("rule", "did", "values", "requests", "for example"), rows, width())
    for each in found:
        fired = ", ".join(f"{rule} x{count}" for rule, count in each.exchange.rules.items())
        yield f"{each.exchange.lane} {each.exchange.seq} {each.exchange.path}: {fired or 'none'}"
