"""Pictures in terminals that say, in their variables, that they show them: kitty, Ghostty, iTerm2 and WezTerm.

Others are not asked: a terminal that does not know the question prints it. Nor is one inside tmux or screen, which
leave pictures out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from shutil import get_terminal_size

from lmagent.core.errors import LmagentError
from lmagent.tools.beneath import Beneath
from lmagent.tools.pictures import media_type_of

LARGEST = 4 << 20
"""Bytes of a picture that is printed."""

WIDEST = 80
"""Columns that a picture takes at most."""

_PIECE = 4096  # characters at once, as kitty's protocol wants it


def printed(workspace: Path, path: str, env: Mapping[str, str]) -> str:
    """Return the text that makes a terminal show a PNG of the workspace; empty if it cannot."""
    kitty = env.get("TERM") == "xterm-kitty" or env.get("TERM_PROGRAM") == "ghostty"
    iterm = env.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm")
    if env.get("TMUX") or env.get("STY") or not (kitty or iterm):
        return ""
    try:  # a log may name any path
        with Beneath(workspace) as files:
            data = files.read_bytes(path, LARGEST + 1)
    except LmagentError:  # it is gone
        return ""
    if len(data) > LARGEST or media_type_of(data) != "image/png":
        return ""
    text = base64.b64encode(data).decode("ascii")
    columns = min(WIDEST, get_terminal_size().columns)  # in its own size it may not fit
    if iterm:
        return f"\x1b]1337;File=inline=1;size={len(data)};width={columns};preserveAspectRatio=1:{text}\x07\n"
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    last = len(pieces) - 1
    shown = (
        f"\x1b_G{f'a=T,f=100,q=2,c={columns},' * (at == 0)}m={int(at < last)};{piece}\x1b\\"
        for at, piece in enumerate(pieces)
    )
    return "".join(shown) + "\n"
