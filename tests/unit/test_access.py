"""Who may do what: the table of roles, the role table's file, what requests are about, quotas."""

import os
import threading
from pathlib import Path

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.rpc import error_details_pb2, status_pb2

from bernstein_api.about.v1 import about_pb2
from bernstein_api.journal.v1 import journal_pb2
from bernstein_api.recorder.v1 import recorder_pb2
from bernstein_api.rederiver.v1 import rederiver_pb2
from bernstein_api.signer.v1 import signer_pb2
from bernstein_formats.errors import InvalidInput, QueueFull, TooMany, TooManyStreams
from bernstein_runtime import reread_file
from bernstein_runtime.quota import TURN_BYTES, Quota, Quotas
from bernstein_runtime.reread_file import RereadFile
from bernstein_runtime.role_table import Reach, RoleTable, parse_role_table
from bernstein_runtime.roles import OPENING, READ_RECORDING, READING, RPCS, WITHOUT_RUN
from bernstein_runtime.status import details_of
from bernstein_runtime.targets import EVERYTHING, FIELDS, LOG, REPLAYED, Kind, Target, targets_of

PROTOS = (about_pb2, journal_pb2, recorder_pb2, rederiver_pb2, signer_pb2)
METHODS = [
    (f"{service.full_name}/{method.name}", method)
    for proto in PROTOS
    for service in proto.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
APPEND = "bernstein_api.journal.v1.JournalService/AppendEvents"
READ = "bernstein_api.journal.v1.JournalService/ReadJournal"
CREATE = "bernstein_api.journal.v1.JournalService/CreateRun"
# Fields that end in _id or hold an address, and name nothing that has an owner.
OTHER_IDS = {
    "request_id",
    "replay_run_id",  # read like a recording, see READ_RECORDING
    "session_id",  # a recorder's open session, which its opener alone uses
    "key_id",
    "step_id",
    "resource_id",
}


def table(text: str) -> RoleTable:
    return parse_role_table(text, "roles.toml")


def grant(caller: str, role: str, origins: str = '["*"]', runs: str = '["*"]') -> str:
    return f'[[grant]]\ncaller = "{caller}"\nrole = "{role}"\norigins = {origins}\nruns = {runs}\n'


def test_the_table_of_roles_has_every_call_and_no_other() -> None:
    known = {name for name, _ in METHODS}
    assert set().union(*RPCS.values()) == known
    assert {READ_RECORDING, *READING, *OPENING, *WITHOUT_RUN} <= known


def test_what_a_request_is_about_is_found_wherever_it_says_so() -> None:
    for name, method in METHODS:
        for path in fields_of(method.input_type):
            field = path[-1]
            if field.type != FieldDescriptor.TYPE_STRING or field.is_repeated:
                continue
            message = message_factory.GetMessageClass(method.input_type)()
            holder = message
            for each in path[:-1]:
                holder = getattr(holder, each.name)
            setattr(holder, field.name, "named")
            if field.name in FIELDS or field.name == LOG:
                assert "named" in {each.target_id for each in targets_of(message)}, (name, field)
            else:
                assert not field.name.endswith("_id") or field.name in OTHER_IDS, (name, field)
                assert targets_of(message) == [EVERYTHING], (name, field)


def fields_of(message: Descriptor) -> list[list[FieldDescriptor]]:
    found = []
    for field in message.fields:
        found.append([field])
        if field.message_type is not None and not field.is_repeated:
            found += [[field, *rest] for rest in fields_of(field.message_type)]
    return found


def test_the_newest_run_is_any_run_and_foreign_events_are_everybodys() -> None:
    assert targets_of(journal_pb2.GetRunRequest(run_id="latest")) == [EVERYTHING]
    window = journal_pb2.AuditWindow(own_only=False)
    request = journal_pb2.BuildReceiptRequest(run_id="a", audit_window=window)
    assert targets_of(request) == [Target(Kind.RUN, "a"), EVERYTHING]
    request.audit_window.own_only = True
    assert targets_of(request) == [Target(Kind.RUN, "a")]
    assert REPLAYED in recorder_pb2.OpenSessionRequest.DESCRIPTOR.fields_by_name


def test_nothing_is_allowed_that_is_not_granted() -> None:
    assert table("").reach("a", READ, "o", "r") is Reach.NOTHING
    found = table(grant("a", "reader", '["o", "build:*"]', '["ci-*"]'))
    assert found.reach("a", READ, "o", "ci-1") is Reach.EVERYTHING
    assert found.reach("a", READ, "build:x", "ci-1") is Reach.EVERYTHING
    for caller, method, origin, run_id in (
        ("b", READ, "o", "ci-1"),
        ("a", APPEND, "o", "ci-1"),
        ("a", READ, "other", "ci-1"),
        ("a", READ, "o", "x-1"),
        ("a", READ, "o", ""),  # all runs
        ("aa", READ, "o", "ci-1"),
        ("", READ, "o", "ci-1"),
    ):
        assert found.reach(caller, method, origin, run_id) is Reach.NOTHING
    assert found.may_call("a", READ, "o")
    assert not found.may_call("a", APPEND, "o")


def test_a_writer_reaches_what_is_its_own() -> None:
    found = table(grant("host*", "writer"))
    assert found.reach("host1", APPEND, "o", "r") is Reach.OWN
    assert found.reach("host1", READ, "o", "r") is Reach.OWN
    assert found.reach("host1", READ, "o", "") is Reach.NOTHING
    assert found.reach("host1", CREATE, "o", "") is Reach.EVERYTHING
    both = table(grant("host1", "writer") + grant("host1", "reader"))
    assert both.reach("host1", READ, "o", "r") is Reach.EVERYTHING
    assert both.reach("host1", APPEND, "o", "r") is Reach.OWN


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("x = 1\n", "line 1", "no table 'x'"),
        (grant("a", "reader") + grant("b", "king"), "line 8", "no role 'king'"),
        (grant("a", "reader") + "colour = 1\n", "line 6", "no 'colour'"),
        (grant("a", "reader") + '[[grant]]\ncaller = "b"\n', "line 6", "has no role"),
        (grant("a*b", "reader"), "line 2", "'a*b'"),
        (grant("", "reader"), "line 2", "''"),
        (grant("a", "reader", "[]"), "line 4", "not empty"),
        (grant("a", "reader", '["*"]', "[1]"), "line 5", "1 is no text"),
        ("[quota]\ncalls = 0\n", "line 2", "1 or more"),
        ("[quota]\ncalls = true\n", "line 2", "whole number"),
        ("[quota]\nspeed = 1\n", "line 2", "no quota 'speed'"),
        ("grant = 1\n", "line 1", "table of its own"),
        ("quota = 1\n", "line 1", "under [quota]"),
        ("[[grant]\n", "line 1", "Expected"),
        ("[[grant]]\nrole = 'reader'\nrole = 'reader'\n", "line 3", "overwrite"),
    ],
)
def test_a_mistake_in_the_role_table_is_told_with_its_line(
    text: str, where: str, what: str
) -> None:
    with pytest.raises(InvalidInput) as raised:
        table(text)
    assert "roles.toml" in raised.value.message
    assert where in raised.value.message
    assert what in raised.value.message


