"""Every limit, named once, enforced at the edge and shown by `bernstein services doctor`."""

# gRPC's own default, set at both ends so that both say the same (field case F21).
MESSAGE_BYTES_MAX = 4 * 1024 * 1024
BATCH_BYTES_MAX = 1024 * 1024
BATCH_EVENTS_MAX = 1000
STEP_BYTES_MAX = 3 * 1024 * 1024
# What is more than a message carries goes in parts.
ROW_BYTES_MAX = 16 * 1024 * 1024
# Stored bytes that an importer sends at once.
PIECE_BYTES_MAX = 3 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
QUEUED_BATCHES_MAX = 4096
WORKER_THREADS = 32
# In a fleet: so many callers may use up their quota before others wait (role_table.Quota).
FLEET_WORKER_THREADS = 256
# Streams that follow runs while they are written; each has a thread of its own.
WATCHERS_MAX = 1024
REQUEST_ID_CHARACTERS_MAX = 64
LANE_CHARACTERS_MAX = 128
PROMPT_BYTES_MAX = 3 * 1024 * 1024
ANSWER_BYTES_MAX = 3 * 1024 * 1024
RECEIPT_ROWS_LISTED_MAX = 1000
CALL_TIMEOUT_SECONDS = 60.0
LONG_CALL_TIMEOUT_SECONDS = 3600.0
START_TIMEOUT_SECONDS = 15.0


def described() -> dict[str, int | float]:
    """Name → value of each limit, for people."""
    return {name.lower(): value for name, value in sorted(globals().items()) if name.isupper()}
