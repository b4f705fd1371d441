"""Patterns of names in configuration: a text, or the beginning of one and then `*`."""

from typing import Final

from bernstein_runtime.toml_lines import TomlLines

ANY: Final = "*"


def fits(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern means."""
    if pattern.endswith(ANY):
        return text.startswith(pattern[:-1])
    return text == pattern


def is_pattern(value: object) -> bool:
    """Whether a value of a file is a pattern."""
    if not isinstance(value, str) or not value or not value.isprintable():
        return False
    return ANY not in value[:-1]


def no_pattern(name: str, value: object) -> str:
    """What is wrong with a value that is none."""
    return f"{name}: {value!r} is no text that can be printed, with * at its end at most"


def patterns(name: str, value: object, table: int, lines: TomlLines) -> tuple[str, ...]:
    """A list of them. Raises InvalidInput."""
    if not isinstance(value, list) or not value:
        raise lines.wrong(name, f'{name} is a list such as ["*"], not empty', table)
    for each in value:
        if not is_pattern(each):
            raise lines.wrong(name, no_pattern(name, each), table)
    return tuple(value)
