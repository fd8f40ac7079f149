"""Every example in README, CONTRIBUTING and docs: run as it is printed, or marked with the reason why it is not.

A block is `sh` (run by bash), `python` (run), `json` or `toml` (parsed), or `text` (no code). An HTML comment on
the line before says otherwise: `<!-- not run: REASON -->`, `<!-- exit code N: REASON -->`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from gateway_kit import Running, gateway
from msgspec import Struct

from lmagent.projects.starting import start
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, say

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(?:^<!-- (?P<mark>.+?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sh", "python", "json", "toml", "text", "yaml", "js"}
PLAN = {"title": "t", "goal": "g", "risk_areas": [], "steps": [{"id": "1", "description": "d", "verification": "v"}]}


class Example(Struct, frozen=True):
    """A block of code of a page."""

    place: str
    language: str
    code: str
    mark: str

    @property
    def code_expected(self) -> int:
        found = re.fullmatch(r"exit code (\d+): .+", self.mark)
        return int(found[1]) if found else 0


def examples() -> list[Example]:
    found: list[Example] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            place = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, block.start('code'))}"
            found.append(Example(place, block["language"], block["code"], block["mark"] or ""))
    return found


def of(*languages: str) -> list[object]:
    return [
        pytest.param(example, id=example.place)
        for example in examples()
        if example.language in languages and not example.mark.startswith("not run")
    ]


def model(received: Received) -> Behaviour:
    """Do what the examples ask for: plan, work through the plan, look for a file, or just answer."""
    said = [str(message.get("content")) for message in received.messages]
    if "a.txt say" in str(said) and received.messages[-1]["role"] != "tool":
        return call("read", path="a.txt")
    if "What does a lamp cost?" in said[-1]:
        return call("price", item="lamp")
    if "How will it be in Rome?" in said[-1]:
        return call("forecast", city="Rome")
    if '"title":"Invoice"' in said[-1]:
        return say('{"item": "lamp", "total": 5.0}')
    planning = max((number for number, text in enumerate(said) if "<work>\nPlan" in text), default=-1)
    working = max((number for number, text in enumerate(said) if "Deep work:" in text), default=-1)
    if planning > working:
        return say(json.dumps(PLAN))
    if working >= 0 and received.messages[-1]["role"] != "tool":
        return call("use_tool", name="plan_complete_step", arguments={"step_id": "1", "verification_notes": "seen"})
    return say("It says hello.")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    with gateway(tmp_path_factory.mktemp("examples"), model) as found:
        (found.workspace / "a.txt").write_text("hello\n")
        start(found.workspace / "weather", "task-oriented")
        agents = found.folder / "home" / ".config" / "lmagent" / "agents"
        agents.mkdir(parents=True)
        (agents / "code-reviewer.md").write_text("---\nname: code-reviewer\n---\nYou review code.\n")
        yield found


def environment(running: Running) -> dict[str, str]:
    return {
        **running.env,
        "PATH": f"{Path(sys.executable).parent}:{running.env['PATH']}",
        "LLM_URL": running.model.base_url,
    }


def ran(running: Running, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment(running),
        cwd=running.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_block_says_what_it_is():
    unknown = [example.place for example in examples() if example.language not in LANGUAGES]
    assert not unknown, "write ```sh, ```python, ```json, ```toml or ```text"
    odd = [f"{example.place}: {example.mark}" for example in examples() if example.language != "text" and example.mark]
    marks = re.compile(r".+: (not run: .{10,}|exit code \d+: .{10,}|generated.*)")
    assert all(marks.fullmatch(line) for line in odd), odd


@pytest.mark.parametrize("example", of("sh"))
def test_a_command_of_the_documents_works_as_printed(example: Example, running: Running):
    code = example.code.replace("7860", str(running.port))
    done = ran(running, "bash", "-euo", "pipefail", "-c", code)
    assert done.returncode == example.code_expected, f"{done.stdout}\n{done.stderr}"
    assert '"error"' not in done.stdout


@pytest.mark.parametrize("example", of("python"))
def test_a_program_of_the_documents_works_as_printed(example: Example, running: Running):
    token = ran(running, "lmagent", "web", "token").stdout.strip()
    code = f"TOKEN = {token!r}\n{example.code.replace('7860', str(running.port))}"
    done = ran(running, sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", of("json", "toml"))
def test_a_document_of_the_documents_is_one(example: Example):
    assert (json if example.language == "json" else tomllib).loads(example.code)
