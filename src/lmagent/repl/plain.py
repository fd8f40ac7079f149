"""Plain: lines in, lines out, nothing redrawn. For screen readers, dumb terminals and NO_COLOR."""

from __future__ import annotations

import sys

import anyio

from lmagent.core.events import grant_in_a_line
from lmagent.repl.conversation import Conversation


def write(text: str) -> None:
    """Print finished text."""
    sys.stdout.write(text)
    sys.stdout.flush()


async def run(conversation: Conversation) -> None:
    """Read and act until the end of the input or until the person leaves.

    A line is read while the agent works, too: it steers, and answers what is asked.
    """
    while True:
        write(_prompt(conversation))
        line = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        if not line:
            await conversation.until(lambda: not conversation.working)
            return
        if not await conversation.line(line):
            return
        # The prompt must not stand in the middle of the output.
        await conversation.until(lambda: not conversation.working or conversation.question is not None)


def _prompt(conversation: Conversation) -> str:
    if pending := conversation.question:
        always = f", a = always ({grant_in_a_line(pending.grant)})" if pending.grant else ""
        return f"Allow {pending.tool}? [y = yes, n = no{always}] "
    if conversation.plan is not None:
        return "Approve the plan? [y = yes, e = edit, n = no, or say what should be otherwise] "
    return "> "
