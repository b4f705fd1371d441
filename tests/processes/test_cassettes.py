"""Cassettes of a test suite: recorded once, replayed with no provider, told apart from others."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import openai
import pytest
import vcr
from tests.scripted_provider import ProviderServer

from bernstein_client.cassette_services import cassette_services
from bernstein_client.recorded import recorded
from bernstein_formats.errors import (
    Conflict,
    InvalidInput,
    RecordingChanged,
    ReplayMissError,
    ReplayRecordingMissingError,
)
from bernstein_tour.model_server import ModelServer

pytestmark = pytest.mark.processes
SECRET = "sk-real-key-of-the-user"  # noqa: S105 - opens nothing
PROMPTED_SECRET = "sk-ant-not-a-key-0123456789abcdef"  # noqa: S105 - likewise


def ask(text: str = "hi") -> str | None:
    """What any code under test does: it knows nothing of cassettes."""
    with openai.OpenAI(max_retries=0) as client:
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}]
        )
        return answer.choices[0].message.content


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A provider that never gives an answer twice."""
    with ModelServer() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        yield served


def test_a_cassette_is_recorded_once_and_replayed_from_then_on(
    provider: ModelServer, tmp_path: Path
) -> None:
    with recorded("greeting", folder=tmp_path) as cassette:
        first = [ask(), ask(), ask("ho")]
    provider.stop()
    with recorded("greeting", folder=tmp_path) as again:
        replayed = [ask(), ask(), ask("ho")]

    assert replayed == first
    assert len(set(first)) == 3
    assert (cassette.is_replaying, again.is_replaying, provider.calls) == (False, True, 3)
    assert again.account is not None
    assert (again.account.served, again.account.misses, again.account.unused_count) == (3, 0, 0)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET.encode() not in written


def test_modes_mean_what_they_mean_to_users_of_vcrpy(provider: ModelServer, tmp_path: Path) -> None:
    with pytest.raises(ReplayRecordingMissingError), recorded("a", mode="none", folder=tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    with recorded("a", folder=tmp_path):
        first = ask()
    with recorded("a", mode="none", folder=tmp_path):
        assert ask() == first
    with recorded("a", mode="all", folder=tmp_path):
        second = ask()
    with recorded("a", mode="all", folder=tmp_path):
        pass  # nothing was recorded, so that what there was stays
    with recorded("a", folder=tmp_path):
        assert ask() == second != first
    with pytest.raises(InvalidInput):
        recorded("a", mode="new_episodes", folder=tmp_path)


def test_async_code_has_its_cassette_too(provider: ModelServer, tmp_path: Path) -> None:
    async def talk() -> str | None:
        async with recorded("a", folder=tmp_path), openai.AsyncOpenAI() as client:
            answer = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}]
            )
            return answer.choices[0].message.content

    assert asyncio.run(talk()) == asyncio.run(talk())
    assert provider.calls == 1


