"""Secrets in what is said, known by their shape: replaced in requests, found in answers.

In a request each becomes `<secret:KIND:HMAC12>`, with a key that only the recording's owner has, so
that equal ones stay equal and nobody can test guesses. An answer is never rewritten: it would no
longer be what the agent saw. Rules: docs/formats/llm-http.md, section 7.
"""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from bernstein_formats.http_answer_text import joined_texts
from bernstein_formats.http_key import HttpRequest, Pairs
from bernstein_formats.http_rule_file import RULE_SET, SecretShape

# In front of a kind where rules are listed.
REDACT: Final = "redact."
_TAG_CHARACTERS: Final = 12
_KEY_ID_CHARACTERS: Final = 16


class Redactor:
    """Replaces secrets in requests. The key is never shown."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        # Tells two keys apart and says nothing about either.
        self.key_id = self._mac(b"key-id")[:_KEY_ID_CHARACTERS]

    def redacted(self, request: HttpRequest) -> HttpRequest:
        """A request without the secrets in body and address, and how many of each kind it had."""
        counts = Counter[str]()
        return replace(
            request,
            body=self._replaced(request.body, counts),
            path=self._in_text(request.path, counts),
            query=tuple((name, self._in_text(text, counts)) for name, text in request.query),
            redacted=counts,
        )

    def redacted_text(self, text: str) -> str:
        """A text for people without the secrets."""
        return self._in_text(text, Counter())

    def _in_text(self, text: str, counts: Counter[str]) -> str:
        said = text.encode("utf-8", "surrogatepass")
        return self._replaced(said, counts).decode("utf-8", "surrogatepass")

    def _replaced(self, said: bytes, counts: Counter[str]) -> bytes:
        for shape in _near(said):
            said, count = shape.pattern.subn(partial(self._token, shape.kind.encode()), said)
            if count:
                counts[f"{REDACT}{shape.kind}"] += count
        return said

    def _token(self, kind: bytes, found: re.Match[bytes]) -> bytes:
        tag = self._mac(kind + b"\0" + found[1])[:_TAG_CHARACTERS]
        start, end = found.start(1) - found.start(), found.end(1) - found.start()
        return found[0][:start] + b"<secret:%s:%s>" % (kind, tag.encode()) + found[0][end:]

    def _mac(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()


def secrets_in(text: bytes) -> tuple[str, ...]:
    """The kinds of secrets that an answer holds, also where its stream says one in pieces."""
    joined = "\n".join(joined_texts(text)).encode("utf-8", "replace")
    return tuple(sorted({*_kinds(text), *_kinds(joined)}))


def without_secrets(headers: Pairs) -> Pairs:
    """Those headers whose values look like no secret, whatever their names are."""
    if not _has_secret("\n".join(value for _, value in headers)):
        return headers
    return tuple((name, value) for name, value in headers if not _has_secret(value))


def _has_secret(text: str) -> bool:
    return any(_kinds(text.encode("utf-8", "surrogatepass")))


def _kinds(text: bytes) -> Iterator[str]:
    return (shape.kind for shape in _near(text) if shape.pattern.search(text))


def _near(text: bytes) -> Iterator[SecretShape]:
    """The shapes that may be there, told by texts that each of them has: quick for most bodies."""
    return (s for s in RULE_SET.secrets if any(near in text for near in s.near))
