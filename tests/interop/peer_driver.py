"""Drives the peer in one long-lived process: a JSON request a line in, a JSON answer a line out.

Runs under the peer's own interpreter, because its start takes seconds and its modules may never
be imported beside ours. Kinds of request, told apart by a member:

    argv, cwd, env             one run of its command line -> exit, stdout, stderr
    record, sdd_dir, ...       its own journal of a run, from a list of [event, payload] -> head;
                               with `resumes` it goes on with what is there
    verify                     its verdict on a journal file -> chain_consistent, head, count
    receipt, sdd_dir, ...      its library's receipt of a run, written to a file
    steps, folder              its own step journal opened, and steps appended -> hashes, head
    spine, root, key, entries  its spine of a run, grown by entries -> status, count, errors, head
    audit, folder, key, events its audit log, grown by events, perhaps archived -> ok, errors
    sealed_head, sdd_dir       the journal head that it reads out of a run's spine

`peer_driver.py --tree` prints its whole command tree, the text of peer_commands.json.
"""

import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

PROG_NAME = "bernstein"
Node = dict[str, Any]


def root_command() -> click.Group:
    root = importlib.import_module("bernstein.cli.main").cli
    assert isinstance(root, click.Group)
    return root


def command_tree() -> Node:
    root = root_command()
    commands = dict(walk(root, (), None))
    return {
        "version": version("bernstein"),
        "aliases": aliases(root),
        "verbs": {"replay": positional_verbs(root, "replay")},
        "commands": commands,
    }


