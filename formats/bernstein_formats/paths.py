"""Run ids, and the names of a run's files as text relative to the `.sdd` folder.

Rules: docs/formats/event-journal.md, sections 1 and 2. Nothing here touches a disk: symbolic links
are for whoever opens the file.
"""

import re

from bernstein_formats.errors import InvalidInput

RUNS_FOLDER = "runs"
# The newest seal the journal has seen: a signer whose ledger does not reach it was put back.
CHECKPOINT = "svc/checkpoint.json"
# What was accepted as lost, one object a line.
LOSSES = "svc/losses.jsonl"
LINEAGE_FOLDER = "lineage"
STEPS_FOLDER = "runtime/journal"

_RUN_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_IN_A_NAME = re.compile(r"[/\\]")
_AGENT_ID_CHARACTERS_MAX = 64
_FILE_NAME_MAX = 1024
_FILE_PART_MAX = 255
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_run_id(name: str) -> bool:
    """Whether a name can be a run's."""
    return bool(_RUN_ID.fullmatch(name)) and name not in {".", ".."}


def check_run_id(run_id: str) -> None:
    """Refuse a run id that cannot name a folder under `runs`."""
    if is_run_id(run_id):
        return
    raise InvalidInput(
        f"{run_id!r} is no run id: use 1 to 64 of the characters A-Z a-z 0-9 . _ -,"
        " and neither '.' nor '..'",
        run_id=run_id,
    )


def task_run_id(task_id: str) -> str:
    """Name the journal of a task that spans processes; two tasks may share a name."""
    return f"task-{_NOT_IN_AN_ID.sub('-', task_id) or 'unknown'}"


def run_folder(run_id: str) -> str:
    """Name the folder of a run; InvalidInput if the id cannot be one, here and below."""
    check_run_id(run_id)
    return f"{RUNS_FOLDER}/{run_id}"


def run_folders(run_id: str) -> tuple[str, str]:
    """Name the folders that a run's files are in."""
    return run_folder(run_id), f"{LINEAGE_FOLDER}/{run_id}"


def check_run_file(run_id: str, name: str) -> None:
    """Refuse a name that is none of a file of the run, or hidden: locks and temporary files are."""
    for folder in run_folders(run_id):
        below = name.removeprefix(f"{folder}/")
        if below != name and len(name) <= _FILE_NAME_MAX and all(map(_is_part, below.split("/"))):
            return
    raise InvalidInput(f"{name!r} is no file of run {run_id}", run_id=run_id)


def _is_part(part: str) -> bool:
    fits = 1 <= len(part.encode()) <= _FILE_PART_MAX
    return fits and part.isprintable() and part[0] != "." and "\\" not in part


def journal_path(run_id: str) -> str:
    """Name the event journal."""
    return f"{run_folder(run_id)}/journal.jsonl"


def events_path(run_id: str) -> str:
    """Name the gateway's recorded fixtures."""
    return f"{run_folder(run_id)}/events.jsonl"


def llm_calls_path(run_id: str) -> str:
    """Name the recorded model calls."""
    return f"{run_folder(run_id)}/llm_calls.jsonl"


def llm_http_path(run_id: str) -> str:
    """Name the recorded exchanges of agents with their providers."""
    return f"{run_folder(run_id)}/llm_http.jsonl"


def llm_http_bodies_path(run_id: str) -> str:
    """Name the bodies of those exchanges."""
    return f"{run_folder(run_id)}/llm_http.bodies"


def quarantine_path(run_id: str) -> str:
    """Name the answers that hold secrets, below a private folder outside of the state folder."""
    check_run_id(run_id)
    return f"quarantine/{run_id}.bodies"


def metadata_path(run_id: str) -> str:
    """Name the run's metadata."""
    return f"{run_folder(run_id)}/metadata.json"


def replay_path(run_id: str) -> str:
    """Name the note that says which run this one replays."""
    return f"{run_folder(run_id)}/replay.json"


def seal_path(run_id: str) -> str:
    """Name the seal and the key that made it."""
    return f"{run_folder(run_id)}/seal.json"


