"""Errors: refusals of the model server, in OpenAI's shape on every route.

{"error": {"message": "…", "type": "…", "param": null, "code": "…"}}
"""

from __future__ import annotations

import logging
import re
from typing import Any, cast

from lmagent.core.errors import LmagentError
from lmagent.modelserver.spec import ModelServerError
from lmagent.providers import jsontext

LOG_FILE = "lmagent.log"  # in the server's folder: tracebacks of errors that no caller foresaw
MAX_MESSAGE = 4000  # characters of a message; an engine that quotes the whole prompt is cut

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    501: "not_supported_error",
}


_UNABLE = re.compile(r"\b(image|audio|video) input is not supported")
_TOO_LONG = re.compile(r"exceeds the available context size")
"""Words of llama.cpp's: the one has status 500, the other none of the codes by which clients know it."""


class BadRequest(ModelServerError):
    """An error in the request itself; `param` names the field."""

    def __init__(
        self, message: str, *, param: str = "", status: int = 400, code: str = "invalid_request", fix: str = ""
    ) -> None:
        super().__init__(message, status=status, code=code, fix=fix)
        self.param = param


class Lost(ModelServerError):
    """An engine that ended or cannot be reached."""


def log_unexpected(error: Exception) -> None:
    if not isinstance(error, LmagentError):
        logging.getLogger("lmagent").error("unexpected error", exc_info=error)


def described(error: Exception) -> dict[str, Any]:
    """Return the error as the value of `error` in an answer."""
    status, code, param = 500, "server_error", None
    if isinstance(error, ModelServerError):
        status, code = error.status, error.code
        param = getattr(error, "param", "") or None
    if isinstance(error, LmagentError):
        text = f"{error.message} ({error.fix})" if error.fix else error.message
    else:
        text = f"unexpected error in the model server: {type(error).__name__}: {error} (details: {LOG_FILE})"
    return {"message": text[:MAX_MESSAGE], "type": type_of(status), "param": param, "code": code}


def type_of(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "server_error")


def body_of(error: Exception) -> bytes:
    return jsontext.dumps({"error": described(error)})


def status_of(error: Exception) -> int:
    return error.status if isinstance(error, ModelServerError) else 500


def refused(status: int, body: bytes, name: str) -> ModelServerError:
    """Translate an engine's answer of status 400 or above into an error."""
    try:
        error = jsontext.loads(body)
    except ValueError:
        error = body[:MAX_MESSAGE].decode("utf-8", "replace").strip()
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"error": error}
    inner = fields.get("error", fields.get("detail", fields.get("message", "")))
    told = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {"message": inner}
    message, code, param = told.get("message") or "", told.get("code"), str(told.get("param") or "")
    message = message if isinstance(message, str) else jsontext.dumps(message).decode()
    code = code if isinstance(code, str) else ""  # llama.cpp repeats the status as a number
    if status in (401, 403):  # our key, not the client's
        text = f"the server that runs {name} refused our key: {message or status}"
        return Lost(text, status=502, code="upstream_refused", fix="check the key of this model's upstream server")
    message = message or f"the engine that runs {name} answered with status {status} and no reason"
    if status == 500 and _UNABLE.search(message):  # no fault of the engine's, and asking again does not help
        fix = "ask a model that can; for images it needs its projector (mmproj)"
        return BadRequest(message, status=400, code="not_supported", fix=fix)
    if status == 400 and not code and _TOO_LONG.search(message):
        code = "context_length_exceeded"
    if 400 <= status < 500:
        return BadRequest(message, param=param, status=status, code=code or "invalid_request")
    return ModelServerError(message, status=status, code=code or "engine_error")
