"""The built-in tools of the workspace, in the order in which they are advertised."""

from __future__ import annotations

from lmagent.core.ports import Clock
from lmagent.core.tool import Tool
from lmagent.tools import edit, listing, read, write
from lmagent.tools.clock import get_time
from lmagent.tools.find import glob, grep


def builtin_tools(clock: Clock) -> tuple[Tool, ...]:
    """Return read, write, edit, glob, grep, ls, mkdir and get_time."""
    return (
        read.TOOL,
        write.TOOL,
        edit.TOOL,
        glob.TOOL,
        grep.TOOL,
        listing.LS,
        listing.MKDIR,
        get_time(clock),
    )
