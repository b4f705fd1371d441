"""The signer as a process: what it seals, what it refuses, and what it never gives away."""

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from tests.software_token import SoftwareToken, make_token

from bernstein_api.signer.v1 import signer_pb2 as pb
from bernstein_api.signer.v1 import signer_pb2_grpc as grpc_pb
from bernstein_formats.errors import (
    BernsteinError,
    ChainBroken,
    InvalidInput,
    KeyUnusable,
    LedgerRefused,
    NotAllowed,
    NotFound,
    RowMalformed,
    SealMalformed,
    SignatureWrong,
    Unavailable,
)
from bernstein_formats.event_journal import ChainHead, next_row
from bernstein_formats.public_key import PublicKey, parse_public_pem
from bernstein_formats.receipt_build import ReceiptBuilder
from bernstein_formats.receipt_file import receipt_cose_preimage, receipt_head, receipt_tail
from bernstein_formats.receipt_verify import verify_receipt
from bernstein_formats.run_receipt import ReceiptSignature
from bernstein_formats.seal import check_seal, parse_entry, parse_seal
from bernstein_runtime.caller import CALLER_KEY
from bernstein_runtime.channel import open_channel
from bernstein_runtime.places import Places, places_for
from bernstein_runtime.status import error_from
from bernstein_signer.key import create_key, load_key_file

pytestmark = pytest.mark.processes

RUN_ID, ORIGIN, TOKEN = "20260301-120000-abcdef", "host:/project", b"5ec4e7" * 10
SEED = sha256(b"TEST ONLY receipt key").digest()
PROGRAM = (sys.executable, "-m", "bernstein_signer")


def rows(count: int, last: str = "same") -> bytes:
    """A journal of `count` rows, the last of which says `last`."""
    head, lines = ChainHead(), []
    for number in range(count):
        said = last if number == count - 1 else "same"
        line, head = next_row(head, "step", {"n": number, "says": said}, 1.5, 0.5)
        lines.append(line + b"\n")
    return b"".join(lines)


