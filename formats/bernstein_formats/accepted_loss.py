"""Losses that an operator accepted: they stay on record beside the logs that they are of."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from bernstein_formats.audit_log import AUDIT_FOLDER
from bernstein_formats.canonical import Profile, canonical_bytes
from bernstein_formats.errors import InvalidInput
from bernstein_formats.receipt_lines import read_object


@dataclass(frozen=True, slots=True)
class AcceptedLoss:
    """One loss; `name` is the log's in the state folder, `why` the operator's words."""

    at: str
    name: str
    lost: str
    why: str

    def as_line(self) -> bytes:
        return canonical_bytes(asdict(self), Profile.PY_JSON) + b"\n"

    @property
    def note(self) -> str:
        return f"a loss was accepted on {self.at}: {self.name}: {self.lost} ({self.why})"


def losses_of(record: bytes, names: Iterable[str]) -> Iterator[AcceptedLoss]:
    """The recorded losses of those logs, and of the audit log. InvalidInput for a spoilt line."""
    wanted = set(names)
    for line in record.splitlines():
        row = read_object(line)
        try:
            loss = AcceptedLoss(**{name: str(value) for name, value in row.items()})
        except TypeError:
            raise InvalidInput("the record of accepted losses was changed") from None
        if loss.name in wanted or loss.name.startswith(f"{AUDIT_FOLDER}/"):
            yield loss
