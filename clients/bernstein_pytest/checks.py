"""What the fixture `determinism` offers: the checks of the contracts, by their own names."""

from bernstein_determinism.ambient import forbid_ambient
from bernstein_determinism.laws import (
    check_fingerprint_is_pure,
    check_prompt_is_pure,
    check_reducer_laws,
)
from bernstein_determinism.memory import memory_runtime
from bernstein_determinism.runtime import assert_turn_deterministic


class Checks:
    """The checks; each raises where its contract is broken."""

    reducer_laws = staticmethod(check_reducer_laws)
    prompt_is_pure = staticmethod(check_prompt_is_pure)
    fingerprint_is_pure = staticmethod(check_fingerprint_is_pure)
    turn_deterministic = staticmethod(assert_turn_deterministic)
    forbid_ambient = staticmethod(forbid_ambient)
    memory_runtime = staticmethod(memory_runtime)
