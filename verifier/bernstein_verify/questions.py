"""What an auditor knows beforehand, and holds a file against: a key, a chain, a run, a time."""

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bernstein_formats.receipt_trust import ChainEvidence

# A multiple of every page size.
_KEPT_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of receipts; the paths are those of the files whose contents are here."""

    pin: bytes | None = None
    pin_path: str | None = None
    chain: "ChainEvidence | None" = None
    chain_path: str | None = None
    expected_run_id: str | None = None
    require_provenance: bool = False
    strict: bool = False


def read_file(path: str) -> bytes:
    """The bytes of a file; OSError, or ValueError where the text is no file name at all."""
    with open_file(path) as file:
        return file.read()


def open_file(path: str) -> IO[bytes]:
    """Open a file for reading, never waiting for a FIFO's writer. Raises as `read_file`."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise _not_regular(path)
    return file


@contextmanager
def mapped_file(path: str) -> Iterator["bytes | mmap.mmap"]:
    """A file's bytes without a copy of them. Raises as `read_file`."""
    with open_file(path) as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""  # which cannot be mapped
            return
        with _Passing(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


class _Passing(mmap.mmap):
    """Lets go of what was read: memory does not grow with a file that is gone through once."""

    _left = 0

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and (key.start or 0) - self._left > _KEPT_BYTES:
            self.madvise(mmap.MADV_DONTNEED, self._left, _KEPT_BYTES)
            self._left += _KEPT_BYTES
        return super().__getitem__(key)


def _without_waiting(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _not_regular(path) from error
        raise


def _not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", path)


def ask(
    *,
    public_key: str | None = None,
    key_chain: str | None = None,
    signed_at: str | None = None,
    chain_entries: int | None = None,
    chain_head: str | None = None,
    expect_run: str | None = None,
    require_provenance: bool = False,
    strict: bool = False,
) -> Question:
    """Read what the options name. Raises as `read_file`."""
    chain = None
    if key_chain is not None:
        from bernstein_formats.receipt_trust import ChainEvidence  # noqa: PLC0415 - most have no chain

        chain = ChainEvidence(read_file(key_chain), signed_at, chain_entries, chain_head)
    return Question(
        pin=None if public_key is None else read_file(public_key),
        pin_path=public_key,
        chain=chain,
        chain_path=key_chain,
        expected_run_id=expect_run,
        require_provenance=require_provenance,
        strict=strict,
    )


def usage_fault(
    path: str = "",
    expect_run: str | None = None,
    *,
    key_chain: str | None,
    public_key: str | None = None,
    signed_at: str | None = None,
    chain_entries: int | None = None,
    chain_head: str | None = None,
) -> str:
    """What is wrong with options that need one another; empty if nothing is."""
    of_a_chain = (signed_at, chain_entries, chain_head)
    if key_chain is None and any(each is not None for each in of_a_chain):
        return "--signed-at, --chain-entries and --chain-head need --key-chain"
    if chain_entries is not None and chain_entries < 0:
        return "--chain-entries is a number of entries, from 0"
    if chain_head is not None and not _is_hash(chain_head):
        return "--chain-head is the SHA-256 of a chain's entry: 64 hexadecimal digits, lower case"
    if key_chain is not None and public_key is None and os.path.isdir(path):  # noqa: PTH112
        return "--key-chain needs --public-key, the key of its root"
    if expect_run is not None and os.path.isdir(path):  # noqa: PTH112 - as read_file
        return "--expect-run names one run, so it goes with one receipt"
    return ""


def unreadable_text(error: OSError | ValueError) -> str:
    """Which file cannot be read, and why."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return f"a file whose name is none: {error}"


def _is_hash(text: str) -> bool:
    return len(text) == 64 and not set(text) - set("0123456789abcdef")
