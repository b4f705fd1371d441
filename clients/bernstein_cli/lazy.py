"""A click group whose commands are imported when they are used: the command must start fast."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

# Name of a command → "module:attribute", and its line in the group's help.
Commands = Mapping[str, tuple[str, str]]


class LazyGroup(click.Group):
    """Lists its commands without loading them. The peer's short words for ours are taken too."""

    def __init__(self, *arguments: Any, lazy: Commands, **members: Any) -> None:
        super().__init__(*arguments, **members)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._lazy.get(cmd_name) or self._lazy.get(self._long(ctx, cmd_name))
        if found is None:
            return None
        module, _, attribute = found[0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name a command by its own name, also where a short word was typed."""
        name, command, rest = super().resolve_command(ctx, args)
        return command.name if command else name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])

    @staticmethod
    def _long(ctx: click.Context, word: str) -> str:
        from bernstein_cli.peer import peer_alias  # noqa: PLC0415 - slow, and rarely used

        return (peer_alias(word) or word) if ctx.parent is None else word
