"""The rights of a folder's jobs: none before the user trusts the folder, then those in the job's definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lmagent.core.commands import SetMode
from lmagent.core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from lmagent.app.host import Host
    from lmagent.core.events import PermissionMode
    from lmagent.engine.session import Session
    from lmagent.schedule.rights import Rights

SIGNS = ("cron.json", ".lmagent/cron.json", ".lmagent/inbox")
"""The files of a workspace that may hold jobs."""

WAIT = "the jobs of this folder (cron.json, inbox) wait until you trust it"
TRUST = "lmagent config trust"


def waiting_for_trust(workspace: Path) -> str:
    """Return the message about jobs that wait for trust; empty if the folder has none."""
    return f"{WAIT}: {TRUST}" if any((workspace / name).exists() for name in SIGNS) else ""


def may_run_jobs(host: Host) -> bool:
    """Return whether the user trusts the folder. Raise ConfigError if the list of trusted folders is unreadable."""
    from lmagent.config.trust import is_trusted

    return is_trusted(host.settings.agent_data_dir, host.workspace)


def require_trust(host: Host) -> None:
    if not may_run_jobs(host):
        raise ConfigError(WAIT, fix=f"look at them, then: {TRUST}")


async def entitle(session: Session, rights: Rights, by: str) -> None:
    """Grant a job's rights to its session. Grants end with a process, so each process gives them again."""
    from lmagent.engine.session import share

    if rights.permission and session.state.mode != rights.permission:
        await session.send(SetMode(mode=cast("PermissionMode", rights.permission), by=by))
    if rights.allow and (grant := "\n".join(rights.allow)) not in session.state.grants:
        await share(session, grant, by)
