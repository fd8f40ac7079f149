"""Signals that end a surface in order: the turn ends, it is recorded, and no process is left running."""

from __future__ import annotations

import signal


def ending() -> tuple[signal.Signals, ...]:
    """Return SIGTERM and SIGHUP (a closed terminal), unless the parent process ignores SIGHUP (nohup)."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, hangup)
