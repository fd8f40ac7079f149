"""Fetching from the site of traps, without a session."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from testkit.trapsite import TrapSite, resolve

from lmagent.core.errors import ToolError
from lmagent.core.tool import ToolContext, ToolOutput
from lmagent.testing.fakes import FakeClock
from lmagent.web.client import FetchLimits
from lmagent.web.fetch import Web
from lmagent.web.reading import read

SHORT = FetchLimits(connect=1.0, silence=0.4, whole=0.8)


def context(asked: list[str] | None = None, *, answer: bool = True) -> ToolContext:
    async def ask(host: str, port: int) -> bool:
        if asked is not None:
            asked.append(f"{host}:{port}")
        return answer

    return ToolContext("s", "c", Path("/"), {}, lambda _: None, ask_host=ask)


def web(
    site: TrapSite, *more: str, limits: FetchLimits = SHORT, resolver=resolve, clock: FakeClock | None = None, tls=None
):
    return Web((site.address, *more), clock or FakeClock(auto=True), resolve=resolver, limits=limits, tls=tls)


def fetched(of: Web, url: str, selector: str = "", characters: int = 10_000, **how) -> ToolOutput:
    async def go() -> ToolOutput:
        with anyio.fail_after(20):
            return await read(of, url, selector, characters, context(**how))

    return anyio.run(go)


def refusal(of: Web, url: str, **how) -> str:
    with pytest.raises(ToolError) as refused:
        fetched(of, url, **how)
    assert "\n" not in refused.value.message.replace("\nThe user can", " The user can")
    return refused.value.message
