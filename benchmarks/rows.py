"""The journals and recordings that are measured: the same bytes each time, from a fixed seed.

"std" rows are flat and short, as most of a run is; "mixed" ones carry texts of half a kilobyte to
nine, a tenth beyond ASCII and a few with a float that JSON writers print differently; "nested" ones
look like tool calls.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

from bernstein_formats.canonical import JsonValue, Profile
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.llm_calls import CallRequest, call_line

Payload = dict[str, JsonValue]
Event = tuple[str, Payload]

EVENTS = ("task_claimed", "tick_start", "agent_spawned", "cost_recorded", "skills.injected")
PROSE = (
    "the agent changed a function and its test then ran both again because one of them had failed "
    "def return import self value result error retry plan stage commit merge branch file line"
)
WORDS = tuple(PROSE.split())
BEYOND_ASCII = ("naïve façade", "größer als", "漢字と仮名", "done 😀", "Überprüfung läuft")
UNUSUAL_FLOATS = (1e-7, 2.5e-05, 1e16, 3.2e21, -4e-06)
INNER_JSON = '{"name": "read_file", "arguments": {"path": "src/app.py", "limit": 200}}'


def seeded() -> Random:
    return Random(20_301)  # noqa: S311 - the same rows every time


def std_events(count: int) -> Iterator[Event]:
    random = seeded()
    for number in range(count):
        yield EVENTS[number % len(EVENTS)], std_payload(random, number)


def std_payload(random: Random, number: int) -> Payload:
    """Seven flat members, one a float; with its event type about 235 bytes are hashed."""
    return {
        "task_id": f"task-{random.getrandbits(48):012x}",
        "agent_id": f"backend-{random.getrandbits(32):08x}",
        "model": random.choice(("x-large-4", "small-2", "medium-3-preview")),
        "attempt": number % 4,
        "cost_usd": round(random.uniform(0.0002, 3.0), 4),
        "workspace_hash": f"{random.getrandbits(256):064x}",
        "ok": number % 7 != 0,
    }


def mixed_events(count: int) -> Iterator[Event]:
    random = seeded()
    for number in range(count):
        payload = std_payload(random, number)
        payload["output"] = text(random, int(random.triangular(60, 5000, 60)))
        if number % 10 == 0:
            payload["note"] = random.choice(BEYOND_ASCII)
        if number % 25 == 0:
            payload["score"] = random.choice(UNUSUAL_FLOATS)
        yield EVENTS[number % len(EVENTS)], payload


def nested_events(count: int) -> Iterator[Event]:
    random = seeded()
    for number in range(count):
        call = tool_call(random)
        result: JsonValue = {
            "status": "done",
            "usage": {"input": random.randrange(9000), "output": 12},
        }
        yield "tool_called", {"step": number, "call": call, "result": result, "retries": []}


def tool_call(random: Random) -> JsonValue:
    return {
        "name": random.choice(("read_file", "write_file", "run_command")),
        "arguments": {
            "path": f"src/{random.choice(WORDS)}/{random.choice(WORDS)}.py",
            "range": [random.randrange(200), random.randrange(200, 400)],
            "options": {"follow": False, "encoding": "utf-8", "ratio": round(random.random(), 3)},
        },
        "duration_s": round(random.uniform(0.001, 9.0), 3),
    }


def text(random: Random, size: int) -> str:
    """Prose with a line end every few sentences; some of it quotes, or holds JSON."""
    parts: list[str] = []
    length = 0
    while length < size:
        line = " ".join(random.choices(WORDS, k=40))
        if random.random() < 0.1:
            line = f'{line} said "yes": go on'
        if random.random() < 0.05:
            line = INNER_JSON
        parts.append(line)
        length += len(line) + 1
    return "\n".join(parts)[:size]


def one_plan_events(count: int) -> Iterator[Event]:
    """One plan, then each of its tasks claimed and completed."""
    tasks = [f"t{number:06d}" for number in range(count // 2)]
    yield "plan.graph.full", {"goal": "g", "nodes": [node(task, []) for task in tasks]}
    for task in tasks:
        yield from claimed_and_completed(task)


def many_plans_events(tasks: int, plans: int) -> Iterator[Event]:
    """A plan that grows: each of its rows repeats all tasks so far, as the format asks for."""
    nodes: list[JsonValue] = []
    step = tasks // plans
    for first in range(0, tasks, step):
        names = [f"t{number:06d}" for number in range(first, first + step)]
        nodes += [node(name, []) for name in names]
        yield "plan.graph.full", {"goal": "g", "nodes": nodes}
        for name in names:
            yield from claimed_and_completed(name)


def node(task: str, depends_on: list[JsonValue]) -> JsonValue:
    return {"depends_on": depends_on, "id": task, "role": "backend", "title": f"Do {task}"}


def claimed_and_completed(task: str) -> Iterator[Event]:
    yield "task_claimed", {"task_id": task, "agent_id": f"backend-{task}", "model": "small-2"}
    yield "task_completed", {"task_id": task, "agent_id": f"backend-{task}", "cost_usd": 0.25}


def rows_of(events: Iterable[Event], profile: Profile = Profile.PY_JSON) -> Iterator[bytes]:
    """The journal's lines, line ends included."""
    head = ChainHead(profile=profile)
    for number, (event, payload) in enumerate(events):
        ts, elapsed_s = 1_700_000_000.123456 + number * 0.01, round(number * 0.01, 3)
        line, head = next_row(head, event, payload, ts, elapsed_s)
        yield line + b"\n"


def write_run(
    sdd: Path, run_id: str, events: Iterable[Event], profile: Profile = Profile.PY_JSON
) -> Path:
    """Write a run's journal, without services; give its path."""
    path = sdd / "runs" / run_id / "journal.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.writelines(rows_of(events, profile))
    return path


def calls(count: int) -> Iterator[tuple[CallRequest, str]]:
    """Model calls of about 1.2 KB a line, one in ten a repeated request."""
    random = seeded()
    for number in range(count):
        prompt = f"Task {number - number % 10 if number % 10 == 1 else number}: do the next step."
        yield CallRequest("small-2", prompt), text(random, 900)


def write_calls(sdd: Path, run_id: str, count: int) -> Path:
    path = sdd / "runs" / run_id / "llm_calls.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for number, (request, response) in enumerate(calls(count)):
            file.write(call_line(request, response, ts=1_700_000_000.5 + number))
    return path
