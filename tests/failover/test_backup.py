"""A database that is lost whole comes back from its backup, and what cannot is told by name."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.postgres_server import PostgresServer

from bernstein_formats.errors import LedgerRefused, RunNotFound

pytestmark = pytest.mark.processes
DEPLOYED = Path(__file__).parents[2] / "deploy" / "backup" / "pgbackrest.conf"


class BackedUpServer(PostgresServer):
    """Archives as deploy/backup says, into a folder of its own."""

    def __init__(self) -> None:
        if shutil.which("pgbackrest") is None:
            pytest.skip("pgBackRest is needed: apt-get install pgbackrest")
        super().__init__()
        text = DEPLOYED.read_text()
        for theirs, ours in (
            ("/var/lib/postgresql/15/bernstein", f"{self.folder}/data"),
            ("/var/run/postgresql", str(self.folder)),
            ("/var/lib/pgbackrest", f"{self.folder}/repository"),
            ("[global]\n", f"[global]\nlock-path={self.folder}/lock\n"),
        ):
            assert theirs in text
            text = text.replace(theirs, ours)
        self._settings = self.folder / "pgbackrest.conf"
        self._settings.write_text(text)
        push = f"pgbackrest --config={self._settings} --stanza=evidence archive-push %p"
        self.execute("alter system set archive_mode = on")
        self.execute(f"alter system set archive_command = '{push}'")
        self.stop("fast")
        self.start()
        self.pgbackrest("stanza-create")

    def pgbackrest(self, *arguments: str) -> None:
        done = subprocess.run(
            [
                *self._as,
                "pgbackrest",
                f"--config={self._settings}",
                "--stanza=evidence",
                *arguments,
            ],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def archive(self) -> None:
        """What archive_timeout does by and by."""
        self.execute("select pg_switch_wal()")
        self.pgbackrest("check")

    def lose(self) -> None:
        """The disk, and everything on it."""
        self.stop("immediate")
        shutil.rmtree(self.folder / "data")


@pytest.fixture
def server() -> Iterator[BackedUpServer]:
    made = BackedUpServer()
    yield made
    made.remove()


def test_a_lost_database_is_restored_and_what_was_not_archived_is_refused_by_name(
    project: Project, server: BackedUpServer
) -> None:
    settings = {"BERNSTEIN_SVC_STORE_URL": server.database(), "BERNSTEIN_SVC_STORE_ORIGIN": "a:b"}
    fleet = replace(project, environ={**project.environ, **settings})
    with fleet.services() as services:
        journal = services.journal
        for run_id in ("sealed", "went-on"):
            journal.append(journal.create_run(run_id), "x", {"n": 1})
        journal.finish_run("sealed")
        server.pgbackrest("backup", "--type=full")
        journal.append(journal.create_run("after-the-backup"), "x", {"n": 1})
        journal.finish_run("after-the-backup")
        server.archive()
        journal.append("went-on", "x", {"n": 2})
        journal.append(journal.create_run("never-archived"), "x", {"n": 1})
        for run_id in ("went-on", "never-archived"):
            journal.finish_run(run_id)

        server.lose()
        services.supervisor.ask({"do": "stop"})
        server.pgbackrest("restore")
        server.start()

    with fleet.services() as services:
        journal = services.journal
        for run_id in ("sealed", "after-the-backup"):
            found = journal.verify_run(run_id)
            assert (found.chain_consistent, found.identity) == (True, "verified")
        # The signer keeps its ledger elsewhere, and knows what is gone.
        found = journal.verify_run("went-on")
        assert (found.identity, found.errors) == (
            "mismatched",
            ("the seal in the signer's ledger commits to 2 rows, the journal holds 1",),
        )
        with pytest.raises(RunNotFound):
            journal.get_run("never-archived")
        journal.append(journal.create_run("never-archived"), "x", {"n": "another"})
        with pytest.raises(LedgerRefused, match="rows were changed"):
            journal.finish_run("never-archived")
        # Whoever still has the row gives it again.
        journal.append("went-on", "x", {"n": 2})
        journal.finish_run("went-on")
        assert journal.verify_run("went-on").identity == "verified"
