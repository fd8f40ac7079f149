"""Launch: what a server's program is given: a sandbox and a command, and the advice after a failure."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from shlex import quote

import anyio
from msgspec.structs import replace

from lmagent.config.paths import home_dir
from lmagent.core.errors import SandboxError
from lmagent.core.sandbox import Exec, Sandbox
from lmagent.mcp.protocol.logs import digest
from lmagent.mcp.spec import INSTALLERS, ServerSpec
from lmagent.sandbox.choose import alike, choose
from lmagent.sandbox.environment import SandboxRequest, find_program
from lmagent.sandbox.packages import Registries, find_registries

_SYSTEM = ("/usr/", "/bin/", "/sbin/")
_ENV = {"npm_config_prefer_offline": "true", "npm_config_update_notifier": "false", "npm_config_yes": "true"}
"""For npx: a package that is in the server's home is used without asking the registry or a user."""


class Launcher:
    """Prepares the programs of a workspace's servers. Its methods run on the thread of the servers."""

    def __init__(self, workspace: Path, request: SandboxRequest, data: Path) -> None:
        self._workspace = workspace
        self._request = replace(request, scratch=data / "mcp" / "homes")
        self._lock = anyio.Lock()
        self._backend = ""
        self._registries: dict[str, Registries] = {}

    async def prepare(self, spec: ServerSpec) -> tuple[Sandbox, Exec]:
        """Return where and how a server's program runs. Raises SandboxError."""
        program, session = spec.command[0], _home_name(self._workspace, spec)
        if spec.needs.unconfined:
            sandbox = alike(self._workspace, self._request, "off")
            return sandbox, Exec(spec.command, spec.cwd, spec.env, None, session=session)
        request = self._with_paths(spec)
        backend = await self._chosen()
        sandbox = alike(self._workspace, request, backend)
        if backend != "docker" and (outside := self._outside(program, sandbox.environment["PATH"])):
            program = str(outside)
            sandbox = alike(self._workspace, replace(request, read=(*request.read, *_folders(outside))), backend)
        env, hosts = {**_ENV, **spec.env}, [host for host in spec.needs.network if host != "packages"]
        if "packages" in spec.needs.network:
            registries = await self._known_registries(Path(spec.command[0]).name)
            env, hosts = {**registries.env, **env}, [*hosts, *registries.hosts]
        return sandbox, Exec((program, *spec.command[1:]), spec.cwd, env, None, tuple(hosts), session=session)

    def _with_paths(self, spec: ServerSpec) -> SandboxRequest:
        """Return the options of a sandbox that has the folders that a server needs. Raises SandboxError."""
        paths = [(Path(each.removesuffix(":rw")), each.endswith(":rw")) for each in spec.needs.paths]
        for path, _ in paths:
            if not path.is_dir():
                raise SandboxError(f"it needs the folder {path}, which does not exist", fix=f"mkdir -p {path}")
        return replace(
            self._request,
            read=(*self._request.read, *(path for path, is_writable in paths if not is_writable)),
            write=tuple(path for path, is_writable in paths if is_writable),
        )

    async def _chosen(self) -> str:
        """Return the sandbox of this machine, which one probe chooses for all servers."""
        async with self._lock:
            if not self._backend:
                chosen, report = await choose(self._workspace, self._request)
                await chosen.aclose()
                self._backend = report.backend
            return self._backend

    def _outside(self, name: str, inside: str) -> Path | None:
        """Return the place of a program that is on the user's PATH, and not on that of the sandbox."""
        if find_program(name, {"PATH": inside}, self._workspace):
            return None
        found = find_program(name, self._request.env, self._workspace)
        return Path(found) if found else None

    async def _known_registries(self, program: str) -> Registries:
        async with self._lock:
            if program not in self._registries:
                find = partial(find_registries, self._request.env, self._workspace, program)
                self._registries[program] = await anyio.to_thread.run_sync(find)
            return self._registries[program]


def _folders(program: Path) -> tuple[Path, ...]:
    """Return the folders that a program needs to be seen: its own, or that of its virtual environment."""
    found: list[Path] = []
    for path in (program, Path(os.path.realpath(program))):
        folder = path.parent.parent if (path.parent.parent / "pyvenv.cfg").is_file() else path.parent
        # A program in the home folder itself, or above it, would show all of it.
        if not home_dir(os.environ).is_relative_to(folder) and not f"{folder}/".startswith(_SYSTEM):
            found.append(folder)
    return tuple(found)


def _home_name(workspace: Path, spec: ServerSpec) -> str:
    """Return the name of a server's home: one for all workspaces if the user's own file configures it."""
    return digest(spec.file if spec.scope == "user" else workspace, spec.scope, spec.name)


def login(spec: ServerSpec) -> str:
    return f"lmagent mcp login {quote(spec.name)}"


def advice(spec: ServerSpec) -> str:
    """Return what to type after a server could not be started, or ended before it was ready."""
    where = f" in {spec.file}" if spec.file else ""
    if spec.url:
        return f"check that it runs, and its url{where}"
    is_installer = Path(spec.command[0]).name in INSTALLERS
    if is_installer and not spec.needs.unconfined and "packages" not in spec.needs.network:
        return f'let it be downloaded: add "network": ["packages"] to its entry{where}'
    return f"lmagent mcp logs {quote(spec.name)}"
