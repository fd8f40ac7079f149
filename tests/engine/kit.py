"""A session on a log in memory, with a model that follows a script. For what is about the engine alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec

from lmagent.core import events as ev
from lmagent.core.agent import AgentConfig, TurnLimits, Window
from lmagent.core.commands import Submit
from lmagent.core.errors import StoreError, ToolError
from lmagent.core.messages import Message, Text, Thinking, ToolCall, user
from lmagent.core.model import ModelReply, ModelRequest, TextChunk, Usage
from lmagent.core.tool import Tool, ToolContext, ToolOutput
from lmagent.engine.lane import run_until_idle
from lmagent.engine.session import Session, Wiring
from lmagent.engine.toolbox import Toolbox
from lmagent.policy.gate import Rules


class MemoryLog:
    """A SessionLog whose lines can be cut as a crash would cut them."""

    def __init__(self, session: str = "s1", lines: Sequence[bytes] = ()) -> None:
        self.session = session
        self.damage = ()
        self.lines = list(lines)
        self.blobs: dict[str, bytes] = {}
        self.synced = 0
        self.fail_at: int | None = None

    def events(self) -> list[ev.DurableEvent]:
        return [ev.decode(line) for line in self.lines]

    async def append(self, event: ev.DurableEvent, *, sync: bool = False) -> ev.DurableEvent:
        seq = len(self.lines) + 1
        if self.fail_at is not None and seq >= self.fail_at:
            raise StoreError("no space left", fix="make room")
        event = msgspec.structs.replace(event, id=f"e{seq}", seq=seq, ts=time.time())
        self.lines.append(ev.encode(event))
        if sync:
            self.synced = seq
        return event

    async def put_blob(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    async def adopt_blob(self, path: Path) -> str:
        content = path.read_bytes()
        path.unlink()
        return await self.put_blob(content)

    def get_blob(self, sha256: str) -> bytes:
        return next(content for digest, content in self.blobs.items() if digest.startswith(sha256))

    def close(self) -> None:
        self.closed = True


class RealClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()


Answer = ModelReply | Exception | Callable[[ModelRequest], ModelReply]


@dataclass
class Model:
    """A Provider: plays `answers`, then says "finished"; a summary request gets `summary`."""

    answers: list[Answer]
    summary: ModelReply | Exception | None = None
    before: Callable[[int], object] | None = None
    requests: list[ModelRequest] = field(default_factory=list)
    asides: list[ModelRequest] = field(default_factory=list)

    async def stream(self, request: ModelRequest):
        kept = msgspec.structs.replace(request, messages=list(request.messages))
        if request.tool_choice == "none":
            self.asides.append(kept)
            answer: Answer = self.summary or say("the summary")
        else:
            self.requests.append(kept)
            if self.before is not None:
                waiting = self.before(len(self.requests))
                if waiting is not None:
                    await waiting
                    await anyio.lowlevel.checkpoint()
            answer = self.answers.pop(0) if self.answers else say("finished")
        if callable(answer) and not isinstance(answer, ModelReply):
            answer = answer(request)
        if isinstance(answer, Exception):
            raise answer
        if answer.message.text:
            yield TextChunk(answer.message.text)
        yield answer

    async def aclose(self) -> None:
        self.requests.clear()


def say(text: str, *, thought: str = "", finish: str = "stop", usage: Usage | None = None) -> ModelReply:
    parts = ((Thinking(thought),) if thought else ()) + ((Text(text),) if text else ())
    return ModelReply(Message("assistant", parts), finish, usage or Usage(0, 0, 0, True))  # type: ignore[arg-type]


_numbers = iter(range(1, 10**9))


def call(*calls: tuple[str, str], text: str = "", cut: bool = False) -> ModelReply:
    """A reply that asks for tools: (name, arguments as JSON text)."""
    made = tuple(ToolCall(f"c{next(_numbers)}", name, arguments) for name, arguments in calls)
    parts = ((Text(text),) if text else ()) + made
    truncated = frozenset({made[-1].id}) if cut else frozenset()
    finish = "length" if cut else "tool_calls"
    return ModelReply(Message("assistant", parts), finish, Usage(0, 0, 0, True), truncated_calls=truncated)  # type: ignore[arg-type]


class PathArgs(msgspec.Struct):
    path: str
    size: int = 10


@dataclass
class World:
    """What the tools of the kit do, and what they did."""

    ran: list[str] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    on_run: Callable[[str, PathArgs], object] | None = None

    def toolbox(self) -> Toolbox:
        def tool(name: str, effect: str, **more: object) -> Tool:
            async def run(arguments: PathArgs, context: ToolContext) -> ToolOutput:
                self.running += 1
                self.most_running = max(self.running, self.most_running)
                try:
                    self.ran.append(f"{name} {arguments.path}")
                    if self.on_run is not None:
                        waiting = self.on_run(name, arguments)
                        if waiting is not None:
                            await waiting
                    await anyio.lowlevel.checkpoint()
                    if arguments.path == "missing":
                        raise ToolError("there is no such file")
                    if arguments.path == "bug":
                        raise ValueError("a bug in the tool")
                    digest = hashlib.sha256(arguments.path.encode()).hexdigest()
                    body = f"{arguments.path}\n" + "content of a line\n" * arguments.size
                    data = {"path": arguments.path, "sha256": digest, "changed": effect == "write"}
                    return ToolOutput(body, data)
                finally:
                    self.running -= 1

            return Tool(name, f"{name} it", PathArgs, effect, run, **more)  # type: ignore[arg-type]

        return Toolbox(
            (
                tool("read", "read", aliases=("read_file",), renames={"file_path": "path"}),
                tool("write", "write", targets=lambda arguments: (arguments.path,)),
                tool("late", "read", deferred=True),
            )
        )


@dataclass
class Bench:
    """Everything around one session."""

    model: Model
    world: World
    wiring: Wiring
    log: MemoryLog
    session: Session
    mode: str = "auto"
    seen: list[ev.Event] = field(default_factory=list)

    async def submit(self, text: str = "do it") -> ev.TurnFinished:
        await self.session.send(Submit(message=user(text)))
        finished = await run_until_idle(self.session)
        assert finished is not None
        return finished

    async def reopen(self, lines: int | None = None) -> Bench:
        """The session as another process would find it, after a crash that kept `lines` lines."""
        log = MemoryLog(self.log.session, self.log.lines[:lines])
        log.blobs = self.log.blobs
        session = await Session.resume(log, self.wiring, opening_of(self.wiring, self.mode))
        bench = Bench(self.model, self.world, self.wiring, log, session, self.mode)
        session.listen(bench.seen.append)
        return bench

    def of(self, kind: type) -> list:
        return [event for event in self.log.events() if isinstance(event, kind)]


async def bench(
    *answers: Answer,
    limits: TurnLimits | None = None,
    window: Window | None = None,
    mode: str = "auto",
    rules: Rules | None = None,
    attended: bool = False,
    notes: Sequence[Callable[[], str]] = (),
    secrets: Sequence[str] = (),
    keep_thinking: bool | None = False,
    system: str = "the system text",
) -> Bench:
    """A new session whose model gives `answers`."""
    world, model, log = World(), Model(list(answers)), MemoryLog()
    toolbox = world.toolbox()
    agent = AgentConfig(
        "test", system, limits=limits or TurnLimits(), window=window or Window(), keep_thinking=keep_thinking
    )
    wiring = Wiring(
        provider=model,
        toolbox=toolbox,
        clock=RealClock(),
        agent=agent,
        workspace=Path("/workspace"),
        rules=rules or Rules(),
        attended=attended,
        notes=notes,
        secrets=secrets,
    )
    session = await Session.create(log, wiring, opening_of(wiring, mode))
    made = Bench(model, world, wiring, log, session, mode)
    session.listen(made.seen.append)
    return made


def opening_of(wiring: Wiring, mode: str) -> ev.SessionCreated:
    return ev.SessionCreated(
        session="s1",
        workspace=str(wiring.workspace),
        agent="test",
        system=wiring.agent.system,
        tools=wiring.toolbox.specs(),
        mode=mode,  # type: ignore[arg-type]
    )


def faults(request: ModelRequest) -> list[str]:
    """What a strict chat template would refuse in a request; a user message may follow results."""
    found: list[str] = []
    open_calls: list[str] = []
    previous = "system"
    for position, message in enumerate(request.messages):
        if message.role == "tool":
            (result,) = message.parts
            if not open_calls or open_calls.pop(0) != result.call_id:
                found.append(f"{position}: a result without its call, or out of order")
        elif open_calls:
            found.append(f"{position}: calls without a result: {open_calls}")
        if message.role == "user" and previous == "user":
            found.append(f"{position}: a user message behind a {previous} message")
        if message.role == "assistant":
            if previous in ("assistant", "system"):
                found.append(f"{position}: an assistant message behind a {previous} message")
            if not message.text.strip() and not message.tool_calls:
                found.append(f"{position}: an empty assistant message")
            open_calls = [item.id for item in message.tool_calls]
        previous = message.role
    if open_calls:
        found.append(f"the request ends with open calls: {open_calls}")
    if previous == "assistant":
        found.append("the request ends with an assistant message")
    return found


def extends(earlier: ModelRequest, later: ModelRequest) -> bool:
    """Whether the earlier request is a byte-exact prefix of the later one, up to the closing bracket."""
    first = msgspec.json.encode((earlier.system, earlier.tools, earlier.messages))[:-2]
    return msgspec.json.encode((later.system, later.tools, later.messages)).startswith(first)
