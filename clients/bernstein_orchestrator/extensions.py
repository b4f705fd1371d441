"""Skills and plug-ins as this project resolves them, for the row `loaded_extension_set`.

Rules: docs/formats/plan-and-run.md, section 3.3. Plug-ins are found and hashed, never imported:
nothing here runs them, and their entries say so.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final

from bernstein_formats.canonical import JsonValue, Profile, canonical_bytes
from bernstein_formats.errors import BernsteinError, InvalidInput
from bernstein_orchestrator.yaml_document import YamlMapping, parse_document, read_document_file

SCHEMA_VERSION: Final = "1.0.0"
_DEFAULT_SKILL_VERSION: Final = "1.0.0"
_SKILL_FILE: Final = "SKILL.md"
_TEMPLATE_ROOTS: Final = (".bernstein/templates", "templates")
_FRONT_MATTER: Final = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?\n", re.DOTALL | re.MULTILINE)
_NOT_RUN: Final = "PolicyRefusal: plug-ins are recorded but not run by this orchestrator"


@dataclass(frozen=True, slots=True)
class Extension:
    """One entry of the set; ordered as the set lists them."""

    kind: str
    name: str
    source: str
    origin: str
    version: str = ""
    content_digest: str = ""
    failure: str = ""

    def members(self) -> dict[str, JsonValue]:
        return {
            "content_digest": self.content_digest,
            "failure": self.failure,
            "kind": self.kind,
            "loaded": not self.failure,
            "name": self.name,
            "origin": self.origin,
            "source": self.source,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill and the text that it adds to a prompt; the digests are of file and text."""

    extension: Extension
    body: str = ""
    file_digest: str = ""

    def injected_members(self) -> JsonValue:
        return {
            "template_name": f"{self.extension.name}/{_SKILL_FILE}",
            "version": self.extension.version,
            "pre_render_digest": self.file_digest,
            "rendered_digest": blake2b(self.body.encode()).hexdigest(),
            "trigger_source": "role-binding",
            "status": "injected",
            "source": self.extension.source,
        }


def extension_set_members(extensions: Iterable[Extension]) -> dict[str, JsonValue]:
    """Make the row's payload."""
    ordered = sorted(extensions, key=lambda each: (each.kind, each.name, each.source, each.origin))
    entries: list[JsonValue] = [each.members() for each in ordered]
    preimage: JsonValue = {"schema_version": SCHEMA_VERSION, "entries": entries}
    digest = sha256(canonical_bytes(preimage, Profile.PY_JSON)).hexdigest()
    return {
        "extension_set_digest": f"sha256:{digest}",
        "extension_set_schema_version": SCHEMA_VERSION,
        "extension_count": len(entries),
        "extensions": entries,
    }


def find_skills(project: Path) -> tuple[Skill, ...]:
    """Read every skill of the project's template folder."""
    for name in _TEMPLATE_ROOTS:
        root = project / name
        if root.is_dir():
            return tuple(_skill(path) for path in sorted(root.glob(f"skills/*/{_SKILL_FILE}")))
    return ()


def find_plugins(project: Path, names: Sequence[str]) -> tuple[Extension, ...]:
    """Find the module of each declared plug-in without importing anything."""
    return tuple(_plugin(project, name) for name in names)


def _skill(path: Path) -> Skill:
    try:
        content = read_document_file(path, "skill", str(path))
        name, version, body = _manifest(content, path)
    except BernsteinError as error:
        failure = f"{type(error).__name__}: {error.message}"
        return Skill(Extension("skill", path.parent.name, "local", str(path), failure=failure))
    digest = "sha256:" + sha256(body.encode()).hexdigest()
    extension = Extension("skill", name, "local", str(path.resolve()), version, digest)
    return Skill(extension, body, blake2b(content).hexdigest())


def _manifest(content: bytes, path: Path) -> tuple[str, str, str]:
    """Split a skill into name, version and the body that is hashed and shown to a model."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not UTF-8 at byte {error.start}") from None
    found = _FRONT_MATTER.match(text)
    if found is None:
        raise InvalidInput(f"{path}: begins with no manifest between two lines of ---")
    manifest = parse_document(found[1].encode(), str(path))
    if not isinstance(manifest, YamlMapping):
        raise InvalidInput(f"{path}: its manifest is not a mapping")
    name = str(manifest.get("name") or path.parent.name)
    return name, str(manifest.get("version") or _DEFAULT_SKILL_VERSION), text[found.end() :].strip()


def _plugin(project: Path, name: str) -> Extension:
    spec = _module_spec(name.partition(":")[0], [str(project), *sys.path])
    if spec is None or not spec.has_location or spec.origin is None:
        failure = f"ModuleNotFoundError: no module of that name: {name}"
        return Extension("plugin", name, "config", name, failure=failure)
    try:
        digest = "sha256:" + sha256(Path(spec.origin).read_bytes()).hexdigest()
    except OSError as error:
        failure = f"{type(error).__name__}: {error.strerror}"
        return Extension("plugin", name, "config", name, failure=failure)
    origin = str(Path(spec.origin).resolve())
    return Extension("plugin", name, "config", origin, content_digest=digest, failure=_NOT_RUN)


def _module_spec(name: str, search: list[str]) -> ModuleSpec | None:
    """Walk a dotted name by its folders: importlib's own look-up would import the parents."""
    spec: ModuleSpec | None = None
    places: Sequence[str] = search
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    for index in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: index + 1]), list(places))
        if spec is None:
            return None
        places = spec.submodule_search_locations or ()
    return spec
