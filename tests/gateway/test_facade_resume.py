"""A client that sends the whole conversation each time goes on in the session in which it took place, in no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from gateway_kit import Client, Running, gateway, shared

from lmagent.testing.loopback import Received
from lmagent.testing.script import Reply, call, calls, hang, say, slow, status, tool

AGENT = "agent/lmagent"


def counting(received: Received) -> Reply:
    """Says which of its user's messages it answers."""
    users = [message for message in received.body["messages"] if message["role"] == "user"]
    return say(f"Answer {len(users)}.")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gateway(tmp_path_factory.mktemp("resume"), counting) as started:
        yield started


class Talk:
    """A conversation as a client keeps it: with no session's id, whole in every request."""

    def __init__(self, client: Client, first: str, **fields: Any) -> None:
        self.client, self.fields = client, fields
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": first}]

    def ask(self, text: str = "", headers: dict[str, str] | None = None) -> str:
        """Send the conversation with one more message; the session that answered."""
        if text:
            self.messages.append({"role": "user", "content": text})
        body = {"model": AGENT, "messages": self.messages, **self.fields}
        answer = self.client.ask("POST", "/v1/chat/completions", body, headers)
        assert answer.status == 200, answer.body
        self.messages.append({"role": "assistant", "content": answer.json["choices"][0]["message"]["content"]})
        return answer.headers["x-session"]

    @property
    def last(self) -> str:
        return self.messages[-1]["content"]


AGAIN = {"X-Stainless-Retry-Count": "1"}
"""What OpenAI's clients say where they send a request again."""


def given_up(running: Running, talk: Talk, headers: dict[str, str] | None = None) -> None:
    """Ask, and go away while the model answers."""
    body = {"model": AGENT, "messages": talk.messages}
    running.leave("/v1/chat/completions", body, headers, once=lambda: running.model.chats)


def told(running: Running) -> list[str]:
    """What users said to the model in the last request."""
    asked = [request for request in running.model.requests if request.method == "POST"]
    return [str(message["content"]) for message in asked[-1].body["messages"] if message["role"] == "user"]


def test_a_conversation_goes_on_in_its_session(running: Running) -> None:
    talk = Talk(running, "the first one")
    first = talk.ask()
    assert [talk.ask("more"), talk.ask("more"), talk.ask("and more")] == [first] * 3
    assert talk.last == "Answer 4."
    assert told(running)[-3:] == ["more", "more", "and more"]


def test_so_does_one_that_is_streamed_with_calls_between_the_words() -> None:
    script = [calls(tool("ls"), text="I look."), say("Nothing.  "), say("Bye.")]
    with shared(script) as running:
        token = running.headers["Authorization"].removeprefix("Bearer ")
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key=token, max_retries=0, timeout=30) as client:
            messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "what is here?"}]
            for _ in range(2):
                stream = client.chat.completions.create(model=AGENT, messages=messages, stream=True)
                said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
                messages += [{"role": "assistant", "content": said.strip()}, {"role": "user", "content": "bye"}]
        assert "I look." in messages[2]["content"]
        assert len(running.ask("GET", "/api/sessions").json["sessions"]) == 1


@pytest.mark.crash
def test_it_goes_on_after_the_gateway_was_killed(tmp_path: Path) -> None:
    with gateway(tmp_path, counting) as running:
        talk = Talk(running, "hello")
        first = talk.ask()
        running.kill()
        running.start()
        talk.client = running
        assert talk.ask("again") == first
        assert talk.last == "Answer 2."


@pytest.mark.parametrize(
    "change",
    [
        lambda talk: talk.messages[0].update(content="another beginning"),
        lambda talk: talk.messages[1].update(content="Answer 1!"),
        lambda talk: talk.messages[2].update(content="more?"),
        lambda talk: talk.messages.insert(0, {"role": "system", "content": "Be brief."}),
        lambda talk: talk.messages.__delitem__(slice(2)),
        lambda talk: talk.messages.__delitem__(slice(2, None)),
        lambda talk: talk.fields.update(model=f"{AGENT}:test-model"),
    ],
)
def test_a_conversation_that_was_changed_begins_a_session(running: Running, change: Callable[[Talk], None]) -> None:
    talk = Talk(running, f"to be changed {id(change)}")
    first = talk.ask()
    talk.ask("more")
    change(talk)
    assert talk.ask("and now?") != first
    assert talk.last == "Answer 1."
    assert "and now?" in told(running)[-1]


