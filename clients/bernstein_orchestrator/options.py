"""What a caller of a run decides; environment variables arrive here as fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from bernstein_client.recorder import Provider


@dataclass(frozen=True, slots=True)
class RunOptions:
    """One `bernstein run`.

    `seed` is BERNSTEIN_DETERMINISTIC_SEED: any text switches recording on. `providers` are the
    recorder client's values for the providers that the environment describes. `environment` is the
    caller's, of which agents get an allow-list. `run_id` is empty unless BERNSTEIN_RUN_ID is set.
    `spine_seal` is BERNSTEIN_LINEAGE_ENABLED: whether the run's end is sealed in its spine, too.
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
    spine_seal: bool = True
    providers: Sequence[Provider] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """What is typed to run the same plan in the same project."""
        where = "" if self.project == Path() else f" -w {quote(str(self.project))}"
        return f"bernstein run {quote(str(self.plan_path))}{where}"
