import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bernstein_formats.errors import ProviderFailed, ReplayMissError, RequestIdReused, Unavailable
from bernstein_recorder.once import REMEMBERED_BYTES_MAX, REMEMBERED_MAX, Once


def make():
    return Once(len)


def fails(error):
    def work():
        raise error

    return work


def test_a_retry_gets_what_the_first_attempt_gave():
    once = make()
    assert once.run("r", "q", lambda: "first") == "first"
    assert once.run("r", "q", lambda: "second") == "first"


def test_a_retry_during_the_first_attempt_waits_for_it():
    once, entered, go_on, calls = make(), threading.Event(), threading.Event(), []

    def slow():
        calls.append(1)
        entered.set()
        assert go_on.wait(10)
        return "slow"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.run, "r", "q", slow)
        assert entered.wait(10)
        second = pool.submit(once.run, "r", "q", slow)
        go_on.set()
        assert [first.result(10), second.result(10)] == ["slow", "slow"]
    assert calls == [1]


def test_another_request_under_the_same_id_is_refused():
    once = make()
    once.run("r", "q", lambda: "a")
    with pytest.raises(RequestIdReused):
        once.run("r", "another", lambda: "b")


def test_a_failure_is_forgotten_and_a_miss_is_not():
    once = make()
    with pytest.raises(ProviderFailed):
        once.run("r", "q", fails(ProviderFailed("down")))
    assert once.run("r", "q", lambda: "up again") == "up again"
    with pytest.raises(ReplayMissError):
        once.run("m", "q", fails(ReplayMissError("never recorded")))
    with pytest.raises(ReplayMissError):
        once.run("m", "q", lambda: "not asked for")


def test_nobody_waits_for_ever_behind_a_bug():
    once, entered, go_on = make(), threading.Event(), threading.Event()

    def bug():
        entered.set()
        assert go_on.wait(10)
        raise KeyError("bug")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.run, "r", "q", bug)
        assert entered.wait(10)
        asked = once._asked["r"]
        second = pool.submit(asked.future.result, 10)
        go_on.set()
        with pytest.raises(KeyError):
            first.result(10)
        with pytest.raises(Unavailable):
            second.result(10)
    assert once.run("r", "q", lambda: "again") == "again"


def test_only_so_much_is_remembered():
    once = make()
    for number in range(REMEMBERED_MAX + 10):
        once.run(f"r{number}", "q", lambda: "x")
    assert once.run("r0", "q", lambda: "made anew") == "made anew"
    assert once.run(f"r{REMEMBERED_MAX}", "q", lambda: "made anew") == "x"
    big = "x" * (REMEMBERED_BYTES_MAX // 2 + 1)
    for number in range(3):
        once.run(f"big{number}", "q", lambda: big)
    assert once._bytes <= REMEMBERED_BYTES_MAX
    assert len(once._asked) == 1
