"""GGUF: the header of a model file, read without the tensors and without trusting a byte of it.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian:

    "GGUF"  u32 version  u64 tensors  u64 pairs
    pair:   string key, u32 type, value        string: u64 length, bytes     array: u32 type, u64 length, values
    tensor: string name, u32 dimensions, u64 each, u32 type, u64 offset from the beginning of the data

A vocabulary has 150,000 strings and more: they are counted and skipped in blocks, never kept. Every length is compared
with the rest of the file and with a limit before memory is taken for it.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from lmagent.core.plurals import plural
from lmagent.modelserver.library.quant import TYPES
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
    """Return the error of an unusable model file; `why` is the rest of a sentence that begins with its name."""
    return ModelServerError(f"{path.name} {why}", status=422, code="model_broken", fix=fix)


def explain(path: Path, head: bytes, size: int) -> ModelServerError:
    """Say which other format a file without the magic `GGUF` has."""
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


Scalar = str | int | float | bool
Value = Scalar | tuple[int | float | bool, ...]

BLOCK = 1 << 20
"""Bytes of one read."""

MAX_PAIRS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_KEY = (1 << 16) - 1
"""The format's own limit of a key's length."""
MAX_NAME = 1024
MAX_STRINGS = 1 << 22
"""Strings of an array: sixteen times the largest vocabulary there is."""
MAX_TEXT = 4 << 20
"""Bytes of a text that is kept; the longest chat templates have some 20,000."""
MAX_KEPT = 16 << 20
"""Bytes of all that is kept of the pairs."""
MAX_LIST = 4096
"""Numbers of an array that is kept: one for each layer."""
MAX_HEADER = 1 << 30
MAX_SHAPE = 4
ALIGNMENTS = frozenset(1 << power for power in range(21))
MAX_NUMBERS = 1 << 56

_SIMPLE: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_STRING, _ARRAY = 8, 9
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class GgufHeader(Struct, frozen=True):
    """The header of a GGUF file."""

    version: int  # 2 or 3
    values: dict[str, Value]  # the pairs; of arrays only short ones of numbers
    lengths: dict[str, int]  # how many items each array has, kept or not
    tensors: int  # how many tensors there are
    parameters: int  # numbers in all tensors
    weights: dict[str, int]  # numbers by type (`Q4_K`)
    layers: dict[int, int]  # bytes of the tensors `blk.N.…` by N
    data: int  # bytes of all tensors
    size: int  # bytes of the file


def read_header(path: Path) -> GgufHeader:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise broken(path, "is no file but a pipe, a socket or a device", "name a .gguf file")
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return _GgufReader(path, file, size).header()
    except IsADirectoryError:
        raise broken(path, "is a folder, not a file", "name the .gguf file in it") from None
    except OSError as error:
        raise broken(path, f"cannot be read: {error.strerror or error}", "check the file and its permissions") from None


class _GgufReader:
    """A reader that goes through the file once, from the front."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._buffer = b""
        self._at = 0  # in the buffer
        self._base = 0  # of the buffer, in the file
        self._kept = 0

    def header(self) -> GgufHeader:
        head = self._peek(64)
        if not head.startswith(b"GGUF"):
            raise explain(self._path, head, self._size)
        self._skip(4)
        version = self._version()
        tensors, pairs = self._u64("the number of tensors"), self._u64("the number of pairs")
        self._at_most(tensors, MAX_TENSORS, "tensors")
        self._at_most(pairs, MAX_PAIRS, "metadata pairs")
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        keys: set[str] = set()
        for _ in range(pairs):
            key = self._text(MAX_KEY, "a key")
            self._keep(key, 0)
            if key in keys:
                raise self._damaged(f"{_name(key)} is there twice")  # and the engine takes neither
            keys.add(key)
            value = self._value(key, self._u32("a type"), lengths)
            if value is not None:
                values[key] = value
        return self._tensors(version, tensors, values, lengths)

    def _version(self) -> int:
        version = self._u32("the version")
        if version in (2, 3):
            return version
        if version == 1:
            raise broken(self._path, "is a GGUF of version 1, which no engine reads any more", CONVERT)
        if not version & 0xFFFF and version >> 16 in (0x0100, 0x0200, 0x0300):
            fix = "convert it with gguf-py's gguf_convert_endian.py, or fetch the usual file"
            raise broken(self._path, "is a big-endian GGUF, made for other processors", fix)
        raise broken(self._path, f"says that it is a GGUF of version {version}; versions 2 and 3 are known", AGAIN)

    def _value(self, key: str, kind: int, lengths: dict[str, int]) -> Value | None:
        """Return the value; None if it is not kept."""
        if kind in _SIMPLE:
            form = _SIMPLE[kind]
            self._keep(key, 8)
            (number,) = form.unpack(self._take(form.size, key))
            return number
        if kind == _STRING:
            length = self._length(key, MAX_HEADER)
            if length > MAX_TEXT or not key.startswith(("general.", "tokenizer.chat_template", "tokenizer.ggml.")):
                self._skip(length, key)
                return None
            self._keep(key, length)
            return self._take(length, key).decode("utf-8", "replace")
        if kind == _ARRAY:
            return self._array(key, lengths)
        raise self._damaged(f"{_name(key)} has a value of the unknown type {kind}")

    def _array(self, key: str, lengths: dict[str, int]) -> Value | None:
        kind, count = self._u32(key), self._u64(key)
        lengths[key] = count
        self._keep(key, 8)
        if kind == _STRING:
            self._skip_strings(key, count)
            return None
        if kind not in _SIMPLE:
            raise self._damaged(f"{_name(key)} is an array of the unknown type {kind}")
        form = _SIMPLE[kind]
        if count > self._left() // form.size:
            raise self._short(f"{_name(key)} has {plural(count, 'item')}")
        if count > MAX_LIST:
            self._skip(count * form.size, key)
            return None
        self._keep(key, 32 * count)
        return tuple(item for (item,) in form.iter_unpack(self._take(count * form.size, key)))

    def _skip_strings(self, key: str, count: int) -> None:
        """Pass over an array of strings: the one hot loop, on local names and whole blocks."""
        if count > self._left() // 8:
            raise self._short(f"{_name(key)} has {count} texts")
        self._at_most(count, MAX_STRINGS, f"texts in {_name(key)}")
        unpack = _U64.unpack_from
        buffer, at = self._buffer, self._at
        usable = len(buffer) - 8
        for _ in range(count):
            if at > usable:
                self._skip_to(at)
                self._need(8, key)
                buffer, at = self._buffer, self._at
                usable = len(buffer) - 8
            (length,) = unpack(buffer, at)
            at += 8 + length
            if at > usable and length > self._size:
                raise self._short(f"a text of {_name(key)} has {length} bytes")
        self._skip_to(at)

    def _tensors(self, version: int, count: int, values: dict[str, Value], lengths: dict[str, int]) -> GgufHeader:
        weights: dict[str, int] = {}
        layers: dict[int, int] = {}
        total = end = parameters = 0
        for _ in range(count):
            name, numbers, kind, offset = self._tensor()
            label, block, block_bytes = TYPES.get(kind, (f"type {kind}", 1, 0))
            size = -(-numbers // block) * block_bytes
            parameters += numbers
            weights[label] = weights.get(label, 0) + numbers
            total += size
            end = max(end, offset + size)
            layer = _layer_of(name)
            if layer >= 0:
                layers[layer] = layers.get(layer, 0) + size
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment not in ALIGNMENTS:
            raise self._damaged(f"its alignment is {str(alignment)[:20]!r}, and has to be a power of two")
        begin = -(-(self._base + self._at) // alignment) * alignment
        if count and begin + end > self._size:
            raise self._short(f"its tensors end at byte {begin + end:,}")
        return GgufHeader(version, values, lengths, count, parameters, weights, layers, total, self._size)

    def _tensor(self) -> tuple[str, int, int, int]:
        name = self._text(MAX_NAME, "the name of a tensor")
        dimensions = self._u32(name)
        if dimensions > MAX_SHAPE:
            raise self._damaged(f"the tensor {_name(name)} has {dimensions} dimensions")
        numbers = 1
        for _ in range(dimensions):
            numbers *= self._u64(name)
        if numbers > MAX_NUMBERS:
            raise self._damaged(f"the tensor {_name(name)} has {numbers} numbers")
        return name, numbers, self._u32(name), self._u64(name)

    def _text(self, limit: int, what: str) -> str:
        return self._take(self._length(what, limit), what).decode("utf-8", "replace")

    def _length(self, what: str, limit: int) -> int:
        length = self._u64(what)
        if length > self._left():
            raise self._short(f"{_name(what)} has {length} bytes")
        self._at_most(length, limit, f"bytes in {_name(what)}")
        return length

    def _u32(self, what: str) -> int:
        return _U32.unpack(self._take(4, what))[0]

    def _u64(self, what: str) -> int:
        return _U64.unpack(self._take(8, what))[0]

    def _left(self) -> int:
        return self._size - self._base - self._at

    def _take(self, count: int, what: str) -> bytes:
        self._need(count, what)
        at = self._at
        self._at = at + count
        return self._buffer[at : at + count]

    def _peek(self, count: int) -> bytes:
        self._fill(min(count, self._size))
        return self._buffer[:count]

    def _need(self, count: int, what: str) -> None:
        if self._at + count > len(self._buffer) and not self._fill(count):
            raise self._short(f"it ends within {_name(what)}")

    def _fill(self, count: int) -> bool:
        """Read until the buffer has that many bytes from here; return False at the end of the file."""
        rest = self._buffer[self._at :]
        self._base += self._at
        self._at = 0
        if self._base > MAX_HEADER:
            raise self._damaged(f"its header has more than {MAX_HEADER:,} bytes")
        pieces, have = [rest], len(rest)
        while have < count:
            piece = self._file.read(max(BLOCK, count - have))
            if not piece:
                break
            pieces.append(piece)
            have += len(piece)
        self._buffer = b"".join(pieces)
        return have >= count

    def _skip(self, count: int, what: str = "") -> None:
        if count > self._left():
            raise self._short(f"it ends within {_name(what)}")
        self._skip_to(self._at + count)

    def _skip_to(self, at: int) -> None:
        """Go to an offset in the buffer, which may be after its end."""
        if at <= len(self._buffer):
            self._at = at
            return
        self._base += at
        if self._base > self._size:
            raise self._short("a text ends after it")
        self._buffer, self._at = b"", 0
        self._file.seek(self._base)

    def _keep(self, key: str, count: int) -> None:
        self._kept += len(key) + 64 + count
        if self._kept > MAX_KEPT:
            raise self._damaged(f"its metadata has more than {MAX_KEPT:,} bytes")

    def _at_most(self, count: int, limit: int, what: str) -> None:
        if count > limit:
            raise self._damaged(f"it announces {count:,} {what}; {limit:,} is the most that makes sense")

    def _damaged(self, why: str) -> Exception:
        return broken(self._path, f"is damaged: {why}")

    def _short(self, why: str) -> Exception:
        return broken(self._path, f"is cut off: {why}, but the file has {self._size:,} bytes; the download did not end")


def _name(key: str) -> str:
    """Return a key from a file in printable letters."""
    return "".join(letter if letter.isprintable() else "?" for letter in key[:80])


def _layer_of(name: str) -> int:
    """Return N of `blk.N.…`; -1 for any other tensor."""
    if not name.startswith("blk."):
        return -1
    number = name[4:].partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
