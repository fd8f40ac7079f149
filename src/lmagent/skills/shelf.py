"""Shelf: the skills of a workspace and of the user, and which of them may be used.

    .lmagent/skills/NAME/     the workspace's own: text skills, and Python skills that were promoted
    .claude/skills/NAME/      those of another agent
    ~/.agents/skills/NAME/    those of the user, for several agents

A text skill is a SKILL.md with what belongs to it. A Python skill is a `skill.json` with `v1.py`, `v2.py` … beside it.
Whether a skill may be used is the user's decision about its exact content, kept in the user's data folder: a skill
that changes is a proposal again. In a folder that the user trusts, the workspace's own text skills need no decision.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.config.files import write_private
from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, LmagentError, StoreError
from lmagent.skills.feature import SkillPlaces
from lmagent.skills.standard import FILE, LONGEST, TextSkill, parse_skill
from lmagent.store.files import append_lines, make_private, replace_whole, store_error
from lmagent.tools.plain import NotPlain, read_plain
from lmagent.tools.sanitize import visible

MANIFEST = "skill.json"
DECISIONS = "skills.json"  # in the user's data folder
RUNS = "runs.jsonl"  # of a Python skill, beside its manifest

LARGEST = 1 << 20  # bytes of all files of a skill
MOST_FILES = 200
MOST_SKILLS = 200  # of one folder

FOLDER_NAME = re.compile(r"[\w. -]{1,64}")

TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")

State = Literal["enabled", "disabled", "proposed", "changed", "broken"]


class Trial(Struct, frozen=True):
    """A recorded call that has to work: its arguments, and the beginning of its result when it was recorded."""

    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str = ""


class Manifest(Struct, frozen=True):
    """The `skill.json` of a Python skill.

    Attributes:
        version: the version in use; `v{version}.py` holds it.
        source: the file that it was promoted from.
    """

    tool: str
    function: str
    description: str
    schema: dict[str, Any]
    version: int
    trial: Trial = Trial()
    source: str = ""


class RunRecord(Struct, frozen=True):
    """One use of a Python skill."""

    at: float
    ok: bool
    seconds: float
    result: str
    trial: bool = False


class Skill(Struct, frozen=True):
    """A skill that was found.

    Attributes:
        name: of its folder; for a Python skill, of its tool.
        text: its content, if it is a text skill.
        manifest: the same, if it is a Python skill.
        digest: SHA-256 of its content, on which the user decides.
        code: the Python in use; it is what the digest is of.
        reason: why it is broken.
    """

    name: str
    folder: Path
    state: State
    text: TextSkill | None = None
    manifest: Manifest | None = None
    digest: str = ""
    code: str = ""
    reason: str = ""

    @property
    def description(self) -> str:
        if self.text is not None:
            return self.text.description
        return self.manifest.description if self.manifest is not None else self.reason


class Decision(Struct):
    """The user's decision about a folder: the digests that may be used, and whether it is switched off."""

    approved: list[str] = field(default_factory=list[str])
    off: bool = False


