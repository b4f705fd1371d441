"""`bernstein-signer`: the resident signer of a project, a signer for one receipt, and key files.

    bernstein-signer SDD_DIR                     started by the supervisor, token on stdin
    bernstein-signer --once --socket PATH (--key-path FILE | --key-env NAME)
    bernstein-signer --new-key FILE | --public-key FILE_OR_URI
    bernstein-signer --extend-chain FILE --kid KID --at INSTANT [--successor PEM | --reason TEXT]
                     (--key-path FILE_OR_URI | --key-env NAME)
    bernstein-signer --ensure-audit-key --audit-key FILE

Every failure is one line and exit 1 (2 for wrong arguments).
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from bernstein_formats.canonical import spelled
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_runtime.logs import configure_logs
from bernstein_runtime.process import service_process
from bernstein_runtime.protection import lock_memory, protect
from bernstein_signer import once, resident
from bernstein_signer.chain import Extension, print_extended
from bernstein_signer.key import Key, create_key_pair, take_key_variable
from bernstein_signer.key_source import open_named
from bernstein_signer.mac import ensure_mac_key


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"bernstein-signer: {message}; see --help\n")


def main() -> None:
    """Do one of the things above."""
    options = _parser().parse_args()
    configure_logs("signer")
    lock_memory()
    if options.once:
        _serve_once(options)
        return
    try:
        protect()
        _do(options)
    except BernsteinError as error:
        sys.exit(f"bernstein-signer: {error.message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bernstein-signer", description="Seals runs and signs receipts.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("sdd_dir", nargs="?", type=Path, help="serve this project")
    what.add_argument("--once", action="store_true", help="sign one receipt and end")
    what.add_argument("--new-key", type=Path, metavar="FILE", help="make a key and its public half")
    what.add_argument("--public-key", metavar="FILE_OR_URI", help="print a key's public half")
    what.add_argument("--ensure-audit-key", action="store_true", help="make it, unless it is there")
    parser.add_argument("--audit-key", type=Path, metavar="FILE", help="the key of MACs")
    what.add_argument("--extend-chain", type=Path, metavar="FILE", help="print a longer key chain")
    parser.add_argument("--passphrase-file", default="", metavar="FILE", help="of an encrypted key")
    chain_only = parser.add_argument_group("with --extend-chain")
    chain_only.add_argument("--kid", default="", help="the key that follows, or is revoked")
    chain_only.add_argument("--at", default="", help="since when")
    chain_only.add_argument("--successor", type=Path, metavar="PEM", help="the key that follows")
    chain_only.add_argument("--reason", default="", help="why a key is revoked")
    once_only = parser.add_argument_group("with --once")
    once_only.add_argument("--socket", type=Path, help="where to listen")
    source = once_only.add_mutually_exclusive_group()
    source.add_argument("--key-path", metavar="FILE", help="the key's file")
    source.add_argument("--key-env", metavar="NAME", help="the variable that holds the key")
    once_only.add_argument("--key-id", default="", help="the key's name in the receipt")
    once_only.add_argument("--key-name", default="", help="that name where --key-id is empty")
    once_only.add_argument("--seal-key", type=Path, metavar="PEM", help="who must have sealed")
    # The command searches a long run for secrets first; the signer ends with it in any case.
    once_only.add_argument("--wait-seconds", type=float, default=3600.0, help="for the receipt")
    return parser


def _do(options: argparse.Namespace) -> None:
    if options.new_key is not None:
        sys.stdout.write(f"{create_key_pair(options.new_key)}\n")
    elif options.ensure_audit_key:
        sys.stdout.write(_ensured(options.audit_key))
    elif options.public_key is not None:
        sys.stdout.write(_named(options.public_key, options).public_pem().decode())
    elif options.extend_chain is not None:
        _extend_chain(options)
    else:
        service_process("signer", resident.run)


def _ensured(path: Path | None) -> str:
    if path is None:
        raise InvalidInput("--ensure-audit-key needs --audit-key FILE")
    return "made\n" if ensure_mac_key(path) else "found\n"


def _extend_chain(options: argparse.Namespace) -> None:
    if options.key_path is None and options.key_env is None:
        raise InvalidInput("--extend-chain needs one of --key-path and --key-env")
    key = (
        take_key_variable(os.environ, options.key_env)
        if options.key_path is None
        else _named(options.key_path, options)
    )
    extension = Extension(
        options.extend_chain, options.kid, options.at, options.successor, options.reason
    )
    print_extended(extension, key)


def _named(source: str, options: argparse.Namespace) -> Key:
    return open_named(source, os.environ, passphrase_file=options.passphrase_file)


def _serve_once(options: argparse.Namespace) -> None:
    """Failures go to the command that started this process, as one JSON line."""
    try:
        protect()
        once.run(_once_request(options), _token(), os.environ, _say)
    except BernsteinError as error:
        _say({"reason": error.reason, "error": error.message})
        sys.exit(1)


def _once_request(options: argparse.Namespace) -> once.Request:
    if options.socket is None or (options.key_path is None and options.key_env is None):
        raise InvalidInput("--once needs --socket and one of --key-path and --key-env")
    return once.Request(
        socket=options.socket,
        key_path=None if options.key_path is None else Path(options.key_path),
        key_variable=options.key_env or "",
        key_id=options.key_id or options.key_name,
        seal_key_path=options.seal_key,
        wait_seconds=options.wait_seconds,
        audit_key_path=options.audit_key,
    )


def _token() -> bytes:
    """What callers must present; without it anybody at the socket could have things signed."""
    token = sys.stdin.buffer.readline().strip()
    if not token:
        raise InvalidInput("no token on stdin; let the bernstein command start this signer")
    return token


def _say(members: dict[str, str | bool]) -> None:
    sys.stdout.write(spelled({**members}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
