"""This process's certificate, key and trusted CA: files that are read again when they change.

Certificates of a fleet live for a short time. Whoever renews them replaces the files; a new
connection then uses the new ones, and those that are open go on.
"""

import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import grpc
import structlog

from bernstein_formats.errors import BernsteinError, InvalidInput, KeyUnusable
from bernstein_runtime.config import TlsConfig, load_table
from bernstein_runtime.regular_file import open_regular

FILE_BYTES_MAX: Final = 1024 * 1024
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Identity:
    """What the files held at one time."""

    certificate: bytes
    key: bytes
    ca: bytes

    def for_channel(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)

    def for_listener(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.ca)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The three files of `[tls]`."""

    certificate: Path
    key: Path
    ca: Path

    def read(self) -> Identity:
        """What they hold now. Raises KeyUnusable, where it cannot be used together, too."""
        identity = Identity(
            _contents(self.certificate), _contents(self.key, is_private=True), _contents(self.ca)
        )
        _check_fits(self, identity)
        return identity

    def fault(self) -> str:
        """What others may have against the certificate; empty where it looks good from here."""
        from cryptography import x509  # noqa: PLC0415 - takes long to load

        now = datetime.now(UTC)  # noqa: TID251 - certificates are about the clock of this host
        certificate = x509.load_pem_x509_certificate(_contents(self.certificate))
        if now > certificate.not_valid_after_utc:
            return (
                f"it has expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC; renew it"
            )
        if now < certificate.not_valid_before_utc:
            return "it is not valid yet; compare the clocks of both hosts"
        authorities = x509.load_pem_x509_certificates(_contents(self.ca))
        if certificate.issuer not in [each.subject for each in authorities]:
            return f"it is of another CA than {self.ca}"
        return ""

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """What differs once a file is replaced."""
        found = []
        for path in (self.certificate, self.key, self.ca):
            try:
                facts = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        return tuple(found)


class Renewing:
    """The newest usable content of the files. Safe for any number of threads."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises KeyUnusable."""
        self._files = files
        self._lock = threading.Lock()
        self._state = files.state()
        self.identity = files.read()

    def renewed(self) -> Identity | None:
        """What is new since the last time; None where nothing is, or it cannot be used (yet)."""
        state = self._files.state()
        if state == self._state:
            return None
        with self._lock:
            if state == self._state:
                return None
            self._state = state
            try:
                self.identity = self._files.read()
            except BernsteinError as error:
                log.warning("certificate_not_renewed", reason=error.reason, error=error.message)
                return None
        log.info("certificate_renewed", path=str(self._files.certificate))
        return self.identity


def tls_files(state_dir: Path, environ: Mapping[str, str]) -> TlsFiles | None:
    """The files of `[tls]`; None where it is empty. Raises InvalidInput."""
    config = load_table(TlsConfig, "tls", state_dir, environ)
    named = {
        "certificate_file": config.certificate_file,
        "key_file": config.key_file,
        "ca_file": config.ca_file,
    }
    if not any(named.values()):
        return None
    for setting, text in named.items():
        if not text:
            raise InvalidInput(f"[tls] needs {setting}, too: a certificate, its key and the CA")
        if not Path(text).is_absolute():
            raise InvalidInput(f"[tls] {setting}: {text!r} is not an absolute path")
    return TlsFiles(Path(config.certificate_file), Path(config.key_file), Path(config.ca_file))


def expires_at(files: TlsFiles) -> float:
    """Unix time at which the certificate ends. Raises KeyUnusable."""
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - takes long to load

    try:
        (certificate, *_) = load_pem_x509_certificates(_contents(files.certificate))
    except ValueError as error:
        raise KeyUnusable(
            f"{files.certificate} holds no PEM certificate", path=files.certificate
        ) from error
    return certificate.not_valid_after_utc.timestamp()


def listener_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """For a port where every caller shows a certificate. Raises KeyUnusable."""
    renewing = Renewing(files)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        renewed = renewing.renewed()
        return None if renewed is None else renewed.for_listener()

    return grpc.dynamic_ssl_server_credentials(
        renewing.identity.for_listener(),
        fetch,  # type: ignore[arg-type]  # None is "as before", which the stubs do not know
        require_client_authentication=True,
    )


def _contents(path: Path, *, is_private: bool = False) -> bytes:
    try:
        with open_regular(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if is_private and mode & 0o077:
                raise KeyUnusable(
                    f"{path} has mode {mode:04o}, so that others may have the key; run"
                    f" `chmod 600 {path}`, and make another one if they do",
                    path=path,
                )
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise KeyUnusable(f"{path}: {error.strerror}; see [tls]", path=path) from error


def _check_fits(files: TlsFiles, identity: Identity) -> None:
    # Takes long to load, and most processes have no certificate.
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - see above
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - see above
        load_pem_private_key,
    )
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - see above

    found = {}
    for path, pem in ((files.certificate, identity.certificate), (files.ca, identity.ca)):
        try:
            found[path] = load_pem_x509_certificates(pem)
        except ValueError as error:
            raise KeyUnusable(f"{path} holds no PEM certificate", path=path) from error
    try:
        key = load_pem_private_key(identity.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(
            f"{files.key} holds no PEM private key without a passphrase", path=files.key
        ) from error
    if key.public_key() != found[files.certificate][0].public_key():
        raise KeyUnusable(
            f"{files.key} is not the key of {files.certificate}; name files that belong together",
            path=files.key,
        )
