"""Laws of receipts: what is built verifies, any other byte is noticed, both ways read the same."""

import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.event_journal import RESERVED_NAMES, ChainHead, next_row
from bernstein_formats.public_key import PublicKey
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_head, receipt_tail
from bernstein_formats.receipt_read import canonical_document, parsed_document
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import ReceiptSignature

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))  # TEST-ONLY
KEY = PublicKey(PRIVATE.public_key().public_bytes_raw())

names = st.text(max_size=8)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
payloads = st.dictionaries(
    names.filter(lambda name: name not in RESERVED_NAMES), values, max_size=5
)
events = st.sampled_from(["step", "agent_spawned", "loaded_extension_set", "größe"])
journals = st.lists(st.tuples(events, payloads), min_size=1, max_size=5)


def built(rows, journal_profile: Profile = Profile.PY_JSON) -> bytes:
    head, lines = ChainHead(profile=journal_profile), []
    for event, payload in rows:
        line, head = next_row(head, event, payload, 1.5, 0.5)
        lines.append(line)
    builder = ReceiptBuilder("r")
    chunks = b"".join(builder.event_chunks(lines))
    subject = builder.subject()
    signature = ReceiptSignature("k", KEY, PRIVATE.sign(subject.preimage()))
    return receipt_head(len(lines)) + chunks + receipt_tail(subject, (), signature)


@given(journals, st.sampled_from(Profile))
def test_what_is_built_verifies(rows, profile):
    receipt = built(rows, profile)
    verdict = verify_receipt(receipt, KEY)
    assert verdict.ok, verdict.errors
    assert verdict.journal_events == len(rows)
    assert verdict.layout_findings == verdict.warnings == ()


@given(journals)
def test_a_receipt_is_its_own_canonical_rebuild_and_both_ways_read_the_same(rows):
    receipt = built(rows)
    assert canonical_bytes(json.loads(receipt), Profile.PY_JSON) + b"\n" == receipt
    quick = [row for row, _ in canonical_document(receipt).rows]
    assert quick == [row for row, _ in parsed_document(receipt).rows]


@given(journals, st.data())
def test_the_layout_decides_nothing(rows, data):
    receipt = built(rows)
    indent = data.draw(st.sampled_from([None, 1, "\t"]))
    spaced = json.dumps(json.loads(receipt), indent=indent, ensure_ascii=data.draw(st.booleans()))
    verdict = verify_receipt(spaced.encode("utf-8", "surrogatepass"))
    assert verdict.ok, verdict.errors
    assert verdict.layout_findings != ()


RECEIPT = built([("agent_spawned", {"endpoint_adapter_name": "a", "x": [1.5, {"é": "}],"}]})] * 3)


def is_noticed(at: int, flip: int) -> bool:
    damaged = bytearray(RECEIPT)
    damaged[at] ^= flip
    verdict = verify_receipt(bytes(damaged), KEY)
    return not verdict.ok or bool(verdict.layout_findings or verdict.warnings)


@settings(max_examples=300)
@given(st.integers(0, len(RECEIPT) - 1), st.integers(1, 255))
def test_any_other_byte_is_noticed(at, flip):
    assert is_noticed(at, flip)


def test_the_lowest_bit_of_every_byte_is_noticed():
    assert [at for at in range(len(RECEIPT)) if not is_noticed(at, 1)] == []


@given(st.integers(0, len(RECEIPT)), st.binary(max_size=6))
def test_hostile_bytes_never_raise(at, inserted):
    verdict = verify_receipt(RECEIPT[:at] + inserted + RECEIPT[at:])
    assert verdict.exit_code() in {0, 1, 2}


@given(st.binary(max_size=60))
def test_any_bytes_get_a_verdict(data):
    assert not verify_receipt(data).ok
