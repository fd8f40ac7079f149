"""Templates: chat templates that refuse a user message after tool results, in the words of the servers that run them.

ScriptedServer(script, template=templates.TEMPLATES["vllm"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lmagent.testing.loopback import json_object
from lmagent.testing.script import Behaviour, error_in_stream, status

Template = Callable[[Mapping[str, Any]], Behaviour | None]
"""Takes the body of a chat request; returns the refusal, or None if the template can render it."""

ALTERNATE = (
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/... "
    "(tool calls and results are not counted)"
)


def alternates(body: Mapping[str, Any]) -> bool:
    """Whether user and assistant take turns; results and replies that call do not count (Mistral)."""
    wanted = "user"
    for item in body.get("messages", []):
        message = json_object(item)
        role = message.get("role")
        if role not in ("user", "assistant") or message.get("tool_calls"):
            continue
        if role != wanted:
            return False
        wanted = "assistant" if role == "user" else "user"
    return True


def _unless(behaviour: Behaviour) -> Template:
    return lambda body: None if alternates(body) else behaviour


_VLLM = {"object": "error", "message": ALTERNATE, "type": "BadRequestError", "param": None, "code": 400}
_JINJA = f"Jinja Exception: {ALTERNATE}"
_ORDER = "Unexpected role 'user' after role 'tool'"

TEMPLATES: Mapping[str, Template] = {
    "vllm": _unless(status(400, _VLLM)),
    "llamacpp": _unless(status(500, {"error": {"code": 500, "message": _JINJA, "type": "server_error"}})),
    "lmstudio": _unless(status(400, {"error": f"Error rendering prompt with jinja template: {ALTERNATE}"})),
    "mistral": _unless(status(400, {"object": "error", "message": _ORDER, "type": "invalid_request_message_order"})),
    "in the stream": _unless(error_in_stream(_JINJA)),
    "without a reason": _unless(status(400, {"error": {"message": "Bad Request"}})),
}
"""The refusals, by server."""
