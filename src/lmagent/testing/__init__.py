"""Testing: drive an agent without a model. Public: use it in the tests of your own agent.

    ScriptedServer   a model server over real HTTP that follows a script   (server.py; the script is built with
        script.py)
    quirks, faults   the oddities and the errors of real servers           (quirks.py, faults.py)
    fakes            one in-memory implementation of each port             (fakes/)
    conformance      one suite of tests for each port; needs pytest        (conformance/)

The program itself imports nothing from here.
"""

from __future__ import annotations

from lmagent.testing.script import (
    Counts,
    PlainAnswer,
    Reply,
    ScriptedCall,
    call,
    call_raw,
    calls,
    cut,
    error_in_stream,
    hang,
    raw,
    refuse,
    reply,
    say,
    slow,
    status,
    think,
    tool,
)
from lmagent.testing.server import ScriptedServer

__all__ = [
    "Counts",
    "PlainAnswer",
    "Reply",
    "ScriptedCall",
    "ScriptedServer",
    "call",
    "call_raw",
    "calls",
    "cut",
    "error_in_stream",
    "hang",
    "raw",
    "refuse",
    "reply",
    "say",
    "slow",
    "status",
    "think",
    "tool",
]
