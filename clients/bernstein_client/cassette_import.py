"""Cassettes that vcrpy wrote become cassettes of ours: what they hold is said once more, on this
machine, and recorded as anything is."""

import http.client
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import yaml

from bernstein_client.cassettes import cassette_path
from bernstein_client.recorded import Recorded, RecordMode
from bernstein_client.scripted_answers import ScriptedAnswers
from bernstein_client.vcr_cassette import Interaction, LeftOut, interactions
from bernstein_formats.errors import Conflict, InvalidInput
from bernstein_runtime.disk import failed

BYTES_MAX: Final = 256 * 1024 * 1024
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Written anew for the connection to the lane.
_LEFT_OUT: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "expect", "accept-encoding"}
)


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one file."""

    source: Path
    cassette: Path
    count: int
    left_out: tuple[LeftOut, ...]


def import_cassette(source: Path, folder: Path) -> Imported:
    """Make FOLDER/NAME of NAME.yaml or NAME.json. Raises InvalidInput, Conflict, StoreFailed."""
    path = cassette_path(folder, source.stem)
    if path.exists():
        raise Conflict(f"{path} is there already: move it away, or name another folder", path=path)
    try:
        found = list(interactions(_read(source)))
    except InvalidInput as error:
        raise InvalidInput(f"{source}: {error.message}", path=source) from error
    calls = [each for each in found if isinstance(each, Interaction)]
    if not calls:
        raise InvalidInput(f"{source} holds no call of a model; nothing is written", path=source)
    with (
        ScriptedAnswers() as provider,
        Recorded(path, RecordMode.ALL, provider.providers()) as cassette,
    ):
        for call in calls:
            provider.next_answer = call
            _ask(cassette.base_url, call)
    left_out = tuple(each for each in found if isinstance(each, LeftOut))
    return Imported(source, path, len(calls), left_out)


def _read(source: Path) -> object:
    try:
        if source.stat().st_size > BYTES_MAX:
            raise InvalidInput(f"it has more than {BYTES_MAX} bytes")
        # JSON is YAML, but for what vcrpy never writes.
        return yaml.load(source.read_bytes(), _Loader)  # noqa: S506 - a safe loader
    except OSError as error:
        raise failed(source, error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())[:200]
        raise InvalidInput(f"it is neither YAML nor JSON as vcrpy writes it: {text}") from error


def _ask(base_url: str, call: Interaction) -> None:
    """Ask what was asked then, of the lane."""
    request, base = call.request, urlsplit(base_url)
    query = f"?{urlencode(request.query)}" if request.query else ""
    with closing(http.client.HTTPConnection(base.netloc)) as connection:
        connection.putrequest(
            request.method,
            f"{base.path}{request.path}{query}",
            skip_accept_encoding=True,
        )
        for name, value in request.headers:
            if name.lower() not in _LEFT_OUT:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body)
        with connection.getresponse() as answer:
            answer.read()
