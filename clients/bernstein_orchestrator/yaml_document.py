"""YAML from people and strangers: values with the lines they stand on, or one clear line.

Aliases are expanded under a budget, so a document can never grow beyond what its reader expects.
"""

from pathlib import Path
from typing import Final, NoReturn

import yaml

from bernstein_formats.errors import InvalidInput, LimitExceeded
from bernstein_runtime.regular_file import read_regular

SIZE_LIMIT: Final = 1024 * 1024
DEPTH_LIMIT: Final = 32
NODE_LIMIT: Final = 100_000

# libyaml's loader where it is installed: the same values about ten times sooner.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAPPING_TAG: Final = "tag:yaml.org,2002:map"
_SEQUENCE_TAG: Final = "tag:yaml.org,2002:seq"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"


class YamlMapping(dict[str, object]):
    """A mapping that knows its line and the lines of its members, counted from 1."""

    def __init__(self, line: int) -> None:
        """Begin empty at a line."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}


def read_document_file(path: Path, what: str, source: str) -> bytes:
    """Read a file whole, unless it is larger than any such document; `what` names its kind."""
    try:
        data = read_regular(path, SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise _refused("file_missing", f"{source}: there is no such {what}", source) from None
    except OSError as error:
        text = f"{source}: the {what} cannot be read ({error.strerror})"
        raise _refused("file_unreadable", text, source) from error
    return data


def parse_document(data: bytes, source: str) -> object:
    """Parse one YAML document; mappings are YamlMapping, sequences are lists."""
    if len(data) > SIZE_LIMIT:
        text = f"{source}: larger than {SIZE_LIMIT} bytes; split it or make it smaller"
        raise LimitExceeded(text, kind="too_large", file=source)
    text = _decoded(data, source)
    try:
        _check_size(text, source)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _Builder(loader, source).value(node, 0)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _syntax_error(error, source) from None


def _decoded(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = f"{source}:{line}: not UTF-8 (byte {error.start}); save the file as UTF-8"
        raise _refused("not_utf8", text, source, line) from None


def _check_size(text: str, source: str) -> None:
    """Walk the events, which never recurse, so that what follows cannot go too deep."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_LIMIT or count > 2 * NODE_LIMIT:
            _too_much(source, None if event.start_mark is None else event.start_mark.line + 1)


def _too_much(source: str, line: int | None) -> NoReturn:
    where = source if line is None else f"{source}:{line}"
    raise LimitExceeded(
        f"{where}: nested deeper than {DEPTH_LIMIT} or, with its aliases expanded,"
        f" more than {NODE_LIMIT} values; write it out more simply",
        kind="too_large",
        file=source,
        line=line,
    )


class _Builder:
    """Nodes to values, with aliases counted each time they are used."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self._loader = loader
        self._source = source
        self._count = 0

    def value(self, node: yaml.Node, depth: int) -> object:
        line = node.start_mark.line + 1
        self._count += 1
        if depth > DEPTH_LIMIT or self._count > NODE_LIMIT:
            _too_much(self._source, line)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, line)
        expected = _SEQUENCE_TAG if isinstance(node, yaml.SequenceNode) else _MAPPING_TAG
        if node.tag != expected:
            text = f"{self._source}:{line}: the tag {node.tag!r} is not used here; leave it out"
            raise _refused("yaml_syntax", text, self._source, line)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, depth + 1) for each in node.value]
        return self._mapping(node, line, depth)

    def _scalar(self, node: yaml.ScalarNode, line: int) -> object:
        try:
            node.value.encode()
            return self._loader.construct_object(node)
        except (ValueError, OverflowError):
            text = f"{self._source}:{line}: {node.value[:40]!r} is no usable text, number or date"
            raise _refused("yaml_syntax", text, self._source, line) from None

    def _mapping(self, node: yaml.Node, line: int, depth: int) -> YamlMapping:
        mapping, merged = YamlMapping(line), YamlMapping(line)
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE_TAG:
                self._merge(merged, self.value(value_node, depth + 1), key_line)
                continue
            key = self._key(key_node, key_line)
            if key in mapping:
                text = f"{self._source}:{key_line}: {key!r} appears twice here; remove one of them"
                raise _refused("duplicate_key", text, self._source, key_line)
            mapping[key] = self.value(value_node, depth + 1)
            mapping.lines[key] = key_line
        for key, value in merged.items():
            if key not in mapping:
                mapping[key] = value
                mapping.lines[key] = merged.lines[key]
        return mapping

    def _key(self, node: yaml.Node, line: int) -> str:
        if not isinstance(node, yaml.ScalarNode):
            text = f"{self._source}:{line}: a key must be plain text"
            raise _refused("yaml_syntax", text, self._source, line)
        self._scalar(node, line)  # refuses what is no text at all
        return str(node.value)

    def _merge(self, merged: YamlMapping, value: object, line: int) -> None:
        """Take in what `<<` names; of several mappings the first has precedence."""
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, YamlMapping):
                text = f"{self._source}:{line}: << must name a mapping or a list of mappings"
                raise _refused("yaml_syntax", text, self._source, line)
            for key, inner in each.items():
                if key not in merged:
                    merged[key] = inner
                    merged.lines[key] = each.lines[key]


def _syntax_error(error: yaml.YAMLError, source: str) -> InvalidInput:
    mark = getattr(error, "problem_mark", None)
    line = None if mark is None else mark.line + 1
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    where = source if line is None else f"{source}:{line}"
    text = f"{where}: not YAML: {str(problem).splitlines()[0]}"
    return _refused("yaml_syntax", text, source, line)


def _refused(kind: str, text: str, source: str, line: int | None = None) -> InvalidInput:
    return InvalidInput(text, kind=kind, file=source, line=line)
