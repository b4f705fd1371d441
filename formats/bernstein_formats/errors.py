"""Every error that crosses a process boundary, each with one stable reason word.

    BernsteinError
    ├── InvalidInput              INVALID_INPUT        what the caller gave cannot be used
    │   ├── LimitExceeded         LIMIT_EXCEEDED       it is larger or deeper than we take
    │   └── DeterminismError      CONTRACT_BROKEN      a determinism contract is not kept
    │       ├── CanonicalizationError  NOT_CANONICAL   no canonical form
    │       ├── IdentityFieldError     IDENTITY_FIELD  who or when, inside a fingerprint
    │       ├── PromptBudgetError      PROMPT_BUDGET
    │       ├── AsyncObserverError     ASYNC_OBSERVER
    │       ├── ObserverContractError  OBSERVER_CONTRACT
    │       ├── ChannelConflictError   CHANNEL_CONFLICT
    │       ├── SeedRequiredError      SEED_REQUIRED
    │       ├── CacheModeError         MODE_NOT_ALLOWED
    │       └── AmbientAccessError     AMBIENT_ACCESS  clock, randomness, environment or file
    ├── NotFound                  NOT_FOUND
    │   ├── RunNotFound           RUN_NOT_FOUND
    │   └── ReplayRecordingMissingError  RECORDING_MISSING
    ├── Conflict                  CONFLICT             true, but not in this state
    │   ├── HeadMoved             HEAD_MOVED           somebody else appended first
    │   ├── RunExists             RUN_EXISTS
    │   ├── RunSealed             RUN_SEALED
    │   ├── RequestIdReused       REQUEST_ID_REUSED
    │   ├── ForeignWriter         FOREIGN_WRITER       the file changed under us
    │   │   └── RowsMissing       ROWS_MISSING         rows that were acknowledged are gone
    │   ├── RecordingChanged      RECORDING_CHANGED    the recording differs from its journal row
    │   ├── EnvironmentChanged    ENVIRONMENT_CHANGED  an agent would see other surroundings
    │   ├── SandboxMissing        SANDBOX_MISSING      an agent cannot be locked in here
    │   ├── ClientForked          CLIENT_FORKED        gRPC is of no use in this child of a process
    │   ├── SessionLost           SESSION_LOST         a replay cannot be continued
    │   ├── ReplayDivergenceError REPLAY_DIVERGENCE    the replay left the recording
    │   │   └── ReplayMissError   REPLAY_MISS
    │   └── ReplayKeySchemeMismatchError  KEY_SCHEME_MISMATCH
    ├── Broken                    BROKEN               the evidence itself is wrong
    │   ├── ChainBroken           CHAIN_BROKEN
    │   ├── RowMalformed          ROW_MALFORMED
    │   ├── ReceiptMalformed      RECEIPT_MALFORMED
    │   ├── SealMalformed         SEAL_MALFORMED
    │   ├── SignatureWrong        SIGNATURE_WRONG
    │   ├── LedgerRefused         LEDGER_REFUSED       the signer's ledger says otherwise
    │   └── JournalError          JOURNAL_REFUSED      a journal that cannot be continued
    ├── NotAllowed                CALLER_NOT_ALLOWED
    ├── Untrusted                 UNTRUSTED            a certificate is not trusted
    ├── KeyUnusable               KEY_UNUSABLE         a key file or variable holds no usable key
    ├── TooMany                   TOO_MANY             try again later
    │   ├── QueueFull             QUEUE_FULL
    │   └── TooManyStreams        TOO_MANY_STREAMS
    ├── DiskFull                  DISK_FULL            never retried
    ├── StoreFailed               STORE_FAILED         the store could not be read or written
    ├── ProviderFailed            PROVIDER_FAILED      the model provider did not answer
    └── Unavailable               UNAVAILABLE          the service is away or going away

Names that the specification gives (`ReplayMissError`, ...) keep their spelling.
"""

from collections.abc import Mapping
from typing import ClassVar, Final


class BernsteinError(Exception):
    """The root: a text that says what is wrong, where, and what to do; facts of it as metadata."""

    reason: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str, **metadata: object) -> None:
        """Keep each fact that the text mentions as text metadata, under its own name."""
        super().__init__(message)
        self.message = message
        self.metadata: dict[str, str] = {
            name: str(value) for name, value in metadata.items() if value is not None
        }