def pieces(data: bytes, size: int = 101) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@dataclass
class World:
    """One project and the signers of it; everything is stopped at the end of a test."""

    folder: Path
    places: Places
    environ: dict[str, str]
    stack: ExitStack

    @property
    def ledger(self) -> Path:
        return self.places.secrets_dir / "signer" / "ledger.jsonl"

    @property
    def log_text(self) -> str:
        return (self.folder / "log").read_text()

    def start(
        self, *arguments: str, token: bytes = TOKEN, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        log = self.stack.enter_context((self.folder / "log").open("a"))
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            env={**self.environ, **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.stack.callback(end, process)
        assert process.stdin is not None
        process.stdin.write(token.decode() + "\n")
        process.stdin.flush()  # it ends with the pipe
        return process

    def resident(self, **environ: str) -> "Caller":
        process = self.start(str(self.places.sdd_dir), environ=environ)
        return self.caller(process, self.places.socket("signer"))

    def once(self, *arguments: str, **environ: str) -> tuple["Caller", dict[str, object]]:
        socket = self.places.runtime_dir / "once.sock"
        process = self.start("--once", "--socket", str(socket), *arguments, environ=environ)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        return self.caller(process, socket), said

    def caller(self, process: subprocess.Popen[str], socket: Path) -> "Caller":
        channel = open_channel(socket)
        self.stack.callback(channel.close)
        return Caller(process, channel)

    def key_file(self, name: str = "team.pem") -> Path:
        path = self.folder / name
        path.write_bytes(SEED)
        path.chmod(0o600)
        return path


@dataclass
class Caller:
    """A signer's process and the way to it, with errors as our own."""

    process: subprocess.Popen[str]
    channel: grpc.Channel
    token: bytes = TOKEN

    def seal(
        self,
        journal: bytes,
        checkpoint: bytes = b"",
        run_id: str = RUN_ID,
        origin: str = ORIGIN,
    ) -> pb.SealRunResponse:
        run = pb.RunHeader(
            origin=origin,
            run_id=run_id,
            checkpoint_json=checkpoint,
            journal_size_bytes=len(journal),
        )
        parts = [pb.SealRunRequest(journal=piece) for piece in pieces(journal)]
        return self.send_seal([pb.SealRunRequest(run=run), *parts])

    def send_seal(self, requests: Sequence[pb.SealRunRequest]) -> pb.SealRunResponse:
        stub = grpc_pb.SignerServiceStub(self.channel)
        return told(
            lambda: stub.SealRun(
                iter(requests), timeout=20, wait_for_ready=True, metadata=self.metadata()
            )
        )

    def receipt(
        self, journal: bytes, count: int, seal_json: bytes = b"", run_id: str = RUN_ID
    ) -> pb.BuildReceiptResponse:
        run = pb.RunHeader(origin=ORIGIN, run_id=run_id)
        header = pb.ReceiptHeader(run=run, row_count=count, seal_json=seal_json)
        parts = [pb.BuildReceiptRequest(journal=piece) for piece in pieces(journal)]
        return self.send_receipt([pb.BuildReceiptRequest(header=header), *parts])

    def send_receipt(self, requests: Sequence[pb.BuildReceiptRequest]) -> pb.BuildReceiptResponse:
        stub = grpc_pb.SignerServiceStub(self.channel)
        return told(
            lambda: stub.BuildReceipt(
                iter(requests), timeout=20, wait_for_ready=True, metadata=self.metadata()
            )
        )

    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        return ((CALLER_KEY, self.token),) if self.token else ()


Answer = TypeVar("Answer")


def told(send: Callable[[], Answer]) -> Answer:
    try:
        return send()
    except grpc.RpcError as failure:
        raise error_from(failure) from None


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(20)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        # A socket's path may have 107 bytes only.
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="signer"))
        own = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": runtime, "XDG_STATE_HOME": f"{tmp_path}/s"}
        environ = {**os.environ, **own}
        sdd_dir = tmp_path / ".sdd"
        sdd_dir.mkdir()
        places = places_for(sdd_dir, environ)
        places.runtime_dir.mkdir(mode=0o700, parents=True)
        yield World(tmp_path, places, environ, stack)


def test_a_run_is_sealed_once_and_the_same_rows_give_the_same_seal(world: World):
    signer = world.resident()
    first, again = signer.seal(rows(3)), signer.seal(rows(3))
    assert first == again
    assert first.row_count == 3
    seal = parse_seal(first.seal_json)
    published = parse_public_pem((world.places.secrets_dir / "seal-key.pub.pem").read_bytes())
    check_seal(seal, published)
    assert (seal.entry.body.origin, seal.entry.body.run_id) == (ORIGIN, RUN_ID)
    assert seal.entry.body.head_hash == first.head_hash.hex()
    assert seal.entry.body.head_hash == json.loads(rows(3).splitlines()[-1])["event_hash"]
    assert world.ledger.read_bytes() == seal.entry.line() + b"\n"


def test_a_sealed_run_may_grow_but_not_shrink_or_change(world: World):
    signer = world.resident()
    signer.seal(rows(3))
    grown = parse_seal(signer.seal(rows(5)).seal_json).entry
    assert (grown.body.index, grown.body.event_count) == (1, 5)
    for refused in (rows(4), rows(5, last="other"), rows(7, last="x")[: len(rows(3))]):
        with pytest.raises(LedgerRefused) as caught:
            signer.seal(refused)
        assert caught.value.metadata["run_id"] == RUN_ID
        assert caught.value.metadata["sealed_count"] == "5"
        assert caught.value.metadata["sealed_head"] == grown.body.head_hash
    assert len(world.ledger.read_bytes().splitlines()) == 2
    other = signer.seal(rows(2), origin="host:/another")
    assert other.row_count == 2


