"""Logs: the program's actions, in `.lmagent/logs/lmagent.log` of the workspace, without secrets.

Contents are logged at the level trace alone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from lmagent.config.settings import Settings
from lmagent.core import events as ev
from lmagent.core.errors import LmagentError
from lmagent.engine.redact import Redactor
from lmagent.tools.sanitize import printable

if TYPE_CHECKING:
    from lmagent.engine.session import Session
    from lmagent.providers.transport import Timeouts, Transport, TransportResponse

FILE = Path(".lmagent", "logs", "lmagent.log")

SIZE = 1_000_000  # bytes of a file before it is set aside
KEPT = 3  # older files that are kept

TRACE = 5  # below logging.DEBUG: the requests to the model and its answers
TRACED = 60_000  # characters of a request or a reply that are logged: half of its beginning, half of its end

LOG = logging.getLogger("lmagent")
logging.addLevelName(TRACE, "TRACE")


class Unexpected(LmagentError):
    """An error that no caller foresaw; its traceback is in the log."""


class _File(RotatingFileHandler):
    """A file that only the user can read, and that is never a link; lines that cannot be written are dropped."""

    def _open(self) -> TextIOWrapper:
        flags = getattr(os, "O_NOFOLLOW", 0)
        return open(
            self.baseFilename, "a", encoding="utf-8", opener=lambda path, mode: os.open(path, mode | flags, 0o600)
        )

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore the failure: the program works without a log."""


class _Terminal(logging.Handler):
    """Standard error, looked up at each line: a conversation replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(f"{self.format(record)}\n")


class _Redacted(logging.Formatter):
    def __init__(self, layout: str, secrets: tuple[str, ...]) -> None:
        super().__init__(layout)
        self._redactor = Redactor(secrets)

    def format(self, record: logging.LogRecord) -> str:
        text = self._redactor.text(super().format(record))
        if record.levelno != TRACE or len(text) <= TRACED:
            return text
        half = TRACED // 2
        return f"{text[:half]} … {len(text) - TRACED:,} characters … {text[-half:]}"


def open_log(workspace: Path, settings: Settings) -> None:
    path = workspace / FILE
    is_linked = any(folder.is_symlink() for folder in (path.parent, path.parent.parent))
    log_to(path if workspace.is_dir() and not is_linked else None, settings)


def log_to(path: Path | None, settings: Settings) -> None:
    LOG.propagate = False
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    LOG.setLevel(min(level, logging.DEBUG) if settings.debug else level)
    for handler in list(LOG.handlers):
        LOG.removeHandler(handler)
        handler.close()
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _add(_File(path, maxBytes=SIZE, backupCount=KEPT, delay=True), "%(asctime)s %(levelname)s ", settings)
        except OSError:
            pass  # no log if the folder is not writable
    if settings.debug:
        _add(_Terminal(), "debug: ", settings)


def _add(handler: logging.Handler, prefix: str, settings: Settings) -> None:
    handler.setFormatter(_Redacted(f"{prefix}%(message)s", settings.secrets))
    LOG.addHandler(handler)


def unexpected(defect: Exception, workspace: Path, settings: Settings, back: str = "lmagent sessions") -> Unexpected:
    """Log an error that no caller foresaw; return the sentence for the user, with the command that leads back."""
    if isinstance(defect, Unexpected):
        return defect  # it is logged already
    if not any(
        isinstance(handler, _File) and handler.baseFilename == str(workspace / FILE) for handler in LOG.handlers
    ):
        open_log(workspace, settings)  # a process may have several workspaces
    LOG.error("unexpected error", exc_info=defect)
    text, file = " ".join(str(defect).split()), FILE if workspace == Path.cwd() else workspace / FILE
    return Unexpected(
        f"unexpected error: {type(defect).__name__}{f': {text}' if text else ''}",
        fix=f"nothing that was done is lost: {back}; details: {file}, or run it with LMAGENT_DEBUG=1",
    )


def log_session(session: Session) -> None:
    """Log the events of a session: names, times and outcomes; with trace, the model's answers."""

    def listen(event: ev.Event) -> None:
        level = logging.INFO
        match event:
            case ev.TurnStarted():
                text = f"turn {event.turn} begins"
            case ev.ToolFinished():
                text = f"tool {event.tool}: {event.status} in {event.duration:.1f} s"
            case ev.StepFinished(usage=usage):
                text = f"model call: {usage.prompt_tokens} tokens in, {usage.completion_tokens} out"
            case ev.TurnFinished():
                text = f"turn {event.turn} ends: {event.outcome}{f' ({event.reason})' if event.reason else ''}"
                level = logging.ERROR if event.outcome == "error" else logging.INFO
            case ev.MessageAdded(origin="model", message=message) if LOG.isEnabledFor(TRACE):
                level, text = TRACE, f"the model's answer: {printable(msgspec.json.encode(message.parts).decode())}"
            case ev.RetryScheduled():
                level, text = logging.WARNING, f"{event.reason}; trying again in {event.delay:.0f} s"
            case ev.Notice():
                level, text = logging.WARNING, event.text
            case _:
                return
        LOG.log(level, "%s: %s", session.state.session, text)

    session.listen(listen)


def _trace(what: str, done: str, content: bytes | bytearray) -> None:
    """Log the content of a request or a reply."""
    if content and LOG.isEnabledFor(TRACE):
        LOG.log(TRACE, "%s: %s %s", what, done, printable(content.decode(errors="replace")))


class LoggedTransport:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.aclose = inner.aclose

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> TransportResponse:
        begun, what = monotonic(), f"{method} {urlsplit(url).path}"
        LOG.debug("%s: %d bytes sent", what, len(body))
        _trace(what, "sent", body)
        try:
            response = await self._inner.send(method, url, headers, body, timeouts)
        except Exception as failure:
            LOG.debug("%s: %s after %.2f s", what, failure, monotonic() - begun)
            raise
        LOG.debug("%s: status %d after %.2f s", what, response.status, monotonic() - begun)
        chunks = response.chunks

        async def logged() -> AsyncGenerator[bytes]:
            # The pieces of a stream may have the pieces of a secret; `log_session` logs the whole answer.
            is_traced = LOG.isEnabledFor(TRACE) and "event-stream" not in response.headers.get("content-type", "")
            size, traced = 0, bytearray()
            try:
                async for chunk in chunks:
                    size += len(chunk)
                    if is_traced:
                        traced += chunk
                    yield chunk
            finally:
                LOG.debug("%s: %d bytes received after %.2f s", what, size, monotonic() - begun)
                _trace(what, "received", traced)

        return replace(response, chunks=logged())
