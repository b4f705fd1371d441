"""Each file operation of an append fails or kills once: nothing that was answered is lost.

A small program appends numbered lines and prints each number once its append has returned; strace
lets one system call of it fail, write short, or kill it. Afterwards the log is opened again.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bernstein_store.files import FileStore

pytestmark = pytest.mark.faults

NAME = "runs/r1/journal.jsonl"
COUNT = 6
PROGRAM = f"""
import sys
from pathlib import Path
from bernstein_formats.errors import BernsteinError
from bernstein_store.files import FileStore
from bernstein_store.store import Mark
log = FileStore(Path(sys.argv[1])).open_log("{NAME}")
size = log.size
for number in range({COUNT}):
    line = b"line %d\\n" % number
    try:
        log.append(line, [Mark(f"r{{number}}", log.size + len(line), str(number))])
    except BernsteinError as error:
        print("refused", number, error.reason, flush=True)
        continue
    print("stored", number, flush=True)
"""


def run_with_fault(sdd: Path, call: str, fault: str, path: Path) -> list[str]:
    strace = shutil.which("strace")
    assert strace, "strace is needed: apt-get install strace"
    command = [
        strace, "-f", "-qq", "-o", "/dev/null", "-P", str(path),
        "-e", f"trace={call}", "-e", f"inject={call}:{fault}",
        sys.executable, "-c", PROGRAM, str(sdd),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("when", [1, 2, 4])
@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("write", "error=ENOSPC"),
        ("write", "error=EIO"),
        ("write", "retval=3"),
        ("fdatasync", "error=EIO"),
        ("fdatasync", "signal=KILL"),
        ("write", "signal=KILL"),
    ],
)
def test_no_answered_line_is_lost_or_doubled(
    tmp_path: Path, call: str, fault: str, when: int
) -> None:
    sdd = tmp_path / ".sdd"
    journal = sdd / NAME
    journal.parent.mkdir(parents=True)
    journal.touch()

    said = run_with_fault(sdd, call, f"{fault}:when={when}", journal)
    stored = [line.split()[1] for line in said if line.startswith("stored")]
    log = FileStore(sdd).open_log(NAME)
    lines = journal.read_text().splitlines()

    kept = [line.removeprefix("line ") for line in lines if line.removeprefix("line ").isdigit()]
    assert [number for number in kept if number in stored] == stored
    if "retval" not in fault:  # a kernel that lies about a write leaves its gap, unacknowledged
        assert all(line.startswith("line ") for line in lines)
        assert len(set(kept)) == len(kept)
    assert log.size == journal.stat().st_size
    answered = {each.request_id for each in log.marks}
    assert {f"r{number}" for number in stored} <= answered


def test_a_full_device_refuses_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    sdd = tmp_path / ".sdd"
    journal = sdd / NAME
    journal.parent.mkdir(parents=True)
    journal.touch()

    said = run_with_fault(sdd, "write", "error=ENOSPC:when=3", journal)

    assert said == [
        "stored 0",
        "stored 1",
        "refused 2 DISK_FULL",
        "stored 3",
        "stored 4",
        "stored 5",
    ]
    assert journal.read_text() == "line 0\nline 1\nline 3\nline 4\nline 5\n"