@pytest.mark.parametrize(
    ("journal", "error"),
    [
        (rows(3)[len(rows(1)) :], ChainBroken),
        (rows(3).replace(b'"n": 1', b'"n": 9'), ChainBroken),
        (rows(3).replace(b'"index": 1,', b'"index": 7,'), ChainBroken),
        (rows(3) + b'{"torn', RowMalformed),
        (b"[]\n", RowMalformed),
        (b"\n\n", NotFound),
        (b"", NotFound),
    ],
    ids=["headless", "changed", "index", "torn", "no row", "blank", "empty"],
)
def test_rows_that_do_not_hold_are_not_sealed(
    world: World, journal: bytes, error: type[BernsteinError]
):
    with pytest.raises(error) as caught:
        world.resident().seal(journal)
    assert RUN_ID in caught.value.message
    assert world.ledger.read_bytes() == b""


def test_a_stream_that_breaks_the_rules_is_refused(world: World):
    signer = world.resident()
    run = pb.RunHeader(origin=ORIGIN, run_id=RUN_ID)
    journal = pb.SealRunRequest(journal=rows(1))
    for requests in ([], [journal], [pb.SealRunRequest(run=run), journal] * 2):
        with pytest.raises(InvalidInput, match="first message"):
            signer.send_seal(requests)
    for bad in ("../up", "", "a\n"):
        with pytest.raises(InvalidInput, match="no run id"):
            signer.seal(rows(1), run_id=bad)
    with pytest.raises(InvalidInput, match="origin"):
        signer.seal(rows(1), origin="")


def test_a_ledger_that_does_not_reach_the_newest_seal_signs_nothing(world: World):
    signer = world.resident()
    signer.seal(rows(1))
    earlier = world.ledger.read_bytes()
    newest = signer.seal(rows(2)).seal_json
    assert signer.seal(rows(2), newest).seal_json == newest
    end(signer.process)
    world.ledger.write_bytes(earlier)
    cut = world.resident()
    with pytest.raises(LedgerRefused, match="cut or replaced"):
        cut.seal(rows(2, last="rewritten"), newest)
    with pytest.raises(LedgerRefused, match="no proof of what was sealed"):
        cut.seal(rows(2), b"nonsense")
    assert world.ledger.read_bytes() == earlier


def test_who_does_not_have_the_token_gets_nothing(world: World):
    signer = world.resident()
    signer.seal(rows(1))
    for token in (b"", b"wrong", TOKEN[:-1], TOKEN + b"0"):
        stranger = Caller(signer.process, signer.channel, token)
        with pytest.raises(NotAllowed):
            stranger.seal(rows(2))
        with pytest.raises(NotAllowed):
            stranger.receipt(rows(1), 1)


def test_a_signer_without_a_token_does_not_start(world: World):
    process = world.start(str(world.places.sdd_dir), token=b"")
    assert process.wait(20) == 1
    assert "no token on stdin" in world.log_text


def test_an_answered_seal_survives_the_death_of_the_signer(world: World):
    signer = world.resident()
    answered = signer.seal(rows(2)).seal_json
    signer.process.send_signal(signal.SIGKILL)
    signer.process.wait(20)
    with world.ledger.open("ab") as ledger:
        ledger.write(b'{"event_count":')
    assert world.resident().seal(rows(2)).seal_json == answered
    assert "torn_tail_cut" in world.log_text


def test_the_signer_ends_with_its_supervisor(world: World):
    signer = world.resident()
    signer.seal(rows(1))
    assert signer.process.stdin is not None
    signer.process.stdin.close()
    assert signer.process.wait(20) == 0


def test_a_signer_does_not_start_from_a_broken_ledger(world: World):
    signer = world.resident()
    signer.seal(rows(1))
    end(signer.process)
    world.ledger.write_bytes(world.ledger.read_bytes().replace(b'_count":1', b'_count":2'))
    assert world.start(str(world.places.sdd_dir)).wait(20) == 1
    assert "LEDGER_REFUSED" in world.log_text
    assert "Traceback" not in world.log_text


