"""Configuration: the servers that the user's `mcp.json` and the workspace's files name.

    config folder/mcp.json            the user's
    WORKSPACE/.lmagent/mcp.json       the workspace's, in this order; the user's servers win over all of them
    WORKSPACE/.mcp.json
    WORKSPACE/.vscode/mcp.json

All of them may have the shape `{"mcpServers": {…}}` or the editors' `{"servers": {…}}`, with comments. A damaged file
loses its own servers, a damaged entry only itself; both become a `Problem`, and nothing here stops a start.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from lmagent.config import paths
from lmagent.config.files import read_small, write_private
from lmagent.config.settings import Settings
from lmagent.config.trust import MCP_FILES, is_trusted, trusts
from lmagent.core.decoding import convert, json_fault
from lmagent.core.errors import ConfigError
from lmagent.mcp.spec import INSTALLERS, INSTALLING, Needs, OAuthClient, ServerSpec, is_secret

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@/:+-]{0,63}")

_TABLES = ("mcpServers", "servers")


class Problem(Struct, frozen=True):
    """A file or an entry that cannot be used; `line` is 0 if the whole file is meant."""

    file: Path
    line: int
    text: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {self.text}" + (f"\n  → {self.fix}" if self.fix else "")


class LoadedServers(Struct, frozen=True):
    """The configured servers.

    Attributes:
        untrusted: why a server must not run until the user trusts its file, by its name.
    """

    specs: tuple[ServerSpec, ...] = ()
    problems: tuple[Problem, ...] = ()
    untrusted: Mapping[str, str] = field(default_factory=dict[str, str])


class _Entry(Struct, omit_defaults=True):
    """An entry as it is written. Keys of other programs are ignored."""

    type: str = ""
    command: str = ""
    args: list[str] = []
    env: dict[str, str | int | float | bool] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    oauth: OAuthClient = OAuthClient()
    network: list[str] = []
    paths: list[str] = []
    unconfined: bool = False
    disabled: bool = False
    enabled: bool = True
    start_timeout: Annotated[float, Meta(gt=0, le=3600)] | None = None
    call_timeout: Annotated[float, Meta(gt=0, le=86_400)] = ServerSpec("").call_timeout


class _File(Struct):
    """A file's servers by name, before any check."""

    path: Path
    scope: Literal["user", "workspace"]
    text: str
    entries: dict[str, Any]
    untrusted: str = ""

    def line(self, name: str) -> int:
        """Return the line of an entry."""
        found = re.search(rf"{re.escape(msgspec.json.encode(name).decode())}\s*:", self.text)
        return self.text.count("\n", 0, found.start()) + 1 if found else 1


def user_file() -> Path:
    """Return the user's own `mcp.json`, which is next to their `config.toml`."""
    return paths.config_file(os.environ).with_name("mcp.json")


def workspace_file(workspace: Path) -> Path:
    """Return the workspace's own `mcp.json`."""
    return workspace / MCP_FILES[0]


def load_servers(workspace: Path, settings: Settings) -> LoadedServers:
    """Read all files. Never raises: what cannot be used is a problem."""
    if not settings.enable_mcp:
        return LoadedServers()
    problems: list[Problem] = []
    specs: dict[str, ServerSpec] = {}
    untrusted: dict[str, str] = {}
    owners: dict[str, tuple[str, Path]] = {}  # by the beginning of the names of a server's tools
    for file in _files(workspace, settings, problems):
        for name, entry in file.entries.items():
            spec = _spec_or_problem(name, entry, file, workspace, problems)
            # A faulty entry keeps its name too: rules for it must not hold for another server.
            first, owner = owners.setdefault(beginning(name), (name, file.path))
            if spec is None:
                continue
            if (first, owner) == (name, file.path):
                specs[name] = spec
                untrusted |= {name: file.untrusted} if file.untrusted else {}
            elif name not in specs or _bare(specs[name]) != _bare(spec):
                text = f"the server {name!r} is not used: {owner} has {first!r}, and rules could not tell them apart"
                problems.append(Problem(file.path, file.line(name), text, "give one of them another name"))
    return LoadedServers(tuple(specs[name] for name in sorted(specs)), tuple(problems), untrusted)


