"""The gate that makes a closed session's account final."""

import threading

import pytest

from bernstein_formats.errors import Conflict
from bernstein_recorder.gate import Gate


def test_what_is_inside_is_waited_for_and_nothing_enters_afterwards() -> None:
    gate, entered, leave, order = Gate(), threading.Event(), threading.Event(), []

    def work() -> None:
        with gate.inside():
            entered.set()
            leave.wait(10)
            order.append("left")

    def shut() -> None:
        gate.shut()
        order.append("shut")

    worker, closer = threading.Thread(target=work), threading.Thread(target=shut)
    worker.start()
    entered.wait(10)
    closer.start()
    leave.set()
    worker.join()
    closer.join()

    assert order == ["left", "shut"]
    with pytest.raises(Conflict, match="not recorded"), gate.inside():
        pass


def test_a_failure_inside_does_not_keep_the_gate_open() -> None:
    gate = Gate()
    with pytest.raises(ValueError, match="inside"), gate.inside():
        raise ValueError("inside")

    gate.shut()
