"""One service process serves any number of origins; one signer keeps a ledger for each of them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fleet import Fleet, ServiceHost, fleet_in
from tests.postgres_server import PostgresServer

from bernstein_client.connection import Services
from bernstein_client.values import WatchedRows
from bernstein_formats.errors import NotAllowed, RunExists, RunNotFound, Unavailable

pytestmark = pytest.mark.processes


@pytest.fixture
def fleet(tmp_path: Path, postgres: PostgresServer) -> Iterator[Fleet]:
    database = {"BERNSTEIN_SVC_STORE_URL": postgres.database()}
    with fleet_in(tmp_path / "fleet", **database) as made:
        yield made


def sealed_run(services: Services, run_id: str, rows: int = 1) -> None:
    services.journal.create_run(run_id)
    for number in range(rows):
        services.journal.append(run_id, "x", {"n": number})
    services.journal.finish_run(run_id)


def ledgers(host: ServiceHost) -> list[list[dict[str, object]]]:
    found = (host.folder / "home").rglob("signer/origins/*/ledger.jsonl")
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in found]


def test_two_hosts_seal_the_runs_of_one_origin_with_one_signer(fleet: Fleet) -> None:
    """Each host has journals and no signer of its own; both ask the fleet's one."""
    keys = fleet.host("keys")
    keys.start("signer")
    signer_at = f"127.0.0.1:{keys.endpoint.base_port}"
    first, second = (fleet.host(name, BERNSTEIN_SVC_ENDPOINT=signer_at) for name in ("a", "b"))
    for host in (first, second):
        host.start("journal")
    with (
        fleet.client("one", first).services() as one,
        fleet.client("two", second).services() as two,
    ):
        sealed_run(one, "r1")
        sealed_run(two, "r2")
        sealed_run(one, "r3")
        # Of a run that both write, either may end it.
        one.journal.create_run("r4")
        one.journal.append("r4", "x", {})
        two.journal.append("r4", "y", {})
        two.journal.finish_run("r4")
        verdicts = [one.journal.verify_run(f"r{n}") for n in (1, 2, 3, 4)]

    assert [found.identity for found in verdicts] == ["verified"] * 4
    assert {found.pinned_key for found in verdicts} == {True}
    (entries,) = ledgers(keys)
    assert [entry["run_id"] for entry in entries] == ["r1", "r2", "r3", "r4"]


def test_origins_of_one_process_never_see_each_other(fleet: Fleet) -> None:
    host = fleet.host("one")
    host.start("journal", "recorder", "rederiver", "signer")
    names = ["build-1:/srv/app", "bü ro:/srv/app%20"]
    projects = [
        fleet.client(f"c{number}", host, BERNSTEIN_SVC_FLEET_ORIGIN=name)
        for number, name in enumerate(names)
    ]
    with projects[0].services() as first, projects[1].services() as second:
        sealed_run(first, "same", rows=1)
        sealed_run(second, "same", rows=2)
        first.journal.create_run("mine")
        with pytest.raises(RunNotFound):
            second.journal.get_run("mine")
        with pytest.raises(RunExists):
            first.journal.create_run("same")
        assert [run.run_id for run in second.journal.list_runs()] == ["same"]
        assert first.journal.get_run("same").row_count == 1
        # The rederiver asks the journal for the same origin.
        assert second.rederiver.rederive_run("same").reason_code == "plan_missing"
        first.recorder.append_calls("mine", 0, b'{"a": 1}\n')
        assert first.recorder.append_calls("mine", 0, b'{"a": 1}\n') == 9
    assert sorted(len(entries) for entries in ledgers(host)) == [1, 1]
    assert {str(entries[0]["origin"]) for entries in ledgers(host)} == set(names)


def test_two_hundred_origins_are_served_by_one_journal(fleet: Fleet) -> None:
    host = fleet.host("one")
    host.start("journal", "signer")
    client = fleet.client("c", host)

    def work(number: int) -> int:
        environ = {**client.environ, "BERNSTEIN_SVC_FLEET_ORIGIN": f"host{number}:/p"}
        with Services(client.sdd, environ) as services:
            sealed_run(services, "r")
            return services.journal.get_run("r").row_count

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(work, range(200))) == 200
    status = Path(f"/proc/{host.running['journal'].pid}/status").read_text()
    count = int(status.partition("Threads:")[2].split()[0])
    assert count < 600, "threads of idle origins"
    assert len(ledgers(host)) == 200


def test_runs_go_on_while_the_signer_is_away_and_end_when_it_is_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bernstein_runtime.channel.RETRY_SECONDS", 1.0)
    host = fleet.host("one")
    host.start("journal", "signer")
    with fleet.client("c", host).services() as services:
        sealed_run(services, "r1")
        host.kill("signer")
        services.journal.create_run("r2")
        services.journal.append("r2", "x", {})
        verified = services.journal.verify_run("r1")
        with pytest.raises(Unavailable) as raised:
            services.journal.finish_run("r2")
        host.start("signer")
        assert services.journal.finish_run("r2").row_count == 1

    assert verified.identity == "verified"
    assert any("signer at 127.0.0.1" in note for note in verified.notes)
    assert f"signer at 127.0.0.1:{host.endpoint.port('signer')}" in raised.value.message


def test_followers_of_several_origins_hear_of_their_own_rows(fleet: Fleet) -> None:
    host = fleet.host("one")
    host.start("journal", "signer")
    projects = [
        fleet.client(name, host, BERNSTEIN_SVC_FLEET_ORIGIN=f"{name}:/p") for name in ("a", "b")
    ]
    with (
        projects[0].services() as first,
        projects[1].services() as second,
        ThreadPoolExecutor(2) as threads,
    ):
        for services in (first, second):
            services.journal.create_run("r")
            services.journal.append("r", "a", {})
        following = [threads.submit(followed, each) for each in (first, second)]
        second.journal.append("r", "b", {})
        for services in (first, second):
            services.journal.finish_run("r")
        assert [each.result(30) for each in following] == [1, 2]


def followed(services: Services) -> int:
    items = services.journal.watch_rows("r")
    return sum(len(item.lines) for item in items if isinstance(item, WatchedRows))


def test_files_serve_their_own_origin_alone(tmp_path: Path) -> None:
    own = {"BERNSTEIN_SVC_FLEET_ORIGIN": "fleet:demo"}
    with fleet_in(tmp_path / "files", **own) as fleet:
        host = fleet.host("one")
        host.start("journal")
        other = fleet.client("c", host, BERNSTEIN_SVC_FLEET_ORIGIN="other:/p")
        with other.services() as services, pytest.raises(NotAllowed) as raised:
            services.journal.create_run()
    assert "those of 'fleet:demo' alone, and 'other:/p' was asked for" in raised.value.message
