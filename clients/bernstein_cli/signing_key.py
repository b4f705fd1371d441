"""Which key signs a receipt: a flag's, the environment's, or the resident signer's own.

Rules: docs/formats/run-receipt.md, sections 4.1 and 4.4. Only names are handled here; a key's bytes
are read by the signer process alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from bernstein_runtime.config import SignerConfig, load_table
from bernstein_runtime.places import RECEIPT_KEY_PATH, Places

PATH_VARIABLE = RECEIPT_KEY_PATH
NAME_VARIABLE = "BERNSTEIN_RUN_RECEIPT_SIGNING_ENV_VAR"
KEY_ID_VARIABLE = "BERNSTEIN_RUN_RECEIPT_SIGNING_KID"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key by its file or by the variable that holds it; neither: the resident signer's."""

    path: str = ""
    variable: str = ""
    key_id: str = ""

    @property
    def is_resident(self) -> bool:
        return not self.path and not self.variable

    def arguments(self) -> list[str]:
        """What the signer process is told."""
        source = ["--key-path", self.path] if self.path else ["--key-env", self.variable]
        return [*source, f"--key-id={self.key_id}"] if self.key_id else source


def choose_key(
    path: str | None, variable: str | None, key_id: str, environ: Mapping[str, str]
) -> SigningKey:
    """The key that the flags name, else the environment's. UsageError when both flags are given."""
    if path is not None and variable is not None:
        raise click.UsageError("--signing-key-path and --signing-env-var exclude each other")
    if path is not None or variable is not None:
        return SigningKey(path or "", variable or "", key_id)
    from_environment = key_id or environ.get(KEY_ID_VARIABLE, "").strip()
    if named := environ.get(PATH_VARIABLE):
        return SigningKey(path=named, key_id=from_environment)
    if named := environ.get(NAME_VARIABLE):
        return SigningKey(variable=named, key_id=from_environment)
    return SigningKey()


def require_resident_key(places: Places, environ: Mapping[str, str]) -> None:
    """UsageError unless the configuration gives the resident signer a key for receipts."""
    config = load_table(SignerConfig, "signer", places.state_dir, environ)
    if not config.receipt_key and not config.receipt_key_file:
        raise click.UsageError(
            "no key to sign with: give --signing-key-path FILE or --signing-env-var NAME, set"
            f" {PATH_VARIABLE} or {NAME_VARIABLE}, or configure [signer] receipt_key;"
            " `bernstein keys new FILE` makes one"
        )


def without_key(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that agents may see: not the variable that holds the key."""
    return {name: value for name, value in environ.items() if name != environ.get(NAME_VARIABLE)}