def walk(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None
) -> Iterator[tuple[str, Node]]:
    node: Node = {"hidden": True} if command.hidden else {}
    context = click.Context(command, info_name=path[-1] if path else PROG_NAME, parent=parent)
    if isinstance(command, click.Group):
        default = default_command(command, context)
        if default is not None:
            node["default"] = default
    node["options"] = {
        name: option_form(option)
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    yield " ".join(path), node
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            assert child is not None, (path, name)
            yield from walk(child, (*path, name), context)


def option_form(option: click.Option) -> str:
    if option.is_flag or option.count:
        return "flag"
    # Private in click, and the only place that says `--wait [SECONDS]` from `--wait SECONDS`.
    if option._flag_needs_value:
        return "optional"
    return {1: "value", 2: "pair"}[option.nargs]


def default_command(group: click.Group, context: click.Context) -> str | None:
    """Ask the group where a word goes that names none of its commands."""
    try:
        parsed = group.make_context(
            context.info_name, ["no-such-word"], parent=context.parent, resilient_parsing=True
        )
        name, command, _ = group.resolve_command(parsed, [*parsed._protected_args, *parsed.args])
    except click.UsageError:
        return None
    return name if command is not None else None


def aliases(root: click.Group) -> dict[str, str]:
    """Read the short words from its own table; they are in no listing."""
    output = run_cli(root, ["aliases"], {"COLUMNS": "200"})["stdout"]
    rows = re.findall(r"^│ (\S+) +│ (\S.*?) +│ built-in", output, flags=re.MULTILINE)
    return dict(sorted(rows))


def positional_verbs(root: click.Group, name: str) -> list[str]:
    """Read the words that a command takes in its first argument from the examples of its help."""
    examples = run_cli(root, [name, "--help"], {})["stdout"]
    found = set(re.findall(rf"^ +{PROG_NAME} {name} ([a-z-]+)", examples, flags=re.MULTILINE))
    return sorted(found - {"latest"})


def run_cli(root: click.Group, argv: list[str], env: dict[str, str | None]) -> Node:
    result = CliRunner().invoke(root, argv, prog_name=PROG_NAME, env=env)
    stderr = result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        stderr += "".join(traceback.format_exception(result.exception))
    return {"exit": result.exit_code, "stdout": result.stdout, "stderr": stderr}


def run_in(root: click.Group, argv: list[str], cwd: str, env: dict[str, str]) -> Node:
    os.chdir(cwd)
    only: dict[str, str | None] = dict.fromkeys(os.environ)
    try:
        return run_cli(root, argv, {**only, **env})
    finally:
        os.chdir("/")


def record(
    run_id: str,
    sdd_dir: str,
    profile: str,
    events: list[tuple[str, Node]],
    hmac_key: str | None,
    *,
    resumes: bool = False,
) -> Node:
    """Write a whole run; with a MAC key (hex) its head is also sealed into the run's spine."""
    module = importlib.import_module("bernstein.core.replay.journal")
    if resumes:
        journal = module.EventJournal.resume(run_id, Path(sdd_dir))
    else:
        journal = module.EventJournal(run_id, Path(sdd_dir), hash_profile=profile)
    for event, payload in events:
        journal.record(event, **payload)
    if hmac_key is not None:
        module.seal_journal_into_spine(
            journal,
            lineage_root=Path(sdd_dir, "lineage"),
            hmac_key=bytes.fromhex(hmac_key),
            actor="tests",
        )
    return {"head": journal.head()}


def verify(path: str) -> Node:
    verdict = importlib.import_module("bernstein.core.replay.journal").verify_journal(Path(path))
    return {
        "chain_consistent": verdict.chain_consistent,
        "head": verdict.head,
        "count": verdict.count,
        "discarded": list(verdict.discarded_line_indices),
    }


def receipt(run_id: str, *, sdd_dir: str, profile: str, key: str, key_id: str, output: str) -> Node:
    keys = importlib.import_module("bernstein.core.security.lineage_kms")
    importlib.import_module("bernstein.core.replay.run_receipt").build_run_receipt(
        run_id,
        Path(sdd_dir),
        keys.FileBasedKMSAdapter(Path(key), kid=key_id),
        hash_profile=profile,
        output_path=Path(output),
    )
    return {}


def spine(run_id: str, *, root: str, key: str, entries: list[Node]) -> Node:
    """Append to a spine, then verify it; `key` is text, as in a key file."""
    module = importlib.import_module("bernstein.core.lineage.spine")
    written = module.LineageSpine(Path(root), run_id=run_id, hmac_key=key.encode())
    for entry in entries:
        written.record(**{**entry, "content": entry["content"].encode()})
    try:
        verdict = written.verify()
    except UnicodeDecodeError:  # it does not expect bytes that are no text
        return {"status": "unreadable"}
    return {
        "status": verdict.status.value,
        "count": verdict.count,
        "errors": list(verdict.errors),
        "head": written.head_hash(),
    }


def audit(folder: str, *, key: str, events: list[Node], archive: bool) -> Node:
    """Append to an audit log, archive what is old if asked to, then verify all of it."""
    module = importlib.import_module("bernstein.core.security.audit")
    written = module.AuditLog(Path(folder), key=key.encode())
    for event in events:
        written.log(**event)
    if archive:
        written.archive()
    ok, errors = module.AuditLog(Path(folder), key=key.encode()).verify()
    return {"ok": ok, "errors": list(errors)}


def sealed_head(run_id: str, *, sdd_dir: str, key_path: str) -> Node:
    module = importlib.import_module("bernstein.core.replay.journal")
    os.environ["BERNSTEIN_AUDIT_KEY_PATH"] = key_path
    try:
        return {"head": module.read_sealed_journal_head(run_id=run_id, sdd_dir=Path(sdd_dir))}
    finally:
        del os.environ["BERNSTEIN_AUDIT_KEY_PATH"]


def append_steps(appended: list[Node], folder: str) -> Node:
    """Open an agent's journal, whoever wrote it so far, and append to it."""
    module = importlib.import_module("bernstein.core.persistence.journal")
    journal = module.Journal.open(Path(folder))
    hashes = [journal.append(**step).step_hash for step in appended]
    journal.close()
    return {"hashes": hashes, "head": journal.head_hash}


def answer(root: click.Group, request: Node) -> Node:  # noqa: PLR0911 - one a kind
    match request:
        case {"argv": argv, "cwd": cwd, "env": env}:
            return run_in(root, argv, cwd, env)
        case {"record": run_id, **rest}:
            return record(run_id, **rest)
        case {"verify": path}:
            return verify(path)
        case {"receipt": run_id, **rest}:
            return receipt(run_id, **rest)
        case {"spine": run_id, **rest}:
            return spine(run_id, **rest)
        case {"audit": folder, **rest}:
            return audit(folder, **rest)
        case {"sealed_head": run_id, **rest}:
            return sealed_head(run_id, **rest)
        case {"steps": appended, "folder": folder}:
            return append_steps(appended, folder)
        case _:
            raise ValueError(f"a request of no known kind: {sorted(request)}")


def serve() -> None:
    """Answer on a descriptor of our own: what the peer prints by itself goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    root = root_command()
    for line in sys.stdin:
        try:
            reply = answer(root, json.loads(line))
        except Exception:  # noqa: BLE001 - whatever the peer raises is what the test wants to see
            reply = {"raised": traceback.format_exc()}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


def tree_text() -> str:
    """Write the tree one command a line, so that a difference is readable."""
    tree = command_tree()
    lines = [
        f"    {json.dumps(path)}: {json.dumps(node)}" for path, node in tree.pop("commands").items()
    ]
    head = json.dumps(tree, indent=2)[:-2]
    return head + ',\n  "commands": {\n' + ",\n".join(lines) + "\n  }\n}\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--tree"]:
        sys.stdout.write(tree_text())
    else:
        serve()
