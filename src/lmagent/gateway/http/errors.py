"""Errors: their shape on all of the gateway's own routes, and their statuses."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from lmagent.app.logs import FILE
from lmagent.core.errors import (
    ConfigError,
    ContextOverflow,
    LmagentError,
    ModelNotFound,
    PolicyDenied,
    ProviderError,
    SandboxError,
    SessionBusy,
    SessionDamaged,
    SessionNotFound,
    ShuttingDown,
    ToolError,
    WorkerMissing,
)


class Refusal(LmagentError):
    """A request that is not carried out; `status` is 4xx, `code` is for programs."""

    def __init__(
        self, status: int, code: str, message: str, *, fix: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, fix=fix)
        self.status = status
        self.code = code
        self.headers = headers or {}


@contextmanager
def refusing(kind: type[LmagentError], status: int, code: str) -> Generator[None]:
    """Turn errors of this class into refusals with this status and code."""
    try:
        yield
    except kind as error:
        raise Refusal(status, code, error.message, fix=error.fix) from None


class Told(Struct, frozen=True):
    """An error: `code` for programs, a message, and `fix`, the next step (may be empty)."""

    code: str
    message: str
    fix: str = ""


class Failure(Struct, frozen=True):
    """The body of all answers that are not a success."""

    error: Told


_STATUSES: tuple[tuple[type[LmagentError], int, str], ...] = (
    (SessionNotFound, 404, "not_found"),
    (SessionBusy, 409, "busy"),
    (SessionDamaged, 409, "damaged"),
    (ShuttingDown, 503, "leaving"),
    (WorkerMissing, 503, "no_worker"),
    (PolicyDenied, 403, "denied"),
    (ModelNotFound, 404, "model_not_found"),
    (ContextOverflow, 413, "context_overflow"),
    (ProviderError, 502, "model_server"),
    (ToolError, 422, "tool_failed"),
    (SandboxError, 503, "no_sandbox"),
    (ConfigError, 400, "invalid"),
    (LmagentError, 500, "failed"),
)


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error; 500 for an internal fault."""
    return _placed(error)[0]


def failure_of(error: Exception) -> Failure:
    """Return the body of an error. An internal fault is named by its type alone: its text may hold secrets."""
    _, code = _placed(error)
    if isinstance(error, LmagentError):
        return Failure(Told(code, error.message, error.fix))
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return Failure(Told(code, str(error)))
    fix = f"nothing that was done is lost; details: {FILE}"
    return Failure(Told(code, f"unexpected error: {type(error).__name__}", fix))


def _placed(error: Exception) -> tuple[int, str]:
    if isinstance(error, Refusal):
        return error.status, error.code
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return 400, "invalid"
    if type(error) is LmagentError:  # such as nothing to undo
        return 409, "conflict"
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return status, code
    return 500, "fault"
