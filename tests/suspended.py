"""A process that is suspended for certain, as a frozen host's would be."""

import os
import signal
import time
from pathlib import Path

SECONDS_MAX = 15.0


def suspend(pid: int) -> None:
    """Send SIGSTOP and wait: threads go on until the kernel has told each of them."""
    os.kill(pid, signal.SIGSTOP)
    give_up = time.monotonic() + SECONDS_MAX
    while not _is_suspended(pid):
        assert time.monotonic() < give_up, f"process {pid} runs on"
        time.sleep(0.005)


def _is_suspended(pid: int) -> bool:
    stats = [each / "stat" for each in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in stats)
