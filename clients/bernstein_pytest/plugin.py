"""What pytest loads: `@pytest.mark.deterministic` and the fixture `determinism`.

Nothing of the library is imported before a test asks for it.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bernstein_pytest.checks import Checks

MARKER = "deterministic"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}: the test may not look at clock, randomness, environment or files"
        " (bernstein-services)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a marked test, and not its fixtures, under `forbid_ambient`."""
    if pyfuncitem.get_closest_marker(MARKER) is None:
        return (yield)
    from bernstein_determinism.ambient import forbid_ambient  # noqa: PLC0415 - see above

    with forbid_ambient():
        return (yield)


@pytest.fixture
def determinism() -> "Checks":
    """The checks of the contracts, and runtimes in memory to try an agent with."""
    from bernstein_pytest.checks import Checks  # noqa: PLC0415 - see above

    return Checks()
