"""What a run takes in beside the plan: configuration, extensions, context, prompts, answers."""

import subprocess
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput
from bernstein_orchestrator.activation import public_url
from bernstein_orchestrator.answers import check_unicode, files_of
from bernstein_orchestrator.extensions import (
    extension_set_members,
    find_plugins,
    find_skills,
)
from bernstein_orchestrator.plan import Step
from bernstein_orchestrator.project import ProjectConfig, read_project
from bernstein_orchestrator.prompt import (
    ContextFile,
    Finished,
    PromptInputs,
    is_pass,
    task_prompt,
)
from bernstein_orchestrator.surroundings import Surroundings, look_around


def test_without_a_configuration_nothing_internal_is_asked(tmp_path: Path) -> None:
    assert read_project(tmp_path) == ProjectConfig()
    assert ProjectConfig().provider == "none"


def test_a_configuration_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no such configuration file"):
        read_project(tmp_path, tmp_path / "other.yaml")


def test_the_configuration_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bernstein.yaml"
    path.write_text(
        "goal: G\ninternal_llm_provider: openai\ninternal_llm_model: m\nmax_agents: '3'\n"
        "judge_model: j\nplugins: [a.b]\nother: [1]\n"
    )
    config = read_project(tmp_path)
    assert (config.goal, config.provider, config.model) == ("G", "openai", "m")
    assert (config.max_agents, config.judge_model, config.plugins) == (3, "j", ("a.b",))
    assert (config.path, config.content) == (path, path.read_bytes())


@pytest.mark.parametrize("text", ["- a", "goal: [", "max_agents: no", "plugins: x", "goal: [x]"])
def test_a_bad_configuration_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "bernstein.yaml").write_text(text)
    with pytest.raises(InvalidInput, match=r"bernstein\.yaml") as caught:
        read_project(tmp_path)
    assert "\n" not in caught.value.message


