"""Whether a call may go on: by its caller's name, the role table, whose run it is, and quotas.

Who has no right to a run is told the same whether it is there or not.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from google.protobuf.message import Message

from bernstein_formats.errors import InvalidInput, NotAllowed
from bernstein_runtime.caller import Caller
from bernstein_runtime.fences import Fences
from bernstein_runtime.quota import Held, Quotas
from bernstein_runtime.reread_file import RereadFile
from bernstein_runtime.role_table import Reach, RoleTable
from bernstein_runtime.roles import OPENING, READ_RECORDING, READING, RPCS, Role, roles_for
from bernstein_runtime.targets import (
    EVERYTHING,
    OPEN_SESSION,
    ORIGIN,
    REPLAYED,
    Kind,
    Target,
    targets_of,
    text_of,
)

REQUEST_ID: Final = "request_id"
# More than a recorder has open; those that were used last are remembered.
SESSIONS_REMEMBERED_MAX: Final = 8192
_CREATE_RUN: Final = "bernstein_api.journal.v1.JournalService/CreateRun"
_FINISH_RUN: Final = "bernstein_api.journal.v1.JournalService/FinishRun"
_OPEN_SESSION: Final = "bernstein_api.recorder.v1.RecorderService/OpenSession"


class Records(Protocol):
    """What is kept of one origin's runs besides their rows. Safe for any number of threads."""

    def owner(self, target: Target) -> str:
        """Whose it is; empty where nobody opened it. Raises InvalidInput for what is no id."""
        ...

    def exists(self, target: Target) -> bool:
        """Whether there is anything of it."""
        ...

    def claim(self, target: Target, caller: str) -> str:
        """Have it be `caller`'s unless it is somebody's; whose it is now, durably."""
        ...

    def touch(self, caller: str, target: Target, method: str) -> None:
        """Note, durably, that `caller` is about to change it."""
        ...

    def fences(self) -> Fences:
        """Who and what is in quarantine now."""
        ...


class NoRecords:
    """Of a service that keeps nothing: a writer's own runs are not known there."""

    def owner(self, target: Target) -> str:
        return ""

    def exists(self, target: Target) -> bool:
        return True

    def claim(self, target: Target, caller: str) -> str:
        return ""

    def touch(self, caller: str, target: Target, method: str) -> None:
        """Whatever changes is kept by others."""

    def fences(self) -> Fences:
        return Fences()


@dataclass(frozen=True, slots=True)
class _Session:
    """A recorder's open session: whose, and of which run."""

    caller: str
    origin: str
    run: Target


class Access:
    """The rules of one service. Safe for any number of threads."""

    def __init__(
        self,
        roles: RereadFile[RoleTable],
        origin: str,
        records: Callable[[str], AbstractContextManager[Records]],
    ) -> None:
        """`origin` is meant by calls that name none; `records` gives those of an origin."""
        self._roles = roles
        self._origin = origin
        self._records = records
        self._quotas = Quotas()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, caller: Caller, *, is_stream: bool) -> Iterator["Admitted"]:
        """While a call is under way, from before its request is there.

        Raises NotAllowed, QueueFull, TooManyStreams.
        """
        if not caller.origin:
            caller = replace(caller, origin=self._origin)
        if not caller.name:
            raise NotAllowed(
                "the certificate names no caller: it needs a SAN bernstein://caller/NAME, or a DNS"
                " name"
            )
        table = self._roles.now()
        if not table.may_call(caller.name, caller.method, caller.origin):
            raise _refusal(caller, caller.method, EVERYTHING)
        with (
            self._quotas.call(caller.name, table.quota, is_stream=is_stream) as held,
            self._records(caller.origin) as records,
        ):
            _check_caller(caller, records.fences())
            yield Admitted(self, caller, table, records, held, records.fences())

    def table(self) -> RoleTable:
        """As it is now."""
        return self._roles.now()

    def remember(self, session_id: str, caller: Caller, run: Target) -> None:
        """Whose session it is."""
        with self._lock:
            self._sessions[session_id] = _Session(caller.name, caller.origin, run)
            while len(self._sessions) > SESSIONS_REMEMBERED_MAX:
                self._sessions.popitem(last=False)

    def session(self, caller: Caller, request: Message) -> _Session | None:
        """The open session that a request names; None where the recorder does not know it either.

        It is its opener's, and nobody else's.
        """
        session_id = text_of(request, OPEN_SESSION)
        with self._lock:
            found = self._sessions.get(session_id)
            if found is None:
                return None
            self._sessions.move_to_end(session_id)
        if (found.caller, found.origin) != (caller.name, caller.origin):
            raise _refusal(caller, caller.method, EVERYTHING)
        return found


