"""What agents speak with providers and tool servers. Rules: docs/formats/llm-http.md."""

from enum import StrEnum


class Protocol(StrEnum):
    """What is spoken at a path."""

    ANTHROPIC_MESSAGES = "anthropic.messages"
    OPENAI_CHAT = "openai.chat"
    OPENAI_RESPONSES = "openai.responses"
    GEMINI_GENERATE = "gemini.generate"
    # Of tool servers.
    MCP = "mcp"
    # Model lists, embeddings and the like: no rule applies.
    OTHER = "other"
