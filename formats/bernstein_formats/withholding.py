"""Copies of a receipt in which the payload of chosen rows is left out, under the same signature.

A row's hash needs no more of its payload than the payload's hash, so a row that keeps its envelope
verifies without it. The form is ours alone (docs/formats/withheld-receipts.md): the peer refuses
such a file. Whoever guesses a payload can check the guess against the hash that stays.
"""

import re
from collections.abc import Iterable
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput, ReceiptMalformed
from bernstein_formats.journal_reader import Row
from bernstein_formats.receipt_events import BOUND_EVENTS, WITHHELD_MEMBER
from bernstein_formats.receipt_lines import read_object
from bernstein_formats.receipt_members import block, items
from bernstein_formats.receipt_verify import verify_receipt

_ENVELOPE: Final = ("event", "event_hash", "index", "payload_hash", "prev_hash")
_SPAN: Final = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")


def parse_steps(text: str, count: int) -> frozenset[int]:
    """The steps that a list like `3,5-7` names, of a journal with `count` rows, from 0."""
    steps: set[int] = set()
    for part in text.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise InvalidInput(f"{part!r:.80} names no steps; write them like 3,5-7")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < count:
            raise InvalidInput(f"the receipt has no steps {part.strip()}, only 0 to {count - 1}")
        steps.update(range(first, last + 1))
    return frozenset(steps)


def withheld_copy(receipt: bytes, steps: Iterable[int]) -> bytes:
    """The receipt without the payloads of those rows, in canonical bytes.

    Raises ReceiptMalformed for a receipt that does not verify, and InvalidInput for a row whose
    payload says something that the signature covers, or how all rows are hashed.
    """
    verdict = verify_receipt(receipt)
    if not verdict.ok:
        raise ReceiptMalformed(f"the receipt itself does not verify: {verdict.errors[0]}")
    members = read_object(receipt)
    events = items(block(members, "journal"), "events", "journal")
    for step in steps:
        events[step] = _withheld(step, events[step])
    copy = canonical_bytes(members, Profile.PY_JSON) + b"\n"
    if not verify_receipt(copy).ok:
        raise ReceiptMalformed("the receipt would not verify without these rows; withhold others")
    return copy


def _withheld(step: int, row: JsonValue) -> Row:
    assert isinstance(row, dict)  # the receipt verified
    if row["event"] in BOUND_EVENTS:
        raise InvalidInput(
            f"step {step} is {row['event']}: the receipt's signature covers what is in it, so it"
            " cannot be withheld",
            step=step,
        )
    if step == 0 and "hash_profile" in row:
        raise InvalidInput(
            "step 0 says how all rows are hashed (hash_profile), so it cannot be withheld", step=0
        )
    return {**{name: row[name] for name in _ENVELOPE}, WITHHELD_MEMBER: True}