class Shelf:
    """All skills of a workspace."""

    def __init__(self, places: SkillPlaces) -> None:
        self.own = places.roots[0]
        self._places = places
        self._decisions = places.data_dir / DECISIONS

    # --- reading ----------------------------------------------------------------------------------------------------

    def all(self) -> list[Skill]:
        """Return the skills by name. Of two with one name, the nearer folder's counts."""
        decisions, found = self._load(), dict[str, Skill]()
        for root in self._places.roots:
            for folder in _folders(root) if self._is_plain(root) else ():
                chosen = self._places.project is None or folder.name in self._places.chosen
                if chosen and folder.name not in found and (skill := self._skill(folder, decisions)) is not None:
                    found[folder.name] = skill
        return sorted(found.values(), key=lambda skill: skill.name)

    def _is_plain(self, root: Path) -> bool:
        """Return whether a folder of skills is where it says: in a stranger's workspace a link leads elsewhere."""
        workspace = self._places.workspace
        return not (root.is_relative_to(workspace) and (root.is_symlink() or root.parent.is_symlink()))

    def enabled(self) -> list[Skill]:
        return [skill for skill in self.all() if skill.state == "enabled"]

    def find(self, name: str) -> Skill:
        """Return the skill with a name. Raise ConfigError if no skill has it."""
        for skill in self.all():
            if skill.name == name:
                return skill
        raise ConfigError(f"there is no skill {name!r}", terminal="lmagent skills list")

    def runs(self, skill: Skill) -> list[RunRecord]:
        """Return the uses of a Python skill, oldest first."""
        found = list[RunRecord]()
        try:
            lines = _text(skill.folder, RUNS).splitlines()
        except StoreError:
            return []  # no uses yet, or no regular file
        for line in lines:
            try:
                found.append(decode_json(line, RunRecord))
            except msgspec.DecodeError:
                continue  # torn by a crash
        return found

    def _skill(self, folder: Path, decisions: dict[str, Decision]) -> Skill | None:
        name = folder.name
        try:
            if (folder / MANIFEST).exists():
                skill = self._python(folder, MANIFEST)
            elif (folder / FILE).exists():
                text = parse_skill(_text(folder, FILE), str(folder / FILE))
                skill = Skill(name, folder, "proposed", text=text, digest=_digest(folder))
            else:
                return None
        except (LmagentError, OSError) as wrong:
            reason = wrong.message if isinstance(wrong, LmagentError) else f"{folder} cannot be read: {wrong.strerror}"
            return Skill(name, folder, "broken", reason=reason)
        return replace(skill, state=self._state(skill, decisions.get(os.path.realpath(folder))))

    def _python(self, folder: Path, file: str) -> Skill:
        """Return a Python skill as one of its manifests describes it. Raise StoreError for a broken one."""
        try:
            manifest = decode_json(_text(folder, file), Manifest)
        except msgspec.DecodeError as wrong:
            raise StoreError(
                f"{folder / file} is damaged: {wrong}", fix="put the file back, or propose it again"
            ) from None
        if reason := self._wrong(manifest, folder, file):
            raise StoreError(reason, fix="correct it, or propose it again")
        code = _text(folder, f"v{manifest.version}.py")
        digest = hashlib.sha256(msgspec.json.encode((manifest, code))).hexdigest()
        return Skill(folder.name, folder, "proposed", manifest=manifest, digest=digest, code=code)

    def _wrong(self, manifest: Manifest, folder: Path, file: str) -> str:
        """Return why no tool can be made of a manifest; empty if one can."""
        if manifest.tool != folder.name or not TOOL_NAME.fullmatch(manifest.tool):
            return f"{file} names another tool than its folder"
        if manifest.tool in self._places.taken:
            return "its name is another tool's"
        if len(manifest.description) > LONGEST or visible(manifest.description) != manifest.description:
            return f"the description in {file} is too long or has hidden characters"
        return "" if _is_schema(manifest.schema) else f"{file} describes no arguments of a tool"

    def _state(self, skill: Skill, decision: Decision | None) -> State:
        if decision is not None and decision.off:
            return "disabled"
        if decision is not None and decision.approved:
            return "enabled" if skill.digest in decision.approved else "changed"
        own = skill.text is not None and skill.folder.parent == self.own
        trusted = self._places.project is not None or self._places.trusted()
        return "enabled" if own and trusted else "proposed"

    # --- deciding ---------------------------------------------------------------------------------------------------

    def enable(self, skill: Skill) -> None:
        """Allow this exact content. A Python skill has to pass its trial first: `skills.run.test`."""
        if skill.state == "broken":
            raise ConfigError(f"the skill {skill.name} is broken: {skill.reason}", fix="correct it first")
        self._decide(skill, off=False)

    def disable(self, skill: Skill) -> None:
        self._decide(skill, off=True)

    def rollback(self, name: str) -> Skill:
        """Bring back the version before the present one.

        Raises ConfigError: it is the first; StoreError: the one before is broken, and the present one stays.
        """
        skill = self.find(name)
        manifest = skill.manifest
        if manifest is None or manifest.version < 2:
            raise ConfigError(f"{name} has no earlier version", terminal=f"lmagent skills show {name}")
        earlier = self._python(skill.folder, f"v{manifest.version - 1}.json")
        self._write(skill.folder, {MANIFEST: msgspec.json.encode(earlier.manifest)})
        return self.find(name)

    def require_free(self, tool: str) -> None:
        """Raise ConfigError unless a Python skill can have this name."""
        if not TOOL_NAME.fullmatch(tool):
            raise ConfigError(
                f"{tool!r} is no name for a tool", fix="use 2 to 40 lower-case letters, digits and _, a letter first"
            )
        if tool in self._places.taken:
            raise ConfigError(f"{tool!r} is the name of another tool", fix="choose a different name")

    def propose(self, manifest: Manifest, code: str) -> Skill:
        """Keep a new version of a Python skill; it is used once the user enables it."""
        folder = self.own / manifest.tool
        versions = [int(path.stem[1:]) for path in folder.glob("v*.py") if path.stem[1:].isdigit()]
        manifest = replace(manifest, version=max(versions, default=0) + 1)
        encoded = msgspec.json.encode(manifest)
        self._write(
            folder,
            {f"v{manifest.version}.py": code.encode(), f"v{manifest.version}.json": encoded, MANIFEST: encoded},
        )
        return self.find(manifest.tool)

    def remove(self, skill: Skill) -> None:
        """Delete one of the workspace's own skills. Raise ConfigError for another agent's."""
        if skill.folder.parent != self.own:
            raise ConfigError(f"{skill.name} is in {skill.folder}, which other agents use", fix="disable it instead")
        shutil.rmtree(skill.folder)

    def record(self, skill: Skill, run: RunRecord) -> None:
        """Append a use; losing some to a full disk, or to a record that has grown too large, does no harm."""
        path = skill.folder / RUNS
        with suppress(OSError):
            if os.path.lexists(path) and path.lstat().st_size > LARGEST // 2:
                path.unlink()
            append_lines(path, msgspec.json.encode(run) + b"\n")

    def _write(self, folder: Path, files: dict[str, bytes]) -> None:
        if not self._is_plain(folder.parent) or folder.is_symlink():
            raise StoreError(f"{folder} is a link", fix="replace it with a folder")
        try:
            make_private(folder)
            for name, content in files.items():
                replace_whole(folder / name, folder / f".{name}.new", content)
        except OSError as error:
            raise store_error(error, "the skill could not be written", folder) from error

    def _load(self) -> dict[str, Decision]:
        try:
            return decode_json(self._decisions.read_bytes(), dict[str, Decision])
        except (OSError, msgspec.DecodeError):
            return {}  # without a readable decision every skill is a proposal

    def _decide(self, skill: Skill, *, off: bool) -> None:
        decisions = self._load()
        decision = decisions.setdefault(os.path.realpath(skill.folder), Decision())
        if not off:
            decision.approved.append(skill.digest)
        decision.off = off
        write_private(self._decisions, msgspec.json.encode(decisions).decode())


