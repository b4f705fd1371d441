"""A model provider on loopback that follows a script, in the four protocols that clients speak.

No answer is ever given twice, so that only a replay can repeat one.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

# Longer than anybody in a test waits.
SILENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Asked:
    """A request, whatever its protocol: `results` are what tools gave, in their order."""

    path: str
    text: str
    tools: tuple[str, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Say:
    """An answer of words, or with `tool` a call of it."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


Script = Callable[[Asked], Say]


def echo(asked: Asked) -> Say:
    return Say(asked.text)


class ProviderServer:
    """Use `with`; `asked` holds path, headers and body of each request.

    A text that begins with "overloaded", "cut", "hang" or "failed" has that happen to the answer.
    """

    def __init__(self, script: Script = echo, mark: str = "") -> None:
        """`mark` is part of every id that is minted, so that two servers can be told apart."""
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.script = script
        self.mark = mark
        self.numbers = itertools.count(1)
        self.released = threading.Event()
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


# --- what is asked ------------------------------------------------------------------------------


def asked_in(path: str, body: dict[str, Any]) -> Asked:
    if "contents" in body:
        return _asked_gemini(path, body)
    named = [each.get("function", each) for each in body.get("tools", ())]
    tools = tuple(each.get("name", each.get("type", "")) for each in named)
    turns = body.get("messages", body.get("input", ""))
    if isinstance(turns, str):
        return Asked(path, turns, tools, ())
    texts, results = [], []
    for turn in turns:
        if turn.get("type", "").endswith("call_output"):  # Responses
            results.append(_text(turn["output"]))
        elif turn.get("role") == "tool":  # Chat Completions
            results.append(_text(turn["content"]))
        else:
            results += [
                _text(part.get("content", ""))
                for part in _parts(turn.get("content"))
                if part.get("type") == "tool_result"
            ]
            texts.append(_text(turn.get("content")))
    return Asked(path, next((each for each in reversed(texts) if each), ""), tools, tuple(results))


def _asked_gemini(path: str, body: dict[str, Any]) -> Asked:
    tools = tuple(
        each["name"] for tool in body.get("tools", ()) for each in tool["functionDeclarations"]
    )
    parts = [part for turn in body["contents"] for part in turn["parts"]]
    texts = [part["text"] for part in parts if part.get("text")]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    return Asked(path, texts[-1] if texts else "", tools, tuple(map(json.dumps, results)))


def _parts(content: Any) -> list[dict[str, Any]]:
    return [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in _parts(content))


# --- what is said, by protocol --------------------------------------------------------------------


