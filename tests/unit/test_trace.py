"""The id that goes with every call."""

import pytest

from bernstein_runtime import trace

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_trace_is_read_as_it_is_written() -> None:
    made = trace.new_trace()

    assert trace.trace_in(made.as_header()) == made
    assert trace.trace_in(HEADER) == trace.Trace(HEADER[3:35], HEADER[36:52])


@pytest.mark.parametrize(
    "header",
    [
        "",
        HEADER.upper(),
        HEADER + "\n",
        HEADER.replace("00-4", "ff-4"),
        HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        HEADER.replace("00f067aa0ba902b7", "0" * 16),
        HEADER + "-" + "x" * 5000,
        '{"trace_id": "forged"}',
    ],
)
def test_a_header_that_names_no_trace_is_no_trace(header: str) -> None:
    assert trace.trace_in(header) is None


def test_what_works_for_a_request_knows_it_and_afterwards_what_was_before() -> None:
    outer, inner = trace.new_trace(), trace.new_trace()
    before = trace.current()  # of a command that a test ran within this process, perhaps

    with trace.within(outer):
        with trace.within(inner):
            assert trace.current() == inner
        assert trace.current() == outer
    assert trace.current() == before
