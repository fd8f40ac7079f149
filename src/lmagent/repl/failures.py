"""Failures: what fails is shown, and the conversation continues."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from lmagent.app.host import Host
from lmagent.core.errors import LmagentError
from lmagent.terminal.render import Renderer
from lmagent.tools.sanitize import one_line


@contextmanager
def failures_shown(host: Host, renderer: Renderer, session: Callable[[], str]) -> Generator[None]:
    """Show whatever fails meanwhile.

    Args:
        host: logs what nobody foresaw.
        renderer: shows it.
        session: gives the id of the session; empty for none.
    """
    try:
        yield
    except LmagentError as failure:
        renderer.say(str(failure), "fault")
    except Exception as defect:  # noqa: BLE001 - a defect of ours must not take the conversation down
        from lmagent.app.logs import keep_failure  # rare

        how = f"; also later: lmagent --resume {session()}" if session() else ""
        renderer.say(f"unexpected error: {type(defect).__name__}: {one_line(str(defect))}", "fault")
        renderer.say(f"  → what was done is kept; go on here{how}; details: {keep_failure(host, defect)}", "fault")
