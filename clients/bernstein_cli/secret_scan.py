"""Looks for secrets in what would be given away: rows of a receipt, bodies of a recording.

A receipt is made to be given away, and cannot be taken back. The scanner is Kingfisher, a program
that the extra `secrets` installs: it runs offline, and its rules come with it. What it found is
told by line and rule, never shown.
"""

import importlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bernstein_cli.output import remark
from bernstein_formats.errors import Conflict, StoreFailed

_OPTIONS: Final = ("--no-validate", "--no-update-check", "--redact", "--format", "jsonl")
# What it exits with: nothing found, something found.
_CLEAN_EXIT: Final = 0
_FOUND_EXIT: Final = 200
_SHOWN_MAX: Final = 10
_QUIET_SECONDS: Final = 2.0
# It talks to nobody; these are for the cache of its compiled rules.
_ENVIRONMENT: Final = ("HOME", "KF_RULE_CACHE_DIR", "PATH", "TMPDIR", "XDG_CACHE_HOME")


@dataclass(frozen=True, slots=True)
class Secret:
    """Where something that looks like a secret stands: a physical line, from 1; and which rule."""

    line: int
    rule: str
    # The name that its file was given.
    name: str = ""


def refuse_secrets(what: str, rows: Iterable[bytes]) -> None:
    """Raise Conflict if rows that are given away hold what looks like a secret."""
    scanner = find_scanner()
    if scanner is None:
        remark(
            "the rows were not searched for secrets: install the extra `secrets`, or say"
            " --allow-secrets to hear no more of it"
        )
        return
    found = list(scan(scanner, rows))
    if found:
        places = ", ".join(f"line {each.line} ({each.rule})" for each in found[:_SHOWN_MAX])
        more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
        raise Conflict(
            f"{what} seems to hold secrets, which a receipt would give away: {places}{more};"
            " look at these lines, take out what is real, and say --allow-secrets if all the same",
            line=found[0].line,
        )


def find_scanner() -> Path | None:
    """The program, where the extra is installed for this kind of machine."""
    try:
        return Path(importlib.import_module("kingfisher").get_binary_path())
    except (ImportError, FileNotFoundError):
        return None


def scan(scanner: Path, rows: Iterable[bytes]) -> Iterator[Secret]:
    """What the scanner finds in rows, given as chunks of any size. Raises StoreFailed."""
    return scan_files(scanner, {"journal.jsonl": rows})


def scan_files(scanner: Path, contents: Mapping[str, Iterable[bytes]]) -> Iterator[Secret]:
    """What the scanner finds in files of these names. Raises StoreFailed."""
    with tempfile.TemporaryDirectory(prefix="bernstein-scan-") as folder:
        files = [Path(folder) / name for name in contents]
        for file, chunks in zip(files, contents.values(), strict=True):
            with file.open("wb") as copy:
                copy.writelines(chunks)
        with subprocess.Popen(  # noqa: S603 - the program of an installed package, no shell
            [scanner, "scan", *_OPTIONS, *files],
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            answer, complaint = _answer(process)
    if process.returncode not in {_CLEAN_EXIT, _FOUND_EXIT}:
        lines = complaint.decode(errors="replace").strip().splitlines()
        raise StoreFailed(
            f"the search for secrets failed (exit {process.returncode}):"
            f" {lines[-1] if lines else 'no word'}; sign without it by --allow-secrets"
        )
    yield from _secrets(answer)


def _answer(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """What it wrote; the user hears why it takes long, as it does once."""
    try:
        return process.communicate(timeout=_QUIET_SECONDS)
    except subprocess.TimeoutExpired:
        remark("searching the rows for secrets; the first search prepares its rules")
        return process.communicate()


def _secrets(answer: bytes) -> Iterator[Secret]:
    for line in answer.splitlines():
        item = json.loads(line)
        if "finding" in item and "rule" in item:
            finding = item["finding"]
            name = Path(finding.get("path", "")).name
            yield Secret(int(finding["line"]), str(item["rule"]["name"]), name)
