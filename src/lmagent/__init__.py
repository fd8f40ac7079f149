"""lmagent: a locally-hosted AI agent.

    from lmagent import Agent, tool

Importing the package is free: it loads nothing but itself. Names for programs (docs/python.md) are loaded when they are
first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lmagent.core.errors import ConfigError as ConfigError
    from lmagent.core.errors import LmagentError as LmagentError
    from lmagent.core.errors import ToolError as ToolError
    from lmagent.core.events import ApprovalRequested as ApprovalRequested
    from lmagent.core.events import Event as Event
    from lmagent.core.events import FilesChanged as FilesChanged
    from lmagent.core.events import Notice as Notice
    from lmagent.core.events import SubagentEvent as SubagentEvent
    from lmagent.core.events import TextDelta as TextDelta
    from lmagent.core.events import ThinkingDelta as ThinkingDelta
    from lmagent.core.events import ToolFinished as ToolFinished
    from lmagent.core.events import ToolOutput as ToolOutput
    from lmagent.core.events import ToolStarted as ToolStarted
    from lmagent.core.events import TurnFinished as TurnFinished
    from lmagent.core.tool import ToolContext as ToolContext
    from lmagent.python.agent import Agent as Agent
    from lmagent.python.functions import tool as tool
    from lmagent.python.run import AgentRun as AgentRun
    from lmagent.python.run import RunFailed as RunFailed
    from lmagent.python.run import RunResult as RunResult
    from lmagent.python.session import AgentSession as AgentSession

__version__ = "0.1.0"

_PLACES = {
    "lmagent.core.errors": ("ConfigError", "LmagentError", "ToolError"),
    "lmagent.core.events": (
        *("ApprovalRequested", "Event", "FilesChanged", "Notice", "SubagentEvent", "TextDelta", "ThinkingDelta"),
        *("ToolFinished", "ToolOutput", "ToolStarted", "TurnFinished"),
    ),
    "lmagent.core.tool": ("ToolContext",),
    "lmagent.python.agent": ("Agent",),
    "lmagent.python.functions": ("tool",),
    "lmagent.python.run": ("AgentRun", "RunFailed", "RunResult"),
    "lmagent.python.session": ("AgentSession",),
}


def __getattr__(name: str) -> "Any":
    for module, names in _PLACES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in _PLACES.values() for name in names)})
