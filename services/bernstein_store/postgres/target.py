"""Which database, as which user: a URL without a password, and a file that has it."""

from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import psycopg
from psycopg import conninfo

from bernstein_formats.errors import InvalidInput
from bernstein_runtime.config import StoreConfig
from bernstein_runtime.regular_file import read_regular

_PASSWORD_BYTES_MAX: Final = 4096
_DEFAULTS: Final = {
    # Of several hosts the one that takes writes: after a failover, another.
    "target_session_attrs": "read-write",
    # A host that froze takes connections and says nothing, and the next one is tried after so long.
    "connect_timeout": "2",
    "keepalives_idle": "10",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
_SCHEMES: Final = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Target:
    """Checked; `place` is what people are told of it."""

    parameters: dict[str, str]
    password_file: Path | None
    place: str

    @property
    def user(self) -> str:
        return self.parameters.get("user", "")

    def as_user(self, user: str, password_file: Path | None) -> "Target":
        """The same database as another user."""
        return replace(
            self, parameters={**self.parameters, "user": user}, password_file=password_file
        )

    def arguments(self) -> dict[str, str]:
        """For a connection. The password is read each time, so that it may change."""
        secret = {} if self.password_file is None else {"password": _password(self.password_file)}
        return self.parameters | secret


def target_of(config: StoreConfig) -> Target:
    """Raises InvalidInput for what is no URL, has a password in it, or trusts the network."""
    if not config.url.startswith(_SCHEMES):
        raise InvalidInput(
            "[store] url does not begin with postgresql://; leave it out to keep evidence in files"
        )
    try:
        found = conninfo.conninfo_to_dict(config.url)
    except psycopg.ProgrammingError as error:
        # Its text may repeat the URL.
        raise InvalidInput("[store] url: PostgreSQL's library does not understand it") from error
    if "password" in found:
        raise InvalidInput(
            "[store] url holds a password: put it into a file of its own and name that in"
            " [store] password_file"
        )
    parameters = _DEFAULTS | {name: str(value) for name, value in found.items()}
    if not parameters.get("user"):
        raise InvalidInput("[store] url names no user: postgresql://USER@HOST/DATABASE")
    _check_network(parameters)
    password_file = Path(config.password_file) if config.password_file else None
    if password_file is not None and not password_file.is_absolute():
        raise InvalidInput(f"[store] password_file: {password_file} is not an absolute path")
    host = parameters.get("host", "localhost")
    place = f"postgresql://{host}/{parameters.get('dbname', parameters['user'])}"
    return Target(parameters, password_file, place)


def _check_network(parameters: dict[str, str]) -> None:
    """Whoever is between us and another host must neither read nor answer."""
    hosts = f"{parameters.get('host', '')},{parameters.get('hostaddr', '')}".split(",")
    far = [host for host in hosts if not _is_here(host)]
    if far and parameters.get("sslmode") != "verify-full":
        raise InvalidInput(
            f"[store] url: {far[0]} is another host: add sslmode=verify-full and sslrootcert=FILE,"
            " so that nobody between can read or answer"
        )


def _is_here(host: str) -> bool:
    if host in {"", "localhost"} or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _password(path: Path) -> str:
    try:
        text = read_regular(path).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"[store] password_file: {path} cannot be read", path=path) from error
    if not text or len(text) > _PASSWORD_BYTES_MAX:
        raise InvalidInput(f"[store] password_file: {path} holds no password", path=path)
    return text
