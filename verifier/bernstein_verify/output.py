"""The two ways out: data on stdout, everything else on stderr; nothing hostile reaches a terminal.

Text is printed line by line, and whatever a terminal would act on instead of showing it (control
characters, invisible ones, halves of surrogate pairs) as its escape.
"""

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TextIO, TypeAlias

# Broader than a row's JSON: facts of a frozen dataclass are printed too.
Printed: TypeAlias = "str | int | float | bool | Sequence[Printed] | Mapping[str, Printed] | None"

GREEN: Final = "32"
RED: Final = "31"
YELLOW: Final = "33"


def make_outputs_safe() -> None:
    """Have characters that a stream's encoding lacks printed as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """The text as one line that shows everything it holds."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def say(text: str = "", colour: str = "") -> None:
    """One line of data."""
    sys.stdout.write(_coloured(printable(text), colour, sys.stdout) + "\n")


def remark(text: str, colour: str = "") -> None:
    """One line beside the data: what went wrong, what to do next."""
    sys.stdout.flush()
    sys.stderr.write(_coloured(printable(text), colour, sys.stderr) + "\n")


def document(value: Printed) -> None:
    """The one JSON document of a command that was asked for JSON."""
    sys.stdout.write(json_text(value) + "\n")


def document_with_rows(
    first: Mapping[str, Printed], name: str, rows: Iterable[Printed], last: Mapping[str, Printed]
) -> None:
    """The same for a document with any number of rows in its member `name`; none is kept."""
    write = sys.stdout.write
    write("{")
    for member, value in first.items():
        write(f"\n  {_indented(member, '')}: {_indented(value, '  ')},")
    write(f"\n  {_indented(name, '')}: [")
    end = "]"
    for number, row in enumerate(rows):
        end = "\n  ]"
        write(f"{',' if number else ''}\n    {_indented(row, '    ')}")
    write(end)
    for member, value in last.items():
        write(f",\n  {_indented(member, '')}: {_indented(value, '  ')}")
    write("\n}\n")


def _indented(value: Printed, margin: str) -> str:
    """JSON text whose lines but the first begin with a margin; texts hold no line feeds in JSON."""
    return json_text(value).replace("\n", f"\n{margin}")


def json_text(value: Printed) -> str:
    """JSON as the peer prints it; a number that JSON lacks becomes its name in quotes."""
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = _dumped(value, ascii_only=ascii_only)
    except ValueError:
        text = _dumped(_without_non_finite(value), ascii_only=ascii_only)
    # Half of a surrogate pair has no UTF-8; its escape is the same text in JSON.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _dumped(value: Printed, *, ascii_only: bool) -> str:
    return json.dumps(value, indent=2, ensure_ascii=ascii_only, allow_nan=False)  # noqa: TID251 - a view, not evidence


def _without_non_finite(value: Printed) -> Printed:
    if isinstance(value, Mapping):
        return {name: _without_non_finite(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_non_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose user wants colours (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _coloured(text: str, colour: str, stream: TextIO) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and is_coloured(stream) else text
