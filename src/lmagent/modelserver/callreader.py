"""CallReader: calls out of the JSON that a schema of `enforce` makes a model write, while it is being written."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from lmagent.core.ids import new_id
from lmagent.providers import jsontext

_HEAD = re.compile(r'[\s\[,]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')
_PLAIN = re.compile(r'[^"{}\[\]\s]+')
_IN_TEXT = re.compile(r'[^"\\]+')


class Call(Struct):
    """A call, as far as it has come.

    Attributes:
        name: the tool.
        id: made up here; the model writes none.
        arguments: JSON text without blanks between its parts.
        whole: it came to its end.
    """

    name: str
    id: str
    arguments: str = ""
    whole: bool = False


class Piece(Struct, frozen=True):
    """What a piece of text added.

    Attributes:
        index: which call.
        call: set when it begins here.
        arguments: what was added to its arguments.
    """

    index: int
    call: Call | None = None
    arguments: str = ""


class CallReader:
    """Reads one reply.

    Attributes:
        calls: all that were begun.
        text: all that was read, for a reply that is no call after all.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.text = ""
        self._held: str = ""
        self._mode: Literal["head", "arguments", "tail"] = "head"
        self._depth: int = 0
        self._quoted: bool = False

    @property
    def whole(self) -> list[Call]:
        """The calls that came to their end."""
        return [call for call in self.calls if call.whole]

    def feed(self, text: str) -> list[Piece]:
        """Take what the model wrote."""
        self.text += text
        self._held += text
        pieces: list[Piece] = []
        while self._held:
            if self._mode == "head":
                if not (head := _HEAD.match(self._held)) or head.end() == len(self._held):
                    break  # blanks may still follow the colon
                self._held = self._held[head.end() :]
                name = str(jsontext.loads(head[1].encode("utf-8", "replace")))
                self.calls.append(Call(name, f"call_{new_id()}"))
                pieces.append(Piece(len(self.calls) - 1, self.calls[-1]))
                self._mode, self._depth, self._quoted = "arguments", 0, False
            elif self._mode == "arguments":
                if added := self._arguments():
                    self.calls[-1].arguments += added
                    pieces.append(Piece(len(self.calls) - 1, arguments=added))
                if self._mode == "arguments":
                    break
            else:
                behind = self._held.lstrip()
                if not behind.startswith("}"):
                    self._held = behind
                    break
                self._held, self._mode = behind[1:], "head"
        return pieces

    def _arguments(self) -> str:
        """What of the held text belongs to the arguments; blanks outside of texts are left out."""
        held, at, found = self._held, 0, list[str]()
        while at < len(held):
            letter = held[at]
            if self._quoted:
                if letter == "\\":
                    if at + 1 == len(held):
                        break
                    found.append(held[at : at + 2])
                    at += 2
                    continue
                self._quoted = letter != '"'
                plain = _IN_TEXT.match(held, at)
                end = plain.end() if plain else at + 1
            elif letter.isspace():
                at += 1
                continue
            else:
                plain = _PLAIN.match(held, at)
                end = plain.end() if plain else at + 1
                self._quoted = letter == '"'
                self._depth += (letter in "{[") - (letter in "}]")
            found.append(held[at:end])
            at = end
            if self._depth <= 0 and not self._quoted:
                self.calls[-1].whole, self._mode = True, "tail"
                break
        self._held = held[at:]
        return "".join(found)
