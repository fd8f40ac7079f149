"""Control: requests of the command line to the model server that runs."""

from __future__ import annotations

from collections.abc import Generator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

from lmagent.modelserver.http.daemon import DaemonState, kept_key, state_of
from lmagent.modelserver.http.listening import ServerError
from lmagent.providers import jsontext

NOT_RUNNING = "lmagent server start starts one"


class Control:
    """The model server of a data folder, as the command line uses it."""

    def __init__(self, folder: Path, key: str = "") -> None:
        state = state_of(folder)
        if state is None:
            raise ServerError("no model server runs", fix=NOT_RUNNING)
        self.state: DaemonState = state
        self._key = key or (kept_key(folder) if state.guarded else "")

    def get(self, path: str) -> dict[str, Any]:
        return self._whole("GET", path, b"")

    def post(self, path: str, model: str, **more: Any) -> dict[str, Any]:
        return self._whole("POST", path, jsontext.dumps({"model": model, **more}))

    def follow(self, model: str) -> Generator[str]:
        """Yield the lines of a model's log, or of the server's, as they come."""
        connection, answer = self._send("GET", f"/api/logs?follow=1&model={quote(model, safe='')}", b"", None)
        try:
            for row in answer:
                if row.startswith(b"data: "):
                    yield str(jsontext.loads(row[6:])["line"])
        except (OSError, HTTPException):
            return
        finally:
            connection.close()

    def _whole(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        connection, answer = self._send(method, path, body, None if body else 30.0)
        try:
            return cast("dict[str, Any]", jsontext.loads(answer.read()))
        except (OSError, HTTPException, ValueError) as error:
            raise self._silent(error) from None
        finally:
            connection.close()

    def _send(self, method: str, path: str, body: bytes, timeout: float | None) -> tuple[HTTPConnection, HTTPResponse]:
        parts = urlsplit(self.state.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        fields = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        try:
            connection.request(method, path, body or None, fields)
            answer = connection.getresponse()
            if answer.status < 400:
                return connection, answer
            refusal = jsontext.loads(answer.read())["error"]["message"]
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            connection.close()
            raise self._silent(error) from None
        connection.close()
        raise ServerError(str(refusal))

    def _silent(self, error: Exception) -> ServerError:
        fix = "lmagent server status shows whether it lives, lmagent server stop ends it"
        return ServerError(f"the model server at {self.state.url} does not answer: {error}", fix=fix)
