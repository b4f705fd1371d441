"""A replay's agent in its recorded surroundings: files, home, variables, and the lane alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from bernstein_agent.sandbox import Place, sandbox_environ
from bernstein_agent.surroundings import pinned_environ
from bernstein_formats.agent_environment import Environment
from bernstein_runtime.config import RecorderConfig, SignerConfig, TlsConfig, load_table
from bernstein_runtime.places import RECEIPT_KEY_PATH, Places, audit_key_path
from bernstein_runtime.supervisor import PEER_AUDIT_KEY

LANES: Final = "lanes"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a recorded agent had around it; `tree` is where its files were put up again."""

    recorded: Environment
    tree: Path
    # The state folder and its services, out of the agent's sight.
    places: Places

    def place(self, base_url: str, environ: Mapping[str, str], folder: Path | None = None) -> Place:
        """Where the agent runs: in the recorded folder, unless `folder` is another of the tree."""
        recorded, home = self.recorded, environ.get("HOME", "")
        pair = (Path(home), Path(recorded.home)) if home and recorded.home else None
        return Place(
            folder=folder or Path(recorded.folder),
            trees=((self.tree, Path(recorded.work_tree.folder)),),
            home=pair if pair and pair[0].is_dir() else None,
            covered=tuple(self._covered(pair, environ)),
            socket=self.places.socket(LANES) if base_url else None,
            port=urlsplit(base_url).port or 0,
        )

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The agent's variables, but for those of its lane."""
        return sandbox_environ(pinned_environ(self.recorded, environ))

    def _covered(
        self, home: tuple[Path, Path] | None, environ: Mapping[str, str]
    ) -> Sequence[Path]:
        places = self.places
        found = [places.sdd_dir, places.runtime_dir.parent, places.secrets_dir.parent]
        found += key_files(places, environ)
        if home is not None:  # it is seen at another place, too
            inside = [each for each in found if each.is_relative_to(home[0])]
            found += [home[1] / each.relative_to(home[0]) for each in inside]
        return found


def key_files(places: Places, environ: Mapping[str, str]) -> list[Path]:
    """Every file with a key that configuration or variables name. Raises InvalidInput."""
    signer = load_table(SignerConfig, "signer", places.state_dir, environ)
    recorder = load_table(RecorderConfig, "recorder", places.state_dir, environ)
    tls = load_table(TlsConfig, "tls", places.state_dir, environ)
    named = [signer.receipt_key_file, recorder.openai_key_file, recorder.anthropic_key_file]
    named += [tls.key_file, signer.receipt_passphrase_file]
    named += [each for each in (signer.receipt_key, signer.seal_key) if each.startswith("/")]
    named += [environ.get(each, "") for each in (RECEIPT_KEY_PATH, PEER_AUDIT_KEY)]
    return [
        audit_key_path(signer.audit_key_file, environ),
        *(Path(each).absolute() for each in named if each),
    ]
