"""An agent that answers support tickets: tools, observers, and nodes that run side by side.

`python agent.py interactive` takes two turns with a live model and records them; the other modes
are named likewise, and `headless-replay` is answered from what interactive and headless-eval have
stored. `bernstein determinism replay-turn RUN --agent agent.py` replays them without a model.
"""

import os
import sys
from decimal import Decimal
from pathlib import Path

from bernstein_client.connection import Services
from bernstein_client.recorder import Provider
from bernstein_determinism.channels import append_reducer, messages_reducer, union_reducer
from bernstein_determinism.node import Node
from bernstein_determinism.observers import CONTINUE, Chunk, Emit, Stop, Verdict
from bernstein_determinism.ports import ModelSettings
from bernstein_determinism.prompts import (
    PromptContribution,
    RuntimeContext,
    RuntimeSection,
    StaticContext,
    StaticSection,
    rendered,
)
from bernstein_determinism.recorded_runtime import AgentSetup, record_run
from bernstein_determinism.turn import Turn
from bernstein_formats.canonical import JsonValue
from bernstein_formats.modes import RuntimeMode

CONFIG = StaticContext({"house": "Bernstein & Daughters", "tone": "calm and short"})
ORDERS: dict[str, JsonValue] = {"1007": "sent on Monday", "1008": "waiting for a lid"}
TICKETS: list[JsonValue] = [
    {"order": "1007", "text": "Where is my teapot?"},
    {"order": "1008", "text": "You sent a pot without its lid."},
]


class Length:
    """Says on a channel when an answer is long, and ends one that never does."""

    name = "length"

    def __init__(self) -> None:
        self._seen = 0

    def on_chunk(self, chunk: Chunk) -> Verdict:
        self._seen += len(chunk.text)
        if self._seen > 2000:
            return Stop("over 2000 characters")
        return Emit("flags", f"long: {chunk.index}") if self._seen > 200 else CONTINUE


def manner(context: StaticContext) -> str:
    """Static: made from configuration alone, the same in every session."""
    return f"You answer for {context.config['house']}, {context.config['tone']}."


def ticket(context: RuntimeContext) -> str:
    """Runtime-aware: made from the turn."""
    assert isinstance(context.turn_input, dict)
    return f"The customer writes: {context.turn_input['text']}"


def known(context: RuntimeContext) -> str:
    """Runtime-aware: made from a channel, which has one state whoever wrote first."""
    notes = context.channels.get("notes", [])
    return f"Known: {notes}"


SECTIONS = (
    StaticSection("manner", order=0, priority=9, make=manner, required=True),
    RuntimeSection("ticket", order=1, priority=8, make=ticket, required=True),
    RuntimeSection("known", order=2, priority=1, make=known),
)


def prompt(node: Node, turn: Turn, task: str) -> list[PromptContribution]:
    """The sections for this turn, and what this node is to do."""
    channels = {"notes": node.read("notes")}
    parts = rendered(SECTIONS, RuntimeContext(CONFIG, turn.input, channels))
    return [*parts, PromptContribution("task", order=3, priority=9, text=task, required=True)]


def find_order(order: str) -> JsonValue:
    """A tool: looks into the world outside. A replay takes the recorded result."""
    return ORDERS.get(order, "unknown")


def agent(turn: Turn) -> None:
    """Look things up side by side, draft side by side, then answer."""
    assert isinstance(turn.input, dict)
    order = str(turn.input["order"])

    def look_up(node: Node) -> None:
        status = node.tool("find_order", {"order": order}, find_order)
        node.write("notes", f"order {order} is {status}")

    def classify(node: Node) -> None:
        text = node.ask(prompt(node, turn, "Name the kind of ticket."), call_class="judge")
        node.write("tags", text[:12])

    def draft(node: Node) -> None:
        text = node.ask(prompt(node, turn, f"Draft an answer as {node.name}."))
        message: JsonValue = {"id": node.name, "version": 1, "order": 1, "text": text}
        node.write("thread", message)

    def answer(node: Node) -> None:
        drafts = node.read("thread")
        text = node.ask(prompt(node, turn, f"Merge these drafts: {drafts}"))
        final: JsonValue = {"id": "answer", "version": 1, "order": 2, "text": text}
        node.write("thread", final)

    turn.step({"look-up": look_up, "classify": classify})
    turn.step({"clerk": draft, "manager": draft})
    turn.step({"answer": answer})


def setup() -> AgentSetup:
    """What the agent runs with; a replay must run with the same."""
    return AgentSetup(
        model=ModelSettings(model="scripted-small", provider="openai"),
        channels={
            "notes": append_reducer,
            "tags": union_reducer,
            "thread": messages_reducer,
            "flags": append_reducer,
        },
        observers=(Length,),
        version="1",
    )


def record(sdd_dir: Path, mode: RuntimeMode) -> str:
    """Take a turn for each ticket in this mode, score it, and give the run's id."""
    environ = os.environ
    providers = [Provider("openai", environ["OPENAI_BASE_URL"], environ["OPENAI_API_KEY"])]
    seed = 7 if mode in (RuntimeMode.HEADLESS_EVAL, RuntimeMode.HEADLESS_REPLAY) else None
    with (
        Services(sdd_dir) as services,
        record_run(services, setup(), mode, seed=seed, providers=providers) as made,
    ):
        for number, each in enumerate(TICKETS, start=1):
            taken = made.runtime.take_turn(agent, each, turn_id=f"ticket-{number}")
            thread = taken.views["thread"]
            assert isinstance(thread, list)
            score = Decimal(len(thread))
            made.runtime.score(taken, "messages", score, scorer="count", scorer_version="1")
    return made.run_id


if __name__ == "__main__":
    print(record(Path(".sdd"), RuntimeMode(sys.argv[1])))  # noqa: T201 - a program
