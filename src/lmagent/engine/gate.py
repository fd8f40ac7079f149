"""Gate: (call, mode, rules) → allow, ask or deny, with the reason. One gate for every surface and every sub-agent.

A rule is `tool`, `tool(path pattern)`, `effect:write`, or `*`; a pattern is a glob over workspace paths (`src/**`,
`*.md`). Deny rules win over ask rules, ask rules over allow rules and grants, and those over the mode:

    auto     everything is allowed
    normal   reads are allowed; write, exec and net ask
    manual   everything asks
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode

_RULE = re.compile(r"(?P<name>\*|effect:(?:read|write|exec|net)|[A-Za-z0-9_.-]+)(?:\((?P<pattern>.*)\))?")


class Rules(Struct, frozen=True):
    """Rules by verdict, as written in the configuration."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """What the gate says, and why; `grant` is the rule that "always" would add."""

    decision: Literal["allow", "ask", "deny"]
    reason: str
    grant: str = ""


class Request(Struct, frozen=True):
    """What the gate has to know of a call."""

    tool: str
    effect: str
    targets: tuple[str, ...] = field(default=())


def judge(request: Request, mode: PermissionMode, rules: Rules, grants: Sequence[str] = ()) -> Verdict:
    """Decide on a call."""
    if rule := _first_match(rules.deny, request, every=False):
        return Verdict("deny", f"the rule deny {rule!r} forbids it")
    grant = request.tool
    if rule := _first_match(rules.ask, request, every=False):
        return Verdict("ask", f"the rule ask {rule!r} wants a person to decide")
    if rule := _first_match((*rules.allow, *grants), request, every=True):
        return Verdict("allow", f"the rule allow {rule!r} covers it")
    if mode == "auto":
        return Verdict("allow", "mode auto allows everything")
    if mode == "normal" and request.effect == "read":
        return Verdict("allow", "mode normal allows reading")
    return Verdict("ask", f"mode {mode} asks before {_doing(request.effect)}", grant)


def check_rule(rule: str, origin: str = "") -> str:
    """The rule, if it can be understood.

    Args:
        rule: as it was written.
        origin: where it was written, for the message.

    Raises:
        ConfigError: it cannot.
    """
    if _RULE.fullmatch(rule.strip()) is None:
        raise ConfigError(
            f"permission rule {rule!r}{f' ({origin})' if origin else ''} cannot be understood",
            fix="write it as tool, tool(path pattern), effect:write or *, for example write(docs/**)",
        )
    return rule.strip()


def _first_match(rules: Sequence[str], request: Request, *, every: bool) -> str:
    """The first rule that covers the request; with `every`, all of its targets (an allowance), else any one of them."""
    for rule in rules:
        found = _RULE.fullmatch(rule.strip())
        if found is None or not _covers_name(found["name"], request):
            continue
        pattern = found["pattern"]
        if pattern is None or pattern == "**":
            return rule
        hits = [_glob(pattern).fullmatch(target) is not None for target in request.targets]
        if hits and (all(hits) if every else any(hits)):
            return rule
    return ""


def _covers_name(name: str, request: Request) -> bool:
    return name in ("*", request.tool, f"effect:{request.effect}")


def _doing(effect: str) -> str:
    return {"read": "reading", "write": "writing", "exec": "running", "net": "connecting"}.get(effect, effect)


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """`**` crosses folders, `*` and `?` do not; a pattern without a slash matches a file of that name anywhere."""
    prefix = "" if "/" in pattern else "(?:.*/)?"
    body = "".join(
        {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(piece, re.escape(piece))
        for piece in re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    )
    return re.compile(prefix + body, re.DOTALL)
