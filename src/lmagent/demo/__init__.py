"""The demo model: a tiny GGUF file that does a handful of file chores offline; `MODEL_CARD.md` lists its limits.

It is trained from nothing by `tools/train_demo_model.py`, and any llama.cpp server runs it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lmagent.core.errors import LmagentError

NAME = "demo.gguf"
_FOLDER = Path(__file__).parent


def model_path() -> Path:
    """Return the model file, after comparing its SHA-256 with the one in `demo.gguf.sha256`.

    Raises LmagentError if the file is missing or differs from the packed one.
    """
    path = _FOLDER / NAME
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        packed = (_FOLDER / f"{NAME}.sha256").read_text("ascii").split()[0]
    except OSError as error:
        raise LmagentError(f"the demo model cannot be read: {error}", fix=_FIX) from None
    if found != packed:
        raise LmagentError(f"{path} is damaged: its SHA-256 is {found}, not {packed}", fix=_FIX)
    return path


_FIX = "install lmagent again: pip install --force-reinstall lmagent"
