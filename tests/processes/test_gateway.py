"""The gateway as a real process: rows over HTTP, resume points, the page, who is let in."""

import datetime as dt
import ipaddress
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bernstein_client.connection import Services
from bernstein_client.thread_stream import ThreadStream
from bernstein_formats import thread
from bernstein_formats.event_stream import EventParser, ServerEvent

pytestmark = pytest.mark.processes


@contextmanager
def by_socket(services: Services) -> Iterator[httpx2.Client]:
    services.supervisor.ensure("gateway")
    transport = httpx2.HTTPTransport(uds=str(services.places.socket("gateway")))
    with httpx2.Client(transport=transport, base_url="http://gateway", timeout=20) as client:
        yield client


def facts(services: Services) -> dict[str, Any]:
    services.supervisor.ensure("gateway")
    found: dict[str, Any] = json.loads((services.places.runtime_dir / "gateway.json").read_bytes())
    return found


def made_run(services: Services, count: int, *, sealed: bool = True) -> str:
    run_id = services.journal.create_run()
    services.journal.append_many(run_id, [("tick_start", {"tick": n}) for n in range(count)])
    if sealed:
        services.journal.finish_run(run_id)
    return run_id


def events_of(client: httpx2.Client, url: str, **headers: str) -> list[ServerEvent]:
    answer = client.get(
        url, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return EventParser().feed(answer.content)


def test_a_thread_is_the_projection_of_the_journal(services: Services) -> None:
    run_id = made_run(services, 20)
    wanted = list(thread.project(services.journal.read_journal(run_id)))
    with by_socket(services) as client:
        content = client.get(f"/runs/{run_id}/thread").content
        events = EventParser().feed(content)

    assert b"".join(step.frame() for step in wanted) in content
    assert [event.event_id for event in events if event.event_id is not None] == [
        str(index) for index in range(20)
    ]
    assert events[-1].event == "end"
    socket = services.places.socket("gateway")
    assert list(ThreadStream(socket).steps(run_id)) == wanted


def test_a_viewer_goes_on_after_the_last_row_it_saw(services: Services) -> None:
    run_id = made_run(services, 5)
    with by_socket(services) as client:
        by_header = events_of(client, f"/runs/{run_id}/thread", last_event_id="2")
        by_query = events_of(client, f"/runs/{run_id}/thread?after=2")
        nothing = client.get(f"/runs/{run_id}/thread", headers={"last-event-id": "4"})

    assert [event.event_id for event in by_header if event.event_id] == ["3", "4"]
    assert by_query == by_header
    assert nothing.status_code == 204


@pytest.mark.parametrize("last", ["99", "x", "-1", "1.5"])
def test_an_unknown_resume_point_is_answered_clearly(services: Services, last: str) -> None:
    run_id = made_run(services, 5)
    with by_socket(services) as client:
        answer = client.get(f"/runs/{run_id}/thread", headers={"last-event-id": last})

    assert answer.status_code == 400
    assert answer.json()["error"] == "INVALID_INPUT"


def test_a_resume_point_that_is_given_twice_is_refused(services: Services) -> None:
    run_id = made_run(services, 5)
    with by_socket(services) as client:
        by_query = client.get(f"/runs/{run_id}/thread?after=3&after=1")
        header = [("last-event-id", "3"), ("last-event-id", "1")]
        by_header = client.get(f"/runs/{run_id}/thread", headers=header)

    for answer in (by_query, by_header):
        assert (answer.status_code, answer.json()["error"]) == (400, "INVALID_INPUT")


@pytest.mark.parametrize("what", ["thread", "verdict", "facts"])
def test_a_run_that_is_not_there_is_not_found(services: Services, what: str) -> None:
    with by_socket(services) as client:
        missing = client.get(f"/runs/nowhere/{what}")
        bad = client.get(f"/runs/%2e%2e/{what}")

    assert (missing.status_code, missing.json()["error"]) == (404, "RUN_NOT_FOUND")
    assert bad.status_code in {400, 404}


def test_rows_reach_a_viewer_while_the_run_goes_on(services: Services) -> None:
    run_id = made_run(services, 1, sealed=False)
    parser, seen = EventParser(), []
    with by_socket(services) as client, client.stream("GET", f"/runs/{run_id}/thread") as answer:
        for chunk in answer.iter_bytes():
            for event in parser.feed(chunk):
                if event.event == "thread.step":
                    seen.append(int(event.event_id or -1))
                elif event.event == "place" and len(seen) < 4:
                    services.journal.append(run_id, "tick_start", {})
                elif event.event == "place":
                    services.journal.finish_run(run_id)

    assert len(seen) >= 4
    assert seen == list(range(len(seen)))


def test_heartbeats_carry_no_resume_point(project: Any) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_GATEWAY_HEARTBEAT_SECONDS": "0.05"}
    parser = EventParser()
    with Services(project.sdd, environ) as services:
        run_id = made_run(services, 1, sealed=False)
        with (
            by_socket(services) as client,
            client.stream("GET", f"/runs/{run_id}/thread") as answer,
        ):
            events: list[ServerEvent] = []
            for chunk in answer.iter_bytes():
                events += parser.feed(chunk)
                if sum(event.event == "heartbeat" for event in events) >= 3:
                    break

    assert {event.event_id for event in events if event.event == "heartbeat"} == {None}


def test_more_viewers_than_there_is_room_for_are_asked_to_come_later(project: Any) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_GATEWAY_VIEWERS_MAX": "1"}
    with Services(project.sdd, environ) as services:
        run_id = made_run(services, 1, sealed=False)
        with by_socket(services) as client:
            with client.stream("GET", f"/runs/{run_id}/thread") as first:
                assert first.status_code == 200
                second = client.get(f"/runs/{run_id}/thread")
                assert (second.status_code, second.json()["error"]) == (503, "TOO_MANY_STREAMS")
                assert second.headers["retry-after"]
            give_up = time.monotonic() + 10
            while time.monotonic() < give_up:
                with client.stream("GET", f"/runs/{run_id}/thread") as third:
                    if third.status_code == 200:
                        return
    raise AssertionError("a viewer that left still takes up room")


def test_a_damaged_row_ends_the_thread_with_a_refusal(services: Services) -> None:
    run_id = made_run(services, 3, sealed=False)
    journal = services.places.sdd_dir / "runs" / run_id / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"index": 1,', b'"index": 7,'))
    with by_socket(services) as client:
        events = events_of(client, f"/runs/{run_id}/thread")

    assert events[-1].event == "refused"
    assert "position 1" in json.loads(events[-1].data)["detail"]


def test_the_verdict_is_that_of_a_verification(services: Services) -> None:
    run_id = made_run(services, 3)
    with by_socket(services) as client:
        verdict = client.get(f"/runs/{run_id}/verdict").json()

    assert (verdict["is_clean"], verdict["identity"], verdict["row_count"]) == (
        True,
        "verified",
        3,
    )


def approval(services: Services, run_id: str, **members: object) -> dict[str, object]:
    step = list(thread.project(services.journal.read_journal(run_id)))[1]
    return {"journal_index": 1, "event_hash": step.event_hash, "decision": "approve"} | members


def test_a_decision_on_a_row_becomes_an_audit_event_with_index_and_hash(
    project: Any, services: Services
) -> None:
    run_id = made_run(services, 3, sealed=False)
    key = Path(project.environ["HOME"], ".local/state/bernstein/audit.key")
    key.parent.mkdir(parents=True)
    key.touch(mode=0o600)
    key.write_text("ab" * 32)
    body = approval(services, run_id)
    with by_socket(services) as client:
        answer = client.post(f"/runs/{run_id}/approvals", json=body)

    assert answer.status_code == 201
    assert services.macs.verify_audit_log().event_count == 1
    (segment,) = (services.places.sdd_dir / "audit").glob("*.jsonl")
    event = json.loads(segment.read_bytes())
    assert (event["event_type"], event["hmac"]) == ("thread.approval", answer.json()["hmac"])
    for name, value in body.items():
        assert event["details"][name] == value
    assert event["actor"].startswith("local:")


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"event_hash": "0" * 64}, 409),
        ({"journal_index": 3}, 400),
        ({"journal_index": 2.5}, 400),
        ({"journal_index": -1}, 400),
        ({"journal_index": 2**63}, 400),
        ({"journal_index": 10**20}, 400),
        ({"decision": "maybe"}, 400),
        ({"more": 1}, 400),
    ],
)
def test_a_decision_that_is_about_no_such_row_is_refused(
    services: Services, members: dict[str, object], status: int
) -> None:
    run_id = made_run(services, 3, sealed=False)
    with by_socket(services) as client:
        body = approval(services, run_id, **members)
        answer = client.post(f"/runs/{run_id}/approvals", json=body)

    assert answer.status_code == status
    assert not list(services.places.sdd_dir.glob("audit/*.jsonl"))


