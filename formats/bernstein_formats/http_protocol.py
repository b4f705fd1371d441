"""The protocols that agents speak with their providers. Rules: docs/formats/llm-http.md."""

from enum import StrEnum


class Protocol(StrEnum):
    """What is spoken at a path."""

    ANTHROPIC_MESSAGES = "anthropic.messages"
    OPENAI_CHAT = "openai.chat"
    OPENAI_RESPONSES = "openai.responses"
    GEMINI_GENERATE = "gemini.generate"
    # Model lists, embeddings and the like: no rule applies.
    OTHER = "other"
