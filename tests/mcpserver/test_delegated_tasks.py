"""`delegate`: the task of another agent, done by ours, on the standard streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_kit import Rescripted, until
from serve_kit import ServedPlace, served, text

from lmagent.testing.script import call, hang, say


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedPlace, Rescripted]]:
    with Rescripted() as model, served(tmp_path_factory.mktemp("served"), model=model) as client:
        yield client, model


@pytest.fixture
def client(both: tuple[ServedPlace, Rescripted]) -> ServedPlace:
    client, _ = both
    client.answers, client.questions, client.progress = [], [], []
    return client


@pytest.fixture
def model(both: tuple[ServedPlace, Rescripted]) -> Rescripted:
    return both[1]


def test_a_task_is_done_and_its_result_says_how_it_ended(client, model):
    model.follow([call("write", path="made.txt", content="made\n"), say("I made the file made.txt.")])
    client.answers = [{"allow": True}]
    result = client.call("delegate", task="make a file", context="call it made.txt")
    assert not result.is_error
    outcome = result.structured_content
    assert outcome["outcome"] == "done"
    assert outcome["answer"] == "I made the file made.txt."
    assert outcome["changed"] == ["made.txt"]
    assert text(result).startswith("I made the file made.txt.")
    assert outcome["session"] in text(result)
    assert "changed made.txt" in text(result)
    assert "    write made.txt" in client.questions[0].message
    assert (client.place.workspace / "made.txt").read_text() == "made\n"
    received = client.recorded("input.received")[-1]
    assert received["message"]["parts"][0]["text"] == "make a file\n\nContext:\ncall it made.txt"


def test_a_task_shows_its_session_and_its_calls_as_progress(client, model):
    model.follow([call("ls"), say("There is nothing.")])
    session = client.call("delegate", task="look").structured_content["session"]
    assert f"session {session}" in "".join(client.progress)
    assert client.recorded("tool.started")[-1]["tool"] == "ls"


def test_a_task_can_be_continued_in_its_session(client, model):
    model.follow([say("The word is blue."), say("I told you: blue.")])
    session = client.call("delegate", task="choose a word").structured_content["session"]
    result = client.call("delegate", task="which word?", session=session)
    assert result.structured_content["session"] == session
    assert result.structured_content["answer"] == "I told you: blue."
    assert "The word is blue." in str(model.chats[-1].messages)


def test_a_declined_call_does_not_end_the_task(client, model):
    model.follow([call("shell", command="touch no.txt"), say("You did not allow it, so I stop here.")])
    client.answers = [None]
    outcome = client.call("delegate", task="touch a file").structured_content
    assert "did not allow" in outcome["answer"]
    assert not (client.place.workspace / "no.txt").exists()


def test_a_session_that_no_task_began_is_refused(client, model):
    client.call("ls")
    own = next(event["session"] for event in client.recorded("session.renamed"))
    for session in (own, "20200101_000000_abcdef", "../../etc"):
        result = client.call("delegate", task="x", session=session)
        assert result.is_error
        assert "no task of this connection" in text(result)


def test_an_empty_task_is_refused_with_the_schema(client):
    result = client.call("delegate", task="")
    assert result.is_error
    assert "Its schema" in text(result)


def test_a_model_server_that_fails_is_an_error_that_says_so(client, model):
    model.follow([])
    result = client.call("delegate", task="x")
    assert result.is_error
    assert result.structured_content["outcome"] == "error"
    assert result.structured_content["reason"]


def test_a_client_that_cancels_interrupts_the_turn_and_keeps_its_work(client, model):
    before = len(client.recorded("turn.finished"))
    model.follow([call("ls"), hang(say("never said"), chunks=0), say("I continue after the listing.")])
    client.call_until("delegate", {"task": "look and wait"}, lambda: model.left == 1)
    until(lambda: len(client.recorded("turn.finished")) == before + 1)
    ended = client.recorded("turn.finished")[-1]
    assert ended["outcome"] == "interrupted"
    session = client.recorded("session.created")[-1]["session"]
    assert client.recorded("tool.finished")[-1]["tool"] == "ls"
    again = client.call("delegate", task="continue", session=session).structured_content
    assert again["answer"] == "I continue after the listing."


def test_a_client_that_leaves_loses_no_session_and_no_other_client_gets_it(tmp_path):
    with Rescripted() as model:
        model.follow([call("ls"), hang(say("never said"), chunks=0)])
        with served(tmp_path, model=model) as client:
            client.call_until("delegate", {"task": "look"}, lambda: model.left == 0)
        (ended,) = client.recorded("turn.finished")
        assert ended["outcome"] == "interrupted"
        session = client.recorded("session.created")[0]["session"]
        with served(tmp_path, model=model) as another:
            refused = another.call("delegate", task="are you there?", session=session)
        assert refused.is_error
        assert "no task of this connection" in text(refused)
        assert len(client.recorded("turn.started")) == 1
