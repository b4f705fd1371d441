"""A model's answer as the files it stands for."""

from typing import Final

from bernstein_formats.errors import InvalidInput

BLOCK_MARK: Final = "=== "


def files_of(answer: str, paths: tuple[str, ...]) -> dict[str, bytes]:
    """Return the content of each listed file: the whole answer for one, a block each for several.

    A block begins with a line `=== path`, and ends where the next listed file's begins.
    InvalidInput names what is missing, in words stable enough to be recorded.
    """
    if not paths:
        return {}
    if len(paths) == 1:
        return {paths[0]: _with_final_newline(answer)}
    blocks = _blocks(answer, paths)
    missing = [path for path in paths if path not in blocks]
    if missing:
        raise InvalidInput(f"the answer has no block for {', '.join(missing)}")
    return {path: _with_final_newline(blocks[path]) for path in paths}


def check_unicode(answer: str) -> None:
    """Refuse half surrogate pairs, which no file and no later prompt can hold."""
    try:
        answer.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the answer is not valid Unicode") from None


def _blocks(answer: str, paths: tuple[str, ...]) -> dict[str, str]:
    """Collect the lines below each mark; of two blocks for one file the later one counts."""
    marks = {BLOCK_MARK + path: path for path in paths}
    blocks: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in answer.split("\n"):
        path = marks.get(line.rstrip())
        if path is not None:
            lines = blocks[path] = []
        elif lines is not None:
            lines.append(line)
    return {path: "\n".join(lines) for path, lines in blocks.items()}


def _with_final_newline(text: str) -> bytes:
    return (text if not text or text.endswith("\n") else f"{text}\n").encode()
