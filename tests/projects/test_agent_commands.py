"""`lmagent agent`: from an empty folder to an agent that an OpenAI client talks to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import openai
import pytest

from lmagent.testing import ScriptedServer, call, say

KINDS = ("conversational", "task-oriented", "knowledge", "creative")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    own = {"HOME": str(tmp_path / "home"), "AGENT_DATA_DIR": str(tmp_path / "data"), "AGENT_TOKEN": "t" * 40}
    (tmp_path / "home").mkdir()
    return {**kept, **own}


def lmagent(*words: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmagent", "agent", *words]
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_example_can_be_tested_without_a_model_shown_and_built(
    tmp_path: Path, env: dict[str, str], kind: str
) -> None:
    made = lmagent("init", "helper", "--type", kind, env=env, cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    built = lmagent("build", "helper", "-o", "h.tar.gz", env=env, cwd=tmp_path)
    assert (built.returncode, built.stderr) == (0, "")
    tested = lmagent("test", "helper", "--junit", "out.xml", env=env, cwd=tmp_path)
    assert (tested.returncode, tested.stdout.splitlines()[-1]) == (0, "1 test, 0 failed")
    assert "recorded" not in tested.stdout
    assert 'tests="1" failures="0"' in (tmp_path / "out.xml").read_text()
    with tarfile.open(tmp_path / "h.tar.gz") as archive:
        assert {"Agentfile", ".dockerignore", ".env.example", "README.md"} <= set(archive.getnames())
    assert "docker build -f Agentfile -t helper ." in (tmp_path / "helper" / "Agentfile").read_text()
    shown = [lmagent("show", path, env=env, cwd=tmp_path).stdout for path in ("helper", "h.tar.gz")]
    assert shown[0] == shown[1]
    assert "own tools" in shown[0]


def test_a_folder_that_has_something_is_not_overwritten(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    refused = lmagent("init", "mine", env=env, cwd=tmp_path)
    assert refused.returncode == 1
    assert "is there already, and not empty" in refused.stderr
    assert [path.name for path in tmp_path.glob("mine/*")] == ["notes.txt"]


def test_a_message_is_answered_by_the_agent_with_its_own_tools(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    script = [call("roll_dice", sides=2, count=3), call("days_until", day="2000-01-01"), say("Three dice.")]
    with ScriptedServer(script) as server:
        env = {**env, "LLM_URL": server.base_url}
        done = lmagent("test", "--message", "Roll three coins", "dice/agent.yaml", env=env, cwd=tmp_path)
        bodies = [chat.body for chat in server.chats]
    assert (done.returncode, done.stdout.strip().splitlines()[-1]) == (0, "Three dice.")
    assert bodies[0]["messages"][0]["content"].startswith("You are dice, a companion for talks.")
    rolled, days = (message["content"] for message in bodies[-1]["messages"] if message["role"] == "tool")
    assert re.search(r'"rolled":\s*\[[12],\s*[12],\s*[12]\]', rolled)
    assert re.match(r"-\d+", days)
    assert "roll_dice(sides?=6, count?=1)" in done.stderr
    assert not (tmp_path / "dice" / ".lmagent").exists()


def test_the_log_level_of_the_project_traces_its_model_without_its_secrets(tmp_path: Path, env: dict[str, str]) -> None:
    secret = "sesame-open-9000"
    (tmp_path / "own").mkdir()
    (tmp_path / "dice" / "tools").mkdir(parents=True)
    (tmp_path / "dice" / "agent.yaml").write_text(
        "name: dice\nlogging: {level: trace}\nenv:\n  DICE_KEY: {secret: true}\n"
        "tools: [{name: key, path: tools/key.py}]\npermissions: {allow: [key]}\n"
    )
    (tmp_path / "dice" / "tools" / "key.py").write_text(
        "import os\n\ndef key() -> str:\n    'Say it'\n    return os.environ['DICE_KEY']\n"
    )
    with ScriptedServer([call("key"), say(f"It is {secret}.")]) as server:
        env = {**env, "LLM_URL": server.base_url, "DICE_KEY": secret}
        done = lmagent("test", "--message", "Say it", "-w", "own", "--debug", "dice", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "own" / ".lmagent" / "logs" / "lmagent.log").read_text()
    for text in (log, done.stderr):
        assert "completions: sent {" in text
        assert "the model's answer: " in text
        assert "It is [redacted]" in text
        assert secret not in text


def test_a_broken_project_is_told_with_its_line(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", env=env, cwd=tmp_path)
    (tmp_path / "dice" / "agent.yaml").write_text("name: dice\nparamters: {}\n")
    told = lmagent("test", "--message", "hi", "dice", env=env, cwd=tmp_path)
    assert told.returncode == 1
    assert "agent.yaml:2:1: there is no key 'paramters' here" in told.stderr
    assert "did you mean parameters?" in told.stderr


def test_an_archive_is_served_once_the_user_agrees_and_an_openai_client_talks_to_it(
    tmp_path: Path, env: dict[str, str]
) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    lmagent("build", "dice", "-o", "d.tar.gz", env=env, cwd=tmp_path)
    asked = lmagent("run", "d.tar.gz", "--port", "0", env=env, cwd=tmp_path)
    assert asked.returncode == 1
    assert "own tools    roll_dice, days_until" in asked.stderr
    assert "before you agree" in asked.stderr
    assert not (tmp_path / "data" / "agents").exists()
    script = [call("roll_dice"), say("A four.")]
    with ScriptedServer(script) as server:
        command = [sys.executable, "-m", "lmagent", "agent", "run", "d.tar.gz", "--yes", "--port", "0"]
        env = {**env, "LLM_URL": server.base_url}
        with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as runs:
            try:
                assert runs.stdout is not None
                lines = iter(lambda: runs.stdout.readline().decode(), "")  # type: ignore[union-attr]
                url = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
                with openai.OpenAI(base_url=f"{url}/v1", api_key="t" * 40, max_retries=0, timeout=60) as client:
                    assert "agent/dice" in [model.id for model in client.models.list()]
                    answer = client.chat.completions.create(
                        model="agent/dice", messages=[{"role": "user", "content": "Roll"}]
                    )
                assert answer.choices[0].message.content == "A four."
            finally:
                runs.send_signal(signal.SIGTERM)
                runs.wait(30)
        assert server.chats[0].body["messages"][0]["content"].startswith("You are dice")
    listed = lmagent("list", env=env, cwd=tmp_path).stdout
    assert re.fullmatch(r"dice-[0-9a-f]{12} +Talks, rolls dice.*\n", listed)
    assert lmagent("remove", "dice", env=env, cwd=tmp_path).returncode == 1
    assert lmagent("remove", listed.split()[0], "--yes", env=env, cwd=tmp_path).returncode == 0
    assert lmagent("list", env=env, cwd=tmp_path).stdout == ""
    assert (tmp_path / "data" / "agents" / "dice" / "workspace" / ".lmagent" / "sessions").is_dir()


def test_a_test_that_fails_says_what_was_expected_and_keeps_its_cassette(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    test, cassette = tmp_path / "dice/tests/dice.yaml", tmp_path / "dice/tests/cassettes/dice.jsonl"
    test.write_text(
        "message: Roll\nexpect:\n  calls: [days_until]\n  not_called: [roll_dice]\n"
        "  text: [cards]\n  files: {a.txt: x}\n  json_schema: {type: object}\n"
    )
    before = cassette.read_bytes()
    told = lmagent("test", "dice", env=env, cwd=tmp_path)
    assert told.returncode == 1
    for line in (
        "days_until was not called in this order; called: roll_dice",
        "roll_dice was called",
        "the answer does not contain 'cards'",
        "a.txt: there is no such file",
        "the answer: it is not JSON",
        "the agent's prompt is not the recorded one",
    ):
        assert line in told.stdout
    with ScriptedServer([say("no")]) as server:
        updated = lmagent("test", "dice", "--update", env={**env, "LLM_URL": server.base_url}, cwd=tmp_path)
    assert updated.returncode == 1
    assert cassette.read_bytes() == before


def test_tests_run_with_each_model_and_are_recorded_anew(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    (tmp_path / "dice/tests/dice.yaml").write_text("message: [hi, bye]\nexpect: {text: friend}\n")
    with ScriptedServer([say("hello"), say("bye friend"), say("hello"), say("bye")]) as server:
        env = {**env, "LLM_URL": server.base_url}
        live = lmagent("test", "dice", "--models", "one,two", env=env, cwd=tmp_path)
        asked = [(chat.body["model"], chat.body["temperature"], chat.body["seed"]) for chat in server.chats]
    assert asked == [("one", 0.0, 1)] * 2 + [("two", 0.0, 1)] * 2
    assert live.returncode == 1
    assert "✓ dice with one" in live.stdout
    assert "✗ dice with two" in live.stdout
    with ScriptedServer([say("hello"), say("bye friend")]) as server:
        assert (
            lmagent("test", "dice", "--update", env={**env, "LLM_URL": server.base_url}, cwd=tmp_path).returncode == 0
        )
    replayed = lmagent("test", "dice", env=env, cwd=tmp_path)
    assert (replayed.returncode, "recorded" in replayed.stdout) == (0, False)


def test_a_model_judges_the_answer_and_its_verdict_is_recorded(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    (tmp_path / "dice/tests/dice.yaml").write_text(
        "message: Say hello\nexpect:\n  judge: {criteria: [It greets the user, It is short], model: strict}\n"
    )
    script = [
        say("Go away."),
        say('{"pass": false, "reason": "It does not greet."}'),
        say("Hello!"),
        say('```json\n{"pass": true, "reason": "It greets."}\n```'),
        say("Hello!"),
        say("Fine."),
    ]
    with ScriptedServer(script) as server:
        live = {**env, "LLM_URL": server.base_url}
        rejected, accepted, unclear = (lmagent("test", "dice", "--update", env=live, cwd=tmp_path) for _ in range(3))
        judge = server.chats[1].body
    assert (rejected.returncode, accepted.returncode, unclear.returncode) == (1, 0, 1)
    assert "the judge: It does not greet." in rejected.stdout
    assert "the judge gave no verdict: it is not JSON" in unclear.stdout
    assert (judge["model"], judge["temperature"], judge["seed"]) == ("strict", 0.0, 1)
    assert judge["response_format"]["json_schema"]["schema"]["required"] == ["pass", "reason"]
    assert "- It is short" in judge["messages"][-1]["content"]
    assert "<answer>\nGo away.\n</answer>" in judge["messages"][-1]["content"]
    replayed = lmagent("test", "dice", env=env, cwd=tmp_path)
    assert (replayed.returncode, replayed.stdout.splitlines()[-1]) == (0, "1 test, 0 failed")
    cassette = tmp_path / "dice/tests/cassettes/dice.jsonl"
    *exchanges, verdict = map(json.loads, cassette.read_text().splitlines())
    verdict["chunks"] = [chunk.replace("true", "false").replace("greets", "shouts") for chunk in verdict["chunks"]]
    cassette.write_text("".join(json.dumps(line) + "\n" for line in (*exchanges, verdict)))
    assert "the judge: It shouts." in lmagent("test", "dice", env=env, cwd=tmp_path).stdout


def test_a_recorded_verdict_holds_for_no_other_criteria(tmp_path: Path, env: dict[str, str]) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    test = tmp_path / "dice/tests/dice.yaml"
    test.write_text("message: Say hello\nexpect:\n  judge: Does it greet the user?\n")
    with ScriptedServer([say("Hello!"), say('{"pass": true, "reason": "It greets."}')]) as server:
        recorded = lmagent("test", "dice", "--update", env={**env, "LLM_URL": server.base_url}, cwd=tmp_path)
    assert recorded.returncode == lmagent("test", "dice", env=env, cwd=tmp_path).returncode == 0
    test.write_text(test.read_text().replace("greet the user", "thank the user"))
    stale = lmagent("test", "dice", env=env, cwd=tmp_path)
    assert (stale.returncode, "about other criteria" in stale.stdout) == (1, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("message: x\nexpect: {judge: {criterion: y}}\n", "tests/dice.yaml:2:18: there is no key 'criterion' here"),
        ("mesage: x\n", "tests/dice.yaml:1:1: there is no key 'mesage' here"),
        ("message: x\nexpect: {text: '('}\n", "tests/dice.yaml:2:10: '('"),
        ("message: []\n", "tests/dice.yaml:1:1: message"),
    ],
)
def test_a_broken_test_is_named_with_its_line(tmp_path: Path, env: dict[str, str], content: str, said: str) -> None:
    lmagent("init", "dice", "--type", "conversational", env=env, cwd=tmp_path)
    (tmp_path / "dice/tests/dice.yaml").write_text(content)
    told = lmagent("test", "dice", env=env, cwd=tmp_path)
    assert told.returncode == 1
    assert said in told.stderr
