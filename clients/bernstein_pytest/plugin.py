"""What pytest loads: `@pytest.mark.deterministic`, the fixtures `determinism` and `cassette`.

Nothing of the library is imported before a test asks for it.
"""

import hashlib
import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bernstein_client.recorded import Cassette
    from bernstein_pytest.checks import Checks

MARKER = "deterministic"
MODE_OPTION = "--bernstein-record"
# What ends a test's cassette.
ENDING = pytest.StashKey[ExitStack]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("bernstein-services").addoption(
        MODE_OPTION,
        choices=("once", "none", "all"),
        default="once",
        help="when the fixture `cassette` records: once, if there is no cassette yet; none, never;"
        " all, always",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}: the test may not look at clock, randomness, environment or files"
        " (bernstein-services)",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a marked test, and not its fixtures, under `forbid_ambient`; a miss fails the test."""
    with pyfuncitem.stash.get(ENDING, nullcontext()):
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


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> "Iterator[Cassette]":
    """The test's model calls, recorded into cassettes/FILE/TEST beside its file, or replayed."""
    from bernstein_client.recorded import recorded  # noqa: PLC0415 - see above

    with ExitStack() as ending:
        opened = ending.enter_context(
            recorded(
                cassette_name(request.node.name),
                mode=request.config.getoption(MODE_OPTION),
                folder=request.path.parent / "cassettes" / request.path.stem,
            )
        )
        request.node.stash[ENDING] = ending
        yield opened


def cassette_name(test: str) -> str:
    """A folder's name for a test; what no folder may be called is replaced, and told apart."""
    name = re.sub(r"[^A-Za-z0-9_.,=+-]+", "-", test)
    if name == test:
        return name
    return f"{name.strip('-')[:100]}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
