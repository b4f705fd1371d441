"""The resident signer's wiring: seal key and ledger, receipt key, server."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bernstein_formats.errors import InvalidInput, KeyUnusable, LedgerRefused
from bernstein_runtime.clock import SystemClock
from bernstein_runtime.config import SignerConfig, load_table
from bernstein_runtime.disk import check_room
from bernstein_runtime.places import make_secrets
from bernstein_runtime.process import Started
from bernstein_runtime.reread_file import RereadFile
from bernstein_runtime.server import Listener, serve
from bernstein_signer.key import Key, create_key, load_key_file, write_new
from bernstein_signer.key_source import open_key
from bernstein_signer.ledger import LEDGER_FILE, Ledger
from bernstein_signer.ledgers import Ledgers, OneLedger
from bernstein_signer.mac import mac_keys_from
from bernstein_signer.policy import Policy, parse_policy
from bernstein_signer.service import ResidentSigner, registration
from bernstein_store.durable import replace

SIGNER_FOLDER: Final = "signer"
SEAL_KEY_FILE: Final = "seal-key.pem"
SEAL_PUBLIC_KEY_FILE: Final = "seal-key.pub.pem"


def run(started: Started) -> None:
    """Serve the project until stopped or idle. Raises BernsteinError."""
    listener = _listener(started)
    places = started.places
    folder = make_secrets(places, SIGNER_FOLDER)
    config = load_table(SignerConfig, "signer", places.state_dir, started.environ)
    key = seal_key_from(config, folder, started.environ)
    publish(key, places.secrets_dir / SEAL_PUBLIC_KEY_FILE)
    clock = SystemClock()
    ledgers = (
        Ledgers(folder, key, clock) if listener.address else OneLedger(Ledger(folder, key, clock))
    )
    mac_keys = mac_keys_from(config.audit_key_file, started.environ)
    signer = ResidentSigner(
        ledgers.of, key, receipt_key_from(config, started.environ), mac_keys, policy_from(config)
    )
    serve(
        listener,
        registration(signer),
        check=lambda: check_room(folder),
        facts=lambda: {"ledger_entries": str(len(ledgers))},
        finish=ledgers.close,
    )


def _listener(started: Started) -> Listener:
    """Where the signer listens; never where just anybody could have things signed."""
    listener = started.listener(started.token)
    if listener.address and listener.tls is None:
        raise InvalidInput("[listen]: the signer listens with a certificate only; set [tls]")
    if not listener.address and not started.token:
        raise InvalidInput(
            "no token on stdin; let the supervisor start the signer, or set [listen] and [tls]"
        )
    return listener


def open_seal_key(folder: Path) -> Key:
    """The key of seals; it and an empty ledger are made together, once, and kept together.

    The ledger is made first: a ledger without entries may lack its key after a crash, nothing else.
    """
    key_path, ledger_path = folder / SEAL_KEY_FILE, folder / LEDGER_FILE
    if key_path.exists():
        if not ledger_path.exists():
            raise LedgerRefused(
                f"{ledger_path} is gone while its key is there: what was sealed is unknown; "
                "restore the newest copy of the folder",
                path=ledger_path,
            )
        return load_key_file(key_path)
    if not ledger_path.exists():
        write_new(ledger_path, b"")
    elif ledger_path.stat().st_size:
        raise LedgerRefused(
            f"{key_path} is gone while its ledger is there; restore the key from its copy",
            path=key_path,
        )
    return create_key(key_path)


def seal_key_from(config: SignerConfig, folder: Path, environ: Mapping[str, str]) -> Key:
    """The configured key of seals, else our own."""
    if not config.seal_key:
        return open_seal_key(folder)
    if (folder / SEAL_KEY_FILE).exists():
        raise LedgerRefused(
            f"{folder / SEAL_KEY_FILE} has sealed here, and [signer] seal_key names another key:"
            " take the setting away, or begin with a new state folder",
            path=folder,
        )
    key = open_key(config.seal_key, environ)
    if not (folder / LEDGER_FILE).exists():
        write_new(folder / LEDGER_FILE, b"")
    return key


def policy_from(config: SignerConfig) -> Callable[[], Policy | None]:
    """How to come by the newest policy. Raises InvalidInput, so that nothing is signed without the
    one that was meant."""
    if not config.policy_file:
        return lambda: None
    path = Path(config.policy_file)
    if not path.is_absolute():
        raise InvalidInput(f"[signer] policy_file: {config.policy_file!r} is not an absolute path")
    return RereadFile(path, "[signer] policy_file", parse_policy).now


def publish(key: Key, path: Path) -> None:
    """Keep the public half where clients look for it."""
    pem = key.public_pem()
    if not path.is_file() or path.read_bytes() != pem:
        replace(path, [pem])


def receipt_key_from(config: SignerConfig, environ: Mapping[str, str]) -> Callable[[], Key]:
    """How to come by the key of receipts; opened for each one, so that a bad key stops no seal."""

    def load() -> Key:
        source = config.receipt_key or config.receipt_key_file
        if not source:
            raise KeyUnusable(
                "no key for receipts: set receipt_key under [signer] in bernstein.toml, or "
                "name a key with --signing-key-path"
            )
        if config.receipt_key and config.receipt_key_file:
            raise InvalidInput("[signer]: set receipt_key or receipt_key_file, not both")
        if config.receipt_key_file and not Path(config.receipt_key_file).is_absolute():
            raise KeyUnusable(
                f"[signer] receipt_key_file: {config.receipt_key_file!r} is not an absolute path"
            )
        return open_key(
            source,
            environ,
            key_id=config.receipt_key_id,
            passphrase_file=config.receipt_passphrase_file,
        )

    return load
