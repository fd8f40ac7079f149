"""Options of the command line, and the settings that they lead to. Importing this loads no feature."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from lmagent.config.loader import Loaded, load
from lmagent.core.errors import WorkspaceError
from lmagent.core.tool import Tool

if TYPE_CHECKING:
    from lmagent.mcp.spec import ServerSpec
    from lmagent.providers.cassette import ReplayTransport


class HostOptions(Struct, frozen=True):
    """The options of the command line: settings given as flags, and cassettes of the model traffic.

    Attributes:
        replay: a cassette, or one that is being played.
        mcp_servers: servers of an editor, in addition to the configured ones.
        agent: the name of the agent of new sessions; empty for the one that the settings describe.
        project: the folder of an agent project, whose agent it is.
        tools: tools of the program that opens the host.
    """

    workspace: Path | None = None
    flags: dict[str, Any] = field(default_factory=dict[str, Any])
    record: Path | None = None
    replay: Path | ReplayTransport | None = None
    attended: bool = False
    mcp_servers: tuple[ServerSpec, ...] = ()
    agent: str = ""
    project: Path | None = None
    tools: tuple[Tool, ...] = ()


def load_settings(options: HostOptions) -> Loaded:
    flags = dict(options.flags)
    if options.workspace is not None:
        flags["workspace"] = options.workspace
    return load(os.environ, _current_folder(options), flags)


def _current_folder(options: HostOptions) -> Path:
    """Return the current folder; if it was deleted, the workspace, provided that its path is absolute."""
    try:
        return Path.cwd()
    except OSError:
        if options.workspace is not None and options.workspace.is_absolute():
            return options.workspace
        raise WorkspaceError(
            "the current folder does not exist any more", fix="cd to one that does, or name one: lmagent -w /its/path"
        ) from None