def interim_seal_path(run_id: str) -> str:
    """Name the seal that a receipt of an unfinished run needed; empty once the run is sealed."""
    check_run_id(run_id)
    return f"svc/seals/{run_id}.json"


def incomplete_path(run_id: str) -> str:
    """Name the mark of a run that was begun here and is not sealed yet."""
    return f"{run_folder(run_id)}/incomplete.json"


def divergence_report_path(run_id: str) -> str:
    """Name the report of a failed verification."""
    return f"{run_folder(run_id)}/divergence_report.json"


def receipt_path(run_id: str) -> str:
    """Name the signed receipt."""
    return f"{run_folder(run_id)}/run-receipt.json"


def receipt_cose_path(run_id: str) -> str:
    """Name the receipt's COSE form."""
    return f"{run_folder(run_id)}/run-receipt.cose"


def review_diff_path(run_id: str, task_id: str) -> str:
    """Name the captured diff of a task whose id is a safe file name."""
    if _NOT_IN_AN_ID.search(task_id) or task_id in {"", ".", ".."}:
        raise InvalidInput(f"{task_id!r} cannot name a file; use A-Z a-z 0-9 . _ -")
    return f"{run_folder(run_id)}/review/diffs/{task_id}.diff"


def spine_path(run_id: str) -> str:
    """Name the lineage spine."""
    check_run_id(run_id)
    return f"{LINEAGE_FOLDER}/{run_id}/spine.jsonl"


def spine_head_path(run_id: str) -> str:
    """Name the file that holds the lineage spine's head."""
    check_run_id(run_id)
    return f"{LINEAGE_FOLDER}/{run_id}/spine.head"


def spine_lock_path(run_id: str) -> str:
    """Name the lock that whoever appends to a spine holds, the peer too."""
    check_run_id(run_id)
    return f"{LINEAGE_FOLDER}/{run_id}/.spine.lock"


def check_agent_id(agent_id: str) -> None:
    """Refuse an agent's or session's id that is not one safe file name.

    The peer takes any text; whatever its own ids look like is taken here too.
    """
    if (
        1 <= len(agent_id) <= _AGENT_ID_CHARACTERS_MAX
        and agent_id.isprintable()
        and not _NOT_IN_A_NAME.search(agent_id)
        and len(agent_id.encode()) <= 2 * _AGENT_ID_CHARACTERS_MAX
        and agent_id not in {".", ".."}
    ):
        return
    raise InvalidInput(
        f"{agent_id!r} is no agent or session id: use 1 to {_AGENT_ID_CHARACTERS_MAX} characters"
        " that can be printed, no slash, and neither '.' nor '..'",
        agent_id=agent_id,
    )


def is_private(name: str) -> bool:
    """Whether a file is its owner's alone: what agents were told and answered is."""
    return name.startswith(f"{STEPS_FOLDER}/")


def steps_folder(agent_id: str) -> str:
    """Name the folder of an agent's step journal; InvalidInput if the id cannot be one."""
    check_agent_id(agent_id)
    return f"{STEPS_FOLDER}/{agent_id}"


def steps_path(agent_id: str) -> str:
    """Name an agent's step journal."""
    return f"{steps_folder(agent_id)}/000000.jsonl"


def session_receipt_path(agent_id: str, kind: str = "") -> str:
    """Name an agent's receipt; `kind` is "", "redacted" or "debug"."""
    check_agent_id(agent_id)
    return f"runtime/receipts/{agent_id}{kind and f'.{kind}'}.tar"


def session_path(session_id: str) -> str:
    """Name the snapshot of a session."""
    check_agent_id(session_id)
    return f"runtime/sessions/{session_id}.json"


def path_diff_path(left: str, right: str) -> str:
    """Name the stored comparison of two agents' steps."""
    check_agent_id(left)
    check_agent_id(right)
    return f"runtime/debug/{left}__{right}.pathdiff.json"


def blob_path(digest: str) -> str:
    """Name a blob; `digest` is its SHA-256 in lower-case hexadecimal."""
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"{digest!r} is no digest: use 64 lower-case hexadecimal digits")
    return f"cas/{digest[:2]}/{digest}"
