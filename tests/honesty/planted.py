"""Fifty facts, planted in a session that is then cut: what the prompt still holds, and what can be looked up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from lmagent.app.options import HostOptions
from lmagent.app.wiring import open_host
from lmagent.core import events as ev
from lmagent.core.commands import Submit
from lmagent.core.messages import ToolCall, user
from lmagent.core.tool import ToolContext
from lmagent.engine.lane import run_until_idle
from lmagent.testing import ScriptedServer
from lmagent.testing.loopback import Received
from lmagent.testing.script import Behaviour, call, calls, say, tool

WINDOW = 16_384
FILLERS = 36
"""Reads of long files between the plants and behind them."""


class Fact(Struct, frozen=True):
    """Something that was said or seen once.

    Attributes:
        kind: constraint, todo, path, decision, number or error.
        answer: words that must be there.
        query: what a model would look for, in plain words of its own.
    """

    kind: str
    answer: str
    query: str


SAID = (
    Fact("constraint", "Never touch the folder vendor/legacy", "which folder must not be touched"),
    Fact("constraint", "All prices must stay integers in cents", "prices cents"),
    Fact("constraint", "The public API must not change before 1 March", "public api change date"),
    Fact("constraint", "Use at most 40 MB of memory", "memory limit"),
    Fact("constraint", "Do not add dependencies", "dependencies allowed"),
)
"""In the task itself."""

AMID = (
    Fact("constraint", "Customer names must never be logged", "logging customer names"),
    Fact("constraint", "Every migration has to be reversible, without exception", "migrations reversible"),
    Fact("constraint", "Only Oksana may approve a change of the tax tables", "who approves tax table changes"),
    Fact("constraint", "Dates should always be written as ISO 8601", "date format"),
    Fact("constraint", "Keep the nightly export below 15 minutes", "how long may the nightly export take"),
)
"""In the middle of a long message."""

TODOS = (
    *(Fact("todo", f"Port the {name} report to the new schema", f"{name} report") for name in ("sales", "stock")),
    *(Fact("todo", f"Ask {name} about the rounding rule", f"rounding rule {name}") for name in ("Priya", "Tomas")),
    *(Fact("todo", f"Measure the {name} query again", f"measure {name} query") for name in ("refund", "basket")),
    Fact("todo", "Delete the feature flag BLUE_CART", "feature flag to delete"),
    Fact("todo", "Write the changelog entry for 4.7", "changelog entry version"),
)
WRITTEN = tuple(f"src/{name}.py" for name in ("billing/vat", "billing/rounding", "cart/basket", "export/nightly"))
READ = tuple(f"docs/{name}.md" for name in ("tax-2024", "schema-v7", "runbook"))
TOUCHED = ("fixtures/eu_rates.csv", "fixtures/uk_rates.csv", "Makefile")
PATHS = tuple(
    Fact("path", path, f"file {path.rpartition('/')[2].partition('.')[0]}") for path in (*WRITTEN, *READ, *TOUCHED)
)
DECISIONS = tuple(
    Fact("decision", answer, query)
    for answer, query in (
        ("I decided for banker's rounding, because the auditors use it", "why which rounding was chosen"),
        ("We keep SQLite and not Postgres, since there is one writer", "sqlite or postgres decision"),
        ("I will name the new table invoice_line_v2", "name of the new table"),
        ("The cache key is tenant plus day, not the user", "what is the cache key"),
        ("Retries stop after the third attempt, by our agreement", "how many retries attempts"),
        ("I chose the streaming parser over the DOM one", "which parser was chosen"),
        ("The flag defaults to off in production", "flag default production"),
        ("We leave the old endpoint for two releases", "old endpoint how long"),
    )
)
NUMBERS = tuple(
    Fact("number", answer, query)
    for answer, query in (
        ("p95 latency of checkout: 418 ms", "checkout latency p95"),
        ("rows in orders_archive: 7,340,112", "how many rows orders_archive"),
        ("listening port of the mock bank: 18443", "mock bank port"),
        ("coverage of src/billing: 63.4 %", "coverage billing"),
        ("peak memory of the export: 37.9 MB", "peak memory export"),
        ("exchange rate used: 1.0873 USD per EUR", "exchange rate usd eur"),
        ("build number of the image: 20417", "image build number"),
        ("longest queue seen: 962 jobs", "longest queue jobs"),
    )
)
ERRORS = tuple(
    Fact("error", answer, query)
    for answer, query in (
        ("RoundingError: 0.005 lost in line 88", "rounding error line"),
        ("IntegrityError: duplicate key invoice_4471", "duplicate key integrity error"),
        ("timeout after 31 s while reading s3://exports/june", "timeout reading exports"),
        ("assert 1200 == 1199 in test_vat_reverse_charge", "test vat reverse charge assertion"),
        ("ModuleNotFoundError: No module named 'zeep'", "module not found"),
        ("UnicodeDecodeError at byte 0x9c of uk_rates.csv", "unicode decode error byte"),
    )
)
FACTS = (*SAID, *AMID, *TODOS, *PATHS, *DECISIONS, *NUMBERS, *ERRORS)
IN_PROMPT = ("constraint", "todo", "path")


STOCK = "the report of this week was read by them and it went on as it had been before in most of our places"


class Outcome(Struct):
    """How it went.

    Attributes:
        compactions: cuts after the last fact was planted.
        prompt: whether each fact stands in the last prompt.
        calls: how many look-ups found each fact; 0 for none of two.
    """

    compactions: int
    prompt: dict[str, bool]
    calls: dict[str, int]


def prose(seed: int, words: int) -> str:
    """Text that says nothing."""
    stock = STOCK.split()
    text = [stock[(seed * 7 + at * at + at // 3) % len(stock)] for at in range(words)]
    return "".join(word + (".\n" if at % 17 == 16 else " ") for at, word in enumerate(text))


def prepare(folder: Path) -> None:
    """The files of the workspace."""
    for path in (*READ, *TOUCHED):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"about {path}\n")
    for number in range(FILLERS):
        (folder / f"notes{number % 12}.txt").write_text(prose(number % 12, 900))
    lines = [f"item {at}: {at * 7919 % 1000} of {at}" for at in range(1200)]
    for at, fact in enumerate(NUMBERS):
        lines[300 + at * 90] = fact.answer  # far from both ends, so that the model is never shown it
    (folder / "measures.txt").write_text("\n".join(lines) + "\n")


def plants() -> list[Any]:
    """What the model does first: it plants all that is not said by the person."""
    first = [call("todo_add", description=fact.answer) for fact in TODOS]
    first += [call("write", path=path, content=f"# {path}\n") for path in WRITTEN]
    first += [call("read", path=path) for path in READ]
    first += [call("shell", command=f"printf 'EUR,1\\n' >> {path}") for path in TOUCHED]
    first += [calls(tool("ls", path="."), text=f"{fact.answer}.") for fact in DECISIONS]
    first += [call("shell", command="cat measures.txt")]
    first += [call("shell", command=f"echo {quoted(fact.answer)} >&2; exit 3") for fact in ERRORS]
    return first


def quoted(text: str) -> str:
    """For the shell."""
    return "'" + text.replace("'", "'\\''") + "'"


class Script:
    """A model that plants, reads until much was cut, and then looks facts up."""

    def __init__(self) -> None:
        fillers = [call("read", path=f"notes{at % 12}.txt", offset=1 + 20 * (at // 12)) for at in range(FILLERS)]
        self.replies = [*plants(), *fillers]
        self.last: dict[str, Any] = {}

    def __call__(self, received: Received) -> Behaviour:
        if received.body.get("tool_choice") == "none":
            return say("The work went on, and much was read. The next step is to go on. " * 6)
        self.last = received.body
        return self.replies.pop(0) if self.replies else say("That is all for now.")


async def play(folder: Path, words: int = 900) -> Outcome:
    """Plant the facts, cut the conversation, and look.

    Args:
        folder: the workspace.
        words: how many stand before and behind the demands in the middle of a long message.
    """
    prepare(folder)
    task = f"Move the shop's billing to the new schema. {'. '.join(fact.answer for fact in SAID)}.\n"
    amid = ". ".join(fact.answer for fact in AMID)
    long = f"Some background first.\n{prose(3, words)}\n{amid}.\n{prose(5, words)}\nGo on with the task."
    script = Script()
    with ScriptedServer(script) as server:
        flags = {"llm_url": server.base_url, "permission_mode": "auto", "sandbox": "off", "context_window": WINDOW}
        host = await open_host(HostOptions(folder, flags), say=lambda _: None)
        try:
            session = await host.new_session()
            replies, script.replies = script.replies, []
            for text in (task, long, "Now do it all."):
                script.replies = replies if text.startswith("Now") else []
                await session.send(Submit(message=user(text)))
                await run_until_idle(session)
            planted = max(event.seq for event in _events(host, session) if _plants(event))
            cuts = [e for e in _events(host, session) if isinstance(e, ev.CompactionDone) and e.seq > planted]
            sent = str(script.last["messages"])
            prompt = {fact.answer: _holds(sent, fact.answer) for fact in FACTS}
            calls = {fact.answer: await _look_up(host, session, fact) for fact in FACTS}
            return Outcome(len(cuts), prompt, calls)
        finally:
            await host.aclose()


def _events(host: Any, session: Any) -> list[ev.DurableEvent]:
    return list(host.store.read(session.state.session))


def _plants(event: ev.DurableEvent) -> bool:
    return isinstance(event, ev.ToolFinished) and any(fact.answer in event.content for fact in ERRORS)


def _holds(text: str, answer: str) -> bool:
    plain = text.replace("\\'", "'")
    return answer in plain


async def _look_up(host: Any, session: Any, fact: Fact) -> int:
    """With how many look-ups a model finds the fact: recall, then what recall points to."""
    found = await _call(host, session, "recall", {"query": fact.query})
    if fact.answer in found:
        return 1
    for handle, line in re.findall(r"artifact (\w+), line (\d+)", found):
        page = await _call(host, session, "read_artifact", {"id": handle, "offset": int(line)})
        return 2 if fact.answer in page else 0
    return 0


async def _call(host: Any, session: Any, name: str, arguments: dict[str, Any]) -> str:
    invocation = host.toolbox.resolve(ToolCall("look", name, msgspec.json.encode(arguments).decode()))
    context = ToolContext(session.state.session, "look", host.workspace, {}, lambda _: None)
    return (await invocation.tool.run(invocation.arguments, context)).content
