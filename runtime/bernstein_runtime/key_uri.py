"""Tells the URI of a key (docs/signer.md) from the path of a file."""

import os
import re
from typing import Final

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:")


def is_key_uri(text: str) -> bool:
    """A file that is there is a file, whatever its name."""
    return _SCHEME.match(text) is not None and not os.path.lexists(text)
