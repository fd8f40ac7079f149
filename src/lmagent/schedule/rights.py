"""Rights: the calls that the turn of a job may make without a question, stated by the job itself.

A task of the inbox states them in lines between two lines of three dashes, before the task:

 ---
 permission: normal
 allow: shell(git log *)
 ---
 Summarise what changed today.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

from msgspec import Struct

from lmagent.config.settings import Settings
from lmagent.core.errors import ConfigError
from lmagent.core.events import PermissionMode

FENCE = "---"


class Rights(Struct, frozen=True):
    """The rights of a job."""

    permission: PermissionMode | str = ""
    allow: tuple[str, ...] = ()


NO_RIGHTS = Rights()


def read_rights(permission: object, allow: object) -> Rights:
    """Check the rights that a job states. Raises ValueError with the field and the reason."""
    if permission not in (None, "", *get_args(PermissionMode)):
        raise ValueError(f"permission: {permission!r} is not one of {', '.join(get_args(PermissionMode))}")
    rules = cast("list[Any]", [] if allow is None else allow)
    if not isinstance(allow, list | tuple | None) or not all(isinstance(rule, str) for rule in rules):
        raise ValueError('allow: must be a list of rules, such as ["shell(git log *)"]')
    if rules:
        from lmagent.policy.rules import check_rule  # few jobs have rules of their own

        try:
            rules = [check_rule(rule) for rule in rules]
        except ConfigError as error:
            raise ValueError(f"allow: {error.message}") from None
    return Rights(cast("str", permission or ""), tuple(rules))


def written(task: str, rights: Rights) -> str:
    lines = [f"permission: {rights.permission}"] if rights.permission else []
    lines += [f"allow: {rule}" for rule in rights.allow]
    return "\n".join((FENCE, *lines, FENCE, task)) if lines else task


def taken_apart(text: str) -> tuple[str, Rights]:
    """Split a task from its rights; lines that are not rights are part of the task.

    Raises ValueError if the rights cannot be understood.
    """
    first, *lines = text.splitlines() or [""]
    stripped = [line.strip() for line in lines]
    if first.strip() != FENCE or FENCE not in stripped:
        return text, NO_RIGHTS
    end = stripped.index(FENCE)
    pairs = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in stripped[:end])]
    if not pairs or any(name not in ("permission", "allow") for name, _ in pairs):
        return text, NO_RIGHTS
    rights = read_rights(dict(pairs).get("permission"), [value for name, value in pairs if name == "allow"])
    return "\n".join(lines[end + 1 :]).strip(), rights


# --- trust ------------------------------------------------------------------------------------------------------------

SIGNS = ("cron.json", ".lmagent/cron.json", ".lmagent/inbox")  # the files of a workspace that may hold jobs

WAIT = "the jobs of this folder (cron.json, inbox) wait until you trust it"
TRUST = "lmagent config trust"


def waiting_for_trust(workspace: Path) -> str:
    """Return the message about jobs that wait for trust; empty if the folder has none."""
    return f"{WAIT}: {TRUST}" if any((workspace / name).exists() for name in SIGNS) else ""


def may_run_jobs(settings: Settings, workspace: Path) -> bool:
    """Return whether the user trusts the folder. Raise ConfigError if the list of trusted folders is unreadable."""
    from lmagent.config.trust import is_trusted

    return is_trusted(settings.agent_data_dir, workspace)
