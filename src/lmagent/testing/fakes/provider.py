"""FakeProvider: a model with scripted replies, without a server.

It takes the same replies as `ScriptedServer`, so a test can move from one to the other, and reads them as a real
server's; delays are left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from lmagent.core.errors import ProviderError, ServerFailure
from lmagent.core.model import ModelEvent, ModelRequest
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import Timeouts, TransportError, TransportResponse
from lmagent.testing.fakes.clock import FakeClock
from lmagent.testing.loopback import Drop, Hang, Response, Step
from lmagent.testing.script import Behaviour, PlainAnswer
from lmagent.testing.wire import ServerRequest, plain_response, respond

Scripted = Behaviour | ProviderError
Script = Sequence[Scripted | Callable[[ModelRequest], Scripted]] | Callable[[ModelRequest], Scripted]


class FakeProvider:
    """Gives out scripted replies, one a request.

    Args:
        script: replies: values of `lmagent.testing.script`, or errors to raise; an item may be a function of the
            request. Or one function for all requests. After the last reply a request fails as a ServerFailure that
            says so.

    Attributes:
        requests: every request, with its messages at that moment.
        closed: whether `aclose` was called.
    """

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._script = script
        self._position = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(replace(request, messages=tuple(request.messages)))
        item = self._next(request)
        if isinstance(item, ProviderError):
            raise item
        asked = ServerRequest(len(self.requests), "fake-model", True, True, 100, 0)
        response = plain_response(item) if isinstance(item, PlainAnswer) else respond(item, asked)
        chat = OpenAIChat(
            "http://fake/v1", transport=_OneAnswer(response), clock=FakeClock(auto=True), retries=RetryPolicy(tries=1)
        )
        async for event in chat.stream(request):
            yield event

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _next(self, request: ModelRequest) -> Scripted:
        if callable(self._script):
            return self._script(request)
        if self._position >= len(self._script):
            return ServerFailure(f"script exhausted: all {len(self._script)} replies were given")
        item = self._script[self._position]
        self._position += 1
        return item(request) if callable(item) else item


class _OneAnswer:
    """A transport with one answer."""

    def __init__(self, response: Response) -> None:
        self._response = response

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        async for _ in _sent(self._response.before_head):
            raise AssertionError("no bytes come before the head")
        fields = {name.lower(): value for name, value in self._response.headers.items()}
        assert not isinstance(self._response.steps, AsyncIterator)
        return TransportResponse(self._response.status, fields, _sent(self._response.steps), anyio.lowlevel.checkpoint)

    async def aclose(self) -> None: ...


async def _sent(steps: Sequence[Step]) -> AsyncIterator[bytes]:
    for step in steps:
        await anyio.lowlevel.checkpoint()
        if isinstance(step, bytes):
            yield step
        elif isinstance(step, Hang):
            await anyio.sleep_forever()
        elif isinstance(step, Drop):
            raise TransportError("lost")