def test_an_answer_is_asked_for_again_in_a_session_of_its_own(running: Running) -> None:
    talk = Talk(running, "regenerate me")
    first = talk.ask()
    talk.ask("more")
    del talk.messages[-1]
    again = talk.ask()
    assert again != first
    assert talk.ask("go on") == again


def test_another_caller_is_not_given_the_session(running: Running) -> None:
    talk = Talk(running, "mine")
    first = talk.ask()
    other = Talk(running.page(), "")
    other.messages = list(talk.messages)
    theirs = other.ask("more")
    assert theirs != first
    assert talk.ask("more") == first
    assert other.ask("and more") == theirs


@pytest.mark.long
def test_another_token_is_not_given_the_sessions_of_the_one_before(tmp_path: Path) -> None:
    with gateway(tmp_path, counting, AGENT_TOKEN="the-first-of-the-tokens") as running:
        talk = Talk(running, "mine")
        first = talk.ask()
        running.stop()
        running.env["AGENT_TOKEN"] = "the-second-of-the-tokens"
        running.start()
        talk.client = running
        assert talk.ask("more") != first


def test_of_two_conversations_that_are_the_same_so_far_none_is_guessed(running: Running) -> None:
    one, other = Talk(running, "good morning"), Talk(running, "good morning")
    sessions = {one.ask(), other.ask()}
    assert len(sessions) == 2
    third, fourth = one.ask("first"), other.ask("second")
    assert len({*sessions, third, fourth}) == 4
    assert (one.ask("more"), other.ask("more")) == (third, fourth)  # now they differ


def test_requests_of_one_conversation_at_once_do_not_meet(tmp_path: Path) -> None:
    with gateway(tmp_path, lambda received: slow(counting(received), first=0.3)) as running:
        talk = Talk(running, "hello")
        first = talk.ask()
        came: list[str] = []

        def ask() -> None:
            mine = Talk(running, "")
            mine.messages = list(talk.messages)
            came.append(mine.ask("at once"))
            assert mine.last in ("Answer 1.", "Answer 2.")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(came)) == 4
        assert first in came
        log = running.workspace / ".lmagent" / "sessions" / first / "events.jsonl"
        assert log.read_text().count('"input.received"') == 2


def test_a_session_that_went_on_elsewhere_is_left_alone(running: Running) -> None:
    talk = Talk(running, "to the page")
    first = talk.ask()
    answer = running.ask("POST", f"/api/chat/{first}", {"message": "from the page"})
    assert answer.status == 200
    assert talk.ask("more") != first


def test_a_session_that_was_named_knows_more_than_the_client_says_and_is_not_found(running: Running) -> None:
    named = Talk(running, "in a session of my own")
    assert named.ask(headers={"X-Session": "my-own"}) == "my-own"
    assert named.ask("more") != "my-own"


def test_a_session_that_is_deleted_is_not_gone_on_with(running: Running) -> None:
    talk = Talk(running, "to be deleted")
    first = talk.ask()
    assert running.ask("DELETE", f"/api/sessions/{first}").status == 200
    assert talk.ask("more") != first


def test_what_was_done_is_known_and_not_only_what_was_said() -> None:
    script = [call("ls"), say("One."), say("Two.")]
    with shared(script) as running:
        talk = Talk(running, "hello")
        talk.ask()
        talk.ask("again")
        roles = [message["role"] for message in running.model.requests[-1].body["messages"]]
        assert "tool" in roles


def test_a_client_that_gave_up_waiting_and_asks_again_is_given_the_same_turn() -> None:
    with shared([slow(say("Done at last."), first=3), say("Done twice.")]) as running:
        token = running.headers["Authorization"].removeprefix("Bearer ")
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key=token, max_retries=9, timeout=2) as client:
            answer = client.chat.completions.create(model=AGENT, messages=[{"role": "user", "content": "do it"}])
        assert answer.choices[0].message.content == "Done at last."
        assert len(running.ask("GET", "/api/sessions").json["sessions"]) == 1
        assert [event["type"] for event in running.logs()].count("input.received") == 1


