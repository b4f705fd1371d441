"""A recorded run as the script that its replay follows.

The recording gives the order of outcomes and what was recorded of the surroundings; everything
else is computed again and must come to the same rows. Rules: docs/decisions, 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bernstein_client.recorder import Recording
from bernstein_formats.agent_environment import EVENT as ENVIRONMENT
from bernstein_formats.canonical import JsonValue
from bernstein_formats.errors import ChainBroken, InvalidInput
from bernstein_formats.journal_reader import load_events_strictly
from bernstein_formats.journal_verify import verify_journal
from bernstein_formats.provider_sidecar import CAPTURE_FAILED
from bernstein_formats.provider_state import MUTATION
from bernstein_orchestrator.events import Event
from bernstein_orchestrator.surroundings import Surroundings

Row = dict[str, JsonValue]

_COMPLETED: Final = "task_completed"
_FAILED: Final = "task_verification_failed"
_ABOUT_PROVIDER: Final = frozenset((MUTATION, CAPTURE_FAILED))


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
    """An outcome in its place; `agent_id` names the attempt."""

    agent_id: str
    task_id: str
    failed_signals: tuple[str, ...]
    is_retried: bool


@dataclass(frozen=True, slots=True)
class Script:
    """What a replay takes from the recorded journal; `end` is empty for a run that was cut off.

    `unvouched` says why nothing shows that this is what was recorded; empty where something does.
    """

    run_id: str
    rows: tuple[Row, ...]
    surroundings: Surroundings
    max_agents: int
    extension_set: Row
    graph_digest: str
    task_ids: frozenset[str]
    base_urls: dict[str, str]
    contexts: dict[str, dict[str, str]]
    provider_events: dict[str, tuple[Event, ...]]
    outcomes: tuple[RecordedOutcome, ...]
    has_released: bool
    calls: Recording | None
    # The row that binds what recorded programs saw; None: they were not recorded.
    environment: Event | None
    end: str
    head: str
    unvouched: str = ""


def read_script(chunks: Iterable[bytes], run_id: str) -> Script:
    """Read a recorded journal; RowMalformed, ChainBroken or InvalidInput where it is no script."""
    data = list(chunks)
    rows = load_events_strictly(data)
    _check_chain(data, run_id)
    started, extension_set, graph = (
        _payload(_only(rows, event, run_id))
        for event in ("run_started", "loaded_extension_set", "plan.graph.full")
    )
    calls = _last(rows, "llm_recording")
    environment = _last(rows, ENVIRONMENT)
    end = _last(rows, "run_completed")
    return Script(
        run_id=str(started.get("run_id")),
        rows=tuple(rows),
        surroundings=Surroundings(
            *(_text(started, name) for name in ("git_sha", "git_branch", "config_hash"))
        ),
        max_agents=_count(started, "max_agents", run_id),
        extension_set=extension_set,
        graph_digest=_text(graph, "digest"),
        task_ids=_node_ids(graph),
        base_urls={
            _text(row, "endpoint_adapter_name"): _text(row, "endpoint_base_url")
            for row in rows
            if row["event"] == "agent_spawned"
        },
        contexts=_contexts(rows),
        provider_events=_provider_events(rows),
        outcomes=_outcomes([row for row in rows if row["event"] not in _ABOUT_PROVIDER]),
        has_released=_has_released(rows),
        calls=None if calls is None else _calls(calls, run_id),
        environment=None if environment is None else (ENVIRONMENT, _payload(environment)),
        end="" if end is None else _text(end, "outcome"),
        head=_text(rows[-1], "event_hash"),
    )


def first_difference(recorded: Iterable[Row], replayed: Iterable[Row]) -> str:
    """Name the first step at which two journals part; empty when they do not."""
    ours = list(replayed)
    theirs = list(recorded)
    for index, (was, now) in enumerate(zip(theirs, ours, strict=False)):
        if was["event_hash"] != now["event_hash"]:
            return f"step {index}: recorded {_told(was)}, replayed {_told(now)}"
    if len(theirs) == len(ours):
        return ""
    index = min(len(theirs), len(ours))
    more = "recording" if len(theirs) > len(ours) else "replay"
    row = (theirs if len(theirs) > len(ours) else ours)[index]
    return f"step {index}: only the {more} has it: {_told(row)}"


def _told(row: Row) -> str:
    named = [f"{name} {row[name]}" for name in ("task_id", "agent_id", "outcome") if name in row]
    return " ".join([str(row["event"]), *named])


def _check_chain(chunks: list[bytes], run_id: str) -> None:
    verification = verify_journal(chunks)
    if not verification.intact:
        where = verification.divergent_index
        raise ChainBroken(
            f"run {run_id}: its journal is damaged"
            f"{'' if where is None else f' at row {where}'};"
            f" see `bernstein replay {run_id} --verify` and replay an undamaged copy",
            run_id=run_id,
            index=where,
        )


def _only(rows: list[Row], event: str, run_id: str) -> Row:
    found = [row for row in rows if row["event"] == event]
    if len(found) != 1:
        raise InvalidInput(
            f"run {run_id} has {len(found)} rows {event}; only a run that this orchestrator"
            " recorded from a plan can be replayed",
            kind="not_replayable",
            run_id=run_id,
        )
    return found[0]


def _last(rows: list[Row], event: str) -> Row | None:
    return next((row for row in reversed(rows) if row["event"] == event), None)


def _payload(row: Row) -> Row:
    envelope = ("ts", "elapsed_s", "index", "event", "prev_hash", "payload_hash", "event_hash")
    return {name: value for name, value in row.items() if name not in envelope}


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def _count(row: Row, name: str, run_id: str) -> int:
    value = row.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise InvalidInput(f"run {run_id}: {name} is no usable number", run_id=run_id)


def _node_ids(graph: Row) -> frozenset[str]:
    nodes = graph.get("nodes")
    nodes = nodes if isinstance(nodes, list) else []
    return frozenset(str(node.get("id")) for node in nodes if isinstance(node, dict))


def _contexts(rows: list[Row]) -> dict[str, dict[str, str]]:
    """Return, for each agent, path → digest of the context files that it was given."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        entries = row.get("entries")
        if row["event"] == "context.files_attached" and isinstance(entries, list):
            found[_text(row, "agent_id")] = {
                _text(entry, "path"): _text(entry, "sha256")
                for entry in entries
                if isinstance(entry, dict)
            }
    return found


