"""What we lack goes to an installed peer exactly as it was typed; what nobody knows does not."""

import os
from typing import NoReturn

import click

from bernstein_cli.peer import find_peer, hand_over, knows_peer
from bernstein_formats.errors import InvalidInput


def hand_over_line(ctx: click.Context, wanted: str) -> NoReturn:
    """Become the peer with the whole command line; `wanted` is what we lack of it, in words."""
    hand_over(ctx.find_root().obj, wanted=wanted, environ=os.environ)


def hand_over_unknown(error: click.UsageError) -> None:
    """Become the peer if the unknown word or option is one of its; else return."""
    ctx = error.ctx
    if ctx is None or ctx.resilient_parsing:
        return
    words = words_of(ctx)
    if isinstance(error, click.NoSuchOption):
        option = error.option_name
        if knows_peer(words, option):
            of = f" of {' '.join(words)}" if words else ""
            hand_over_line(ctx, f"the option {option}{of}")
    elif isinstance(error, click.NoSuchCommand):
        words.append(error.command_name)
        if knows_peer(words) or (len(words) == 1 and _peer_is_there()):
            hand_over_line(ctx, f"the command {' '.join(words)}")


def words_of(ctx: click.Context) -> list[str]:
    """The commands that led to a context, outermost first, without the program's name."""
    words: list[str] = []
    step: click.Context | None = ctx
    while step is not None and step.parent is not None:
        words.insert(0, step.info_name or "")
        step = step.parent
    return words


def _peer_is_there() -> bool:
    """Whether an unknown word may be a command that the user taught the peer."""
    try:
        return find_peer(os.environ) is not None
    except InvalidInput:
        return False
