"""Chat: the Provider that fits a server's dialect.

`provider_for` uses Ollama's native route, and for other servers the common one with the dialect's own fields. A server
that refuses one of those fields by name does not get it again.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from lmagent.core.errors import ProviderError
from lmagent.core.model import ModelRequest
from lmagent.core.ports import Clock
from lmagent.providers import jsontext
from lmagent.providers.dialects.base import RequestOptions, ServerFacts
from lmagent.providers.dialects.probe import dialect_of
from lmagent.providers.encode import BodyEncoder
from lmagent.providers.openai_chat import OpenAIChat
from lmagent.providers.retry import RetryPolicy
from lmagent.providers.transport import Timeouts, Transport

_REFUSED = (
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|not permitted|not allowed|extra (field|input)|invalid"
)
_NEVER_DROPPED = {"provider"}
"""The user's own options: without them, it would be another request."""


class DialectEncoder(BodyEncoder):
    """Encodes requests with the fields that a dialect adds, which precede the others."""

    def __init__(self, facts: ServerFacts, options: RequestOptions) -> None:
        super().__init__()
        self._facts = facts
        self._options = options

    def extras(self, request: ModelRequest) -> dict[str, Any]:
        return dialect_of(self._facts).extras(request, self._facts, self._options)

    def encode(self, request: ModelRequest, omit: Set[str] = frozenset(), *, model: str = "") -> bytes:
        extras = {name: value for name, value in self.extras(request).items() if name not in omit}
        body = super().encode(request, {*omit, *extras}, model=model)
        return jsontext.dumps(extras)[:-1] + b"," + body[1:] if extras else body


class DialectChat(OpenAIChat):
    """A server of a known dialect, by the common route.

    Args:
        base_url: base URL or full chat URL.
        api_key: sent as a bearer token; empty sends none.
        facts: also names the model for requests without one.
        transport: shared, and closed with this.

    Raises:
        ConfigError: `base_url` is no URL.
    """

    def __init__(  # noqa: PLR0913 (settings by keyword)
        self,
        base_url: str,
        api_key: str = "",
        *,
        facts: ServerFacts,
        transport: Transport,
        clock: Clock,
        options: RequestOptions = RequestOptions(),  # noqa: B008  # frozen
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
        retries: RetryPolicy = RetryPolicy(),  # noqa: B008  # frozen
    ) -> None:
        super().__init__(base_url, api_key, transport=transport, clock=clock, timeouts=timeouts, retries=retries)
        self._facts = facts
        self._encoder: DialectEncoder = DialectEncoder(facts, options)
        # Without a name, a server may load another model than the one whose window is planned with.
        self._model = facts.model.id if facts.model is not None else ""

    def _unknown_field(self, request: ModelRequest, failure: ProviderError) -> str | None:
        field = super()._unknown_field(request, failure)
        if field is not None:
            return field
        if not re.search(_REFUSED, failure.message, re.IGNORECASE):
            return None
        sent = self._encoder.extras(request).keys() - self._omit - _NEVER_DROPPED
        named = [name for name in sent if re.search(rf"\b{re.escape(name)}\b", failure.message)]
        return max(named, key=len, default=None)


def provider_for(  # noqa: PLR0913 (settings by keyword)
    facts: ServerFacts,
    base_url: str,
    api_key: str = "",
    *,
    window: int,
    transport: Transport,
    clock: Clock,
    options: RequestOptions = RequestOptions(),  # noqa: B008  # frozen
    timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
    retries: RetryPolicy = RetryPolicy(),  # noqa: B008  # frozen
) -> OpenAIChat:
    """Return the provider for a server.

    Args:
        base_url: base URL or full chat URL.
        window: tokens to load a model with, if the request decides that (Ollama).
        transport: shared, and closed with the provider.
    """
    if facts.native_chat:
        from lmagent.providers.dialects.ollama_chat import OllamaChat

        return OllamaChat(
            base_url,
            api_key,
            facts=facts,
            window=window,
            transport=transport,
            clock=clock,
            options=options,
            timeouts=timeouts,
            retries=retries,
        )
    return DialectChat(
        base_url,
        api_key,
        facts=facts,
        transport=transport,
        clock=clock,
        options=options,
        timeouts=timeouts,
        retries=retries,
    )
