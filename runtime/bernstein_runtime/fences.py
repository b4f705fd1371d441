"""Who and what is in quarantine: callers that are refused, runs that nothing is added to."""

from dataclasses import dataclass
from functools import cached_property

from bernstein_runtime.targets import Target


@dataclass(frozen=True, slots=True)
class Fence:
    """One quarantine: a caller, and what it touched."""

    caller: str
    # What was touched from then on is behind the fence, as the operator wrote it.
    since: str
    # When it was put up, and by whom.
    began: str
    by: str
    targets: frozenset[Target]


@dataclass(frozen=True)
class Fences:
    """All that stand now."""

    fences: tuple[Fence, ...] = ()

    def of_caller(self, name: str) -> Fence | None:
        return self._by_caller.get(name)

    def of_target(self, target: Target) -> Fence | None:
        return self._by_target.get(target)

    @cached_property
    def _by_caller(self) -> dict[str, Fence]:
        return {fence.caller: fence for fence in self.fences}

    @cached_property
    def _by_target(self) -> dict[Target, Fence]:
        return {target: fence for fence in self.fences for target in fence.targets}
