"""Agent packages: the locked packages of a project's tools, installed once for each lock, in the user's data folder.

They are installed in the sandbox, from the registries of this machine alone. Nothing of them runs meanwhile: wheels
only, and no scripts of npm.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
from msgspec import Struct

from lmagent.app.confined import Confined
from lmagent.core.errors import ConfigError, LmagentError
from lmagent.core.sandbox import Exec, Stream
from lmagent.projects.archive import NPM_LOCK, PYTHON_LOCK, check_locks, python_packages
from lmagent.store.files import store_error
from lmagent.tools.beneath import Beneath
from lmagent.tools.sanitize import printable

SECONDS = 600.0
"""How long an installation may take."""

LARGEST = 10_000_000
"""Bytes of a lock."""

_SHOWN = 1000
"""Characters of a failed installation's output: the last ones."""

_PIP = ("pip3", "install", "--no-input", "--disable-pip-version-check", "--require-hashes", "--no-deps")
_NPM = ("npm", "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")


class Packages(Struct, frozen=True):
    """Folders with installed packages, for Python and for Node.js."""

    libraries: tuple[Path, ...] = ()
    modules: tuple[Path, ...] = ()


async def installed_packages(folder: Path, data: Path, confined: Confined, say: Callable[[str], None]) -> Packages:
    """Return the locked packages of a project's tools; those of a new lock are installed, which `say` announces.

    Raises ConfigError: the lock is not exact, or they cannot be installed.
    """
    names = (PYTHON_LOCK, "package.json", NPM_LOCK)
    locks = {name: text for name in names if (text := _text(folder, name)).strip()}
    check_locks({name: text.encode() for name, text in locks.items()})
    libraries = modules = tuple[Path, ...]()
    if PYTHON_LOCK in locks:
        own = () if confined.name == "docker" else ("--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}")
        argv = (*_PIP, "--only-binary=:all:", *own, "--target", "site", "-r", PYTHON_LOCK)
        lines = "\n".join(python_packages(locks.pop(PYTHON_LOCK)))  # pip gets only the checked lines
        target = await _installed({PYTHON_LOCK: lines}, argv, data, confined, say)
        libraries = (target / "site",)
    if NPM_LOCK in locks and not (folder / "node_modules").is_dir():
        target = await _installed(locks, _NPM, data, confined, say)
        modules = (target / "node_modules",)
    return Packages(libraries, modules)


def _text(folder: Path, name: str) -> str:
    if not (folder / name).exists():
        return ""
    with Beneath(folder) as files:
        return files.read_bytes(name, LARGEST).decode("utf-8", "replace")


async def _installed(
    locks: dict[str, str], argv: tuple[str, ...], data: Path, confined: Confined, say: Callable[[str], None]
) -> Path:
    """Return the folder of a lock's packages, made by a command if it is new. Raise ConfigError."""
    key = repr((sorted(locks.items()), argv, confined.name == "docker")).encode()
    target = data / "agent-packages" / hashlib.sha256(key).hexdigest()[:32]
    if target.is_dir():
        return target
    name = min(locks)
    say(f"installing the packages of {NPM_LOCK if name == 'package.json' else name} …")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with TemporaryDirectory(prefix=".new-", dir=target.parent, ignore_cleanup_errors=True) as made:
        draft = Path(os.path.realpath(made)) / "packages"
        draft.mkdir()
        for lock, text in locks.items():
            (draft / lock).write_text(text, encoding="utf-8")
        try:
            code, output = await _run(argv, draft, confined)
        except LmagentError as error:
            code, output = 1, error.message
        if code:
            reason = printable(output).strip()[-_SHOWN:] or f"{argv[0]} ended with {code}"
            fix = "lock each one with its hash, and check the network and your registries; then start again"
            raise ConfigError(f"the packages of {', '.join(locks)} could not be installed:\n{reason}", fix=fix)
        try:
            os.replace(draft, target)
        except OSError as error:
            if not target.is_dir():  # another program was faster otherwise
                raise store_error(error, "the packages could not be kept", target) from error
    return target


async def _run(argv: tuple[str, ...], folder: Path, confined: Confined) -> tuple[int, str]:
    """Run a command in a sandbox with the registries; return its exit code, and what it wrote."""
    from lmagent.sandbox.packages import find_registries

    registries = await anyio.to_thread.run_sync(partial(find_registries, os.environ, folder, argv[0].rstrip("3")))
    output = bytearray()

    def take(_: Stream, piece: bytes) -> None:
        output.extend(piece)
        del output[: -4 * _SHOWN]

    sandbox = await confined.beside(folder)
    try:
        command = Exec(argv, env=registries.env, timeout=SECONDS, hosts=registries.hosts, merge=True)
        end = await (await sandbox.start(command, take)).wait()
    finally:
        await sandbox.aclose()
    return end.code, f"{argv[0]} is not installed" if end.code == 127 else output.decode("utf-8", "replace")