def _bare(spec: ServerSpec) -> ServerSpec:
    return replace(spec, file=None, scope="user")


def is_name(name: str) -> bool:
    """Return whether a server may have this name. `__` ends a server's name in the names of other agents."""
    return NAME.fullmatch(name) is not None and "__" not in name


def beginning(name: str) -> str:
    """Return what tells servers apart in permission rules: letters and digits, in whatever case and after `mcp-`."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-").lower().removeprefix("mcp-")


def given_server(
    name: str, entry: Mapping[str, Any], variables: Mapping[str, str], read: Sequence[str] = ()
) -> ServerSpec:
    """Return the server in an entry that no file of ours holds.

    Args:
        entry: in the form of `mcp.json`. Its keys are named by `${NAME}`, and never written in it.
        variables: the only ones that it may name.
        read: folders that its program may read.

    Raises ConfigError.
    """
    checked = _checked(name, dict(entry))
    for key, value in (*checked.headers.items(), *checked.env.items()):
        if is_secret(key) and "${" not in str(value):
            raise ConfigError(f"the value of {key} is written in it", fix="write ${NAME}, and NAME under `env`")
    spec = _spec(name, checked, _File(Path(), "user", "", {}), variables, Path())
    return replace(spec, file=None, scope="client", needs=replace(spec.needs, paths=tuple(read)))


def write_server(file: Path, spec: ServerSpec) -> None:
    """Add a server to a file, or replace the one of its name. The rest of the file stays.

    Raises ConfigError if the spec is not valid, or the file is damaged, has comments, or cannot be written.
    """
    entry = _written(spec)
    _checked(spec.name, entry)
    document, table = _document(file)
    table[spec.name] = entry
    _save(file, document)


def remove_server(file: Path, name: str) -> bool:
    """Remove a server from a file; return False if the file has none of this name. Raises ConfigError."""
    if read_small(file) is None:
        return False
    document, table = _document(file)
    if table.pop(name, None) is None:
        return False
    _save(file, document)
    return True


# --- reading ----------------------------------------------------------------------------------------------------------


def _files(workspace: Path, settings: Settings, problems: list[Problem]) -> Iterator[_File]:
    own = user_file()
    for path in (own, *(workspace / name for name in MCP_FILES)):
        try:
            content = read_small(path)
            if content is None:
                continue
            untrusted = "" if path == own else _untrusted(workspace, settings, path, content)
            text, entries = _parsed(content)
        except ConfigError as error:
            line, fix = (error.line, "correct it") if isinstance(error, _Damaged) else (0, error.fix)
            whose = "no server is used" if path == own else "its servers are left out"
            problems.append(Problem(path, line, error.message, f"{fix}; {whose} until then"))
            if path == own:
                return  # a folder's servers might take the names of those in it
        else:
            yield _File(path, "user" if path == own else "workspace", text, entries, untrusted)


def _untrusted(workspace: Path, settings: Settings, path: Path, content: bytes) -> str:
    """Return why the user does not trust a file of the workspace; empty if they do. Raises ConfigError."""
    name = path.relative_to(workspace).as_posix()
    if trusts(settings.agent_data_dir, workspace, path, content):
        return ""
    if is_trusted(settings.agent_data_dir, workspace):
        return f"{name} has changed since you trusted the folder"
    return f"{name} is in a folder you do not trust"


class _Damaged(ConfigError):
    """A file is damaged at a line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def _parsed(content: bytes) -> tuple[str, dict[str, Any]]:
    """Return the text without comments, and its entries by name. Raises _Damaged."""
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise _Damaged(content.count(b"\n", 0, error.start) + 1, "it is not UTF-8 text") from None
    try:
        document: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        text = _without_comments(text)
        document = _decoded(text)
    if not isinstance(document, dict):
        raise _Damaged(1, "it must hold one JSON object, with mcpServers in it")
    entries: dict[str, Any] = {}
    for key in _TABLES:
        table: Any = cast("dict[str, Any]", document).get(key, {})
        if not isinstance(table, dict):
            raise _Damaged(1, f"{key} must be an object: a server's name, and its settings")
        entries = {**cast("dict[str, Any]", table), **entries}
    return text, entries


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if text.strip() else {}
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        fault = json_fault(text)
        line, why = (fault.lineno, f"{fault.msg}, column {fault.colno}") if fault else (1, str(error))
        raise _Damaged(line, f"it is not valid JSON: {why}") from None


