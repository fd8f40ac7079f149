"""`/set` before the first message gives its options to the session that this message begins."""

from __future__ import annotations

import anyio

from lmagent.app.options import HostOptions
from lmagent.app.slash import SlashContext, dispatch
from lmagent.app.wiring import open_host
from lmagent.core.commands import Submit
from lmagent.core.messages import user
from lmagent.core.view import View
from lmagent.testing import ScriptedServer
from lmagent.testing.script import say


def test_options_that_are_set_before_a_session_are_those_it_begins_with(tmp_path):
    async def run(url: str) -> str:
        flags = {"llm_url": url, "llm_model": "m", "agent_data_dir": tmp_path / "data"}
        host = await open_host(HostOptions(tmp_path, flags), say=lambda text: None)
        try:
            told = (await dispatch("/set temperature 0.2", SlashContext(host, None, View()))).text
            session = await host.new_session()
            assert session.state.work.options.temperature == 0.2
            await session.send(Submit(message=user("hi")))
            assert session.request().temperature == 0.2
            return told
        finally:
            await host.aclose()

    with ScriptedServer([say("one")]) as server:
        assert "begins with your first message" in anyio.run(run, server.base_url)
