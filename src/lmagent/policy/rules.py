"""Rules: the calls and paths that a permission rule covers.

A rule is `tool`, `tool(pattern)`, `effect:write`, `effect:write(pattern)`, `*` or `*(pattern)`. The tool's name may
hold `*`, case does not count, and `mcp__server` names all tools of that server. For `shell` and `effect:exec` the
pattern is one of commands, `shell(git log *)`: see `matching.py`. For tools that connect and `effect:net` it is one of
hosts, `web_fetch(docs.python.org)`: see `hosts.py`. Otherwise it is a glob over paths of the workspace:

    docs            each file or folder of this name, at any depth, with everything below it
    docs/  ./docs   only at the top, with everything below it; also docs/**
    *.md            each file or folder whose name matches, at any depth
    src/*.md        only there; `**` crosses folders, `*` and `?` do not, `{a,b}` is either, `[ab]` one of them

Deny and ask rules reach further than allow rules: they also cover everything below a folder that they match.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from lmagent.core.errors import ConfigError
from lmagent.policy.paths import inside

SHELL, EXEC = "shell", "exec"
"""The tool, and the effect, whose patterns match commands."""

CONNECTING = ("web_fetch", "web_fetch_js", "web_fetch_stealth", "web_search", "net")
"""The tools whose patterns match hosts, whether this machine offers them or not. `net` is what commands connect to."""

# Text, not compiled: most users have no rules, and would wait for the compilation at each start.
_RULE = r"(?P<name>effect:(?:read|write|exec|net)|[A-Za-z0-9_.*-]+)(?:\((?P<pattern>.*)\))?"
_BRACES = r"\{([^{}]*,[^{}]*)\}"
_PIECES = r"(\*\*/|\*\*|\*|\?|\[!?[^\]/]+\])"
_ALTERNATIVES = 100


class Rule(Struct, frozen=True):
    """A rule: a tool, an effect or a glob over tools, in lower case; and a pattern of paths, commands or hosts, or
    none."""

    name: str
    pattern: str
    command: bool = False
    host: bool = False

    def __str__(self) -> str:
        return f"{self.name}({self.pattern})" if self.pattern else self.name

    def names(self, tool: str, effect: str) -> bool:
        wanted = tool.lower()
        if self.name.startswith("effect:"):
            return self.name == f"effect:{effect}"
        if self.name.startswith("mcp__") and wanted.startswith(f"{self.name}__"):
            return True
        return fnmatchcase(wanted, self.name)

    def covers(self, path: str, *, below: bool) -> bool:
        """Return whether the pattern matches a path in the workspace, or with `below` one of its parent folders."""
        if self.command or self.host:
            return not self.pattern
        return not self.pattern or _compiled(self.pattern, below).fullmatch("" if path == "." else path) is not None

    def covers_host(self, host: str, *, below: bool) -> bool:
        """Return whether the pattern matches a `host:port`, or with `below` a name below the host that it names."""
        if not self.host:
            return False
        from lmagent.policy.hosts import covers  # only for a call that connects

        return covers(self.pattern, host, below=below)


@lru_cache(maxsize=512)
def parse(text: str, root: str = "") -> Rule:
    """Parse a rule. Absolute patterns need the workspace, `root`. Raises ConfigError."""
    name, pattern = _split(text)
    command, host = _runs_commands(name), _connects(name)
    if pattern is None:
        return Rule(name, "", command, host)
    try:
        if host:
            from lmagent.policy.hosts import normalised  # only for a session with such rules

            return Rule(name, normalised(pattern.strip()), host=True)
        return Rule(name, _command(pattern.strip()) if command else _normalised(pattern.strip(), root), command)
    except ValueError as fault:
        wanted, example = "paths relative to the workspace", "docs/**"
        if command or host:
            wanted, example = ("a command", "git log *") if command else ("a host", "docs.python.org")
        raise ConfigError(
            f"permission rule {text!r} could never match: {fault}",
            fix=f"name {wanted}, for example {name}({example})",
        ) from None


def _split(text: str) -> tuple[str, str | None]:
    found = re.fullmatch(_RULE, text.strip(), re.I | re.S)
    if found is None:
        raise ConfigError(
            f"permission rule {text!r} cannot be understood",
            fix="write it as tool, tool(path pattern), shell(command *), web_fetch(host), effect:write or *, "
            "for example write(docs/**)",
        )
    return found["name"].lower(), found["pattern"]


def _runs_commands(name: str) -> bool:
    return name == f"effect:{EXEC}" or (name != "*" and fnmatchcase(SHELL, name))


def _connects(name: str) -> bool:
    return name == "effect:net" or (name != "*" and any(fnmatchcase(tool, name) for tool in CONNECTING))


def _command(pattern: str) -> str:
    """Return the plain form of a pattern of commands; other agents' `git log:*` is `git log *`."""
    if not pattern:
        raise ValueError("it names no command")
    if pattern.endswith(":*"):
        pattern = f"{pattern[:-2]} *"
    if pattern in ("*", "**"):
        return ""
    from lmagent.policy.matching import compiled  # only for a session with such rules

    if compiled(pattern) is None:
        raise ValueError("a quote in it is left open")
    return pattern


