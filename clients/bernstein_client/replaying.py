"""What a program's run that replays another one needs of it: its head, and what binds its calls."""

from bernstein_client.recorder_calls import Recording
from bernstein_client.values import Verification
from bernstein_formats.canonical import JsonValue, parse_json, spelled
from bernstein_formats.errors import ChainBroken, InvalidInput, ReplayRecordingMissingError

_EVENT = "llm_recording"


def replay_json(recorded: Verification) -> bytes:
    """What stands in the folder of the run that replays. Raises ChainBroken."""
    if recorded.has_diverged:
        raise ChainBroken(
            f"the journal of run {recorded.run_id} is broken, so it is not replayed;"
            f" `bernstein replay {recorded.run_id} --verify` says where",
            run_id=recorded.run_id,
        )
    members: dict[str, JsonValue] = {
        "replay_of": recorded.run_id,
        "recorded_head": recorded.head_hash,
        "allow_live_miss": False,
    }
    return spelled(members).encode()


class RecordingRow:
    """Finds the row that binds a run's recorded calls, in stored bytes that come in parts."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._rest = b""
        self._line = b""

    def feed(self, part: bytes) -> None:
        """Take the next part."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            if _EVENT.encode() in line:
                self._line = line

    def recording(self) -> Recording:
        """Raises ReplayRecordingMissingError, InvalidInput."""
        self.feed(b"\n")
        if not self._line:
            raise ReplayRecordingMissingError(
                f"no row of run {self._run_id} binds recorded calls, so there are none to replay",
                run_id=self._run_id,
            )
        row = parse_json(self._line)
        if isinstance(row, dict) and row.get("event") == _EVENT:
            count, size, digest = row.get("call_count"), row.get("size_bytes"), row.get("sha256")
            if isinstance(count, int) and isinstance(size, int) and isinstance(digest, str):
                return Recording(count, size, digest)
        raise InvalidInput(
            f"run {self._run_id}: its {_EVENT} row is malformed", run_id=self._run_id
        )
