"""The two ways out: data on stdout, everything else on stderr; nothing hostile reaches a terminal.

Text is printed line by line, and whatever a terminal would act on instead of showing it (control
characters, invisible ones, halves of surrogate pairs) as its escape, in JSON as well.
"""

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TextIO, TypeAlias

# Broader than a row's JSON: facts of a frozen dataclass are printed too.
Printed: TypeAlias = "str | int | float | bool | Sequence[Printed] | Mapping[str, Printed] | None"

GREEN: Final = "32"
RED: Final = "31"
YELLOW: Final = "33"

FAILED: Final = 1
INTERRUPTED: Final = 130
# What a shell makes of a program that SIGPIPE ended.
BROKEN_PIPE: Final = 141

_SPOOLED_BYTES_MAX: Final = 4 * 1024 * 1024


def with_outputs(program: str, answer: Callable[[], int]) -> int:
    """Give the exit code of a command, whatever becomes of its ways out meanwhile.

    Only stdout can fail it: without a reader it ends as if by SIGPIPE, and where nothing can be
    written with one line on stderr.
    """
    try:
        make_outputs_safe()
        code = answer()
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        _discard(sys.stdout)
        remark(f"{program}: cannot write the output: {error.strerror or error} [STORE_FAILED]")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def make_outputs_safe() -> None:
    """Have streams that are there, and take characters that their encoding lacks as escapes."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_closed_streams() -> None:
    """Nothing that is opened later may get the number of a stream: it would be written into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
            setattr(sys, name, nowhere)


def _discard(stream: TextIO) -> None:
    """Have the rest go nowhere; else it would be tried, and would fail, once more at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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
    beside(_coloured(printable(text), colour, sys.stderr) + "\n")


def beside(text: str) -> None:
    """Write to stderr as it is. A stderr that is broken decides no outcome: nobody listens."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def document(value: Printed) -> None:
    """The one JSON document of a command that was asked for JSON."""
    sys.stdout.write(json_text(value) + "\n")


def document_with_rows(
    first: Mapping[str, Printed], name: str, rows: Iterable[Printed], last: Mapping[str, Printed]
) -> None:
    """The same for a document with any number of rows in its member `name`.

    It is printed whole or, when `rows` raises, not at all: many rows wait in a file.
    """
    from tempfile import SpooledTemporaryFile  # noqa: PLC0415 - slow, and only for rows

    with SpooledTemporaryFile(_SPOOLED_BYTES_MAX) as spool:
        for part in _document_parts(first, name, rows, last):
            spool.write(part.encode())
        spool.seek(0)
        for line in spool:
            sys.stdout.write(line.decode())


def _document_parts(
    first: Mapping[str, Printed], name: str, rows: Iterable[Printed], last: Mapping[str, Printed]
) -> Iterator[str]:
    yield "{"
    for member, value in first.items():
        yield f"\n  {_indented(member, '')}: {_indented(value, '  ')},"
    yield f"\n  {_indented(name, '')}: ["
    end = "]"
    for number, row in enumerate(rows):
        end = "\n  ]"
        yield f"{',' if number else ''}\n    {_indented(row, '    ')}"
    yield end
    for member, value in last.items():
        yield f",\n  {_indented(member, '')}: {_indented(value, '  ')}"
    yield "\n}\n"


def _indented(value: Printed, margin: str) -> str:
    """JSON text whose lines but the first begin with a margin; texts hold no line feeds in JSON."""
    return json_text(value).replace("\n", f"\n{margin}")


def json_text(value: Printed) -> str:
    """JSON as the peer prints it; a number that JSON lacks becomes its name in quotes."""
    return _json_text(value, indent=2)


def json_line(value: Printed) -> str:
    """The same on one line."""
    return _json_text(value, indent=None)


def _json_text(value: Printed, *, indent: int | None) -> str:
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    try:
        text = _dumped(value, indent=indent, ascii_only=ascii_only)
    except ValueError:
        text = _dumped(_without_non_finite(value), indent=indent, ascii_only=ascii_only)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        character if character == "\n" or character.isprintable() else _escape(character)
        for character in text
    )


def _escape(character: str) -> str:
    """A character of a text as JSON spells it in ASCII."""
    return _dumped(character, indent=None, ascii_only=True)[1:-1]


def _dumped(value: Printed, *, indent: int | None, ascii_only: bool) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only, allow_nan=False)  # noqa: TID251 - a view, not evidence


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
