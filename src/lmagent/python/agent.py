"""Agent: the agent for a Python program. Making one does nothing yet: `run`, `run_sync` and `session` do the work."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

from lmagent.core.errors import ConfigError
from lmagent.core.model import LONGEST_INSTRUCTIONS
from lmagent.core.tool import Tool
from lmagent.python.functions import FunctionTool, as_tool
from lmagent.python.options import absolute, allow, flags_of

if TYPE_CHECKING:
    import asyncio

    from lmagent.app.options import HostOptions
    from lmagent.core.events import PermissionMode
    from lmagent.providers.cassette import ReplayTransport
    from lmagent.python.run import AgentRun, RunResult
    from lmagent.python.service import AgentService
    from lmagent.python.session import AgentSession, ApproveBy

T = TypeVar("T")


class FolderOptions(TypedDict, total=False):
    """The arguments of `Agent` that `Agent.from_folder` takes, too."""

    model: str
    endpoint: str
    tools: Sequence[FunctionTool[..., Any] | Callable[..., Any] | Tool]
    permission: PermissionMode | Literal[""]
    approve: ApproveBy
    instructions: str
    max_steps: int | None
    settings: Mapping[str, Any] | None
    record: str | os.PathLike[str] | None
    replay: str | os.PathLike[str] | None


class Agent:
    """An agent that works in a folder. It can be used in several event loops and threads at once.

    All other settings come from the same configuration as on the command line.

    Args:
        workspace: the folder; the current one by default.
        agent: the name of an agent of one file (docs/agent-projects.md); lmagent itself by default.
        model: the model; the server's own by default.
        endpoint: address of the model server, such as http://localhost:1234/v1.
        tools: functions for the model. They run in this program, outside the sandbox, and their calls are allowed
            unless made with `@tool(ask=True)`.
        builtin_tools: names of the only tools of lmagent that are offered; `[]` for none, None for all.
        permission: `auto` allows everything; `normal` asks before changes; `manual` asks before everything.
        approve: answers the questions: a function, async or not, that gets an `ApprovalRequested` and returns True,
            False, or a text that denies. `"events"`: the program answers the events by `session.approve` and `deny`.
            None: no user can be asked, and questions are denied.
        system: a system prompt instead of lmagent's.
        instructions: text for the model in addition to it.
        max_steps: model calls in a turn.
        settings: other settings by name (docs/configuration.md).
        record: a cassette, to which the traffic with the model server is written.
        replay: a cassette that plays the model's side.

    Raises ConfigError: an argument is not allowed.
    """

    def __init__(  # noqa: PLR0913 (by keyword, each with its default)
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        agent: str = "",
        model: str = "",
        endpoint: str = "",
        tools: Sequence[FunctionTool[..., Any] | Callable[..., Any] | Tool] = (),
        builtin_tools: Sequence[str] | None = None,
        permission: PermissionMode | Literal[""] = "",
        approve: ApproveBy = None,
        system: str = "",
        instructions: str = "",
        max_steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        record: str | os.PathLike[str] | None = None,
        replay: str | os.PathLike[str] | None = None,
    ) -> None:
        if len(instructions) > LONGEST_INSTRUCTIONS:
            raise ConfigError(f"instructions have {len(instructions):,} characters, {LONGEST_INSTRUCTIONS:,} at most")
        if system and agent:
            raise ConfigError(f"the agent {agent} has a system prompt of its own", fix="instructions=… adds to it")
        if approve is not None and approve != "events" and not callable(approve):
            raise ConfigError(f"approve must be a function, 'events' or None, not {approve!r:.60}")
        named = {
            "model": ("llm_model", model),
            "endpoint": ("llm_url", endpoint),
            "permission": ("permission_mode", permission),
            "system": ("system", system),
            "max_steps": ("max_iterations", max_steps),
        }
        given = [as_tool(each) for each in tools]
        self._tools = tuple(each if isinstance(each, Tool) else each.tool for each in given)
        asking = [each.tool.name for each in given if isinstance(each, FunctionTool) and each.asks]
        self._flags = flags_of(named, settings or {})
        allow(self._flags, [tool.name for tool in self._tools if tool.name not in asking], asking, builtin_tools)
        self._workspace, self._agent = absolute(workspace), agent
        self._project: Path | None = None
        self._approve: ApproveBy = approve
        self._instructions = instructions
        self._record, self._replay = absolute(record), absolute(replay)
        self._player: ReplayTransport | None = None
        self._services: dict[asyncio.AbstractEventLoop, AgentService] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_folder(
        cls,
        path: str | os.PathLike[str],
        workspace: str | os.PathLike[str] | None = None,
        **options: Unpack[FolderOptions],
    ) -> Self:
        """Make the agent of an agent project: its prompts, tools, permissions and limits, as `lmagent agent run` has
        them.

        Args:
            path: the project's folder.
            workspace: the folder to work in; the agent's own one in the data folder by default.
            options: arguments of `Agent`, which win over the project's.

        Raises ConfigError: the project cannot be used, or an argument is not allowed.
        """
        from lmagent.projects.load import load_folder

        folder = load_folder(Path(path))
        agent = cls(workspace, agent=folder.slug, **options)
        agent._project = folder.path
        return agent

    # --- one task ---------------------------------------------------------------------------------------------------

    @overload
    def run(self, task: str, *, session: str = "") -> AgentRun[None]: ...
    @overload
    def run(self, task: str, *, session: str = "", answer: type[T]) -> AgentRun[T]: ...
    def run(self, task: str, *, session: str = "", answer: Any = None) -> AgentRun[Any]:
        """Do a task: await the run for its result, or iterate over its events.

        Args:
            task: what to do.
            session: id of a session to continue; a new one by default.
            answer: the type of the final answer: a Struct, dataclass, TypedDict or model of pydantic.
        """
        from lmagent.python.run import run_of

        self._require_answers_elsewhere()
        return run_of(partial(self.session, session), task, answer)

    @overload
    def resume(self, session: str) -> AgentRun[None]: ...
    @overload
    def resume(self, session: str, *, answer: type[T]) -> AgentRun[T]: ...
    def resume(self, session: str, *, answer: Any = None) -> AgentRun[Any]:
        """Finish the turn of a session that an earlier process left."""
        from lmagent.python.run import run_of

        self._require_answers_elsewhere()
        return run_of(partial(self.session, session), None, answer)

    @overload
    def run_sync(self, task: str, *, session: str = "") -> RunResult[None]: ...
    @overload
    def run_sync(self, task: str, *, session: str = "", answer: type[T]) -> RunResult[T]: ...
    def run_sync(self, task: str, *, session: str = "", answer: Any = None) -> RunResult[Any]:
        """Do a task, and return its result; for programs without an event loop."""
        return _in_a_loop(lambda: self.run(task, session=session, answer=answer), "run_sync()", "run()")

    @overload
    def resume_sync(self, session: str) -> RunResult[None]: ...
    @overload
    def resume_sync(self, session: str, *, answer: type[T]) -> RunResult[T]: ...
    def resume_sync(self, session: str, *, answer: Any = None) -> RunResult[Any]:
        """Finish a turn like `resume`, and return its result."""
        return _in_a_loop(lambda: self.resume(session, answer=answer), "resume_sync()", "resume()")

    def _require_answers_elsewhere(self) -> None:
        if self._approve == "events":
            raise ConfigError(
                'approve="events" is for sessions: a single run has no place for the answers',
                fix="async with agent.session() as session, or give a function: approve=…",
            )

    # --- several turns ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, id: str = "", *, create: bool = False) -> AsyncGenerator[AgentSession]:
        """Open a session for several turns: `async with agent.session() as session`.

        Args:
            id: the id, or its unique beginning, of a session to continue, or `last`; a new one by default.
            create: begin a session with this id if it does not exist.
        """
        from lmagent.python.session import AgentSession

        async with self._in_use() as service:
            approve = None if self._approve == "events" else self._approve
            session = await AgentSession.open(
                service, id, create=create, approve=approve, instructions=self._instructions
            )
            try:
                yield session
            finally:
                await session.close()

    # --- what runs it -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Keep everything open between runs: the connections, the sandbox, MCP servers."""
        service = self._take()
        try:
            await service.runner()
        except BaseException:
            await self._give_back(service)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await self._give_back(self._services[asyncio.get_running_loop()])

    @asynccontextmanager
    async def _in_use(self) -> AsyncGenerator[AgentService]:
        service = self._take()
        try:
            yield service
        finally:
            await self._give_back(service)

    def _take(self) -> AgentService:
        from lmagent.python.service import AgentService

        loop = _running_loop()
        if loop is None:
            raise ConfigError("an agent runs in an event loop of asyncio", fix="use asyncio.run(…), or run_sync")
        with self._lock:
            self._services = {known: service for known, service in self._services.items() if not known.is_closed()}
            service = self._services.get(loop)
            if service is None:
                service = self._services[loop] = AgentService(self._host_options(), self._instructions)
            service.users += 1
            return service

    async def _give_back(self, service: AgentService) -> None:
        with self._lock:
            service.users -= 1
            is_last = not service.users
            if is_last:
                self._services = {loop: other for loop, other in self._services.items() if other is not service}
        if is_last:
            await service.end()

    def _host_options(self) -> HostOptions:
        from lmagent.app.options import HostOptions
        from lmagent.app.wiring import player

        if self._replay is not None and self._player is None:
            self._player = player(self._replay)
        options = HostOptions(
            self._workspace,
            dict(self._flags),
            self._record,
            self._player,
            attended=self._approve is not None,
            agent=self._agent,
            tools=self._tools,
        )
        return options if self._project is None else _of_project(options, self._project)

    # --- cassettes --------------------------------------------------------------------------------------------------

    @property
    def replay_report(self) -> str:
        """Return how the runs differed from the cassette of `replay`; empty if they did not."""
        if self._replay is None:
            raise ConfigError("no cassette is replayed", fix="Agent(replay=FILE)")
        return self._player.report() if self._player is not None else "replay: no run has begun"


def _of_project(options: HostOptions, path: Path) -> HostOptions:
    from msgspec.structs import replace

    from lmagent.app.agentproject import with_settings, workspace_of
    from lmagent.app.options import load_settings
    from lmagent.projects.load import load_folder

    folder = load_folder(path)  # it may have changed since the agent was made
    if options.workspace is None:
        data_dir = load_settings(options).settings.agent_data_dir
        options = replace(options, workspace=workspace_of(folder, data_dir))
    return with_settings(options, folder)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _in_a_loop(run: Callable[[], AgentRun[T]], name: str, instead: str) -> RunResult[T]:
    import asyncio

    if _running_loop() is not None:
        raise ConfigError(f"{name} was called inside a running event loop", fix=f"there, await {instead}")

    async def main() -> RunResult[T]:
        return await run()

    return asyncio.run(main())
