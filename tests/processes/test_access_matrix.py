"""Each call by each role with each kind of certificate (right, expired, of another CA, none): what
it is answered.

The table here is written by hand, without a look at the one in the code.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message
from tests.fleet import Authority, Fleet, ServiceHost, fleet_in

import bernstein_api.about.v1.about_pb2
import bernstein_api.journal.v1.journal_pb2
import bernstein_api.recorder.v1.recorder_pb2
import bernstein_api.rederiver.v1.rederiver_pb2
import bernstein_api.signer.v1.signer_pb2  # noqa: F401 - their descriptors

pytestmark = pytest.mark.processes
ORIGIN = "fleet:demo"
ROLES = {"w": "writer", "r": "reader", "a": "approver", "o": "operator", "s": "service"}
# Who may make a call about a run that the writer here opened itself.
ALLOWED: Mapping[str, Mapping[str, str]] = {
    "journal": {
        "CreateRun": "w__o_",
        "AppendEvents": "w__o_",
        "AppendLongEvent": "w__o_",
        "AppendRows": "w__o_",
        "FinishRun": "w__o_",
        "BeginLedger": "___o_",
        "GetRun": "wrao_",
        "ListRuns": "_rao_",
        "ReadJournal": "wraos",
        "VerifyRun": "wrao_",
        "CheckReceipt": "wrao_",
        "RebuildState": "wrao_",
        "DiffRuns": "wrao_",
        "WatchRows": "wrao_",
        "RepairRun": "___o_",
        "PruneRuns": "___o_",
        "AppendSteps": "w__o_",
        "AppendStepRows": "w__o_",
        "ImportBlob": "w__o_",
        "ReadSteps": "wrao_",
        "BuildReceipt": "w__o_",
        "AppendSpineEntry": "w__o_",
        "AppendAuditEvent": "w_ao_",
        "VerifySpine": "wrao_",
        "VerifyAuditLog": "_rao_",
        "AcceptLoss": "___o_",
        "ExportRun": "___o_",
        "ImportFile": "___o_",
        "QuarantineCaller": "___o_",
    },
    "recorder": {
        "OpenSession": "w__o_",
        "Call": "w__o_",
        "CloseSession": "w__o_",
        "GetRecording": "wrao_",
        "AppendCalls": "w__o_",
        "RecordExchanges": "w__o_",
        "ReadExchanges": "wrao_",
        "ReadBodies": "wrao_",
    },
    "rederiver": {"RederiveRun": "_rao_"},
    "signer": {
        "SealRun": "____s",
        "BuildReceipt": "____s",
        "FindSeal": "____s",
        "FindReceipt": "____s",
        "GetSealKey": "____s",
        "MacSpineEntry": "____s",
        "MacAuditEvent": "____s",
        "VerifySpine": "____s",
        "VerifyAuditLog": "____s",
        "SignSessionReceipt": "____s",
    },
    "about": {"GetAbout": "___o_"},
}
OWN_RUN, OWN_SESSION = "run-of-the-writer", "session-of-the-writer"
NAMED = {
    "run_id": OWN_RUN,
    "run_id_a": OWN_RUN,
    "run_id_b": OWN_RUN,
    "agent_id": OWN_SESSION,
    "id": OWN_RUN,
}
CALLS = [(service, rpc) for service, rpcs in ALLOWED.items() for rpc in rpcs]


def described(service: str) -> Any:
    name = f"bernstein_api.{service}.v1.{service.capitalize()}Service"
    return descriptor_pool.Default().FindServiceByName(name)


def test_every_call_of_the_contracts_has_a_row_here() -> None:
    for service, rows in ALLOWED.items():
        assert set(rows) == set(described(service).methods_by_name)


def request_of(method: Any, named: Mapping[str, str]) -> Message:
    """A message that names the writer's run wherever it can, and little else."""
    message = message_factory.GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if field.name in named:
            setattr(message, field.name, named[field.name])
        elif field.name in ("run", "header") and field.message_type.fields_by_name.get("run_id"):
            getattr(message, field.name).run_id = named["run_id"]
    return message


class Client:
    """One caller's connections."""

    def __init__(self, host: ServiceHost, credentials: grpc.ChannelCredentials) -> None:
        self._channels = {
            # Each service says how it is.
            service: grpc.secure_channel(
                host.endpoint.address("journal" if service == "about" else service), credentials
            )
            for service in ALLOWED
        }

    def ask(
        self, service: str, rpc: str, named: Mapping[str, str] = NAMED
    ) -> tuple[grpc.StatusCode, str]:
        """What a call ends with; a stream is left at its first answer."""
        found = described(service)
        method = found.methods_by_name[rpc]
        made: Any = self._channels[service].stream_stream(
            f"/{found.full_name}/{rpc}",
            request_serializer=lambda message: message.SerializeToString(),
        )
        call = made(iter([request_of(method, named)]), timeout=30)
        try:
            next(call, None)
        except grpc.RpcError:
            return call.code(), call.details()
        call.cancel()
        return grpc.StatusCode.OK, ""

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def credentials(issued: Mapping[str, str], ca: Path) -> grpc.ChannelCredentials:
    key = Path(issued["BERNSTEIN_SVC_TLS_KEY_FILE"]).read_bytes()
    certificate = Path(issued["BERNSTEIN_SVC_TLS_CERTIFICATE_FILE"]).read_bytes()
    return grpc.ssl_channel_credentials(ca.read_bytes(), key, certificate)


