"""What a file is that was taken for a GGUF: each of these has ended in somebody's folder of models."""

from __future__ import annotations

from pathlib import Path

from lmagent.modelserver.spec import ModelServerError

AGAIN = "delete it and fetch it again: lmagent models pull OWNER/REPO"
CONVERT = "look for a GGUF of the same model: lmagent models pull OWNER/REPO-GGUF"

_BEGINNINGS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer: a note of where the model lies, not the model", AGAIN),
    (b"PK\x03\x04", "a zip archive (PyTorch checkpoints are zip archives too)", "unpack it; " + CONVERT),
    (b"\x1f\x8b", "a gzip archive", "unpack it: gunzip FILE"),
    (b"BZh", "a bzip2 archive", "unpack it: bunzip2 FILE"),
    (b"\xfd7zXZ\x00", "an xz archive", "unpack it: unxz FILE"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it: unzstd FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive", "unpack it"),
    (b"\x80\x02", "a PyTorch checkpoint (pickle)", CONVERT),
    (b"\x80\x04", "a PyTorch checkpoint (pickle)", CONVERT),
    (b"lmgg", "a model in the old GGML format of before August 2023", CONVERT),
    (b"fmgg", "a model in the old GGMF format of before August 2023", CONVERT),
    (b"tjgg", "a model in the old GGJT format of before August 2023", CONVERT),
    (b"algg", "a LoRA adapter in the old GGLA format", "convert it with llama.cpp's convert_lora_to_gguf.py"),
    (b"\x89HDF\r\n", "an HDF5 file", CONVERT),
    (b"\x7fELF", "a program", "remove it from the folder of models"),
    (b"%PDF", "a PDF document", "remove it from the folder of models"),
)


def broken(path: Path, why: str, fix: str = AGAIN) -> ModelServerError:
    """The error of a model file that cannot be used.

    Args:
        path: the file.
        why: what is wrong with it, as the rest of a sentence that begins with its name.
        fix: what to do.
    """
    return ModelServerError(f"{path.name} {why}", status=422, code="model_broken", fix=fix)


def explain(path: Path, head: bytes, size: int) -> ModelServerError:
    """Say what a file without the magic `GGUF` is.

    Args:
        path: the file.
        head: its first bytes.
        size: its length in bytes.
    """
    if not size:
        return broken(path, "is empty: a download that never began")
    if not head.strip(b"\x00"):
        return broken(path, "begins with zeros: a download that set the space aside and did not come to its end")
    for beginning, what, fix in _BEGINNINGS:
        if head.startswith(beginning):
            return broken(path, f"is not a GGUF but {what}", fix)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<!--")):
        return broken(path, "is not a GGUF but a web page: the link that was fetched led to a page, not to the file")
    if text.startswith((b"<?xml", b"<error")):
        return broken(path, "is not a GGUF but an XML text, most likely a storage server's error message")
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < max(size, 1):
        return broken(path, "is not a GGUF but a safetensors file", CONVERT)
    if text.startswith((b"{", b"[")):
        return broken(path, "is not a GGUF but a JSON text, most likely a server's error message")
    return broken(
        path, f"is not a GGUF: it begins with {head[:4]!r} instead of b'GGUF'", "fetch it again, or remove it"
    )
