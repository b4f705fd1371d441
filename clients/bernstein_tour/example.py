"""The example project, in the installed package or in the repository, and a copy to work in."""

import shutil
from pathlib import Path
from typing import Final

from bernstein_formats.errors import NotFound

EXAMPLE: Final = "release-notes"
EXAMPLES: Final = "examples"


def example_folder() -> Path:
    """Raises NotFound when neither the package nor the repository has it."""
    package = Path(__file__).resolve().parent
    for examples in (package / EXAMPLES, package.parents[1] / EXAMPLES):
        if (examples / EXAMPLE / "plan.yaml").is_file():
            return examples / EXAMPLE
    raise NotFound(f"the example {EXAMPLE} is not installed; install the package again")


def copy_example(project: Path) -> None:
    """Fill an empty or new folder with the example."""
    shutil.copytree(example_folder(), project, dirs_exist_ok=True)
