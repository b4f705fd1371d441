"""Loads the agent that a user names: a Python file with `agent(turn)` and `setup()`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from bernstein_determinism.recorded_runtime import AgentSetup
from bernstein_determinism.turn import Agent
from bernstein_formats.errors import InvalidInput


def load_agent(path: Path) -> tuple[Agent, AgentSetup]:
    """The file's agent and its setup. Raises InvalidInput; what the file itself raises goes on."""
    spec = spec_from_file_location(f"agent_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is no Python file; its name must end in .py", path=path)
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    agent, setup = getattr(module, "agent", None), getattr(module, "setup", None)
    if not callable(agent) or not callable(setup):
        raise InvalidInput(f"{path} needs a function `agent(turn)` and one `setup()`", path=path)
    made = setup()
    if not isinstance(made, AgentSetup):
        raise InvalidInput(
            f"setup() of {path} gave a {type(made).__name__}, not an AgentSetup", path=path
        )
    return agent, made
