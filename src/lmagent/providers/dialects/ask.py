"""Ask: small questions to a server over HTTP, bounded in time and size; each failure counts as no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import anyio

from lmagent.core.errors import ProviderError
from lmagent.providers import jsontext
from lmagent.providers.transport import Timeouts, Transport, TransportError, json_headers, read_all
from lmagent.providers.urls import api_root, server_root

LIMIT = 8 * 1024 * 1024
"""Bytes above which an answer is discarded (OpenRouter's list of models is about 1 MB)."""

QUICK = Timeouts(connect=0.4, first_byte=0.8, idle=0.4)
"""Patience with a server on this machine or nearby, once it has answered promptly."""
PATIENT = Timeouts(connect=0.4, first_byte=3.0, idle=3.0)
"""Patience with its first answer, and with a recognised server: it may be loading a model."""
FAR = Timeouts(connect=3.0, first_byte=5.0, idle=3.0)
"""Patience with a server on the internet."""


class Ask:
    """Asks one server.

    Attributes:
        timeouts: how long the server may be silent.
        reached: a server answered at all.
        slow: a question was not answered in time.
        over: no more questions are sent; every answer is None.

    Raises:
        ConfigError: `base_url` is no URL.
    """

    def __init__(self, transport: Transport, base_url: str, key: str = "", timeouts: Timeouts = QUICK) -> None:
        self.timeouts = timeouts
        self.reached = False
        self.slow = False
        self.over = False
        self._root = server_root(base_url)
        self._api = api_root(base_url)
        self._transport = transport
        self._headers = json_headers(key)

    async def models(self) -> Any:
        return await self._json("GET", f"{self._api}/models", b"")

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON at a path under the root; None for other answers."""
        tail = "&".join(f"{name}={quote(value, safe='')}" for name, value in (query or {}).items())
        return await self._json("GET", f"{self._root}{path}{'?' if tail else ''}{tail}", b"")

    async def post(self, path: str, body: Any) -> Any:
        return await self._json("POST", f"{self._root}{path}", jsontext.dumps(body))

    async def _json(self, method: str, url: str, body: bytes) -> Any:
        if self.over:
            return None
        limits = self.timeouts
        try:
            # Each byte may be in time and the whole never end.
            with anyio.move_on_after(limits.connect + 2 * limits.first_byte):
                status, content = await self._fetch(method, url, body)
                return jsontext.loads(content) if status == 200 else None
            self.slow = True
        except TransportError as error:
            self.slow = self.slow or error.kind in ("first_byte", "idle")
        except (ProviderError, ValueError):
            pass  # no answer, or no JSON
        return None

    async def _fetch(self, method: str, url: str, body: bytes) -> tuple[int, bytes]:
        response = await self._transport.send(method, url, self._headers, body, self.timeouts)
        self.reached = True
        async with response:
            return response.status, await read_all(response, LIMIT)  # an answer that was cut off is no JSON
