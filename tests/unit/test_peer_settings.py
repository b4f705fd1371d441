"""A settings file leads to a lane, keeps what the user wrote, and is given back as it was."""

import json
import os
import stat
from pathlib import Path

import pytest

from bernstein_cli.peer_settings import SIZE_MAX, PeerSettings, take_back_all
from bernstein_formats.errors import Conflict, InvalidInput, LimitExceeded, StoreFailed

LANE = "http://127.0.0.1:4711/l/0123"
RUN = "20261130-204340-2caf7f"
CLAUDE = b'{"model":"opus","env":{"A":"1","ANTHROPIC_API_KEY":"mine"},"gr\xc3\xbc\xc3\x9fe":[1.50]}'
CODEX = b'# mine\r\nmodel = "gpt-5"\r\n[projects."/p"]\ntrust_level = "trusted"'
BEFORE = {"claude": CLAUDE, "codex": CODEX}


class Home:
    def __init__(self, folder: Path) -> None:
        self.environ = {"HOME": str(folder)}

    def of(self, client: str, data: bytes | None = None) -> PeerSettings:
        own = PeerSettings(client, self.environ)
        own.path.parent.mkdir(exist_ok=True)
        if data is not None:
            own.path.write_bytes(data)
        return own

    def names(self, own: PeerSettings) -> list[str]:
        return sorted(path.name for path in own.path.parent.iterdir())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("client", BEFORE)
def test_the_old_bytes_and_the_mode_come_back(home: Home, client: str) -> None:
    own = home.of(client, BEFORE[client])
    own.path.chmod(0o640)
    own.redirect(RUN, LANE)

    assert LANE in own.path.read_text()
    assert own.before(RUN).read_bytes() == BEFORE[client]
    assert {stat.S_IMODE(path.stat().st_mode) for path in own.path.parent.iterdir()} == {0o640}
    (told,) = take_back_all(RUN, home.environ)
    assert "is what it was before" in told
    assert own.path.read_bytes() == BEFORE[client]
    assert stat.S_IMODE(own.path.stat().st_mode) == 0o640
    assert home.names(own) == [own.path.name]
    assert take_back_all(RUN, home.environ) == []


@pytest.mark.parametrize("client", BEFORE)
def test_where_there_was_no_file_there_is_none_again(home: Home, client: str) -> None:
    own = PeerSettings(client, home.environ)
    own.check()
    own.redirect(RUN, LANE)
    assert stat.S_IMODE(own.path.stat().st_mode) == 0o600
    assert take_back_all(RUN, home.environ) == [f"{own.path} is removed again"]
    assert home.names(own) == []


def test_what_the_user_has_in_the_file_stays_beside_the_lane(home: Home) -> None:
    claude, codex = home.of("claude", CLAUDE), home.of("codex", CODEX)
    claude.redirect(RUN, LANE)
    codex.redirect(RUN, LANE)

    members = json.loads(claude.path.read_bytes())
    assert (members["model"], members["env"]["A"]) == ("opus", "1")
    assert members["env"]["ANTHROPIC_BASE_URL"] == f"{LANE}/anthropic"
    assert members["env"]["ANTHROPIC_API_KEY"] == "recorded-by-bernstein"
    assert CODEX in codex.path.read_bytes()


@pytest.mark.parametrize(
    ("client", "old", "new"),
    [("claude", b'"opus"', b'"haiku"'), ("codex", b'"gpt-5"', b'"gpt-6"')],
)
def test_a_file_changed_meanwhile_loses_our_members_only(
    home: Home, client: str, old: bytes, new: bytes
) -> None:
    own = home.of(client, BEFORE[client])
    own.redirect(RUN, LANE)
    own.path.write_bytes(own.path.read_bytes().replace(old, new))
    (told,) = take_back_all(RUN, home.environ)

    assert "was changed meanwhile" in told
    assert str(own.before(RUN)) in told
    assert own.before(RUN).read_bytes() == BEFORE[client]
    wanted, now = BEFORE[client].replace(old, new), own.path.read_bytes()
    if client == "claude":
        assert json.loads(now) == json.loads(wanted)
    else:
        assert now.rstrip(b"\n") == wanted
    assert home.names(own) == sorted([own.path.name, own.before(RUN).name])


def test_a_lane_that_cannot_be_told_from_the_rest_is_left_to_the_user(home: Home) -> None:
    own = home.of("codex", CODEX)
    own.redirect(RUN, LANE)
    changed = own.path.read_bytes().replace(b"[model_providers.rec]", b"[ model_providers.rec ]")
    own.path.write_bytes(changed)
    with pytest.raises(Conflict, match="edit these by hand"):
        take_back_all(RUN, home.environ)
    assert own.path.read_bytes() == changed
    own.path.write_bytes(CODEX)
    assert len(take_back_all(RUN, home.environ)) == 1
    assert home.names(own) == [own.path.name]


