"""Events of what calls changed in the workspace."""

from __future__ import annotations

from typing import Literal

from lmagent.core.changes import Change, Refusal
from lmagent.core.live import Envelope


class FilesChanged(Envelope, frozen=True, tag="files.changed"):
    """What a call changed in the workspace, so that it can be taken back.

    Attributes:
        call_id: the call.
        tool: its tool.
        count: number of paths.
        changes: the changes, in path order; empty where they are in `blob`.
        blob: SHA-256 of a blob with all changes as JSON, where they are many.
        unkept: paths whose earlier content could not be kept.
        seconds: for how long anybody's changes in the whole workspace counted as the call's.
        interrupted: the call's process died; what anybody changed until this was recorded is in it.
    """

    call_id: str
    tool: str
    count: int
    changes: tuple[Change, ...] = ()
    blob: str = ""
    unkept: tuple[str, ...] = ()
    seconds: float = 0.0
    interrupted: bool = False


class FilesRestored(Envelope, frozen=True, tag="files.restored"):
    """Changes were taken back, or done again.

    Attributes:
        events: ids of the `files.changed` events, in the order of the log.
        to: `before` when they were taken back, `after` when they were done again.
        paths: brought to that state.
        refused: left as they are, and why.
        by: the surface.
    """

    events: tuple[str, ...]
    to: Literal["before", "after"]
    paths: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    by: str = ""
