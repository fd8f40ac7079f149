"""Packages: the registries that npm, pip and uv of this machine use, for servers that install themselves (npx, uvx).

Nothing is built in: the programs are asked, outside the workspace, whose files must not choose a registry.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, field

from lmagent.config.paths import home_dir
from lmagent.sandbox.environment import find_program
from lmagent.sandbox.hosts import is_public, is_reachable

_DEFAULT = re.compile(r"Base\s+URL\s+of\s+the\s+Python\s+Package\s+Index\s+\(default\s+(https?://[^\s)]+)\)")
_LINK = re.compile(r'(?:href=|"url":\s*)"(https?://[^"#]+)')


class Registries(Struct, frozen=True):
    """The `host:port` patterns of the registries, and the variables that lead programs there."""

    hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


_NODE = ("npx", "npm", "pnpm", "bunx", "node")
_PYTHON = ("uvx", "uv", "pipx", "pip", "python", "python3")


def find_registries(env: Mapping[str, str], workspace: Path, program: str) -> Registries:
    """Return the registries that a program may need. It takes seconds; missing programs are passed over."""
    npm = index = ""
    if program not in _PYTHON:
        npm = _asked(("npm", "config", "get", "registry"), env, workspace).strip()
    if program not in _NODE:
        index = _python_index(env, workspace)
    urls = [url for url in (npm, index, *_files_of(index)) if url.startswith(("http://", "https://"))]
    variables = {"npm_config_registry": npm} if npm.startswith("http") else {}
    if index:
        variables |= {"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index}
    return Registries(tuple(dict.fromkeys(map(pattern_of, urls))), variables)


def _python_index(env: Mapping[str, str], workspace: Path) -> str:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if env.get(name, "").startswith("http"):
            return env[name]
    try:
        table = tomllib.loads((home_dir(env) / ".config" / "uv" / "uv.toml").read_text())
    except (OSError, ValueError):
        table = {}
    if str(table.get("index-url", "")).startswith("http"):
        return str(table["index-url"])
    for program in ("pip", "pip3"):
        named = _asked((program, "config", "get", "global.index-url"), env, workspace).strip()
        if named.startswith("http"):
            return named
        if found := _DEFAULT.search(_asked((program, "install", "--help"), env, workspace)):
            return found[1]
    return ""


def _files_of(index: str) -> tuple[str, ...]:
    """Return an address of each host that an index refers to for its files, by the page of one package."""
    if not index:
        return ()
    import httpx2  # the SDK's

    try:
        page = httpx2.get(
            f"{index.rstrip('/')}/pip/", timeout=5, headers={"Accept": "text/html"}, follow_redirects=True
        )
    except httpx2.HTTPError:
        return ()
    urls: list[str] = _LINK.findall(page.text[:500_000])
    return tuple({urlsplit(url).netloc: url for url in urls}.values())[:8]


def _addresses(host: str, port: int) -> Iterable[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, ValueError):
        return ()


def pattern_of(url: str, resolve: Callable[[str, int], Iterable[str]] = _addresses) -> str:
    """Return the `host:port` of a registry, which may reach as far as its name leads here: the user's programs use it.

    A registry on the internet stays there, whatever its name leads to later.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    if host == "localhost" or re.fullmatch(r"[\d.]+|.*:.*", host):
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    found = [ip_address(address) for address in resolve(host, port)]
    if all(map(is_public, found)):
        return f"{host}:{port}"
    return f"{'ip' if all(is_reachable(address, 'local') for address in found) else 'any'}:{host}:{port}"


def _asked(argv: tuple[str, ...], env: Mapping[str, str], workspace: Path) -> str:
    program = find_program(argv[0], env, workspace)
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            cwd=os.sep,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
