"""The main job with no configuration: every step is run, shown, and held to what it says."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bernstein_formats import paths
from bernstein_formats.errors import BernsteinError
from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer
from bernstein_tour.shell import Ran, Shell

PLAN: Final = "plan.yaml"
KEY: Final = "receipt-key.pem"
AUDIT_KEY: Final = "audit.key"
PUBLIC_KEY: Final = "receipt-key.pub.pem"
JOURNAL_COPY: Final = "edited-journal.jsonl"
RECEIPT_COPY: Final = "edited-receipt.json"
# The first row with this event type gets another letter in both copies.
EDITED: Final = b'"task_completed"'

_FAILED, _TAMPERED = 1, 2


@dataclass(frozen=True, slots=True)
class Tour:
    """A tour through one project folder; `tell` gets every line."""

    project: Path
    tell: Callable[[str], None]

    def take(self) -> None:
        """Go through all steps. Raises BernsteinError at the first that does not hold."""
        shell = Shell(self.project, self.tell)
        copy_example(self.project)
        try:
            self._steps(shell)
        except (BernsteinError, KeyboardInterrupt):
            with suppress(BernsteinError):  # what failed first is what must be told
                shell.run("services", "stop")
            raise
        self._explain("Stop the services that the commands above have started.")
        shell.run("services", "stop")

    def _steps(self, shell: Shell) -> None:
        self._explain(
            f"Prepare the project: a key for seals, and {AUDIT_KEY} for lineage and audit log."
        )
        shell.run("services", "init", environ={"BERNSTEIN_AUDIT_KEY_PATH": AUDIT_KEY})
        self._check(f"{AUDIT_KEY} is there", (self.project / AUDIT_KEY).is_file(), True)
        self._explain(
            f"Make a key pair: {KEY} signs receipts, {PUBLIC_KEY} is for who checks them."
        )
        shell.run("keys", "new", KEY)
        self._check(f"{PUBLIC_KEY} is there", (self.project / PUBLIC_KEY).is_file(), True)
        run_id, head = self._record(shell)
        self._replay(shell, run_id, head)
        self._verify(shell, run_id, head)
        self._sign(shell, run_id, head)
        self._edit(shell, run_id)

    def _record(self, shell: Shell) -> tuple[str, str]:
        with ModelServer() as model:
            self._explain(
                "Run a plan: four model calls, three of them side by side. The model is a script on"
                " this machine that never answers twice alike. Everything is recorded."
            )
            ran = shell.run(
                "run",
                PLAN,
                "--json",
                environ={
                    "OPENAI_BASE_URL": model.base_url,
                    "OPENAI_API_KEY": "unused",
                    "BERNSTEIN_DETERMINISTIC_SEED": "42",
                },
            )
            found = ran.document()
            self._check("outcome", found["outcome"], "completed")
            self._check("recorded calls", found["recording"]["call_count"], model.calls)
        self.tell("  (the model server is stopped: from here on nobody could answer)")
        return found["run_id"], found["head_hash"]

    def _replay(self, shell: Shell, run_id: str, head: str) -> None:
        self._explain(
            "Replay the run: no model, no network, and the same journal to the last hash."
        )
        replayed = shell.run("run", PLAN, environ={"BERNSTEIN_REPLAY_RUN_ID": run_id})
        self._says(replayed, " misses=0 ", f"head equals the recorded head: {head}")

    def _verify(self, shell: Shell, run_id: str, head: str) -> None:
        self._explain("Verify the record: chain, coverage and identity are three separate facts.")
        verified = shell.run("replay", run_id, "--verify")
        self._says(verified, f"CHAIN INTACT for {run_id}", "identity=verified")
        self._explain("Re-derive the run: the scheduler's rules alone must lead to the same head.")
        self._says(shell.run("replay", run_id, "--re-derive"), "RE-DERIVED", head)

    def _sign(self, shell: Shell, run_id: str, head: str) -> None:
        self._explain("Sign a receipt: one file that binds the head of the whole run.")
        shell.run("verify", "run", run_id, "--signing-key-path", KEY)
        receipt = self._receipt(run_id)
        stored = json.loads((self.project / receipt).read_bytes())
        self._check("head in the receipt", stored["journal"]["head_hash"], head)
        self._check("spine entries in the receipt", stored["spine"]["entry_count"], 1)
        self._explain("Verify it offline: the receipt is whole, but anybody could have signed it.")
        self._says(shell.run("verify", "receipt", receipt), "OK (integrity-only")
        self._explain("Verify it against the public key: now it is known who vouches for it.")
        pinned = shell.run("verify", "receipt", receipt, "--public-key", PUBLIC_KEY)
        self._says(pinned, "OK (provenance")

    def _edit(self, shell: Shell, run_id: str) -> None:
        journal = f".sdd/{paths.journal_path(run_id)}"
        data = (self.project / journal).read_bytes()
        step = data.count(b"\n", 0, data.find(EDITED))
        self._explain(f"Change one byte in a copy of the journal: step {step} is named.")
        self._change_byte(journal, JOURNAL_COPY)
        edited = shell.run("replay", "--verify", "--file", JOURNAL_COPY, expect=_FAILED)
        self._says(edited, f"first divergent step {step} in")
        self._explain("Change the same byte in a copy of the receipt: the same step is named.")
        self._change_byte(self._receipt(run_id), RECEIPT_COPY)
        edited = shell.run("verify", "receipt", RECEIPT_COPY, expect=_TAMPERED)
        self._says(edited, f"first divergent step: {step}\n")

    def _receipt(self, run_id: str) -> str:
        return f".sdd/{paths.receipt_path(run_id)}"

    def _change_byte(self, source: str, copy: str) -> None:
        data = (self.project / source).read_bytes()
        place = data.find(EDITED) + 1
        self._check(f"{source} has a completed task", place > 0, True)
        self.tell(f"  ({copy}: byte {place} was {chr(data[place])!r} and is 'T' now)")
        (self.project / copy).write_bytes(data[:place] + b"T" + data[place + 1 :])

    def _explain(self, text: str) -> None:
        self.tell("")
        self.tell(f"# {text}")

    def _says(self, ran: Ran, *texts: str) -> None:
        for text in texts:
            if text not in ran.stdout:
                raise BernsteinError(f"`{ran.command}` does not say {text.strip()!r}")
            self.tell(f"  ok: it says {text.strip()!r}")

    def _check(self, what: str, actual: Any, expected: Any) -> None:
        if actual != expected:
            raise BernsteinError(f"{what} is {actual!r} instead of {expected!r}")
        self.tell(f"  ok: {what}" if expected is True else f"  ok: {what} = {actual}")