@pytest.mark.parametrize("data", [b"\xff", b"\x00", b"[" * 100_000, b"a = " + b"[" * 100_000])
def test_no_bytes_of_a_role_table_are_a_bug(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "roles.toml").write_bytes(data)
    with pytest.raises(InvalidInput):
        role_file(tmp_path / "roles.toml")


def test_a_changed_role_table_counts_and_a_broken_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread_file, "_LOOK_SECONDS", 0.0)
    path = tmp_path / "roles.toml"
    path.write_text(grant("a", "reader"))
    found = role_file(path)
    assert found.now().may_call("a", READ, "o")

    replace(path, grant("b", "reader"))
    assert not found.now().may_call("a", READ, "o")
    assert found.now().may_call("b", READ, "o")
    replace(path, grant("c", "king"))
    assert found.now().may_call("b", READ, "o")
    path.unlink()
    assert found.now().may_call("b", READ, "o")


def role_file(path: Path) -> RereadFile[RoleTable]:
    return RereadFile(path, "[access] file", parse_role_table)


def replace(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_a_role_table_is_a_regular_file_that_is_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "missing"):
        with pytest.raises(InvalidInput, match=name):
            role_file(tmp_path / name)


def test_a_caller_has_no_more_under_way_than_its_quota_and_others_have_theirs() -> None:
    quotas, quota = Quotas(), Quota(calls=1, streams=1, bytes=10, open_runs=1, request_ids=2)
    with (
        quotas.call("a", quota, is_stream=False) as held,
        quotas.call("a", quota, is_stream=True) as stream,
        quotas.call("b", quota, is_stream=False) as other,
    ):
        with pytest.raises(QueueFull), quotas.call("a", quota, is_stream=False):
            pass
        with pytest.raises(TooManyStreams), quotas.call("a", quota, is_stream=True):
            pass
        held.take_bytes(100)  # one message is never too large for its caller
        held.take_bytes(3)  # the next one of a stream takes the place of the one before
        with pytest.raises(QueueFull):
            stream.take_bytes(8)
        other.take_bytes(5)
        run = Target(Kind.RUN, "1")
        held.open_run(run)
        held.open_run(run)
        with pytest.raises(TooMany):
            held.open_run(Target(Kind.RUN, "2"))
        held.finish_run(run)
        held.open_run(Target(Kind.RUN, "2"))
        held.take_request_id()
        held.take_request_id()
        with pytest.raises(TooMany):
            held.take_request_id()
    with quotas.call("a", quota, is_stream=False) as again:
        again.take_bytes(10)


def test_what_a_call_took_is_given_back_whatever_became_of_it() -> None:
    quotas, quota = Quotas(), Quota(calls=2, bytes=100)

    def work() -> None:
        for _ in range(200):
            try:
                with quotas.call("a", quota, is_stream=False) as held:
                    held.take_bytes(60)
            except QueueFull:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with quotas.call("a", quota, is_stream=False) as held:
        held.take_bytes(100)


def test_who_has_too_much_under_way_is_told_when_to_try_again() -> None:
    status = status_pb2.Status.FromString(details_of(QueueFull("too much")))
    wait = error_details_pb2.RetryInfo()
    assert any(each.Unpack(wait) for each in status.details)
    assert wait.retry_delay.ToMilliseconds() > 0


def test_much_of_one_caller_is_taken_in_one_after_the_other_and_waits_for_nobody_else() -> None:
    quotas, quota = Quotas(), Quota()
    taken = threading.Event()

    def take() -> None:
        with quotas.call("a", quota, is_stream=False) as second, second.turn():
            taken.set()

    with quotas.call("a", quota, is_stream=False) as first:
        with first.turn():
            first.take_bytes(TURN_BYTES)
        waiting = threading.Thread(target=take)
        waiting.start()
        with quotas.call("b", quota, is_stream=False) as other, other.turn():
            other.take_bytes(1)
        assert not taken.is_set()
    assert taken.wait(10)
    waiting.join()
