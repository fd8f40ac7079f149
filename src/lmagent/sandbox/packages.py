"""Packages: the registries from which npm, pip, uv and apt of this machine install, and the way of commands to them.

Nothing is built in: the user's variables and files are read, and the programs are asked, outside the workspace, whose
files must not choose a registry.

A registry that the user configured may be on the user's own network. Every other one is reached on the internet only,
so a name of it that leads to a private address is refused.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from msgspec import Struct, field

from lmagent.config.files import read_small
from lmagent.config.paths import home_dir
from lmagent.core.errors import ConfigError
from lmagent.core.sandbox import HostOpener
from lmagent.sandbox.environment import find_program
from lmagent.sandbox.hosts import LOOPBACK, Target, is_private, is_public, is_reachable, parse_pattern, parse_target

PRESET = "packages"
"""The name of all registries together, in `sandbox_hosts` and in rules, `net(packages)`."""

_HELP = (("pip", "install", "--help"), ("pip3", "install", "--help"), ("uv", "pip", "install", "--help"))
_DEFAULT = re.compile(r"package\s+index\s+\((?:by\s+)?default:?\s+<?(https?://[^\s>)]+)", re.IGNORECASE)
"""Where programs name the index that they use if the user configured none."""

_LINK = re.compile(r'(?:href=|"url":\s*)"(https?://[^"#]+)')
_PAGE, _HOSTS = 1 << 20, 8  # bytes of an index's page that are read, and hosts of files
_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_VISIBLE = ("/etc/ssl/certs", "/etc/pki/tls/certs")  # folders of certificates that commands see

AskHost = Callable[[str, int], Awaitable[bool]]
"""Asks whether commands may reach a host and port of a registry."""


class Registries(Struct, frozen=True):
    """The `host:port` patterns of the registries, and the variables that lead programs there."""

    hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])


_NODE = ("npx", "npm", "pnpm", "bunx", "node")
_PYTHON = ("uvx", "uv", "pipx", "pip", "python", "python3")


def find_registries(env: Mapping[str, str], workspace: Path, program: str) -> Registries:
    """Return the registries that a program may need. It takes seconds; missing programs are passed over."""
    npm, index = configured(env)
    npm = "" if program in _PYTHON else npm or _npm_default(env, workspace)
    index = "" if program in _NODE else index or _index_default(env, workspace)
    hosts = [pattern_of(url) for url in (npm, index) if url]
    files = _hosts_of_files(index, near=_is_near(pattern_of(index))) if index else ()
    return Registries(tuple(dict.fromkeys((*hosts, *files))), _variables(npm, index))


class PackageHosts:
    """Lets commands reach package registries, and no other host.

    Args:
        workspace: its files choose no registry, and none of its programs is asked.
        listed: the user's settings allow it, so no session asks.
    """

    def __init__(self, env: Mapping[str, str], workspace: Path, *, listed: bool) -> None:
        self._env, self._workspace, self._listed = env, workspace, listed
        self._allowed = set[str]()
        self._lock = anyio.Lock()
        self._usual: frozenset[str] | None = None
        self._usual_index = ""
        self._files: dict[str, str] | None = None

    @cached_property
    def _own(self) -> tuple[str, str]:
        """The user's own registry of npm and index of Python packages; empty for those that are usual."""
        return configured(self._env)

    @cached_property
    def env(self) -> Mapping[str, str]:
        """The variables by which programs find the user's own registries; they hold no password."""
        certificates = {name: self._env[name] for name in _CERTIFICATES if self._env.get(name, "").startswith(_VISIBLE)}
        return certificates | _variables(*map(_without_password, self._own))

    def allows(self, session: str) -> bool:
        """Return whether commands of a session may reach registries, as far as was asked until now."""
        return self._listed or session in self._allowed

    def opener(self, session: str, ask: AskHost) -> HostOpener:
        """Return the way of a session's command; `ask` asks whether the session's commands may reach registries."""
        own = {parse_target(_place(url)).host for url in self._own if url}
        return HostOpener(partial(self._pattern, session, ask), tuple(own.intersection(LOOPBACK)))

    async def _pattern(self, session: str, ask: AskHost, host: str, port: int) -> str | None:
        """Return the pattern of a host: None if it is no registry, empty if it is not allowed."""
        place = str(Target(host, port))
        own = next((url for url in self._own if url and _place(url) == place), "")
        is_registry = bool(own) or place in await self._usual_places()
        if not is_registry and not (self.allows(session) and place in await self._file_hosts()):
            return None
        if not self._listed and not await ask(host, port):
            return ""
        self._allowed.add(session)
        if own:
            return await anyio.to_thread.run_sync(pattern_of, own)
        return place if is_registry else (await self._file_hosts())[place]

    async def _usual_places(self) -> frozenset[str]:
        """Return the `host:port` of the registries that the user did not configure. None of them is connected to."""
        async with self._lock:
            if self._usual is None:
                self._usual = await anyio.to_thread.run_sync(self._look)
            return self._usual

    def _look(self) -> frozenset[str]:
        npm, index = self._own
        npm = "" if npm else _npm_default(self._env, self._workspace)
        self._usual_index = "" if index else _index_default(self._env, self._workspace)
        places = filter(None, map(_place, (npm, self._usual_index, *_apt_sources())))
        return frozenset(place for place in places if not is_private(parse_target(place)))

    async def _file_hosts(self) -> Mapping[str, str]:
        """Return the patterns of the hosts that have the files of the index, by `host:port`."""
        async with self._lock:
            if self._files is None:
                self._files = await anyio.to_thread.run_sync(self._look_at_index)
            return self._files

    def _look_at_index(self) -> dict[str, str]:
        own = self._own[1]
        found = _hosts_of_files(own or self._usual_index, near=bool(own) and _is_near(pattern_of(own)))
        return {pattern.removeprefix("any:").removeprefix("ip:"): pattern for pattern in found}


