"""Cassettes as files: a folder that is a copy of a recorded run's, small enough to be committed.

Copied into `.sdd/runs`, it is a run: there is no other format. Layout: docs/formats/llm-http.md,
section 1.
"""

import secrets
import shutil
import tempfile
from pathlib import Path

from bernstein_client.connection import Services
from bernstein_formats.errors import Conflict, InvalidInput
from bernstein_formats.paths import llm_http_path
from bernstein_runtime.disk import failed

_RECORDING = Path(llm_http_path("run")).name
# Bound to keys of the throwaway project.
_LEFT_OUT = shutil.ignore_patterns("seal.json")


def cassette_path(folder: Path, name: str) -> Path:
    """Where a cassette is. Raises InvalidInput for a name that is no folder's."""
    if not name or name.startswith(".") or "/" in name or not name.isprintable():
        raise InvalidInput(
            f"{name!r} names no cassette: use printable characters without '/', the first of them"
            " no '.'; folders go into `folder`",
            name=name,
        )
    return folder / name


def is_cassette(path: Path) -> bool:
    return (path / _RECORDING).is_file()


def take_in(services: Services, path: Path) -> str:
    """Make a run of a cassette; gives its id."""
    run_id = f"cassette-{secrets.token_hex(8)}"
    try:
        shutil.copytree(path, _run_dir(services, run_id), symlinks=True)
    except (OSError, shutil.Error) as error:
        raise _failed(path, error) from error
    return run_id


def save(services: Services, run_id: str, path: Path) -> None:
    """Put a recorded run in the place of a cassette, whole or not at all."""
    if path.exists() and not is_cassette(path):
        raise Conflict(f"{path} is there and is no cassette: move it away, or choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder:
            new, old = Path(folder, "new"), Path(folder, "old")
            shutil.copytree(_run_dir(services, run_id), new, symlinks=True, ignore=_LEFT_OUT)
            if path.exists():
                path.rename(old)
            new.rename(path)
    except (OSError, shutil.Error) as error:
        raise _failed(path, error) from error


def _run_dir(services: Services, run_id: str) -> Path:
    return (services.places.sdd_dir / llm_http_path(run_id)).parent


def _failed(path: Path, error: OSError) -> Exception:
    # copytree gathers what it met: [(from, to, text)]
    if isinstance(error, shutil.Error):
        return failed(path, OSError(0, str(error.args[0][0][2])))
    return failed(path, error)
