"""Streams from bytes to payloads: server-sent events, or one payload in each line.

Format: WHATWG HTML, "Server-sent events". Like some servers, it is more tolerant: an `error:` field (older llama.cpp)
and `event: error` mark a payload as an error, and a last event without its blank line counts.
"""

from __future__ import annotations

from lmagent.core.errors import BadReply
from lmagent.providers import jsontext

MAX_EVENT = 64 * 1024 * 1024
"""Bytes of an event above which the stream is discarded; a whole reply fits many times over."""


class SseReader:
    """Reads one stream. Only bytes are split here, so a character may be cut at any place."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._held_size = 0
        self._after_cr = False
        self._started = False
        self._data: list[bytes] = []
        self._error = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that `chunk` completes; raise BadReply if one is larger than `MAX_EVENT`."""
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 10:  # the second half of CR LF
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(chunk)
            return []
        if self._held:
            chunk = b"".join((*self._held, chunk))
            self._held.clear()
            self._held_size = 0
        lines = chunk.splitlines()
        last = chunk[-1]
        if last not in (10, 13):
            self._hold(lines.pop())
        elif last == 13:
            self._after_cr = True
        return self._take(lines)

    def finish(self) -> list[bytes]:
        lines = [b"".join(self._held), b""]
        self._held.clear()
        return self._take(lines)

    def _hold(self, piece: bytes) -> None:
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > MAX_EVENT:
            raise BadReply(f"the server's stream has an event of more than {MAX_EVENT} bytes")

    def _take(self, lines: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        if not self._started and lines:
            self._started = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if data:
                    payloads.append(self._payload(data))
                    data.clear()
                self._error = False
            elif line[:1] != b":":
                self._field(line)
        return payloads

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"event":
            self._error = value.strip() == b"error"
        elif name == b"error":
            self._error = True
            self._data.append(value.removeprefix(b" "))

    def _payload(self, data: list[bytes]) -> bytes:
        payload = data[0] if len(data) == 1 else b"\n".join(data)
        if not self._error:
            return payload
        try:
            error = jsontext.loads(payload)
        except ValueError:
            error = payload.decode("utf-8", "replace")
        return jsontext.dumps({"error": error})


class LineReader:
    """Reads a stream with one JSON text in each line; blank lines are skipped."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that `chunk` completes; raise BadReply if one is larger than `MAX_EVENT`."""
        *lines, self._held = (self._held + chunk).split(b"\n")
        if len(self._held) > MAX_EVENT:
            raise BadReply("the server's stream holds a line that does not end", fix="look at the server's log")
        return [payload for line in lines if line.strip() for payload in self.take(line)]

    def finish(self) -> list[bytes]:
        return self.take(self._held) if self._held.strip() else []

    def take(self, line: bytes) -> list[bytes]:
        return [line]
