"""An embedder on a server that speaks OpenAI's `/v1/embeddings`: llama.cpp, LM Studio, Ollama, vLLM and others."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from msgspec import DecodeError, Struct

from lmagent.core.decoding import decode_json
from lmagent.core.errors import ProviderError
from lmagent.providers.transport import json_headers
from lmagent.providers.urls import api_root, authority, proxy_for

_LONGEST = 8000
"""Characters of a text that are sent: most embedding models read 512 tokens, and some servers refuse more."""


class _Row(Struct):
    index: int
    embedding: list[float]


class _Answer(Struct):
    data: list[_Row]


class EndpointEmbedder:
    """Vectors from a server.

    Args:
        url: its address, with or without `/v1`.
        model: its name for the server; the server's only one if it is left out.
        key: sent as a bearer token.
        timeout: seconds for a call, and one more for each text.

    Raises ConfigError if `url` is not a URL.
    """

    def __init__(self, url: str, model: str = "", key: str = "", *, timeout: float = 10.0) -> None:
        root = api_root(url).removesuffix("/embeddings")
        self.name = model or root
        self._url = f"{root}/embeddings"
        self._model = model
        self._key = key
        self._timeout = timeout

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text. Raise ProviderError if the server does not answer with as many in time."""
        import httpcore

        body = {"input": [text[:_LONGEST] or " " for text in texts]} | ({"model": self._model} if self._model else {})
        try:
            status, content = self._post(json.dumps(body).encode(), self._timeout + len(texts))
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise ProviderError(f"{self._url} cannot be reached: {reason}", retryable=True) from error
        if status != 200:
            excerpt = content[:200].decode(errors="replace")
            raise ProviderError(f"{self._url} answered {status}: {excerpt}", retryable=True)
        try:
            data = sorted(decode_json(content, _Answer).data, key=lambda row: row.index)
        except (DecodeError, UnicodeDecodeError) as error:
            raise ProviderError(f"{self._url} answered with something else than vectors: {error}") from error
        if [row.index for row in data] != list(range(len(texts))):
            raise ProviderError(f"{self._url} returned {len(data)} vectors for {len(texts)} texts")
        return [row.embedding for row in data]

    def _post(self, body: bytes, seconds: float) -> tuple[int, bytes]:
        import httpcore

        named = {"Host": authority(self._url), "Content-Length": str(len(body)), **json_headers(self._key)}
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in named.items()]
        patience = {"connect": min(seconds, 5.0), "read": seconds, "write": seconds, "pool": seconds}
        proxy = proxy_for(self._url, os.environ)
        with httpcore.HTTPProxy(proxy) if proxy else httpcore.ConnectionPool() as pool:
            answer = pool.request("POST", self._url, headers=headers, content=body, extensions={"timeout": patience})
            return answer.status, answer.content
