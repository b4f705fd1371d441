"""The proxy with real processes, real SDKs and a scripted provider: records, replays, misses."""

import http.client
import json
import shlex
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from tests.scripted_provider import ProviderServer

from bernstein_client.connection import Services
from bernstein_client.exchanges import Recorded
from bernstein_client.proxy import LaneAccount, LaneWanted, ProxyClient
from bernstein_client.recorder import Provider
from bernstein_formats.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    ReplayRecordingMissingError,
    RowMalformed,
    RunNotFound,
)
from bernstein_formats.http_exchange import Answer, End, body_of, envelope_of, exchange_of
from bernstein_formats.http_key import HttpRequest, keyed

pytestmark = pytest.mark.processes
VECTORS = Path(__file__).parents[1] / "vectors" / "data" / "llm-http"
SECRET = "sk-real-key-of-the-user"  # noqa: S105 - opens nothing
ENDS = {
    "complete": End.COMPLETE,
    "abort": End.ABORTED,
    "client_gone_before_headers": End.CLIENT_GONE,
}


# --- lanes --------------------------------------------------------------------------------------


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as served:
        yield served


def new_run(services: Services) -> str:
    run_id = services.journal.create_run()
    services.journal.append(run_id, "agent_started", {})
    return run_id


class LaneHolder:
    """An open lane; `account` is there once it is closed."""

    def __init__(self, run_id: str, base: str) -> None:
        self.run_id = run_id
        self.base = base
        self.account: LaneAccount

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body; a body that was cut off raises IncompleteRead."""
        with closing(self.connect()) as connection:
            connection.request(
                "POST",
                urlsplit(self.base).path + path,
                body if isinstance(body, bytes) else json.dumps(body).encode(),
                {"Content-Type": "application/json", **headers},
            )
            with connection.getresponse() as answer:
                named = {name.lower(): value for name, value in answer.getheaders()}
                return answer.status, named, answer.read()

    def connect(self, seconds: float = 10.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urlsplit(self.base).netloc, timeout=seconds)


@contextmanager
def lane(
    services: Services,
    provider: ProviderServer | None = None,
    *,
    run_id: str = "",
    replay: str = "",
    name: str = "agent",
    budget: int = 0,
) -> Iterator[LaneHolder]:
    run_id = run_id or new_run(services)
    providers: tuple[Provider, ...] = ()
    if provider is not None:
        providers = (
            Provider("openai", f"{provider.url}/v1", SECRET),
            Provider("anthropic", provider.url, SECRET),
        )
    with ProxyClient(services.supervisor) as proxy:
        wanted = LaneWanted(run_id, name, replay, budget, providers)
        held = LaneHolder(run_id, proxy.open_lane(wanted))
        yield held
        held.account = proxy.close_lane()


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


CHAT = "/openai/v1/chat/completions"


# --- recording ------------------------------------------------------------------------------------


def test_pieces_go_on_at_once_and_who_leaves_is_recorded_as_gone(
    services: Services, provider: ProviderServer
) -> None:
    body = json.dumps(chat("hang", stream=True)).encode()
    with lane(services, provider) as recording:
        connection = recording.connect()
        connection.request("POST", f"{urlsplit(recording.base).path}{CHAT}", body)
        # The provider is silent now, and goes on only after this test.
        with connection.getresponse() as answer:
            first = answer.read1()
        connection.close()
    (exchange,), _ = services.exchanges.read(recording.run_id)
    (kept,) = services.exchanges.bodies(recording.run_id, exchange.answer.body)
    with lane(services, replay=recording.run_id) as replaying:
        connection = replaying.connect(seconds=1.0)
        connection.request("POST", f"{urlsplit(replaying.base).path}{CHAT}", body)
        with connection.getresponse() as answer:
            again = answer.read1(len(kept))
            while len(again) < len(kept):
                again += answer.read1(len(kept))
            with pytest.raises(TimeoutError):
                answer.read1()
        connection.close()

    assert exchange.answer.end is End.CLIENT_GONE
    assert b"chat.completion.chunk" in first
    assert kept.startswith(first)
    assert again == kept
    assert (recording.account.cut, replaying.account.cut) == (1, 1)


def test_no_secret_is_written_anywhere_and_the_provider_gets_the_real_key(
    services: Services, provider: ProviderServer, project: Any
) -> None:
    with lane(services, provider) as recording:
        recording.post(CHAT, chat("hi"), Authorization="Bearer dummy", Cookie="sid=agent-cookie")
        recording.post("/anthropic/v1/messages", chat("hi"), **{"x-api-key": "dummy-two"})
    written = [path.read_bytes() for path in project.sdd.rglob("*") if path.is_file()]

    secrets = (SECRET, "cookie-secret", "org-secret", "agent-cookie", "dummy")
    assert [name for name in secrets if any(name.encode() in data for data in written)] == []
    (_, openai_sent, _), (_, anthropic_sent, _) = provider.asked
    assert openai_sent["Authorization"] == f"Bearer {SECRET}"
    assert anthropic_sent["x-api-key"] == SECRET
    assert "Cookie" not in openai_sent


def test_what_cannot_be_stored_breaks_the_stream_and_is_told(
    services: Services, provider: ProviderServer, project: Any
) -> None:
    with lane(services, provider) as recording:
        (project.sdd / "runs" / recording.run_id / "llm_http.bodies").mkdir()
        with pytest.raises(http.client.IncompleteRead):
            recording.post(CHAT, chat("hi", stream=True))

    assert recording.account.recorded == 0
    (failure,) = recording.account.failures
    assert "is not recorded" in failure


def test_a_provider_that_is_away_is_recorded_as_a_broken_connection(services: Services) -> None:
    with ProviderServer() as gone:
        pass
    disconnected = pytest.raises(http.client.RemoteDisconnected)
    with lane(services, gone) as recording, disconnected:
        recording.post(CHAT, chat("hi"))
    with lane(services, replay=recording.run_id) as replaying, disconnected:
        replaying.post(CHAT, chat("hi"))

    assert "did not answer" in recording.account.notes[0]
    assert replaying.account.misses == 0


# --- what is refused ------------------------------------------------------------------------------


def test_a_path_that_is_no_model_call_is_refused_by_name(
    services: Services, provider: ProviderServer
) -> None:
    paths = (
        *("/openai/v1/files", "/other/v1/responses", "/openai/../v1/responses"),
        f"/gemini/v1beta/files/{'x' * 150}/sk-ant-{'a1' * 20}/g",
    )
    with lane(services, provider) as held:
        refused = [held.post(path, {})[0] for path in paths]
        upgrade = held.post("/openai/v1/responses", {}, Connection="Upgrade", Upgrade="websocket")
        connection = held.connect()
        connection.request("HEAD", f"{urlsplit(held.base).path}/anthropic/api/hello")
        with connection.getresponse() as hello:
            pass
        connection.close()
        other_lane = LaneHolder("", f"{held.base[:-4]}0000")
        closed = other_lane.post(CHAT, {})

    assert refused == [404] * 4
    assert upgrade[0] == 426
    assert (hello.status, closed[0]) == (200, 404)
    assert b"LANE_CLOSED" in closed[2]
    assert held.account.refused == 4
    told = "\n".join(held.account.notes)
    assert "<secret:anthropic-key:" in told
    assert "a1a1" not in told
    assert provider.asked == []


def test_a_budget_ends_a_lane_in_one_request(services: Services, provider: ProviderServer) -> None:
    with lane(services, provider, budget=1) as held:
        first = held.post(CHAT, chat("hi"))
        second = held.post(CHAT, chat("hi"))

    assert (first[0], second[0]) == (200, 400)
    assert (second[1]["x-should-retry"], held.account.refused) == ("false", 1)
    assert len(provider.asked) == 1


def test_lanes_that_cannot_be_are_refused(services: Services, provider: ProviderServer) -> None:
    run_id = new_run(services)
    with lane(services, provider, run_id=run_id):
        with pytest.raises(Conflict), lane(services, provider, run_id=run_id):
            pass
        with pytest.raises(Conflict), lane(services, run_id=run_id, replay="r", name="b"):
            pass
    with pytest.raises(ReplayRecordingMissingError), lane(services, replay=run_id):
        pass
    with pytest.raises(RunNotFound), lane(services, run_id="nobody"):
        pass
    with pytest.raises(InvalidInput), lane(services, name=""):
        pass
    with ProxyClient(services.supervisor) as proxy:
        wanted = LaneWanted(run_id, "a", providers=(Provider("openai", "ftp://x", ""),))
        with pytest.raises(InvalidInput):
            proxy.open_lane(wanted)
        with pytest.raises(NotFound):
            proxy.close_run(run_id)


def test_a_held_lane_ends_with_its_holder(services: Services, provider: ProviderServer) -> None:
    run_id = new_run(services)
    with ProxyClient(services.supervisor) as proxy:
        base = proxy.open_lane(LaneWanted(run_id, "agent"))
    again = ProxyClient(services.supervisor)
    # The lane's name is free again once the proxy has noticed.
    for _ in range(100):
        try:
            again.open_lane(LaneWanted(run_id, "agent"))
            break
        except Conflict:
            continue
    again.close()

    assert LaneHolder(run_id, base).post(CHAT, chat("hi"))[0] == 404


# --- replay ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in map(json.loads, (VECTORS / "responses.jsonl").read_text().splitlines())
        if not case["id"].startswith("sse-gemini")
    ],
    ids=lambda case: case["id"],
)
def test_recorded_bytes_are_replayed_with_their_ending(
    services: Services, case: dict[str, Any]
) -> None:
    chunks = [b64decode(each) for each in case["chunks_b64"]]
    whole = b"".join(chunks)
    headers = tuple((name, value) for name, value in case["headers"])
    sizes = tuple((len(chunk), 0.0) for chunk in chunks)
    end = ENDS[case["end"]]
    answer = Answer(case["status"], body_of(whole), end, None, "")
    body = json.dumps(chat("hi")).encode()
    request = HttpRequest("POST", CHAT, (), (), body)
    recorded = new_run(services)
    envelope = envelope_of(request, headers, sizes)
    found = keyed(request)
    exchange = exchange_of("agent", 1, request, found, answer=answer, envelope=envelope)
    services.exchanges.record(recorded, [Recorded(exchange, envelope.data(), body, whole)])

    with lane(services, replay=recorded) as replaying:
        if end is End.COMPLETE:
            status, got, data = replaying.post(CHAT, body)
            assert (status, got["content-type"], data) == (200, headers[0][1], whole)
        elif end is End.ABORTED:
            with pytest.raises(http.client.IncompleteRead) as cut:
                replaying.post(CHAT, body)
            assert cut.value.partial == whole
        else:
            connection = replaying.connect(seconds=0.5)
            connection.request("POST", f"{urlsplit(replaying.base).path}{CHAT}", body)
            with pytest.raises(TimeoutError):
                connection.getresponse()
            connection.close()
    assert replaying.account.misses == 0


def test_identical_requests_of_two_lanes_never_swap_answers(
    services: Services, provider: ProviderServer
) -> None:
    run_id = new_run(services)
    with (
        lane(services, provider, run_id=run_id, name="left") as left,
        lane(services, provider, run_id=run_id, name="right") as right,
    ):
        recorded = [held.post(CHAT, chat("hi"))[2] for held in (left, right, left)]
    replay_id = new_run(services)
    with (
        lane(services, run_id=replay_id, replay=run_id, name="left") as left,
        lane(services, run_id=replay_id, replay=run_id, name="right") as right,
    ):
        replayed = [held.post(CHAT, chat("hi"))[2] for held in (right, left, left)]
    services.journal.finish_run(run_id)
    services.journal.finish_run(replay_id)

    assert replayed == [recorded[1], recorded[0], recorded[2]]
    heads = [services.journal.verify_run(each).head_hash for each in (run_id, replay_id)]
    assert heads[0] == heads[1]


@pytest.fixture
def recorded(services: Services, provider: ProviderServer) -> str:
    """A run with one Anthropic and one chat exchange."""
    with lane(services, provider) as recording:
        recording.post("/anthropic/v1/messages", chat("hi", max_tokens=9))
        recording.post(CHAT, chat("hi", temperature=0))
    return recording.run_id


def test_a_miss_stops_the_sdk_at_once_and_names_the_field(
    services: Services, recorded: str
) -> None:
    with lane(services, replay=recorded) as replaying:
        client = openai.OpenAI(base_url=f"{replaying.base}/openai/v1", api_key="dummy")
        with client, pytest.raises(openai.BadRequestError) as missed:
            client.chat.completions.create(**chat("hi", temperature=0.7))
        latched = replaying.post(CHAT, chat("hi", temperature=0))
    with lane(services, replay=recorded) as other:
        asking = anthropic.Anthropic(base_url=f"{other.base}/anthropic", api_key="dummy")
        with asking, pytest.raises(anthropic.APIStatusError) as failed:
            asking.messages.create(**chat("bye", max_tokens=9))

    text = str(missed.value)
    assert "REPLAY_MISS" in text
    assert "$.body.json.temperature (recorded 0, asked 0.7)" in text
    assert latched[0] == 400
    assert b"closed since its first miss" in latched[2]
    # One request each: neither client tried again.
    assert (replaying.account.misses, other.account.misses) == (2, 1)
    assert failed.value.status_code == 424
    assert replaying.account.unused_count == 2


def test_used_up_is_told_apart_from_never_recorded(services: Services, recorded: str) -> None:
    with lane(services, replay=recorded) as replaying:
        replaying.post(CHAT, chat("hi", temperature=0))
        status, headers, data = replaying.post(CHAT, chat("hi", temperature=0))
    with lane(services, replay=recorded, name="stranger") as stranger:
        unknown = stranger.post(CHAT, chat("hi", temperature=0))

    assert (status, headers["x-should-retry"]) == (400, "false")
    assert b"1 of 1 answers are used up" in data
    assert b"Nothing was recorded in this lane" in unknown[2]


def test_a_body_that_was_changed_is_never_replayed(
    services: Services, recorded: str, project: Any
) -> None:
    exchanges, _ = services.exchanges.read(recorded)
    path = project.sdd / "runs" / recorded / "llm_http.bodies"
    stored = path.read_bytes()
    at = stored.index(bytes.fromhex(exchanges[1].answer.body.sha256_hex)) + 40
    path.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
    with lane(services, replay=recorded) as replaying:
        status, _, data = replaying.post(CHAT, chat("hi", temperature=0))

    assert status == 400
    assert b"ROW_MALFORMED" in data
    # What was recorded cannot be read: the agent asked nothing that was not recorded.
    assert replaying.account.misses == 0
    assert "ROW_MALFORMED" in replaying.account.failures[0]
    with pytest.raises(RowMalformed):
        services.exchanges.bodies(recorded, exchanges[1].answer.body)


# --- the command ----------------------------------------------------------------------------------

AGENT = """
import json, os, sys, urllib.request
body = {"model": "m", "messages": [{"role": "user", "content": sys.argv[1]}]}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps(body).encode(), {"Content-Type": "application/json",
    "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
for _ in range(int(sys.argv[2])):
    answer = json.loads(urllib.request.urlopen(request).read())
    with open("edited.txt", "a") as file:
        file.write(answer["choices"][0]["message"]["content"] + "\\n")
"""


class Desk:
    """A terminal in a project with an agent."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.edited = project.folder / "edited.txt"
        (project.folder / "agent.py").write_text(AGENT)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "bernstein_cli", *arguments],
            cwd=self.project.folder,
            env={**self.project.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert 'File "/' not in done.stdout
        return done

    def record(self, *options: str, text: str = "hi", count: int = 2, **environ: str) -> Any:
        return self.around(text, count, "record", *options, **environ)

    def replay(self, run_id: str, *options: str, text: str = "hi", count: int = 2) -> Any:
        return self.around(text, count, "replay", run_id, *options)

    def around(self, text: str, count: int, *words: str, **environ: str) -> Any:
        command = ("--", sys.executable, "agent.py", text, str(count))
        done = self.run(*words, "--json", *command, **environ)
        return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def desk(project: Any) -> Desk:
    return Desk(project)


def test_one_command_records_and_replays_an_agent(desk: Desk, tmp_path: Path) -> None:
    with ProviderServer() as provider:
        code, recorded, _ = desk.record(OPENAI_BASE_URL=f"{provider.url}/v1", OPENAI_API_KEY=SECRET)
    written = desk.edited.read_text()
    desk.edited.write_text("newer")
    tree = tmp_path / "replayed"
    again, replayed, told = desk.replay(
        recorded["run_id"], "--require-complete", "--work-tree", str(tree)
    )

    assert (code, again) == (0, 0)
    assert recorded["lanes"][0]["recorded"] == 2
    # It worked in a fresh copy of the recorded files, and not here.
    assert (tree / "edited.txt").read_text() == written != ""
    assert desk.edited.read_text() == "newer"
    assert replayed["head"] == replayed["recorded_head"] == recorded["head"]
    assert replayed["run_id"] != recorded["run_id"]
    assert "hits 2, misses 0, left 0" in told
    verified = desk.run("replay", recorded["run_id"], "--verify", "--json")
    assert verified.returncode == 0
    journal = desk.project.sdd / "runs" / recorded["run_id"] / "journal.jsonl"
    events = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    assert events == [
        *("agent_environment", "agent_started", "llm_http_exchange", "llm_http_exchange"),
        *("agent_ended", "llm_http_recording"),
    ]


def test_the_exit_code_is_the_proxys_account(desk: Desk) -> None:
    with ProviderServer() as provider:
        _, recorded, _ = desk.record(OPENAI_BASE_URL=f"{provider.url}/v1")
    run_id = recorded["run_id"]
    missed = desk.replay(run_id, text="ho")
    incomplete = desk.replay(run_id, "--require-complete", count=1)
    left = desk.replay(run_id, count=1)
    path = desk.project.sdd / "runs" / run_id / "llm_http.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"status": 200', b'"status": 201', 1))
    changed = desk.run("replay", run_id, "--", "true")
    nothing = desk.run("record", "--", "true")
    absent = desk.run("record", "--", "no-such-program")

    assert (missed[0], incomplete[0], left[0]) == (10, 11, 0)
    assert missed[1]["lanes"][0]["misses"] == 1
    assert missed[1]["head"] != missed[1]["recorded_head"]
    assert left[1]["lanes"][0]["left"] == 1
    assert (changed.returncode, changed.stderr.count("[RECORDING_CHANGED]")) == (1, 1)
    assert nothing.returncode == 0
    assert "no model call came through" in nothing.stderr
    assert absent.returncode == 1
    assert "[INVALID_INPUT]" in absent.stderr


def test_settings_of_a_client_can_be_sourced(desk: Desk) -> None:
    with ProviderServer() as provider:
        printed = desk.run("agent", "env", "openai", OPENAI_BASE_URL=f"{provider.url}/v1")
        sourced = f"set -e\n{printed.stdout}\n{sys.executable} agent.py hi 1"
        subprocess.run(
            ["bash", "-c", sourced],
            cwd=desk.project.folder,
            env=dict(desk.project.environ),
            check=True,
            timeout=30,
        )
        run_id = shlex.split(printed.stderr)[-1]
        ended = desk.run("agent", "end", run_id, "--json")
    replaying = desk.run("agent", "env", "codex", "--replay", run_id, "--json")
    closed = desk.run("agent", "end", json.loads(replaying.stdout)["run_id"], "--require-complete")

    assert ended.returncode == 0
    assert json.loads(ended.stdout)["lanes"][0]["recorded"] == 1
    assert "über" in desk.edited.read_text()
    assert "model_provider=rec" in json.loads(replaying.stdout)["arguments"]
    assert closed.returncode == 11
    assert "never asked for: request 1" in closed.stderr
    assert desk.run("agent", "end", run_id).returncode == 1


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_an_agents_own_settings_lead_to_a_lane_until_its_end(
    desk: Desk, client: str, tmp_path: Path
) -> None:
    opened = desk.run("agent", "env", client, "--peer", "--json")
    told = json.loads(opened.stdout)
    own = Path(told["settings_file"])
    within = own.read_text()
    second = desk.run("agent", "env", client, "--peer")
    (desk.project.sdd / "runs").rename(tmp_path / "runs")
    lost = desk.run("agent", "end", told["run_id"])
    (tmp_path / "runs").rename(desk.project.sdd / "runs")
    ended = desk.run("agent", "end", told["run_id"])

    assert opened.returncode == 0
    assert f"for every {client} of this user" in opened.stderr
    assert own.is_relative_to(desk.project.environ["HOME"])
    assert told["base_url"] in within
    assert (second.returncode, second.stdout) == (1, "")
    assert f"bernstein agent end {told['run_id']}" in second.stderr
    assert lost.returncode == 1
    assert f"{own} is removed again" in lost.stderr
    assert ended.returncode == 0
    assert not own.exists()


def test_agent_end_latest_means_the_lane_that_was_opened_last_and_no_later_run(
    desk: Desk,
) -> None:
    opened = json.loads(desk.run("agent", "env", "openai", "--json").stdout)
    # As the peer's orchestrator makes one beside it.
    with desk.project.services() as services:
        services.journal.create_run("20991231-235959", b'{"started_at": 4102444799}')
    ended = desk.run("agent", "end", "latest", "--json")
    again = desk.run("agent", "end", "latest")

    assert json.loads(ended.stdout)["run_id"] == opened["run_id"]
    assert (again.returncode, again.stderr.count("[NOT_FOUND]")) == (1, 1)
    assert "bernstein agent env" in again.stderr


def test_settings_that_cannot_be_written_leave_no_lane_and_no_open_run(desk: Desk) -> None:
    own = Path(desk.project.environ["HOME"], ".codex")
    own.mkdir()
    own.joinpath("config.toml").write_text("a = 1")
    first = json.loads(desk.run("agent", "env", "openai", "--json").stdout)  # the services run
    # The tests may be those of a user whom no mode of a file stops.
    full = ["bash", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "bash"]
    refused = subprocess.run(
        [*full, sys.executable, "-m", "bernstein_cli", "agent", "env", "codex", "--peer"],
        cwd=desk.project.folder,
        env=dict(desk.project.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ended = desk.run("agent", "end", "latest", "--json")
    runs = [path for path in (desk.project.sdd / "runs").iterdir() if path.name.startswith("20")]

    assert refused.returncode == 1, refused.stderr
    assert "config.toml" in refused.stderr
    assert own.joinpath("config.toml").read_text() == "a = 1"
    assert json.loads(ended.stdout)["run_id"] == first["run_id"]
    assert len(runs) == 2
    assert all((path / "seal.json").exists() for path in runs)


def test_a_client_without_settings_for_a_lane_is_refused_with_what_to_do(desk: Desk) -> None:
    refused = desk.run("agent", "env", "openai", "--peer")
    assert (refused.returncode, refused.stderr.count("[INVALID_INPUT]")) == (1, 1)
    assert "bernstein agent env openai" in refused.stderr
