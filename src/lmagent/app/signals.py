"""Signals that end a surface in order: the turn ends, it is recorded, and nothing is left running."""

from __future__ import annotations

import signal


def ending() -> tuple[signal.Signals, ...]:
    """SIGTERM, and SIGHUP of a terminal that was closed, unless whoever started us wants it ignored (nohup)."""
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN:
        return (signal.SIGTERM,)
    return (signal.SIGTERM, hangup)
