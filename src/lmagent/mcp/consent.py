"""Consent: what a server asks for during a call. The user answers each question, in every mode.

A server may ask for a reply of the user's model (sampling), and for values or a visit to a page (elicitation). Its text
is quoted, with all characters visible, so that it cannot pass for ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import to_builtins

from lmagent.core.errors import ProviderError, ToolError
from lmagent.core.messages import Message, Text
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, Usage
from lmagent.core.tool import Answer, Question, ToolContext
from lmagent.mcp.forms import ElicitationForm
from lmagent.mcp.spec import Elicitation, ElicitationAnswer, SamplingRequest
from lmagent.tools.sanitize import one_line, printable, visible

QUOTED = 4000
"""Characters of a server's text that a question shows at most; a longer request is refused."""

TRIES = 3
"""Times that a form is asked: once, and twice more with the fault of the answer."""

ASKED = 20
"""Questions of a call that the user is asked; the rest are declined."""

LONGEST_REPLY = 4096
"""Tokens that a server may ask for."""

Stream = Callable[[ModelRequest], AsyncIterator[ModelEvent]]


class UserModel:
    """The user's model, beside the conversation: `stream` asks it, `of` returns the name of a session's model."""

    def __init__(self, stream: Stream, of: Callable[[str], str]) -> None:
        self.stream = stream
        self.of = of


class Consent:
    """The handler of one call; see `CallHandler`. `model` is None where no model is at hand."""

    def __init__(self, server: str, context: ToolContext, model: UserModel | None) -> None:
        self.usage = Usage()
        self._server = one_line(server, 60)
        self._context = context
        self._model = model
        self._asked = 0

    def progress(self, text: str) -> None:
        """Show a piece of progress to watchers."""
        self._context.emit(f"{one_line(printable(text), 200)}\n")

    async def sample(self, request: SamplingRequest) -> str | None:
        """Return the model's reply; None if the user refuses."""
        texts = [("system", request.system), *request.messages]
        whole = "\n".join(f"{role}: {text}" for role, text in texts if text)
        if self._model is None or len(whole) > QUOTED:
            return None
        answer = await self._ask(
            summary=f"{self._server} asks for a reply of your model",
            preview=f"{self._server} sends your model:\n{quoted(whole)}",
            reason="the reply goes to the server, and costs the time of your model",
        )
        return await self._reply(self._model, request) if answer.approved else None

    async def _reply(self, model: UserModel, request: SamplingRequest) -> str:
        messages = tuple(Message(role, (Text(text),)) for role, text in request.messages)
        most, name = max(1, min(request.max_tokens, LONGEST_REPLY)), model.of(self._context.session)
        asked = ModelRequest(name, request.system, (), messages, temperature=request.temperature, max_tokens=most)
        reply: ModelReply | None = None
        try:
            async with aclosing(cast("Any", model.stream(asked))) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event
        except ProviderError as failure:
            raise ToolError(f"The model gave no reply for the server {self._server}: {failure.message}") from failure
        if reply is None:
            raise ToolError(f"The model gave no reply for the server {self._server}.")
        self.usage = self.usage + reply.usage
        text = reply.message.text
        for stop in request.stop:
            text = text.partition(stop)[0] if stop else text
        self._context.emit(f"your model's reply, sent to {self._server}: {one_line(text, 200)}\n")
        return text

    async def elicit(self, request: Elicitation) -> ElicitationAnswer:
        """Return the user's answer."""
        if len(request.message) > QUOTED:
            return ElicitationAnswer("decline")
        return await (self._visit(request) if request.url else self._fill_in(request))

    async def _visit(self, request: Elicitation) -> ElicitationAnswer:
        try:
            parts = urlsplit(request.url)
            host = parts.hostname if parts.scheme in ("http", "https") else None
        except ValueError:
            host = None
        if not host:
            return ElicitationAnswer("decline")
        answer = await self._ask(
            summary=f"{self._server} asks you to open a page of {one_line(host, 100)}",
            preview=f"The address:\n> {visible(request.url)}\n{self._server} says:\n{quoted(request.message)}",
            reason="open it yourself, if you trust the server; then answer yes",
        )
        if answer.approved:
            return ElicitationAnswer("accept")
        return ElicitationAnswer("decline" if answer.attended else "cancel")

    async def _fill_in(self, request: Elicitation) -> ElicitationAnswer:
        form, fault = ElicitationForm(request.schema), ""
        for _ in range(TRIES):
            answer = await self._ask(
                summary=f"{self._server} asks you for {form.title}",
                preview="\n".join((f"{self._server} says:", quoted(request.message), *form.rows)),
                reason=fault or form.help,
            )
            if not answer.attended:
                return ElicitationAnswer("cancel")
            if not answer.approved and not answer.text.strip():
                return ElicitationAnswer("decline")
            content, fault = form.read(answer.text)
            if not fault:
                return ElicitationAnswer("accept", content)
        return ElicitationAnswer("cancel")

    async def _ask(self, *, summary: str, preview: str, reason: str) -> Answer:
        self._asked += 1
        if self._asked > ASKED:
            return Answer(False)
        label = f"the server {self._server}"
        return await self._context.ask(Question(f"ask{self._asked}", label, summary, preview, reason))

    @property
    def spent(self) -> dict[str, Any]:
        """Return the data of the call's output: the tokens that count for the session's budgets."""
        return {"usage": to_builtins(self.usage)} if self.usage != Usage() else {}


def quoted(text: str) -> str:
    """Return a server's text as a quotation: a sign before each line, and nothing hidden."""
    return "\n".join(f"> {line}" for line in visible(text).split("\n"))