def test_secrets_are_private_and_never_in_the_log(world: World):
    signer = world.resident(BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE=str(world.key_file()))
    signer.seal(rows(1))
    signer.receipt(rows(1), 1)
    folder = world.places.secrets_dir / "signer"
    assert {(path.name, path.stat().st_mode & 0o777) for path in (folder, *folder.iterdir())} == {
        ("signer", 0o700),
        ("ledger.jsonl", 0o600),
        ("seal-key.pem", 0o600),
    }
    body = (folder / "seal-key.pem").read_text().splitlines()[1]
    for secret in (TOKEN.decode(), SEED.hex(), body, "PRIVATE"):
        assert secret not in world.log_text
    limits = Path(f"/proc/{signer.process.pid}/limits").read_text()
    assert re.search(r"Max core file size +0 +0 ", limits)


def test_a_signers_memory_is_locked_where_it_may_lock_any_amount_and_else_not_at_all(world: World):
    effective, limit = int(status_of("self", "CapEff"), 16), resource.RLIMIT_MEMLOCK
    may = bool(effective >> 14 & 1) or resource.getrlimit(limit)[0] == resource.RLIM_INFINITY
    signer = world.resident()
    signer.seal(rows(1))
    locked = int(status_of(signer.process.pid, "VmLck").split()[0])
    used = int(status_of(signer.process.pid, "VmRSS").split()[0])
    assert locked >= used if may else locked == 0


def status_of(process: int | str, name: str) -> str:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}:")).partition(":")[2].strip()


def signed_receipt(response: pb.BuildReceiptResponse, journal: bytes) -> bytes:
    """The receipt as the journal makes it from the same rows and the signer's answer."""
    builder = ReceiptBuilder(RUN_ID)
    chunks = list(builder.event_chunks(journal.splitlines()))
    key = PublicKey(response.public_key)
    subject = builder.subject()
    assert key.verifies(response.cose_signature, receipt_cose_preimage(subject, response.key_id))
    signature = ReceiptSignature(response.key_id, key, response.signature)
    head = receipt_head(subject.event_count)
    return head + b"".join(chunks) + receipt_tail(subject, [], signature)


def test_a_receipt_verifies_and_the_signer_knows_its_digest(world: World):
    key_file = world.key_file()
    signer = world.resident(BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE=str(key_file))
    response = signer.receipt(rows(3), 3)
    data = signed_receipt(response, rows(3))
    assert sha256(data).digest() == response.receipt_sha256
    pin = load_key_file(key_file).public_key
    assert verify_receipt(data, pin).ok
    assert response.key_id == "team.pem"
    assert signer.receipt(rows(3), 3) == response
    kinds = [parse_entry(line).body.kind for line in world.ledger.read_bytes().splitlines()]
    assert kinds == ["seal", "receipt"]
    with pytest.raises(LedgerRefused):
        signer.receipt(rows(2), 2)
    known = world.ledger.read_bytes().splitlines()[0]
    seal_json = signer.seal(rows(3)).seal_json
    assert known in seal_json
    assert signer.receipt(rows(3), 3, seal_json) == response
    with pytest.raises(LedgerRefused, match="cut or replaced"):
        signer.receipt(rows(3), 3, seal_json.replace(b'"origin":"host', b'"origin":"hoss'))
    with pytest.raises(InvalidInput, match="4 rows were announced, 3 came"):
        signer.receipt(rows(3), 4)


def test_a_stream_that_ends_early_is_not_sealed(world: World):
    signer = world.resident()
    whole = rows(3)
    run = pb.RunHeader(origin=ORIGIN, run_id=RUN_ID, journal_size_bytes=len(whole))
    cut = whole[: whole.rindex(b"\n", 0, len(whole) - 1) + 1]
    with pytest.raises(Unavailable, match="were announced"):
        signer.send_seal([pb.SealRunRequest(run=run), pb.SealRunRequest(journal=cut)])
    assert world.ledger.read_bytes() == b""