def _without_comments(text: str) -> str:
    """Return a text of the same lines without comments and without commas before a closing bracket."""
    string = r'("(?:[^"\\\n]|\\.)*")'
    plain = re.sub(
        rf"{string}|//[^\n]*|/\*.*?\*/",
        lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]),
        text,
        flags=re.DOTALL,
    )
    return re.sub(rf"{string}|,(?=\s*[}}\]])", lambda found: found[1] or " ", plain)


def _spec_or_problem(name: str, entry: Any, file: _File, workspace: Path, problems: list[Problem]) -> ServerSpec | None:
    try:
        checked = _checked(name, entry)
        is_idle = bool(file.untrusted) or checked.disabled or not checked.enabled  # its variables may not be set
        known = None if is_idle else {**os.environ, "workspaceFolder": str(workspace)}
        return _spec(name, checked, file, known, workspace)
    except ConfigError as error:
        text = f"the server {name[:80]!r} is left out: {error.message}"
        problems.append(Problem(file.path, file.line(name), text, error.fix))
        return None


def _spec(name: str, entry: _Entry, file: _File, variables: Mapping[str, str] | None, workspace: Path) -> ServerSpec:
    """Return an entry as a spec, with the values of its variables; None leaves their names."""

    def text(value: object) -> str:
        written = ("true" if value else "false") if isinstance(value, bool) else str(value)
        return written if variables is None or "${" not in written else _expanded(written, variables)

    def path(written: str) -> str:
        return str(paths.expand_path(written, workspace, paths.home_dir(os.environ)))

    return ServerSpec(
        name=name,
        command=(text(entry.command), *map(text, entry.args)) if entry.command else (),
        env={key: text(value) for key, value in entry.env.items()},
        cwd=text(entry.cwd) or ".",
        url=text(entry.url),
        headers={key: text(value) for key, value in entry.headers.items()},
        oauth=replace(
            entry.oauth,
            client_id=text(entry.oauth.client_id),
            client_secret=text(entry.oauth.client_secret),
            key_file=path(text(entry.oauth.key_file)) if entry.oauth.key_file else "",
        ),
        needs=Needs(
            network=tuple(map(text, entry.network)),
            paths=tuple(path(text(each)) for each in entry.paths),
            unconfined=entry.unconfined,
        ),
        file=file.path,
        scope=file.scope,
        enabled=entry.enabled and not entry.disabled,
        start_timeout=entry.start_timeout or _start_timeout(entry.command),
        call_timeout=entry.call_timeout,
    )


