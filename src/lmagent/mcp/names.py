"""Names: the tools of all servers under names that models can write, `server_tool`, without clashes.

A name has at most 64 characters of [a-zA-Z0-9_-]. Its beginning, up to the first `_`, belongs to one server alone, so a
permission rule for `server_*` covers that server's tools and no others. The names depend only on the names of the
servers and tools, not on the order in which they come.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping

LONGEST = 64
LONGEST_PART = 24
"""Characters of a name that may be the server's."""


def server_parts(servers: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the beginning of the tools' names for each server. None of `taken`, names of our own, begins with it."""
    own = {name.lower().partition("_")[0] for name in taken if "_" in name}
    return _apart(servers, lambda name: _server_part(name, own), LONGEST_PART)


def tool_names(part: str, tools: Iterable[str]) -> dict[str, str]:
    """Return the name of each tool of the server with this beginning, by its real name."""
    room = LONGEST - len(part) - 1
    return {tool: f"{part}_{name}" for tool, name in _apart(tools, _tool_part, room).items()}


def bare_names(tools: Mapping[str, Collection[str]], taken: Collection[str]) -> dict[str, str]:
    """Return the servers of the tools whose real names are unique, by those names.

    Args:
        tools: the tools' real names, by server.
        taken: names of our own, which stay ours.
    """
    owners: dict[str, list[str]] = {}
    for server, names in tools.items():
        for name in set(names):
            owners.setdefault(name, []).append(server)
    own = {name.lower() for name in taken}
    return {name: found[0] for name, found in owners.items() if len(found) == 1 and name.lower() not in own}


def _server_part(name: str, own: Collection[str]) -> str:
    part = re.sub(r"[^a-zA-Z0-9]+", "-", name).strip("-") or "server"
    return f"mcp-{part}" if part.lower() in own else part


def _tool_part(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name) or "tool"


def _apart(names: Iterable[str], shape: Callable[[str], str], room: int) -> dict[str, str]:
    """Return a form of each name in `room` characters; case does not tell two forms apart.

    Names that need no change keep their form; a form that another name has gets a digest of its real name.
    """
    found: dict[str, str] = {}
    used = set[str]()
    shapes = {name: shape(name) for name in names}
    for name in sorted(shapes, key=lambda name: (shapes[name] != name, name)):
        form, tries = shapes[name], 0
        while len(form) > room or form.lower() in used:
            form, tries = f"{shapes[name][: room - 7]}-{_digest(name, tries)}", tries + 1
        used.add(form.lower())
        found[name] = form
    return found


def _digest(name: str, tries: int) -> str:
    import hashlib  # loads OpenSSL, and few names need it

    return hashlib.sha256(f"{name}\0{tries}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
