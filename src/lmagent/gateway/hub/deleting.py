"""Deleting: a session, and with it those that worked for it."""

from __future__ import annotations

from lmagent.app.host import Host


def delete_family(host: Host, session: str) -> list[str]:
    """Delete a session and its sub-agents', whose ids it gives. Nobody may have them open.

    Raises:
        SessionNotFound: there is none of that id.
        StoreError: another process writes one of them; nothing was deleted.
    """
    from lmagent.app.records import WorkspaceRecords  # rare, and not light

    records = WorkspaceRecords(host.workspace, host.store)
    family = records.family(session)
    records.delete(session)
    return family
