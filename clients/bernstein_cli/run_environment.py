"""The peer's environment variables that a run obeys; nobody below the command reads them."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_client.provider_environment import named_providers
from bernstein_client.recorder import Provider
from bernstein_formats.retention import is_zero, parse_retention

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"", "0", "false", "no", "off"})
RETENTION_VARIABLE: Final = "BERNSTEIN_REPLAY_RETENTION"
LIVE_MISS_VARIABLE: Final = "BERNSTEIN_REPLAY_ALLOW_LIVE_MISS"
SPINE_VARIABLE: Final = "BERNSTEIN_LINEAGE_ENABLED"
STREAM_VARIABLE: Final = "BERNSTEIN_TUI_STREAM"
# What any other word counts as, in the peer as well.
_SWITCHES: Final = {LIVE_MISS_VARIABLE: "no", SPINE_VARIABLE: "yes", STREAM_VARIABLE: "no"}


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What the environment says of a run: any `seed` text switches recording on."""

    seed: str
    replay_run_id: str
    allow_live_miss: bool
    run_id: str
    config_path: Path | None
    # How many runs stay; 0 keeps all.
    keep_runs: int
    # Whether the end of a run is sealed in its spine, too.
    spine_seal: bool
    providers: tuple[Provider, ...]


def read_run_environment(environ: Mapping[str, str] = os.environ) -> RunEnvironment:
    """Read the variables; blank ones count as unset, but for BERNSTEIN_LINEAGE_ENABLED: as no."""

    def value(name: str) -> str:
        return environ.get(name, "").strip()

    config_path = value("BERNSTEIN_SEED_PATH")
    return RunEnvironment(
        seed=value("BERNSTEIN_DETERMINISTIC_SEED"),
        replay_run_id=value("BERNSTEIN_REPLAY_RUN_ID"),
        allow_live_miss=value(LIVE_MISS_VARIABLE).lower() in TRUE_WORDS,
        run_id=value("BERNSTEIN_RUN_ID"),
        config_path=Path(config_path) if config_path else None,
        keep_runs=parse_retention(value(RETENTION_VARIABLE)),
        spine_seal=environ.get(SPINE_VARIABLE, "1").strip().lower() not in FALSE_WORDS,
        providers=named_providers(environ),
    )


def odd_values(environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """What is said of variables whose text counts as something else than it seems to say."""
    retention = environ.get(RETENTION_VARIABLE, "").strip()
    if retention and not parse_retention(retention) and not is_zero(retention):
        yield f"{RETENTION_VARIABLE}={retention!r:.80} is no number of runs, so all stay"
    for name, word in _SWITCHES.items():
        text = environ.get(name, "").strip()
        if text.lower() not in TRUE_WORDS | FALSE_WORDS:
            yield f"{name}={text!r:.80} is neither 1 nor 0 and counts as {word}"