def test_a_miss_is_raised_even_where_the_code_under_test_keeps_its_error(
    provider: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded("a", folder=tmp_path):
        ask("hi")
    with pytest.raises(ReplayMissError) as missed, recorded("a", folder=tmp_path):
        ask("ho")
    with (
        pytest.raises(ReplayMissError) as kept,
        recorded("a", folder=tmp_path),
        pytest.raises(openai.BadRequestError),
    ):
        ask("ho")

    assert "$.body.json.messages[0].content (recorded 'hi', asked 'ho')" in str(missed.value)
    assert isinstance(missed.value.__cause__, openai.BadRequestError)
    assert "never recorded" in str(kept.value)
    assert provider.calls == 1


def test_the_environment_is_afterwards_as_it_was(
    provider: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "localhost")
    before = dict(os.environ)
    with recorded("a", folder=tmp_path) as cassette:
        assert os.environ["OPENAI_BASE_URL"] == cassette.variables["OPENAI_BASE_URL"]
        assert os.environ["OPENAI_API_KEY"] != SECRET
        assert os.environ["NO_PROXY"] == "localhost,127.0.0.1"
    with pytest.raises(KeyError), recorded("a", folder=tmp_path):
        raise KeyError

    assert dict(os.environ) == before


def test_a_cassette_is_a_run_that_commands_can_read(
    provider: ModelServer, tmp_path: Path, project: Any
) -> None:
    with recorded("a", folder=tmp_path):
        ask()
    shutil.copytree(tmp_path / "a", project.sdd / "runs" / "a")
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_cli", "replay", "a", "--verify", "--json"],
        cwd=project.folder,
        env=dict(project.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(done.stdout)["chain_consistent"] is True


def test_a_cassette_that_was_changed_is_not_replayed(provider: ModelServer, tmp_path: Path) -> None:
    with recorded("a", folder=tmp_path):
        ask()
    exchanges = tmp_path / "a" / "llm_http.jsonl"
    text = exchanges.read_bytes()
    exchanges.write_bytes(text.replace(b'"status": 200', b'"status": 201'))
    with pytest.raises(RecordingChanged), recorded("a", folder=tmp_path):
        pass
    exchanges.write_bytes(text)
    (tmp_path / "a" / "llm_http.bodies").unlink()
    lost = pytest.raises(ReplayRecordingMissingError, match=r"llm_http\.bodies lacks the body")
    with lost, recorded("a", folder=tmp_path):
        ask()


def test_an_answer_with_a_secret_is_in_no_cassette(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProviderServer() as echoing:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{echoing.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
        secret = pytest.raises(InvalidInput, match="request 1 holds a secret")
        with secret, recorded("a", folder=tmp_path):
            ask(f"say {PROMPTED_SECRET}")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", ".hidden", "a\nb"])
def test_a_name_that_is_no_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="names no cassette"):
        recorded(name, folder=tmp_path)


def test_what_is_no_cassette_is_never_replaced(provider: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(Conflict, match="is no cassette"), recorded("a", folder=tmp_path):
        ask()
    assert (tmp_path / "a" / "notes.txt").read_text() == "mine"


# --- the fixture ------------------------------------------------------------------------------

SUITE = """
import openai, pytest

def ask(text):
    with openai.OpenAI(max_retries=0) as client:
        answer = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}])
        return answer.choices[0].message.content

@pytest.mark.parametrize("text", ["a/b", "a:b"])
def test_params(cassette, text):
    print("said:", ask(text))

def test_miss(cassette, request):
    try:
        ask("again" if cassette.is_replaying else "first")
    except openai.APIError:
        pass  # the code under test knows how to go on

def test_secret(cassette):
    print("said:", ask("PROMPTED_SECRET"))
""".replace("PROMPTED_SECRET", PROMPTED_SECRET)


def suite(folder: Path, environ: dict[str, str], *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *options, "test_it.py"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def said(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("said:"))


def test_a_suite_records_with_the_fixture_and_replays_without_key_and_provider(
    project: Any,
) -> None:
    (project.folder / "test_it.py").write_text(SUITE)
    offline = {**project.environ}
    with ModelServer() as model:
        online = {**offline, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": SECRET}
        first = suite(project.folder, online)
    second = suite(project.folder, offline, "--bernstein-record=none")

    assert "4 passed" in first, first
    assert len(list((project.folder / "cassettes" / "test_it").iterdir())) == 4
    assert said(second) == said(first) != []
    assert "1 failed, 3 passed" in second, second
    assert "ReplayMissError" in second
    assert "(recorded 'first', asked 'again')" in second


def test_the_services_behind_cassettes_end_with_their_process(tmp_path: Path) -> None:
    script = (
        "from bernstein_client.cassette_services import cassette_services as s\n"
        "s().supervisor.ensure('recorder'); print(s().places.sdd_dir)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert not Path(done.stdout.strip()).exists()
    assert cassette_services() is cassette_services()


# --- cassettes of vcrpy -----------------------------------------------------------------------


def bernstein(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bernstein_cli", *arguments],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("serializer", ["yaml", "json"])
def test_a_cassette_that_vcrpy_wrote_goes_on_as_ours(
    serializer: str, provider: ModelServer, tmp_path: Path
) -> None:
    written = tmp_path / f"talk.{serializer}"
    with vcr.use_cassette(str(written), serializer=serializer):
        first = [ask("hi ü"), ask("ho")]
        other = provider.base_url.replace("/v1", "/nothing")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(other)  # noqa: S310 - on loopback
    done = bernstein(tmp_path, "cassette", "import", str(written), "--json")
    provider.stop()
    with recorded("talk", mode="none", folder=tmp_path / "cassettes"):
        again = [ask("hi ü"), ask("ho")]

    assert again == first
    assert list(tmp_path.glob("bernstein-cassettes-*")) == []
    (report,) = json.loads(done.stdout)["cassettes"]
    assert (done.returncode, report["count"], len(report["left_out"])) == (0, 2, 1)
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cassettes").rglob("*.*"))
    assert SECRET in written.read_text()
    assert SECRET.encode() not in kept


def test_a_file_that_cannot_be_taken_in_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("interactions: [")
    (tmp_path / "empty.json").write_text('{"version": 1, "interactions": []}')
    (tmp_path / "tagged.yaml").write_text("!!python/object/apply:os.getcwd []")
    (tmp_path / "cassettes" / "there").mkdir(parents=True)
    (tmp_path / "there.yaml").write_text("version: 1")
    names = ("broken.yaml", "empty.json", "tagged.yaml", "absent.yaml", "there.yaml")
    done = bernstein(tmp_path, "cassette", "import", "--json", *names)

    refused = {each["file"]: each["error"] for each in json.loads(done.stdout)["refused"]}
    assert done.returncode == 1
    assert refused == {
        "broken.yaml": "INVALID_INPUT",
        "empty.json": "INVALID_INPUT",
        "tagged.yaml": "INVALID_INPUT",
        "absent.yaml": "STORE_FAILED",
        "there.yaml": "CONFLICT",
    }
    assert "Traceback" not in done.stderr
    assert [path.name for path in (tmp_path / "cassettes").iterdir()] == ["there"]