def test_the_port_wants_the_key_and_the_page_needs_nothing_from_elsewhere(
    services: Services,
) -> None:
    run_id = made_run(services, 1)
    found = facts(services)
    with httpx2.Client(base_url=found["url"], timeout=20, follow_redirects=False) as client:
        assert client.get(f"/runs/{run_id}").status_code == 403
        assert client.get(f"/runs/{run_id}/thread").status_code == 403
        assert client.get(f"/runs/{run_id}", headers={"host": "evil.example"}).status_code == 421

        answer = client.get(f"/runs/{run_id}?token={found['token']}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run_id}")
        page = client.get(answer.headers["location"])
        assert page.status_code == 200
        for name in ("viewer.js", "viewer.css"):
            assert f"/static/{name}" in page.text
            assert client.get(f"/static/{name}").status_code == 200
        assert "http" not in page.text
        assert events_of(client, f"/runs/{run_id}/thread")[-1].event == "end"


def test_a_gateway_that_others_could_reach_in_the_clear_does_not_start(project: Any) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_GATEWAY_HOST": "0.0.0.0"}  # noqa: S104
    done = subprocess.run(
        [sys.executable, "-m", "bernstein_gateway", str(project.sdd)],
        stdin=subprocess.DEVNULL,
        env=environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 1
    assert "tls_certificate_file" in done.stderr
    assert "Traceback" not in done.stderr


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "gateway")])
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem, key_file = folder / "cert.pem", folder / "key.pem"
    pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pem, key_file


