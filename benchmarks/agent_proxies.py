"""What a proxy between an agent and its model costs: ours recording, mitmproxy and litellm.

Each of the others is installed into an environment of its own at the first time; where it cannot
be, its figures are left out by name. Two streams: one alone, and a hundred at once.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measuring import Figure, Setting
from benchmarks.model_streams import AT_ONCE, PACED, Measured
from benchmarks.project import ROOT, PeerEnvironment, fresh_project

from bernstein_client.proxy import LaneWanted, ProxyClient
from bernstein_client.recorder import Provider

MITMPROXY, LITELLM = "mitmproxy==11.0.2", "litellm[proxy]==1.108.7"
LITELLM_VARIABLES: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    # On loopback, in front of a scripted model.
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}
STARTING_SECONDS: Final = 60.0
CHAT: Final = "/v1/chat/completions"
MANY, SIDE_BY_SIDE = 100, 16
# Where each proxy is reached, by its name; direct is none.
Urls = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of each: so many streams at any time, each so often."""

    streams: int
    rounds: int
    model: str


def agent_proxies(setting: Setting, _: PeerEnvironment) -> Iterator[Figure]:
    rounds = 10 if setting.quick else 30
    with running(setting) as urls:
        alone = best(urls, setting, Load(1, rounds, PACED))
        many = best(urls, setting, Load(MANY, rounds // 5, PACED))
        flood = best(urls, setting, Load(SIDE_BY_SIDE, rounds, AT_ONCE))
    yield from added("1 stream", alone)
    yield from added(f"{MANY} streams", many)
    direct = flood["direct"].per_second
    ours = flood["ours"].per_second
    yield Figure("agent proxy, answers/s, to direct", "/s", ours, direct, ours / direct)
    for name in set(flood) - {"direct", "ours"}:
        theirs = flood[name].per_second
        yield Figure(f"agent proxy, answers/s, to {name}", "/s", ours, theirs, ours / theirs)


def added(what: str, measured: Mapping[str, Measured]) -> Iterator[Figure]:
    """Milliseconds that each adds until the first event, over a direct connection."""
    direct = measured["direct"].first_ms
    ours = measured["ours"].first_ms - direct
    yield Figure(f"agent proxy, {what}, first byte", "ms", ours)
    yield Figure(f"agent proxy, {what}, first byte direct", "ms", direct)
    for name in set(measured) - {"direct", "ours"}:
        theirs = measured[name].first_ms - direct
        ratio = theirs / max(ours, 0.01)
        yield Figure(f"agent proxy, {what}, to {name}", "ms", ours, theirs, ratio)


def best(urls: Urls, setting: Setting, load: Load) -> dict[str, Measured]:
    """They take turns, and of each the quickest turn counts."""
    turns = [
        {name: called(url, load) for name, url in urls.items()}
        for _ in range(2 if setting.quick else 3)
    ]
    return {
        name: Measured(
            min(turn[name].first_ms for turn in turns),
            min(turn[name].first_p95_ms for turn in turns),
            max(turn[name].per_second for turn in turns),
        )
        for name in urls
    }


def called(url: str, load: Load) -> Measured:
    what = (url, str(load.streams), str(load.rounds), load.model)
    command = [sys.executable, "-m", "benchmarks.model_streams", "call", *what]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(done.stdout))


@contextmanager
def running(setting: Setting) -> Iterator[Urls]:
    with ExitStack() as stack:
        model = stack.enter_context(model_server())
        urls = {"direct": f"{model}{CHAT}", "ours": stack.enter_context(ours(setting, model))}
        for name, start in (("mitmproxy", mitmproxy), ("litellm", litellm)):
            try:
                urls[name] = stack.enter_context(start(setting, model))
            except (subprocess.CalledProcessError, TimeoutError) as error:
                print(f"note: {name} is left out: {error}")
        yield urls


@contextmanager
def model_server() -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.model_streams", "serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()


@contextmanager
def ours(setting: Setting, model: str) -> Iterator[str]:
    with (
        fresh_project(setting.folder, "proxies") as project,
        project.services() as services,
        ProxyClient(services.supervisor) as proxy,
    ):
        run_id = services.journal.create_run()
        services.journal.append(run_id, "agent_started", {})
        providers = (Provider("openai", f"{model}/v1", "none"),)
        yield proxy.open_lane(LaneWanted(run_id, "agent", providers=providers)) + f"/openai{CHAT}"
        account = proxy.close_lane()
        assert account.recorded
        assert not account.failures


@contextmanager
def mitmproxy(setting: Setting, model: str) -> Iterator[str]:
    """As a reverse proxy that passes streams on at once; it keeps no body then."""
    command = [environment(MITMPROXY) / "bin" / "mitmdump", "--quiet", "--mode", f"reverse:{model}"]
    options = ["--set", "stream_large_bodies=1", "--set", f"confdir={setting.folder / 'mitmproxy'}"]
    with listening([*map(str, command), *options, "--listen-port"]) as url:
        yield f"{url}{CHAT}"


@contextmanager
def litellm(setting: Setting, model: str) -> Iterator[str]:
    config = setting.folder / "litellm.yaml"
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}", "api_base": f"{model}/v1", "api_key": "none",
            },
        }
        for name in (PACED, AT_ONCE)
    ]  # fmt: skip
    config.write_text(json.dumps({"model_list": models}), encoding="utf-8")
    command = [environment(LITELLM) / "bin" / "litellm", "--config", config]
    with listening([*map(str, command), "--host", "127.0.0.1", "--port"]) as url:
        yield f"{url}{CHAT}"


@contextmanager
def listening(command: list[str]) -> Iterator[str]:
    """A server that was given a free port. Raises TimeoutError when it does not take it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environ = {**os.environ, **LITELLM_VARIABLES}
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([*command, str(port)], env=environ, stdout=quiet, stderr=quiet)
    try:
        wait_until(lambda: takes_connections(port) or process.poll() is not None)
        if process.poll() is not None:
            raise TimeoutError(f"it ended with exit code {process.returncode}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + STARTING_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"it did not start in {STARTING_SECONDS:g} s")
        time.sleep(0.1)


def environment(wanted: str) -> Path:
    """Its own environment, made at the first time. Raises CalledProcessError."""
    folder = ROOT / ".peer" / wanted.partition("==")[0].partition("[")[0]
    marker = folder / "installed"
    if not (marker.exists() and marker.read_text(encoding="utf-8") == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", wanted]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
        marker.write_text(wanted, encoding="utf-8")
    return folder