class InvalidInput(BernsteinError):
    reason = "INVALID_INPUT"


class LimitExceeded(InvalidInput):
    reason = "LIMIT_EXCEEDED"


class DeterminismError(InvalidInput):
    reason = "CONTRACT_BROKEN"


class CanonicalizationError(DeterminismError):
    reason = "NOT_CANONICAL"


class IdentityFieldError(DeterminismError):
    reason = "IDENTITY_FIELD"


class PromptBudgetError(DeterminismError):
    reason = "PROMPT_BUDGET"


class AsyncObserverError(DeterminismError):
    reason = "ASYNC_OBSERVER"


class ObserverContractError(DeterminismError):
    reason = "OBSERVER_CONTRACT"


class ChannelConflictError(DeterminismError):
    reason = "CHANNEL_CONFLICT"


class SeedRequiredError(DeterminismError):
    reason = "SEED_REQUIRED"


class CacheModeError(DeterminismError):
    reason = "MODE_NOT_ALLOWED"


class AmbientAccessError(DeterminismError):
    reason = "AMBIENT_ACCESS"


class NotFound(BernsteinError):
    reason = "NOT_FOUND"


class RunNotFound(NotFound):
    reason = "RUN_NOT_FOUND"


class ReplayRecordingMissingError(NotFound):
    reason = "RECORDING_MISSING"


class Conflict(BernsteinError):
    reason = "CONFLICT"


class HeadMoved(Conflict):
    reason = "HEAD_MOVED"


class RunExists(Conflict):
    reason = "RUN_EXISTS"


class RunSealed(Conflict):
    reason = "RUN_SEALED"


class RequestIdReused(Conflict):
    reason = "REQUEST_ID_REUSED"


class ForeignWriter(Conflict):
    reason = "FOREIGN_WRITER"


class RowsMissing(ForeignWriter):
    reason = "ROWS_MISSING"


class RecordingChanged(Conflict):
    reason = "RECORDING_CHANGED"


class EnvironmentChanged(Conflict):
    reason = "ENVIRONMENT_CHANGED"


class SandboxMissing(Conflict):
    reason = "SANDBOX_MISSING"


class ClientForked(Conflict):
    reason = "CLIENT_FORKED"


class SessionLost(Conflict):
    reason = "SESSION_LOST"


class ReplayDivergenceError(Conflict):
    reason = "REPLAY_DIVERGENCE"


class ReplayMissError(ReplayDivergenceError):
    reason = "REPLAY_MISS"


class ReplayKeySchemeMismatchError(Conflict):
    reason = "KEY_SCHEME_MISMATCH"


class Broken(BernsteinError):
    reason = "BROKEN"


class ChainBroken(Broken):
    reason = "CHAIN_BROKEN"


class RowMalformed(Broken):
    reason = "ROW_MALFORMED"


class ReceiptMalformed(Broken):
    reason = "RECEIPT_MALFORMED"


class SealMalformed(Broken):
    reason = "SEAL_MALFORMED"


class SignatureWrong(Broken):
    reason = "SIGNATURE_WRONG"


class LedgerRefused(Broken):
    reason = "LEDGER_REFUSED"


class JournalError(Broken):
    reason = "JOURNAL_REFUSED"


class NotAllowed(BernsteinError):
    reason = "CALLER_NOT_ALLOWED"


class Untrusted(BernsteinError):
    reason = "UNTRUSTED"


class KeyUnusable(BernsteinError):
    reason = "KEY_UNUSABLE"


class TooMany(BernsteinError):
    reason = "TOO_MANY"


class QueueFull(TooMany):
    reason = "QUEUE_FULL"


class TooManyStreams(TooMany):
    reason = "TOO_MANY_STREAMS"


class DiskFull(BernsteinError):
    reason = "DISK_FULL"


class StoreFailed(BernsteinError):
    reason = "STORE_FAILED"


class ProviderFailed(BernsteinError):
    reason = "PROVIDER_FAILED"


class ToolFailed(BernsteinError):
    reason = "TOOL_FAILED"


class Unavailable(BernsteinError):
    reason = "UNAVAILABLE"


def _all_below(kind: type[BernsteinError]) -> list[type[BernsteinError]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _all_below(below))]


# Whoever is told a reason by another process raises the class that has it.
BY_REASON: Final[Mapping[str, type[BernsteinError]]] = {
    kind.reason: kind for kind in _all_below(BernsteinError)
}
