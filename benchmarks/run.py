"""`make bench`: ours and the peer measured side by side, as a table of ratios and goals.

CPU-bound work of both runs in one process under the peer's interpreter, our packages being on its
path; whole commands and services run as they are installed, each under its own.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks import rows
from benchmarks.agent_proxies import agent_proxies
from benchmarks.appends import appends
from benchmarks.commands import commands, idle_services
from benchmarks.fairness import fairness
from benchmarks.fleet_appends import fleet_appends
from benchmarks.followers import followers
from benchmarks.goals import goal_of
from benchmarks.measuring import Figure, Setting
from benchmarks.project import ROOT, PeerEnvironment, peer_environment
from benchmarks.recordings import recordings
from benchmarks.stores import stores

IN_ONE_PROCESS = (
    "verification",
    "canonical",
    "rederivation",
    "receipts",
    "replays",
    "resuming",
    "appending",
)
IDLE_SHARE_WANTED = 0.9
IDLE_WATCHED_SECONDS = 1.0
Group = Callable[[Setting, PeerEnvironment], Iterator[Figure]]


def main() -> None:
    wanted = arguments()
    peer = peer_environment()
    figures: list[Figure] = []
    for name, group in GROUPS.items():
        if wanted.only and name not in wanted.only:
            continue
        note_idleness()
        with tempfile.TemporaryDirectory(dir=disk_folder(), prefix="bench-") as folder:
            for figure in group(Setting(Path(folder), wanted.quick), peer):
                if not figures:
                    print(HEADER)
                figures.append(figure)
                print(table_line(figure), flush=True)
    if wanted.json:
        wanted.json.write_text(json.dumps([told(each) for each in figures], indent=1) + "\n")
    missed = [figure.name for figure in figures if not goal_of(figure).is_met(figure)]
    print(
        f"{len(figures)} figures, {len(missed)} goals missed" + "".join(f"\n  {m}" for m in missed)
    )
    sys.exit(1 if wanted.strict and missed else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=list(GROUPS), help="may be repeated")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, 3 repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal is missed")
    return parser.parse_args()


def disk_folder() -> Path:
    """On the disk of the checkout: a folder in memory would make every sync free."""
    folder = ROOT / ".peer"
    folder.mkdir(exist_ok=True)
    return folder


def in_one_process(name: str) -> Group:
    def group(setting: Setting, peer: PeerEnvironment) -> Iterator[Figure]:
        quick = ["quick"] if setting.quick else []
        command = peer.module("benchmarks.in_one_process", name, setting.folder, *quick)
        with subprocess.Popen(
            command, env=peer.environ(), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield from map(Figure.from_line, process.stdout)
        if process.returncode:
            sys.exit(f"{name} failed with exit code {process.returncode}")

    return group


def memory(setting: Setting, peer: PeerEnvironment) -> Iterator[Figure]:
    """Growth over what a process had before, at two lengths; the peer's at both as well."""
    lengths = [("short", 10_000), ("long", 100_000 if setting.quick else 1_000_000)]
    for label, count in lengths:
        rows.write_run(setting.folder, label, rows.std_events(count))
        for what, work in ("verify", "verify"), ("receipt build", "receipt"):
            yield grown(f"memory of {what}, {label} journal", setting, peer, work, label)
    rows.write_calls(setting.folder, "recorded", setting.count(100_000))
    measured(setting, peer, "our-replay", "recorded")
    yield grown("memory of replay open, index there", setting, peer, "replay", "recorded")


def grown(name: str, setting: Setting, peer: PeerEnvironment, work: str, run_id: str) -> Figure:
    ours = measured(setting, peer, f"our-{work}", run_id)
    theirs = measured(setting, peer, f"peer-{work}", run_id)
    return Figure(name, "MiB", ours, theirs, theirs / max(ours, 0.1))


def measured(setting: Setting, peer: PeerEnvironment, work: str, run_id: str) -> float:
    command = peer.module("benchmarks.memory", work, setting.folder, run_id)
    done = subprocess.run(command, env=peer.environ(), stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def note_idleness() -> None:
    """Wall-clock figures need a quiet machine; say so where it is not."""
    before = processor_ticks()
    time.sleep(IDLE_WATCHED_SECONDS)
    idle, total = (after - was for after, was in zip(processor_ticks(), before, strict=True))
    if idle < IDLE_SHARE_WANTED * total:
        print(f"note: the machine is {idle / max(total, 1):.0%} idle; wall-clock figures suffer")


def processor_ticks() -> tuple[int, int]:
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    ticks = [int(field) for field in fields]
    return ticks[3] + ticks[4], sum(ticks)


GROUPS: dict[str, Group] = {
    "commands": commands,
    "idle": idle_services,
    **{name: in_one_process(name) for name in IN_ONE_PROCESS},
    "memory": memory,
    "appends": appends,
    "fairness": fairness,
    "agent-proxies": agent_proxies,
    "recordings": recordings,
    "stores": stores,
    "fleet-appends": fleet_appends,
    "followers": followers,
}
HEADER = f"{'metric':42} {'ours':>14} {'peer':>14} {'ratio':>9} {'goal':>9}  met"


def table_line(figure: Figure) -> str:
    goal = goal_of(figure)
    peer = "" if figure.peer is None else amount(figure.peer, figure.unit)
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}x"
    met = "" if not goal.text() else "yes" if goal.is_met(figure) else "NO"
    ours = amount(figure.ours, figure.unit)
    return f"{figure.name:42} {ours:>14} {peer:>14} {ratio:>9} {goal.text():>9}  {met}"


def amount(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}"
    return f"{text} {unit}"


def told(figure: Figure) -> dict[str, object]:
    goal = goal_of(figure)
    return {**asdict(figure), "goal": goal.text(), "met": goal.is_met(figure)}


if __name__ == "__main__":
    main()
