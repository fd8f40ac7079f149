"""Served: the model server as this program uses it.

The server is probed once for each model, and again after it has loaded the model, refused a prompt or cut one; requests
then use the route and the fields of its dialect, each conversation in a slot of its own if there are slots. The
server's count is compared with the sent prompt: a reply to a silently cut prompt never counts as one to the whole
prompt.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
from msgspec import Struct
from msgspec.structs import replace

from lmagent.core.errors import ContextOverflow, ModelNotFound, ProviderError
from lmagent.core.model import ModelEvent, ModelReply, ModelRequest, Progress, Usage, split_name
from lmagent.core.ports import Clock
from lmagent.providers.concealed import conceal
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import Timeouts, Transport
from lmagent.providers.urls import chat_url, is_near

if TYPE_CHECKING:
    from lmagent.providers.cache_slot import CachedConversation, CacheSlot
    from lmagent.providers.dialects.base import ServerFacts
    from lmagent.providers.dialects.truth import ModelWatch, PromptCut, Watches

COMFORTABLE = 16_384
"""Tokens to load a model with, if the request decides it and no setting does."""

MATTERS = 2500
"""Prompt tokens from which the window matters: the smallest one in use is 4,096, and the reply needs room too."""

LATE = ("lmstudio", "llamacpp")
"""Dialects that state a model's window only once the first request has loaded it."""

PAUSE = 30.0
"""Seconds until a server that was too slow to identify itself is asked again; doubled each time."""


class Endpoint(Struct, frozen=True):
    """The address and limits of a server.

    Attributes:
        window: tokens that the user asked for; None without a setting.
        parallel: the setting `llm_parallel`.
    """

    url: str
    key: str = ""
    window: int | None = None
    parallel: int | None = None
    timeouts: Timeouts = Timeouts()
    retries: RetryPolicy = RetryPolicy()


