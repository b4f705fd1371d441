"""Laws of key chains and instants."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_formats.instants import parse_instant
from bernstein_formats.key_chain import entry_preimage
from bernstein_formats.key_chain_build import extended, new_key_chain, revocation, succession
from bernstein_formats.key_chain_read import read_key_chain
from bernstein_formats.public_key import PublicKey

EPOCH = datetime(1, 1, 1, tzinfo=UTC)
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))

instants = st.builds(
    lambda days, microseconds, offset: (
        EPOCH + timedelta(days=days, microseconds=microseconds)
    ).astimezone(offset),
    st.integers(2, 3_652_000),
    st.integers(0, 86_400_000_000),
    offsets,
)
PRIVATE = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(6)]
KEYS = [PublicKey(each.public_key().public_bytes_raw()) for each in PRIVATE]


@given(instants)
def test_an_instant_is_the_same_number_in_every_offset(instant):
    expected = (instant - EPOCH) // timedelta(microseconds=1)
    assert parse_instant(instant.isoformat()) == expected
    assert parse_instant(instant.astimezone(UTC).isoformat()) == expected
    assert parse_instant(instant.astimezone(UTC).isoformat().replace("+00:00", "Z")) == expected


@given(st.text(max_size=40) | st.from_regex(r"[0-9TZ:.+-]{0,40}"))
def test_any_text_is_an_instant_or_invalid_input(text):
    with suppress(InvalidInput):
        assert isinstance(parse_instant(text), int)


def chain_of(revocations: list[bool]) -> list[bytes]:
    """A chain after each of its entries: every key follows, and may be revoked at once."""
    states = [new_key_chain(KEYS[0], "k0")]
    for number, is_revoked in enumerate(revocations):
        at = f"2026-01-{number + 1:02}T00:00:00Z"
        chain = read_key_chain(states[-1], KEYS[0])
        entry = succession(chain, KEYS[number + 1], f"k{number + 1}", at)
        states.append(extended(chain, entry, PRIVATE[number].sign(entry_preimage(entry))))
        if is_revoked:
            chain = read_key_chain(states[-1], KEYS[0])
            entry = revocation(chain, f"k{number}", at, "")
            signature = PRIVATE[number + 1].sign(entry_preimage(entry))
            states.append(extended(chain, entry, signature))
    return states


chains = st.lists(st.booleans(), max_size=len(KEYS) - 1).map(chain_of)


@given(chains)
def test_a_chain_only_grows_and_keeps_the_links_of_what_it_was(states):
    longest = read_key_chain(states[-1], KEYS[0])
    for count, state in enumerate(states):
        chain = read_key_chain(state, KEYS[0])
        assert len(chain.entries) == count
        assert longest.links[: count + 1] == chain.links


@given(chains.filter(lambda states: len(states) > 2), st.data())
def test_no_entry_but_the_last_can_go_and_none_can_change_places(states, data):
    document = json.loads(states[-1])
    order = data.draw(st.permutations(document["entries"]))
    kept = order[: data.draw(st.integers(1, len(order)))]
    changed = {**document, "entries": kept}
    try:
        chain = read_key_chain(canonical_bytes(changed, Profile.PY_JSON), KEYS[0])
    except BernsteinError:
        return
    assert list(chain.entries) == document["entries"][: len(kept)]


@given(chains, st.data())
def test_a_changed_byte_is_refused_or_changes_nothing(states, data):
    text = bytearray(states[-1])
    at = data.draw(st.integers(0, len(text) - 2))
    text[at] ^= data.draw(st.integers(1, 255))
    before = read_key_chain(states[-1], KEYS[0])
    try:
        after = read_key_chain(bytes(text), KEYS[0])
    except BernsteinError:
        return
    # Nothing signs the name of a root that has no entries behind it.
    assert after.entries == before.entries
    assert not after.entries or after == before
