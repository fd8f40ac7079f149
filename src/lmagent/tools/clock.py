"""get_time: the present date and time. The prompt does not contain them, since it must not change."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from lmagent.core.ports import Clock
from lmagent.core.tool import Tool, ToolContext, ToolOutput


class GetTime(Struct, frozen=True):
    """No arguments."""


def get_time(clock: Clock) -> Tool:
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
