"""Failures: errors are printed, and the conversation continues."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from lmagent.app.host import Host
from lmagent.core.errors import LmagentError
from lmagent.terminal.render import Renderer


@contextmanager
def failures_shown(host: Host, renderer: Renderer, session: Callable[[], str]) -> Generator[None]:
    """Print every error of the block.

    Args:
        host: logs unexpected ones.
        renderer: prints them.
        session: returns the id of the session; empty for none.
    """
    try:
        yield
    except LmagentError as failure:
        renderer.say(str(failure), "fault")
    except Exception as defect:  # noqa: BLE001 - a defect of ours must not take the conversation down
        from lmagent.app.logs import unexpected  # rare

        back = f"continue here, or later with lmagent --resume {session()}" if session() else "continue here"
        renderer.say(str(unexpected(defect, host.workspace, host.settings, back)), "fault")
