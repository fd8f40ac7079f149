"""Archive: a project as one `.tar.gz`, with the same bytes wherever and whenever it is built.

manifest.json      first, so that a reader knows what must follow before it unpacks anything
agent.yaml, prompts/…, tools/…, tests/…     in the order of their names, without owner and time
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec
from msgspec import Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ConfigError, StoreError
from lmagent.projects.load import FILE, AgentFolder, env_file_of
from lmagent.store.files import OPEN_FLAGS, replace_whole, store_error
from lmagent.tools.sanitize import visible

T = TypeVar("T")

VERSION = 1
MANIFEST = "manifest.json"

PYTHON_LOCK, NPM_LOCK = "requirements.txt", "package-lock.json"
"""The files of a project with the exact versions of the packages that its tools need."""

_PYTHON_PACKAGE = re.compile(
    r"[A-Z0-9][A-Z0-9._-]*(\[[A-Z0-9._, -]*\])?\s*==\s*[A-Z0-9.!+_-]+"  # the name, its extras, the version
    r"(\s*;((?!\s-).)*)?(\s+--hash[= ][A-Z0-9]+:[A-F0-9]+)*",  # the environments that need it, and hashes
    re.ASCII | re.IGNORECASE,
)

MOST_FILES = 2000
LARGEST_FILE = 50_000_000
LARGEST = 200_000_000
"""How many files a project may have, and how many bytes a file and all of them."""

_PIECE = 1 << 20
_LONGEST_NAME = 240

LEFT_OUT = frozenset({"node_modules", "__pycache__", "venv", "data"})
"""Folders of a project that are no part of it: installed packages, caches, and what the agent made."""

_KEPT_HIDDEN = frozenset({".dockerignore", ".env.example", ".gitignore"})

SECRETS = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY"
    rb"|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bAKIA[0-9A-Z]{16}\b"
    rb"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[A-Za-z0-9_-]{35}|\bglpat-[A-Za-z0-9_-]{20,}|\bhf_[A-Za-z0-9]{30,}"
)
"""The forms of keys: OpenAI, GitHub, AWS, Slack, Google, GitLab, Hugging Face."""

_SHORTEST_SECRET = 6
"""Bytes of a secret's value from which on it is searched for: a shorter one is in any file."""


class ProjectFile(Struct, frozen=True):
    """A file of an archive: its SHA-256, its bytes, and whether it may be run as a program."""

    sha256: str
    size: int
    program: bool = False


class AgentManifest(Struct, frozen=True):
    """The list of an archive's files, by their names."""

    lmagent_agent: int
    name: str
    files: dict[str, ProjectFile]
    prompts: dict[str, str] = {}


# --- building ---------------------------------------------------------------------------------------------------------


def build(folder: AgentFolder, target: Path, env: Mapping[str, str]) -> AgentManifest:
    """Write a project's archive. `env`: the variables of the environment, among which are the secrets' values.

    Raises ConfigError for a file that cannot be part of it, such as one with a key; StoreError if it cannot be
    written. A file that is there already stays then.
    """
    contents = dict(_contents(folder.path, target))
    secrets = _secret_values(folder, env)
    for name, (content, _) in contents.items():
        _without_secrets(name, content, secrets)
    check_locks({name: content for name, (content, _) in contents.items()})
    files = {
        name: ProjectFile(hashlib.sha256(content).hexdigest(), len(content), program)
        for name, (content, program) in contents.items()
    }
    manifest = AgentManifest(VERSION, folder.slug, files, folder.versions)
    written = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=written, compresslevel=9, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        listed = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
        for name, (content, program) in {MANIFEST: (listed, False), **contents}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755 if program else 0o644
            archive.addfile(member, io.BytesIO(content))
    try:
        replace_whole(target, target.with_name(f".{target.name}.{os.getpid()}.new"), written.getvalue())
    except OSError as error:
        raise store_error(error, "the archive could not be written", target) from error
    return manifest