class Callers:
    """A fleet, and callers with every kind of certificate."""

    def __init__(self, fleet: Fleet, other: Authority) -> None:
        grants = [
            f'[[grant]]\ncaller = "{role}{number}"\nrole = "{role}"\n'
            f'origins = ["{ORIGIN}"]\nruns = ["*"]\n'
            for role in ROLES.values()
            for number in ("", 2)
        ]
        host_grant = '[[grant]]\ncaller = "one"\nrole = "service"\norigins = ["*"]\nruns = ["*"]\n'
        fleet.roles.write_text("\n".join([*grants, host_grant]))
        self.host = fleet.host("one", BERNSTEIN_SVC_FLEET_ORIGIN=ORIGIN)
        self.host.start("journal", "recorder", "rederiver", "signer")
        ca = fleet.authority.ca
        self._made: list[Client] = []
        self.right = {
            name: self._client(credentials(fleet.authority.issue(name), ca))
            for role in ROLES.values()
            for name in (role, f"{role}2")
        }
        late = timedelta(hours=-1)
        self.expired = {
            role: self._client(credentials(fleet.authority.issue(role, lasts=late), ca))
            for role in ROLES.values()
        }
        self.of_another_ca = {
            role: self._client(credentials(other.issue(role), ca)) for role in ROLES.values()
        }
        self.without = self._client(grpc.ssl_channel_credentials(ca.read_bytes()))

    def _client(self, having: grpc.ChannelCredentials) -> Client:
        made = Client(self.host, having)
        self._made.append(made)
        return made

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def callers(tmp_path: Path) -> Iterator[Callers]:
    with fleet_in(tmp_path / "fleet") as fleet:
        made = Callers(fleet, Authority(tmp_path / "other"))
        yield made
        made.close()


def test_each_call_is_answered_as_the_role_and_the_certificate_of_its_caller_say(
    callers: Callers,
) -> None:
    open_runs(callers)
    for service, rpc in CALLS:
        for letter, allowed in zip(ROLES, ALLOWED[service][rpc], strict=True):
            role = ROLES[letter]
            code, words = callers.right[role].ask(service, rpc)
            is_refused = code is grpc.StatusCode.PERMISSION_DENIED
            assert is_refused is (allowed != letter), (service, rpc, role, code, words)
            assert code is not grpc.StatusCode.INTERNAL, (service, rpc, words)
            if is_refused:
                assert words.startswith(f"{role} may not call {rpc}"), words
            for client in (callers.expired[role], callers.of_another_ca[role], callers.without):
                assert client.ask(service, rpc)[0] is grpc.StatusCode.UNAVAILABLE


def test_a_writer_gets_nowhere_with_a_run_of_another_one_and_is_not_told_whether_it_is_there(
    callers: Callers,
) -> None:
    open_runs(callers)
    other = callers.right["writer2"]
    nowhere = {
        name: "run-of-nobody" if name != "agent_id" else "session-of-nobody" for name in NAMED
    }
    opens = {
        "CreateRun",
        "AppendRows",
        "AppendSteps",
        "AppendStepRows",
        "AppendSpineEntry",
        "AppendCalls",
    }
    opens |= {"OpenSession", "RecordExchanges", "Call", "CloseSession", "AppendAuditEvent"}
    for service, rpc in CALLS:
        if ALLOWED[service][rpc][0] != "w" or rpc in ("Call", "CloseSession", "AppendAuditEvent"):
            continue
        code, words = other.ask(service, rpc)
        assert code is grpc.StatusCode.PERMISSION_DENIED, (rpc, code, words)
        if rpc not in opens:
            same = words.replace(OWN_RUN, "run-of-nobody")
            same = same.replace(OWN_SESSION, "session-of-nobody")
            assert other.ask(service, rpc, nowhere) == (code, same)


def open_runs(callers: Callers) -> None:
    """The writer opens what the matrix is about."""
    writer = callers.right["writer"]
    # Neither has what else it takes: they belong to the writer all the same.
    for rpc in ("CreateRun", "AppendSteps"):
        code, words = writer.ask("journal", rpc)
        assert code is grpc.StatusCode.INVALID_ARGUMENT, words
