"""A small private CA for the TLS of one fleet: a folder with its certificate, its key, and what it
issued.

A fleet that has a CA already needs none of this. The key signs certificates and no evidence, and
whoever may run this command may read its file in any case: it needs no process of its own.
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bernstein_cli.whole_file import write_new_file
from bernstein_formats.errors import Conflict, InvalidInput, KeyUnusable, StoreFailed
from bernstein_runtime.caller import NAME_PREFIX
from bernstein_runtime.regular_file import read_named

CA_DAYS: Final = 1825
DAYS: Final = 30
DAYS_MAX: Final = 825
# Clocks of a fleet may be so far apart.
_BEFORE: Final = timedelta(minutes=5)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9-]+)*")
_CERTIFICATE: Final = "ca.pem"
_KEY: Final = "ca-key.pem"
_ISSUED: Final = "issued"


class Use(StrEnum):
    """What a certificate is for."""

    CALLER = "caller"
    # It calls, too.
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What one says."""

    path: Path
    name: str
    use: Use
    hosts: tuple[str, ...]
    serial: str
    begins: datetime
    ends: datetime

    def is_valid(self, now: datetime) -> bool:
        return self.begins <= now < self.ends


class Authority:
    """The CA in a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreFailed, KeyUnusable."""
        self._folder = folder
        self._certificate = _read(folder / _CERTIFICATE)
        self._key = _read_key(folder / _KEY)
        if self._key.public_key() != self._certificate.public_key():
            raise KeyUnusable(
                f"{folder / _KEY} is not the key of {folder / _CERTIFICATE}; take both from a copy"
            )

    def issue(
        self, name: str, use: Use, hosts: Sequence[str], days: int, now: datetime
    ) -> tuple[Certificate, Path]:
        """A new certificate and the file of its key. Raises InvalidInput, StoreFailed."""
        ends = now + timedelta(days=days)
        if ends > self._certificate.not_valid_after_utc:
            raise InvalidInput(
                f"the CA itself ends on {self._certificate.not_valid_after_utc:%Y-%m-%d}, sooner;"
                " take fewer days, or make a new CA in another folder"
            )
        key = generate_private_key(SECP256R1())
        built = _leaf(name, use, hosts).issuer_name(self._certificate.subject)
        built = built.public_key(key.public_key()).not_valid_before(now - _BEFORE)
        built = built.not_valid_after(ends)
        built = built.add_extension(_authority_key_id(self._certificate), critical=False)
        made = built.sign(self._key, SHA256())
        stem = self._folder / _ISSUED / f"{name}-{now:%Y%m%d}-{made.serial_number:032x}"[:-16]
        path, key_path = stem.with_name(f"{stem.name}.pem"), stem.with_name(f"{stem.name}-key.pem")
        write_new_file(key_path, _key_bytes(key), mode=0o600)
        write_new_file(path, made.public_bytes(Encoding.PEM))
        return described(path), key_path


def make_authority(folder: Path, name: str, now: datetime) -> Path:
    """Make a CA in a folder that is not there yet; gives its certificate's path.

    Raises Conflict, InvalidInput, StoreFailed.
    """
    check_name(name)
    try:
        folder.mkdir(mode=0o700, parents=True)
        (folder / _ISSUED).mkdir(mode=0o700)
    except FileExistsError as error:
        raise Conflict(f"{folder} is there already and stays; name another folder") from error
    except OSError as error:
        raise StoreFailed(f"cannot make {folder}: {error.strerror}", path=folder) from error
    key = generate_private_key(SECP256R1())
    built = _begun(name).issuer_name(_common_name(name)).public_key(key.public_key())
    built = built.not_valid_before(now - _BEFORE).not_valid_after(now + timedelta(days=CA_DAYS))
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(_key_usage(signs_certificates=True), critical=True)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = built.add_extension(key_id, critical=False).sign(key, SHA256())
    write_new_file(folder / _KEY, _key_bytes(key), mode=0o600)
    write_new_file(folder / _CERTIFICATE, made.public_bytes(Encoding.PEM))
    return folder / _CERTIFICATE


def issued(folder: Path) -> Iterator[Certificate]:
    """All that a CA issued, oldest first among those of one name."""
    _read(folder / _CERTIFICATE)
    for path in sorted((folder / _ISSUED).glob("*.pem")):
        if not path.name.endswith("-key.pem"):
            yield described(path)


def described(path: Path) -> Certificate:
    """What the certificate in a file says. Raises StoreFailed, KeyUnusable."""
    found = _read(path)
    names, hosts = list[str](), list[str]()
    for each in _alternative_names(found):
        if isinstance(each, x509.UniformResourceIdentifier):
            names += [each.value.removeprefix(NAME_PREFIX)] * each.value.startswith(NAME_PREFIX)
        elif isinstance(each, x509.DNSName | x509.IPAddress):
            hosts.append(str(each.value))
    return Certificate(
        path=path,
        name=next(iter([*names, *hosts]), ""),
        use=Use.SERVICE if hosts else Use.CALLER,
        hosts=tuple(hosts),
        serial=f"{found.serial_number:x}",
        begins=found.not_valid_before_utc,
        ends=found.not_valid_after_utc,
    )


def check_name(name: str) -> None:
    """Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be a caller's name: 1 to 64 characters of [A-Za-z0-9._-], the first"
            " a letter or digit",
            name=name,
        )


def _leaf(name: str, use: Use, hosts: Sequence[str]) -> x509.CertificateBuilder:
    check_name(name)
    if (use is Use.SERVICE) != bool(hosts):
        raise InvalidInput(
            "a service needs each name or address that it is dialled by: --host; a caller has none"
        )
    names = [x509.UniformResourceIdentifier(f"{NAME_PREFIX}{name}"), *map(_host, hosts)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    usages += [ExtendedKeyUsageOID.SERVER_AUTH] if use is Use.SERVICE else []
    built = _begun(name).add_extension(x509.SubjectAlternativeName(names), critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_key_usage(signs_certificates=False), critical=True)
    return built.add_extension(x509.ExtendedKeyUsage(usages), critical=False)


def _begun(name: str) -> x509.CertificateBuilder:
    built = x509.CertificateBuilder().subject_name(_common_name(name))
    return built.serial_number(secrets.randbits(127) | 1 << 126)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        if not _HOST.fullmatch(text):
            raise InvalidInput(
                f"--host {text!r} is neither a DNS name nor an address", host=text
            ) from None
        return x509.DNSName(text.lower())


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_id(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    key = ca.public_key()
    assert isinstance(key, EllipticCurvePublicKey)
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _key_bytes(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _alternative_names(certificate: x509.Certificate) -> Sequence[x509.GeneralName]:
    try:
        return list(
            certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        )
    except (x509.ExtensionNotFound, ValueError):
        return ()


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_named(path))
    except ValueError as error:
        raise KeyUnusable(f"{path} holds no PEM certificate", path=path) from error


def _read_key(path: Path) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(read_named(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{path} holds no PEM private key", path=path) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise KeyUnusable(f"{path} holds no ECDSA key, which a CA made here has", path=path)
    return key