def _start_timeout(command: str) -> float:
    """Return the seconds that a start may take: the first one of an installer downloads the server."""
    return INSTALLING if Path(command).name in INSTALLERS else ServerSpec("").start_timeout


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the values of `${NAME}`, `${env:NAME}` and `${NAME:-default}`. Raises ConfigError."""

    def value(found: re.Match[str]) -> str:
        name, has_default, default = found[1].removeprefix("env:").partition(":-")
        if name.startswith("input:"):
            fix = "put the value in an environment variable and write ${env:NAME}"
            raise ConfigError(f"{found[0]} asks for a value, which only editors do", fix=fix)
        if name in known and (known[name] or not has_default):
            return known[name]
        if has_default:
            return default
        raise ConfigError(f"the variable {name or found[0]} is not set", fix=f"set it: export {name}=…")

    return re.sub(r"\$\{([^{}]*)\}", value, text)


def _checked(name: str, entry: Any) -> _Entry:
    """Return an entry after all checks that need no variable. Raises ConfigError."""
    if not is_name(name):
        fix = "use letters, digits, spaces and . _ - @ / : +, at most 64 of them, and no __"
        raise ConfigError("its name cannot be used", fix=fix)
    try:
        made = convert(entry, _Entry)
    except msgspec.ValidationError as error:
        raise ConfigError(str(error).replace("`", ""), fix="correct the entry") from None
    if made.type == "sse":
        fix = 'give its streamable HTTP address, with "type": "http"'
        raise ConfigError("the transport sse was replaced by streamable HTTP, and is not supported", fix=fix)
    if bool(made.command) == bool(made.url):
        what = "both a command and a url" if made.url else "neither a command nor a url"
        raise ConfigError(f"it has {what}", fix='write "command" for a program, "url" for an address')
    if made.url and not made.url.startswith(("http://", "https://", "${")):
        raise ConfigError(f"{made.url[:80]!r} is no address", fix="begin it with https:// or http://")
    _check_client(made.oauth)
    if made.url and (made.network or made.paths or made.unconfined):
        raise ConfigError("network, paths and unconfined are for programs, and it has a url", fix="delete them")
    for pattern in made.network:
        if pattern != "packages" and "${" not in pattern:
            _check_pattern(pattern)
    if any(each.removesuffix(":rw").rstrip("/") == "" for each in made.paths):
        raise ConfigError("paths names the whole file system", fix='name folders in it, or write "unconfined": true')
    return made


def _check_client(client: OAuthClient) -> None:
    proofs = bool(client.client_secret) + bool(client.key_file)
    if client.grant == "client_credentials" and not (client.client_id and proofs == 1):
        fix = 'add "client_id", and either "client_secret" or "key_file", to "oauth"'
        raise ConfigError("client_credentials needs a client", fix=fix)
    if client.key_file and client.grant != "client_credentials":
        fix = 'add "grant": "client_credentials" to "oauth"'
        raise ConfigError("a key_file logs in as the client itself, without a user", fix=fix)


def _check_pattern(pattern: str) -> None:
    from lmagent.sandbox.hosts import parse_pattern  # few servers name hosts

    parse_pattern(pattern)


# --- writing ----------------------------------------------------------------------------------------------------------


def _written(spec: ServerSpec) -> dict[str, Any]:
    """Return a spec as an entry; values that are the defaults are left out."""
    usual, needs = ServerSpec(""), spec.needs
    entry = _Entry(
        type="http" if spec.url else "",
        command=spec.command[0] if spec.command else "",
        args=list(spec.command[1:]),
        env=dict(spec.env),
        cwd="" if spec.cwd == usual.cwd else spec.cwd,
        url=spec.url,
        headers=dict(spec.headers),
        oauth=spec.oauth,
        network=list(needs.network),
        paths=list(needs.paths),
        unconfined=needs.unconfined,
        disabled=not spec.enabled,
        start_timeout=None if spec.start_timeout in (usual.start_timeout, INSTALLING) else spec.start_timeout,
        call_timeout=spec.call_timeout,
    )
    return {key: value for key, value in msgspec.to_builtins(entry).items() if value}


def _document(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a file's document, and the table of servers in it. Raises ConfigError."""
    if file.parent.name in (".lmagent", ".vscode") and file.parent.is_symlink():
        raise ConfigError(f"{file.parent} is a link; nothing is written through it", fix=f"rm {file.parent}")
    content = read_small(file)
    if content is None:
        table: dict[str, Any] = {}
        return {_TABLES[0]: table}, table
    try:
        _parsed(content)
        document: dict[str, Any] = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf") or b"{}")
    except _Damaged as damage:
        raise ConfigError(f"{file}:{damage.line}: {damage.message}", fix="correct it, then try again") from None
    except msgspec.DecodeError:
        raise ConfigError(f"{file} has comments, which would be lost", fix="change it in your editor") from None
    key = next((key for key in _TABLES if key in document), _TABLES[0])
    return document, document.setdefault(key, {})


def _save(file: Path, document: dict[str, Any]) -> None:
    write_private(file, msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
