"""What every call that changes something is asked for."""

import re

from bernstein_formats.errors import InvalidInput
from bernstein_runtime import limits

REQUEST_ID = re.compile(rf"[!-~]{{1,{limits.REQUEST_ID_CHARACTERS_MAX}}}")


def check_request_id(request_id: str) -> None:
    """Raises InvalidInput."""
    if not REQUEST_ID.fullmatch(request_id):
        raise InvalidInput(
            "request_id must be 1 to 64 printable ASCII characters without blanks",
            field="request_id",
        )
