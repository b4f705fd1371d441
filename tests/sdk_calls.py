"""What the Python SDKs make of their provider: `python sdk_calls.py OUT SDK...` writes it as JSON.

A program of its own, so that it runs in whatever environment has the SDK, directly, recorded or
replayed; addresses and keys are in its environment.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

TEXTS = ("hello", "cut", "failed", "overloaded", "hello")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
Call = Callable[[str], Any]


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def openai_calls() -> Iterator[Call]:
    openai = import_module("openai")
    client, aclient = openai.OpenAI(max_retries=0), openai.AsyncOpenAI(max_retries=0)
    function = {"name": "weather", "parameters": SCHEMA}
    chat_tools: Any = [{"type": "function", "function": function}]
    tools: Any = [{"type": "function", "strict": False, **function}]

    def chat(text: str, **more: Any) -> Any:
        return client.chat.completions.create(model="c", messages=messages(text), **more)

    def achat(text: str, **more: Any) -> Any:
        return aclient.chat.completions.create(model="c", messages=messages(text), **more)

    yield chat
    yield lambda text: dumped(chat(text, stream=True))
    yield lambda text: chat(text, tools=chat_tools)
    yield lambda text: dumped(chat(text, tools=chat_tools, stream=True))
    yield lambda text: run(achat(text))
    yield lambda text: run(gathered(achat(text, stream=True)))
    yield lambda text: client.responses.create(model="r", input=text)
    yield lambda text: dumped(client.responses.create(model="r", input=text, stream=True))
    yield lambda text: client.responses.create(model="r", input=text, tools=tools)
    yield lambda text: run(gathered(aclient.responses.create(model="r", input=text, stream=True)))
    yield lambda _: client.models.list().data


def anthropic_calls() -> Iterator[Call]:
    anthropic = import_module("anthropic")
    client, aclient = anthropic.Anthropic(max_retries=0), anthropic.AsyncAnthropic(max_retries=0)
    tools: Any = [{"name": "weather", "input_schema": SCHEMA}]

    def create(text: str, **more: Any) -> Any:
        return client.messages.create(model="a", max_tokens=9, messages=messages(text), **more)

    def streamed(text: str, **more: Any) -> Any:
        asked: Any = messages(text)
        with client.messages.stream(model="a", max_tokens=9, messages=asked, **more) as stream:
            return dumped(stream), stream.get_final_message().stop_reason

    yield create
    yield lambda text: dumped(create(text, stream=True))
    yield lambda text: create(text, tools=tools)
    yield streamed
    yield lambda text: streamed(text, tools=tools)
    asked = {"model": "a", "max_tokens": 9}
    yield lambda text: run(aclient.messages.create(messages=messages(text), **asked))
    yield lambda text: run(
        gathered(aclient.messages.create(messages=messages(text), stream=True, **asked))
    )


def google_calls() -> Iterator[Call]:
    genai = import_module("google.genai")
    client = genai.Client(api_key=os.environ["GEMINI_API_KEY"])
    declared = {"name": "weather", "description": "Tells it", "parameters": SCHEMA}
    config: Any = {"tools": [{"function_declarations": [declared]}]}
    models, amodels = client.models, client.aio.models

    yield lambda text: models.generate_content(model="g", contents=text)
    yield lambda text: dumped(models.generate_content_stream(model="g", contents=text))
    yield lambda text: models.generate_content(model="g", contents=text, config=config)
    yield lambda text: dumped(
        models.generate_content_stream(model="g", contents=text, config=config)
    )
    yield lambda text: run(amodels.generate_content(model="g", contents=text))
    yield lambda text: run(gathered(amodels.generate_content_stream(model="g", contents=text)))


def litellm_calls() -> Iterator[Call]:
    litellm: Any = import_module("litellm")
    litellm.suppress_debug_info = True
    places = {
        "openai/c": "OPENAI_BASE_URL",
        "anthropic/a": "ANTHROPIC_BASE_URL",
        "gemini/g": "GOOGLE_GEMINI_BASE_URL",
    }
    for model, place in places.items():
        common = {"model": model, "api_base": os.environ[place], "max_retries": 0}
        yield from _litellm_model(
            partial(litellm.completion, **common), partial(litellm.acompletion, **common)
        )


def _litellm_model(ask: Callable[..., Any], aask: Callable[..., Any]) -> Iterator[Call]:
    function = {"name": "weather", "parameters": SCHEMA}
    tools = [{"type": "function", "function": function}]
    yield lambda text: ask(messages=messages(text))
    yield lambda text: dumped(ask(messages=messages(text), stream=True))
    yield lambda text: ask(messages=messages(text), tools=tools)
    yield lambda text: run(aask(messages=messages(text)))
    yield lambda text: run(gathered(aask(messages=messages(text), stream=True)))


SDKS: dict[str, Callable[[], Iterator[Call]]] = {
    "openai": openai_calls,
    "anthropic": anthropic_calls,
    "google-genai": google_calls,
    "litellm": litellm_calls,
}
LOOP = asyncio.new_event_loop()


def run(awaited: Awaitable[Any]) -> Any:
    async def waiting() -> Any:
        return await awaited

    return LOOP.run_until_complete(waiting())


# What a stream gave, also before it broke.
SEEN: list[Any] = []


def dumped(stream: Iterator[Any]) -> Any:
    SEEN.extend(stream)
    return SEEN


async def gathered(stream: Awaitable[AsyncIterator[Any]]) -> Any:
    async for part in await stream:
        SEEN.append(part)  # noqa: PERF401 - as they come
    return SEEN


def outcome(call: Call, text: str) -> Any:
    SEEN.clear()
    try:
        return plain(call(text))
    except Exception as error:  # noqa: BLE001 - SDKs do not wrap all that their libraries raise
        return plain(SEEN), type(error).__name__


# What an SDK adds by itself.
NOT_SAID = {"created", "id", "sdk_http_response", "response_ms"}


def plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name not in NOT_SAID}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def main() -> None:
    out, *names = sys.argv[1:]
    found = {
        name: [[outcome(call, text) for text in TEXTS] for call in SDKS[name]()] for name in names
    }
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
