"""Python SDKs, sync and async, with streams, tools, errors and cuts: record = direct = replay."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.recorded_program import check_sdks_replay

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_an_sdk_sees_the_same_directly_recorded_and_replayed(sdk: str, project: Any) -> None:
    check_sdks_replay(project, Path(sys.executable), [sdk])