class Served:
    """One server, for all sessions of the process.

    Args:
        transport: closed with this.
        elsewhere: returns the endpoint of another provider by its name, for models named `PROVIDER:NAME`; raises a
            ProviderError if it cannot be used.

    Raises:
        ConfigError: the endpoint's URL is not valid.
    """

    def __init__(
        self, endpoint: Endpoint, transport: Transport, clock: Clock, elsewhere: Callable[[str], Endpoint] | None = None
    ) -> None:
        self._endpoint = endpoint
        self._elsewhere = elsewhere
        self._transport = transport
        self._clock = clock
        self._facts: dict[str, ServerFacts] = {}
        self._deep: set[str] = set()
        self._chats: dict[tuple[str, int], OpenAIChat] = {}
        self._slots: dict[tuple[str, int], CacheSlot] = {}
        self._looked: set[str] = set()
        self._slow: dict[str, tuple[float, float]] = {}
        self._lock = anyio.Lock()
        conceal(endpoint.key, endpoint.url)
        chat_url(endpoint.url)  # raises at once if that is no URL

    def near(self, model: str) -> bool:
        """Return whether the model's server is on this machine or a private network."""
        return is_near(self.at(model)[0].url)

    def at(self, model: str) -> tuple[Endpoint, str]:
        """Return the endpoint of a model, and its name there. Raise ProviderError if its provider cannot be used."""
        provider, name = split_name(model)
        if not provider or self._elsewhere is None:
            return self._endpoint, model
        found = self._elsewhere(provider)
        conceal(found.key, found.url)
        return replace(self._endpoint, url=found.url, key=found.key), name

    async def facts(self, model: str, *, deep: bool = False) -> ServerFacts:
        """Return the facts of the server and of a model; `deep` asks all, if the first look showed little."""
        async with self._lock:
            known = self._facts.get(model)
            due = model in self._slow and self._clock.monotonic() >= self._slow[model][0]
            if known is None or due or (deep and model not in self._deep):
                return await self._probe(model, known, deep=deep)
            return known

    async def look_again(self, model: str) -> ServerFacts:
        """Probe the server again: it has, or seems to have, another model in memory."""
        async with self._lock:
            return await self._probe(model, self._facts.get(model), deep=True)

    async def has_answered(self, model: str) -> None:
        """Ask again after a reply: the model is loaded now, so the server may state more of it."""
        known = self._facts.get(model)
        if known and known.dialect in LATE and not (known.model and known.model.served) and model not in self._looked:
            self._looked.add(model)
            await self.look_again(model)

    async def _probe(self, model: str, known: ServerFacts | None, *, deep: bool) -> ServerFacts:
        from lmagent.providers.dialects.base import ServerFacts
        from lmagent.providers.dialects.probe import probe  # the dialects are loaded with the first question

        try:
            endpoint, name = self.at(model)
        except ProviderError:  # the next request to that server reports the reason
            return known or ServerFacts()
        facts = await probe(self._transport, endpoint.url, name, endpoint.key, deep=deep)
        if not facts.finished:
            pause = 2 * self._slow[model][1] if model in self._slow else PAUSE
            self._slow[model] = (self._clock.monotonic() + pause, pause)
            facts = known or facts  # its earlier, complete answer is better
        elif not facts.reached:
            return known or facts  # it may be there the next time
        else:
            self._slow.pop(model, None)
        if facts != known:
            self.forget(model)
        self._facts[model] = facts
        if deep or facts.dialect != "generic":
            self._deep.add(model)
        return facts

    async def window(self, model: str, tokens: int = 0) -> int | None:
        """Return the window that is really served for a prompt of so many tokens; None if that is uncertain."""
        facts = await self.facts(model, deep=tokens >= MATTERS)
        return (await self.chat(model, 0)).num_ctx or (facts.model.served if facts.model is not None else None)

    async def chat(self, model: str, lane: int) -> OpenAIChat:
        facts = await self.facts(model)
        chat = self._chats.get((model, lane))
        if chat is None:
            from lmagent.providers.cache_slot import slot_of

            chat = provider_for(self.at(model)[0], facts, self._transport, self._clock, slot_of(facts, lane))
            if model in self._facts:
                self._chats[model, lane] = chat
        return chat

    async def count(self, request: ModelRequest) -> int | None:
        """Return the exact tokens of a request's prompt; None if the server does not count."""
        from lmagent.providers.dialects.probe import count_tokens

        facts = await self.facts(request.model)
        at, name = self.at(request.model)
        request = replace(request, model=name)
        return await count_tokens(self._transport, at.url, facts, request, at.key, timeouts=at.timeouts)

    async def slot(self, model: str, lane: int) -> CacheSlot | None:
        """Return the prompt cache that a conversation shares; None if it has one to itself."""
        from lmagent.providers.cache_slot import CacheSlot, slot_number

        if (kept := await self.keeps(model)) is None:
            return None
        return self._slots.setdefault((model, slot_number(lane, kept)), CacheSlot(self._clock))

    async def keeps(self, model: str) -> int | None:
        """Return how many conversations the server keeps at once; None if they need not share."""
        from lmagent.providers.cache_slot import caches

        endpoint, _ = self.at(model)
        return caches(await self.facts(model), near=self.near(model), parallel=endpoint.parallel)

    def forget(self, model: str) -> None:
        """Forget the facts of a model that was loaded with other settings than reported, or loaded again."""
        self._facts.pop(model, None)
        self._deep.discard(model)
        self._chats = {key: chat for key, chat in self._chats.items() if key[0] != model}

    def for_session(
        self, number: int, in_turn: Callable[[], bool] = lambda: False, *, aside: bool = False
    ) -> SessionProvider:
        """Return the provider of one session; the arguments are those of `CachedConversation`."""
        from lmagent.providers.cache_slot import CachedConversation

        return SessionProvider(self, CachedConversation(number, in_turn, aside))

    def beside(self, session: SessionProvider) -> SessionProvider:
        """Return the provider of a session that uses the cache of another one, which waits for it."""
        return SessionProvider(self, session.conversation)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Call the model for no session: see `lmagent.core.ports.Provider`."""
        async with aclosing(cast("Any", self.for_session(0).stream(request))) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await self._transport.aclose()


class SessionProvider:
    """The Provider of one session; `conversation` is the session from the view of the server's prompt caches."""

    def __init__(self, served: Served, conversation: CachedConversation) -> None:
        self._served = served
        self.conversation = conversation
        self._watches: Watches | None = None
        self._ended = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        conversation = self.conversation
        slot = await self._served.slot(request.model, conversation.number)
        waits = slot is not None and not slot.is_free(conversation)
        if slot is not None:
            if waits:
                yield Progress(waits=True)
            await slot.take(conversation)
        try:
            if waits:
                yield Progress()
            async with aclosing(self._ask(request)) as events:
                async for event in events:
                    yield event
        finally:
            if slot is not None:
                slot.leave()

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        chat = await self._served.chat(request.model, self.conversation.number)
        reply: ModelReply | None = None
        try:
            named = replace(request, model=self._served.at(request.model)[1])
            async with aclosing(cast("Any", chat.stream(named))) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event  # the last event: questions about it can use the stream's connection
                    else:
                        yield event
            if reply is not None:
                await self._served.has_answered(request.model)
                usage = await self._believe(request, reply.usage)
                yield reply if usage is reply.usage else replace(reply, usage=usage)
        except (ContextOverflow, ModelNotFound):
            self._served.forget(request.model)
            raise

    async def aclose(self) -> None:
        """Do nothing: the owner of the server closes it."""

    async def _believe(self, request: ModelRequest, usage: Usage) -> Usage:
        """Return the credible counts; raise if they show that the prompt was cut."""
        if self._watches is None:
            from lmagent.providers.dialects.truth import Watches  # loaded with the dialects

            self._watches = Watches()
        watch = self._watches.of(request)
        size, window = watch.size(request), await self._window(request, usage)
        cut = watch.meter.check(size, usage, window)
        if cut is None or (not cut.sure and not await self._is_cut(watch, request, cut)):
            return watch.corrected(usage, size)
        raise ContextOverflow(
            f"the model server cut the prompt without a word: it counted {cut.counted:,} tokens of at least "
            f"{cut.expected:,}, so the model did not see its beginning",
            window=cut.counted,
            fix="load the model with a larger context; the reply was not taken",
            silent=True,
        )

    async def _window(self, request: ModelRequest, usage: Usage) -> int | None:
        """Return the served window; probe again if a count looks like the end of a smaller one."""
        from lmagent.providers.dialects.truth import ends_window

        window, counted = await self._served.window(request.model), usage.prompt_tokens
        smaller = ends_window(counted) and (window is None or counted < window - 1) and counted != self._ended
        if not smaller or usage.estimated or not self._served.near(request.model):
            return window
        self._ended = counted
        await self._served.look_again(request.model)  # it may have been loaded again, with less
        return await self._served.window(request.model)

    async def _is_cut(self, watch: ModelWatch, request: ModelRequest, cut: PromptCut) -> bool:
        """Check an odd count: ask the server to count, or else suspect a cut only once."""
        from lmagent.providers.dialects.truth import JITTER

        exact = await self._served.count(request)
        if exact is not None:
            return exact > cut.counted + JITTER
        suspected, watch.suspected = watch.suspected, True
        return not suspected


def provider_for(
    endpoint: Endpoint, facts: ServerFacts, transport: Transport, clock: Clock, slot: int | None = None
) -> OpenAIChat:
    """Return the provider that fits a server; `slot` is bound to its requests, if the server can."""
    from lmagent.providers.dialects.probe import dialect_of

    settings: dict[str, Any] = {
        "transport": transport,
        "clock": clock,
        "timeouts": endpoint.timeouts,
        "retries": endpoint.retries,
    }
    url, key, model = endpoint.url, endpoint.key, facts.model
    if facts.native_chat:
        from lmagent.providers.dialects.ollama_chat import OllamaChat

        return OllamaChat(url, key, window=endpoint.window or COMFORTABLE, facts=model, **settings)
    extras = partial(dialect_of(facts).extras, facts=facts, slot=slot)
    # Without a name, a server may load another model than the one whose window is planned with.
    return OpenAIChat(url, key, model=model.id if model is not None else "", extras=extras, **settings)
