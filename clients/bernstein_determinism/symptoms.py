"""From a symptom to the contract that slipped: the one table of kinds, reasons and likely causes.

Rules: docs/formats/determinism.md, section 10.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from bernstein_formats.errors import BernsteinError, ReplayMissError


class Kind(StrEnum):
    """In which link of the chain two turns part, or what a replay did."""

    INPUT = "input"
    VERSION = "version"
    SETTINGS = "settings"
    PROMPT = "prompt"
    FINGERPRINT = "fingerprint"
    MISS = "miss"
    CHUNKS = "chunks"
    VERDICTS = "verdicts"
    TOOL = "tool"
    ACTIONS = "actions"
    WRITES = "writes"
    CHANNEL = "channel"
    LENGTH = "length"
    ORDER = "order"


@dataclass(frozen=True, slots=True)
class Symptom:
    """What is known of a kind: its contract (1 to 5, none for what no contract promises), the
    reason code of reports, what one sees, and what it is almost always due to."""

    contract: int | None
    reason_code: str
    seen: str
    cause: str


SYMPTOMS: Final[Mapping[Kind, Symptom]] = MappingProxyType(
    {
        Kind.INPUT: Symptom(
            None,
            "input_mismatch",
            "the turns have different inputs",
            "these are two turns, not one turn twice",
        ),
        Kind.VERSION: Symptom(
            None,
            "version_mismatch",
            "the package or the agent has another version",
            "equal bytes are promised within one version only",
        ),
        Kind.SETTINGS: Symptom(
            None,
            "fingerprint_mismatch",
            "the calls ask for another model, seed, temperature or the like",
            "the setups differ; the fingerprint says so, as it should",
        ),
        Kind.PROMPT: Symptom(
            1,
            "prompt_mismatch",
            "prompt bytes differ",
            "a static contribution reads runtime state, or a section the clock or random numbers",
        ),
        Kind.FINGERPRINT: Symptom(
            2,
            "fingerprint_mismatch",
            "the fingerprint differs although the prompt is the same",
            "an identity-like field in the fingerprint's input, or the environment read meanwhile",
        ),
        Kind.MISS: Symptom(
            2,
            "fingerprint_mismatch",
            "a miss on an input that looks the same",
            "an identity-like field in the fingerprint's input, or the environment read meanwhile",
        ),
        Kind.CHUNKS: Symptom(
            None,
            "chunk_mismatch",
            "the stream has other chunks although the fingerprint is the same",
            "the provider is not deterministic, or no seed was passed",
        ),
        Kind.VERDICTS: Symptom(
            3,
            "verdict_mismatch",
            "observers judge the same chunks differently",
            "an observer depends on the clock, or does work that it does not wait for",
        ),
        Kind.TOOL: Symptom(
            None,
            "tool_mismatch",
            "a tool was called with other arguments, or gave another result",
            "the world outside changed; a replay takes results from the record",
        ),
        Kind.ACTIONS: Symptom(
            None,
            "length_mismatch",
            "a node made other calls",
            "the agent's code decides by the clock, random numbers or shared state",
        ),
        Kind.WRITES: Symptom(
            None,
            "channel_mismatch",
            "nodes wrote other values",
            "the agent's code looks at the clock, random numbers or shared state",
        ),
        Kind.CHANNEL: Symptom(
            4,
            "channel_mismatch",
            "channel state differs although the writes are the same",
            "a custom reducer does not commute, or looks at the clock or at global state",
        ),
        Kind.LENGTH: Symptom(
            None, "length_mismatch", "one run has more turns", "a run ended early or went on"
        ),
        Kind.ORDER: Symptom(
            5,
            "order_mismatch",
            "the order of the audit rows shifts",
            "ids are made from the clock alone, or by more than one factory",
        ),
    }
)


def explain(error: BernsteinError) -> str:
    """The likely cause of an error that a replay ended with."""
    if isinstance(error, ReplayMissError):  # prompt and fingerprint were those of the turn
        return (
            "the recording lacks an answer that the turn was given: lines of it were cut or edited,"
            " or the temperature moved within its bucket"
        )
    try:
        return SYMPTOMS[Kind(error.metadata.get("kind", ""))].cause
    except ValueError:
        return SYMPTOMS[Kind.MISS].cause
