"""The peer's environment variables that a run obeys; nobody below the command reads them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_client.provider_environment import named_providers
from bernstein_client.recorder import Provider
from bernstein_formats.retention import parse_retention

TRUE_WORDS: Final = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS: Final = frozenset({"", "0", "false", "no", "off"})


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
        allow_live_miss=value("BERNSTEIN_REPLAY_ALLOW_LIVE_MISS").lower() in TRUE_WORDS,
        run_id=value("BERNSTEIN_RUN_ID"),
        config_path=Path(config_path) if config_path else None,
        keep_runs=parse_retention(value("BERNSTEIN_REPLAY_RETENTION")),
        spine_seal=environ.get("BERNSTEIN_LINEAGE_ENABLED", "1").strip().lower() not in FALSE_WORDS,
        providers=named_providers(environ),
    )