def test_journal_bytes_after_the_spine_are_refused(world: World):
    signer = world.resident(BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE=str(world.key_file()))
    header = pb.ReceiptHeader(run=pb.RunHeader(origin=ORIGIN, run_id=RUN_ID), row_count=1)
    journal = pb.BuildReceiptRequest(journal=rows(1))
    parts = [pb.BuildReceiptRequest(header=header), journal, pb.BuildReceiptRequest(spine=b"\n")]
    with pytest.raises(InvalidInput, match="after the spine"):
        signer.send_receipt([*parts, journal])
    assert world.ledger.read_bytes() == b""


def test_without_a_usable_receipt_key_runs_are_still_sealed(world: World):
    signer = world.resident()
    with pytest.raises(KeyUnusable, match="set receipt_key under"):
        signer.receipt(rows(1), 1)
    assert signer.seal(rows(1)).row_count == 1
    end(signer.process)
    signer = world.resident(BERNSTEIN_SVC_SIGNER_RECEIPT_KEY_FILE="/nowhere/key.pem")
    with pytest.raises(KeyUnusable, match=r"/nowhere/key\.pem"):
        signer.receipt(rows(1), 1)
    assert signer.seal(rows(2)).row_count == 2


def test_a_signer_for_one_receipt_signs_it_and_ends(world: World):
    seal_json = world.resident().seal(rows(3)).seal_json
    public = str(world.places.secrets_dir / "seal-key.pub.pem")
    signer, said = world.once("--key-path", str(world.key_file()), "--seal-key", public)
    assert said == {"ready": True, "key_id": "team.pem"}
    response = signer.receipt(rows(3), 3, seal_json)
    assert verify_receipt(signed_receipt(response, rows(3)), PublicKey(response.public_key)).ok
    assert signer.process.wait(20) == 0
    assert not (world.places.runtime_dir / "once.sock").exists()
    assert len(world.ledger.read_bytes().splitlines()) == 1


def test_a_signer_for_one_receipt_wants_exactly_the_sealed_rows(world: World):
    resident = world.resident()
    seal_json = resident.seal(rows(3)).seal_json
    foreign = resident.seal(rows(3), run_id="another").seal_json
    signer, _ = world.once("--key-path", str(world.key_file()))
    for journal, count in ((rows(2), 2), (rows(4), 4), (rows(3, last="other"), 3)):
        with pytest.raises(LedgerRefused):
            signer.receipt(journal, count, seal_json)
    with pytest.raises(LedgerRefused, match="another"):
        signer.receipt(rows(3), 3, foreign)
    with pytest.raises(InvalidInput, match="no seal"):
        signer.receipt(rows(3), 3)
    with pytest.raises(SealMalformed):
        signer.receipt(rows(3), 3, seal_json.rstrip())
    with pytest.raises(SignatureWrong):
        signer.receipt(rows(3), 3, seal_json.replace(b'"origin":"host', b'"origin":"hoss'))
    with pytest.raises(InvalidInput, match="no ledger"):
        signer.seal(rows(3))
    assert signer.receipt(rows(3), 3, seal_json).key_id == "team.pem"
    assert signer.process.wait(20) == 0


def test_a_seal_by_another_signer_is_refused_where_the_right_one_is_named(world: World):
    seal_json = world.resident().seal(rows(1)).seal_json
    other = world.folder / "other.pem"
    other.write_bytes(create_key(world.folder / "k").public_pem())
    signer, _ = world.once("--key-path", str(world.key_file()), "--seal-key", str(other))
    with pytest.raises(SignatureWrong, match="another key"):
        signer.receipt(rows(1), 1, seal_json)


@pytest.mark.parametrize(
    ("arguments", "key_id"),
    [
        (("--key-path", "{link}"), "team.pem"),
        (("--key-path", "{link}", "--key-name", "link.pem"), "link.pem"),
        (("--key-path", "{link}", "--key-id", "ops", "--key-name", "link.pem"), "ops"),
        (("--key-env", "RECEIPT_KEY"), "RECEIPT_KEY"),
        (("--key-env", "RECEIPT_KEY", "--key-id", "ops"), "ops"),
    ],
    ids=["file", "link", "flag", "variable", "variable-flag"],
)
def test_the_key_has_the_name_that_the_peer_would_give_it(
    world: World, arguments: tuple[str, ...], key_id: str
):
    link = world.folder / "link.pem"
    link.symlink_to(world.key_file())
    given = [argument.format(link=link) for argument in arguments]
    signer, said = world.once(*given, RECEIPT_KEY=f"raw:{SEED.hex()}")
    assert said == {"ready": True, "key_id": key_id}
    end(signer.process)


