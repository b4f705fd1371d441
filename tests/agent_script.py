"""What a scripted model has a coding agent do: read a file, edit it by its own tools, say so."""

import shlex
from pathlib import Path

from tests.scripted_provider import Asked, Say, Script


def editing(path: Path, old: str, new: str) -> Script:
    """Replace `old` in a file; the turn is told by how many results of tools there are."""

    def script(asked: Asked) -> Say:
        if not asked.tools:
            return Say(_block(path, old, new) if "SEARCH/REPLACE" in asked.text else "A greeting")
        turns = _turns(set(asked.tools), str(path), old, new)
        return turns[len(asked.results)] if len(asked.results) < len(turns) else Say("Done.")

    return script


def _turns(tools: set[str], path: str, old: str, new: str) -> list[Say]:
    """The calls of tools, by the names and arguments of the agent that offers them."""
    edit = {"file_path": path, "old_string": old, "new_string": new}
    if "exec_command" in tools:  # codex
        change = f"sed -i {shlex.quote(f's/{old}/{new}/')} {shlex.quote(path)}"
        commands = (f"cat {shlex.quote(path)}", change)
        return [Say(tool="exec_command", arguments={"cmd": each}) for each in commands]
    if "replace" in tools:  # gemini-cli
        why = {"instruction": "Greet everybody."}
        return [_read("read_file", path), Say(tool="replace", arguments={**edit, **why})]
    if "read_file" in tools:  # qwen-code
        return [_read("read_file", path), Say(tool="edit", arguments=edit)]
    if "Read" in tools:  # claude-code
        return [_read("Read", path), Say(tool="Edit", arguments=edit)]
    camel = {"filePath": path, "oldString": old, "newString": new}  # opencode
    return [Say(tool="read", arguments={"filePath": path}), Say(tool="edit", arguments=camel)]


def _read(tool: str, path: str) -> Say:
    return Say(tool=tool, arguments={"file_path": path})


def _block(path: Path, old: str, new: str) -> str:
    """The edit as aider wants it, whose model calls no tools."""
    text = path.read_text()
    sides = f"<<<<<<< SEARCH\n{text}=======\n{text.replace(old, new)}>>>>>>> REPLACE\n"
    return f"Here it is.\n\n{path.name}\n```\n{sides}```\n"