def _contents(root: Path, target: Path) -> Iterator[tuple[str, tuple[bytes, bool]]]:
    """Yield the files of a project in the order of their names. Raise ConfigError."""
    total = 0
    names = sorted(_names(root, target))
    if len(names) > MOST_FILES:
        raise ConfigError(f"the project has more than {MOST_FILES:,} files", fix="move other files elsewhere")
    for name in names:
        path = root / name
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | OPEN_FLAGS), "rb") as file:
                found = os.fstat(file.fileno())
                content = file.read(LARGEST_FILE + 1) if stat.S_ISREG(found.st_mode) else None
        except OSError as error:
            raise ConfigError(f"{visible(name)} cannot be read: {error.strerror}", fix="make it readable") from None
        total += len(content or b"")
        if content is None or len(content) > LARGEST_FILE or total > LARGEST or len(name) > _LONGEST_NAME:
            what = "is no regular file" if content is None else "is too large, or has too long a name, for an archive"
            raise ConfigError(f"{visible(name)} {what}", fix="move it out of the project")
        yield name, (content, bool(found.st_mode & stat.S_IXUSR))


def _names(root: Path, target: Path) -> Iterator[str]:
    for folder, inner, files in os.walk(root):
        here = Path(folder)
        inner[:] = [name for name in inner if name not in LEFT_OUT and not name.startswith(".")]
        for name in (*inner, *files):
            path = here / name
            relative = path.relative_to(root).as_posix()
            if path.is_symlink():
                fix = "put a copy of its target in its place"
                raise ConfigError(f"{visible(relative)} is a link, which an archive cannot have", fix=fix)
            hidden = name.startswith(".") and name not in _KEPT_HIDDEN
            is_built = name.endswith((".pyc", ".tar.gz")) or path == target or relative == MANIFEST
            if name in files and not (hidden or is_built):
                yield relative


def _secret_values(folder: AgentFolder, env: Mapping[str, str]) -> dict[bytes, str]:
    """Return the values that no file may hold, each with where it comes from."""
    found = {env[name].encode(): name for name, one in folder.spec.env.items() if one.secret and env.get(name)}
    found |= {
        value.encode("utf-8", "surrogateescape"): f"{name} in .env" for name, value in env_file_of(folder).items()
    }
    return {value: name for value, name in found.items() if len(value) >= _SHORTEST_SECRET}


def _without_secrets(name: str, content: bytes, secrets: Mapping[bytes, str]) -> None:
    what = next((f"the value of {source}" for value, source in secrets.items() if value in content), "")
    if not what and (found := SECRETS.search(content)) is not None:
        line = content[: found.start()].count(b"\n") + 1
        what = f"a key ({found[0][:6].decode('ascii', 'replace')}…, line {line})"
    if what:
        fix = "take it out, and name it under `env` in agent.yaml with `secret: true`"
        raise ConfigError(f"{visible(name)} contains {what}: an archive is given to others", fix=fix)


def check_locks(contents: Mapping[str, bytes]) -> None:
    """Check that the packages which the tools need are named exactly. Raise ConfigError."""
    python_packages(contents.get(PYTHON_LOCK, b"").decode("utf-8", "replace"))
    about = _json("package.json", contents, dict[str, Any])
    lock = _json(NPM_LOCK, contents, _NpmLock)
    if about.get("dependencies") and NPM_LOCK not in contents:
        what = f"package.json names packages, and there is no {NPM_LOCK}"
        raise ConfigError(what, fix="npm install --package-lock-only makes it")
    if bare := [
        name for name, package in lock.packages.items() if name and not (package.integrity or package.inBundle)
    ]:
        what = f"{NPM_LOCK} has no hash of {visible(bare[0])[:80]}"
        raise ConfigError(what, fix="npm install --package-lock-only makes the lock anew")


def python_packages(lock: str) -> list[str]:
    """Return the lines of a Python lock, one for each package. Raise ConfigError for a line of another form.

    Options of pip are refused: they could read other files, or let a package's own code run while it is installed.
    """
    found = list[str]()
    for line in re.sub(r"\\\r?\n", " ", lock).splitlines():
        wanted = re.sub(r"(^|\s)#.*", "", line).strip()
        if wanted and not _PYTHON_PACKAGE.fullmatch(wanted):
            has_more = wanted.startswith("-") or "==" in wanted
            what = "has more than packages, versions and hashes:" if has_more else "does not say which version of"
            fix = "uv pip compile --generate-hashes requirements.in -o requirements.txt"
            raise ConfigError(f"{PYTHON_LOCK} {what} {visible(wanted)[:80]}", fix=fix)
        found += [wanted] if wanted else []
    return found


