"""GGUF: the header of a model file, read without the tensors and without trusting a byte of it.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian:

    "GGUF"  u32 version  u64 tensors  u64 pairs
    pair:   string key, u32 type, value        string: u64 length, bytes     array: u32 type, u64 length, values
    tensor: string name, u32 dimensions, u64 each, u32 type, u64 offset from the beginning of the data

A vocabulary has 150,000 strings and more: they are counted and passed over, never kept. Every length is compared with
the size of the file before anything is read for it.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from lmagent.modelserver.library.quant import TYPES
from lmagent.modelserver.spec import ModelServerError

AGAIN = "delete it and fetch it again: lmagent models pull OWNER/REPO"
CONVERT = "look for a GGUF of the same model: lmagent models pull OWNER/REPO-GGUF"
BLOCK = 1 << 20  # bytes of one read
MAX_HEADER = 64 << 20  # bytes of a header; the largest vocabularies take some 15 million
MAX_PAIRS = 4096
MAX_TENSORS = 1 << 17
MAX_LIST = 1024  # numbers of an array that is kept: one for each layer
MAX_NUMBERS = 1 << 56
ALIGNMENTS = frozenset(1 << power for power in range(21))

_LETTERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_NUMBERS = {kind: struct.Struct(f"<{letter}") for kind, letter in _LETTERS.items()}
_STRING, _ARRAY = 8, 9
_U32, _U64 = _NUMBERS[4], _NUMBERS[10]

Value = str | int | float | bool | tuple[int | float | bool, ...]


def broken(path: Path, why: str, fix: str = AGAIN) -> ModelServerError:
    """Return the error of an unusable model file; `why` is the rest of a sentence that begins with its name."""
    return ModelServerError(f"{path.name} {why}", status=422, code="model_broken", fix=fix)


class GgufHeader(Struct, frozen=True):
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
        with path.open("rb") as file:
            return _GgufReader(path, file, os.fstat(file.fileno()).st_size).header()
    except IsADirectoryError:
        raise broken(path, "is a folder, not a file", "name the .gguf file in it") from None
    except OSError as error:
        raise broken(path, f"cannot be read: {error.strerror or error}", "check the file and its permissions") from None


class _GgufReader:
    """A reader that goes through the header once, from the front."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._read = bytearray(file.read(BLOCK))
        self._at = 0

    def header(self) -> GgufHeader:
        if not self._read.startswith(b"GGUF"):
            raise self._not_gguf(bytes(self._read[:64]))
        self._at = 4
        version = self._number(_U32)
        if version not in (2, 3):
            why = f"is a GGUF of version {version}; versions 2 and 3, little endian, can be read"
            raise broken(self._path, why, CONVERT)
        tensors, pairs = self._number(_U64), self._number(_U64)
        if tensors > MAX_TENSORS or pairs > MAX_PAIRS:
            raise self._damaged(f"it announces {tensors:,} tensors and {pairs:,} pairs of metadata")
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        keys: set[str] = set()
        for _ in range(pairs):
            key = self._text()
            if key in keys:
                raise self._damaged(f"{_printable(key)} is there twice")  # and the engine takes neither
            keys.add(key)
            value = self._value(key, self._number(_U32), lengths)
            if value is not None:
                values[key] = value
        return self._tensors(tensors, values, lengths)

    def _value(self, key: str, kind: int, lengths: dict[str, int]) -> Value | None:
        """Return the value; None if it is not kept."""
        if kind == _STRING:
            text = self._text()
            return text if key.startswith(("general.", "tokenizer.chat_template", "tokenizer.ggml.")) else None
        if kind != _ARRAY:
            return self._number(self._form(key, kind))
        kind, lengths[key] = self._number(_U32), self._number(_U64)
        count = lengths[key]
        if kind == _STRING:
            self._skip_strings(count)
            return None
        form = self._form(key, kind)
        items = form.iter_unpack(self._take(count * form.size))
        return tuple(item for (item,) in items) if count <= MAX_LIST else None

    def _form(self, key: str, kind: int) -> struct.Struct:
        if kind not in _NUMBERS:
            raise self._damaged(f"{_printable(key)} has a value of the unknown type {kind}")
        return _NUMBERS[kind]

    def _skip_strings(self, count: int) -> None:
        """Pass over an array of strings: the one hot loop."""
        read, at, unpack = self._read, self._at, _U64.unpack_from
        for _ in range(count):
            if at + 8 > len(read):
                self._at = at
                self._need(8)
            at += 8 + unpack(read, at)[0]
        self._at = at
        self._need(0)

    def _tensors(self, count: int, values: dict[str, Value], lengths: dict[str, int]) -> GgufHeader:
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
            if (layer := _layer_of(name)) >= 0:
                layers[layer] = layers.get(layer, 0) + size
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or isinstance(alignment, bool) or alignment not in ALIGNMENTS:
            raise self._damaged(f"its alignment is {str(alignment)[:20]!r}, and has to be a power of two")
        begin = -(-self._at // alignment) * alignment
        if count and begin + end > self._size:
            raise self._damaged(f"its tensors end at byte {begin + end:,} of {self._size:,}")
        return GgufHeader(values, lengths, count, parameters, weights, layers, total, self._size)

    def _tensor(self) -> tuple[str, int, int, int]:
        name, numbers = self._text(), 1
        dimensions = self._number(_U32)
        for _ in range(min(dimensions, 5)):
            numbers *= self._number(_U64)
        if dimensions > 4 or numbers > MAX_NUMBERS:
            raise self._damaged(f"the tensor {_printable(name)} has {dimensions} dimensions and {numbers} numbers")
        return name, numbers, self._number(_U32), self._number(_U64)

    def _text(self) -> str:
        return self._take(self._number(_U64)).decode("utf-8", "replace")

    def _number(self, form: struct.Struct) -> int:
        return form.unpack(self._take(form.size))[0]

    def _take(self, count: int) -> bytes:
        self._need(count)
        self._at += count
        return bytes(self._read[self._at - count : self._at])

    def _need(self, count: int) -> None:
        """Read until so many bytes follow."""
        end = self._at + count
        if end > min(self._size, MAX_HEADER):
            raise self._damaged(f"its header has {end:,} bytes, and the file {self._size:,}")
        if end > len(self._read):
            self._read += self._file.read(max(BLOCK, end - len(self._read)))
            if end > len(self._read):
                raise self._damaged("it was shortened while it was read")

    def _damaged(self, why: str) -> Exception:
        return broken(self._path, f"is damaged or cut off: {why}")

    def _not_gguf(self, head: bytes) -> Exception:
        """Explain which other format the file has, as far as that helps the user."""
        if not head.strip(b"\0"):
            return broken(self._path, "is empty or begins with zeros: a download that did not come to its end")
        if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<", b"{", b"[", b"version https://git-lfs")):
            return broken(self._path, "is not a GGUF but a text: a web page, a server's error or a Git LFS pointer")
        return broken(self._path, f"is not a GGUF: it begins with {head[:4]!r} instead of b'GGUF'", CONVERT)


def _printable(key: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in key[:80])


def _layer_of(name: str) -> int:
    """Return N of `blk.N.…`; -1 for any other tensor."""
    number = name[4:].partition(".")[0] if name.startswith("blk.") else ""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 6 else -1
