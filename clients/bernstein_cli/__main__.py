"""`bernstein`, and `python -m bernstein_cli` where another `bernstein` is first on PATH.

Most answers take less time than starting and ending an interpreter, so both are kept short here.
"""

# While modules are loaded the system ends an interrupted process, which says nothing: an exception
# raised inside the machinery of imports would be shown, or lost. Ignored it stays ignored.
import _signal  # type: ignore[import-not-found]  # built in; `signal` itself takes long to load

_INTERRUPTIBLE = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _INTERRUPTIBLE:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc  # noqa: E402 - after what is above, on purpose
import os  # noqa: E402 - likewise

# Read when gRPC is loaded. What goes wrong is said by us, in one line.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# Loading modules makes no garbage, and looking for it takes a tenth of the start.
gc.set_threshold(100_000, 50, 50)

_INTERRUPTED = 130


def program() -> None:
    """Run the command and end at once, without tidying up the interpreter.

    Everything was flushed and every context manager left by then.
    """
    from bernstein_cli.main import main  # noqa: PLC0415 - after what is above

    if _INTERRUPTIBLE:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    try:
        code = main()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    os._exit(code)


if __name__ == "__main__":
    program()
