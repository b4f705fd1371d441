"""What is kept of runs besides their rows: whose they are, who changed them, what is fenced off.

Files of our own below `svc/access`; nothing of the peer's changes. A run has one owner for good,
also when its rows are gone. Every hour in which a caller changes a run is noted once, before the
change, so that nothing is touched that is not listed.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bernstein_formats import paths
from bernstein_formats.canonical import JsonValue, parse_json_unique, spelled
from bernstein_formats.errors import ForeignWriter, InvalidInput, QueueFull, StoreFailed
from bernstein_runtime.clock import Clock
from bernstein_runtime.fences import Fence, Fences
from bernstein_runtime.targets import Kind, Target
from bernstein_store.store import Store

_FOLDER: Final = "svc/access"
_LOCK: Final = f"{_FOLDER}/owners.lock"
_FENCES: Final = f"{_FOLDER}/quarantine.json"
_FENCES_LOCK: Final = f"{_FOLDER}/quarantine.lock"
# How soon is seen what another process fenced off.
LOOK_SECONDS: Final = 1.0
_REMEMBERED_MAX: Final = 10_000
_TRIES_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Touch:
    """A run or session that a caller changed within an hour; the call that was first."""

    # Unix time of that call.
    at: float
    target: Target
    method: str


class RunRecords:
    """See `bernstein_runtime.access.Records`. Safe for any number of threads."""

    def __init__(self, store: Store, service: str, clock: Clock) -> None:
        """`service` has files of its own: what it notes is not appended by others."""
        self._store = store
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: OrderedDict[Target, str] = OrderedDict()
        self._touched: OrderedDict[tuple[str, Target, str], None] = OrderedDict()
        self._noting: dict[str, threading.Lock] = {}
        self._fences = Fences()
        self._looked_at = -LOOK_SECONDS

    def owner(self, target: Target) -> str:
        with self._lock:
            if target in self._owners:
                return self._owners[target]
        return self._known(target, self._stored_owner(target))

    def exists(self, target: Target) -> bool:
        if target.kind is Kind.RUN:
            return self._store.has_run(target.target_id)
        return self._store.size(paths.steps_path(target.target_id)) is not None

    def claim(self, target: Target, caller: str) -> str:
        name = _owner_path(target)
        with self._store.locked(_LOCK):
            owner = self._stored_owner(target)
            if not owner:
                at = int(self._clock.now_seconds())
                self._store.put(name, _line({"caller": caller, "at": at}))
                owner = caller
        return self._known(target, owner)

    def touch(self, caller: str, target: Target, method: str) -> None:
        now = self._clock.now_seconds()
        when = datetime.fromtimestamp(now, UTC)
        key = (caller, target, f"{when:%Y%m%d%H}")
        with self._lock:
            if key in self._touched:
                return
            noting = self._noting.setdefault(caller, threading.Lock())
        touch = {"at": int(now), "kind": target.kind.value, "id": target.target_id}
        line = _line({**touch, "method": method.rpartition("/")[2]})
        # No caller waits for another one's notes.
        with noting:
            self._append(f"{_touches_folder(self._service, caller)}/{when:%Y%m%d}.log", line)
        with self._lock:
            self._touched[key] = None
            while len(self._touched) > _REMEMBERED_MAX:
                self._touched.popitem(last=False)

    def fences(self) -> Fences:
        with self._lock:
            is_due = time.monotonic() - self._looked_at >= LOOK_SECONDS
            if is_due:
                self._looked_at = time.monotonic()
        if is_due:
            found = self._stored_fences()
            if found != self._fences:
                self._fences = found
        return self._fences

    def touches(self, caller: str, since: float) -> Iterator[Touch]:
        """What a caller changed from then on, oldest first within each service's notes."""
        day = datetime.fromtimestamp(since, UTC).replace(hour=0, minute=0, second=0)
        hour_began = since - since % 3600
        for service in ("journal", "recorder"):
            folder = _touches_folder(service, caller)
            for name in self._store.names(folder):
                if name >= f"{day:%Y%m%d}.log":
                    yield from self._touches_in(f"{folder}/{name}", hour_began)

    def put_up(self, fence: Fence) -> None:
        """Have a fence stand, instead of one that stands for the same caller."""
        self._change(fence.caller, [fence])

    def take_down(self, caller: str) -> Fence | None:
        """Have no fence stand for a caller; the one that did."""
        found = self._stored_fences().of_caller(caller)
        if found is not None:
            self._change(caller, [])
        return found

    def _change(self, caller: str, instead: Sequence[Fence]) -> None:
        with self._store.locked(_FENCES_LOCK):
            others = [each for each in self._stored_fences().fences if each.caller != caller]
            kept = Fences((*others, *instead))
            self._store.put(_FENCES, _line({"fences": [_written(each) for each in kept.fences]}))
        self._fences = kept

    def _known(self, target: Target, owner: str) -> str:
        """Owners never change; that there is none may."""
        if owner:
            with self._lock:
                self._owners[target] = owner
                while len(self._owners) > _REMEMBERED_MAX:
                    self._owners.popitem(last=False)
        return owner

    def _stored_owner(self, target: Target) -> str:
        name = _owner_path(target)
        data = self._store.get(name)
        return "" if data is None else _text(_members(data, name), "caller", name)

    def _append(self, name: str, line: bytes) -> None:
        log = self._store.open_log(name)
        try:
            for _ in range(_TRIES_MAX):
                try:
                    log.append(line, [])
                except ForeignWriter:
                    log.catch_up()  # another process noted something
                else:
                    return
        finally:
            log.close()
        raise QueueFull("too many processes note who changes runs; try again", path=name)

    def _touches_in(self, name: str, since: float) -> Iterator[Touch]:
        for line in b"".join(self._store.read(name)).splitlines():
            members = _members(line, name)
            at = members.get("at")
            if not isinstance(at, int):
                raise _unreadable(name)
            if at >= since:
                kind, target_id = _text(members, "kind", name), _text(members, "id", name)
                yield Touch(at, _target(kind, target_id, name), _text(members, "method", name))

    def _stored_fences(self) -> Fences:
        data = self._store.get(_FENCES)
        if data is None:
            return Fences()
        found = _members(data, _FENCES).get("fences")
        if not isinstance(found, list):
            raise _unreadable(_FENCES)
        return Fences(tuple(_read_fence(each) for each in found))


