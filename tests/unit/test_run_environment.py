"""What the peer's environment variables switch on, by the golden table and by our own reading."""

import json
from pathlib import Path

import pytest

from bernstein_cli.run_environment import odd_values, read_run_environment

TABLE = json.loads(
    (Path(__file__).parents[1] / "vectors/data/llm/032-env-flags/expected.json").read_bytes()
)


@pytest.mark.parametrize(("text", "expected"), list(TABLE.items()))
def test_the_switches_of_a_run_are_read_as_by_the_peer(
    text: str, expected: dict[str, bool]
) -> None:
    found = read_run_environment(
        {
            "BERNSTEIN_REPLAY_ALLOW_LIVE_MISS": text,
            "BERNSTEIN_DETERMINISTIC_SEED": text,
            "BERNSTEIN_REPLAY_RUN_ID": text,
        }
    )

    assert expected["allow_live_miss"] == found.allow_live_miss
    assert expected["deterministic_mode_by_seed"] == bool(found.seed)
    assert expected["deterministic_mode_by_replay"] == bool(found.replay_run_id)


@pytest.mark.parametrize(("text", "keep"), [("", 0), ("3", 3), (" 2 ", 2), ("-1", 0), ("x", 0)])
def test_the_number_of_runs_to_keep_is_read_as_by_the_peer(text: str, keep: int) -> None:
    assert read_run_environment({"BERNSTEIN_REPLAY_RETENTION": text}).keep_runs == keep


@pytest.mark.parametrize(
    ("name", "odd", "usual"),
    [
        ("BERNSTEIN_REPLAY_RETENTION", ("x", "2.0", "-1", "\x1b[2J"), ("", " ", "0", "+2", "00")),
        ("BERNSTEIN_REPLAY_ALLOW_LIVE_MISS", ("y", "2"), ("", "1", " ON ", "off")),
        ("BERNSTEIN_LINEAGE_ENABLED", ("y", "disabled"), ("", "0", "True")),
        ("BERNSTEIN_TUI_STREAM", ("stream",), ("yes", "no")),
    ],
)
def test_a_variable_that_means_something_else_than_it_says_is_told(
    name: str, odd: tuple[str, ...], usual: tuple[str, ...]
) -> None:
    for text in odd:
        (said,) = odd_values({name: text})
        assert said.startswith(f"{name}={text!r} is n")
    for text in usual:
        assert list(odd_values({name: text})) == []
    assert list(odd_values({})) == []