@dataclass(slots=True)
class Admitted:
    """A call that may begin; its request is looked at when it is there."""

    _access: Access
    _caller: Caller
    _table: RoleTable
    _records: Records
    _held: Held
    _fences: Fences
    _first: Message | None = field(default=None)

    def done(self, answer: Any) -> Any:
        """The same answer, once it was noted what it opened or ended."""
        if self._first is not None and isinstance(answer, Message):
            self._note(self._first, answer)
        return answer

    def check_still(self) -> None:
        """A stream may last for days: what was taken away since then ends it. Raises NotAllowed."""
        caller, table, fences = self._caller, self._access.table(), self._records.fences()
        if table is not self._table:
            if not table.may_call(caller.name, caller.method, caller.origin):
                raise _refusal(caller, caller.method, EVERYTHING)
            self._table = table
        if fences is not self._fences:
            _check_caller(caller, fences)
            self._fences = fences

    def of(self, requests: Iterator[Message]) -> Iterator[Message]:
        """The first message of a stream says what it is about."""
        with self._held.turn():
            first = next(requests, None)
            if first is None:
                return
            self._held.take_bytes(first.ByteSize())
        self._check(first)
        yield first
        self._held.drop_bytes()
        for request in requests:
            self._held.take_bytes(request.ByteSize())
            yield request
            self._held.drop_bytes()

    def _check(self, request: Message) -> None:
        """Raises NotAllowed, QueueFull, TooMany."""
        self._first = request
        if text_of(request, REQUEST_ID):
            self._held.take_request_id()
        _check_origin(self._caller, request)
        session = self._access.session(self._caller, request)
        if session is not None:
            self._check_target(session.run)
        elif OPEN_SESSION not in request.DESCRIPTOR.fields_by_name:
            for target in targets_of(request):
                self._check_target(target)
        replayed = text_of(request, REPLAYED)
        if replayed:
            self._reach(READ_RECORDING, Target(Kind.RUN, replayed))

    def _check_target(self, target: Target) -> None:
        method = self._caller.method
        self._reach(method, target)
        if method in READING:
            return
        fence = self._records.fences().of_target(target)
        if fence:
            raise NotAllowed(
                f"{target} is in quarantine since {fence.began}, with all that {fence.caller}"
                " touched: nothing is added to it, sealed or signed; see `bernstein admin"
                " quarantine`",
                caller=self._caller.name,
            )
        if method in OPENING and target.kind is Kind.RUN and not target.is_all:
            self._held.open_run(target)
        if method != _CREATE_RUN or not target.is_all:  # else the run is not known yet
            self._records.touch(self._caller.name, target, method)

    def _reach(self, method: str, target: Target) -> None:
        """Raises NotAllowed; a run that is not there yet becomes the caller's."""
        name = self._caller.name
        reach = self._table.reach(name, method, self._caller.origin, target.target_id)
        if reach is Reach.NOTHING:
            raise _refusal(self._caller, method, target)
        if target.is_all or (reach is Reach.EVERYTHING and method not in OPENING):
            return
        owner = self._records.owner(target)
        if not owner and method in OPENING and not self._records.exists(target):
            owner = self._records.claim(target, name)
        if reach is Reach.OWN and owner != name:
            raise _refusal(self._caller, method, target)

    def _note(self, request: Message, answer: Message) -> None:
        """Raises NotAllowed for a run that turned out to be another's."""
        method = self._caller.method
        if method == _CREATE_RUN:
            run = Target(Kind.RUN, text_of(answer, "run_id"))
            if self._records.claim(run, self._caller.name) != self._caller.name:
                raise _refusal(self._caller, method, EVERYTHING)
            self._held.open_run(run)
            self._records.touch(self._caller.name, run, method)
        elif method == _FINISH_RUN:
            self._held.finish_run(targets_of(request)[0])
        elif method == _OPEN_SESSION:
            run = targets_of(request)[0]
            self._access.remember(text_of(answer, OPEN_SESSION), self._caller, run)


def _check_origin(caller: Caller, request: Message) -> None:
    """Rows for the signer carry their origin; it is the one that the call was allowed for."""
    said = text_of(request, ORIGIN)
    if said and said != caller.origin:
        raise InvalidInput(
            f"the request is about origin {said!r}, and the call about {caller.origin!r};"
            " send both as one"
        )


def _check_caller(caller: Caller, fences: Fences) -> None:
    fence = fences.of_caller(caller.name)
    if fence:
        raise NotAllowed(
            f"calls of {caller.name} are refused since {fence.began}; the operator can lift the"
            " quarantine, once the certificate is another one",
            caller=caller.name,
        )


def _refusal(caller: Caller, method: str, target: Target) -> NotAllowed:
    """The same whatever is missing, so that it tells nothing of what is there."""
    roles = [role for role in roles_for(method) if role is not Role.WRITER]
    needed = " or ".join(roles)
    if method in RPCS[Role.WRITER]:
        needed = f"{needed}, or writer and to have opened it"
    about = "" if target.is_all else f" for {target}"
    return NotAllowed(
        f"{caller.name} may not call {method.rpartition('/')[2]}{about} in origin"
        f" {caller.origin!r}: that takes the role {needed}; whoever keeps the role table grants it",
        caller=caller.name,
        role=", ".join(roles_for(method)),
    )