def check_rule(rule: str, origin: str = "", *, tools: Mapping[str, str] | None = None, root: str = "") -> str:
    """Return the rule in its plain form. `tools` are names and aliases in lower case; None accepts any name.

    Raises:
        ConfigError: the rule is not valid, or can never match.
    """
    try:
        name, pattern = _split(rule)
        if tools is not None:
            name = _known(rule, name, tools)
        return str(parse(name if pattern is None else f"{name}({pattern})", root))
    except ConfigError as fault:
        raise ConfigError(
            f"{fault.message}{f' ({origin})' if origin else ''}", fix=fault.fix, terminal=fault.terminal
        ) from None


def _known(rule: str, name: str, tools: Mapping[str, str]) -> str:
    """Return the tool's own name; the tools of MCP servers are not known yet."""
    if name in tools:
        return tools[name]
    if "*" in name or name.startswith(("effect:", "mcp__")) or name in CONNECTING:
        return name
    import difflib  # only a wrong name needs it

    near = dict.fromkeys(tools[match] for match in difflib.get_close_matches(name, tools, n=3))
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise ConfigError(
        f"permission rule {rule!r} names a tool that does not exist: {name!r}",
        fix=f"{hint}the tools are {', '.join(dict.fromkeys(tools.values()))}",
    )


def _normalised(pattern: str, root: str) -> str:
    """Return the pattern relative to the workspace, with its braces expanded."""
    if not pattern:
        raise ValueError("it names no path")
    plain = [_plain(reading, root) for reading in alternatives(pattern)]
    return plain[0] if len(plain) == 1 else f"{{{','.join(plain)}}}"


def _plain(pattern: str, root: str) -> str:
    """Return a pattern without braces; a single name matches at any depth, `./name` at the top."""
    if "," in pattern:
        raise ValueError("a comma does not part paths; write a rule for each, or {a,b}")
    if pattern.startswith("~"):
        raise ValueError("'~' is not expanded")
    anchored = "/" in pattern
    if pattern.startswith("/"):
        inner = inside(pattern, root) if root else None
        if inner is None:
            raise ValueError("the path lies outside the workspace, where no tool goes")
        pattern = inner
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError("'..' is not followed")
    once = [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]
    if not once:
        return "**"
    return f"./{once[0]}" if anchored and len(once) == 1 and once[0] != "**" else "/".join(once)


def alternatives(pattern: str) -> list[str]:
    """Return each alternative of the braces; a brace without its partner or a comma is literal."""
    done, pending = list[str](), [pattern]
    while pending:
        if len(done) + len(pending) > _ALTERNATIVES:
            raise ValueError(f"it has more than {_ALTERNATIVES} alternatives")
        current = pending.pop()
        found = re.search(_BRACES, current)
        if found is None:
            done.append(current)
        else:
            before, after = current[: found.start()], current[found.end() :]
            pending += [before + choice + after for choice in reversed(found[1].split(","))]
    return done


@lru_cache(maxsize=512)
def _compiled(pattern: str, below: bool) -> re.Pattern[str]:
    return re.compile("|".join(_expression(plain, below) for plain in alternatives(pattern)), re.DOTALL)


def _expression(pattern: str, below: bool) -> str:
    if pattern == "**":
        return ".*"
    prefix = "" if "/" in pattern else "(?:.*/)?"
    bare = pattern.removeprefix("./").removesuffix("/**")
    folder = bare != pattern.removeprefix("./") or not re.search(_PIECES, bare.rpartition("/")[2])
    return prefix + "".join(map(_piece, re.split(_PIECES, bare))) + ("(?:/.*)?" if below or folder else "")


def _piece(piece: str) -> str:
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece)
    if known is not None:
        return known
    if not (piece.startswith("[") and re.fullmatch(_PIECES, piece)):
        return re.escape(piece)
    negated, members = piece.startswith("[!"), piece.strip("[]").removeprefix("!")
    listed = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    one = f"(?!/)[{'^' if negated else ''}{listed}]"
    return f"(?:{re.escape(piece)}|{one})"  # a folder may really be called [id]


def parsed(rules: Sequence[str]) -> list[Rule]:
    return [parse(rule) for rule in rules]