def test_with_a_certificate_the_port_speaks_tls_and_nothing_else(
    project: Any, tmp_path: Path
) -> None:
    pem, key_file = certificate(tmp_path)
    environ = {
        **project.environ,
        "BERNSTEIN_SVC_GATEWAY_TLS_CERTIFICATE_FILE": str(pem),
        "BERNSTEIN_SVC_GATEWAY_TLS_KEY_FILE": str(key_file),
    }
    with Services(project.sdd, environ) as services:
        run_id = made_run(services, 2)
        found = facts(services)
        trust = ssl.create_default_context(cafile=str(pem))
        headers = {"authorization": f"Bearer {found['token']}"}
        with httpx2.Client(base_url=found["url"], verify=trust, headers=headers) as client:
            events = events_of(client, f"/runs/{run_id}/thread")
        with by_socket(services) as local:
            assert events_of(local, f"/runs/{run_id}/thread") == events
        with pytest.raises(httpx2.TransportError):
            httpx2.get(found["url"].replace("https:", "http:"), headers=headers)

    assert found["url"].startswith("https://127.0.0.1:")
    assert events[-1].event == "end"


def test_a_gateway_ends_when_nobody_looks_and_leaves_no_key_behind(project: Any) -> None:
    environ = {**project.environ, "BERNSTEIN_SVC_SUPERVISOR_IDLE_SECONDS": "1"}
    with Services(project.sdd, environ) as services:
        facts(services)
        key_file = services.places.runtime_dir / "gateway.json"
        give_up = time.monotonic() + 15
        while key_file.exists() and time.monotonic() < give_up:
            time.sleep(0.05)

        assert not key_file.exists()


def test_a_gateway_ends_at_once_although_somebody_looks(services: Services) -> None:
    run_id = made_run(services, 1, sealed=False)
    with by_socket(services) as client, client.stream("GET", f"/runs/{run_id}/thread"):
        status = services.supervisor.ask({"do": "status"})
        assert status is not None
        pids = {each["service"]: each["pid"] for each in status["services"]}
        began = time.monotonic()
        assert services.supervisor.ask({"do": "stop"}) == {"ok": True}

    assert "gateway" in pids
    assert time.monotonic() - began < 7
