"""`events.jsonl`: what a gateway's calls answered, written in order and served again by key.

Rules: docs/formats/llm-record-replay.md, section 3. Where the peer's loader stops at a line that is
no object, that line is passed over here.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bernstein_formats.canonical import JsonValue, spelled
from bernstein_formats.errors import (
    ReplayDivergenceError,
    ReplayKeySchemeMismatchError,
    ReplayMissError,
)
from bernstein_formats.gateway_keys import SCHEME, parse_stored_key, stored_key
from bernstein_formats.journal_reader import Row, accepted_rows

_UNVERSIONED = "unversioned"


def fixture_line(
    kind: str,
    key: str,
    response: object,
    *,
    ts: float,
    seq: int,
    metadata: Mapping[str, JsonValue] | None = None,
) -> bytes:
    """Make one line, its LF included; `key` is the caller's, `seq` counts from 1."""
    row: dict[str, JsonValue] = {
        "ts": ts,
        "kind": kind,
        "key": stored_key([key]),
        "response": recorded_response(response),
    }
    if metadata:
        row["metadata"] = dict(metadata)
    row["seq"] = seq
    return spelled(row).encode() + b"\n"


def recorded_response(value: object) -> JsonValue:
    """Turn an answer into what is stored of it: anything that is not JSON becomes what Python
    prints of it, or what its own `to_dict` gives."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [recorded_response(item) for item in value]
    if isinstance(value, dict):
        return {str(name): recorded_response(member) for name, member in value.items()}
    to_dict = getattr(value, "to_dict", None)
    if callable(to_dict):
        try:
            return recorded_response(to_dict())
        except (TypeError, ValueError):
            return repr(value)
    return repr(value)


@dataclass(frozen=True, slots=True)
class Fixture:
    """One recorded answer."""

    kind: str
    key: str
    response: JsonValue
    order: tuple[int, int]


class GatewayReplay:
    """Answers from fixtures, each once. Not safe for two threads at once."""

    def __init__(
        self,
        chunks: Iterable[bytes] | None,
        *,
        source: str,
        is_lenient: bool = False,
        scheme: str = SCHEME,
    ) -> None:
        """`chunks` are the file's, None where there is none; `source` names it in messages."""
        if chunks is None:
            raise ReplayMissError(
                f"there is no events log at {source}; record one with BERNSTEIN_RECORD=1"
            )
        self._source = source
        self._is_lenient = is_lenient
        self._scheme = scheme
        fixtures = [_fixture(number, row) for number, row in accepted_rows(chunks)]
        self._schemes = {parse_stored_key(each.key)[0] or _UNVERSIONED for each in fixtures}
        self._left: defaultdict[str, dict[int, Fixture]] = defaultdict(dict)
        self._by_key: defaultdict[tuple[str, str], deque[int]] = defaultdict(deque)
        for position, each in enumerate(sorted(fixtures, key=lambda each: each.order)):
            self._left[each.kind][position] = each
            self._by_key[each.kind, each.key].append(position)
        self.warnings: list[str] = []

    def answer(self, kind: str, key: str) -> JsonValue:
        """The next answer recorded for a caller's key. Raises ReplayKeySchemeMismatchError,
        ReplayDivergenceError (nothing is used up), ReplayMissError."""
        self._check_schemes()
        stored = stored_key([key], self._scheme)
        left = self._left.get(kind, {})
        positions = self._by_key.get((kind, stored), deque())
        while positions:
            fixture = left.pop(positions.popleft(), None)
            if fixture is not None:
                return fixture.response
        if not left:
            raise self._exhausted(kind, stored)
        position, following = next(iter(left.items()))
        if not self._is_lenient:
            raise ReplayDivergenceError(
                f"replay divergence: kind={kind!r} got key={stored!r}"
                f" expected key={following.key!r}",
                kind=kind,
                got_key=stored,
                expected_key=following.key,
            )
        del left[position]
        self.warnings.append(
            f"BERNSTEIN_REPLAY_LENIENT: FIFO fallback kind={kind!r} got_key={stored!r}"
            f" expected_key={following.key!r}"
        )
        return following.response

    def _check_schemes(self) -> None:
        if not self._schemes:
            raise ReplayMissError(
                f"{self._source} holds no fixture; record again with BERNSTEIN_RECORD=1"
            )
        if self._schemes != {self._scheme}:
            recorded = ",".join(sorted(self._schemes))
            raise ReplayKeySchemeMismatchError(
                f"{self._source}: recorded under scheme {recorded}, current is {self._scheme};"
                " record again to compare",
                recorded_scheme=recorded,
                current_scheme=self._scheme,
            )

    def _exhausted(self, kind: str, stored: str) -> ReplayDivergenceError | ReplayMissError:
        text = f"kind={kind!r} got key={stored!r}; no recorded event of this kind remains"
        if self._is_lenient:
            return ReplayMissError(f"{self._source}: {text}", kind=kind, key=stored)
        return ReplayDivergenceError(f"replay divergence: {text}", kind=kind, got_key=stored)


def _fixture(number: int, row: Row) -> Fixture:
    seq = row.get("seq")
    order = (seq if isinstance(seq, int) else number, number)
    return Fixture(str(row.get("kind", "")), str(row.get("key", "")), row.get("response"), order)


def parse_switch(text: str) -> bool:
    """Whether the text of BERNSTEIN_RECORD or BERNSTEIN_REPLAY_LENIENT switches it on."""
    return text.strip().lower() in {"1", "true", "yes", "on"}
