"""`bernstein completions`: the script that teaches a shell our commands, options and run ids."""

import click

from bernstein_cli.output import document


@click.command()
@click.option(
    "--shell",
    type=click.Choice(["bash", "zsh", "fish"]),
    default="bash",
    show_default=True,
    help="The shell to make the script for.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.pass_context
def completions(ctx: click.Context, shell: str, as_json: bool) -> int:
    """Print the completion script of a shell.

    \b
    bash   eval "$(bernstein completions --shell bash)"    in ~/.bashrc
    zsh    eval "$(bernstein completions --shell zsh)"     in ~/.zshrc
    fish   bernstein completions --shell fish | source     in config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - slow to load

    made = get_completion_class(shell)
    assert made is not None
    script = made(ctx.find_root().command, {}, "bernstein", "_BERNSTEIN_COMPLETE").source()
    if as_json:
        document({"shell": shell, "script": script})
    else:
        click.echo(script)
    return 0
