"""Laws of keys and streams: spelling and pieces do not matter, values do."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bernstein_formats.http_key import HttpRequest, keyed
from bernstein_formats.http_protocol import Protocol
from bernstein_formats.sse_end import StreamEnd

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
bodies = st.dictionaries(st.sampled_from(["messages", "input", "metadata", "tools", "x"]), values)
paths = st.sampled_from(["/anthropic/v1/messages", "/openai/v1/responses", "/g/m:generateContent"])


def key_of(path: str, text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return keyed(HttpRequest("POST", path, (), (), data)).key


@given(paths, bodies, bodies)
def test_two_spellings_of_one_value_share_a_key(
    path: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    spread = json.dumps(dict(reversed(body.items())), indent=1)

    assert key_of(path, json.dumps(body)) == key_of(path, spread)
    if path.endswith("/messages") and repr(body.get("x")) != repr(other.get("x")):
        changed = {**body, "x": other.get("x")}
        assert key_of(path, json.dumps(changed)) != key_of(path, json.dumps(body))


@given(st.lists(st.integers(0, 200)), st.booleans())
def test_any_cut_of_a_stream_gives_the_same_end(cuts: list[int], has_end: bool) -> None:
    frames = 'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"ü"}}\n\n'
    data = (frames + ("data: [DONE]\r\n\r\n" if has_end else "data: [DONE]\n")).encode()
    stream = StreamEnd(Protocol.OPENAI_CHAT)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(places):
        stream.feed(data[start:end])

    assert (stream.is_finished, stream.stop_reason) == (has_end, "ü")
