"""The errors. One that a user sees says what happened, why, and what to type next (`fix`)."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class LmagentError(Exception):
    """Base of every error that a user sees.

    Args:
        message: what happened, and why.
        fix: the next thing to do, true on every surface; empty if nothing can be done.
        terminal: the same for a terminal, as a command, option or variable to type; shown there in place of `fix`.
    """

    def __init__(self, message: str, *, fix: str = "", terminal: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.terminal = terminal

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.typed}" if self.typed else self.message

    @property
    def typed(self) -> str:
        """Return the next thing to do, in its form for a terminal."""
        return self.terminal or self.fix


class ConfigError(LmagentError):
    """A setting, a flag or a config file is wrong."""


class WorkspaceError(LmagentError):
    """The workspace is missing, unreadable or not writable."""


class StoreError(LmagentError):
    """The log cannot be read or written."""


class SessionNotFound(StoreError):
    """No session has this id or prefix, or several have."""


class SessionBusy(StoreError):
    """Another process is writing this session."""


class SessionTaken(StoreError):
    """Another process has taken the session over; this one writes it no more."""


class WorkerMissing(LmagentError):
    """No worker of the cluster answers: none has the workspace, or the one that had the request has died."""


class SessionDamaged(StoreError):
    """Something else is in the place of a session's folder, log or lock, or its log cannot be read."""


class ProviderError(LmagentError):
    """The model server failed.

    Args:
        retryable: whether the same request may succeed later.
        retry_after: seconds the server asked to wait, if it did.
        partial: whether some of the reply had already been streamed; such a request is never repeated silently.
    """

    def __init__(
        self,
        message: str,
        *,
        fix: str = "",
        terminal: str = "",
        retryable: bool = False,
        retry_after: float | None = None,
        partial: bool = False,
    ) -> None:
        super().__init__(message, fix=fix, terminal=terminal)
        self.retryable = retryable
        self.retry_after = retry_after
        self.partial = partial


class Unreachable(ProviderError):
    """No connection, or no sign of life within the time allowed."""


class AuthError(ProviderError):
    """The server refused the key."""


class ModelNotFound(ProviderError):
    """The server does not know the model."""


class ContextOverflow(ProviderError):
    """The prompt does not fit the window that the server serves.

    Args:
        window: the window in tokens, where the server's text names it.
        silent: the server did not refuse the prompt, but cut it.
    """

    def __init__(
        self, message: str, *, window: int | None = None, fix: str = "", terminal: str = "", silent: bool = False
    ) -> None:
        super().__init__(message, fix=fix, terminal=terminal)
        self.window = window
        self.silent = silent


class BadReply(ProviderError):
    """The server answered with something that is not a model's reply."""


class ServerFailure(ProviderError):
    """429, 5xx, or an error reported inside a stream."""


class ConnectionLost(ServerFailure):
    """The server broke off before its answer was whole; it may have died of the request."""


class Unavailable(ServerFailure):
    """The server answers, but cannot serve the model now: 429, 502, 503, 504, 529."""


class ModelLoading(Unavailable):
    """The server is up and still loads the model; it answers once the model is loaded."""


class SandboxError(LmagentError):
    """There is no sandbox that holds, or it failed; nothing was run."""


class ToolError(LmagentError):
    """A tool refuses or fails; the text goes to the model.

    Args:
        message: the failure and the alternative, in words for the model.
        data: facts about the failure for surfaces and for the log.
        kept: a text of the call that the session keeps, so that the model need not send it again.
    """

    def __init__(self, message: str, *, data: dict[str, object] | None = None, kept: str | None = None) -> None:
        super().__init__(message)
        self.data = data or {}
        self.kept = kept


class PolicyDenied(LmagentError):
    """The gate said no."""


class ShuttingDown(LmagentError):
    """The program is about to end and takes no more work."""


@contextmanager
def ungrouped() -> Generator[None]:
    """Raise one error of a task group instead of a group of them: ours before any other, then the first.

    A task group wraps errors inside it, and a caller that waits for a `StoreError` would miss it.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        raise _leading(group) from group


def _leading(group: BaseExceptionGroup[BaseException]) -> BaseException:
    ours, _ = group.split(LmagentError)
    error: BaseException = ours or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return error  # pyright: ignore[reportUnknownVariableType]
