"""The end of a run around agents: its last rows, and the verdict, which is the proxy's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bernstein_cli import exit_codes
from bernstein_cli.output import remark
from bernstein_client.agent_rows import Event, recording_events
from bernstein_client.connection import Services
from bernstein_client.proxy import LaneAccount
from bernstein_formats.canonical import JsonValue

UNUSED_SHOWN_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class AgentVerdict:
    """What came of the agents of a run; `recorded_head` is empty when nothing was replayed."""

    run_id: str
    head: str
    recorded_head: str
    accounts: tuple[LaneAccount, ...]
    agent_exit_code: int | None

    def exit_code(self, *, require_complete: bool = False) -> int:
        if any(each.misses for each in self.accounts):
            return exit_codes.REPLAY_MISS
        if any(each.failures for each in self.accounts):
            return exit_codes.FAILED
        if require_complete and any(each.unused_count for each in self.accounts):
            return exit_codes.REPLAY_INCOMPLETE
        return exit_codes.OK

    def count(self, name: str) -> int:
        """A number of all lanes together."""
        return sum(int(getattr(each, name)) for each in self.accounts)

    def document(self) -> dict[str, Any]:
        """The members of the JSON document."""
        return {
            "run_id": self.run_id,
            "head": self.head,
            "recorded_head": self.recorded_head or None,
            "agent_exit_code": self.agent_exit_code,
            "lanes": [lane_document(each) for each in self.accounts],
        }

    def say(self) -> None:
        """Tell a person, on stderr: stdout is the agent's."""
        for account in self.accounts:
            _say_account(account)
        if self.recorded_head:
            same = "the recorded head" if self.head == self.recorded_head else "another head"
            remark(f"run {self.run_id} reached {same}, {self.head[:16]}")
        else:
            remark(f"run {self.run_id} is recorded; head {self.head[:16]}")


def finish_run(
    services: Services, accounts: Sequence[LaneAccount], agent_exit_code: int | None = None
) -> AgentVerdict:
    """Write the last rows and seal the run."""
    run_id, replayed = accounts[0].run_id, accounts[0].replay_run_id
    events = [event for each in accounts for event in _ends(each, agent_exit_code)]
    events += recording_events(services, replayed or run_id)
    if events:
        services.journal.append_many(run_id, events)
    finished = services.journal.finish_run(run_id)
    recorded_head = ""
    if replayed:
        recorded_head = services.journal.verify_run(replayed).head_hash
    return AgentVerdict(
        run_id, finished.head_hash_hex, recorded_head, tuple(accounts), agent_exit_code
    )


def _ends(account: LaneAccount, agent_exit_code: int | None) -> list[Event]:
    events: list[Event] = []
    if agent_exit_code is not None:
        events.append(("agent_ended", {"lane": account.lane, "exit_code": agent_exit_code}))
    if account.misses or account.failures:
        counts: dict[str, JsonValue] = {
            "lane": account.lane,
            "misses": account.misses,
            "failures": len(account.failures),
        }
        events.append(("llm_http_not_clean", counts))
    return events


def _say_account(account: LaneAccount) -> None:
    if account.replay_run_id:
        remark(
            f"lane {account.lane}: hits {account.served}, misses {account.misses}, left"
            f" {account.unused_count}, cut {account.cut}{_masked(account)}"
            f"{f', out of turn {account.late}' if account.late else ''}"
        )
    else:
        remark(f"lane {account.lane}: recorded {account.recorded}, cut {account.cut}")
        if not account.recorded:
            remark(f"lane {account.lane}: no model call came through; see docs/agents.md")
    for text in (*account.failures, *account.notes):
        remark(text)
    for each in account.unused[:UNUSED_SHOWN_MAX]:
        remark(f"never asked for: request {each.seq}, {each.path}, key {each.key[:16]}")


def _masked(account: LaneAccount) -> str:
    """What was not compared, because a rule blanks it."""
    names = ", ".join(f"{rule} x{count}" for rule, count in account.masked.items())
    return f", masked: {names}" if names else ""


def lane_document(account: LaneAccount) -> dict[str, Any]:
    return {
        "lane": account.lane,
        "replay_of": account.replay_run_id or None,
        "recorded": account.recorded,
        "served": account.served,
        "misses": account.misses,
        "left": account.unused_count,
        "cut": account.cut,
        "refused": account.refused,
        "late": account.late,
        "unexpected_path": account.unexpected_path,
        "masked": dict(account.masked),
        "failures": list(account.failures),
        "notes": list(account.notes),
        "unused": [{"seq": e.seq, "key": e.key, "path": e.path} for e in account.unused],
    }