def test_surroundings_are_commit_branch_and_configuration(tmp_path: Path) -> None:
    assert look_around(tmp_path, b"x") == Surroundings("", "", sha256(b"x").hexdigest())
    for command in (
        ["init", "-q", "-b", "work"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "m"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    found = look_around(tmp_path, None)
    assert (len(found.git_sha), found.git_branch, found.config_hash) == (40, "work", "")
    differences = found.differences(Surroundings(found.git_sha, "main", ""))
    assert differences == ("the branch differs from the recording: work then, main today",)


def skill(folder: Path, name: str, content: str) -> Path:
    path = folder / "skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    return path


def test_a_skill_is_digested_as_in_the_peer(tmp_path: Path) -> None:
    path = skill(
        tmp_path / "templates", "qa", "---\nname: qa\nversion: 2.1.0\n---\n\n# Test\nall\n\n"
    )
    (only,) = find_skills(tmp_path)
    assert only.extension.members() == {
        "content_digest": "sha256:" + sha256(b"# Test\nall").hexdigest(),
        "failure": "",
        "kind": "skill",
        "loaded": True,
        "name": "qa",
        "origin": str(path.resolve()),
        "source": "local",
        "version": "2.1.0",
    }


def test_the_projects_own_templates_hide_the_others(tmp_path: Path) -> None:
    skill(tmp_path / "templates", "a", "---\nname: a\n---\nA")
    skill(tmp_path / ".bernstein" / "templates", "b", "---\nname: b\n---\nB")
    assert [each.extension.name for each in find_skills(tmp_path)] == ["b"]
    assert find_skills(tmp_path)[0].extension.version == "1.0.0"


@pytest.mark.parametrize("content", ["no manifest", "---\n- a\n---\n", "---\na: [\n---\n"])
def test_a_broken_skill_is_recorded_as_not_loaded(tmp_path: Path, content: str) -> None:
    path = skill(tmp_path / "templates", "bad", content)
    members = find_skills(tmp_path)[0].extension.members()
    assert (members["loaded"], members["content_digest"]) == (False, "")
    assert members["origin"] == str(path)
    assert str(members["failure"]).startswith("InvalidInput: ")


def test_a_plug_in_is_hashed_and_never_imported(tmp_path: Path) -> None:
    package = tmp_path / "tools"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "hook.py").write_text("raise SystemExit('imported')\n")
    found, missing, strange = find_plugins(tmp_path, ["tools.hook:Hook", "tools.none", "a b"])
    content = (package / "hook.py").read_bytes()
    assert found.content_digest == "sha256:" + sha256(content).hexdigest()
    assert found.origin == str((package / "hook.py").resolve())
    assert found.members()["loaded"] is False
    assert found.failure.startswith("PolicyRefusal: ")
    assert missing.failure == "ModuleNotFoundError: no module of that name: tools.none"
    assert strange.origin == "a b"


def test_the_set_is_sorted_and_its_digest_covers_it(tmp_path: Path) -> None:
    skill(tmp_path / "templates", "z", "---\nname: z\n---\nZ")
    skill(tmp_path / "templates", "a", "---\nname: a\n---\nA")
    entries = [each.extension for each in find_skills(tmp_path)]
    members = extension_set_members([*entries[::-1], *find_plugins(tmp_path, ["no.such"])])
    listed = members["extensions"]
    assert isinstance(listed, list)
    assert [each["name"] for each in listed if isinstance(each, dict)] == ["no.such", "a", "z"]
    preimage = canonical_bytes({"schema_version": "1.0.0", "entries": listed}, Profile.PY_JSON)
    assert members["extension_set_digest"] == "sha256:" + sha256(preimage).hexdigest()
    assert list(members) == [
        "extension_set_digest", "extension_set_schema_version", "extension_count", "extensions",
    ]  # fmt: skip


INPUTS = PromptInputs(
    goal="G",
    constraints=("small", "plain"),
    step=Step("Title", "What to do", 1, files=("a", "b")),
    skill=None,
    context=(ContextFile("n.txt", b"note\xff"), ContextFile("m.txt", None)),
    finished=(Finished("Before", "its answer"), Finished("Program", None)),
    failed_before=("path_exists: a",),
)


def test_a_prompt_holds_all_it_depends_on_in_one_order() -> None:
    prompt = task_prompt(INPUTS)
    parts = [
        "# Role\nbackend", "# Goal\nG", "# Constraints\n- small\n- plain", "# Task\nTitle",
        "What to do", "# File n.txt\nnote\ufffd", "# File m.txt\n(there is no such file yet)",
        "# Done before: Before\nits answer", "# Done before: Program\n(done by a program",
        "# An earlier attempt failed\npath_exists: a", "# Answer", "=== a\n", "=== b\n",
    ]  # fmt: skip
    places = [prompt.index(part) for part in parts]
    assert places == sorted(places)
    assert prompt == task_prompt(replace(INPUTS))


def test_a_prompt_leaves_out_what_there_is_not() -> None:
    bare = PromptInputs("", (), Step("T", "T", 1), None, (), (), ())
    assert (
        task_prompt(bare) == "# Role\nbackend\n\n# Task\nT\n\n# Answer\nWrite the result as text.\n"
    )


def test_a_verdict_is_on_the_first_line() -> None:
    assert [is_pass(each) for each in ("PASS", " pass: ok", "FAIL\nPASS", "")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_one_file_is_the_whole_answer_with_its_final_newline() -> None:
    assert files_of("=== a\nx", ("a",)) == {"a": b"=== a\nx\n"}
    assert files_of("", ("a",)) == {"a": b""}
    assert files_of("anything", ()) == {}


def test_several_files_are_blocks_and_other_marks_are_text() -> None:
    answer = "Sure:\n=== b\r\nB\n=== other\nstill B\n=== a  \nA\n"
    assert files_of(answer, ("a", "b")) == {"a": b"A\n", "b": b"B\n=== other\nstill B\n"}


def test_a_missing_block_is_named() -> None:
    with pytest.raises(InvalidInput, match="no block for b, c"):
        files_of("=== a\nA", ("a", "b", "c"))


def test_half_an_emoji_is_no_answer() -> None:
    with pytest.raises(InvalidInput, match="not valid Unicode"):
        check_unicode("x\ud83d")


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("http://h:1/v1", "http://h:1/v1"),
        ("https://user:key@h/v1?key=1#f", "https://h/v1"),
        ("http://[::1]:8/v1", "http://[::1]:8/v1"),
        ("http://h:port/", ""),
        ("", ""),
    ],
)
def test_an_address_is_recorded_without_its_secrets(url: str, public: str) -> None:
    assert public_url(url) == public
