"""What a caller of a run decides; environment variables arrive here as fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bernstein_client.recorder import Provider


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One `bernstein run`.

    `seed` is BERNSTEIN_DETERMINISTIC_SEED: any text switches recording on. `providers` are the
    recorder client's values for the providers that the environment describes. `environment` is the
    caller's, of which agents get an allow-list. `run_id` is empty unless BERNSTEIN_RUN_ID is set.
    """

    plan_path: Path
    project: Path
    sdd_dir: Path
    seed: str = ""
    replay_run_id: str = ""
    allow_live_miss: bool = False
    offline_agents: bool = False
    run_id: str = ""
    config_path: Path | None = None
    max_agents: int | None = None
    max_retries: int = 2
    providers: Sequence[Provider] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