def _owner_path(target: Target) -> str:
    check = paths.check_run_id if target.kind is Kind.RUN else paths.check_agent_id
    check(target.target_id)
    return f"{_FOLDER}/owners/{target.kind}/{target.target_id}"


def _touches_folder(service: str, caller: str) -> str:
    # Names of certificates may be longer than names of files.
    return f"{_FOLDER}/touched/{service}/{hashlib.sha256(caller.encode()).hexdigest()[:32]}"


def _written(fence: Fence) -> JsonValue:
    targets: list[JsonValue] = [
        f"{each.kind} {each.target_id}" for each in sorted(fence.targets, key=str)
    ]
    return {
        "caller": fence.caller,
        "since": fence.since,
        "began": fence.began,
        "by": fence.by,
        "targets": targets,
    }


def _read_fence(value: JsonValue) -> Fence:
    if not isinstance(value, dict) or not isinstance(value.get("targets"), list):
        raise _unreadable(_FENCES)
    caller, since, began, by = (
        _text(value, name, _FENCES) for name in ("caller", "since", "began", "by")
    )
    targets = value["targets"]
    assert isinstance(targets, list)
    words = [str(each).partition(" ") for each in targets]
    found = frozenset(_target(kind, target_id, _FENCES) for kind, _, target_id in words)
    return Fence(caller, since, began, by, found)


def _target(kind: str, target_id: str, name: str) -> Target:
    if kind not in list(Kind):
        raise _unreadable(name)
    return Target(Kind(kind), target_id)


def _line(members: dict[str, JsonValue]) -> bytes:
    return spelled(members).encode() + b"\n"


def _members(data: bytes, name: str) -> dict[str, JsonValue]:
    try:
        found = parse_json_unique(data)
    except (InvalidInput, ValueError) as error:
        raise _unreadable(name) from error
    if not isinstance(found, dict):
        raise _unreadable(name)
    return found


def _text(members: dict[str, JsonValue], member: str, name: str) -> str:
    found = members.get(member)
    if not isinstance(found, str):
        raise _unreadable(name)
    return found


def _unreadable(name: str) -> StoreFailed:
    return StoreFailed(
        f"{name} is not what was written there; restore it from a copy, since it says who may"
        " change what",
        path=name,
    )