def _is_schema(schema: dict[str, Any]) -> bool:
    """Return whether a schema has the form that `skills.python` writes."""
    properties, needed = schema.get("properties"), schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict) or not isinstance(needed, list):
        return False
    fields = cast("dict[str, Any]", properties)
    return all(isinstance(field, dict) and "$ref" not in field for field in fields.values()) and all(
        name in fields for name in cast("list[Any]", needed)
    )


def _folders(root: Path) -> Iterator[Path]:
    try:
        names = sorted(os.listdir(root))[:MOST_SKILLS]
    except OSError:
        return
    for name in names:
        if (
            not name.startswith(".")
            and FOLDER_NAME.fullmatch(name)
            and not (root / name).is_symlink()
            and (root / name).is_dir()
        ):
            yield root / name


def _text(folder: Path, name: str) -> str:
    """Return a file of a skill. Raise StoreError if it is no regular file, too large, or missing."""
    try:
        plain = read_plain(folder, (name,), LARGEST)
    except NotPlain as what:
        raise StoreError(f"{folder / name} is {what}", fix="make it a regular file") from None
    if plain is None or plain.more:
        why = "is missing" if plain is None else f"is larger than {LARGEST >> 20} MB"
        raise StoreError(f"{folder / name} {why}", fix="put the skill's folder back, or remove it")
    return plain.text


def _digest(folder: Path) -> str:
    """Return the digest of a text skill with all its files. Raise StoreError if they are too many or too large."""
    digest, size, count = hashlib.sha256(), 0, 0
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise StoreError(f"{path} is a link", fix="replace it with its content")
        if not path.is_file():
            continue
        content = path.read_bytes() if path.stat().st_size <= LARGEST else b""
        size, count = size + path.stat().st_size, count + 1
        if size > LARGEST or count > MOST_FILES:
            raise StoreError(f"{folder} is larger than {LARGEST >> 20} MB or {MOST_FILES} files", fix="make it smaller")
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
        digest.update(b"%d:%b%d:%b" % (len(name), name, len(content), content))
    return digest.hexdigest()
