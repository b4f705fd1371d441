"""Configuration of the services: `bernstein.toml`, overridden by `BERNSTEIN_SVC_*` variables.

One frozen table a process, every value with its unit in its name, unknown names refused. The file
is named by `BERNSTEIN_SVC_CONFIG`, else it is `svc/bernstein.toml` in the state folder; without a
file the defaults serve one user on one host. Secrets are paths, never values.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.disk import in_words

Table = TypeVar("Table")


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """`[supervisor]`: when idle services end, and how often a dying one is started again."""

    idle_seconds: float = 300.0
    restarts_max: int = 5


@dataclass(frozen=True, slots=True)
class RecorderConfig:
    """`[recorder]`: providers for callers that bring none of their own."""

    openai_base_url: str = ""
    openai_key_file: str = ""
    anthropic_base_url: str = ""
    anthropic_key_file: str = ""
    call_timeout_seconds: float = 120.0
    call_attempts: int = 3


@dataclass(frozen=True, slots=True)
class SignerConfig:
    """`[signer]`: the key of receipts, without which only seals are signed; the key of seals,
    without a name one of its own; the key of MACs, without a name the peer's own file.

    `receipt_key` and `seal_key` say where a key is, by path or URI: docs/signer.md.
    """

    receipt_key_file: str = ""
    receipt_key: str = ""
    receipt_key_id: str = ""
    receipt_passphrase_file: str = ""
    seal_key: str = ""
    audit_key_file: str = ""
    policy_file: str = ""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """`[gateway]`: where browsers reach it (port 0: any free one), and how many may look at once.

    Beyond this host it needs a certificate.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    viewers_max: int = 256
    heartbeat_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """`[store]`: without a URL evidence is kept in files; with one in PostgreSQL, under an origin
    that is else made of host and project folder."""

    url: str = ""
    password_file: str = ""
    origin: str = ""
    connections_max: int = 16
    statement_timeout_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """`[fleet]`: services of other hosts, and whose runs are meant; without an endpoint a project's
    services are this host's own."""

    endpoint: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """`[listen]`: where a service of a fleet is reached; without it a Unix socket."""

    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`[tls]`: who this process is to others, and whom it believes; all three or none."""

    certificate_file: str = ""
    key_file: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """`[metrics]`: where Prometheus and probes find a service over plain HTTP; nowhere without."""

    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class TracingConfig:
    """`[tracing]`: the OpenTelemetry collector that spans go to; nowhere without."""

    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class AccessConfig:
    """`[access]`: the role table, which says who may do what at a listener with TLS."""

    file: str = ""


TABLES = (
    "access",
    "fleet",
    "gateway",
    "listen",
    "metrics",
    "recorder",
    "signer",
    "store",
    "supervisor",
    "tls",
    "tracing",
)
# Variables with a shorter name than their table and setting give.
SHORT_NAMES = {"BERNSTEIN_SVC_FLEET_ENDPOINT": "BERNSTEIN_SVC_ENDPOINT"}
# For services of a folder that is thrown away: whatever else is configured, they are this host's.
NO_FLEET = {"BERNSTEIN_SVC_FLEET_ENDPOINT": ""}


def load_table(kind: type[Table], name: str, state_dir: Path, environ: Mapping[str, str]) -> Table:
    """The table `[name]` as `kind`. Raises InvalidInput that names file and member."""
    path = Path(environ.get("BERNSTEIN_SVC_CONFIG") or state_dir / "bernstein.toml")
    values = _table_in(path, name, required="BERNSTEIN_SVC_CONFIG" in environ)
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        raise InvalidInput(f"{path}: [{name}] has no setting {unknown[0]!r}", path=path)
    for setting in known:
        variable = f"BERNSTEIN_SVC_{name.upper()}_{setting.upper()}"
        for each in (SHORT_NAMES.get(variable, variable), variable):
            if each in environ:
                values[setting] = environ[each]
    defaults = kind()
    return kind(
        **{
            setting: _converted(value, getattr(defaults, setting), f"[{name}] {setting}")
            for setting, value in values.items()
        }
    )


def _table_in(path: Path, name: str, *, required: bool) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise InvalidInput(
                f"{path}: no such file; BERNSTEIN_SVC_CONFIG names it", path=path
            ) from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path}: {in_words(error)}", path=path) from error
    for table_name in document:
        if table_name not in TABLES:
            known = ", ".join(TABLES)
            raise InvalidInput(f"{path}: no table [{table_name}]; there are {known}", path=path)
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise InvalidInput(f"{path}: {name!r} must be a table", path=path)
    return dict(table)


def _converted(value: object, default: object, where: str) -> object:
    """`value` as the type of `default`; text from the environment is parsed."""
    try:
        if isinstance(default, str):
            return str(value)
        if isinstance(default, float) and not isinstance(value, bool):
            return float(value)  # type: ignore[arg-type]  # the except below is the check
        if isinstance(default, int) and not isinstance(value, bool):
            return int(value)  # type: ignore[call-overload]  # likewise
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: {value!r} is not a number") from error
    raise InvalidInput(f"{where}: {value!r} has the wrong type")
