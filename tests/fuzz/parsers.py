"""Coverage-guided fuzzing of every parser: whatever the bytes, an answer or one of our own errors.

`make fuzz` runs it for a bounded time; seeds are the vectors. What it finds becomes a vector or a
test of the parser before it is mended.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bernstein_formats"]):
    from bernstein_formats import (
        audit_log,
        body_pack,
        canonical,
        cose,
        http_encoding,
        http_exchange,
        http_key,
        http_mutations,
        http_rule_file,
        http_secrets,
        journal_diff,
        journal_reader,
        journal_repair,
        journal_verify,
        key_chain_read,
        llm_index,
        provider_sidecar,
        public_key,
        receipt_verify,
        rederivation,
        seal,
        session_journal_verify,
        thread,
    )
    from bernstein_formats.errors import BernsteinError

VECTORS = Path(__file__).parents[1] / "vectors" / "data"
SEEDS = ("*.jsonl", "run-receipt.json", "run-receipt.cose", "key-chain.json", "*.pem", "*.txt")
PATHS = ("/anthropic/v1/messages", "/openai/v1/responses", "/gemini/v1/models/m:generateContent")


def key_of(path: str, body: bytes) -> object:
    return http_key.keyed(http_key.HttpRequest("POST", path, (), (), body))


PARSERS: tuple[Callable[[bytes], object], ...] = (
    canonical.parse_json,
    canonical.parse_json_unique,
    lambda data: canonical.canonical_text(data, canonical.Profile.PY_JSON),
    lambda data: canonical.canonical_text(data, canonical.Profile.JCS),
    lambda data: journal_reader.load_events([data]),
    lambda data: journal_reader.load_events_strictly([data]),
    lambda data: journal_verify.verify_journal([data]),
    lambda data: journal_verify.verify_journal([data[:7], data[7:]]),
    lambda data: journal_verify.rebuild_state([data], 9),
    lambda data: journal_diff.diff_journals([data], [data[::2]]),
    lambda data: list(thread.project([data])),
    lambda data: thread.verify_thread([data]),
    lambda data: journal_repair.plan_tail_repair(lambda: iter([data])),
    lambda data: journal_repair.plan_recovery(lambda: iter([data])),
    audit_log.read_audit_row,
    lambda data: key_chain_read.read_key_chain(data, None),
    lambda data: http_exchange.parse_exchange(data, 1),
    lambda data: body_pack.parse_record(data, 0, len(data)),
    lambda data: http_encoding.decoded("zstd", data),
    lambda data: http_encoding.decoded("gzip", data),
    http_secrets.secrets_in,
    lambda data: http_mutations.mutation_events(data, "lane", 1),
    *(partial(key_of, path) for path in PATHS),
    http_rule_file.parse_rules,
    provider_sidecar.parse_sidecar,
    lambda data: rederivation.rederive([data], "r1"),
    receipt_verify.verify_receipt,
    cose.parse_cose,
    seal.parse_seal,
    seal.parse_entry,
    public_key.parse_public_pem,
    lambda data: session_journal_verify.verify_steps([data]),
    lambda data: llm_index.build_index([data], b""),
)


def one_input(data: bytes) -> None:
    """The first byte says which parser."""
    if not data:
        return
    try:
        PARSERS[data[0] % len(PARSERS)](data[1:])
    except BernsteinError:
        return


def write_seeds(folder: Path) -> None:
    """Every vector file, once for each parser that may know its form."""
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted({path for pattern in SEEDS for path in VECTORS.rglob(pattern)})
    for number, path in enumerate(files):
        data = path.read_bytes()
        if path.is_file() and len(data) < 20_000:
            seed = bytes([number % len(PARSERS)]) + data
            (folder / f"seed-{number}").write_bytes(seed)


def main() -> None:
    """`parsers.py CORPUS [libFuzzer options]`."""
    write_seeds(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