def test_so_is_one_that_names_its_session() -> None:
    with shared([slow(say("Done at last."), first=1.5), say("Done twice.")]) as running:
        talk, named = Talk(running, "do it"), {"X-Session": "named-and-asked-again"}
        given_up(running, talk, named)
        talk.ask(headers={**named, **AGAIN})
        assert talk.last == "Done at last."
        del talk.messages[1:]
        talk.ask(headers=named)  # this is meant as another one
        assert talk.last == "Done twice."


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("session", ["", "one-word-at-a-time"])
def test_the_same_words_after_an_answer_are_another_turn_though_their_first_try_never_came(
    running: Running, session: str, streamed: bool
) -> None:
    name = f"{session}-{streamed}" if session else ""
    body = {"model": AGENT, "messages": [{"role": "user", "content": f"go on {streamed}"}], "stream": streamed}
    asked = [running.ask("POST", "/v1/chat/completions", body, {"X-Session": name, **again}) for again in ({}, AGAIN)]
    assert [answer.status for answer in asked] == [200, 200]
    logs = [running.workspace / ".lmagent/sessions" / answer.headers["x-session"] for answer in asked]
    said = {line for log in logs for line in (log / "events.jsonl").read_text().splitlines() if "turn.finished" in line}
    assert len(said) == 2


@pytest.mark.crash
@pytest.mark.long
def test_so_they_are_when_the_gateway_was_started_anew_meanwhile(tmp_path: Path) -> None:
    with gateway(tmp_path, counting) as running:
        talk, named = Talk(running, "go on"), {"X-Session": "over-a-restart"}
        talk.ask(headers=named)
        running.kill()
        running.start()
        del talk.messages[1:]
        talk.client = running
        talk.ask(headers={**named, **AGAIN})
        assert talk.last == "Answer 2."


def test_a_client_whose_gateway_is_started_anew_is_given_its_turn_by_the_next_one(tmp_path: Path) -> None:
    with gateway(tmp_path, [hang(say("never said"), chunks=1), say("After all."), say("Twice.")]) as running:
        token, came = running.headers["Authorization"].removeprefix("Bearer "), []

        def ask() -> None:
            with openai.OpenAI(base_url=f"{running.url}/v1", api_key=token, max_retries=9, timeout=30) as client:
                answer = client.chat.completions.create(model=AGENT, messages=[{"role": "user", "content": "do it"}])
                came.append(answer.choices[0].message.content)

        asking = threading.Thread(target=ask)
        asking.start()
        running.until_asked(left=2)
        running.stop()
        running.start()
        asking.join()
        assert came == ["After all."]
        assert [event["type"] for event in running.logs()].count("input.received") == 1


@pytest.mark.crash
@pytest.mark.long
def test_a_turn_that_the_next_gateway_goes_on_with_is_given_to_who_asks_again(tmp_path: Path) -> None:
    with gateway(tmp_path, [hang(say("never said"), chunks=1), say("After all."), say("Twice.")]) as running:
        talk = Talk(running, "do it")
        given_up(running, talk)
        running.kill()
        running.start()
        talk.client = running
        talk.ask(headers=AGAIN)
        assert talk.last == "After all."
        assert [event["type"] for event in running.logs()].count("input.received") == 1


@pytest.mark.parametrize("session", ["", "interrupted"])
def test_who_has_a_turn_interrupted_by_going_away_and_asks_again_begins_another_one(session: str) -> None:
    with shared([hang(say("never said"), chunks=1), say("Done.")]) as running:
        talk, headers = Talk(running, "do it"), {"X-Session": session, "X-Session-Interrupt": "1"}
        given_up(running, talk, headers)
        talk.ask(headers={**headers, **AGAIN})
        assert talk.last == "Done."


def test_a_turn_that_failed_is_not_asked_for_again_by_itself() -> None:
    with shared([status(401), say("never asked")]) as running:
        token = running.headers["Authorization"].removeprefix("Bearer ")
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key=token, max_retries=2, timeout=30) as client:
            with pytest.raises(openai.InternalServerError) as failed:
                client.chat.completions.create(model=AGENT, messages=[{"role": "user", "content": "do it"}])
        assert failed.value.response.headers["x-session"]
        assert [event["type"] for event in running.logs()].count("input.received") == 1