def configured(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the registry of npm and the index of Python packages that the user's variables and files name."""
    home = home_dir(env)
    npm = [value for name, value in env.items() if name.lower() == "npm_config_registry"]
    npm += re.findall(r"^\s*registry\s*=\s*(\S+)", _text(home / ".npmrc"), re.MULTILINE)
    index = [env.get(name, "") for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")]
    index += [*_uv_index(home), *_pip_index(env, home)]
    return _first_address(npm), _first_address(index)


def _first_address(urls: Iterable[str]) -> str:
    return next((url for url in urls if _place(url)), "")


def _uv_index(home: Path) -> list[str]:
    try:
        table: Any = tomllib.loads(_text(home / ".config" / "uv" / "uv.toml"))
        named = [index.get("url") for index in table.get("index", []) if index.get("default")]
        return [str(url) for url in (*named, table.get("index-url")) if url]
    except (ValueError, TypeError, AttributeError):
        return []


def _pip_index(env: Mapping[str, str], home: Path) -> list[str]:
    """Return the indexes in the files of pip, the most important one first."""
    from configparser import ConfigParser, Error

    support = home / "Library" / "Application Support"
    places = [env.get("PIP_CONFIG_FILE", ""), home / ".config/pip/pip.conf", home / ".pip/pip.conf"]
    found: list[str] = []
    for place in (*places, support / "pip/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/pip.conf"):
        parser = ConfigParser(interpolation=None)
        try:
            parser.read_string(_text(Path(place)) if place else "")
        except Error:
            continue
        found += [parser.get(section, "index-url", fallback="") for section in ("install", "global")]
    return found


def _index_default(env: Mapping[str, str], workspace: Path) -> str:
    for argv in _HELP:
        if found := _DEFAULT.search(_asked(argv, env, workspace)):
            return found[1]
    return ""


def _npm_default(env: Mapping[str, str], workspace: Path) -> str:
    return _first_address([_asked(("npm", "config", "get", "registry"), env, workspace).strip()])


def _apt_sources() -> list[str]:
    """Return the addresses of the machine's Debian packages."""
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *folder.glob("sources.list.d/*.list"), *folder.glob("sources.list.d/*.sources")]
    lines = [line for file in files for line in _text(file).splitlines() if line.startswith(("deb", "URIs:"))]
    return [url for line in lines for url in re.findall(r"https?://\S+", line)]


def _variables(npm: str, index: str) -> dict[str, str]:
    found = {"npm_config_registry": npm} if npm else {}
    return found | ({"PIP_INDEX_URL": index, "UV_DEFAULT_INDEX": index} if index else {})


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _text(path: Path) -> str:
    try:
        return (read_small(path) or b"").decode("utf-8", "replace")
    except ConfigError:
        return ""


def _hosts_of_files(index: str, *, near: bool) -> tuple[str, ...]:
    """Return the patterns of the hosts that an index refers to for its files, by the page of one package.

    Only one that is `near`, of the user's own network, may refer to hosts that are not on the internet.
    """
    places = {place: url for url in _links(index) if (place := _place(url))}
    if near:
        return tuple(map(pattern_of, list(places.values())[:_HOSTS]))
    return tuple(place for place in places if not is_private(parse_target(place)))[:_HOSTS]


def _links(index: str) -> list[str]:
    """Return the addresses on an index's page of one package; redirects are not followed."""
    if not index:
        return []
    import httpcore  # only for a command that installs

    url, page = f"{index.rstrip('/')}/pip/", b""
    waiting = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), 5.0)}
    try:
        with httpcore.stream("GET", url, headers={"Accept": "text/html"}, extensions=waiting) as answer:
            for piece in answer.iter_stream():
                page += piece
                if len(page) > _PAGE:
                    break
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol):
        return []
    return _LINK.findall(page.decode("utf-8", "replace"))


def _place(url: str) -> str:
    """Return the `host:port` of an address; empty if a registry has no such address."""
    if not url.startswith(("http://", "https://")):
        return ""
    try:
        parts = urlsplit(url)
        return str(parse_target(parts.netloc.rpartition("@")[2], 443 if parts.scheme == "https" else 80))
    except ValueError:
        return ""


def _is_near(pattern: str) -> bool:
    return parse_pattern(pattern).reach != "public"


def _addresses(host: str, port: int) -> Iterable[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, ValueError):
        return ()


def pattern_of(url: str, resolve: Callable[[str, int], Iterable[str]] = _addresses) -> str:
    """Return the `host:port` of a registry, which may reach as far as its name leads here: the user's programs use it.

    A registry on the internet stays there, whatever its name leads to later.
    """
    target = parse_target(_place(url))
    if target.address or target.host == "localhost":
        return str(target)
    found = [ip_address(address) for address in resolve(target.host, target.port)]
    if all(map(is_public, found)):
        return str(target)
    return f"{'ip' if all(is_reachable(address, 'local') for address in found) else 'any'}:{target}"


def _asked(argv: tuple[str, ...], env: Mapping[str, str], workspace: Path) -> str:
    program = find_program(argv[0], env, workspace)
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            cwd=os.sep,
            env={**env, "npm_config_update_notifier": "false"},  # npm would look for a new version of itself
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""
