"""An exchange as it is kept: its request without secrets, and what was said to it."""

from dataclasses import dataclass, replace

from bernstein_client.exchanges import Recorded
from bernstein_formats.http_answer_text import readable
from bernstein_formats.http_exchange import Answer, envelope_of, exchange_of
from bernstein_formats.http_key import HttpRequest, Pairs, keyed
from bernstein_formats.http_mutations import mutation_events
from bernstein_formats.http_secrets import secrets_in, without_secrets
from bernstein_proxy.lanes import Lane


@dataclass(frozen=True, slots=True)
class Said:
    """An answer with its bytes, and what went with them."""

    answer: Answer
    body: bytes
    headers: Pairs = ()
    # Size in bytes and milliseconds since the request for each piece.
    chunks: tuple[tuple[int, float], ...] = ()
    encoding: str = ""


def recorded(lane: Lane, seq: int, whole: HttpRequest, said: Said) -> Recorded:
    """Request `seq` of a lane; takes a while, so that it is done beside the event loop."""
    redactor = lane.log.redactor
    asked, text = redactor.redacted(whole), readable(said.body, said.encoding)
    shown = replace(asked, headers=without_secrets(asked.headers))
    envelope = envelope_of(shown, without_secrets(said.headers), said.chunks)
    name = lane.wanted.lane
    exchange = exchange_of(name, seq, asked, keyed(asked), answer=said.answer, envelope=envelope)
    exchange = replace(
        exchange,
        redaction_key=redactor.key_id if asked.redacted else "",
        quarantined=secrets_in(text),
        mutations=tuple(mutation_events(text, name, seq)),
    )
    return Recorded(exchange, envelope.data(), asked.body, said.body)