def _provider_events(rows: list[Row]) -> dict[str, tuple[Event, ...]]:
    """Return, for each agent, what its wrapper saw."""
    found: dict[str, tuple[Event, ...]] = {}
    for row in rows:
        if row["event"] in _ABOUT_PROVIDER:
            agent_id = _text(row, "agent_id")
            event = (str(row["event"]), _payload(row))
            found[agent_id] = (*found.get(agent_id, ()), event)
    return found


def _outcomes(rows: list[Row]) -> tuple[RecordedOutcome, ...]:
    """Pair each outcome with the attempt that held the task."""
    holder: dict[str, str] = {}
    outcomes = []
    for index, row in enumerate(rows):
        task_id = _text(row, "task_id")
        if row["event"] == "task_claimed":
            holder[task_id] = _text(row, "agent_id")
        elif row["event"] in {_COMPLETED, _FAILED}:
            signals = row.get("failed_signals")
            failed = tuple(map(str, signals)) if isinstance(signals, list) else ()
            following = [each["event"] for each in rows[index + 1 : index + 3]]
            is_retried = following == ["agent_reaped", "task_retried"]
            outcomes.append(RecordedOutcome(holder.get(task_id, ""), task_id, failed, is_retried))
    return tuple(outcomes)


def _has_released(rows: list[Row]) -> bool:
    """Tell whether a round gave tasks back without an outcome: an interruption did."""
    return any(
        row["event"] == "agent_reaped" and before["event"] == "tick_start"
        for before, row in pairwise(rows)
    )


def _calls(row: Row, run_id: str) -> Recording:
    size = row.get("size_bytes")
    count = row.get("call_count")
    if isinstance(size, int) and isinstance(count, int):
        return Recording(count, size, _text(row, "sha256"))
    raise InvalidInput(f"run {run_id}: its llm_recording row is malformed", run_id=run_id)
