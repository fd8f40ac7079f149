"""A turn that ended before the model said anything: what then stands in the conversation for the model is not shown."""

from __future__ import annotations

import json
from pathlib import Path

from gateway_kit import gateway
from seed_client import chatting

from lmagent.testing import hang, say

FILLER = "no reply: the turn ended here"


def test_nobody_is_shown_a_reply_that_nobody_gave(tmp_path: Path) -> None:
    with gateway(tmp_path, [hang(), say("Hello.")]) as running, chatting(running, "s") as client:
        client.say("message", content="one")
        running.until_asked(left=1)
        client.say("stop")
        assert client.until("done")["outcome"] == "interrupted"
        client.say("message", content="two")
        heard = [client.hear()]
        while heard[-1]["type"] != "done":
            heard.append(client.hear())
        assert [message["type"] for message in heard] == ["thinking", "text", "done"]
        assert FILLER in json.dumps(running.model.chats[-1].messages)
        for path in ("view", "history", "export"):
            shown = running.ask("GET", f"/api/sessions/s/{path}").body.decode()
            assert "Hello." in shown
            assert FILLER not in shown