@pytest.mark.parametrize(
    "arguments",
    [("--key-path", "/nowhere/key.pem"), ("--key-env", "UNSET_KEY"), ("--seal-key", "/x")],
)
def test_an_unusable_key_is_told_in_one_line_of_json(world: World, arguments: tuple[str, str]):
    key = () if arguments[0] != "--seal-key" else ("--key-path", str(world.key_file()))
    signer, said = world.once(*key, *arguments)
    assert said["reason"] == "KEY_UNUSABLE"
    assert arguments[1] in str(said["error"])
    assert signer.process.wait(20) == 1
    assert "Traceback" not in world.log_text


def test_a_signer_that_nobody_asks_ends(world: World):
    signer, _ = world.once("--key-path", str(world.key_file()), "--wait-seconds", "0.01")
    assert signer.process.wait(20) == 0


def test_a_signer_for_one_receipt_ends_with_its_parent(world: World):
    socket = world.places.runtime_dir / "once.sock"
    command = [*PROGRAM, "--once", "--socket", str(socket), "--key-path", str(world.key_file())]
    command += ["--wait-seconds", "45"]
    parent = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
        "child.stdin.write(b'token\\n'); child.stdin.flush()\n"
        "sys.stdin.read()\n"
        "os._exit(0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent, *command],
        env=world.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        process.stdin.close()
        ended, _, _ = select.select([process.stdout], [], [], 20)
        assert ended, "the signer lives on without its parent"
        assert process.stdout.read() == b""


def test_keys_are_made_and_shown_from_the_command_line(world: World):
    path = world.folder / "made.pem"
    made = run("--new-key", str(path))
    assert made.stdout == f"{world.folder / 'made.pub.pem'}\n"
    shown = run("--public-key", str(path))
    assert shown.stdout == (world.folder / "made.pub.pem").read_text()
    again = run("--new-key", str(path))
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (1, "", 1)
    for arguments in ((), ("--once", "--new-key", "x"), ("--nonsense",)):
        wrong = run(*arguments)
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)