def anthropic_answer(say: Say, mark: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": say.text}
    if say.tool:
        use = {"type": "tool_use", "id": f"toolu_{mark}", "name": say.tool}
        block = {**use, "input": say.arguments}
    return {
        "id": f"msg_{mark}",
        "type": "message",
        "role": "assistant",
        "model": "model-a",
        "content": [block],
        "stop_reason": "tool_use" if say.tool else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def anthropic_events(say: Say, mark: str) -> Iterator[dict[str, Any]]:
    whole = anthropic_answer(say, mark)
    (block,) = whole["content"]
    started = {**whole, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": started}
    if say.tool:
        empty, parts = {**block, "input": {}}, _halves(json.dumps(say.arguments))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    else:
        empty = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in _halves(say.text)]
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    last = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": last, "usage": {"output_tokens": 3}}
    yield {"type": "message_stop"}


def _chat_message(say: Say, mark: str) -> dict[str, Any]:
    if not say.tool:
        return {"role": "assistant", "content": say.text}
    function = {"name": say.tool, "arguments": json.dumps(say.arguments)}
    call = {"index": 0, "id": f"call_{mark}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def chat_answer(say: Say, mark: str) -> dict[str, Any]:
    reason = "tool_calls" if say.tool else "stop"
    choice = {"index": 0, "message": _chat_message(say, mark), "finish_reason": reason}
    return {
        "id": f"chatcmpl-{mark}",
        "object": "chat.completion",
        "created": 1,
        "model": "model-c",
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def chat_events(say: Say, mark: str) -> Iterator[dict[str, Any]]:
    whole = chat_answer(say, mark)
    start = {**whole, "object": "chat.completion.chunk"}
    del start["usage"]
    deltas = [_chat_message(say, mark)]
    if not say.tool:
        deltas = [{"role": "assistant", "content": part} for part in _halves(say.text)]
    for delta in deltas:
        yield {**start, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = whole["choices"][0]["finish_reason"]
    last = {"index": 0, "delta": {}, "finish_reason": reason}
    yield {**start, "choices": [last], "usage": whole["usage"]}


def _response_item(say: Say, mark: str) -> dict[str, Any]:
    if say.tool:
        item = {"id": f"fc_{mark}", "type": "function_call", "status": "completed"}
        arguments = json.dumps(say.arguments)
        return {**item, "call_id": f"call_{mark}", "name": say.tool, "arguments": arguments}
    content = [{"type": "output_text", "text": say.text, "annotations": []}]
    item = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": "completed"}
    return {**item, "content": content}


def response_answer(say: Say, mark: str) -> dict[str, Any]:
    return {
        "id": f"resp_{mark}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "model-r",
        "output": [_response_item(say, mark)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        },
    }


def response_events(say: Say, mark: str) -> Iterator[dict[str, Any]]:
    numbers = itertools.count()
    whole = response_answer(say, mark)
    (item,) = whole["output"]

    def event(kind: str, **members: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "sequence_number": next(numbers), **members}

    started = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield event("created", response=started)
    begun = {**item, "status": "in_progress"}
    place: dict[str, Any] = {"item_id": item["id"], "output_index": 0}
    if say.tool:
        yield event("output_item.added", output_index=0, item={**begun, "arguments": ""})
        for part in _halves(item["arguments"]):
            yield event("function_call_arguments.delta", **place, delta=part)
        done = {"arguments": item["arguments"], "name": say.tool}
        yield event("function_call_arguments.done", **place, **done)
    else:
        place["content_index"] = 0
        empty = {"type": "output_text", "text": "", "annotations": []}
        yield event("output_item.added", output_index=0, item={**begun, "content": []})
        yield event("content_part.added", **place, part=empty)
        for half in _halves(say.text):
            yield event("output_text.delta", **place, delta=half, logprobs=[])
        yield event("output_text.done", **place, text=say.text, logprobs=[])
        yield event("content_part.done", **place, part={**empty, "text": say.text})
    yield event("output_item.done", output_index=0, item=item)
    yield event("completed", response=whole)


def gemini_answer(say: Say, mark: str) -> dict[str, Any]:
    part: dict[str, Any] = {"text": say.text}
    if say.tool:
        part = {"functionCall": {"name": say.tool, "args": say.arguments}}
    return _gemini([part], mark, "STOP")


def gemini_events(say: Say, mark: str) -> Iterator[dict[str, Any]]:
    if not say.tool:
        for half in _halves(say.text):
            yield _gemini([{"text": half}], mark, None)
    last = gemini_answer(say, mark)
    if not say.tool:
        last["candidates"][0]["content"]["parts"] = [{"text": ""}]
    yield last


def _gemini(parts: list[dict[str, Any]], mark: str, reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    made = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "model-g"}
    return {**made, "responseId": mark}


def _halves(text: str) -> tuple[str, str]:
    return text[:4], text[4:]


def _frame(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def _named(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\n".encode() + _frame(event)


def frames_of(path: str, say: Say, mark: str) -> list[bytes]:
    """The answer as an event stream."""
    if path.endswith("/chat/completions"):
        return [*map(_frame, chat_events(say, mark)), b"data: [DONE]\n\n"]
    if ":streamGenerateContent" in path:
        return [_frame(each).replace(b"\n\n", b"\r\n\r\n") for each in gemini_events(say, mark)]
    events = anthropic_events if path.endswith("/messages") else response_events
    return [_named(each) for each in events(say, mark)]


def error_frame(path: str) -> bytes:
    """A stream's own word that it failed."""
    error = {"type": "overloaded_error", "message": "busy", "code": 503, "status": "UNAVAILABLE"}
    if path.endswith("/messages"):
        return _named({"type": "error", "error": error})
    if path.endswith("/responses"):
        event = {"type": "error", "sequence_number": 99, "code": "server_error"}
        return _named({**event, "message": "busy", "param": None})
    return _frame({"error": error})


def answer_of(path: str, say: Say, mark: str) -> dict[str, Any]:
    """The answer as one document."""
    if path.endswith("/messages"):
        return anthropic_answer(say, mark)
    if path.endswith("/responses"):
        return response_answer(say, mark)
    if ":generateContent" in path:
        return gemini_answer(say, mark)
    return chat_answer(say, mark)


# --- the server -----------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: ProviderServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.provider.asked.append((self.path, dict(self.headers), None))
        self._whole(200, {"object": "list", "data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self.provider.asked.append((self.path, dict(self.headers), body))
        path, number = self.path.partition("?")[0], next(self.provider.numbers)
        asked = asked_in(path, body)
        say = self.provider.script(asked)
        if not say.tool:
            say = Say(f"über {number}: {say.text}")
        mark = f"{self.provider.mark}{number}"
        if asked.text.startswith("overloaded"):
            self._whole(529, {"type": "error", "error": {"type": "x", "message": "busy"}})
        elif body.get("stream") or ":streamGenerateContent" in path:
            self._stream(path, frames_of(path, say, mark), asked.text)
        else:
            self._whole(200, answer_of(path, say, mark))

    def _whole(self, status: int, answer: Any) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Set-Cookie", "sid=cookie-secret")
        self.send_header("openai-organization", "org-secret")
        self.send_header("x-request-id", "req-1")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, path: str, frames: list[bytes], text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        half = len(frames) // 2
        for frame in frames[:half]:
            self._frame(frame)
        if text.startswith("hang"):
            self.provider.released.wait(SILENCE_SECONDS)
        if text.startswith(("hang", "cut")):
            self.close_connection = True
            return
        for frame in [error_frame(path)] if text.startswith("failed") else frames[half:]:
            self._frame(frame)
        self._chunk(b"")

    def _frame(self, frame: bytes) -> None:
        # In the middle of a character: its two bytes arrive apart.
        cut = frame.find(b"\xbc")
        for piece in (frame[:cut], frame[cut:]) if cut > 0 else (frame,):
            self._chunk(piece)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
