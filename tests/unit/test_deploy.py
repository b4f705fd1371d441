"""What is given to operators for starting services is what it says: locked down, and up to date."""

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import dockerfile
import pytest
import yaml

from bernstein_runtime import config
from bernstein_runtime.endpoint import SERVICES
from bernstein_runtime.observed import BASE_PORT

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
PROJECT = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "container/compose.yaml").read_text())
OURS = {k: v for k, v in COMPOSE["services"].items() if v["image"] == "bernstein-services"}
STAGES: list[list[Any]] = []
for each in dockerfile.parse_file(str(DEPLOY / "container/Containerfile")):
    if each.cmd.upper() == "FROM":
        STAGES.append([])
    STAGES[-1].append(each)
# Of 100; what is left is that a service has a network, and runs in the host's root folder.
EXPOSURE_MAX = 15


# --- systemd --------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """The units, with this installation in the place of that in /usr/local."""
    here = str(Path(sys.executable).parent)
    for unit in UNITS:
        text = unit.read_text().replace("/usr/local/lib/bernstein/bin", here)
        (tmp_path / unit.name).write_text(text)
    return [str(tmp_path / unit.name) for unit in UNITS]


def analyzed(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_each_unit_is_understood_and_starts_a_program_of_ours(installed: list[str]) -> None:
    verified = analyzed("verify", *installed)

    assert (verified.returncode, verified.stderr) == (0, "")
    for unit in UNITS:
        (program,) = re.findall(r"\nExecStart=/usr/local/lib/bernstein/bin/(\S+)", unit.read_text())
        assert program in PROJECT["scripts"]


def test_each_unit_is_locked_down(installed: list[str]) -> None:
    for path in installed:
        found = analyzed("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", path)
        assert found.returncode == 0, found.stdout[-300:]


def test_no_unit_holds_a_secret_or_dumps_its_memory() -> None:
    for unit in UNITS:
        text = unit.read_text()
        assert "LimitCORE=0" in text
        assert not re.search(r"(?i)password|secret=|token", text)


# --- the image ------------------------------------------------------------------------------------


def test_the_image_has_locked_dependencies_and_the_extras_that_exist() -> None:
    build, _ = STAGES
    (sync,) = [each.value[0] for each in build if "uv sync" in each.original]

    assert {"--locked", "--no-dev", "--no-editable"} <= set(sync.split())
    extras = set(re.findall(r"--extra (\S+)", sync))
    assert extras <= PROJECT["optional-dependencies"].keys()
    assert {"postgres", "metrics", "otel", "gateway"} <= extras
    assert re.search(r"pip install --no-cache-dir uv==([0-9.]+)$", build[2].value[0])


def test_the_final_stage_is_of_the_same_python_has_no_compiler_and_no_root() -> None:
    build, final = STAGES
    assert build[0].value[0] == final[0].value[0]
    assert not [each for each in final if re.search(r"apt|pip|gcc|uv ", each.original)]
    assert [each.value for each in final if each.cmd.upper() == "USER"] == [("10001:10001",)]
    assert [each.value[0] for each in final if each.cmd.upper() == "COPY"] == [
        "/usr/local/lib/bernstein"
    ]


def test_uv_is_the_same_everywhere() -> None:
    versions = {
        version
        for path in (DEPLOY / "get-uv", DEPLOY / "container/Containerfile")
        for version in re.findall(r"uv==([0-9.]+)", path.read_text())
    }
    assert len(versions) == 1


# --- compose --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_a_container_of_ours_may_do_nothing_but_its_work(name: str) -> None:
    service = OURS[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service
    assert service["command"][0] in {*PROJECT["scripts"], "sleep"}


def test_what_compose_refers_to_is_there() -> None:
    services = COMPOSE["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert service.get("network_mode", "service:host") == "service:host"
        for secret in service.get("secrets", ()):
            assert secret in COMPOSE["secrets"]
        for volume in service.get("volumes", ()):
            named = isinstance(volume, dict) and volume["type"] == "volume"
            assert not named or volume["source"] in COMPOSE["volumes"]
    build = OURS["journal"]["build"]
    assert (DEPLOY / "container" / build["context"] / build["dockerfile"]).is_file()
    assert (DEPLOY / "container/roles.sh").stat().st_mode & 0o111


def test_each_service_is_probed_where_it_answers_probes() -> None:
    for name in SERVICES[:5]:
        port = BASE_PORT + SERVICES.index(name)
        (_, _, _, code) = OURS[name]["healthcheck"]["test"]
        assert f"http://127.0.0.1:{port}/livez" in code


def test_no_service_shares_a_folder_with_another_one() -> None:
    taken = [
        volume["source"]
        for name, service in OURS.items()
        for volume in service.get("volumes", ())
        if volume["type"] == "volume" and name != "migrate"
    ]
    assert len(set(taken)) == len(taken) == 5


# --- configuration --------------------------------------------------------------------------------


def tables() -> dict[str, type[Any]]:
    return {
        kind.__name__.removesuffix("Config").lower(): kind
        for kind in vars(config).values()
        if isinstance(kind, type) and kind.__name__.endswith("Config")
    }


def test_the_example_has_every_setting_with_its_default() -> None:
    example = tomllib.loads((DEPLOY / "example.toml").read_text())

    assert example.keys() == tables().keys() == set(config.TABLES)
    for name, kind in tables().items():
        defaults = {field.name: getattr(kind(), field.name) for field in fields(kind)}
        assert example[name] == defaults


@pytest.mark.parametrize("name", ["bernstein.toml", "import.toml"])
def test_the_configuration_of_a_host_is_taken(name: str, tmp_path: Path) -> None:
    environ = {"BERNSTEIN_SVC_CONFIG": str(DEPLOY / name)}
    for table, kind in tables().items():
        config.load_table(kind, table, tmp_path, environ)