def test_no_other_process_may_look_into_a_signer():
    # 3 is PR_GET_DUMPABLE.
    program = (
        "import ctypes, os\n"
        "from bernstein_runtime.protection import protect\n"
        "protect()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), oct(os.umask(0)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "0 0o77\n"


# --- keys that are elsewhere ----------------------------------------------------------------------


@pytest.fixture
def token(tmp_path: Path) -> SoftwareToken:
    made = make_token(tmp_path / "token", "fleet")
    for name in ("receipts", "seals"):
        made.make_key(name)
    return made


def in_token(token: SoftwareToken, **more: str) -> dict[str, str]:
    return {
        "SOFTHSM2_CONF": str(token.configuration),
        "BERNSTEIN_SVC_SIGNER_RECEIPT_KEY": token.uri("receipts", **more),
        "BERNSTEIN_SVC_SIGNER_SEAL_KEY": token.uri("seals"),
    }


def test_seals_and_receipts_are_signed_in_a_token(world: World, token: SoftwareToken):
    signer = world.resident(**in_token(token))
    seal = parse_seal(signer.seal(rows(2)).seal_json)
    response = signer.receipt(rows(2), 2)

    assert verify_receipt(signed_receipt(response, rows(2)), PublicKey(response.public_key)).ok
    assert response.key_id == "receipts"
    published = (world.places.secrets_dir / "seal-key.pub.pem").read_bytes()
    check_seal(seal, parse_public_pem(published))
    assert {each.name for each in world.ledger.parent.iterdir()} == {"ledger.jsonl"}


def test_a_signer_that_has_sealed_takes_no_other_key_for_it(world: World, token: SoftwareToken):
    signer = world.resident()
    signer.seal(rows(1))
    end(signer.process)
    assert world.start(str(world.places.sdd_dir), environ=in_token(token)).wait(20) == 1
    assert "names another key" in world.log_text


def test_a_policy_is_asked_for_seals_and_receipts_and_again_when_it_changes(world: World):
    path = world.folder / "policy.toml"
    rule = '[[allow]]\nwhat = ["seal"]\norigins = ["*"]\nruns = ["*"]\n'
    path.write_text(rule)
    signer = world.resident(
        BERNSTEIN_SVC_SIGNER_POLICY_FILE=str(path),
        BERNSTEIN_SVC_SIGNER_RECEIPT_KEY=str(world.key_file()),
    )
    signer.seal(rows(1))
    with pytest.raises(NotAllowed, match="no rule for a receipt"):
        signer.receipt(rows(1), 1)
    path.write_text(rule.replace('"seal"', '"seal", "receipt"'))
    give_up = time.monotonic() + 15
    while True:
        try:
            signer.receipt(rows(1), 1)
            break
        except NotAllowed:
            assert time.monotonic() < give_up
            time.sleep(0.05)


CANARIES = ("canary-pin-4711", "canary-passphrase", "canary-seed")


def test_no_key_passphrase_or_pin_is_told_whatever_fails(world: World, token: SoftwareToken):
    """Wrong PINs and passphrases, encrypted and broken keys, a token that is gone."""
    secret = world.folder / "secret"
    secret.write_text("canary-passphrase\n")
    broken = world.folder / "broken.pem"
    broken.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\ncanary-seed\n-----END\n")
    variable = "BERNSTEIN_SVC_SIGNER_RECEIPT_KEY"
    told = []
    for more in (
        {variable: token.uri("absent")},
        {variable: token.uri("receipts", serial="gone")},
        {variable: token.uri("receipts", pin=f"file:{secret}")},
        {variable: str(broken), "BERNSTEIN_SVC_SIGNER_RECEIPT_PASSPHRASE_FILE": str(secret)},
        {variable: str(secret)},
    ):
        signer = world.resident(SOFTHSM2_CONF=str(token.configuration), **more)
        with pytest.raises(BernsteinError) as caught:
            signer.receipt(rows(1), 1)
        told.append(f"{caught.value.message} {caught.value.metadata}")
        process = Path(f"/proc/{signer.process.pid}")
        told += [(process / each).read_text(errors="replace") for each in ("cmdline", "environ")]
        end(signer.process)
    for each in (*told, world.log_text):
        assert not [canary for canary in CANARIES if canary in each]
    assert "Traceback" not in world.log_text


# An ordinary user, who owns nothing that these tests need.
NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_another_process_of_the_same_user_can_not_attach_or_read_its_memory():
    """Two processes of an ordinary user: one is protected, the other tries."""
    become = f"import ctypes, os, sys\nos.setgid({NOBODY}); os.setuid({NOBODY})\n"
    program = (
        "from bernstein_runtime.protection import protect\n" + become +
        # 4 is PR_SET_DUMPABLE, which a change of user took away.
        "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"
        "sys.argv[1] == 'protected' and protect()\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    attack = (
        become + "pid = int(sys.argv[1])\n"
        # 16 is PTRACE_ATTACH.
        "attached = ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0\n"
        "try:\n"
        "    read = bool(open(f'/proc/{pid}/mem', 'rb'))\n"
        "except OSError:\n"
        "    read = False\n"
        "print(attached, read)\n"
    )
    answers = {}
    for kind in ("open", "protected"):
        with subprocess.Popen(
            [sys.executable, "-c", program, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as victim:
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"ready\n"
            tried = subprocess.run(
                [sys.executable, "-c", attack, str(victim.pid)],
                capture_output=True,
                text=True,
                check=True,
            )
            answers[kind] = tried.stdout
            victim.kill()
    assert answers["protected"] == "False False\n"
    assert "True" in answers["open"]  # so the attack is one
