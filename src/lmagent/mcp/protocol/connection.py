"""Connection: one running server through the SDK. Imported on the servers' thread only."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from lmagent.core.errors import LmagentError, ToolError
from lmagent.engine.redact import Redactor
from lmagent.mcp.protocol import messages
from lmagent.mcp.protocol.gauge import gauged
from lmagent.mcp.protocol.launch import login
from lmagent.mcp.protocol.link import McpLink
from lmagent.mcp.protocol.logs import ServerLog
from lmagent.mcp.protocol.redacted import redacted
from lmagent.mcp.spec import CallHandler, ElicitationAnswer, McpManifest, McpResult, Part, ServerSpec
from lmagent.tools.sanitize import one_line

SETTLE = 0.3
"""Seconds to wait for further changes before a changed list is read."""

CALM = 5.0
"""Seconds between two readings of lists that keep changing."""

WHOLE = 12
"""A call with signs of progress may take so many times the seconds that it may take without one."""

PROGRESS = 0.05
"""Seconds between pieces of progress that are shown."""

FAULTS = 1000
"""Faults of a result up to which the first is named: the SDK can only list all."""

_call: ContextVar[_Call | None] = ContextVar("mcp_call", default=None)

for _name in ("mcp", "mcp_types", "client", "httpx2", "httpcore2"):
    # They log contents, and tracebacks of failures that the log of the server has in words.
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class _Call:
    """A running call: its handler, and the time that it may take. The clock stands still while the user is asked."""

    def __init__(self, handler: CallHandler, limit: float) -> None:
        self.handler = handler
        self.limit = limit
        self.end = anyio.current_time() + WHOLE * limit
        self.scope = anyio.CancelScope()
        self._questions = 0
        self.wind_up()

    def wind_up(self) -> None:
        """Start the clock anew, after a sign of progress or an answer."""
        if not self._questions:
            self.scope.deadline = min(anyio.current_time() + self.limit, self.end)

    @property
    def lapse(self) -> str:
        """Return what did not come in time."""
        if anyio.current_time() >= self.end:
            return f"no result within {WHOLE * self.limit:g} seconds"
        return f"no result and no sign of progress for {self.limit:g} seconds"

    @contextmanager
    def asking(self) -> Generator[CallHandler]:
        began = anyio.current_time()
        self._questions += 1
        self.scope.deadline = float("inf")
        try:
            yield self.handler
        finally:
            self._questions -= 1
            self.end += anyio.current_time() - began
            self.wind_up()


class McpConnection:
    """A server that answers; made by `connect`.

    Attributes:
        manifest: what it offers now.
    """

    def __init__(
        self,
        spec: ServerSpec,
        link: McpLink,
        log: ServerLog,
        redactor: Redactor,
        changed: Callable[[McpManifest], None],
    ) -> None:
        self.manifest = McpManifest()
        self.link = link
        self._spec = spec
        self._log = log
        self._redactor = redactor
        self._changed = changed
        self._calls: list[_Call] = []
        self._stale = anyio.Event()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def call(self, tool: str, arguments: Mapping[str, Any], handler: CallHandler) -> McpResult:
        """Call a tool. Raises ToolError."""
        call = _Call(handler, self._spec.call_timeout)
        shown_at = -PROGRESS

        async def show(progress: float, total: float | None, message: str | None) -> None:
            nonlocal shown_at
            call.wind_up()
            if (now := anyio.current_time()) >= shown_at + PROGRESS:
                shown_at = now
                handler.progress(message or (f"{progress:g} of {total:g}" if total else f"{progress:g}"))

        token = _call.set(call)
        self._calls.append(call)
        try:
            with call.scope:
                result = await self._asked(
                    f"the tool {tool}", self.client.call_tool(tool, dict(arguments), progress_callback=show)
                )
                return messages.result_of(result)
        finally:
            self._calls.remove(call)
            _call.reset(token)
        raise ToolError(
            f"{self._spec.name}: the tool {tool} gave {call.lapse}, and was cancelled; it may have had an effect"
        )

    async def read(self, uri: str) -> tuple[Part, ...]:
        """Read a resource. Raises ToolError."""
        result = await self._bounded(f"the resource {uri[:200]}", self.client.read_resource(uri, cache_mode="bypass"))
        return tuple(map(messages.content_of, result.contents))

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> tuple[tuple[str, Part], ...]:
        """Return the messages of a prompt. Raises ToolError."""
        result = await self._bounded(f"the prompt {name}", self.client.get_prompt(name, dict(arguments)))
        return tuple((message.role, messages.part_of(message.content)) for message in result.messages)

    async def _bounded(self, what: str, asked: Any) -> Any:
        with anyio.move_on_after(self._spec.call_timeout):
            return await self._asked(what, asked)
        raise ToolError(f"{self._spec.name}: {what} did not come within {self._spec.call_timeout:g} seconds")

    async def _asked(self, what: str, asked: Any) -> Any:
        """Await an answer of the server; raise ToolError for any failure of it."""
        name = self._spec.name
        try:
            return await asked
        except ValidationError as error:
            raise ToolError(f"{name}: {what} failed: {first_line(error)}") from error
        except MCPError as error:
            once = "The call is not repeated, since it may have had an effect."
            if self.link.ended.is_set():
                why = self.link.reason or one_line(error.message, 300)
                raise ToolError(f"the server {name} died during the call of {what}: {why}. {once}") from error
            if self.link.needs_login:
                raise ToolError(f"{name}: {self.link.reason}. What the user can do: {login(self._spec)}") from error
            detail = f" ({self.link.answered})" if self.link.answered else ""
            failure = f"{name}: {what} failed: {one_line(error.message, 2000)}{detail}"
            # Servers use this code for faults of their own, too.
            is_cut = error.code == types.CONNECTION_CLOSED
            raise ToolError(f"{failure}. {once}" if is_cut else failure) from error
        except RuntimeError as error:  # a result that its own schema does not allow
            raise ToolError(f"{name}: {what} failed: {first_line(error)}") from error

    # --- what the server sends --------------------------------------------------------------------------------------

    @property
    def _running(self) -> _Call | None:
        """The call that a request belongs to; None if that is not certain."""
        if (own := _call.get()) is not None:
            return own
        return self._calls[0] if len(self._calls) == 1 else None

    async def sample(self, context: ClientRequestContext, params: types.CreateMessageRequestParams) -> Any:
        if (call := self._running) is None:
            return messages.declined("the request for a reply")
        with call.asking() as handler:
            text = await handler.sample(messages.sampling_of(params))
        return messages.declined("the request for a reply") if text is None else messages.sampled(text)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> Any:
        if (call := self._running) is None:
            return messages.elicited(ElicitationAnswer("decline"))
        with call.asking() as handler:
            return messages.elicited(await handler.elicit(messages.elicitation_of(params)))

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        root = Path(self.link.root)
        return types.ListRootsResult(roots=[types.Root(uri=root.as_uri(), name=root.name)])  # pyright: ignore[reportArgumentType]

    async def logged(self, params: types.LoggingMessageNotificationParams) -> None:
        self._log.write("server", f"{params.level}: {str(params.data)[:4000]}")

    async def received(self, message: Any) -> None:
        changes = (
            types.ToolListChangedNotification,
            types.PromptListChangedNotification,
            types.ResourceListChangedNotification,
        )
        if isinstance(message, changes):
            self._stale.set()

    async def keep_current(self) -> None:
        """Read the lists again after the server has said that they changed."""
        while True:
            await self._stale.wait()
            await anyio.sleep(SETTLE)
            self._stale = anyio.Event()
            try:
                with anyio.fail_after(self._spec.start_timeout):
                    manifest = await messages.read_manifest(self.client)
            except (MCPError, ValidationError, LmagentError, TimeoutError) as error:
                self._log.write("lmagent", f"its changed lists cannot be read: {first_line(error)}")
            else:
                if manifest != self.manifest:
                    self.manifest = manifest
                    self._changed(manifest)
            await anyio.sleep(CALM)

    async def listen(self) -> None:
        """Follow the changes of a server that announces them on a subscription only."""
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        pause = 1.0
        while True:
            try:
                subscription = self.client.listen(
                    tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
                )
                async with subscription as events:
                    pause = 1.0
                    async for _ in events:
                        self._stale.set()
                return
            except SubscriptionLost:
                await anyio.sleep(pause)
                pause = min(pause * 2, 60.0)
                self._stale.set()
            except (MCPError, TimeoutError) as error:
                self._log.write("lmagent", f"it does not announce changes of its lists: {first_line(error)}")
                return

    def attach(self, transport: AbstractAsyncContextManager[Any]) -> Client:
        self._client = Client(
            redacted(gauged(transport, self.link), self._redactor),
            sampling_callback=self.sample,
            elicitation_callback=self.elicit,
            list_roots_callback=self.roots,
            logging_callback=self.logged,
            log_level="info",
            message_handler=self.received,
            client_info=types.Implementation(name="lmagent", version=version("lmagent-local")),
        )
        return self._client


@asynccontextmanager
async def connect(
    transport: AbstractAsyncContextManager[Any], connection: McpConnection
) -> AsyncGenerator[McpManifest]:
    """Hold a connection open, and yield what the server offers at the beginning. Enter and leave in one task."""
    async with connection.attach(transport) as client, anyio.create_task_group() as group:
        connection.manifest = await messages.read_manifest(client)
        group.start_soon(connection.keep_current)
        group.start_soon(connection.listen)
        yield connection.manifest
        group.cancel_scope.cancel()


def first_line(error: BaseException) -> str:
    """Return an error as one line."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ValidationError):
        text = "it sent something that the protocol does not allow"
        if error.error_count() > FAULTS:
            return f"{text}, {error.error_count():,} times"
        fault = error.errors()[0]
        return f"{text}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    return " ".join(str(error).split())[:500] or type(error).__name__
