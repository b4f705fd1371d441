"""`bernstein thread`: does what viewers see of a run agree with its journal?"""

import click

from bernstein_cli.lazy import LazyGroup

COMMANDS = {
    "verify": (
        "bernstein_cli.commands.thread_verify:thread_verify",
        "Compare a run's live thread with its journal.",
    ),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def thread() -> None:
    """The live thread of a run: one event a row, as viewers get it.

    `bernstein follow RUN` shows it here, `bernstein view RUN` in a browser.
    """
