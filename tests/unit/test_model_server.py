import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from bernstein_tour.model_server import ModelServer, scripted_text


def post(base_url, body, path="/chat/completions"):
    request = urllib.request.Request(f"{base_url}{path}", data=body)  # noqa: S310 - our own URL
    with urllib.request.urlopen(request) as response:  # noqa: S310 - likewise
        return json.load(response)


def ask(base_url, prompt):
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    return post(base_url, json.dumps(body).encode())["choices"][0]["message"]["content"]


def test_the_same_question_never_gets_the_same_answer_twice():
    with ModelServer() as server:
        answers = [ask(server.base_url, "draft the notes") for _ in range(20)]
        assert server.calls == 20
    assert len(set(answers)) == 20


def test_another_server_answers_otherwise():
    answers = []
    for _ in range(2):
        with ModelServer() as server:
            answers.append(ask(server.base_url, "draft the notes"))
    assert answers[0] != answers[1]


def test_a_summary_is_one_line_and_a_draft_is_not():
    assert "\n" not in scripted_text("Summarize the drafts", 1, 1)
    assert "\n- " in scripted_text("Draft the notes", 1, 1)


@pytest.mark.parametrize(
    ("body", "path", "code"),
    [
        (b"{}", "/chat/completions", 400),
        (b"not json", "/chat/completions", 400),
        (b"[" * 100_000, "/chat/completions", 400),
        (b'{"model": "m", "messages": [{"content": "p"}]}', "/elsewhere", 404),
    ],
)
def test_what_is_no_chat_request_is_refused(body, path, code):
    with ModelServer() as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(server.base_url, body, path)
        caught.value.close()
        assert (caught.value.code, server.calls) == (code, 0)


def test_the_models_are_listed():
    with (
        ModelServer() as server,
        urllib.request.urlopen(f"{server.base_url}/models") as response,  # noqa: S310 - our own URL
    ):
        assert json.load(response)["data"][0]["object"] == "model"


def test_nothing_listens_after_it_stopped():
    with ModelServer() as server:
        base_url = server.base_url
    with pytest.raises(urllib.error.URLError):
        ask(base_url, "p")


def test_the_command_prints_where_it_serves():
    command = [sys.executable, "-m", "bernstein_tour.model_server", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        base_url = process.stdout.readline().strip()
        assert "draft" in ask(base_url, "p")
        process.terminate()
