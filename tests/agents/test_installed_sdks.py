"""Python SDKs that do not fit beside ours, each in an environment of its own."""

import os
from typing import Any

import pytest
from tests.installed import Package
from tests.recorded_program import check_sdks_replay

pytestmark = [pytest.mark.agents, pytest.mark.processes]
SDKS = {"google-genai": Package("google-genai==3.6.1"), "litellm": Package("litellm==1.110.2")}
QUICK = ("google-genai",)


@pytest.mark.parametrize("sdk", SDKS)
def test_an_sdk_sees_the_same_directly_recorded_and_replayed(sdk: str, project: Any) -> None:
    if os.environ.get("BERNSTEIN_TEST_AGENTS") != "all" and sdk not in QUICK:
        pytest.skip(f"{sdk} is tested in `make test-agents`")
    SDKS[sdk].install()
    check_sdks_replay(project, SDKS[sdk].programs / "python", [sdk])
