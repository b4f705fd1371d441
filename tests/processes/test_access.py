"""Roles, ownership, quotas and quarantine, as commands and programs meet them in a fleet."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Project
from tests.fleet import Fleet, ServiceHost, fleet_in

from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows
from bernstein_formats.errors import NotAllowed, TooMany
from bernstein_tour.example import copy_example
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
ORIGIN = "fleet:demo"
LONG_AGO = "2020-01-01"


def grant(caller: str, *roles: str, runs: str = "*") -> str:
    return "".join(
        f'[[grant]]\ncaller = "{caller}"\nrole = "{role}"\norigins = ["*"]\nruns = ["{runs}"]\n'
        for role in roles
    )


ROLES = (
    grant("one", "service")
    + grant("build-*", "writer")
    + grant("auditor", "reader")
    + grant("release-auditor", "reader", runs="release-*")
    + grant("ops", "operator")
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path / "fleet", BERNSTEIN_SVC_FLEET_ORIGIN=ORIGIN) as made:
        made.roles.write_text(ROLES)
        yield made


@pytest.fixture
def host(fleet: Fleet) -> ServiceHost:
    made = fleet.host("one")
    made.start("journal", "signer")
    return made


def connected(fleet: Fleet, host: ServiceHost, name: str) -> Services:
    return fleet.client(name, host).services()


def bernstein(project: Project, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *words],
        env=dict(project.environ),
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_run_is_its_openers_and_stays_so_when_the_journal_starts_again(
    fleet: Fleet, host: ServiceHost
) -> None:
    with connected(fleet, host, "build-1") as mine, connected(fleet, host, "build-2") as other:
        run_id = mine.journal.create_run()
        mine.journal.append(run_id, "x", {"n": 1})
        host.kill("journal")
        host.start("journal")
        with pytest.raises(NotAllowed, match="or writer and to have opened it"):
            other.journal.append(run_id, "x", {"n": 2})
        with pytest.raises(NotAllowed):
            other.journal.get_run(run_id)
        mine.journal.append(run_id, "x", {"n": 2})
        assert mine.journal.finish_run(run_id).row_count == 2
        with connected(fleet, host, "ops") as ops:
            assert ops.journal.get_run(run_id).row_count == 2


def test_a_grant_for_some_runs_is_none_for_others_nor_for_the_list_of_all(
    fleet: Fleet, host: ServiceHost
) -> None:
    with (
        connected(fleet, host, "build-1") as writer,
        connected(fleet, host, "release-auditor") as auditor,
    ):
        for run_id in ("release-1", "nightly-1"):
            writer.journal.create_run(run_id)
            writer.journal.append(run_id, "x", {})
        assert auditor.journal.get_run("release-1").row_count == 1
        for ask in (
            lambda: auditor.journal.get_run("nightly-1"),
            lambda: auditor.journal.get_run("latest"),
            lambda: list(auditor.journal.list_runs()),
            lambda: auditor.journal.append("release-1", "x", {}),
        ):
            with pytest.raises(NotAllowed, match="release-auditor may not call"):
                ask()


def test_a_grant_that_is_taken_away_ends_the_streams_that_it_allowed(
    fleet: Fleet, host: ServiceHost
) -> None:
    with (
        connected(fleet, host, "build-1") as writer,
        connected(fleet, host, "auditor") as auditor,
    ):
        run_id = writer.journal.create_run()
        writer.journal.append(run_id, "x", {"n": 1})
        watched = auditor.journal.watch_rows(run_id)
        assert any(isinstance(each, WatchedRows) for each in watched)

        new = fleet.roles.with_suffix(".new")
        new.write_text(ROLES.replace('"auditor"', '"nobody"'))
        new.replace(fleet.roles)

        def go_on() -> None:
            while True:
                writer.journal.append(run_id, "x", {"n": 2})
                next(watched)

        with pytest.raises(NotAllowed, match="auditor may not call"):
            go_on()


def test_more_calls_than_a_callers_quota_are_refused_and_others_go_on(
    fleet: Fleet, host: ServiceHost
) -> None:
    fleet.roles.write_text(ROLES + "[quota]\nopen_runs = 2\nrequest_ids = 5\n")
    host.kill("journal")
    host.start("journal")
    with connected(fleet, host, "build-1") as one, connected(fleet, host, "build-2") as two:
        first, _ = one.journal.create_run(), one.journal.create_run()
        with pytest.raises(TooMany, match="2 runs open"):
            one.journal.create_run("third")
        one.journal.append(first, "x", {})
        one.journal.finish_run(first)
        one.journal.create_run("third")
        with pytest.raises(TooMany, match="requests with an id"):
            one.journal.append("third", "x", {})
        two.journal.append(two.journal.create_run(), "x", {})


def test_what_a_stolen_certificate_touched_is_listed_and_fenced_until_that_is_lifted(
    fleet: Fleet, host: ServiceHost
) -> None:
    ops = fleet.client("ops", host)
    with connected(fleet, host, "build-1") as thief, connected(fleet, host, "build-2") as other:
        run_id, others = thief.journal.create_run(), other.journal.create_run()
        thief.journal.append(run_id, "x", {"n": 1})
        other.journal.append(others, "x", {"n": 1})

        listed = bernstein(ops, "admin", "quarantine", "--caller", "build-1", "--since", LONG_AGO)
        assert listed.returncode == 0, listed.stderr
        assert f"run {run_id}" in listed.stdout
        assert others not in listed.stdout
        assert "not refused" in listed.stderr
        thief.journal.append(run_id, "x", {"n": 2})

        words = ("admin", "quarantine", "--caller", "build-1", "--since", LONG_AGO, "--fence")
        fenced = bernstein(ops, *words, "--json")
        assert fenced.returncode == 0, fenced.stderr
        found = json.loads(fenced.stdout)
        assert found["is_fenced"] is True
        assert [(each["id"], each["is_own"]) for each in found["changed"]] == [(run_id, True)]

        with pytest.raises(NotAllowed, match="calls of build-1 are refused"):
            thief.journal.create_run()
        with pytest.raises(NotAllowed, match="calls of build-1 are refused"):
            thief.journal.get_run(run_id)
        with ops.services() as operator:
            with pytest.raises(NotAllowed, match="in quarantine since"):
                operator.journal.append(run_id, "x", {})
            with pytest.raises(NotAllowed, match="in quarantine since"):
                operator.journal.finish_run(run_id)
            assert operator.journal.get_run(run_id).row_count == 2
            other.journal.append(others, "x", {"n": 2})
        host.kill("journal")
        host.start("journal")
        with pytest.raises(NotAllowed, match="calls of build-1 are refused"):
            thief.journal.create_run()

        lift = ("admin", "quarantine", "--caller", "build-1", "--lift")
        assert bernstein(ops, *lift).returncode == 0
        assert bernstein(ops, *lift).returncode == 1
        thief.journal.append(run_id, "x", {"n": 3})
        assert thief.journal.finish_run(run_id).row_count == 3
    mistaken = bernstein(ops, *(word.replace("build-1", "ops") for word in words))
    assert "that is yourself" in mistaken.stderr
    assert bernstein(ops, "admin", "quarantine", "--caller", "x").returncode == 2


def test_calls_side_by_side_beyond_the_quota_wait_and_come_through(
    fleet: Fleet, host: ServiceHost
) -> None:
    fleet.roles.write_text(ROLES + "[quota]\ncalls = 2\n")
    host.kill("journal")
    host.start("journal")
    with connected(fleet, host, "build-1") as writer:
        runs = [writer.journal.create_run() for _ in range(8)]
        threads = [
            threading.Thread(target=writer.journal.append, args=(each, "x", {})) for each in runs
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert [writer.journal.get_run(each).row_count for each in runs] == [1] * 8


def test_a_writer_alone_runs_replays_and_verifies_a_plan_and_lists_nothing(
    fleet: Fleet, host: ServiceHost
) -> None:
    host.start("recorder", "rederiver")
    client = fleet.client("build-1", host)
    copy_example(client.folder / "plan")
    with ModelServer() as model:
        model_at = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "unused"}
        environ = {**client.environ, **model_at, "BERNSTEIN_DETERMINISTIC_SEED": "42"}
        here = replace(client, folder=client.folder / "plan", environ=environ)
        ran = bernstein(here, "run", "plan.yaml", "--json")
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(ran.stdout)["run_id"]

    again = replace(here, environ={**environ, "BERNSTEIN_REPLAY_RUN_ID": run_id})
    assert bernstein(again, "run", "plan.yaml").returncode == 0
    assert bernstein(here, "replay", run_id, "--verify").returncode == 0
    assert bernstein(here, "follow", run_id).returncode == 0
    for words in (("replay", "list"), ("replay", "latest", "--verify")):
        refused = bernstein(here, *words)
        assert refused.returncode != 0
        assert "build-1 may not call" in refused.stderr
        assert "CALLER_NOT_ALLOWED" in refused.stderr