class _NpmPackage(Struct):
    integrity: str = ""
    inBundle: bool = False  # it comes with another package, whose hash covers it


class _NpmLock(Struct):
    packages: dict[str, _NpmPackage] = {}


def _json(name: str, contents: Mapping[str, bytes], form: type[T]) -> T:
    try:
        return decode_json(contents.get(name, b"{}"), form)
    except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
        raise ConfigError(f"{name} cannot be read: {wrong}", fix="correct it") from None


# --- reading ----------------------------------------------------------------------------------------------------------


def unpack(path: Path, parent: Path) -> Path:
    """Unpack an archive into a new folder below `parent`, named by its content, or find it there; return the folder.

    Nothing of it is run. Raises StoreError, before a file is written, if it is no archive of a project or is changed.
    """
    manifest, digest = _checked(path)
    target = parent / f"{manifest.name}-{digest[:12]}"
    if target.is_dir():
        return target
    draft = parent / f".{target.name}.{os.getpid()}.new"
    try:
        for name, content in _as_listed(path, manifest):
            place = draft / name
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            mode = 0o700 if manifest.files[name].program else 0o600
            with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, mode), "wb") as fresh:
                fresh.write(content)
        os.replace(draft, target)
    except OSError as error:
        raise store_error(error, "the archive could not be unpacked", target) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _checked(path: Path) -> tuple[AgentManifest, str]:
    """Read an archive once; return its manifest and its digest. Raise StoreError if a file is not as listed."""
    name, content = next(_members(path), ("", b""))
    manifest = _manifest(path, name, content)
    for _ in _as_listed(path, manifest):
        pass
    return manifest, hashlib.sha256(content).hexdigest()


def _as_listed(path: Path, manifest: AgentManifest) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive. Raise StoreError if one is not as listed, also if it was changed just now."""
    left = dict(manifest.files)
    for name, content in _members(path):
        if name == MANIFEST:
            continue
        listed = left.pop(name, None)
        if listed is None or hashlib.sha256(content).hexdigest() != listed.sha256:
            raise _refused(path, f"{visible(name)[:80]} is not as its manifest says")
        yield name, content
    if left:
        raise _refused(path, "files are missing")


def _manifest(path: Path, name: str, content: bytes) -> AgentManifest:
    try:
        manifest = decode_json(content, AgentManifest)
    except ValueError:
        manifest = None
    if name != MANIFEST or manifest is None or FILE not in manifest.files:
        raise _refused(path, f"it does not begin with a {MANIFEST}")
    if manifest.lmagent_agent != VERSION:
        raise _refused(path, f"its form is {manifest.lmagent_agent}, and this lmagent reads {VERSION}")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", manifest.name):
        raise _refused(path, "its name cannot be an agent's")
    return manifest


class _Careful:
    """A decompressed file of which nothing reads much at once: `tarfile` reads the headers of names whole."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self.seek, self.tell, self.close = file.seek, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _PIECE:
            raise tarfile.ReadError("a header is too large")
        return self._file.read(size)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive; each is judged by its header before anything of it is read."""
    seen, total = set[str](), 0
    try:
        with (
            gzip.open(path, "rb") as packed,
            tarfile.open(fileobj=cast("IO[bytes]", _Careful(packed)), mode="r:") as archive,
        ):
            while (member := archive.next()) is not None:
                name, total = member.name, total + member.size
                if not member.isreg() or not _is_plain(name) or name in seen:
                    raise _refused(path, f"it has {visible(name)[:80]!r}, which no project has")
                seen.add(name)
                if len(seen) > MOST_FILES + 1 or member.size > LARGEST_FILE or total > LARGEST:
                    raise _refused(path, f"it is larger than {MOST_FILES:,} files or {LARGEST >> 20} MB")
                file = archive.extractfile(member)
                assert file is not None  # it is a regular file
                yield name, b"".join(iter(partial(file.read, _PIECE), b""))
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise _refused(path, str(error)) from None
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise _refused(path, "it is no .tar.gz") from None
        raise store_error(error, "the archive could not be read", path) from error


def _is_plain(name: str) -> bool:
    parts = name.split("/")
    return not {"", ".", ".."} & {*parts} and "\0" not in name and "\\" not in name and len(name) <= _LONGEST_NAME


def _refused(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is not unpacked: {why}", fix="use an archive that lmagent agent build made")
