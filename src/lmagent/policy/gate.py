"""Gate: (call, mode, rules) → allow, ask or deny, with the reason. All surfaces and sub-agents use the same gate.

Deny rules win over ask rules, ask rules over allow rules and grants, and those over the mode:

    auto     everything is allowed
    normal   reads are allowed; write, exec and net ask
    manual   everything asks

A rule on paths is matched against the paths that a call names. A walker (grep, glob, ls) names only the folder where it
begins; paths further down that rules forbid are hidden from it (`sight`). A rule on commands is matched against each
command that a shell line would run (`commands.py`, `matching.py`): one denied command denies the line, and the line is
allowed only if all its commands are. In doubt the user is asked. A rule on hosts is matched against the hosts that a
call names (`hosts.py`).

The shipped rules (`shipped.py`) deny like the others, and ask where no rule allows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode
from lmagent.policy.paths import Hides
from lmagent.policy.rules import Rule, check_rule, parsed

if TYPE_CHECKING:
    from lmagent.policy.commands import Line

__all__ = [
    "Request",
    "Rules",
    "Verdict",
    "check_rule",
    "explain",
    "granted",
    "is_barred",
    "judge",
    "judge_host",
    "sight",
]

_DOING = {"read": "reading", "write": "writing files", "exec": "running commands", "net": "connecting"}
_UNCLEAR = "the commands of the line cannot be determined for certain"


class Rules(Struct, frozen=True):
    """Rules by verdict, as written in the configuration.

    With a `workspace`, an absolute path, the shipped rules apply too. Raises ConfigError.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    workspace: str = ""

    def __post_init__(self) -> None:
        parsed((*self.allow, *self.ask, *self.deny))


class Verdict(Struct, frozen=True):
    """The decision and its reason; `grant` holds the rules that "always" would add, one per line."""

    decision: Literal["allow", "ask", "deny"]
    reason: str
    grant: str = ""


class Request(Struct, frozen=True):
    """The gate's view of a call: the paths and hosts (`host:port`) that it names, and the shell line that it runs.

    `outside` is the name `mcp__server__tool` of a server's tool, for rules of other agents.
    """

    tool: str
    effect: str
    targets: tuple[str, ...] = field(default=())
    command: str | None = None
    outside: str = ""
    hosts: tuple[str, ...] = ()


def judge(request: Request, mode: PermissionMode, rules: Rules, grants: Sequence[str] = ()) -> Verdict:
    if rule := _forbidding(rules.deny, request):
        return Verdict("deny", f"the rule deny {str(rule)!r} forbids it")
    if what := _ruin(rules, request):
        return Verdict("deny", f"it would {what}, which the shipped rules forbid")
    if rule := _uncertain(rules.deny, request):
        return Verdict("ask", f"{_UNCLEAR}, and the rule deny {str(rule)!r} might forbid it")
    if rule := _forbidding(rules.ask, request):
        return Verdict("ask", f"the rule ask {str(rule)!r} wants the user to decide")
    if rule := _uncertain(rules.ask, request):
        return Verdict("ask", f"{_UNCLEAR}, and the rule ask {str(rule)!r} might mean it")
    if rule := _allowing((*rules.allow, *granted(grants)), request):
        return Verdict("allow", f"the rule allow {str(rule)!r} covers it")
    if secret := _forbidding(_secret_files(rules), request):
        grant = "\n".join(f"{request.tool}(./{target})" for target in request.targets)
        return Verdict("ask", f"it may hold secrets, as {secret.pattern!r} of the shipped rules says", grant)
    if mode == "auto":
        return Verdict("allow", "mode auto allows everything")
    if mode == "normal" and request.effect == "read":
        return Verdict("allow", "mode normal allows reading")
    doing = _DOING.get(request.effect, request.effect)
    if request.hosts:
        doing += f" to {' and '.join(_plain(request))}"
    return Verdict("ask", f"{mode} mode asks before {doing}", _grant(request))


def judge_host(host: str, rules: Rules, grants: Sequence[str] = ()) -> Verdict:
    """Judge a `host:port` that a running command wants to reach. Data leaves the machine: no mode allows it, and only
    a rule that names hosts does."""
    request = Request("net", "net", hosts=(host,))
    naming = tuple(str(rule) for rule in parsed(rules.allow) if rule.host and rule.pattern)
    only = Rules(naming, rules.ask, rules.deny)
    verdict = judge(request, "manual", only, grants)
    return Verdict("ask", verdict.reason, f"net({host})") if verdict.decision == "ask" and verdict.grant else verdict


def is_barred(request: Request, host: str, rules: Rules) -> bool:
    """Return whether a deny rule forbids that a running call or its command reaches a `host:port`."""
    reaching = replace(request, hosts=(host,)) if request.effect == "net" else Request("net", "net", hosts=(host,))
    return judge(reaching, "auto", rules).decision == "deny"