def test_a_file_that_the_user_removed_stays_away(home: Home) -> None:
    own = home.of("claude", CLAUDE)
    own.redirect(RUN, LANE)
    own.path.unlink()
    (told,) = take_back_all(RUN, home.environ)
    assert "is gone" in told
    assert home.names(own) == [own.before(RUN).name]


@pytest.mark.parametrize("client", BEFORE)
def test_a_crash_before_the_file_was_replaced_is_undone(home: Home, client: str) -> None:
    own = home.of(client, BEFORE[client])
    own.redirect(RUN, LANE)
    own.path.write_bytes(BEFORE[client])
    assert len(take_back_all(RUN, home.environ)) == 1
    assert own.path.read_bytes() == BEFORE[client]
    assert home.names(own) == [own.path.name]


@pytest.mark.parametrize(
    ("client", "data"),
    [
        ("claude", b'{"env":{"ANTHROPIC_BASE_URL":"https://gateway.example"}}'),
        ("claude", b'{"env":{"CLAUDE_CODE_USE_BEDROCK":"1"}}'),
        ("codex", b'model_provider = "azure"'),
        ("codex", b'[model_providers.rec]\nname = "x"'),
        ("codex", b"model_providers = {}"),
    ],
)
def test_a_redirect_that_is_there_already_is_not_touched(
    home: Home, client: str, data: bytes
) -> None:
    own = home.of(client, data)
    with pytest.raises(Conflict, match=own.path.name):
        own.check()
    with pytest.raises(Conflict):
        own.redirect(RUN, LANE)
    assert own.path.read_bytes() == data
    assert home.names(own) == [own.path.name]


def test_a_second_lane_names_the_run_that_has_the_first(home: Home) -> None:
    own = home.of("claude", CLAUDE)
    own.redirect(RUN, LANE)
    with pytest.raises(Conflict, match=f"bernstein agent end {RUN}"):
        own.check()


@pytest.mark.parametrize(
    ("client", "data"),
    [
        ("claude", b""),
        ("claude", b"{"),
        ("claude", b"[]"),
        ("claude", b'{"env":[]}'),
        ("claude", b'{"a":1,"a":2}'),
        ("claude", b'{"a":NaN}'),
        ("claude", b'{"a":"\\ud800"}'),
        ("claude", b"\xff"),
        ("claude", b'{"a":' + b"[" * 100_000),
        ("claude", b'{"a":' + b"9" * 5000 + b"}"),
        ("codex", b"a = "),
        ("codex", b"\xff"),
        ("codex", b"a = " + b"[" * 100_000),
        ("codex", b"a = " + b"9" * 5000),
        ("codex", b"model_providers = 1"),
    ],
)
def test_a_broken_file_is_refused_by_name(home: Home, client: str, data: bytes) -> None:
    own = home.of(client, data)
    with pytest.raises(InvalidInput, match=own.path.name):
        own.check()


def test_links_pipes_and_endless_files_are_refused_by_name(home: Home, tmp_path: Path) -> None:
    own = home.of("claude")
    (tmp_path / "elsewhere").write_bytes(b"{}")
    own.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match=r"settings\.json: it is a link"):
        own.redirect(RUN, LANE)
    own.path.unlink()
    os.mkfifo(own.path)
    with pytest.raises(StoreFailed, match=r"settings\.json"):
        own.check()
    own.path.unlink()
    own.path.write_bytes(b" " * (SIZE_MAX + 1))
    with pytest.raises(LimitExceeded, match=r"settings\.json"):
        own.check()


def test_other_clients_and_a_missing_home_are_refused(home: Home) -> None:
    with pytest.raises(InvalidInput, match="agent env aider"):
        PeerSettings("aider", home.environ)
    with pytest.raises(InvalidInput, match="HOME"):
        PeerSettings("claude", {})


@pytest.mark.parametrize(
    ("client", "name"), [("claude", "CLAUDE_CONFIG_DIR"), ("codex", "CODEX_HOME")]
)
def test_a_variable_that_moves_the_settings_is_refused_unless_it_says_the_same_folder(
    home: Home, client: str, name: str
) -> None:
    usual = home.of(client).path.parent
    PeerSettings(client, {**home.environ, name: str(usual)}).check()
    moved = PeerSettings(client, {**home.environ, name: "/elsewhere"})
    with pytest.raises(Conflict, match=f"{name} is set.*/elsewhere.*env -u {name}"):
        moved.check()
    home.of(client).redirect(RUN, LANE)
    assert moved.take_back(RUN) == f"{moved.path} is removed again"


def test_an_id_that_no_run_can_have_names_no_file(home: Home) -> None:
    home.of("claude", CLAUDE).redirect(RUN, LANE)
    assert take_back_all(f"../settings.json.lane-{RUN}", home.environ) == []
