"""Attaching: the files that a message names with `@`, and the images that it names by their path."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

from anyio import to_thread

from lmagent.app.host import Host
from lmagent.core.errors import ToolError
from lmagent.core.messages import Image, Message, Text
from lmagent.core.plurals import plural
from lmagent.core.titles import ATTACHED
from lmagent.engine.session import Session
from lmagent.tools.beneath import Beneath
from lmagent.tools.pictures import MAX_PIXELS, Picture, picture_of
from lmagent.tools.sanitize import one_line
from lmagent.tools.textfile import decode, is_binary

# Characters that the files of one message may have together; at most one for each free token of the window, which is
# about a quarter of its room.
LARGEST_TEXT = 100_000

LARGEST_IMAGE = 20 << 20  # bytes of the largest image; servers accept about as much in one request

_LARGEST_FILE = 50_000_000

_WORDS = re.compile(r"""(?:^|(?<=\s))(?:@?"([^"\n]+)"|@?'([^'\n]+)'|(\S+))""")
_IMAGE_NAME = re.compile(r".\.(?:png|jpe?g|webp|gif)$", re.IGNORECASE)
_TAKEN = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Say = Callable[[str, str], None]


async def with_attachments(text: str, words: str, host: Host, session: Session, say: Say) -> Message:
    """Return a message of the user with the files that it names; only `words`, the typed part, names files."""
    files = await to_thread.run_sync(_files, words, host.workspace)
    free = max(0, session.window.tokens - session.state.estimate_tokens())
    room, images = min(LARGEST_TEXT, free), list[Image]()
    for path, name in files.items():
        try:
            data = await to_thread.run_sync(_load, path, name, host.workspace)
            if (picture := picture_of(data)) is not None and is_binary(data):
                images.append(await attached_image(data, picture, host, session))
                what = f"{picture.media_type.removeprefix('image/').upper()}, {picture.width} × {picture.height}"
            else:
                part, what = attached_text(name, data, room)
                text, room = text + part, room - len(part)
            say(f"attached {name} ({what})", "quiet")
        except ToolError as refused:
            say(f"{name} is not attached: {one_line(refused.message)}", "warning")
    return Message("user", (Text(text), *images))


def without_attachments(text: str) -> str:
    return text.partition(ATTACHED)[0]


def _files(text: str, workspace: Path) -> dict[Path, str]:
    """Return the existing files that the message names, with their names in it."""
    found: dict[Path, str] = {}
    for word in _WORDS.finditer(text):
        name = word[1] or word[2] or word[3].removeprefix("@")
        for candidate in dict.fromkeys((name, name.rstrip(".,;:!?)]"))):
            path = workspace / Path(candidate).expanduser() if candidate else workspace
            if (word[0].startswith("@") or _IMAGE_NAME.search(candidate)) and path.is_file():
                found.setdefault(path, candidate)
                break
    return found


def _load(path: Path, name: str, workspace: Path) -> bytes:
    if path.is_relative_to(workspace):
        with Beneath(workspace) as files:
            return files.read_bytes(str(path.relative_to(workspace)), _LARGEST_FILE)
    if not _IMAGE_NAME.search(name):
        raise ToolError(f"it is not in the workspace {workspace}; only images can come from elsewhere")
    try:
        with path.open("rb") as opened:
            return opened.read(_LARGEST_FILE)
    except OSError as error:
        raise ToolError(f"it cannot be read: {error.strerror}") from None


async def attached_image(data: bytes, picture: Picture, host: Host, session: Session) -> Image:
    """Raise ToolError if the model takes no such image."""
    if picture.media_type not in _TAKEN:
        raise ToolError("models take PNG, JPEG, GIF and WebP images only; save it as one of these")
    if picture.is_too_large or len(data) > LARGEST_IMAGE:
        most = f"{MAX_PIXELS // 1_000_000} million pixels and {LARGEST_IMAGE >> 20} MB"
        raise ToolError(f"an image may have {most} at most; make a smaller copy")
    model = session.state.model or host.agent.model
    if not await host.takes_images(model):
        what = model or "the server's model"
        raise ToolError(f"{what} takes no images; /model picks another, VISION_ENABLED=true says that it does")
    return Image(picture.media_type, base64.b64encode(data).decode())


def attached_text(name: str, data: bytes, room: int) -> tuple[str, str]:
    """Return the text, cut to `room`, and a note about the cut. Raise ToolError if it is no text, or does not fit."""
    decoded = decode(data)
    if decoded is None:
        raise ToolError("it is no text")
    lines = decoded[0].splitlines()
    total, kept, size = len(lines), 0, 0
    while kept < total and size + len(lines[kept]) < room:
        size += len(lines[kept]) + 1
        kept += 1
    if kept == 0 < total:
        raise ToolError("the window has no room for it; the agent can read it page by page")
    what = plural(total, "line") if kept == total else f"lines 1 to {kept:,} of {total:,}"
    return f"{ATTACHED}{name}, {what}]\n" + "\n".join(lines[:kept]), what
