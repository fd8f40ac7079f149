"""The built-in tools of the workspace, in the order in which they are advertised."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from lmagent.core.ports import Clock
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.tools import edit, listing, read, write
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
        _get_time(clock),
    )


class GetTime(Struct, frozen=True):
    """No arguments."""


def _get_time(clock: Clock) -> Tool:
    """Return the tool for the present date and time, which the prompt does not contain, since it must not change."""

    async def run(_: GetTime, __: ToolContext) -> ToolOutput:
        moment = datetime.fromtimestamp(clock.now(), UTC)
        here = moment.astimezone()
        text = f"{here.isoformat(timespec='seconds')} ({here:%A}, {here.tzname()}); UTC {moment:%Y-%m-%dT%H:%M:%SZ}"
        return ToolOutput(text, {"unix": moment.timestamp()})

    return Tool(
        name="get_time",
        description="The current local date, time, weekday and zone.",
        arguments=GetTime,
        effect="read",
        run=run,
        replay_safe=True,
        deferred=True,
        aliases=("current_time", "get_current_time", "get_date", "time", "now", "date"),
        summary=lambda _: "get_time",
    )
