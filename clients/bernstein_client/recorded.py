"""`with recorded("name"):` model calls of a test are recorded once, and replayed from then on.

The code under test finds the provider in its environment variables, as it does anywhere; they lead
to the proxy, which records into a cassette or answers from it.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final

from bernstein_client.agent_rows import recording_events, started_event
from bernstein_client.agent_settings import settings_for_any
from bernstein_client.cassette_services import cassette_services
from bernstein_client.cassettes import cassette_path, is_cassette, save, take_in
from bernstein_client.provider_environment import all_providers
from bernstein_client.proxy import LaneAccount, LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import (
    InvalidInput,
    ReplayMissError,
    ReplayRecordingMissingError,
    StoreFailed,
)
from bernstein_formats.http_exchange import Exchange

FOLDER: Final = Path("cassettes")
_LANE: Final = "agent"


class RecordMode(StrEnum):
    """When to record; the words are vcrpy's."""

    # When there is no cassette yet.
    ONCE = "once"
    # Never: without a cassette, or for a request that is not in it, an error.
    NONE = "none"
    # Always, in the place of what there is.
    ALL = "all"


@dataclass(slots=True)
class Cassette:
    """An open cassette; `account` is there once it is closed."""

    path: Path
    is_replaying: bool
    # Where the lane is.
    base_url: str
    # What was set in the environment, for clients that are told by argument.
    variables: Mapping[str, str]
    account: LaneAccount | None = None


def recorded(name: str, *, mode: str = "once", folder: Path | str = FOLDER) -> "Recorded":
    """A context, for `with` or `async with`, that gives a Cassette; kept at FOLDER/NAME.

    Entering raises ReplayRecordingMissingError in mode "none" without a cassette, and what reading
    one raises. Leaving raises ReplayMissError when a request was not in the cassette, and
    ReplayRecordingMissingError when its answer is lost, also where the code under test kept the
    error that its client got.
    """
    try:
        chosen = RecordMode(mode)
    except ValueError as error:
        raise InvalidInput(
            f"{mode!r} is no mode of a cassette: use {', '.join(RecordMode)}", mode=mode
        ) from error
    return Recorded(cassette_path(Path(folder), name), chosen)


class Recorded:
    """See `recorded`. Not for two threads at once: environment variables are the process's."""

    def __init__(
        self, path: Path, mode: RecordMode, providers: tuple[Provider, ...] | None = None
    ) -> None:
        """Without `providers` those of the environment are asked."""
        self._path = path
        self._mode = mode
        self._providers = providers
        self._open = ExitStack()
        self._cassette: Cassette
        self._run_id: str
        self._proxy: ProxyClient

    def __enter__(self) -> Cassette:
        replaying = _is_replayed(self._path, self._mode)
        services = cassette_services()
        replay_run_id = take_in(services, self._path) if replaying else ""
        self._run_id = services.journal.create_run()
        services.journal.append_many(self._run_id, [started_event(_LANE)])
        providers = () if replaying else self._providers or all_providers()
        with ExitStack() as opening:
            self._proxy = opening.enter_context(ProxyClient(services.supervisor))
            wanted = LaneWanted(self._run_id, _LANE, replay_run_id, providers=providers)
            base_url = self._proxy.open_lane(wanted)
            variables = settings_for_any(base_url)
            opening.callback(_set_variables, _set_variables(variables))
            self._open = opening.pop_all()
        self._cassette = Cassette(self._path, replaying, base_url, variables)
        return self._cassette

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._open:
            account = self._cassette.account = self._proxy.close_lane()
        if error is not None and not isinstance(error, Exception):
            return  # interrupted or skipped: nothing to judge or to keep
        if account.misses:
            raise ReplayMissError(
                f"{self._path}: {_told(account)} Mode 'all' records the cassette anew.",
                path=self._path,
            ) from error
        if account.failures and self._cassette.is_replaying:
            raise ReplayRecordingMissingError(
                f"{self._path} cannot be replayed: {_told(account)}", path=self._path
            ) from error
        if account.failures:
            raise StoreFailed(f"{self._path} is not written: {_told(account)}") from error
        if account.recorded:
            services = cassette_services()
            _check_open(self._path, services.exchanges.read(self._run_id)[0])
            services.journal.append_many(self._run_id, recording_events(services, self._run_id))
            services.journal.finish_run(self._run_id)
            save(services, self._run_id, self._path)

    async def __aenter__(self) -> Cassette:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def _is_replayed(path: Path, mode: RecordMode) -> bool:
    if mode is RecordMode.NONE and not is_cassette(path):
        raise ReplayRecordingMissingError(
            f"there is no cassette {path}, and mode 'none' makes none; record it with mode 'once'",
            path=path,
        )
    return mode is not RecordMode.ALL and is_cassette(path)


def _check_open(path: Path, exchanges: Sequence[Exchange]) -> None:
    """The body of an answer that holds a secret is kept outside of a run, and so of a cassette."""
    for each in exchanges:
        if each.quarantined:
            raise InvalidInput(
                f"{path} is not written: the answer to request {each.seq} holds a secret"
                f" ({', '.join(each.quarantined)}), and cassettes are committed; have the model"
                " asked for something else",
                path=path,
            )


def _told(account: LaneAccount) -> str:
    return account.failures[0] if account.failures else "a request is not in it."


def _set_variables(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set them, or unset where None; gives what there was."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before
