"""Clipboard: a program of the desktop, or else the terminal itself (OSC 52), which works over SSH too."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Callable

import anyio

from lmagent.core.errors import LmagentError

PROGRAMS = (
    ("wl-copy",),
    ("xclip", "-selection", "clipboard"),
    ("xsel", "--clipboard", "--input"),
    ("pbcopy",),
    ("clip.exe",),
)
"""Programs that read the text from their input; each fails at once without its desktop."""

PATIENCE = 5.0
"""Seconds that such a program has."""


async def copy(text: str, clip: Callable[[str], bool]) -> str:
    """Put a text on the clipboard, by a program or by the terminal; returns the sentence to print.

    `clip`: asks the terminal; False if it cannot be asked. Raises LmagentError if no way works.
    """
    program = await _copy_by_program(text)
    if not program and not clip(text):
        raise LmagentError("there is no clipboard here", fix="/export writes the session to a file")
    return f"copied {len(text):,} characters by {program or 'the terminal'}"


async def _copy_by_program(text: str) -> str:
    """Give the text to the first program that takes it; returns the program's name, empty for none."""
    for command in PROGRAMS:
        if shutil.which(command[0]) is None:
            continue
        with anyio.move_on_after(PATIENCE):
            # They stay in the background to serve the text, so their output must not be waited for.
            done = await anyio.run_process(
                command, input=text.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
            )
            if done.returncode == 0:
                return command[0]
    return ""


def osc52(text: str) -> str:
    """Return the sequence that asks a terminal to put a text on the clipboard."""
    return f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07"