def explain(request: Request) -> str:
    """Return the commands and files that the shell line of a request would run and write, for the user.

    Empty if the line itself shows them.
    """
    if request.command is None:
        return ""
    from lmagent.policy.matching import describe, is_plain

    line = _line(request.command)
    return "" if is_plain(line) else describe(line)


def granted(grants: Iterable[str]) -> tuple[str, ...]:
    """Return the rules in grants. Grants come from the log: an invalid rule allows nothing."""
    found = list[str]()
    for rule in (rule for grant in grants for rule in grant.split("\n")):
        with contextlib.suppress(ConfigError):
            parsed([rule])
            found.append(rule)
    return tuple(found)


def _grant(request: Request) -> str:
    """Return the narrowest rules that would have allowed the call; empty if no rule can."""
    if request.hosts:
        return "\n".join(f"{request.tool}({host})" for host in _plain(request))
    if request.command is None:
        return request.tool
    from lmagent.policy.matching import grants

    return "\n".join(f"{request.tool}({pattern})" for pattern in grants(_line(request.command)))


def _plain(request: Request) -> list[str]:
    from lmagent.policy.hosts import plain  # only for a call that connects

    return list(map(plain, request.hosts))


@lru_cache(maxsize=2)  # several rules look at the line of one call
def _line(command: str) -> Line:
    from lmagent.policy.commands import read  # only for a session that asks about commands

    return read(command)


def sight(request: Request, rules: Rules) -> Hides | None:
    """Return a function that hides paths from a call that may run; None if no rule hides any.

    A path is hidden if a rule denies it, or asks about it, unless it is below a path that the call named: the user was
    asked about that path. Files with secrets are listed, but `grep` does not search them.
    """
    deny = [rule for rule in _of(rules.deny, request) if rule.pattern]
    ask = [rule for rule in _of(rules.ask, request) if rule.pattern]
    secret = _of(_secret_files(rules), request) if request.tool == "grep" else []
    if not deny and not ask and not secret:
        return None
    allow = [rule for rule in _of(rules.allow, request) if rule.pattern or not rule.command]
    named = [target for target in request.targets if _covered([*ask, *secret], target)]

    def hides(path: str) -> bool:
        if _covered(deny, path):
            return True
        asked = _covered(ask, path) or (_covered(secret, path) and not _covered(allow, path))
        return asked and not any(at in (".", path) or path.startswith(f"{at}/") for at in named)

    return hides


def _covered(rules: Sequence[Rule], path: str) -> bool:
    return any(rule.covers(path, below=True) for rule in rules)


def _ruin(rules: Rules, request: Request) -> str:
    if not rules.workspace or request.command is None:
        return ""
    from lmagent.policy.shipped import ruin  # not before the first prompt

    return ruin(request.command, rules.workspace)


def _secret_files(rules: Rules) -> tuple[str, ...]:
    from lmagent.policy.shipped import SECRET_FILES

    return SECRET_FILES if rules.workspace else ()


def _of(rules: Sequence[str], request: Request) -> list[Rule]:
    return [
        rule
        for rule in parsed(rules)
        if rule.names(request.tool, request.effect)
        or (rule.name.startswith("mcp__") and rule.names(request.outside, request.effect))
    ]


def _forbidding(rules: Sequence[str], request: Request) -> Rule | None:
    """Return the first rule that covers any path, host or command of the request."""
    for rule in _of(rules, request):
        if _any_path(rule) or any(rule.covers(target, below=True) for target in request.targets):
            return rule
        if any(rule.covers_host(host, below=True) for host in request.hosts):
            return rule
        if rule.command and request.command is not None:
            from lmagent.policy.matching import denied

            if denied(_line(request.command), [rule.pattern]):
                return rule
    return None


def _uncertain(rules: Sequence[str], request: Request) -> Rule | None:
    """Return the first rule on commands if the line is unclear: a command that the rule forbids may be in it."""
    if request.command is None:
        return None
    speaking = [rule for rule in _of(rules, request) if rule.command]
    return speaking[0] if speaking and _line(request.command).unclear else None


def _allowing(rules: Sequence[str], request: Request) -> Rule | None:
    """Return the first rule that covers all paths or hosts, or the last of those that cover all commands together."""
    speaking = _of(rules, request)
    for rule in speaking:
        if _any_path(rule) or (request.targets and all(rule.covers(at, below=False) for at in request.targets)):
            return rule
        if request.hosts and all(rule.covers_host(host, below=False) for host in request.hosts):
            return rule
    patterns = [rule for rule in speaking if rule.command]
    if not patterns or request.command is None:
        return None
    from lmagent.policy.matching import allowed

    return patterns[-1] if allowed(_line(request.command), [rule.pattern for rule in patterns]) else None


def _any_path(rule: Rule) -> bool:
    return rule.pattern in ("", "**")
