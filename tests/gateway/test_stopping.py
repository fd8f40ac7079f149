"""Stop: the turn ends, the messages that wait are withdrawn, the client is told which, and nothing begins."""

from __future__ import annotations

from gateway_kit import Running, shared, until
from seed_client import chatting
from test_api_sessions import begun, command, said

from lmagent.testing.script import hang, say


def waiting(running: Running, session: str) -> list[str]:
    view = running.ask("GET", f"/api/sessions/{session}/view").json["view"]
    return [block["text"] for block in view["waiting"]]


def test_an_interrupt_withdraws_the_messages_that_wait_and_lists_them() -> None:
    with shared([hang(say("never ending"), chunks=1), say("Next.")]) as running:
        session = begun(running)
        command(running, session, "submit", message=said("go"))
        running.until_asked(left=1)
        command(running, session, "submit", message=said("queued"), id="one")
        command(running, session, "steer", message=said("steered"), id="two")
        answer = command(running, session, "interrupt")
        assert answer.status == 202
        assert [block["text"] for block in answer.json["withdrawn"]] == ["queued", "steered"]
        assert len(running.recorded("input.withdrawn")) == 2
        assert waiting(running, session) == []
        command(running, session, "submit", message=said("and now?"))
        until(lambda: len(running.recorded("turn.finished")) == 2)
        assert [event["outcome"] for event in running.recorded("turn.finished")] == ["interrupted", "done"]


def test_an_interrupt_with_nothing_to_stop_says_nothing_of_messages() -> None:
    with shared() as running:
        assert "withdrawn" not in command(running, begun(running), "interrupt").json


def test_the_stop_of_earlier_clients_stops_what_waits_too() -> None:
    with shared([hang(say("never ending"), chunks=1), say("Next.")]) as running:
        with chatting(running, "s") as client:
            client.say("message", content="go")
            running.until_asked(left=1)
            assert command(running, "s", "submit", message=said("queued")).status == 202
            client.say("stop")
            assert client.until("done")["outcome"] == "interrupted"
            assert client.ask("and now?")["text"] == "Next."
        assert len(running.recorded("input.withdrawn")) == 1
        assert len(running.model.chats) == 2
