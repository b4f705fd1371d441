"""`bernstein`, and `python -m bernstein_cli` where another `bernstein` is first on PATH.

Most answers take less time than starting and ending an interpreter, so both are kept short here.
"""

import gc
import os
import sys
from typing import NoReturn

# Loading modules makes no garbage, and looking for it takes a tenth of the start.
gc.set_threshold(100_000, 50, 50)

from bernstein_cli.main import main  # noqa: E402 - after the line above, on purpose


def program() -> NoReturn:
    """Run the command and end at once, without tidying up the interpreter.

    Everything was flushed and every context manager left by then.
    """
    code = main()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    program()
