"""`bernstein`, and `python -m bernstein_cli` where another `bernstein` is first on PATH.

Most answers take less time than starting and ending an interpreter, so both are kept short here.
"""

import gc
import os

# Loading modules makes no garbage, and looking for it takes a tenth of the start.
gc.set_threshold(100_000, 50, 50)

_INTERRUPTED = 130


def program() -> None:
    """Run the command and end at once, without tidying up the interpreter.

    Everything was flushed and every context manager left by then. Modules are loaded in here, so
    that Ctrl-C is quiet from the first of them on.
    """
    try:
        from bernstein_cli.main import main  # noqa: PLC0415 - see above

        code = main()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    os._exit(code)


if __name__ == "__main__":
    program()
