"""`python -m bernstein_store migrate|check SDD_DIR`: a project's database, for its operator.

One JSON line on standard output: what was done or found, or why not, and then exit 1.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.config import StoreConfig, load_table
from bernstein_runtime.origin import origin_of
from bernstein_runtime.places import places_for
from bernstein_runtime.refusal import refusal_of
from bernstein_store.chosen import check_driver


def check(sdd_dir: Path, environ: Mapping[str, str]) -> dict[str, object]:
    """What services would find. Raises what they would refuse with."""
    places = places_for(sdd_dir, environ)
    config = load_table(StoreConfig, "store", places.state_dir, environ)
    if not config.url:
        return {"kind": "files", "place": str(places.sdd_dir)}
    check_driver()
    from bernstein_store.postgres.care import checked  # noqa: PLC0415 - its extra may be absent

    origin = origin_of(places, environ)
    return {"kind": "postgres", "origin": origin, **checked(config)}


def migrate(
    sdd_dir: Path, environ: Mapping[str, str], owner: str, password_file: str
) -> dict[str, object]:
    """Bring the tables up to date as their owner."""
    places = places_for(sdd_dir, environ)
    config = load_table(StoreConfig, "store", places.state_dir, environ)
    if not config.url:
        raise InvalidInput(
            "[store] url is not set: this project keeps its evidence in files, which have no tables"
        )
    check_driver()
    from bernstein_store.postgres.care import migrated  # noqa: PLC0415 - likewise

    return migrated(config, owner, Path(password_file) if password_file else None)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="bernstein-store", description=__doc__)
    parser.add_argument("what", choices=("migrate", "check"))
    parser.add_argument("sdd_dir", type=Path)
    parser.add_argument("--owner", default="", help="the user that owns the tables")
    parser.add_argument("--owner-password-file", default="", help="a file with its password")
    asked = parser.parse_args()
    try:
        if asked.what == "check":
            said = check(asked.sdd_dir, os.environ)
        else:
            said = migrate(asked.sdd_dir, os.environ, asked.owner, asked.owner_password_file)
    except BernsteinError as error:
        _say(refusal_of(error))
        sys.exit(1)
    _say(said)


def _say(said: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")  # noqa: TID251 - not evidence


if __name__ == "__main__":
    main()
