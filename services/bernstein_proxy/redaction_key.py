"""The key that secrets in requests are replaced with: private to the user who records.

It lies outside of every project, so that neither an agent nor a copy of a recording has it, and is
needed again to replay what was recorded with it.
"""

import os
import secrets
from typing import Final

from bernstein_formats.errors import KeyUnusable
from bernstein_runtime.disk import failed
from bernstein_runtime.places import Places
from bernstein_runtime.private import make_private
from bernstein_runtime.regular_file import open_descriptor, read_regular

KEY_BYTES: Final = 32


def redaction_key(places: Places) -> bytes:
    """The user's key; made when there is none. Raises KeyUnusable, StoreFailed."""
    path = places.redaction_key
    make_private(path.parent, places.secrets_root, "set XDG_STATE_HOME to another folder")
    try:
        if not path.exists():
            _make(places)
        text = read_regular(path, 2 * KEY_BYTES + 1)
        key = bytes.fromhex(text.decode("ascii").strip())
    except OSError as error:
        raise failed(path, error) from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyUnusable(
            f"{path} is no redaction key: {2 * KEY_BYTES} hexadecimal digits are expected;"
            " restore it, or remove it (what was recorded with secrets is not replayed then)",
            source=path,
        )
    return key


def _make(places: Places) -> None:
    """Whole or not at all: of two that make one at once the first wins."""
    path = places.redaction_key
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(KEY_BYTES).encode())
        os.fsync(descriptor)
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.close(descriptor)
        temporary.unlink()
