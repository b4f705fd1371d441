"""Who calls a service, for what, and about whose runs: all that a decision can rest on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import grpc

from bernstein_formats.errors import InvalidInput
from bernstein_formats.seal import check_origin
from bernstein_runtime.origin import ORIGIN_KEY

# What the signer behind a socket wants to be shown.
CALLER_KEY: Final = "bernstein-caller-bin"
# The SAN that names a caller; without it the first DNS name does.
NAME_PREFIX: Final = "bernstein://caller/"


@dataclass(frozen=True, slots=True)
class Caller:
    """One call's caller; requests say the rest, the run above all."""

    # By its certificate; empty for whoever came without one, on this host.
    name: str
    # Such as "bernstein_api.journal.v1.JournalService/AppendEvents".
    method: str
    # Empty: the service's own.
    origin: str


def caller_of(method: str, context: grpc.ServicerContext) -> Caller:
    """What is known of a call. Raises InvalidInput for an origin that is none."""
    return Caller(name_of(context), method.lstrip("/"), origin_of_call(context))


def name_of(context: grpc.ServicerContext) -> str:
    """By its certificate; empty for a caller without one."""
    return _name(context.auth_context())


def is_private(context: grpc.ServicerContext) -> bool:
    """Whether nobody between caller and service can read what they say."""
    facts: Mapping[str, Any] = context.auth_context()
    return context.peer().startswith("unix:") or b"ssl" in facts.get("transport_security_type", ())


def origin_of_call(context: grpc.ServicerContext) -> str:
    """Whose runs a call means; empty where it does not say. Raises InvalidInput."""
    said = [value for key, value in context.invocation_metadata() if key == ORIGIN_KEY]
    if not said:
        return ""
    try:
        origin = unquote(str(said[-1]), errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{ORIGIN_KEY} {said[-1]!r} is not percent-encoded UTF-8") from error
    check_origin(origin)
    return origin


def _name(facts: Mapping[str, Any]) -> str:
    """`facts` has lists of bytes, whatever the stubs say."""
    uris = [uri.decode("utf-8", "replace") for uri in facts.get("peer_uri", ())]
    names = [uri.removeprefix(NAME_PREFIX) for uri in uris if uri.startswith(NAME_PREFIX)]
    hosts = [host.decode("utf-8", "replace") for host in facts.get("peer_dns", ())]
    return next(iter([*names, *hosts]), "")
