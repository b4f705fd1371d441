"""The manifest and the files of a run's agents: stored with its recording, found again there."""

import re
from pathlib import Path
from typing import Final

from bernstein_agent.work_tree import Kept, put_up
from bernstein_client.agent_rows import Event, read_rows
from bernstein_client.connection import Services
from bernstein_formats.agent_environment import EVENT, Environment, parse_environment
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ReplayRecordingMissingError, RowMalformed
from bernstein_formats.http_exchange import Body, body_of

# A client tells of its surroundings in its first requests.
_SHOWN_MAX: Final = 3


def store_environment(
    services: Services, run_id: str, environment: Environment, kept: Kept
) -> Event:
    """Store a manifest and what it speaks of, durably; gives the row that binds them."""
    data = environment.to_bytes()
    body = body_of(data)
    services.exchanges.store(run_id, kept.contents, data)
    return EVENT, {"sha256": body.sha256_hex, "size_bytes": body.size}


def environment_event(services: Services, run_id: str) -> Event | None:
    """The row that binds a run's manifest, as it was written; None: it has none."""
    for row in read_rows(services, run_id, EVENT):
        payload: dict[str, JsonValue] = {name: row.get(name) for name in ("sha256", "size_bytes")}
        return EVENT, payload
    return None


def read_environment(services: Services, run_id: str, event: Event) -> Environment:
    """The manifest that a row binds. Raises ReplayRecordingMissingError, RowMalformed."""
    (data,) = services.exchanges.bodies(run_id, _body(event))
    return parse_environment(data)


def put_up_recorded(
    services: Services, run_id: str, environment: Environment, today: Path, target: Path
) -> None:
    """Have the recorded work tree in a new folder. Raises EnvironmentChanged, StoreFailed."""
    tree = environment.work_tree
    (contents,) = services.exchanges.bodies(run_id, tree.contents)
    put_up(tree, contents, today, target)


def shown_requests(services: Services, run_id: str, lane: str = "") -> list[bytes]:
    """The first requests of a lane, or of all; none where nothing was recorded."""
    try:
        exchanges, _ = services.exchanges.read(run_id)
    except ReplayRecordingMissingError:
        return []
    seen: dict[str, int] = {}
    found = []
    for each in exchanges:
        seen[each.lane] = seen.get(each.lane, 0) + 1
        if seen[each.lane] <= _SHOWN_MAX and lane in {"", each.lane}:
            found.append(services.exchanges.request(run_id, each).body)
    return found


def _body(event: Event) -> Body:
    digest, size = event[1]["sha256"], event[1]["size_bytes"]
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise RowMalformed(f"the row {EVENT} has no digest")
    if not isinstance(size, int) or size < 0:
        raise RowMalformed(f"the row {EVENT} has no size")
    return Body(digest, size)
